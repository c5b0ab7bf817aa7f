"""Arithmetic that is the same everywhere: one BLAS thread, and floating-point errors of the library's own."""

from __future__ import annotations

import functools
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np
import scipy.linalg  # noqa: F401  its BLAS and NumPy's are loaded before the controllers are looked up
from threadpoolctl import ThreadpoolController

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# NumPy's own defaults, as a decorator: underflow is part of the work, anything else would be a fault
numpy_defaults: Final = np.errstate(divide="warn", over="warn", under="ignore", invalid="warn")
_LOCK: Final = threading.Lock()
_open: Final[set[object]] = set()  # contexts of all threads that are open
_before: Final[list[tuple[Any, int]]] = []  # libraries limited for the whole process, with the user's numbers
T = TypeVar("T")


@functools.cache
def _libraries() -> tuple[list[Any], list[Any]]:
    """BLAS whose limit is that of the process, and BLAS whose limit is that of the calling thread."""
    found = ThreadpoolController().select(user_api="blas").lib_controllers
    return [one for one in found if not _is_per_thread(one)], [one for one in found if _is_per_thread(one)]


def _is_per_thread(library: Any) -> bool:
    """MKL is limited by its local setting, and OpenBLAS on OpenMP by OpenMP's, as threadpoolctl documents."""
    return library.internal_api == "mkl" or (
        library.internal_api == "openblas" and getattr(library, "threading_layer", "") == "openmp"
    )


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit BLAS to one thread while the context is open, whichever thread opens it.

    Threads inside the products of small tiles cost more than they save, and on a busy machine they wait for each other
    ten times as long as the product takes. And the number of threads decides the last bits of a result. Contexts inside
    a context, or beside it in other threads, cost next to nothing. The former number of threads is restored when the
    last context of the process is left. (With most BLAS the number is one for the whole process: a limit that the user
    sets or ends in another thread in the meantime may be restored to what it was.)
    """
    token = object()
    shared, own = _libraries()
    seen = [(library, library.get_num_threads()) for library in own]
    try:
        for library in own:
            library.set_num_threads(1)
        with _LOCK:
            if not _open:
                _before[:] = [(library, library.get_num_threads()) for library in shared]
            _open.add(token)
            _set_for_process([(library, 1) for library in shared])
        yield
    finally:
        with _LOCK:
            _open.discard(token)
            if not _open:
                _set_for_process(_before, release=True)
                _before.clear()
        for library, number in seen:
            library.set_num_threads(number)


def _set_for_process(numbers: list[tuple[Any, int]], *, release: bool = False) -> None:
    """Set numbers of threads from any thread: threadpoolctl ignores all but the controlling one, which is cleared."""
    for library, number in numbers:
        clear = getattr(library, "clear_controlling_thread", lambda **_: None)  # since threadpoolctl 3.8
        if library.get_num_threads() != number:
            clear(force=True)
            library.set_num_threads(number)
        if release:
            clear()


@numpy_defaults
def call_on_one_blas_thread(function: Callable[..., T], *args: Any) -> T:
    """Call a function on one thread of BLAS: what tasks do."""
    with one_blas_thread():
        return function(*args)
