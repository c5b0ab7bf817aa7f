"""Zarr stores and .npy files by path: choice of the array or sparse matrix, packed values, and reading of slices.

Packed values have the attributes of the CF conventions, as xarray and netCDF write them; xarray decodes blocks where
they are read. Sparse rows are groups in the layout of anndata: arrays `data`, `indices` and `indptr`, and attributes
`encoding-type` ("csr_matrix") and `shape`. A block is a range of rows that the task reads through `indptr`.
"""

from __future__ import annotations

import base64
import os
import struct
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dask_dca.engine.files import (
    SHARE,
    expand_home,
    path_text,
    reader_of,
    refuse_pickles,
    require_regular,
    this_process,
)
from dask_dca.errors import DCAError, InvalidInputError, MissingChunksWarning, reason_of, unreachable

_BLOCK_BYTES: Final = 2**26  # bytes of a block of a .npy file
_MAX_NAMES: Final = 10**8  # greatest number of column names that are read
_MAX_INT32: Final = 2**31 - 1
_MAX_CHUNKS: Final = 4096  # greatest number of chunks of rows of a sparse group
_SCALES: Final = ("scale_factor", "add_offset", "_Unsigned")  # attributes of packed values
_MISSING: Final = ("_FillValue", "missing_value")  # attributes of missing values
# attributes of an array that a packed one has, too
_SHARED_ATTRIBUTES: Final = ("ndim", "shape", "chunks", "shards", "store_path")


@dataclass(frozen=True)
class Packed:
    """A zarr array that is decoded where it is read."""

    array: Any
    attributes: dict[str, Any]
    dtype: np.dtype[Any]  # of the decoded values

    def __getattr__(self, name: str) -> Any:
        if name not in _SHARED_ATTRIBUTES:
            raise AttributeError(name)
        return getattr(self.array, name)

    def __getitem__(self, index: Any) -> NDArray[Any]:
        return _decode(self.array[index], self.attributes)


def decode_packed(array: Any) -> Any:
    """Wrap an array so that it is decoded as its attributes say; the array itself if it is not packed.

    Raises InvalidInputError: it is packed, and xarray is not installed.
    """
    attributes = _packing_attributes(array)
    if array.dtype.kind not in "biuf" or not attributes:
        return array
    try:
        return Packed(array, attributes, _decode(array[:0], attributes).dtype)
    except ImportError as error:
        what = ", ".join(f"{name} {attributes[name]}" for name in (*_SCALES, *_MISSING) if name in attributes)
        msg = (
            f"{array.store_path} holds packed values ({what}), which xarray decodes: pip install xarray, or write the "
            "decoded numbers to an array of their own"
        )
        raise InvalidInputError(msg) from error


def _packing_attributes(array: Any) -> dict[str, Any]:
    """Return the attributes that decode an array; empty if decoding changes nothing."""
    found = dict(array.attrs)
    if array.metadata.zarr_format == 2 and array.fill_value is not None:
        if "_ARRAY_DIMENSIONS" in found or any(name in found for name in _SCALES):  # xarray's home for _FillValue
            found.setdefault("_FillValue", array.fill_value)
    elif isinstance(found.get("_FillValue"), str) and array.dtype.kind == "f":  # as xarray writes it for format 3
        (found["_FillValue"],) = struct.unpack("<d", base64.b64decode(found["_FillValue"]))
    missing = [found[name] for name in _MISSING if name in found]
    marked = any(not (isinstance(value, float | np.floating) and np.isnan(value)) for value in missing)
    return found if marked or any(name in found for name in _SCALES) else {}


def _decode(values: NDArray[Any], attributes: dict[str, Any]) -> NDArray[Any]:
    import xarray as xr

    held = xr.Dataset({"X": (tuple(range(values.ndim)), values, attributes)})
    return xr.decode_cf(held, decode_coords=False)["X"].values


class CsrGroup:
    """A sparse matrix by rows in a zarr group, from which any process reads ranges of rows.

    group: with the arrays `data`, `indices` and `indptr`; feature_names (p,): names of the columns.
    Raises InvalidInputError: the group is not a matrix by rows, or its arrays are inconsistent.
    """

    ndim: Final = 2
    shards: Final = None

    def __init__(self, group: Any, feature_names: NDArray[np.object_] | None = None) -> None:
        self.store_path = str(getattr(group, "store_path", group))
        kind = group.attrs.get("encoding-type")
        if kind != "csr_matrix":
            msg = (
                f"{self.store_path} holds a matrix by columns ({kind}), and blocks are ranges of rows; write it again "
                "by rows, for example in anndata: adata.X = adata.X.tocsr()"
            )
            raise InvalidInputError(msg)
        self.data, self.indices, self.indptr = (_group_array(group[name]) for name in ("data", "indices", "indptr"))
        n, p = (int(size) for size in group.attrs["shape"])
        self.shape, self.dtype = (n, p), self.data.dtype
        self.feature_names = feature_names if feature_names is not None and len(feature_names) == p else None
        if self.indptr.shape != (n + 1,) or self.data.shape != self.indices.shape:
            msg = (
                f"{self.store_path} is damaged: its shape is {self.shape}, its indptr has {self.indptr.shape[0]} "
                f"entries, data {self.data.shape[0]} and indices {self.indices.shape[0]}; write it again"
            )
            raise InvalidInputError(msg)
        entries_a_row = max(self.data.shape[0] / max(n, 1), 1e-9)
        chunk = (self.data.shards or self.data.chunks)[0]
        rows = int(np.clip(chunk / entries_a_row, max(1, n // _MAX_CHUNKS), max(n, 1)))
        self.chunks = (rows, p)

    @property
    def row_bytes(self) -> float:
        """Average bytes of a row in memory, where its values are float64."""
        entry = np.dtype(np.float64).itemsize + self.indices.dtype.itemsize
        return max(1.0, entry * self.data.shape[0] / max(self.shape[0], 1))

    def __getitem__(self, index: Any) -> sparse.csr_array:
        rows, columns = index if isinstance(index, tuple) else (index, slice(None))
        start, stop, step = rows.indices(self.shape[0])
        found = self._read(start, max(start, stop))
        whole = step == 1 and columns == slice(None)
        return found if whole else found[::step, columns]

    def __array_function__(self, *args: Any) -> Any:
        """Make Dask keep blocks as they are read, instead of converting them to NumPy arrays."""
        return NotImplemented

    def __dask_tokenize__(self) -> Any:
        return ("CsrGroup", self.store_path, self.shape, str(self.dtype), self.data.shape[0])

    def _read(self, start: int, stop: int) -> sparse.csr_array:
        p = self.shape[1]
        ends = np.asarray(self.indptr[start : stop + 1]).astype(np.int64)
        low, high = (int(ends[0]), int(ends[-1])) if len(ends) else (0, 0)
        columns = np.asarray(self.indices[low:high])
        ends = ends - low if len(ends) else np.zeros(1, dtype=np.int64)
        if columns.dtype == np.int32 and high - low <= _MAX_INT32:
            ends = ends.astype(np.int32)  # else SciPy widens the column indices to the dtype of the ends
        outside = ((columns < 0) | (columns >= p)).any()
        if np.any(np.diff(ends) < 0) or len(columns) != high - low or outside:
            msg = f"its indptr or indices are damaged in rows {start} to {stop - 1}"
            raise ValueError(msg)
        return sparse.csr_array((np.asarray(self.data[low:high]), columns, ends), shape=(len(ends) - 1, p))


def _group_array(array: Any) -> Any:
    from dask_dca.engine.shared_stores import shared_array

    refuse_pickles(array)
    return shared_array(array, complain=array.basename == "data")  # indices may all be zero, the fill value


def is_csr_group(member: Any) -> bool:
    """Whether a member of a zarr store is a sparse matrix, in csr or csc layout."""
    return hasattr(member, "members") and member.attrs.get("encoding-type") in ("csr_matrix", "csc_matrix")


def column_names_of_store(group: Any) -> NDArray[np.object_] | None:
    """Read the column names (p,) of a zarr store in the layout of anndata, None if there are none.

    They are in its group `var`, in the array that the attribute `_index` names.
    """
    var = group.get("var")
    index = var.attrs.get("_index") if hasattr(var, "members") else None
    if not isinstance(index, str) or index not in var:
        return None
    held = var[index]
    if hasattr(held, "members"):  # a nullable array, as anndata writes it with pandas 3; no name is missing
        held = held.get("values")
    if not getattr(held, "shape", None) or held.shape[0] > _MAX_NAMES:
        return None
    refuse_pickles(held)
    names = np.asarray(held[:], dtype=object)
    return names if names.ndim == 1 and all(isinstance(name, str) for name in names) else None


def is_a(X: Any, package: str, *names: str) -> bool:
    """Whether an object is an instance of one of some classes of a package, without importing the package."""
    return any(
        cls.__name__ in names and (cls.__module__ == package or cls.__module__.startswith(package + "."))
        for cls in type(X).__mro__
    )


def open_array(X: Any, array: str | None = None) -> Any:
    """Open the two-dimensional array, or the sparse matrix, of a zarr store.

    Returns the array, opened for reading, which checks in any other process that it is the same.
    Raises InvalidInputError: there is nothing at the path, no such array, a choice of several, or it is damaged.
    """
    if isinstance(X, CsrGroup | Packed):
        return X
    where = path_text(X) if isinstance(X, str | os.PathLike) else str(getattr(X, "store_path", X))
    try:
        return _find_array(X, where, array)
    except (DCAError, MemoryError, MissingChunksWarning):
        raise
    except Exception as error:
        reason = str(error).partition("\n")[0] or type(error).__name__
        msg = f"{where!r} can't be read as a zarr array: {reason[:200]}; copy it again, or write it again"
        raise InvalidInputError(unreachable(where, error) or msg) from error


def _find_array(X: Any, where: str, array: str | None) -> Any:
    """Open the store, and choose the array or sparse matrix."""
    import zarr

    if isinstance(X, str | os.PathLike):
        X = open_store(expand_home(where))
    elif is_a(X, "zarr", "Store", "StorePath") or is_a(X, "fsspec", "FSMap"):
        X = zarr.open(X, mode="r")
    if isinstance(X, zarr.Array):
        if array is not None:
            msg = f"{where!r} is an array itself and holds no array {array!r}; leave --array out"
            raise InvalidInputError(msg)
        return check_array(X)
    if is_csr_group(X):
        return CsrGroup(X)
    members = dict(X.members(max_depth=None))
    triples = {name for name, member in members.items() if is_csr_group(member)}
    names = sorted(
        name
        for name, member in members.items()
        if name in triples or (isinstance(member, zarr.Array) and name.rpartition("/")[0] not in triples)
    )
    if array is None and X.attrs.get("encoding-type") == "anndata" and "X" in names:
        array = "X"
    planar = [name for name in names if name in triples or members[name].ndim == 2]
    alike = len({members[name].shape for name in planar if name not in triples}) == 1 and not triples
    found = members[_choose_array(where, names, planar, array, alike=alike)]
    if is_csr_group(found):
        return CsrGroup(found, column_names_of_store(X))
    return check_array(found)


def check_array(array: Any) -> Any:
    """Check an opened zarr array.

    Returns an array that checks in any other process that it is the same, and decodes packed values.
    Raises InvalidInputError: its chunks are pickles, or packed and xarray is not installed.
    """
    from dask_dca.engine.shared_stores import shared_array

    refuse_pickles(array)
    return decode_packed(shared_array(array))


def open_store(where: str) -> Any:
    """Open the zarr array or group at a path for reading.

    Raises InvalidInputError: there is neither; the message says how else to read it.
    """
    import zarr

    from dask_dca.engine.shared_stores import RegularFiles

    require_regular(where)
    try:
        if where.endswith(".zip") and os.path.isfile(where):
            return zarr.open(zarr.storage.ZipStore(where, mode="r"), mode="r")
        return zarr.open(RegularFiles(where, read_only=True) if os.path.isdir(where) else where, mode="r")
    except (FileNotFoundError, NotADirectoryError, KeyError) as error:
        hint = "check the path"
        if os.path.isfile(where):
            reader = reader_of(where) or f"pandas.read_csv({where!r}) of a table, numpy.load({where!r}) of an array"
            hint = f"pass what reads such a file: {reader}"
        msg = f"no zarr array or group at {where!r}; {hint}"
        raise InvalidInputError(msg) from error


def read_rows(array: Any, start: int, stop: int) -> Any:
    """Read a slice of a zarr array.

    Raises InvalidInputError: rows start, ..., stop - 1 can't be read or decoded; the message names them.
    """
    try:
        return array[start:stop]
    except DCAError:
        raise
    except Exception as error:  # stores raise what they like
        where, mend = str(array.store_path), "copy or write these chunks again"
        if unreachable(where, error) is not None:
            mend = "check the credentials and the network, then fit again"
        reason = reason_of(error).partition(": ")[2] or type(error).__name__
        msg = f"rows {start} to {stop - 1} of {where} can't be read ({reason}); {mend}"
        raise InvalidInputError(msg) from error


def _choose_array(where: str, names: list[str], planar: list[str], array: str | None, *, alike: bool) -> str:
    if array is not None:
        if array in names:
            return array
        msg = f"no array {array!r} in {where!r}; it holds {', '.join(names) or 'no arrays'}"
        raise InvalidInputError(msg)
    if len(planar) == 1:
        return planar[0]
    if not planar:
        msg = f"no two-dimensional array in {where!r}; it holds {', '.join(names) or 'no arrays'}"
        if names:
            msg += "; of a cube say which dimension the features are, by --features NAME or dask_dca.Cube in Python"
        raise InvalidInputError(msg)
    msg = (
        f"{len(planar)} arrays in {where!r}: {', '.join(planar)}; choose one with --array {planar[0]}, or in Python "
        f"pass zarr.open_array({where!r}, path={planar[0]!r})"
    )
    if alike:
        msg += f"; or all as features, by --features variable or dask_dca.Cube(xarray.open_zarr({where!r}))"
    raise InvalidInputError(msg)


class _NpyFile:
    """A `.npy` file that any process reads slices of; it is sent to workers as a path."""

    def __init__(self, path: str) -> None:
        self.path = path
        held = np.load(path, mmap_mode="r", allow_pickle=False)
        self.shape, self.dtype, self.ndim = held.shape, held.dtype, held.ndim

    def __getitem__(self, index: Any) -> NDArray[Any]:
        try:
            held = np.load(self.path, mmap_mode="r", allow_pickle=False)
        except FileNotFoundError as error:
            raise InvalidInputError(self._mismatch("finds no file")) from error
        if (held.shape, held.dtype) != (self.shape, self.dtype):
            raise InvalidInputError(self._mismatch(f"finds an array of shape {held.shape} and dtype {held.dtype}"))
        return np.array(held[index])

    def _mismatch(self, what: str) -> str:
        return (
            f"the array of shape {self.shape} and dtype {self.dtype} is at {self.path}, but {this_process()} {what} "
            f"there; {SHARE}"
        )


def open_npy(path: str) -> Any:
    """Open the array of a local `.npy` file as a Dask array in blocks along the first axis, read by workers."""
    import dask.array as da

    held = _NpyFile(path)
    width = max(int(np.prod(held.shape[1:])) * held.dtype.itemsize, 1)
    sides = (max(1, _BLOCK_BYTES // width), *held.shape[1:])
    return da.from_array(held, chunks=sides, asarray=False, meta=np.empty((0,) * held.ndim, held.dtype))
