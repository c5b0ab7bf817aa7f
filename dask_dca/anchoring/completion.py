"""Rows whose holes are filled by a low-rank model, lazily: for what needs every entry."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from dask_dca.anchoring.incomplete import filled_rows
from dask_dca.engine.map import map_rows
from dask_dca.engine.passes import Pass, run_pass
from dask_dca.engine.rows import as_rows
from dask_dca.engine.sampling import call, hold_rows_and_count, spread_rows
from dask_dca.engine.tiles import require_size, require_squares, tiles
from dask_dca.engine.types import add_parts
from dask_dca.errors import FewEntriesWarning, InvalidInputError, warn, without_columns
from dask_dca.geometry.low_rank import LowRank, fit_low_rank, held_out_count, structured

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dask_dca.engine.passes import Run
    from dask_dca.engine.rows import Rows
    from dask_dca.geometry.arrays import Floats, Numbers


_ENOUGH = (2.0, 5.0)  # entries for each number of a model: holes at random, holes in blocks
_FEW_HOLES = 0.05  # of the entries, up to which their number is what it would be without any
_LEARNT_ROWS = 20_000
_JUDGED_ROWS = 1_000  # by which the number of directions is chosen
_RUNS = 64  # that a sample is taken in
_DIRECTIONS = 8  # of the model beyond one for each part


def completed_sample(sample: Floats, n_parts: int) -> tuple[Floats, LowRank]:
    """Fill the holes of a sample (n, p) of rows that are of some parts, such as components; and say by what.

    Raises InvalidInputError: a feature has no observed entry.
    """
    unseen = np.isnan(sample).all(axis=0)
    if unseen.any():
        columns = np.flatnonzero(unseen)
        msg = (
            f"column {columns[0]} of X has no observed entry in the sample of {len(sample)} rows ({len(columns)} such "
            f"columns); leave it out, for example {without_columns(columns.tolist())}"
        )
        raise InvalidInputError(msg)
    some = sample[~np.isnan(sample).all(axis=1)]
    rank = max(1, min(n_parts + _DIRECTIONS, sample.shape[1] - 1))
    model = fit_low_rank(some[:: -(-len(some) // _LEARNT_ROWS)], rank)
    return filled_rows(model, sample, nonnegative=False), model


def count_observed(rows: Rows, run: Run) -> tuple[int, int]:
    """Count rows without an observed entry, and observed entries, in one pass."""
    unobserved, observed = run_pass(rows, Pass("count", _count_block, add_parts), None, run)
    return int(unobserved), int(observed)


def _count_block(_: None, start: int, *columns: Any) -> tuple[int, int]:
    found = [(0, 0)]
    for _numbers, tile in tiles(columns, start, copy=False):
        mask = ~np.isnan(tile)
        found.append((int((~mask.any(axis=1)).sum()), int(mask.sum())))
    return add_parts(found)


def has_holes(columns: Sequence[Any]) -> bool:
    """Tell whether an entry of a block is missing; columns (n, p_j): its column chunks."""
    return any(_lacks(part.data if sparse.issparse(part) else part) for part in columns)


def _lacks(values: Any) -> bool:
    return np.ma.is_masked(values) or (values.dtype.kind == "f" and bool(np.isnan(np.min(values, initial=np.inf))))


def complete_rows(rows: Rows, model: LowRank, *, rows_of_holes: bool = True) -> Rows:
    """Fill the holes of rows by their posterior means; nothing of chunked rows is read yet.

    rows_of_holes: fill rows without any observed entry, too: by the mean; they become zeros if False. Returns rows of
    the same number and dtype; those without holes as they are.
    """
    block = completed_block if rows_of_holes else completed_or_zero_block
    filled = map_rows(replace(rows, labels=None), block, model, rows.n_features)
    return replace(as_rows(filled), feature_names=rows.feature_names, labels=rows.labels)


def completed_block(model: LowRank, start: int, *columns: Any) -> Floats:
    """Fill the holes of a block; returns (n, p)."""
    found = [np.zeros((0, len(model.mean)))]
    for numbers, tile in tiles(columns, start):
        require_squares(tile, numbers, missing=True)
        found.append(filled_rows(model, tile, nonnegative=False))
    return np.concatenate(found)


def completed_or_zero_block(model: LowRank, start: int, *columns: Any) -> Floats:
    """Fill the holes of a block, and rows without any observed entry by zeros; returns (n, p)."""
    found = completed_block(model, start, *columns)
    for numbers, tile in tiles(columns, start, copy=False):
        found[numbers[np.isnan(tile).all(axis=1)] - start] = 0.0
    return found


def completion_of_rows(rows: Rows, most: int, run: Run) -> tuple[LowRank, int, bool, tuple[int, int]]:
    """Learn a low-rank model of at most so many directions from a sample of rows with holes, in one pass.

    Returns the model, how many directions entries that are held out speak for, whether holes come in blocks, and what
    `count_observed` does.
    """
    numbers = spread_rows(rows.n_rows, _RUNS, _LEARNT_ROWS // 4 // _RUNS)
    every = np.arange(rows.n_rows) if numbers is None else numbers
    held = hold_rows_and_count(rows, numbers, run, _count_block, partial(_checked, every))
    return call(run, "completion", _learnt, held, most)


def _checked(numbers: Numbers, sample: Floats, counts: Numbers) -> tuple[Floats, Numbers]:
    if np.isnan(sample).all():
        msg = f"X has no observed entry in the sample of {len(sample)} rows; pass rows that have some"
        raise InvalidInputError(msg)
    require_squares(sample, numbers, missing=True)
    require_size(sample, numbers)
    return sample, counts


def _learnt(held: tuple[Floats, Numbers], most: int) -> tuple[LowRank, int, bool, tuple[int, int]]:
    sample, (unobserved, observed) = held
    some = sample[~np.isnan(sample).all(axis=1)]
    count = held_out_count(some[:: -(-len(some) // _JUDGED_ROWS)], most)
    model = completed_sample(sample, min(2 * count, most - _DIRECTIONS))[1]  # more than these, for the small ones
    return model, count, structured(~np.isnan(sample)), (int(unobserved), int(observed))


def warn_of_few_entries(n_observed: int, n_entries: int, n_parameters: int, *, in_blocks: bool, remedy: str) -> None:
    """Warn where too few entries were observed for the numbers of a model.

    n_observed, n_entries: observed entries, and all; n_parameters: numbers of the model; in_blocks: whether holes come
    in blocks; remedy: what to do.
    """
    each, least = n_observed / max(n_parameters, 1), _ENOUGH[int(in_blocks)]
    if each < least and n_observed < (1.0 - _FEW_HOLES) * n_entries:
        how = "in blocks" if in_blocks else "at random"
        warn(
            f"{n_observed} entries were observed, {each:.2g} for each of the {n_parameters} parameters: with holes "
            f"{how} fewer than {least:g} tell little; {remedy}",
            FewEntriesWarning,
        )
