"""Anchors of rows with missing entries: a low-rank model from a sample, then the divide step on posterior places."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dask_dca.anchoring.divide import Directions
from dask_dca.anchoring.result import AnchorResult
from dask_dca.engine.passes import Pass, run_pass
from dask_dca.engine.sampling import spread_rows
from dask_dca.engine.tiles import Reading, RowCensus, clip_rounding, require_size, require_squares, tiles
from dask_dca.engine.types import add_parts, stack_parts
from dask_dca.errors import FewEntriesWarning, FewerAnchorsWarning, InvalidInputError, InvalidParameterError, warn
from dask_dca.geometry import extremes as hulls
from dask_dca.geometry import votes
from dask_dca.geometry.exact import power_of_two
from dask_dca.geometry.low_rank import (
    LowRank,
    fit_low_rank,
    held_out_count,
    observed,
    places,
    places_of_observed,
    structured,
)
from dask_dca.geometry.pieces import Workspace, times
from dask_dca.geometry.solvers import successive_projection

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dask_dca.anchoring.parameters import Settings
    from dask_dca.engine.passes import Run
    from dask_dca.engine.rows import Rows
    from dask_dca.geometry.arrays import Floats, Mask, Numbers


_PLACES: Final = 64  # runs of rows that the sample is taken in
_SAMPLE_ROWS: Final = (2_000, 20_000)  # at least, at most
_SAMPLE_WORK: Final = 2**33  # of the sample's rows times features times squared rank
_FRESH: Final = 128  # directions kept out of the choice, for the certificate
_JUDGES: Final = 128  # rows that a model may be judged by
_UPRIGHT: Final = (0.25, 0.95)  # height along all ones, of a row's magnitudes, that this share of rows must have
_UNIT_BITS: Final = 20  # of the widest deviation: places are integers
_FAR: Final = 2.0**31  # longest place
_ENOUGH: Final = (2.0, 5.0)  # entries for each number of the model: holes at random, holes in blocks
_FEW_HOLES: Final = 0.05  # of the entries, up to which the number of entries is what it would be without any
_FEW_ANCHORS: Final = 10  # that a sample is taken for where their number is not known
_JUDGED_ROWS: Final = 2_000  # that their number is chosen by, and the axis
_MOST_ANCHORS: Final = 64
_PLANES_PER_ANCHOR: Final = 10.0


@dataclass(frozen=True)
class _Plan:
    """What places a row: the model, its rows' heights, and the axes in which ratios spread."""

    model: LowRank
    reading: Reading
    heights: Floats  # (r + 1,) of the mean and of the loadings along the reference axis
    turn: Floats  # (r + 1, d) from [1, z] to coordinates
    middle: Floats  # (d,)
    aside: float  # how far the middle lies from the span of these axes
    unit: float
    scales: Floats  # (d,) deviations, in units

    def places(self, z: Floats) -> tuple[Floats, Mask]:
        """Place rows by their posterior means: integers, and which rows have a positive height."""
        lifted = np.hstack([np.ones((len(z), 1)), z])
        height = times(lifted, self.heights[:, None])[:, 0]
        ahead = height > 0.0
        found = times(lifted, self.turn) / np.where(ahead, height, 1.0)[:, None] - self.middle
        found /= self.unit
        length = np.sqrt((found**2).sum(axis=1))
        found *= np.minimum(1.0, _FAR / np.maximum(length, 1.0))[:, None]
        return np.rint(found), ahead


@dataclass(frozen=True)
class _Found:
    """The extreme rows, and what was counted on the way."""

    extremes: hulls.ArgBest
    n_observed: int
    n_unobserved_rows: int
    census: RowCensus

    def __add__(self, other: _Found) -> _Found:
        return _Found(
            self.extremes + other.extremes,
            self.n_observed + other.n_observed,
            self.n_unobserved_rows + other.n_unobserved_rows,
            self.census + other.census,
        )


@dataclass(frozen=True)
class _State:
    plan: _Plan
    directions: Directions


def read_incomplete(
    columns: Any, start: int, *, nonnegative: bool, census: RowCensus, only: Numbers | None = None
) -> Any:
    """Cut a block into tiles of rows with holes.

    Yields numbers (m,), rows (m, p) with zeros in their holes, and the mask (m, p) of what was observed; rows are
    overwritten by those of the next tile.
    Raises DCAError: an observed entry is infinite, or negative where that is refused.
    """
    for numbers, rows in tiles(columns, start, only, again=True):
        mask = ~np.isnan(rows)
        np.putmask(rows, ~mask, 0.0)
        require_squares(rows, numbers)
        yield numbers, clip_rounding(rows, numbers, census) if nonnegative else rows, mask


def incomplete_anchors(
    rows: Rows, n_anchors: int | None, settings: Settings, run: Run, *, nonnegative: bool = False
) -> AnchorResult:
    """Find anchors of rows with holes.

    A low-rank model of a sample; one pass over all rows, on the posterior means of their places; successive projection
    among the extreme ones.
    n_anchors: how many; chosen by entries that are held out if None.
    Raises InvalidParameterError: the directions need complete rows.
    """
    if settings.ensemble in ("sparse", "unit", "data"):
        msg = f"X has missing entries, for which directions can't be drawn from {settings.ensemble!r}: use 'auto'"
        raise InvalidParameterError(msg)
    sample = _sample(rows, n_anchors or _FEW_ANCHORS, nonnegative, run)
    if n_anchors is None:
        n_anchors = _held_out(sample)
    plan = _plan(sample, n_anchors, nonnegative)
    s = settings.n_subproblems or max(32, int(np.ceil(_PLANES_PER_ANCHOR * n_anchors * np.log(n_anchors))))
    directions = Directions(settings.ensemble, settings.seed, s, _FRESH, len(plan.scales), plan.scales)
    job: Pass[_Found] = Pass("divide", _divide_block, add_parts)
    found = run_pass(rows, job, _State(plan, directions), run)
    chosen, places = _conquer(found.extremes, s, plan, n_anchors)
    taken = _fetch(rows, np.sort(chosen), nonnegative, run)[np.argsort(np.argsort(chosen))]
    _warn(rows, n_anchors, len(chosen), found, sample)
    return _certified(found, directions, chosen, places, filled_rows(plan.model, taken, nonnegative), plan, sample)


def count_by_holdout(rows: Rows, run: Run, *, nonnegative: bool = False) -> int:
    """Choose a number of anchors by entries of a sample that are hidden, whether others are missing or not."""
    return _held_out(_sample(rows, _FEW_ANCHORS, nonnegative, run))


def _held_out(sample: Floats) -> int:
    some = sample[:: -(-len(sample) // _JUDGED_ROWS)]
    return held_out_count(some.astype(np.float64), _MOST_ANCHORS)


def filled_rows(model: LowRank, rows: Floats, nonnegative: bool) -> Floats:
    """Fill the holes of rows by the posterior mean.

    rows (n, p): NaN where an entry is missing; nonnegative: the means that are filled in are set to zero where they are
    negative. Returns (n, p): what was observed is as it was.
    """
    found, space = rows.astype(np.float64), Workspace()
    for part, tile, mask in observed(rows, space):
        if not mask.all():
            means = model.complete(places_of_observed(model, tile, mask, space))
            np.copyto(found[part], np.maximum(means, 0.0) if nonnegative else means, where=~mask)
    return found


def _sample(rows: Rows, n_anchors: int, nonnegative: bool, run: Run) -> Floats:
    """Rows that the model is learnt from, in runs over the whole of the data, in the data's own precision.

    Those without any entry are left out.
    """
    least, most = _SAMPLE_ROWS
    wanted = int(np.clip(_SAMPLE_WORK // (rows.n_features * n_anchors**2), least, most))
    numbers = spread_rows(rows.n_rows, _PLACES, -(-wanted // _PLACES))
    numbers = np.arange(rows.n_rows) if numbers is None else numbers
    sample = _fetch(rows, numbers, nonnegative, run)
    require_size(sample, numbers)
    unseen = np.isnan(sample).all(axis=1)
    sample = sample[~unseen] if unseen.any() else sample
    if not ((sample > 0.0) | (sample < 0.0)).any():
        msg = f"no row of the sample has an observed entry that is not zero, of {rows.n_rows} rows in all"
        raise InvalidInputError(msg)
    return sample


def _fetch(rows: Rows, numbers: Numbers, nonnegative: bool, run: Run) -> Floats:
    """Bring some rows, holes and all, to the driver, in increasing order of their numbers."""
    rows = rows.by_chunk()
    job: Pass[tuple[Numbers, Floats]] = Pass("sample", _sample_block, stack_parts)
    state = numbers, nonnegative, rows.output_dtype
    where, found = run_pass(rows, job, state, run, blocks=rows.blocks_with(numbers))
    return found if (np.diff(where) > 0).all() else found[np.argsort(where)]


def _sample_block(
    state: tuple[Numbers, bool, np.dtype[Any]], start: int, *columns: Any
) -> tuple[Numbers, NDArray[Any]]:
    wanted, nonnegative, dtype = state
    found = [(wanted[:0], np.zeros((0, sum(part.shape[1] for part in columns)), dtype))]
    read = read_incomplete(columns, start, nonnegative=nonnegative, census=RowCensus(), only=wanted)
    found += [(numbers, np.where(mask, rows, np.nan).astype(dtype, copy=False)) for numbers, rows, mask in read]
    return stack_parts(found)


def _plan(sample: Floats, n_anchors: int, nonnegative: bool) -> _Plan:
    """Learn the model, and in which axes the ratios of the sample's rows spread."""
    model = fit_low_rank(sample, n_anchors)
    z = places(model, sample)
    some = z[:: -(-len(z) // _JUDGED_ROWS)]
    axis = np.ones(sample.shape[1]) if nonnegative else _reference_axis(model.complete(some))
    lifted = np.column_stack([model.mean, model.loadings])  # (p, r + 1)
    heights = lifted.T @ axis
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
    aside = float(np.sqrt(max(float(middle @ middle - within @ within), 0.0)))
    return _Plan(model, reading, heights, basis @ vectors, within, aside, unit, scales)


def _reference_axis(whole: Floats) -> Floats:
    """All ones where rows are non-negative up to noise, else their mean direction."""
    share, most = _UPRIGHT
    upright = whole.sum(axis=1) >= share * np.abs(whole).sum(axis=1)
    if upright.mean() >= most:
        return np.ones(whole.shape[1])
    lengths = np.sqrt((whole**2).sum(axis=1))
    axis = (whole / np.maximum(lengths, 1e-300)[:, None]).mean(axis=0)
    return axis / np.sqrt((axis**2).sum())


def _divide_block(state: _State, start: int, *columns: Any) -> _Found:
    plan, directions = state.plan, state.directions.regenerate()
    best = hulls.ArgBest.nobody(2 * len(directions), directions.shape[1])
    census, space = RowCensus(), Workspace()
    n_observed = n_unobserved_rows = 0
    for numbers, rows, mask in read_incomplete(columns, start, nonnegative=plan.reading.nonnegative, census=census):
        seen, there = mask.any(axis=1), rows.any(axis=1)
        n_observed, n_unobserved_rows = n_observed + int(mask.sum()), n_unobserved_rows + int((~seen).sum())
        some = slice(None) if there.all() else there
        where, ahead = plan.places(places_of_observed(plan.model, rows[some], mask[some], space))
        census.zero_rows += int((seen & ~there).sum())
        census.behind_rows += int((~ahead).sum())
        best = hulls.extremes(where[ahead], numbers[some][ahead], directions, best)
    return _Found(best, n_observed, n_unobserved_rows, census)


def _conquer(best: hulls.ArgBest, n_planes: int, plan: _Plan, n_anchors: int) -> tuple[Numbers, Floats]:
    """Choose among the extreme rows by successive projection of their ratios; returns their numbers and places."""
    voted = votes.votes_of_extremes(best, n_planes)
    inside = voted.places * plan.unit + plan.middle
    chosen = successive_projection(np.hstack([inside, np.full((len(inside), 1), plan.aside)]), n_anchors)
    return voted.rows[chosen], voted.places[chosen]


def _certified(
    found: _Found, directions: Directions, chosen: Numbers, places: Floats, filled: Floats, plan: _Plan, sample: Floats
) -> AnchorResult:
    s, fresh = directions.count, directions.regenerate()[directions.count :]
    voted = votes.votes_of_extremes(found.extremes, s)
    own = voted.votes[np.searchsorted(voted.rows, chosen)]
    heights = found.extremes.keys.reshape(2, -1)[:, s:].ravel()
    curve = votes.coverage_curve(votes.shortfalls(places, np.concatenate([fresh, -fresh]), heights))
    return AnchorResult(
        indices=chosen,
        votes=own,
        vote_share=own / s,
        confidence=votes.wilson_bounds(own, s),
        n_subproblems=s,
        n_pointed=s,
        candidates=voted.rows,
        candidate_votes=voted.votes,
        coverage=float(curve[-1]),
        coverage_curve=curve,
        n_range=(len(chosen), len(chosen)),
        sample=filled_rows(plan.model, sample[:: -(-len(sample) // _JUDGES)], plan.reading.nonnegative),
        rows=filled,
        n_zero_rows=found.census.zero_rows,
        n_behind_rows=found.census.behind_rows,
        n_clipped_entries=found.census.clipped_entries,
        n_unobserved_rows=found.n_unobserved_rows,
        completion=plan.model,
    )


def _warn(rows: Rows, n_anchors: int, n_found: int, found: _Found, sample: Floats) -> None:
    n, p = rows.n_rows - found.n_unobserved_rows, rows.n_features
    over = found.n_observed / (n_anchors * max(n + p - n_anchors, 1))
    in_blocks = over < max(_ENOUGH) and structured(~np.isnan(sample))
    least = _ENOUGH[int(in_blocks)]
    if over < least and found.n_observed < (1.0 - _FEW_HOLES) * n * p:
        how = "in blocks" if in_blocks else "at random"
        warn(
            f"{found.n_observed} entries were observed, {over:.2g} for each of the {n_anchors} (n + p - {n_anchors}) "
            f"numbers that say where rows and {n_anchors} directions lie: with holes {how} fewer than {least:g} may "
            "give other anchors; use fewer anchors, or leave out the rows and features with most holes",
            FewEntriesWarning,
        )
    if n_found < n_anchors:
        warn(
            f"only {n_found} anchors were found where {n_anchors} were asked for: no further ray stands out; "
            f"use {n_found}",
            FewerAnchorsWarning,
        )
