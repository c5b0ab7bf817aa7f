"""Threads of this process: one for BLAS, since tiles are small, and several over the rows of data in memory."""

from __future__ import annotations

import functools
import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final, TypeVar

from threadpoolctl import ThreadpoolController

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

__all__ = ["map_parts", "one_blas_thread"]

_PART_ENTRIES: Final = 2**21  # data in memory are cut into parts of at least so many entries

T = TypeVar("T")


@functools.cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()


def one_blas_thread() -> AbstractContextManager[Any]:
    """
    Limit BLAS to one thread in this process while the context is open.

    Threads inside the products of small tiles cost more than they save, and on a busy machine they wait for each
    other ten times as long as the product takes.

    Returns
    -------
    context manager
        Restores the former number of threads on exit.
    """
    return _controller().limit(limits=1, user_api="blas")


def map_parts(function: Callable[[int, int], T], n_rows: int, n_features: int) -> list[T]:
    """
    Call a function on consecutive parts of some rows, in threads where the parts are large.

    Parameters
    ----------
    function : callable
        (first row, row after the last) -> value; NumPy gives up the interpreter lock inside it.
    n_rows, n_features : int
        Shape of the matrix.

    Returns
    -------
    list
        Values in the order of rows; the first error in that order is raised.
    """
    wanted = max(1, min(_cpus(), n_rows * n_features // _PART_ENTRIES, n_rows))
    edges = [n_rows * i // wanted for i in range(wanted + 1)]
    with one_blas_thread():
        if wanted == 1:
            return [function(0, n_rows)]
        with ThreadPoolExecutor(wanted, thread_name_prefix="dca") as pool:
            return list(pool.map(function, edges[:-1], edges[1:]))


def _cpus() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
