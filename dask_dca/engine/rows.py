"""Any accepted input as blocks of rows with known offsets; markers of missing entries become NaN."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dask_dca.engine.advice import Form, as_numbers, form_of, refuse_shape
from dask_dca.engine.computing import active_client, refuse_closed, refuse_delayed, require_package
from dask_dca.engine.cubes import Cube, Labels, TableIndex, labels_of
from dask_dca.engine.entry import Declared, require_real, to_plain
from dask_dca.engine.graphs import as_dask
from dask_dca.engine.stores import CsrGroup, Packed, is_a, open_array
from dask_dca.engine.tables import is_foreign_table, is_table, numeric_table, to_pandas_table
from dask_dca.engine.types import Weights
from dask_dca.errors import InvalidInputError, InvalidParameterError, PerformanceWarning, warn

_BLOCK_BYTES: Final = 2**26  # smaller zarr chunks are joined to blocks of about this size
_MAX_BLOCKS: Final = 2**21  # greatest number of blocks of a zarr array
_MIN_BLOCKS: Final = 16  # chunks are not joined to fewer blocks, so that all workers have some
# entries up to which small chunks of a Dask array are joined to a block: a task costs more than they do
_MAX_JOINED_ENTRIES: Final = 2**18
_MIN_JOINED_BLOCKS: Final = 256  # least number of blocks of joined chunks; up to twice as many are not joined
IMPLICIT: Final = "implicit"  # entries that sparse rows don't store are missing
_MAX_BLOCK_ENTRIES: Final = 2**22  # entries of the blocks that a sparse matrix in memory is cut into


@dataclass(frozen=True)
class Rows:
    """A matrix as blocks of whole rows."""

    source: Any  # ndarray, csr matrix or array, zarr.Array, CsrGroup, or dask.array.Array
    kind: Literal["memory", "zarr", "dask"]
    offsets: NDArray[np.int64]  # (n_blocks + 1,), the first row of each block, and the number of rows
    n_features: int
    dtype: np.dtype[Any]
    feature_names: NDArray[np.object_] | None = None
    labels: Labels | TableIndex | None = None  # labels of the input, for results
    lengths: tuple[int, ...] | None = None  # frames of each sequence, if the input determines them
    weights: Weights | None = None  # from `weigh_rows`
    form: Form = field(default_factory=Form)  # kind of the input, for error messages

    @property
    def n_rows(self) -> int:
        """Number of rows n."""
        return int(self.offsets[-1])

    @property
    def n_copies(self) -> int:
        """Number of rows that samples are drawn from: copies, if weights are integers."""
        return self.n_rows if self.weights is None else self.weights.n_copies

    @property
    def total_weight(self) -> float:
        """Sum of the weights, or the number of rows."""
        return float(self.n_rows) if self.weights is None else self.weights.total

    @property
    def n_blocks(self) -> int:
        """Number of blocks."""
        return len(self.offsets) - 1

    @property
    def chunk_offsets(self) -> NDArray[np.int64]:
        """The first row of each chunk of the input, and the number of rows; blocks consist of chunks."""
        return _edges_of(self.source) if self.kind == "dask" else self.offsets

    @property
    def first_chunks(self) -> NDArray[np.int64]:
        """The number of each block's first chunk, and the number of chunks."""
        edges = self.chunk_offsets
        if len(edges) == len(self.offsets):
            return np.arange(len(edges))
        return np.append(np.searchsorted(edges, self.offsets[:-1]), len(edges) - 1)

    @property
    def output_dtype(self) -> np.dtype[Any]:
        """The floating dtype of copies of rows: that of the input up to float64; computations are in float64."""
        short = self.dtype.kind == "f" and self.dtype.itemsize <= 8
        return self.dtype.newbyteorder("=") if short else np.dtype(np.float64)

    @property
    def result_dtype(self) -> np.dtype[Any]:
        """The dtype of results per row: at least float32, because log densities overflow in half precision."""
        return np.promote_types(self.output_dtype, np.float32)

    @property
    def declared(self) -> Declared:
        """The declared dtype and column chunks of the blocks."""
        sides = self.source.chunks[1] if self.kind == "dask" else (self.n_features,)
        return Declared((0, *np.cumsum(sides).tolist()), self.dtype)

    def numbers_of(self, block: int) -> range:
        """Return the numbers of the rows of a block."""
        return range(int(self.offsets[block]), int(self.offsets[block + 1]))

    def by_chunk(self) -> Rows:
        """Return the same rows in the smallest blocks that can be read, for passes that need few rows of each."""
        if self.kind != "zarr":
            return self
        return replace(self, offsets=_edges(self.n_rows, int(self.source.chunks[0])))

    def blocks_for(self, numbers: NDArray[np.int64]) -> tuple[Rows, NDArray[np.int64]]:
        """Return rows in blocks for a pass that needs some rows, and the blocks with these: chunks, unless too many."""
        small = self.by_chunk() if self.kind == "zarr" else self.with_chunks()
        blocks = small.blocks_with(numbers)
        if self.kind == "dask" and len(blocks) > _MIN_JOINED_BLOCKS:
            return self, self.blocks_with(numbers)
        return small, blocks

    def with_chunks(self) -> Rows:
        """Return the same rows with a block for each chunk, for results with the chunks of the data."""
        return replace(self, offsets=self.chunk_offsets)

    def blocks_with(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the numbers of the blocks that contain some rows."""
        return np.unique(np.searchsorted(self.offsets, numbers, side="right") - 1)


def as_rows(X: Any, *, array: str | None = None) -> Rows:
    """Turn a matrix (n, p) of any accepted kind into rows; nothing is read or copied.

    Raises InvalidInputError: not two-dimensional, empty, not of a real dtype, or a path without a single array.
    """
    if isinstance(X, Rows):
        return X
    rows = _rows_of(X, array)
    return replace(rows, form=form_of(X, rows.source))


def _rows_of(X: Any, array: str | None) -> Rows:
    """Turn anything except rows into rows, without its form."""
    if is_a(X, "xarray", "DataArray"):
        labels = labels_of(X)
        return replace(as_rows(X.data), feature_names=_text_names(labels.feature_values), labels=labels)
    if isinstance(X, Cube):
        names = _text_names(X.labels.feature_values)
        return replace(as_rows(X.matrix), feature_names=names, labels=X.labels, lengths=X.lengths)
    refuse_delayed(X)  # first, because a delayed object seems to have every attribute
    if hasattr(X, "to_frame") and (getattr(X, "ndim", 0) == 1 or is_a(X, "polars", "Series")):
        msg = (
            f"Expected 2D array, got a {type(X).__name__} instead. Reshape your data: X.to_frame() for one feature, "
            "X.to_frame().transpose() for one row"
        )
        raise InvalidInputError(msg)
    called = "X.to_pandas()" if is_foreign_table(X) else "X"
    X = to_pandas_table(X)
    X = numeric_table(X, called) if is_table(X) else X
    if hasattr(X, "to_dask_array"):  # a Dask DataFrame
        import dask.dataframe as dd

        query = X.optimize()  # as a graph, in which values and index of a partition share its loading
        X = dd.from_graph(query.dask, X._meta, query.divisions, query.__dask_keys__(), "table")
        rows = as_rows(X.to_dask_array(lengths=True))
        return replace(rows, feature_names=_text_names(X.columns), labels=TableIndex(X.index, tuple(X.columns)))
    X, names = _unwrap(X)
    of_zarr = is_a(X, "zarr", "Group", "Array", "Store", "StorePath") or is_a(X, "fsspec", "FSMap")
    if of_zarr or isinstance(X, str | os.PathLike | CsrGroup | Packed):
        return _check_rows(_from_zarr(open_array(X, array), names))
    if is_a(X, "dask.array", "Array"):
        refuse_closed(X)
        return _check_rows(_from_dask(X, names))
    known = isinstance(X, np.ma.MaskedArray) or hasattr(X, "tocsr") or hasattr(X, "to_scipy_sparse")
    found = to_plain(X) if known else to_plain(as_numbers(X))
    if found.ndim != 2:
        refuse_shape(found.shape, "numpy.reshape(X, {})" if isinstance(X, list | tuple) else "X.reshape{}")
    return _check_rows(Rows(found, "memory", np.array([0, found.shape[0]]), found.shape[1], found.dtype, names))


def _unwrap(X: Any) -> tuple[Any, NDArray[np.object_] | None]:
    """Return the array and the column names of a labelled container."""
    if is_a(X, "xarray", "Dataset"):
        msg = (
            f"a Dataset of {', '.join(map(repr, X.data_vars)) or 'nothing'} is no matrix; pass one variable: "
            f"X[{next(iter(X.data_vars), 'name')!r}], or all of them as features: dask_dca.Cube(X)"
        )
        raise InvalidInputError(msg)
    if is_a(X, "xarray", "DataTree"):
        msg = f"a DataTree is no matrix; pass one of its Datasets: dask_dca.Cube(X[{X.path!r}].to_dataset())"
        raise InvalidInputError(msg)
    if is_a(X, "anndata", "AnnData", "Raw"):
        return _matrix_of_anndata(X), _text_names(X.var_names)
    if is_a(X, "pandas", "DataFrame"):
        return X.to_numpy(), _text_names(X.columns)
    return X, None


def _matrix_of_anndata(cells: Any) -> Any:
    """Return X of an AnnData; refuse one that is missing, or sparse and not in memory."""
    if is_a(cells, "anndata", "AnnData") and cells.X is None:
        names = [repr(name) for name in cells.layers] or ["..."]
        msg = f"X of this AnnData is empty; it holds layers {', '.join(names)}; pass one: X.layers[{names[0]}]"
        raise InvalidInputError(msg)
    if getattr(cells, "isbacked", False) and hasattr(cells.X, "to_memory"):
        msg = (
            "X of this AnnData is sparse and stays in its file; pass X.to_memory(), or, where that is too large, the "
            "path of a zarr store, which is read in parts: X.write_zarr('cells.zarr')"
        )
        raise InvalidInputError(msg)
    return cells.X


def _text_names(names: Any) -> NDArray[np.object_] | None:
    if names is None:
        return None
    found = np.asarray(names, dtype=object)
    return found if all(isinstance(name, str) for name in found) else None


def _from_dask(X: Any, names: NDArray[np.object_] | None) -> Rows:
    if X.ndim != 2:
        refuse_shape(X.shape)
    if np.isnan(X.shape).any():
        warn(
            "the rows of the blocks are not known and were counted with one more pass over the data; "
            "call X = X.compute_chunk_sizes() once to save it",
            PerformanceWarning,
        )
        require_package(active_client())
        X = X.map_blocks(_countable_block, dtype=X.dtype, meta=np.empty((0, 0), X.dtype)).compute_chunk_sizes()
    return Rows(X, "dask", _blocks_of(X), X.shape[1], X.dtype, names)


def _edges_of(X: Any) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(X.chunks[0])]).astype(np.int64)


def _blocks_of(X: Any) -> NDArray[np.int64]:
    """The first row of each block of a Dask array, and the number of rows; many small chunks are joined."""
    edges, (n, p) = _edges_of(X), X.shape
    if len(edges) <= 2 * _MIN_JOINED_BLOCKS:
        return edges
    step = max(1, min(_MAX_JOINED_ENTRIES // max(p, 1), n // _MIN_JOINED_BLOCKS))
    firsts = np.unique(edges // step, return_index=True)[1]
    return np.append(edges[firsts[edges[firsts] < n]], n)


def _countable_block(block: Any, block_id: tuple[int, int]) -> Any:
    """Return a block as a matrix, so that its rows can be counted."""
    try:
        found = to_plain(block)
    except Exception as error:
        what = f"it is a {type(block).__name__}: {error}"
        raise InvalidInputError(_count_error(block_id, what)) from error
    if found.ndim != 2:
        raise InvalidInputError(_count_error(block_id, f"its shape is {found.shape}"))
    return found


def _count_error(block_id: tuple[int, int], what: str) -> str:
    return f"the rows of block {block_id} of the Dask array can't be counted: {what}; every block must be a matrix"


def _from_zarr(X: Any, names: NDArray[np.object_] | None) -> Rows:
    if X.ndim != 2:
        refuse_shape(X.shape, dims=getattr(X.metadata, "dimension_names", None))
    n, p = X.shape
    chunk, row_bytes = int((X.shards or X.chunks)[0]), p * X.dtype.itemsize  # rows read at once, and their size
    if isinstance(X, CsrGroup):
        row_bytes, names = X.row_bytes, X.feature_names if names is None else names
    at_a_time = int(min(_BLOCK_BYTES // max(chunk * row_bytes, 1), n // (chunk * _MIN_BLOCKS)))
    step = chunk * max(1, at_a_time)
    if n // step > _MAX_BLOCKS:
        msg = f"{X.store_path} has {n} rows in chunks of {chunk}: more than {_MAX_BLOCKS} blocks; write larger chunks"
        raise InvalidInputError(msg)
    return Rows(X, "zarr", _edges(n, step), p, X.dtype, names)


def _edges(n_rows: int, step: int) -> NDArray[np.int64]:
    return np.append(np.arange(0, n_rows, step, dtype=np.int64), n_rows)


def _check_rows(rows: Rows) -> Rows:
    """Refuse entries that are not real numbers, and empty data."""
    require_real(rows.dtype)
    if rows.n_rows == 0 or rows.n_features == 0:
        what = "sample" if rows.n_rows == 0 else "feature"
        msg = (
            f"Found array with 0 {what}(s) (shape=({rows.n_rows}, {rows.n_features})) while a minimum of 1 is required."
        )
        raise InvalidInputError(msg)
    return rows


def check_missing(missing: Any) -> Any:
    """Check a marker of missing entries; raises InvalidParameterError unless None, a number or "implicit"."""
    implicit = isinstance(missing, str) and missing == IMPLICIT
    number = isinstance(missing, int | float | np.number) and not isinstance(missing, bool)
    if not (implicit or number or missing is None):
        msg = f"missing must be None, a number, or 'implicit' for what sparse rows don't store; received {missing!r}"
        raise InvalidParameterError(msg)
    return missing


def mark_missing(rows: Rows, missing: Any) -> Rows:
    """Replace markers of missing entries by NaN, lazily for chunked rows.

    missing: None or NaN if entries are marked by NaN already; a number; "implicit" for entries that sparse rows don't
    store.
    Raises InvalidParameterError: it is none of these.
    """
    if missing is None or (isinstance(missing, float | np.floating) and np.isnan(missing)):
        return rows
    implicit = check_missing(missing) == IMPLICIT
    dtype, value = rows.output_dtype, None if implicit else float(missing)
    if rows.kind == "memory" and not sparse.issparse(rows.source):
        return replace(rows, source=_mark_block(rows.source, value, dtype), dtype=dtype)
    source = _cut_sparse(rows) if rows.kind == "memory" else as_dask(rows).source
    found = source.map_blocks(_mark_block, value, dtype, dtype=dtype, meta=np.empty((0, 0), dtype))
    return replace(rows, source=found, kind="dask", offsets=_blocks_of(found), dtype=dtype)


def _cut_sparse(rows: Rows) -> Any:
    import dask.array as da

    step = max(1, _MAX_BLOCK_ENTRIES // rows.n_features)
    return da.from_array(rows.source, chunks=(step, rows.n_features), asarray=False)


def _mark_block(block: Any, value: float | None, dtype: Any) -> NDArray[Any]:
    """Return a dense block with NaN for entries equal to the value, or that are not stored."""
    if sparse.issparse(block) and value is None:
        stored = block.tocoo()
        found = np.full(stored.shape, np.nan, dtype=dtype)
        found[stored.row, stored.col] = 0.0
        np.add.at(found, (stored.row, stored.col), stored.data)
        return found
    dense: Any = block.toarray() if sparse.issparse(block) else block
    if np.ma.isMaskedArray(dense):
        dense = np.ma.filled(dense.astype(dtype), np.nan)
    if value is None:
        msg = "missing='implicit' is for sparse rows, and these are dense: mark what is missing by NaN"
        raise InvalidParameterError(msg)
    return np.where(dense == value, np.nan, dense).astype(dtype, copy=False)
