"""Sparse rows: zarr groups in the csr-triple layout, and blocks of counts.

The layout is the one that anndata writes: a group with the arrays `data`, `indices` and `indptr`, and the attributes
`encoding-type` ("csr_matrix") and `shape`. A block is a range of rows that the task itself reads through `indptr`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
from dask.sizeof import sizeof
from scipy import sparse

from dask_dca.engine.files import refuse_pickles
from dask_dca.errors import CLIP, DROP, InvalidInputError, NotFiniteError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from dask_dca.geometry.arrays import Floats


_MOST_NAMES: Final = 10**8
_LARGEST_COUNT: Final = 2.0**31  # counts up to this are added exactly
_LARGEST_INT32: Final = 2**31 - 1
_MOST_CHUNKS: Final = 4096  # parts of a group that are read one by one, where few rows of each are wanted


@sizeof.register(sparse.sparray)
def _sizeof_sparse_array(values: sparse.sparray) -> int:
    """Let Dask see the size of sparse arrays: it knows of sparse matrices only."""
    return int(sum(part.nbytes for part in vars(values).values() if isinstance(part, np.ndarray)))


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
    if not var[index].shape or var[index].shape[0] > _MOST_NAMES:
        return None
    refuse_pickles(var[index])
    names = np.asarray(var[index][:], dtype=object)
    return names if names.ndim == 1 and all(isinstance(name, str) for name in names) else None


def counts_of_block(columns: Sequence[Any], start: int) -> sparse.csr_array:
    """Take a block as sparse non-negative rows in one canonical form.

    columns (n, p_j): the block's column chunks, side by side; start: row number of the block's first row, for messages.
    Returns (n, p): sorted indices, no duplicates, no stored zeros; never the caller's own arrays if these had to be
    changed.
    Raises NotFiniteError: an entry is NaN or infinite; InvalidInputError: an entry is negative or above 2**31.
    """
    parts = [sparse.csr_array(part if sparse.issparse(part) else _dense(part)) for part in columns]
    rows = parts[0] if len(parts) == 1 else sparse.csr_array(sparse.hstack(parts, format="csr"))
    if not rows.has_canonical_format or not rows.data.all():
        rows = rows.copy()
        rows.sum_duplicates()
        rows.eliminate_zeros()
    if not (rows.data.dtype.kind in "bu" and rows.data.dtype.itemsize <= 2):  # others can't be wrong
        _check_entries(rows, start)
    return rows.astype(np.float64, copy=False)


def _dense(part: Any) -> Floats:
    """Dense rows in a dtype that sparse ones have; masked entries become NaN, which has no place."""
    values = np.ma.filled(part.astype(np.float64), np.nan) if np.ma.is_masked(part) else part
    return np.asarray(values, dtype=np.float64)


def _check_entries(rows: sparse.csr_array, start: int) -> None:
    if not rows.nnz or (rows.data.min() >= 0.0 and rows.data.max() <= _LARGEST_COUNT):  # NaN is neither
        return
    good = (rows.data >= 0.0) & (rows.data <= _LARGEST_COUNT)
    at = int(np.flatnonzero(~good)[0])
    row = start + int(np.searchsorted(rows.indptr, at, side="right")) - 1
    where, value = f"row {row}, column {rows.indices[at]}", rows.data[at]
    if not np.isfinite(value):
        what = "NaN" if np.isnan(value) else "infinity"
        msg = f"Input X contains {what}: {where}; drop such rows first, for example {DROP}"
        raise NotFiniteError(msg)
    if value > 0.0:
        msg = (
            f"a count is too large to be added exactly: {where} is {value:.6g}, above 2**31; divide X first, for "
            f"example X = X / {value / 2**20:.0e}"
        )
        raise InvalidInputError(msg)
    msg = (
        f"Negative values in data: {where} is {value:.6g}, and word counts are not negative; clip them first, for "
        f"example {CLIP}"
    )
    raise InvalidInputError(msg)
