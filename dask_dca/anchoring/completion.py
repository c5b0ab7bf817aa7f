"""Rows whose holes are filled by a low-rank model, lazily: for what needs every entry."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dask_dca.anchoring.incomplete import filled_rows
from dask_dca.engine.checks import require_squares
from dask_dca.engine.map import map_rows
from dask_dca.engine.passes import Pass, run_pass
from dask_dca.engine.rows import as_rows
from dask_dca.engine.tiles import tiles
from dask_dca.engine.types import add_parts
from dask_dca.errors import FewEntriesWarning, InvalidInputError, warn
from dask_dca.geometry.low_rank import LowRank, fit_low_rank

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dask_dca.engine.passes import Run
    from dask_dca.engine.rows import Rows

    Floats = NDArray[np.float64]

__all__ = ["complete_rows", "completed_sample", "count_observed", "warn_of_few_entries"]

_ENOUGH = (2.0, 5.0)  # entries for each number of a model: holes at random, holes in blocks
_FEW_HOLES = 0.05  # of the entries, up to which their number is what it would be without any
_LEARNT_ROWS = 20_000
_DIRECTIONS = 8  # of the model beyond one for each part


def completed_sample(sample: Floats, n_parts: int) -> tuple[Floats, LowRank]:
    """Fill the holes of a sample (n, p) of rows that are of some parts, such as components; and say by what.

    Raises InvalidInputError: a feature has no observed entry.
    """
    unseen = np.isnan(sample).all(axis=0)
    if unseen.any():
        column = int(unseen.argmax())
        msg = f"column {column} of X has no observed entry in the sample of {len(sample)} rows; leave it out"
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


def complete_rows(rows: Rows, model: LowRank) -> Rows:
    """Fill the holes of rows by their posterior means; nothing of chunked rows is read yet.

    Returns rows of the same number and dtype; those without holes as they are.
    """
    filled = map_rows(replace(rows, labels=None), completed_block, model, rows.n_features)
    return replace(as_rows(filled), feature_names=rows.feature_names, labels=rows.labels)


def completed_block(model: LowRank, start: int, *columns: Any) -> Floats:
    """Fill the holes of a block; returns (n, p)."""
    found = [np.zeros((0, len(model.mean)))]
    for numbers, tile in tiles(columns, start):
        require_squares(tile, numbers, missing=True)
        found.append(filled_rows(model, tile, nonnegative=False))
    return np.concatenate(found)


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
