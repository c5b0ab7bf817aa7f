"""Cubes: zarr arrays of more than two dimensions, of which one holds the features and all others are rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dask_dca.errors import InvalidInputError
from dask_dca.inputs import Data
from dask_dca.output import is_url, local_path

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Cube", "open_cube"]


@dataclass(frozen=True)
class Cube:
    """A cube as a matrix, and the dimensions that its rows are, in their order."""

    data: Data
    dims: tuple[str, ...]
    sizes: tuple[int, ...]

    def unstacked(self, result: Any) -> Any:
        """Set results of rows out in the cube's dimensions.

        result (n, k): maybe lazy. Returns (..., k), its chunks regular.
        """
        maps = result.reshape(*self.sizes, result.shape[1])
        return maps.rechunk(tuple(max(sizes) for sizes in maps.chunks)) if hasattr(maps, "rechunk") else maps


def open_cube(path: str, array: str | None, features: str) -> Cube:
    """Open a cube by path.

    path: a zarr array, or a group such as xarray writes, whose coordinate of the features names them; array: which
    array of a group; features: the name or the number of their dimension.
    Raises InvalidInputError: there is no such array, or no such dimension.
    """
    import dask.array as da
    import numpy as np

    group, stored = _stored(path, array)
    dims = _dims_of(stored)
    axis = _axis(path, dims, features)
    rest = tuple(name for i, name in enumerate(dims) if i != axis)
    cube = da.moveaxis(da.from_zarr(stored), axis, -1).rechunk({stored.ndim - 1: -1})
    matrix = cube.reshape(-1, cube.shape[-1])
    named = None if group is None else group.get(dims[axis])
    names = None
    if named is not None and named.ndim == 1 and named.shape == cube.shape[-1:]:
        names = [str(value) for value in np.asarray(named[...]).tolist()]
    return Cube(Data(matrix, names), rest, cube.shape[:-1])


def _stored(path: str, array: str | None) -> tuple[Any, Any]:
    """A group, if there is one, and the array in it that is meant."""
    import zarr

    place = path if is_url(path) else str(local_path(path))
    try:
        found = zarr.open(place, mode="r")
    except Exception as error:
        msg = f"{path!r} can't be read as a zarr array or group, which --features is for: {error}"
        raise InvalidInputError(msg) from error
    if isinstance(found, zarr.Array):
        return None, found
    cubes = [name for name, one in found.arrays() if one.ndim > 2] if array is None else [array]  # a cube has 3
    if len(cubes) != 1 or not isinstance(found.get(cubes[0]), zarr.Array):
        names = ", ".join(sorted(name for name, _ in found.arrays()))
        msg = f"choose one array of {path!r} by --array PATH: {names or 'there is none'}"
        raise InvalidInputError(msg)
    return found, found[cubes[0]]


def _dims_of(stored: Any) -> tuple[str, ...]:
    named: Sequence[Any] | None = getattr(stored.metadata, "dimension_names", None) or stored.attrs.get(
        "_ARRAY_DIMENSIONS"
    )
    return tuple(str(i) if named is None or named[i] is None else str(named[i]) for i in range(stored.ndim))


def _axis(path: str, dims: tuple[str, ...], features: str) -> int:
    if features in dims:
        return dims.index(features)
    if features.lstrip("-").isdecimal() and -len(dims) <= int(features) < len(dims):
        return int(features) % len(dims)
    msg = f"{path!r} has the dimensions {', '.join(dims)}, none of which is {features!r}; --features names one of them"
    raise InvalidInputError(msg)
