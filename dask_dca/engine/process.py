"""Settings of the process while a task runs: one BLAS thread, NumPy's errors by default, freed memory used again.

Dask starts workers on Linux with `MALLOC_TRIM_THRESHOLD_=65536`. That also fixes glibc's threshold for mapping, so that
every temporary array above 128 KiB gets new pages from the system and gives them back when it is freed. A task that
makes such arrays in a loop spends as long in page faults as in arithmetic.
"""

from __future__ import annotations

import ctypes
import functools
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import scipy.linalg  # noqa: F401  its BLAS and NumPy's are loaded before the controllers are looked up
from threadpoolctl import ThreadpoolController

# NumPy's defaults, as a decorator: underflow is harmless, other floating-point errors are warned of
numpy_defaults: Final = np.errstate(divide="warn", over="warn", under="ignore", invalid="warn")
# libraries that are limited for the whole process, with their former numbers of threads
_former_limits: Final[list[tuple[Any, int]]] = []
_M_TRIM_THRESHOLD: Final = -1  # both as in malloc.h
_M_MMAP_THRESHOLD: Final = -3
# What glibc raises its thresholds to by itself, unless the environment fixes them.
_TRIM_BYTES: Final = 2**26
_MMAP_BYTES: Final = 2**25
_DEFAULT_BYTES: Final = 2**17  # of both in glibc, where the environment fixes the other one alone


@dataclass(frozen=True)
class _ProcessSetting:
    """A setting that is restored when the last of the contexts that are open is left.

    begin: sets it; called at each entry, with True for the first; restore: restores the former setting.
    """

    begin: Callable[[bool], None]
    restore: Callable[[], None]
    _open: set[object] = field(default_factory=set)
    _lock: Any = field(default_factory=threading.Lock)

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Open a context, which may be nested, or beside others in other threads."""
        token = object()
        try:
            with self._lock:
                first = not self._open
                self._open.add(token)
                self.begin(first)
            yield
        finally:
            with self._lock:
                self._open.discard(token)
                if not self._open:
                    self.restore()


@functools.cache
def _libraries() -> tuple[list[Any], list[Any]]:
    """Return the BLAS libraries with a limit per process, and those with a limit per thread."""
    found = ThreadpoolController().select(user_api="blas").lib_controllers
    return [one for one in found if not _is_per_thread(one)], [one for one in found if _is_per_thread(one)]


def _is_per_thread(library: Any) -> bool:
    """Whether the limit is per thread, as of MKL, and of OpenBLAS with OpenMP (see threadpoolctl)."""
    return library.internal_api == "mkl" or (
        library.internal_api == "openblas" and getattr(library, "threading_layer", "") == "openmp"
    )


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit BLAS to one thread while the context is open.

    The number of threads affects the last bits of a result, and threads within products of small tiles cost more than
    they save. Nested and concurrent contexts cost next to nothing; the former number of threads is restored when the
    last one is left. (Most BLAS have one limit per process: a limit that the user sets in another thread in the
    meantime may be lost.)
    """
    own = _libraries()[1]
    seen = [(library, library.get_num_threads()) for library in own]
    try:
        for library in own:
            library.set_num_threads(1)
        with _SHARED_LIMIT.opened():
            yield
    finally:
        for library, number in seen:
            library.set_num_threads(number)


def _limit_process(first: bool) -> None:
    shared = _libraries()[0]
    if first:
        _former_limits[:] = [(library, library.get_num_threads()) for library in shared]
    _set_for_process([(library, 1) for library in shared])


def _restore_process() -> None:
    _set_for_process(_former_limits, release=True)
    _former_limits.clear()


_SHARED_LIMIT: Final = _ProcessSetting(_limit_process, _restore_process)


def _set_for_process(numbers: list[tuple[Any, int]], *, release: bool = False) -> None:
    """Set numbers of threads from any thread; the controlling thread of threadpoolctl is cleared for that."""
    for library, number in numbers:
        clear = getattr(library, "clear_controlling_thread", lambda **_: None)  # since threadpoolctl 3.8
        if library.get_num_threads() != number:
            clear(force=True)
            library.set_num_threads(number)
        if release:
            clear()


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


_REUSE: Final = _ProcessSetting(_raise_thresholds, _restore_thresholds)
