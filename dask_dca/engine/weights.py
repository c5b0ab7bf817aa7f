"""Weights of rows; an integer weight has the effect of that many copies of the row.

Samples are drawn among copies, so that functions of a sample need no weights: a row of weight three occurs up to three
times. Passes that sum over all rows (`Pass(weighted=True)`) receive the weights of a block's rows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dask_dca.engine.advice import array_per_row
from dask_dca.engine.cubes import Labels
from dask_dca.engine.entry import to_plain
from dask_dca.engine.fingerprint import column_keys, hash_of_rows, weigh_values
from dask_dca.engine.graphs import as_dask
from dask_dca.engine.passes import Pass, Run, run_pass
from dask_dca.engine.rows import Rows, as_rows
from dask_dca.engine.sampling import spread_rows
from dask_dca.engine.stores import is_a
from dask_dca.engine.types import Weights, stack_parts
from dask_dca.errors import InvalidInputError
from dask_dca.geometry.arrays import Floats, Numbers
from dask_dca.geometry.exact import power_of_two

_RELATIVE_UNIT: Final = 2.0**-20  # weights are rounded to this share of the greatest one, so that sums are exact
_MIN_TOTAL: Final = 0.5  # least sum of weights
_MAX_TOTAL: Final = 2.0**53  # bound on the sum of weights, also in units


def weigh_rows(rows: Rows, sample_weight: Any, run: Run) -> Rows:
    """Give rows weights; rows of weight zero are replaced by zeros.

    sample_weight (n,): NumPy, or a Dask array in any chunks, or a Series; of a cube also in the shape of its rows, with
    named dimensions in any order; None for unit weights.
    Raises InvalidInputError: not one per row, negative, not finite, or all zero.
    """
    if sample_weight is None:
        return rows
    rows = replace(rows, form=replace(rows.form, weighted=True))
    source = _as_column(sample_weight, rows)
    column = as_rows(source)
    every = np.arange(column.n_blocks)
    low, high, whole = run_pass(column, Pass("weights", _range_block, _merge_ranges), None, run, blocks=every)
    if not high > 0.0:
        msg = "sample_weight is zero throughout: at least one row must count"
        raise InvalidInputError(msg)
    if low == high == 1.0:
        return rows
    unit = 1.0 if whole else float(power_of_two(high)) * _RELATIVE_UNIT
    found, hashes = run_pass(column, Pass("weights", _total_block, stack_parts), unit, run, blocks=every)
    starts, totals = found[:, 0].astype(np.int64), np.concatenate([[0.0], np.cumsum(found[:, 1])])
    if not _MIN_TOTAL <= totals[-1] * unit < _MAX_TOTAL or totals[-1] >= _MAX_TOTAL:
        msg = (
            f"sample_weight sums to {totals[-1] * unit:g}: it is how often each row counts, which must be {_MIN_TOTAL} "
            "to 2**53 rows in all; pass numpy.divide(sample_weight, numpy.mean(sample_weight))"
        )
        raise InvalidInputError(msg)
    most = float(power_of_two(high))
    n_copies = int(totals[-1]) if whole else rows.n_rows
    weights = Weights(source, unit, starts, totals, most, n_copies, int(hashes.sum()))
    return replace(_zero_unweighted_rows(rows, source) if low == 0.0 else rows, weights=weights)


def _as_column(sample_weight: Any, rows: Rows) -> Any:
    """Return weights as a column, in memory or chunked as the rows are."""
    found = _by_row(sample_weight, rows)
    chunked = is_a(found, "dask.array", "Array")
    if found.ndim != 1 or found.shape != (rows.n_rows,) or found.dtype.kind not in "biuf":
        msg = (
            f"sample_weight must hold one number for each of the {rows.n_rows} rows; received shape {found.shape}, "
            f"dtype {found.dtype}"
        )
        if rows.n_rows in found.shape and found.dtype.kind in "biuf":
            msg += "; pass numpy.ravel(sample_weight)"
        elif found.shape == (rows.n_rows,):
            msg += "; pass numpy.asarray(sample_weight, dtype=float)"
        elif isinstance(rows.labels, Labels) and len(rows.labels.sizes) > 1:
            msg += f"; the rows are {rows.labels.rows} of sizes {rows.labels.sizes}, which weights may have too"
        raise InvalidInputError(msg)
    if rows.kind == "memory":
        return to_plain(found.compute() if chunked else found).astype(np.float64)[:, None]
    if chunked:
        return found.astype(np.float64).rechunk((_block_heights(rows),))[:, None]
    import dask.array as da

    return da.from_array(to_plain(found).astype(np.float64)[:, None], chunks=(_block_heights(rows), (1,)))


def _by_row(weights: Any, rows: Rows) -> Any:
    """Return weights in the order of the rows; those of a cube may have the shape of its rows."""
    labels = rows.labels if isinstance(rows.labels, Labels) else None
    if is_a(weights, "xarray", "DataArray"):
        if labels is not None and set(weights.dims) == set(labels.rows):
            weights = weights.transpose(*labels.rows)
        weights = weights.data
    elif hasattr(weights, "to_dask_array"):
        weights = weights.astype(np.float64).to_dask_array(lengths=True)
    elif is_a(weights, "pandas", "Series", "DataFrame"):  # perhaps of a nullable dtype
        weights = weights.to_numpy(dtype=np.float64, na_value=np.nan)
    found: Any = weights if is_a(weights, "dask.array", "Array") else array_per_row("sample_weight", weights)
    if np.isnan(found.shape).any():  # a Dask array of unknown chunks
        found = found.compute_chunk_sizes()
    if found.ndim == 0 and found.dtype.kind in "biuf":  # one weight for all rows
        return np.full(rows.n_rows, float(found))
    return found.reshape(-1) if labels is not None and found.shape == labels.sizes else found


def _block_heights(rows: Rows) -> tuple[int, ...]:
    return tuple(np.diff(rows.offsets).tolist())


def _range_block(state: None, start: int, *columns: Any) -> tuple[float, float, bool]:
    values = columns[0][:, 0]
    wrong = ~((values >= 0.0) & (values < np.inf))  # NaN is neither
    if wrong.any():
        i = int(wrong.argmax())
        msg = f"sample_weight must be finite and not negative; received {values[i]:g} for row {start + i}"
        raise InvalidInputError(msg)
    low, high = float(values.min(initial=np.inf)), float(values.max(initial=0.0))
    return low, high, bool((values == np.rint(values)).all())


def _merge_ranges(parts: Any) -> tuple[float, float, bool]:
    low, high, whole = zip(*parts, strict=True)
    return min(low), max(high), all(whole)


def _total_block(unit: float, start: int, *columns: Any) -> tuple[Floats, NDArray[np.uint64]]:
    hashes = hash_of_rows(weigh_values(columns[0], column_keys(0, 1)), start)
    return np.array([[start, np.rint(columns[0] / unit).sum()]]), hashes.sum(keepdims=True)


def _zero_unweighted_rows(rows: Rows, source: Any) -> Rows:
    """Replace rows of weight zero by rows of zeros."""
    if rows.kind == "memory":
        return replace(rows, source=_zero_rows(rows.source, source))
    rows = as_dask(rows)
    meta = np.empty((0, 0), rows.dtype)
    weights = source.rechunk((rows.source.chunks[0], (1,)))
    found = rows.source.map_blocks(_zero_rows, weights, dtype=rows.dtype, meta=meta)
    return replace(rows, source=found)


def _zero_rows(block: Any, weights: Floats) -> Any:
    found, lost = to_plain(block), weights[:, 0] == 0.0
    if not lost.any():
        return found
    found = found.copy()
    if sparse.issparse(found):
        found.data[np.repeat(lost, np.diff(found.indptr))] = 0
        found.eliminate_zeros()
    else:
        found[lost] = 0
    return found


def draw_rows(rows: Rows, n_groups: int, group: int, run: Run) -> Numbers | None:
    """Choose rows as `spread_rows` does, but with probabilities proportional to weights.

    Returns sorted row numbers, perhaps repeated; None means all rows, each once.
    """
    if rows.weights is None:
        return spread_rows(rows.n_rows, n_groups, group)
    found = spread_rows(rows.n_copies, n_groups, group)
    copies = np.arange(rows.n_copies) if found is None else found
    weights = rows.weights
    places = (copies + 0.5) * (weights.totals[-1] / weights.n_copies)
    column = as_rows(weights.source)
    state, every = (weights.starts, weights.totals, weights.unit, places), np.arange(column.n_blocks)
    return np.sort(run_pass(column, Pass("weights", _draw_block, stack_parts), state, run, blocks=every))


def _draw_block(state: tuple[Numbers, Floats, float, Floats], start: int, *columns: Any) -> Numbers:
    starts, totals, unit, places = state
    before = totals[int(np.searchsorted(starts, start))]
    upto = before + np.cumsum(np.rint(columns[0][:, 0] / unit))
    if not len(upto):
        return np.zeros(0, dtype=np.int64)
    own = places[(places >= before) & (places < upto[-1])]
    return start + np.searchsorted(upto, own, side="right").astype(np.int64)
