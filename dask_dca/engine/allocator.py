"""The memory allocator of Dask's workers, while a task of this library runs.

Dask starts workers on Linux with `MALLOC_TRIM_THRESHOLD_=65536`. That also fixes glibc's threshold for mapping, so that
every temporary array above 128 KiB gets new pages from the system and gives them back when it is freed. A task that
makes such arrays in a loop spends as long in page faults as in arithmetic.
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_M_TRIM_THRESHOLD: Final = -1  # both as in malloc.h
_M_MMAP_THRESHOLD: Final = -3
# What glibc raises its thresholds to by itself, unless the environment fixes them.
_TRIM_BYTES: Final = 2**26
_MMAP_BYTES: Final = 2**25
_DEFAULT_BYTES: Final = 2**17  # of both in glibc, where the environment fixes the other one alone
_LOCK: Final = threading.Lock()
_open_contexts: Final[set[object]] = set()


@functools.cache
def _thresholds() -> tuple[int, int] | None:
    """Bytes from which the environment trims and maps memory; None where freed memory is used again anyway."""
    trim, mapped = (os.environ.get(f"MALLOC_{name}_THRESHOLD_", "") for name in ("TRIM", "MMAP"))
    if sys.platform != "linux" or not (trim.isdecimal() or mapped.isdecimal()):
        return None  # glibc raises both by itself
    found = int(trim) if trim.isdecimal() else _DEFAULT_BYTES, int(mapped) if mapped.isdecimal() else _DEFAULT_BYTES
    return None if found[0] >= _TRIM_BYTES and found[1] >= _MMAP_BYTES else found


@functools.cache
def _glibc() -> Any:
    """The C library, or None where it is another one."""
    library = ctypes.CDLL(None)
    return library if hasattr(library, "mallopt") and hasattr(library, "malloc_trim") else None


@contextmanager
def reuse_freed_memory() -> Iterator[None]:
    """Let the process use memory again that it has freed, while the context is open, in place of returning it at once.

    When the last context of the process is left, the thresholds of its environment hold again, and what is free goes
    back to the system. Does nothing where the environment leaves the thresholds to glibc, or sets higher ones.
    """
    before = _thresholds()
    if before is None or _glibc() is None:
        yield
        return
    token = object()
    with _LOCK:
        if not _open_contexts:
            _set_thresholds(max(before[0], _TRIM_BYTES), max(before[1], _MMAP_BYTES))
        _open_contexts.add(token)
    try:
        yield
    finally:
        with _LOCK:
            _open_contexts.discard(token)
            if not _open_contexts:
                _set_thresholds(*before)
                if before[0] < _TRIM_BYTES:
                    _glibc().malloc_trim(0)


def _set_thresholds(trim: int, mapped: int) -> None:
    _glibc().mallopt(_M_TRIM_THRESHOLD, trim)
    _glibc().mallopt(_M_MMAP_THRESHOLD, mapped)
