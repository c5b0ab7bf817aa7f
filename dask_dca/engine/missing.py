"""Which entries are missing: a value that stands for them, or what a sparse matrix doesn't store, becomes NaN."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from scipy import sparse

from dask_dca.engine.graphs import as_dask
from dask_dca.errors import InvalidParameterError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dask_dca.engine.rows import Rows

IMPLICIT: Final = "implicit"
_BLOCK_ENTRIES: Final = 2**22  # of a block that a sparse matrix in memory is cut into


def check_missing(missing: Any) -> Any:
    """Refuse what can't stand for missing entries.

    Raises InvalidParameterError: it is neither None, a number, nor "implicit".
    """
    implicit = isinstance(missing, str) and missing == IMPLICIT
    number = isinstance(missing, int | float | np.number) and not isinstance(missing, bool)
    if not (implicit or number or missing is None):
        msg = f"missing must be None, a number, or 'implicit' for what sparse rows don't store; received {missing!r}"
        raise InvalidParameterError(msg)
    return missing


def with_holes(rows: Rows, missing: Any) -> Rows:
    """Turn what stands for missing entries into NaN.

    missing: None or NaN for rows that are marked so already; a number that means "missing"; "implicit" for what sparse
    rows don't store. Returns the same rows, lazily where they are not in memory.
    Raises InvalidParameterError: it is none of these.
    """
    if missing is None or (isinstance(missing, float | np.floating) and np.isnan(missing)):
        return rows
    implicit = check_missing(missing) == IMPLICIT
    dtype, value = rows.output_dtype, None if implicit else float(missing)
    if rows.kind == "memory" and not sparse.issparse(rows.source):
        return replace(rows, source=_marked(rows.source, value, dtype), dtype=dtype)
    source = _in_blocks(rows) if rows.kind == "memory" else as_dask(rows).source
    found = source.map_blocks(_marked, value, dtype, dtype=dtype, meta=np.empty((0, 0), dtype))
    offsets = np.concatenate([[0], np.cumsum(found.chunks[0])]).astype(np.int64)
    return replace(rows, source=found, kind="dask", offsets=offsets, dtype=dtype)


def _in_blocks(rows: Rows) -> Any:
    import dask.array as da

    step = max(1, _BLOCK_ENTRIES // rows.n_features)
    return da.from_array(rows.source, chunks=(step, rows.n_features), asarray=False)


def _marked(block: Any, value: float | None, dtype: Any) -> NDArray[Any]:
    """A block with NaN where the value stands, or where nothing is stored."""
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
