"""Threads of BLAS in this process: one, since tiles are small."""

from __future__ import annotations

import functools
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from threadpoolctl import ThreadpoolController

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["one_blas_thread"]

_LOCK: Final = threading.Lock()
_limits: Final[list[Any]] = []  # one entry for each open context; the first holds the limit


@functools.cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """
    Limit BLAS to one thread in this process while the context is open.

    Threads inside the products of small tiles cost more than they save, and on a busy machine they wait for each
    other ten times as long as the product takes. Contexts inside a context, or beside it in other threads, cost
    nothing.

    Yields
    ------
    None
        The former number of threads is restored when the last context of the process is left.
    """
    with _LOCK:
        _limits.append(None if _limits else _controller().limit(limits=1, user_api="blas"))
    try:
        yield
    finally:
        with _LOCK:
            if len(_limits) == 1:
                _limits[0].restore_original_limits()
            _limits.pop()  # the first one is left to the last
