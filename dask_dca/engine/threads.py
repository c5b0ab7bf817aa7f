"""Threads of BLAS in this process: one, since tiles are small."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from threadpoolctl import ThreadpoolController

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

__all__ = ["one_blas_thread"]


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
