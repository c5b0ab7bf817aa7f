"""Rows with missing entries: their completion by a low-rank model, lazily, and their anchors.

The model is fitted to a sample. Anchors are found by the divide step on posterior means of the rows' positions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import numpy as np
from scipy import sparse

from dask_dca.anchoring.divide import Directions
from dask_dca.anchoring.parameters import AnchorResult, Settings, certify, evaluation_rows
from dask_dca.anchoring.preprocess import reference_axis
from dask_dca.anchoring.robust import subproblem_count
from dask_dca.engine.advice import in_terms_of
from dask_dca.engine.passes import Pass, Run, map_rows, run_pass
from dask_dca.engine.rows import Rows, as_rows
from dask_dca.engine.sampling import call, fetch_rows, hold_rows_and_count, spread_rows
from dask_dca.engine.tiles import Reading, RowCounts, clip_rounding, require_size, require_squares, tiles
from dask_dca.engine.types import Summed, add_parts
from dask_dca.errors import (
    FewEntriesWarning,
    FewerAnchorsWarning,
    InvalidInputError,
    InvalidParameterError,
    MissingEntriesWarning,
    warn,
    without_columns,
)
from dask_dca.geometry import votes
from dask_dca.geometry.arrays import Floats, Mask, Numbers
from dask_dca.geometry.exact import Workspace, piecewise_matmul, power_of_two
from dask_dca.geometry.low_rank import (
    LowRank,
    choose_n_anchors,
    fit_low_rank,
    is_missing_in_blocks,
    observed_tiles,
    posterior_means,
    posterior_means_of_tile,
)
from dask_dca.geometry.solvers import successive_projection

# observed entries per parameter of a model below which a warning is given: missing at random, missing in blocks
_MIN_ENTRIES_PER_PARAMETER: Final = (2.0, 5.0)
_MAX_HARMLESS_SHARE: Final = 0.05  # share of missing entries up to which no warning is given
_MAX_FIT_ROWS: Final = 20_000  # rows of a sample that a model is fitted to
_RANK_CHOICE_ROWS: Final = 1_000  # rows from which the rank is chosen
_SAMPLE_RUNS: Final = 64  # runs of rows of a sample
_EXTRA_DIRECTIONS: Final = 8  # rank of a model beyond the number of components
_SAMPLE_ROWS: Final = (2_000, 20_000)  # least and greatest number of rows of the sample for anchors
_MAX_SAMPLE_WORK: Final = 2**33  # bound on the sample's rows times features times squared rank
_N_FRESH_DIRECTIONS: Final = 128  # directions that are not used for the selection, for the certificate
_UNIT_BITS: Final = 20  # positions are rounded to 2**-20 of the greatest standard deviation
_MAX_LENGTH: Final = 2.0**31  # longer positions are shortened to that length
_PROVISIONAL_N_ANCHORS: Final = 10  # number of anchors that sets the sample's size where it is to be chosen
_MAX_CHOICE_ROWS: Final = 2_000  # rows from which the number of anchors, or the axis, is chosen
_MAX_ANCHORS: Final = 64  # greatest number of anchors that is chosen


def fill_rows(model: LowRank, rows: Floats, nonnegative: bool) -> Floats:
    """Fill the missing entries of rows by posterior means.

    rows (n, p): NaN where an entry is missing; nonnegative: whether negative means are replaced by zero.
    """
    found, space = rows.astype(np.float64), Workspace()
    for part, tile, mask in observed_tiles(rows, space):
        if not mask.all():
            means = model.complete(posterior_means_of_tile(model, tile, mask, space))
            np.copyto(found[part], np.maximum(means, 0.0) if nonnegative else means, where=~mask)
    return found


def complete_sample(sample: Floats, n_parts: int) -> tuple[Floats, LowRank]:
    """Fill the missing entries of a sample (n, p) of rows with n_parts components; also returns the model used.

    Raises InvalidInputError: a feature has no observed entry.
    """
    unseen = np.isnan(sample).all(axis=0)
    if unseen.any():
        columns = np.flatnonzero(unseen)
        without, what = without_columns(columns.tolist()), _describe_unobserved(columns, len(sample))
        msg = f"{what}; leave it out, for example {without}"
        raise InvalidInputError(msg if len(columns) < sample.shape[1] else "X has no observed entry in the sample")
    some = sample[~np.isnan(sample).all(axis=1)]
    rank = max(1, min(n_parts + _EXTRA_DIRECTIONS, sample.shape[1] - 1))
    model = fit_low_rank(some[:: -(-len(some) // _MAX_FIT_ROWS)], rank)
    return fill_rows(model, sample, nonnegative=False), model


def count_observed(rows: Rows, run: Run) -> tuple[int, int]:
    """Count rows without an observed entry, and observed entries, in one pass."""
    unseen, seen = run_pass(rows, Pass("count", _count_block, add_parts), None, run)
    return int(unseen), int(seen)


def _count_block(_: None, start: int, *columns: Any) -> tuple[int, int]:
    found = [(0, 0)]
    for _numbers, tile in tiles(columns, start, copy=False):
        mask = ~np.isnan(tile)
        found.append((int((~mask.any(axis=1)).sum()), int(mask.sum())))
    return add_parts(found)


def has_missing_entries(columns: Sequence[Any]) -> bool:
    """Whether any entry of a block is missing; columns (n, p_j): its column chunks."""
    held = (part.data if sparse.issparse(part) else part for part in columns)
    return any(values.dtype.kind == "f" and bool(np.isnan(np.min(values, initial=np.inf))) for values in held)


def complete_rows(rows: Rows, model: LowRank, *, fill_unobserved_rows: bool = True) -> Rows:
    """Fill the missing entries of rows by posterior means, lazily for chunked rows.

    fill_unobserved_rows: whether rows without any observed entry are filled by the mean; else they become zeros.
    """
    return fill_blocks(rows, complete_block if fill_unobserved_rows else complete_or_zero_block, model)


def fill_blocks(rows: Rows, block: Callable[..., Floats], state: Any) -> Rows:
    """Fill the missing entries of rows by a function of blocks, lazily for chunked rows."""
    filled = map_rows(replace(rows, labels=None), block, state, rows.n_features)
    return replace(as_rows(filled), feature_names=rows.feature_names, labels=rows.labels, form=rows.form)


def complete_block(model: LowRank, start: int, *columns: Any) -> Floats:
    """Fill the missing entries of a block; returns (n, p)."""
    found = [np.zeros((0, len(model.mean)))]
    for numbers, tile in tiles(columns, start):
        require_squares(tile, numbers, missing=True)
        found.append(fill_rows(model, tile, nonnegative=False))
    return np.concatenate(found)


def with_zeros_for_empty_rows(block: Callable[..., Floats], state: Any, start: int, *columns: Any) -> Floats:
    """Fill the missing entries of a block by a function, except that rows without any entry become zeros; (n, p)."""
    found = block(state, start, *columns)
    for numbers, tile in tiles(columns, start, copy=False):
        found[numbers[np.isnan(tile).all(axis=1)] - start] = 0.0
    return found


complete_or_zero_block: Final = partial(with_zeros_for_empty_rows, complete_block)


def fit_completion(rows: Rows, most: int, run: Run) -> tuple[LowRank, int, bool, tuple[int, int]]:
    """Fit a low-rank model of rank at most `most` to a sample of rows with missing entries, in one pass.

    Returns the model, the number of anchors chosen by held-out entries, whether entries are missing in blocks, and the
    counts of `count_observed`.
    """
    numbers = spread_rows(rows.n_rows, _SAMPLE_RUNS, _MAX_FIT_ROWS // 4 // _SAMPLE_RUNS)
    every = np.arange(rows.n_rows) if numbers is None else numbers
    held = hold_rows_and_count(rows, numbers, run, _count_block, partial(_check_sample, every))
    return call(run, "completion", _fit_completion, held, most)


def _check_sample(numbers: Numbers, sample: Floats, counts: Numbers) -> tuple[Floats, Numbers]:
    if np.isnan(sample).all():
        msg = f"X has no observed entry in the sample of {len(sample)} rows; pass rows that have some"
        raise InvalidInputError(msg)
    require_squares(sample, numbers, missing=True)
    require_size(sample, numbers)
    return sample, counts


def _fit_completion(held: tuple[Floats, Numbers], most: int) -> tuple[LowRank, int, bool, tuple[int, int]]:
    sample, (unobserved, observed) = held
    some = sample[~np.isnan(sample).all(axis=1)]
    count = choose_n_anchors(some[:: -(-len(some) // _RANK_CHOICE_ROWS)], most)
    rank = min(2 * count, most - _EXTRA_DIRECTIONS)  # twice the number, for weak directions
    model = complete_sample(sample, rank)[1]
    return model, count, is_missing_in_blocks(~np.isnan(sample)), (int(unobserved), int(observed))


def warn_of_few_entries(n_observed: int, n_entries: int, n_parameters: int, *, in_blocks: bool, remedy: str) -> None:
    """Warn if too few entries were observed for the parameters of a model.

    n_observed, n_entries: numbers of observed entries, and of all; in_blocks: whether entries are missing in blocks;
    remedy: what the message advises.
    """
    each, least = n_observed / max(n_parameters, 1), _MIN_ENTRIES_PER_PARAMETER[int(in_blocks)]
    if each < least and n_observed < (1.0 - _MAX_HARMLESS_SHARE) * n_entries:
        how = "in blocks" if in_blocks else "at random"
        warn(
            f"{n_observed} entries were observed, {each:.2g} for each of the {n_parameters} parameters: with entries "
            f"missing {how} fewer than {least:g} say little; {remedy}",
            FewEntriesWarning,
        )


@dataclass(frozen=True)
class _Plan:
    """What maps posterior means to integer positions: the model, heights, and principal axes of the scaled rows."""

    model: LowRank
    reading: Reading
    heights: Floats  # (r + 1,) heights of the mean and of the loadings along the reference axis
    axes: Floats  # (r + 1, d) maps [1, z] to coordinates
    middle: Floats  # (d,) mean of the coordinates
    middle_distance: float  # of the mean from the span of the axes
    unit: float  # power of two that positions are multiples of
    scales: Floats  # (d,) standard deviations, in units

    def places(self, z: Floats) -> tuple[Floats, Mask]:
        """Return integer positions for posterior means, and which rows have a positive height."""
        lifted = np.hstack([np.ones((len(z), 1)), z])
        height = piecewise_matmul(lifted, self.heights[:, None])[:, 0]
        ahead = height > 0.0
        found = piecewise_matmul(lifted, self.axes) / np.where(ahead, height, 1.0)[:, None] - self.middle
        found /= self.unit
        length = np.sqrt((found**2).sum(axis=1))
        found *= np.minimum(1.0, _MAX_LENGTH / np.maximum(length, 1.0))[:, None]
        return np.rint(found), ahead


@dataclass(frozen=True)
class _Found(Summed):
    """Result of the divide step: extreme rows, and counts."""

    extremes: votes.ArgBest
    n_observed: int
    n_unobserved_rows: int
    row_counts: RowCounts


@dataclass(frozen=True)
class _State:
    """What a task of the divide step needs besides its block."""

    plan: _Plan
    directions: Directions


def read_incomplete(columns: Any, start: int, *, nonnegative: bool, row_counts: RowCounts) -> Any:
    """Cut a block into tiles of rows with missing entries.

    Yields row numbers (m,), rows (m, p) with zeros for missing entries, and the mask (m, p) of observed entries; the
    next tile overwrites them.
    Raises DCAError: an observed entry is infinite, or negative where that is refused.
    """
    for numbers, rows in tiles(columns, start, again=True):
        mask = ~np.isnan(rows)
        np.putmask(rows, ~mask, 0.0)
        require_squares(rows, numbers)
        yield numbers, clip_rounding(rows, numbers, row_counts) if nonnegative else rows, mask


def incomplete_anchors(
    rows: Rows, n_anchors: int | None, settings: Settings, run: Run, *, nonnegative: bool = False
) -> AnchorResult:
    """Find anchors of rows with missing entries.

    A low-rank model is fitted to a sample; one pass over all rows finds those with extreme posterior means; successive
    projection selects anchors among these.
    n_anchors: chosen by held-out entries if None.
    Raises InvalidParameterError: the ensemble needs complete rows.
    """
    if settings.ensemble in ("sparse", "unit", "data"):
        msg = f"X has missing entries, for which directions can't be drawn from {settings.ensemble!r}: use 'auto'"
        raise InvalidParameterError(msg)
    sample = _sample_rows(rows, n_anchors or _PROVISIONAL_N_ANCHORS, nonnegative, run)
    if n_anchors is None:
        n_anchors = _choose_count(sample)
    plan = _make_plan(sample, n_anchors, nonnegative)
    s = subproblem_count(settings, n_anchors)
    directions = Directions(settings.ensemble, settings.seed, s, _N_FRESH_DIRECTIONS, len(plan.scales), plan.scales)
    job: Pass[_Found] = Pass("divide", _divide_block, add_parts)
    found = run_pass(rows, job, _State(plan, directions), run)
    chosen, places = _choose_rows(found.extremes, s, plan, n_anchors)
    taken = fetch_rows(rows, chosen, run, nonnegative=nonnegative, missing=True)
    _warn(rows, n_anchors, len(chosen), found, sample)
    filled, n_entries = fill_rows(plan.model, taken, nonnegative), rows.n_rows * rows.n_features
    result = _certify(found, directions, chosen, places, filled, plan, sample)
    return replace(result, n_missing_entries=n_entries - found.n_observed)


def _warn(rows: Rows, n_anchors: int, n_found: int, found: _Found, sample: Floats) -> None:
    n, p = rows.n_rows - found.n_unobserved_rows, rows.n_features
    n_numbers = n_anchors * max(n + p - n_anchors, 1)  # parameters of a rank-k matrix
    few = found.n_observed < max(_MIN_ENTRIES_PER_PARAMETER) * n_numbers
    in_blocks = few and is_missing_in_blocks(~np.isnan(sample))
    remedy = "use fewer anchors, or leave out the rows and features that lack most"
    warn_of_few_entries(found.n_observed, n * p, n_numbers, in_blocks=in_blocks, remedy=remedy)
    if n_found < n_anchors:
        warn(
            f"found only {n_found} of the {n_anchors} anchors asked for: no further ray stands out; use {n_found}",
            FewerAnchorsWarning,
        )


def count_by_holdout(rows: Rows, run: Run, *, nonnegative: bool = False) -> int:
    """Choose the number of anchors by held-out entries of a sample, whether or not others are missing."""
    return _choose_count(_sample_rows(rows, _PROVISIONAL_N_ANCHORS, nonnegative, run))


def _choose_count(sample: Floats) -> int:
    some = sample[:: -(-len(sample) // _MAX_CHOICE_ROWS)]
    return choose_n_anchors(some.astype(np.float64), _MAX_ANCHORS)


def fit_batch_completion(rows: Rows, n_anchors: int, run: Run) -> tuple[LowRank, tuple[int, int]]:
    """Fit a low-rank model to a sample of non-negative rows with missing entries; warn if too few are observed.

    Returns the model, and the counts of `count_observed`.
    """
    sample, (n_unseen, n_observed) = _sample_rows(rows, n_anchors, True, run), count_observed(rows, run)
    n, p = rows.n_rows - n_unseen, rows.n_features
    n_numbers, remedy = n_anchors * max(n + p - n_anchors, 1), "begin with a larger batch, or with complete rows"
    in_blocks = is_missing_in_blocks(~np.isnan(sample))
    warn_of_few_entries(n_observed, n * p, n_numbers, in_blocks=in_blocks, remedy=remedy)
    return fit_low_rank(sample, max(1, min(n_anchors, len(sample) - 1, p - 1))), (n_unseen, n_observed)


def _sample_rows(rows: Rows, n_anchors: int, nonnegative: bool, run: Run) -> Floats:
    """Sample the rows that the model is fitted to, in runs over the data and in the dtype of the data.

    Rows without any observed entry are left out.
    """
    least, most = _SAMPLE_ROWS
    wanted = int(np.clip(_MAX_SAMPLE_WORK // (rows.n_features * n_anchors**2), least, most))
    numbers = spread_rows(rows.n_rows, _SAMPLE_RUNS, -(-wanted // _SAMPLE_RUNS))
    sample = fetch_rows(rows, numbers, run, nonnegative=nonnegative, missing=True, dtype=rows.output_dtype)
    numbers = np.arange(rows.n_rows) if numbers is None else numbers
    with in_terms_of(rows.form, rows.feature_names):
        require_squares(np.where(np.isnan(sample), 0.0, sample), numbers)
        require_size(sample, numbers)
    unseen = np.isnan(sample).all(axis=1)
    sample = sample[~unseen] if unseen.any() else sample
    if not ((sample > 0.0) | (sample < 0.0)).any():
        msg = f"no row of the sample has an observed entry that is not zero, of {rows.n_rows} rows in all"
        raise InvalidInputError(msg)
    if (columns := np.flatnonzero(np.isnan(sample).all(axis=0))).size:
        without, what = without_columns(columns.tolist()), _describe_unobserved(columns, len(sample))
        msg = f"{what}, and anchors are zero there; {without} leaves it out"
        warn(rows.form.adapt(msg), MissingEntriesWarning)
    return sample


def _describe_unobserved(columns: Numbers, n_rows: int) -> str:
    which = f"({len(columns)} such columns)"
    return f"column {columns[0]} of X has no observed entry in the sample of {n_rows} rows {which}"


def _make_plan(sample: Floats, n_anchors: int, nonnegative: bool) -> _Plan:
    """Fit the model, and compute the principal axes of the scaled posterior means of the sample."""
    model = fit_low_rank(sample, n_anchors)
    z = posterior_means(model, sample)
    some = z[:: -(-len(z) // _MAX_CHOICE_ROWS)]
    axis = None if nonnegative else reference_axis(model.complete(some))
    lifted = np.column_stack([model.mean, model.loadings])  # (p, r + 1)
    heights = lifted.T @ (np.ones(sample.shape[1]) if axis is None else axis)
    basis = np.linalg.qr(lifted)[1].T  # rows of coordinates [1, z] @ basis, in an orthonormal basis
    with_one = np.hstack([np.ones((len(z), 1)), z])
    height = with_one @ heights
    if not (height > 0.0).any():
        msg = "no row of the sample has positive height along the reference axis"
        raise InvalidInputError(msg)
    ratios = (with_one @ basis)[height > 0.0] / height[height > 0.0][:, None]
    middle = ratios.mean(axis=0)
    spectrum, vectors = np.linalg.eigh((ratios - middle).T @ (ratios - middle) / len(ratios))
    dim = max(1, min(n_anchors - 1, len(spectrum)))
    vectors, deviations = vectors[:, ::-1][:, :dim], np.sqrt(np.maximum(spectrum[::-1][:dim], 0.0))
    peaks = vectors[np.abs(vectors).argmax(axis=0), np.arange(dim)]
    vectors = vectors * np.where(peaks < 0.0, -1.0, 1.0)
    unit = float(power_of_two(max(float(deviations[0]), 1e-300))) * 2.0**-_UNIT_BITS
    scales = np.maximum(deviations, 1e-12 * max(float(deviations[0]), 1e-300)) / unit
    reading = Reading(axis, nonnegative)
    within = middle @ vectors
    distance = float(np.sqrt(max(float(middle @ middle - within @ within), 0.0)))
    return _Plan(model, reading, heights, basis @ vectors, within, distance, unit, scales)


def _divide_block(state: _State, start: int, *columns: Any) -> _Found:
    plan, directions = state.plan, state.directions.regenerate()
    best = votes.ArgBest.empty(2 * len(directions), directions.shape[1])
    row_counts, space = RowCounts(), Workspace()
    n_observed = n_unobserved_rows = 0
    for numbers, rows, mask in read_incomplete(
        columns, start, nonnegative=plan.reading.nonnegative, row_counts=row_counts
    ):
        seen, there = mask.any(axis=1), rows.any(axis=1)
        n_observed, n_unobserved_rows = n_observed + int(mask.sum()), n_unobserved_rows + int((~seen).sum())
        some = slice(None) if there.all() else there
        where, ahead = plan.places(posterior_means_of_tile(plan.model, rows[some], mask[some], space))
        row_counts.zero_rows += int((seen & ~there).sum())
        row_counts.behind_rows += int((~ahead).sum())
        best = votes.extremes(where[ahead], numbers[some][ahead], directions, best)
    return _Found(best, n_observed, n_unobserved_rows, row_counts)


def _choose_rows(best: votes.ArgBest, n_planes: int, plan: _Plan, n_anchors: int) -> tuple[Numbers, Floats]:
    """Select extreme rows by successive projection of their coordinates; returns numbers and positions."""
    voted = votes.votes_of_extremes(best, n_planes)
    inside = voted.places * plan.unit + plan.middle
    chosen = successive_projection(np.hstack([inside, np.full((len(inside), 1), plan.middle_distance)]), n_anchors)
    return voted.rows[chosen], voted.places[chosen]


def _certify(
    found: _Found, directions: Directions, chosen: Numbers, places: Floats, filled: Floats, plan: _Plan, sample: Floats
) -> AnchorResult:
    s, fresh = directions.count, directions.regenerate()[directions.count :]
    voted = votes.votes_of_extremes(found.extremes, s)
    heights = found.extremes.keys.reshape(2, -1)[:, s:].ravel()
    return certify(
        chosen,
        (voted.rows, voted.votes),
        s,
        curve=votes.coverage_curve(votes.shortfalls(places, np.concatenate([fresh, -fresh]), heights)),
        row_counts=found.row_counts,
        sample=fill_rows(plan.model, evaluation_rows(sample), plan.reading.nonnegative),
        rows=filled,
        n_unobserved_rows=found.n_unobserved_rows,
        completion=plan.model,
    )
