"""Zarr stores and .npy files by path: which array or sparse matrix is meant, packed values, and reading slices of it.

The attributes of packed values are those of the CF conventions, as xarray, netCDF and climate archives write them.
Blocks are decoded by xarray itself, where they are read. Sparse rows are groups in the csr-triple layout, the one that
anndata writes: with the arrays `data`, `indices` and `indptr`, and the attributes `encoding-type` ("csr_matrix") and
`shape`. A block is a range of rows that the task itself reads through `indptr`.
"""

from __future__ import annotations

import base64
import os
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from scipy import sparse

from dask_dca.engine.damaged import damage_of
from dask_dca.engine.files import SHARE, expanded, reader_of, refuse_pickles, require_regular, text_of, this_process
from dask_dca.errors import DCAError, InvalidInputError, MissingChunksWarning, reason_of, unreachable

if TYPE_CHECKING:
    from numpy.typing import NDArray

_BLOCK_BYTES: Final = 2**26  # of a .npy file
_MOST_NAMES: Final = 10**8
_LARGEST_INT32: Final = 2**31 - 1
_MOST_CHUNKS: Final = 4096  # parts of a group that are read one by one, where few rows of each are wanted
_SCALES: Final = ("scale_factor", "add_offset", "_Unsigned")
_MISSING: Final = ("_FillValue", "missing_value")
_OF_STORED: Final = ("ndim", "shape", "chunks", "shards", "store_path")  # what packed and stored arrays share


@dataclass(frozen=True)
class Packed:
    """A zarr array that is decoded where it is read."""

    array: Any
    attributes: dict[str, Any]
    dtype: np.dtype[Any]  # of what is decoded

    def __getattr__(self, name: str) -> Any:
        if name not in _OF_STORED:
            raise AttributeError(name)
        return getattr(self.array, name)

    def __getitem__(self, index: Any) -> NDArray[Any]:
        return _decoded(self.array[index], self.attributes)


def unpacked(array: Any) -> Any:
    """Read an array as its attributes say.

    array: the array; none of its chunks is read. Returns the array itself where its numbers are what they stand for.
    Raises InvalidInputError: it is packed, and xarray is not there to decode it.
    """
    attributes = _packing(array)
    if array.dtype.kind not in "biuf" or not attributes:
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

    held = xr.Dataset({"X": (tuple(range(values.ndim)), values, attributes)})
    found: NDArray[Any] = xr.decode_cf(held, decode_coords=False)["X"].values
    return found


class CsrGroup:
    """A sparse matrix in a zarr group, of which whoever holds this reads row ranges.

    group: group with the arrays `data`, `indices` and `indptr`; feature_names (p,): names of the columns.
    Raises InvalidInputError: the group is no matrix by rows, or its arrays contradict each other.
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
        self.data, self.indices, self.indptr = (_part(group[name]) for name in ("data", "indices", "indptr"))
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
        rows = int(np.clip(chunk / entries_a_row, max(1, n // _MOST_CHUNKS), max(n, 1)))
        self.chunks = (rows, p)

    @property
    def row_bytes(self) -> float:
        """Bytes that a row takes in memory, on average."""
        entry = self.dtype.itemsize + self.indices.dtype.itemsize
        return max(1.0, entry * self.data.shape[0] / max(self.shape[0], 1))

    def __getitem__(self, index: Any) -> sparse.csr_array:
        rows, columns = index if isinstance(index, tuple) else (index, slice(None))
        start, stop, step = rows.indices(self.shape[0])
        found = self._read(start, max(start, stop))
        whole = step == 1 and columns == slice(None)
        return found if whole else found[::step, columns]

    def __array_function__(self, *args: Any) -> Any:
        """Tell Dask to hand out blocks as they are read, instead of turning them into NumPy arrays."""
        return NotImplemented

    def __dask_tokenize__(self) -> Any:
        return ("CsrGroup", self.store_path, self.shape, str(self.dtype), self.data.shape[0])

    def _read(self, start: int, stop: int) -> sparse.csr_array:
        p = self.shape[1]
        ends = np.asarray(self.indptr[start : stop + 1]).astype(np.int64)
        low, high = (int(ends[0]), int(ends[-1])) if len(ends) else (0, 0)
        columns = np.asarray(self.indices[low:high])
        ends = ends - low if len(ends) else np.zeros(1, dtype=np.int64)
        if columns.dtype == np.int32 and high - low <= _LARGEST_INT32:
            ends = ends.astype(np.int32)  # else SciPy makes all numbers of columns as wide as the ends
        if np.any(np.diff(ends) < 0) or len(columns) != high - low or _outside(columns, p):
            msg = f"its indptr or indices are damaged between rows {start} and {stop}"
            raise ValueError(msg)
        return sparse.csr_array((np.asarray(self.data[low:high]), columns, ends), shape=(len(ends) - 1, p))


def _part(array: Any) -> Any:
    from dask_dca.engine.shared_stores import shared_array

    refuse_pickles(array)
    return shared_array(array, complain=array.basename == "data")  # a column of zeros is a good array of indices


def _outside(columns: NDArray[Any], p: int) -> bool:
    return bool(len(columns)) and not 0 <= int(columns.min()) <= int(columns.max()) < p


def is_csr_group(member: Any) -> bool:
    """Tell whether a member of a zarr store is a sparse matrix.

    Returns true for a group in the layout of csr or csc triples.
    """
    return hasattr(member, "members") and member.attrs.get("encoding-type") in ("csr_matrix", "csc_matrix")


def names_of_columns(group: Any) -> NDArray[np.object_] | None:
    """Read the names of the columns of an .h5ad-like zarr store.

    group: the store; names are in its group `var`, in the array that the attribute `_index` names. Returns (p,): the
    names, where there are any.
    """
    var = group.get("var")
    index = var.attrs.get("_index") if hasattr(var, "members") else None
    if not isinstance(index, str) or index not in var:
        return None
    held = var[index]
    if hasattr(held, "members"):  # a nullable array, which anndata writes with pandas 3: none is missing among names
        held = held.get("values")
    if not getattr(held, "shape", None) or held.shape[0] > _MOST_NAMES:
        return None
    refuse_pickles(held)
    names = np.asarray(held[:], dtype=object)
    return names if names.ndim == 1 and all(isinstance(name, str) for name in names) else None


def is_a(X: Any, package: str, *names: str) -> bool:
    """Tell whether an object is an instance of a class of a package, without importing the package.

    Returns true if its class, or one that it is derived from, is one of them.
    """
    return any(
        cls.__name__ in names and (cls.__module__ == package or cls.__module__.startswith(package + "."))
        for cls in type(X).__mro__
    )


def open_array(X: Any, array: str | None = None) -> Any:
    """Open the two-dimensional array, or the sparse matrix, of a zarr store.

    Returns the array, opened for reading; it knows what any other process must find at its place.
    Raises InvalidInputError: there is nothing at the path, no such array, more than one to choose from, or a damaged
    one.
    """
    if isinstance(X, CsrGroup | Packed):
        return X
    where = text_of(X) if isinstance(X, str | os.PathLike) else str(getattr(X, "store_path", X))
    try:
        return _find_array(X, where, array)
    except (DCAError, MemoryError, MissingChunksWarning):
        raise
    except Exception as error:
        reason = str(error).partition("\n")[0] or type(error).__name__
        msg = f"{where!r} can't be read as a zarr array: {reason[:200]}; copy it again, or write it again"
        raise InvalidInputError(unreachable(where, error) or msg) from error


def _find_array(X: Any, where: str, array: str | None) -> Any:
    """Open what is at the path, and choose."""
    import zarr

    if isinstance(X, str | os.PathLike):
        X = open_store(expanded(where))
    elif is_a(X, "zarr", "Store", "StorePath"):
        X = zarr.open(X, mode="r")
    if isinstance(X, zarr.Array):
        if array is not None:
            msg = f"{where!r} is an array itself and holds no array {array!r}; leave --array out"
            raise InvalidInputError(msg)
        return admitted_array(X)
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
    found = members[_choose(where, names, planar, array, alike=alike)]
    if is_csr_group(found):
        return CsrGroup(found, names_of_columns(X))
    return admitted_array(found)


def admitted_array(array: Any) -> Any:
    """Take an opened zarr array for data.

    Returns an array that knows what any other process must find at its place, and reads what its numbers stand for.
    Raises InvalidInputError: its chunks are pickles, or packed without xarray to decode them.
    """
    from dask_dca.engine.shared_stores import shared_array

    refuse_pickles(array)
    return unpacked(shared_array(array))


def open_store(where: str) -> Any:
    """Open what is at a path, or say what else to do with it.

    Returns a zarr array or group, for reading.
    Raises InvalidInputError: there is neither.
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
        if damage := damage_of(where):
            msg = f"{where!r} {damage}"
            raise InvalidInputError(msg) from error
        if os.path.isfile(where):
            reader = reader_of(where) or f"pandas.read_csv({where!r}) of a table, numpy.load({where!r}) of an array"
            hint = f"pass what reads such a file: {reader}"
        msg = f"no zarr array or group at {where!r}; {hint}"
        raise InvalidInputError(msg) from error


def read_rows(array: Any, start: int, stop: int) -> Any:
    """Read a slice of a zarr array.

    start, stop: first row, and the row after the last. Returns (stop - start, p): the rows.
    Raises InvalidInputError: they can't be read or decoded; the message names them.
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
        msg = f"rows {start} to {stop} of {where} can't be read ({reason}); {mend}"
        raise InvalidInputError(msg) from error


def _choose(where: str, names: list[str], planar: list[str], array: str | None, *, alike: bool) -> str:
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
    """A `.npy` file of which whoever holds this reads slices: it travels to workers as a path."""

    def __init__(self, path: str) -> None:
        self.path = path
        held = np.load(path, mmap_mode="r", allow_pickle=False)
        self.shape, self.dtype, self.ndim = held.shape, held.dtype, held.ndim

    def __getitem__(self, index: Any) -> NDArray[Any]:
        try:
            held = np.load(self.path, mmap_mode="r", allow_pickle=False)
        except FileNotFoundError as error:
            raise InvalidInputError(self._elsewhere("finds no file")) from error
        if (held.shape, held.dtype) != (self.shape, self.dtype):
            raise InvalidInputError(self._elsewhere(f"finds an array of shape {held.shape} and dtype {held.dtype}"))
        return np.array(held[index])

    def _elsewhere(self, what: str) -> str:
        return (
            f"the array of shape {self.shape} and dtype {self.dtype} is at {self.path}, but {this_process()} {what} "
            f"there; {SHARE}"
        )


def slices_of_npy(path: str) -> Any:
    """Open the array of a `.npy` file, of any dimensions.

    path: of a local file. Returns a Dask array, each block along its first dimension; workers read their own parts.
    """
    import dask.array as da

    held = _NpyFile(path)
    width = max(int(np.prod(held.shape[1:])) * held.dtype.itemsize, 1)
    sides = (max(1, _BLOCK_BYTES // width), *held.shape[1:])
    return da.from_array(held, chunks=sides, asarray=False, meta=np.empty((0,) * held.ndim, held.dtype))
