"""Large states go to the workers beforehand, so that graphs stay small."""

from __future__ import annotations

import dataclasses
from typing import Any, Final

import numpy as np

from dask_dca.engine.watch import active_client

__all__ = ["held_bytes", "scattered", "sent"]

_LARGE: Final = 2**20


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
