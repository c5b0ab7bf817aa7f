"""The memory allocator of Dask's workers, while a task of this library runs.

Dask starts workers on Linux with `MALLOC_TRIM_THRESHOLD_=65536`. That also fixes glibc's threshold for mapping, so that
every temporary array above 128 KiB gets new pages from the system and gives them back when it is freed. A task that
makes such arrays in a loop spends as long in page faults as in arithmetic.
"""

from __future__ import annotations

import ctypes
import functools
import re
import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Final

from dask_dca.engine.process_settings import ProcessSetting

_M_TRIM_THRESHOLD: Final = -1  # both as in malloc.h
_M_MMAP_THRESHOLD: Final = -3
# What glibc raises its thresholds to by itself, unless the environment fixes them.
_TRIM_BYTES: Final = 2**26
_MMAP_BYTES: Final = 2**25
_DEFAULT_BYTES: Final = 2**17  # of both in glibc, where the environment fixes the other one alone


@functools.cache
def _thresholds() -> tuple[int, int] | None:
    """Bytes from which the environment trims and maps memory; None where freed memory is used again anyway."""
    if sys.platform != "linux":
        return None
    trim, mapped = (_initial_number(f"MALLOC_{name}_THRESHOLD_") for name in ("TRIM", "MMAP"))
    if trim is None and mapped is None:
        return None  # glibc raises both by itself
    found = _DEFAULT_BYTES if trim is None else trim, _DEFAULT_BYTES if mapped is None else mapped
    return None if found[0] >= _TRIM_BYTES and found[1] >= _MMAP_BYTES else found


def _initial_number(name: str) -> int | None:
    """A variable that the process was started with; glibc never reads later ones, as a nanny sets for its workers."""
    try:
        environment = Path("/proc/self/environ").read_bytes()
    except OSError:
        return None
    found = re.search(rb"(?:^|\0)" + name.encode() + rb"=(\d+)(?=\0|$)", environment)
    return None if found is None else int(found[1])


@functools.cache
def _glibc() -> Any:
    """The C library, or None where it is another one."""
    library = ctypes.CDLL(None)
    return library if hasattr(library, "mallopt") and hasattr(library, "malloc_trim") else None


def reuse_freed_memory() -> AbstractContextManager[None]:
    """Let the process use memory again that it has freed, while the context is open, in place of returning it at once.

    When the last context of the process is left, the thresholds of its environment hold again, and what is free goes
    back to the system. Does nothing where the environment leaves the thresholds to glibc, or sets higher ones.
    """
    return nullcontext() if _thresholds() is None or _glibc() is None else _REUSE.opened()


def _raise_thresholds(first: bool) -> None:
    if first and (before := _thresholds()):
        _set_thresholds(max(before[0], _TRIM_BYTES), max(before[1], _MMAP_BYTES))


def _restore_thresholds() -> None:
    if before := _thresholds():
        _set_thresholds(*before)
        if before[0] < _TRIM_BYTES:
            _glibc().malloc_trim(0)


def _set_thresholds(trim: int, mapped: int) -> None:
    _glibc().mallopt(_M_TRIM_THRESHOLD, trim)
    _glibc().mallopt(_M_MMAP_THRESHOLD, mapped)


_REUSE: Final = ProcessSetting(_raise_thresholds, _restore_thresholds)
