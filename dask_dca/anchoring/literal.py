"""Algorithm 1 as printed in the paper: random planes in feature space, angles to an axis, rows with most votes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dask_dca.anchoring.parameters import AnchorResult, Settings, certify, evaluation_rows
from dask_dca.engine.graphs import as_dask
from dask_dca.engine.passes import Pass, PlaneGroup, Run, plane_groups, run_pass, step
from dask_dca.engine.rows import Rows
from dask_dca.engine.sampling import fetch_rows, spread_rows
from dask_dca.engine.tiles import RowCounts, clip_rounding, count_unusable, require_finite, tiles
from dask_dca.engine.types import Groups, add_parts
from dask_dca.errors import FewerAnchorsWarning, InvalidInputError, warn
from dask_dca.geometry import planes, votes
from dask_dca.geometry.arrays import Floats, Numbers
from dask_dca.geometry.votes import ArgBest

_CUT_ENTRIES: Final = 2**17  # angles that are computed at once: rows times planes
_SAMPLE_RUNS: Final = (32, 8)  # number and length of runs of rows, for the mean direction that angles are signed by
_PLANES_PER_ANCHOR: Final = 5.0  # the number of planes is 5 k ln k


@dataclass(frozen=True)
class AngleVotes:
    """Votes of the planes of the paper's method, and counts of rows."""

    votes: tuple[Numbers, Numbers]  # rows with a vote, increasing, and their numbers of votes
    n_pointed: int
    row_counts: RowCounts


@dataclass(frozen=True)
class _Extremes:
    """Greatest and least cosine on each plane, which rows they are, and the spread of signed angles."""

    best: ArgBest  # (2, s): greatest cosine, of the least angle; least cosine, negated
    spread: Floats  # (2, s) greatest signed angle, and minus the least
    row_counts: RowCounts

    def __add__(self, other: _Extremes) -> _Extremes:
        spread = np.maximum(self.spread, other.spread)
        return _Extremes(self.best + other.best, spread, self.row_counts + other.row_counts)


@dataclass(frozen=True)
class _State:
    """What a task needs besides its block: the planes, and the mean direction."""

    ensemble: str
    seed: int
    count: int
    sample: Floats | None
    middle: Floats
    nonnegative: bool = False
    inner: tuple[Floats, Floats] | None = None  # least and greatest key of the rows to be covered

    def pairs(self, index: Numbers, n_features: int) -> planes.Pairs:
        return planes.integer_pairs(planes.plane_pairs(self.ensemble, self.seed, index, n_features, self.sample))


def _run_votes(rows: Rows, others: Rows | None, count: int, state: Any, run: Run) -> AngleVotes:
    """Let each plane vote for the rows of least and of greatest angle to its axis.

    others: rows Y, if votes are for those just outside the range of angles of X: the paper's ()_+ for X != Y. Ties go
    to the lower row number.
    """
    groups = plane_groups(rows, count)
    if others is None:
        voted: Pass[Any] = Pass("divide", _angle_block, add_parts, groups=Groups(groups, _count_votes, _conquer))
        return run_pass(rows, voted, state, run)
    all_planes = Groups(groups, _keep_extremes, _concatenate_planes)
    inside: Pass[Any] = Pass("divide", _angle_block, add_parts, groups=all_planes)
    found = run_pass(rows, inside, state, run)
    outer = step(run, "state", _outside_state, state, found)
    groups = plane_groups(others, count)
    voted = Pass("divide", _outside_block, add_parts, groups=Groups(groups, _count_votes, _conquer))
    return step(run, "votes", _add_row_counts, run_pass(others, voted, outer, run), found)


def _make_state(ensemble: str, seed: int, count: int, sample: Floats, nonnegative: bool) -> _State:
    unit = planes.binary_scale(sample)  # so that squares of huge and of tiny entries are in range
    norms = np.sqrt((unit**2).sum(axis=1))
    middle = (unit[norms > 0] / norms[norms > 0, None]).sum(axis=0)
    return _State(ensemble, seed, count, unit if ensemble == "data" else None, middle, nonnegative)


def _outside_state(state: _State, found: _Extremes) -> _State:
    return replace(state, nonnegative=False, inner=(-found.best.keys[1], found.best.keys[0]))


def _usable_cuts(state: _State, n_planes: int, start: int, columns: Sequence[Any], row_counts: RowCounts) -> Any:
    for numbers, tile in tiles(columns, start, copy=False):
        if state.nonnegative:
            tile = clip_rounding(tile, numbers, row_counts)
        require_finite(tile, numbers)
        usable: NDArray[np.bool_] = np.asarray(tile.any(axis=1))
        count_unusable(tile[~usable], numbers[~usable], row_counts)
        step = max(16, _CUT_ENTRIES // n_planes)
        for begin in range(0, len(numbers), step):
            some = np.flatnonzero(usable[begin : begin + step]) + begin
            if len(some):
                yield numbers[some], tile[some]


def _no_extremes(count: int) -> _Extremes:
    return _Extremes(ArgBest.empty((2, count)), np.full((2, count), -np.inf), RowCounts())


def _angle_block(group: PlaneGroup, shared: Sequence[Any], state: _State, start: int, *columns: Any) -> _Extremes:
    own = group.range_of(state.count)
    pairs = state.pairs(own, sum(part.shape[1] for part in columns))
    middle = planes.inner_products(state.middle[None], pairs)[0][0]
    row_counts = RowCounts()
    found = _no_extremes(len(own))
    for numbers, rows in _usable_cuts(state, len(own), start, columns, row_counts):
        places = planes.inner_products(rows, pairs)[0]
        keys, turn = planes.cosine_keys(places), planes.signed_angles(places, middle)
        best = ArgBest.of_rows(np.stack([keys, -keys], axis=1), numbers)
        found += _Extremes(best, ArgBest.of_rows(np.stack([turn, -turn], axis=1), numbers).keys, RowCounts())
    return replace(found, row_counts=row_counts)


def _outside_block(group: PlaneGroup, shared: Sequence[Any], state: _State, start: int, *columns: Any) -> _Extremes:
    """Find the least angle not below the greatest of X, and the greatest angle not above the least of X."""
    assert state.inner is not None
    own = group.range_of(state.count)
    least, greatest = (keys[own] for keys in state.inner)
    pairs = state.pairs(own, sum(part.shape[1] for part in columns))
    found = _no_extremes(len(own))
    for numbers, rows in _usable_cuts(state, len(own), start, columns, RowCounts()):
        keys = planes.cosine_keys(planes.inner_products(rows, pairs)[0])
        best = ArgBest.of_rows(planes.keys_outside(keys, least, greatest), numbers)
        found = replace(found, best=found.best + best)
    return found


def _keep_extremes(group: PlaneGroup, found: _Extremes) -> _Extremes:
    return found


def _concatenate_planes(parts: Sequence[_Extremes]) -> _Extremes:
    """Concatenate the extremes of groups of planes, each of which has seen all rows."""
    keys, rows, spread = (
        np.concatenate(same, axis=-1)
        for same in zip(*((part.best.keys, part.best.rows, part.spread) for part in parts), strict=True)
    )
    return _Extremes(ArgBest(keys, rows, np.zeros((*keys.shape, 0))), spread, parts[0].row_counts)


def _count_votes(group: PlaneGroup, found: _Extremes) -> AngleVotes:
    return AngleVotes(votes.count_votes(*found.best.found), _n_pointed(found), found.row_counts)


def _n_pointed(found: _Extremes) -> int:
    """Number of planes in which all rows lie within less than pi; the spread is infinite where there is no row."""
    return int((np.abs(found.spread.sum(axis=0)) < np.pi).sum())


def _conquer(parts: Sequence[AngleVotes]) -> AngleVotes:
    counted = votes.merge_votes([part.votes for part in parts])
    return AngleVotes(counted, sum(part.n_pointed for part in parts), parts[0].row_counts)


def _add_row_counts(voted: AngleVotes, found: _Extremes) -> AngleVotes:
    """Votes for rows of Y, with the counts of X."""
    return AngleVotes(voted.votes, _n_pointed(found), found.row_counts)


def paper_anchors(
    rows: Rows, n_anchors: int, settings: Settings, run: Run, *, Y: Rows | None = None, nonnegative: bool = False
) -> AnchorResult:
    """Find anchors by the paper's Algorithm 1 with its equation for 2-D anchors.

    Every plane votes, pointed or not, as in the paper; the number of pointed ones is reported.
    rows: X, to be covered; Y: rows to choose from, X itself if None; nonnegative: refuse negative entries. The result
    has no coverage, which needs the robust method's subspace.
    """
    s = n_planes(n_anchors, settings)
    sample = fetch_rows(rows, spread_rows(rows.n_rows, *_SAMPLE_RUNS), run, nonnegative=nonnegative)
    others = as_dask(Y) if run.lazy and Y is not None else Y
    state = step(run, "state", _make_state, settings.ensemble, settings.seed, s, sample, nonnegative)
    found = _run_votes(rows, others, s, state, run)
    missing = (
        f"no row has a vote on any of {s} planes: are all rows zero?"
        if Y is None
        else f"no row of Y lies outside the angles of X on any of {s} planes: Y can't cover X"
    )
    return step(run, "anchors", _select, found, s, n_anchors, missing, sample)


def _select(found: AngleVotes, s: int, n_anchors: int, missing: str, sample: Floats) -> AnchorResult:
    facts = {"n_pointed": found.n_pointed, "row_counts": found.row_counts, "sample": evaluation_rows(sample)}
    return select_by_votes(found.votes, s, n_anchors, missing, **facts)


def n_planes(n_anchors: int, settings: Settings) -> int:
    """Number of planes s: that of the settings, else 5 k ln k."""
    return settings.n_subproblems or max(1, math.ceil(_PLANES_PER_ANCHOR * n_anchors * math.log(max(n_anchors, 2))))


def select_by_votes(
    candidates: tuple[Numbers, Numbers], n_planes: int, n_anchors: int, missing: str, **more: Any
) -> AnchorResult:
    """Select the k rows with the most votes, the paper's conquer step.

    candidates: rows with a vote, increasing, and their votes; missing: message if there are none; **more: further
    fields of the result, among them `n_pointed`.
    Raises InvalidInputError: there are none.
    """
    if not len(candidates[0]):
        raise InvalidInputError(missing)
    chosen = votes.select_votes(*candidates, n_anchors)
    if len(chosen) < n_anchors:
        warn(
            f"found only {len(chosen)} of the {n_anchors} anchors asked for, since no other rows have a vote; "
            f"raise n_subproblems (now {n_planes}) or ask for fewer",
            FewerAnchorsWarning,
        )
    return certify(chosen, candidates, n_planes, **more)
