"""Large states go to the workers beforehand, so that graphs stay small."""

from __future__ import annotations

import contextlib
import dataclasses
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np

from dask_dca.engine.futures import refuse_elsewhere
from dask_dca.engine.threads import one_blas_thread
from dask_dca.engine.watch import active_client
from dask_dca.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Callable

    from dask_dca.engine.job import Run

__all__ = ["held_bytes", "scattered", "sent", "with_state"]

_LARGE: Final = 2**20
_LOST: Final = "scheduler-connection-lost"  # what distributed says of futures then

T = TypeVar("T")


def held_bytes(value: Any) -> int:
    """
    Count the bytes of the arrays in a value.

    Parameters
    ----------
    value : object
        Arrays, and dataclasses, lists, tuples and dictionaries that hold some.

    Returns
    -------
    int
        Their bytes; of anything else none.

    Examples
    --------
    >>> held_bytes((1, [np.zeros(3)], {"a": np.zeros(1)}))
    32
    """
    if isinstance(value, np.ndarray):
        return value.nbytes
    if isinstance(value, list | tuple):
        return sum(map(held_bytes, value))
    if isinstance(value, dict):
        return sum(map(held_bytes, value.values()))
    if dataclasses.is_dataclass(value):
        return sum(held_bytes(getattr(value, field.name)) for field in dataclasses.fields(value))
    return 0


def sent(state: Any) -> Any:
    """
    Send a large state to all workers of a cluster, past the scheduler.

    Parameters
    ----------
    state : object
        What a pass's blocks receive first.

    Returns
    -------
    object
        A future of it; the state itself where it is small, where there is no cluster, or no worker yet.
    """
    return state if held_bytes(state) < _LARGE else scattered(state)


def scattered(value: Any) -> Any:
    """
    Send a value to all workers of a cluster, past the scheduler.

    Parameters
    ----------
    value : object
        Anything that can be pickled.

    Returns
    -------
    object
        A future of it; the value itself where there is no cluster, no worker yet, or one that hangs or dies now.
    """
    client = active_client()
    if client is None or not client.nthreads():
        return value
    try:
        return client.scatter([value], broadcast=True, hash=False)[0]
    except OSError:
        if client.status != "running":
            raise
        return value


def with_state(source: Any, name: str, state: Any, run: Run, work: Callable[[Any], T]) -> T:
    """
    Let workers do something with a state that is sent to them, and again where all that held it died.

    Parameters
    ----------
    source : object
        The data, or what holds them.
    name : str
        The pass's name.
    state : object
        What workers need.
    run : Run
        How often this is tried again, and where finished passes are kept.
    work : callable
        From the state, or a future of it, to a value.

    Returns
    -------
    object
        The value.

    Raises
    ------
    DCAError
        The data are on another cluster, or the scheduler was lost.
    """
    client, held = active_client(), state
    for left in reversed(range(run.retries + 1)):
        try:
            held = sent(state)
            with one_blas_thread() if client is None else contextlib.nullcontext():
                return work(held)
        except Exception as error:
            refuse_elsewhere(source, client)
            if client is not None and (client.status != "running" or getattr(error, "reason", "") == _LOST):
                raise _lost(name, run) from error
            # all workers that held the state died: send it again
            if not isinstance(error, CancelledError) or held is state or not left:
                raise
    raise AssertionError  # unreachable: the loop above returns or raises


def _lost(name: str, run: Run) -> ClusterError:
    hint = "with checkpoint=PATH a fit goes on where it stopped"
    if run.checkpoint is not None:
        hint = f"what was finished is kept in {run.checkpoint.root!r}, and the same fit goes on from there"
    msg = f"the scheduler was lost in the pass dca-{name}; start the cluster and fit again ({hint})"
    return ClusterError(msg)
