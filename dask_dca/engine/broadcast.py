"""Large states go to the workers beforehand, so that graphs stay small."""

from __future__ import annotations

import dataclasses
from typing import Any, Final, TypeVar, cast

import numpy as np

from dask_dca.engine.progress import active_client

__all__ = ["aligned", "held_bytes", "scattered", "sent"]

_LARGE: Final = 2**20
T = TypeVar("T")


def held_bytes(value: Any) -> int:
    """Count the bytes of the arrays in a value.

    value: arrays, and dataclasses, lists, tuples and dictionaries that hold some. Returns their bytes; of anything else
    none.
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


def aligned(given: T) -> T:
    """Let arrays begin at whole words, as they do where they were made.

    Those that came over the network may begin anywhere in a message, and NumPy adds the entries of such an array in
    other pieces, so that sums have other bits.
    given: arrays, and dataclasses, lists, tuples and dictionaries that hold some. Returns the value itself where all
    arrays do, else one with copies of those that don't.
    """
    value: Any = given
    found: Any = value
    if isinstance(value, np.ndarray):
        found = value if value.flags.aligned else value.copy()
    elif isinstance(value, list | tuple):
        parts = [aligned(part) for part in value]
        if any(new is not old for new, old in zip(parts, value, strict=True)):
            found = type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    elif isinstance(value, dict):
        changed = {key: new for key, old in value.items() if (new := aligned(old)) is not old}
        found = value | changed if changed else value
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value) if field.init}
        changed = {name: new for name, old in fields.items() if (new := aligned(old)) is not old}
        found = dataclasses.replace(value, **changed) if changed else value
    return cast("T", found)


def sent(state: Any, *, patience: float = 0.0) -> Any:
    """Send a large state to all workers of a cluster, past the scheduler.

    state: what a pass's blocks receive first; patience: seconds to wait for a first worker. Returns A future of it; the
    state itself where it is small, where there is no cluster, or no worker yet.
    """
    return state if held_bytes(state) < _LARGE else scattered(state, patience=patience)


def scattered(value: Any, *, patience: float = 0.0) -> Any:
    """Send a value to all workers of a cluster, past the scheduler.

    value: anything that can be pickled; patience: seconds to wait for a first worker. Returns A future of it; the value
    itself where there is no cluster, no worker yet, or one that hangs or dies now.
    """
    client = active_client()
    if client is None or not (patience or client.nthreads()):
        return value
    try:
        if patience:
            client.wait_for_workers(1, timeout=patience)
        return client.scatter([value], broadcast=True, hash=False)[0]
    except OSError:
        if client.status != "running":
            raise
        return value
