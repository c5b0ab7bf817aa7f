"""The divide passes of the paper's own algorithm: rows of least and greatest angle on random planes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dask_dca.engine.checks import Census, clip_rounding, count_unusable, require_finite
from dask_dca.engine.groups import plane_groups
from dask_dca.engine.job import Groups
from dask_dca.engine.merges import add_parts
from dask_dca.engine.passes import Pass, run_pass, step
from dask_dca.engine.tiles import tiles
from dask_dca.geometry import angles, planes
from dask_dca.geometry.arg_best import ArgBest
from dask_dca.geometry.votes import VoteHistogram, count_votes, merge_histograms

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from dask_dca.engine.groups import PlaneGroup
    from dask_dca.engine.passes import Run
    from dask_dca.engine.rows import Rows

    Floats = NDArray[np.float64]
    Numbers = NDArray[np.int64]

__all__ = ["AngleVotes", "angle_votes"]

_CUT_ENTRIES: Final = 2**17  # angles that are held at once: rows times planes


@dataclass(frozen=True)
class AngleVotes:
    """What the planes of the paper's method voted for, and what was met on the way."""

    votes: VoteHistogram
    n_pointed: int
    census: Census


@dataclass(frozen=True)
class _Extremes:
    """Greatest and least cosine on each plane, which rows they are, and the spread of signed angles."""

    best: ArgBest  # (2, s): greatest cosine, of the least angle; least cosine, negated
    spread: Floats  # (2, s) greatest signed angle, and minus the least
    census: Census

    def __add__(self, other: _Extremes) -> _Extremes:
        spread = np.maximum(self.spread, other.spread)
        return _Extremes(self.best + other.best, spread, self.census + other.census)


@dataclass(frozen=True)
class _State:
    ensemble: str
    seed: int
    count: int
    sample: Floats | None
    middle: Floats
    nonnegative: bool = False
    inner: tuple[Floats, Floats] | None = None  # least and greatest key of the rows to be covered

    def pairs(self, index: Numbers, n_features: int) -> planes.Pairs:
        return angles.integer_pairs(planes.plane_pairs(self.ensemble, self.seed, index, n_features, self.sample))


def angle_votes(
    rows: Rows,
    ensemble: str,
    seed: int,
    count: int,
    sample: Floats,
    run: Run,
    *,
    others: Rows | None = None,
    nonnegative: bool = False,
) -> AngleVotes:
    """
    Let each plane vote for the rows of least and of greatest angle to its axis.

    Parameters
    ----------
    rows : Rows
        The data X.
    ensemble : str
        What the planes are drawn from.
    seed, count : int
        Root seed and number of the planes.
    sample : ndarray of float64, shape (m, p)
        Some rows, for the ensemble "data" and the middle direction.
    run : Run
        How passes are run.
    others : Rows, optional
        Rows Y to vote for: those just outside the angles of X, by the paper's rule ()_+ for X != Y.
    nonnegative : bool, default False
        Refuse negative entries.

    Returns
    -------
    AngleVotes
        Of the rows of Y, if there are others; ties go to the lower row number.
    """
    state = step(run, "state", _state, ensemble, seed, count, sample, nonnegative)
    groups = plane_groups(rows, count)
    if others is None:
        voted: Pass[Any] = Pass("divide", _angle_block, add_parts, groups=Groups(groups, _count_votes, _conquer))
        return run_pass(rows, voted, state, run)
    inside: Pass[Any] = Pass("divide", _angle_block, add_parts, groups=Groups(groups, _as_found, _side_by_side))
    found = run_pass(rows, inside, state, run)
    outer = step(run, "state", _outside_of, state, found)
    groups = plane_groups(others, count)
    voted = Pass("divide", _outside_block, add_parts, groups=Groups(groups, _count_votes, _conquer))
    return step(run, "votes", _with_counts_of, run_pass(others, voted, outer, run), found)


def _state(ensemble: str, seed: int, count: int, sample: Floats, nonnegative: bool) -> _State:
    exponents = np.frexp(np.abs(sample).max(axis=1, initial=0.0))[1]
    unit = np.ldexp(sample, -exponents[:, None])  # squares of huge and of tiny entries are out of range
    norms = np.sqrt((unit**2).sum(axis=1))
    middle = (unit[norms > 0] / norms[norms > 0, None]).sum(axis=0)
    return _State(ensemble, seed, count, unit if ensemble == "data" else None, middle, nonnegative)


def _outside_of(state: _State, found: _Extremes) -> _State:
    return replace(state, nonnegative=False, inner=(-found.best.keys[1], found.best.keys[0]))


def _cuts(state: _State, n_planes: int, start: int, columns: Sequence[Any], census: Census) -> Any:
    for numbers, tile in tiles(columns, start, copy=False):
        if state.nonnegative:
            tile = clip_rounding(tile, numbers, census)
        require_finite(tile, numbers)
        usable: NDArray[np.bool_] = np.asarray(tile.any(axis=1))
        count_unusable(tile[~usable], numbers[~usable], census)
        step = max(16, _CUT_ENTRIES // n_planes)
        for begin in range(0, len(numbers), step):
            some = np.flatnonzero(usable[begin : begin + step]) + begin
            if len(some):
                yield numbers[some], tile[some]


def _empty(count: int) -> _Extremes:
    return _Extremes(ArgBest.nobody((2, count)), np.full((2, count), -np.inf), Census())


def _angle_block(group: PlaneGroup, shared: Sequence[Any], state: _State, start: int, *columns: Any) -> _Extremes:
    del shared
    own = group.range_of(state.count)
    pairs = state.pairs(own, sum(part.shape[1] for part in columns))
    middle = angles.inner_products(state.middle[None], pairs)[0][0]
    census = Census()
    found = _empty(len(own))
    for numbers, rows in _cuts(state, len(own), start, columns, census):
        places = angles.inner_products(rows, pairs)[0]
        keys, turn = angles.cosine_keys(places), angles.signed_angles(places, middle)
        best = ArgBest.of_rows(np.stack([keys, -keys], axis=1), numbers)
        found += _Extremes(best, ArgBest.of_rows(np.stack([turn, -turn], axis=1), numbers).keys, Census())
    return replace(found, census=census)


def _outside_block(group: PlaneGroup, shared: Sequence[Any], state: _State, start: int, *columns: Any) -> _Extremes:
    """Least angle not below the greatest of X, and greatest angle not above the least of X."""
    del shared
    assert state.inner is not None
    own = group.range_of(state.count)
    least, greatest = (keys[own] for keys in state.inner)
    pairs = state.pairs(own, sum(part.shape[1] for part in columns))
    found = _empty(len(own))
    for numbers, rows in _cuts(state, len(own), start, columns, Census()):
        keys = angles.cosine_keys(angles.inner_products(rows, pairs)[0])
        # the cosine falls as the angle grows
        beyond = np.where(keys <= least, keys, np.nan)
        before = np.where(keys >= greatest, -keys, np.nan)
        found = replace(found, best=found.best + ArgBest.of_rows(np.stack([before, beyond], axis=1), numbers))
    return found


def _as_found(group: PlaneGroup, found: _Extremes) -> _Extremes:
    del group
    return found


def _side_by_side(parts: Sequence[_Extremes]) -> _Extremes:
    """The extremes of all planes; each group has met the same rows."""
    keys, rows, spread = (
        np.concatenate(same, axis=-1)
        for same in zip(*((part.best.keys, part.best.rows, part.spread) for part in parts), strict=True)
    )
    return _Extremes(ArgBest(keys, rows, np.zeros((*keys.shape, 0))), spread, parts[0].census)


def _count_votes(group: PlaneGroup, found: _Extremes) -> AngleVotes:
    del group
    low, high = found.best.found
    rows, counted = count_votes(low, high)
    histogram = VoteHistogram(rows, counted, np.zeros((len(rows), 0)), np.zeros((2, 0)), len(low))
    return AngleVotes(histogram, _n_pointed(found), found.census)


def _n_pointed(found: _Extremes) -> int:
    """Planes on which all rows fit into less than half a turn; the spread is infinite where no row was seen."""
    return int((np.abs(found.spread.sum(axis=0)) < np.pi).sum())


def _conquer(parts: Sequence[AngleVotes]) -> AngleVotes:
    histogram = merge_histograms([part.votes for part in parts])
    return AngleVotes(histogram, sum(part.n_pointed for part in parts), parts[0].census)


def _with_counts_of(voted: AngleVotes, found: _Extremes) -> AngleVotes:
    """Votes for rows of Y, with what was met in X."""
    return AngleVotes(voted.votes, _n_pointed(found), found.census)
