"""Zarr arrays that hold packed values: small integers with a scale and an offset, numbers that stand for missing ones.

The attributes are those of the CF conventions, as xarray, netCDF and climate archives write them. Blocks are decoded by
xarray itself, where they are read.
"""

from __future__ import annotations

import base64
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dask_dca.errors import InvalidInputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Packed", "unpacked"]

_SCALES: Final = ("scale_factor", "add_offset", "_Unsigned")
_MISSING: Final = ("_FillValue", "missing_value")


@dataclass(frozen=True)
class Packed:
    """A zarr array of two dimensions whose rows are decoded when they are read."""

    array: Any
    attributes: dict[str, Any]
    dtype: np.dtype[Any]  # of what is decoded

    ndim = 2

    @property
    def shape(self) -> tuple[int, int]:  # numpydoc ignore=RT01
        """Rows and columns."""
        n, p = self.array.shape
        return n, p

    @property
    def chunks(self) -> tuple[int, ...]:  # numpydoc ignore=RT01
        """Of the stored array."""
        return tuple(self.array.chunks)

    @property
    def shards(self) -> tuple[int, ...] | None:  # numpydoc ignore=RT01
        """Of the stored array."""
        return None if self.array.shards is None else tuple(self.array.shards)

    @property
    def store_path(self) -> str:  # numpydoc ignore=RT01
        """Where it is."""
        return str(self.array.store_path)

    def __getitem__(self, index: Any) -> NDArray[Any]:
        return _decoded(self.array[index], self.attributes)


def unpacked(array: Any) -> Any:
    """
    Read an array as its attributes say.

    Parameters
    ----------
    array : zarr.Array
        The array; none of its chunks is read.

    Returns
    -------
    zarr.Array or Packed
        The array itself where its numbers are what they stand for.

    Raises
    ------
    InvalidInputError
        It is packed, and xarray is not there to decode it.
    """
    attributes = _packing(array)
    if array.ndim != 2 or array.dtype.kind not in "biuf" or not attributes:
        return array
    try:
        return Packed(array, attributes, _decoded(array[:0], attributes).dtype)
    except ImportError as error:
        what = ", ".join(f"{name} {attributes[name]}" for name in (*_SCALES, *_MISSING) if name in attributes)
        msg = (
            f"{array.store_path} holds packed values ({what}), which xarray decodes: pip install xarray, or write the "
            "decoded numbers to an array of their own"
        )
        raise InvalidInputError(msg) from error


def _packing(array: Any) -> dict[str, Any]:
    """Return the attributes that decode an array; none where decoding would change nothing."""
    found = dict(array.attrs)
    if array.metadata.zarr_format == 2 and array.fill_value is not None:
        if "_ARRAY_DIMENSIONS" in found or any(name in found for name in _SCALES):  # xarray's home for _FillValue
            found.setdefault("_FillValue", array.fill_value)
    elif isinstance(found.get("_FillValue"), str) and array.dtype.kind == "f":  # as xarray writes it for format 3
        (found["_FillValue"],) = struct.unpack("<d", base64.b64decode(found["_FillValue"]))
    missing = [found[name] for name in _MISSING if name in found]
    marked = any(not (isinstance(value, float | np.floating) and np.isnan(value)) for value in missing)
    return found if marked or any(name in found for name in _SCALES) else {}


def _decoded(values: NDArray[Any], attributes: dict[str, Any]) -> NDArray[Any]:
    import xarray as xr

    held = xr.Dataset({"X": (("row", "column"), values, attributes)})
    found: NDArray[Any] = xr.decode_cf(held, decode_coords=False)["X"].values
    return found
