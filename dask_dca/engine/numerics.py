"""Reproducible arithmetic: one BLAS thread, and settings of floating-point errors independent of the caller's."""

from __future__ import annotations

import functools
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np
import scipy.linalg  # noqa: F401  its BLAS and NumPy's are loaded before the controllers are looked up
from threadpoolctl import ThreadpoolController

from dask_dca.engine.allocator import reuse_freed_memory
from dask_dca.engine.process_settings import ProcessSetting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# NumPy's defaults, as a decorator: underflow is harmless, other floating-point errors are warned of
numpy_defaults: Final = np.errstate(divide="warn", over="warn", under="ignore", invalid="warn")
# libraries that are limited for the whole process, with their former numbers of threads
_former_limits: Final[list[tuple[Any, int]]] = []
T = TypeVar("T")


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


_SHARED_LIMIT: Final = ProcessSetting(_limit_process, _restore_process)


def _set_for_process(numbers: list[tuple[Any, int]], *, release: bool = False) -> None:
    """Set numbers of threads from any thread; the controlling thread of threadpoolctl is cleared for that."""
    for library, number in numbers:
        clear = getattr(library, "clear_controlling_thread", lambda **_: None)  # since threadpoolctl 3.8
        if library.get_num_threads() != number:
            clear(force=True)
            library.set_num_threads(number)
        if release:
            clear()


@numpy_defaults
def run_task(function: Callable[..., T], *args: Any) -> T:
    """Call a function as a task: with one BLAS thread, and reusing freed memory."""
    with one_blas_thread(), reuse_freed_memory():
        return function(*args)
