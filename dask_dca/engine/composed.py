"""Delayed values that are computed together with the Dask arrays they are made of, each block loaded once."""

from __future__ import annotations

import uuid
from typing import Any

import dask.array as da
from dask.delayed import Delayed, delayed


class _BesideArrays(Delayed):
    """A Delayed that is optimised as arrays are."""

    __slots__ = ()
    __dask_optimize__ = staticmethod(da.Array.__dask_optimize__)


def beside_arrays(value: Any, name: str) -> Delayed:
    """Let a Delayed be optimised together with the Dask arrays that it is computed with.

    Dask fuses the loading of an array's blocks with what the array does with them, unless something else needs these
    blocks; it sees that only among objects that are optimised in the same way.
    value: on top of the layers of some arrays; name: the last task is called dca-<name>.
    """
    last = delayed(_same, pure=False)(value, dask_key_name=f"dca-{name}-{uuid.uuid4().hex}")
    return _BesideArrays(last.key, last.dask, layer=last.key)


def _same(value: Any) -> Any:
    return value
