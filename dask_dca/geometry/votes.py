"""Extremes and votes: the extreme rows in each direction, vote histograms, and the selection of k candidates.

Positions and directions are integers whose products stay below 2**53, so that heights are exact and equal rows tie
exactly. Of rows with equal heights the one with the lower number is extreme. Merging is associative and commutative.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dask_dca.geometry.arrays import Floats, Numbers

NO_ROW: Final = np.iinfo(np.int64).max  # row number where there is no row: greater than any other


def beats(keys: Floats, rows: Numbers, old_keys: Floats, old_rows: Numbers) -> NDArray[np.bool_]:
    """Return where new rows beat old ones: by a greater key or, among equal keys, by a lower row number."""
    return (keys > old_keys) | ((keys == old_keys) & (rows < old_rows))


@dataclass(frozen=True)
class ArgBest:
    """The row with the greatest key in each entry of an array; the sum of two takes the greater key of both.

    keys (...): the greatest key, -inf where there is no row; rows (...): the number of its row, `NO_ROW` where there is
    none; values (..., w): values that belong to the row, w may be zero.
    """

    keys: Floats
    rows: Numbers
    values: Floats

    @classmethod
    def empty(cls, shape: int | tuple[int, ...], width: int = 0) -> ArgBest:
        """Return the neutral element of the sum, with values of some width."""
        keys = np.full(shape, -np.inf)
        return cls(keys, np.full(shape, NO_ROW), np.zeros((*keys.shape, width)))

    @classmethod
    def of_rows(cls, keys: Floats, numbers: Numbers, values: Floats | None = None) -> ArgBest:
        """Find the row with the greatest key along the first axis.

        keys (n, ...): n > 0; NaN and -inf exclude a row; numbers (n,): increasing row numbers; values (n, w): values of
        each row.
        """
        known = np.where(np.isnan(keys), -np.inf, keys)
        where = known.argmax(axis=0)
        best = np.take_along_axis(known, where[None], axis=0)[0]
        there = best > -np.inf
        values = np.zeros((len(numbers), 0)) if values is None else values
        return cls(best, np.where(there, numbers[where], NO_ROW), np.where(there[..., None], values[where], 0.0))

    @property
    def found(self) -> Numbers:
        """Row numbers, -1 where there is no row."""
        return np.where(self.rows == NO_ROW, -1, self.rows)

    def __add__(self, other: ArgBest) -> ArgBest:
        wins = beats(other.keys, other.rows, self.keys, self.rows)
        return ArgBest(
            np.where(wins, other.keys, self.keys),
            np.where(wins, other.rows, self.rows),
            np.where(wins[..., None], other.values, self.values),
        )


_DIRECTION_BITS: Final = 20  # integer directions have a length of about 2**20
_TILE_ROWS: Final = 512  # rows whose heights are computed at once
MAX_DIRECTION_LENGTH: Final = 2.0**_DIRECTION_BITS  # bound on the length of an integer direction
_GROUP_ENDS: Final = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0)  # end of each group as a share of the directions, by threshold


def integer_directions(directions: Floats) -> Floats:
    """Round unit vectors (s, d) to integer vectors of a length of about 2**20, so that heights are exact."""
    return np.rint(directions * (2.0**_DIRECTION_BITS - 2.0**4))


def extremes(positions: Floats, numbers: Numbers, directions: Floats, best: ArgBest | None = None) -> ArgBest:
    """Find the rows of greatest and of least height along each direction.

    positions (n, d): integer positions; numbers (n,): increasing row numbers; directions (s, d): from
    `integer_directions`; best: extremes of other rows to start from. Returns (2 s,): heights along the directions, then
    along their opposites, with the positions (2 s, d) of the extreme rows as values.
    """
    best = ArgBest.empty(2 * len(directions), directions.shape[1]) if best is None else best
    found = ArgBest(best.keys.copy(), best.rows.copy(), best.values.copy())
    lengths = np.sqrt((positions**2).sum(axis=1)) * MAX_DIRECTION_LENGTH
    for start in range(0, len(positions), _TILE_ROWS):
        part = slice(start, start + _TILE_ROWS)
        _update_tile(found, positions[part], numbers[part], directions, lengths[part])
    return found


def _update_tile(found: ArgBest, positions: Floats, numbers: Numbers, directions: Floats, reach: Floats) -> None:
    """Update extremes in place by the rows of a tile, along the directions for which rows are long enough."""
    s = len(directions)
    lower = np.minimum(found.keys[:s], found.keys[s:])
    for group in groups_by_threshold(lower):
        tall = np.flatnonzero(reach >= lower[group[0]])
        if not len(tall):
            return  # the thresholds of the other directions are greater
        _update_group(found, positions[tall], numbers[tall], directions[group], group)


def groups_by_threshold(thresholds: Floats, ends: Sequence[float] = _GROUP_ENDS) -> Iterator[NDArray[np.intp]]:
    """Group directions in order of the heights that a row must reach to be extreme, the lowest first.

    thresholds (s,): these heights; ends: end of each group as a share of the directions, the last one is 1.
    """
    order = np.argsort(thresholds)
    begin = 0
    for end_share in ends:
        end = int(np.ceil(end_share * len(thresholds)))
        if end > begin:
            yield order[begin:end]
        begin = end


def _update_group(
    found: ArgBest, positions: Floats, numbers: Numbers, directions: Floats, group: NDArray[np.intp]
) -> None:
    """Update the extremes along one group of directions, in place."""
    heights = directions @ positions.T
    every = np.arange(len(group))
    for where, sign, place in (
        (heights.argmax(axis=1), 1.0, 0),
        (heights.argmin(axis=1), -1.0, len(found.rows) // 2),
    ):
        height, row, at = sign * heights[every, where], numbers[where], group + place
        wins = np.flatnonzero(beats(height, row, found.keys[at], found.rows[at]))
        at = at[wins]
        found.keys[at] = height[wins]
        found.rows[at] = row[wins]
        found.values[at] = positions[where[wins]]


@dataclass(frozen=True)
class VoteHistogram:
    """
    Votes of sub-problems: the rows that they voted for, the numbers of votes, and the positions of these rows.

    Attributes
    ----------
    rows : ndarray of int64, shape (c,)
        Rows with a vote, increasing: the candidates.
    votes : ndarray of int64, shape (c,)
        In how many planes each is an extreme row.
    places : ndarray of float64, shape (c, r)
        Their positions in the subspace, in units of the integer grid; none (r = 0) for the paper's method, whose
        planes lie in feature space.
    heights : ndarray of float64, shape (2, s)
        Greatest height of the data along each plane's direction, and along its opposite; (2, 0) for the paper's
        method.
    n_subproblems : int
        Number of planes s.
    """

    rows: Numbers
    votes: Numbers
    places: Floats
    heights: Floats
    n_subproblems: int


def merge_histograms(parts: Sequence[VoteHistogram]) -> VoteHistogram:
    """Merge the histograms of different planes, in the order of the planes: the conquer step."""
    rows, counted = merge_votes([(part.rows, part.votes) for part in parts])
    every = np.concatenate([part.rows for part in parts])
    first = np.unique(every, return_index=True)[1]  # all planes give a row the same place
    places = np.concatenate([part.places for part in parts])[first]
    heights = np.concatenate([part.heights for part in parts], axis=1)
    return VoteHistogram(rows, counted, places, heights, sum(part.n_subproblems for part in parts))


def voted_rows(best: ArgBest, n_planes: int) -> Numbers:
    """Return the rows that planes vote for, (2, s): the greatest and the least of each, -1 for none.

    best: extremes along the planes' directions, perhaps followed by those along other directions.
    """
    rows = np.where(np.isfinite(best.keys), best.rows, -1)
    return rows.reshape(2, -1)[:, :n_planes]


def votes_of_extremes(best: ArgBest, n_planes: int) -> VoteHistogram:
    """Count the votes of planes whose extremes over all rows are known.

    best: extremes along the planes' directions, perhaps followed by those along other directions.
    """
    greatest, least = voted_rows(best, n_planes)
    rows, counted = count_votes(least, greatest)
    every, first = np.unique(best.rows, return_index=True)
    places = best.values[first[np.searchsorted(every, rows)]]
    return VoteHistogram(rows, counted, places, best.keys.reshape(2, -1)[:, :n_planes], n_planes)


def count_votes(low: Numbers, high: Numbers) -> tuple[Numbers, Numbers]:
    """Count in how many planes each row is an extreme: the paper's votes, s times its g-hat.

    low, high (s,): rows of least and of greatest angle in each plane, -1 where there is none. Returns a sparse
    histogram: rows (c,) with at least one vote, increasing, and their votes (c,). A row that is both extremes of a
    plane has one vote there.
    """
    both = np.concatenate([low, high[high != low]])
    return np.unique(both[both >= 0], return_counts=True)


def merge_votes(parts: Sequence[tuple[Numbers, Numbers]]) -> tuple[Numbers, Numbers]:
    """Add sparse vote histograms of different planes.

    parts: histograms from `count_votes`, in any order. Returns rows (c,), votes (c,).
    """
    rows = np.concatenate([part[0] for part in parts])
    votes = np.concatenate([part[1] for part in parts])
    unique, where = np.unique(rows, return_inverse=True)
    return unique, np.bincount(where, weights=votes, minlength=len(unique)).astype(np.int64)


def wilson_bounds(votes: Numbers, n_planes: int, z: float = 1.959963984540054) -> Floats:
    """Compute Wilson's score interval for the probability of a vote; it is reliable for rare votes, too.

    E. Wilson, Probable inference, the law of succession, and statistical inference, JASA 22, 1927.
    votes (c,); n_planes: number of planes that cast votes; z: normal quantile, by default that of 95 %. Returns (c, 2):
    lower and upper bounds.
    """
    n = max(n_planes, 1)
    share = np.asarray(votes) / n
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * np.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return np.clip(np.stack([middle - half, middle + half], axis=1), 0.0, 1.0)


def select_votes(rows: Numbers, votes: Numbers, n_anchors: int) -> Numbers:
    """Select the rows with the most votes, of equal votes the lower row number: the paper's conquer step.

    rows (c,), votes (c,): a sparse histogram. Returns at most n_anchors row numbers.
    """
    return rows[np.lexsort((rows, -votes))[:n_anchors]]


_SLAB_ENTRIES: Final = 2**15  # entries of a temporary array
_MIN_HEIGHT: Final = 1e-290  # heights up to this count as zero
_SHORTFALL_TOL: Final = 1e-6  # shortfalls below this share of the height count as zero
_MIN_VOLUME_GAIN: Final = 2.0  # factor on the volume from which a swap of anchors is made; smaller ones are noise


def shortfalls(positions: Floats, directions: Floats, heights: Floats, rounding: float = 0.0) -> Floats:
    """Compute by how much each candidate falls short of the data's extent along each signed direction.

    positions (c, d): of the candidates; directions (t, d): signed; heights (t,): support function, the greatest height
    of all rows along each; rounding: distance between positions up to which rows count as equal. Returns (c, t): the
    share of the height that is not reached, from 0 to 1 (at or below the mean).
    """
    tall = np.where(heights > _MIN_HEIGHT, heights, 1.0)
    short = positions @ (directions / -tall[:, None]).T
    short += 1.0
    np.clip(short, 0.0, 1.0, out=short)
    short[:, heights <= _MIN_HEIGHT] = 0.0
    same = rounding * np.sqrt((directions**2).sum(axis=1))
    short[short < np.maximum(_SHORTFALL_TOL, same / tall)] = 0.0
    short[:, heights <= same] = 0.0
    return short


def select_candidates(short: Floats, n_anchors: int, sweeps: int = 2, *, n_fixed: int = 0) -> NDArray[np.intp]:
    """Select the candidates that minimise the total shortfall: facility location, greedy, then by swaps.

    Near-duplicates, between which the votes of a ray are split, do no harm: the second one adds nothing to the first.
    short (c, t): `shortfalls`, or an increasing function of them; n_fixed: number of first candidates that are selected
    in any case. Returns (m,): indices of candidates, the fixed ones first, then by decreasing gain; m < n_anchors where
    fewer leave no shortfall.
    """
    chosen = _choose_greedily(short, np.arange(len(short)), n_anchors, n_fixed)
    for _ in range(sweeps):
        if not _swap_each(short, chosen, n_fixed):
            break
    return np.array(_choose_greedily(short, np.sort(chosen), len(chosen), n_fixed), dtype=np.intp)


def widen_simplex(positions: Floats, chosen: NDArray[np.intp], *, n_fixed: int = 0) -> NDArray[np.intp]:
    """Swap anchors for candidates as long as a swap multiplies the volume of their simplex by `_MIN_VOLUME_GAIN`.

    If two anchors are near-duplicates, another ray is missed. The volume, unlike the heights of ill-conditioned rays,
    shows this in any coordinates (M. Winter, N-FINDR, Proceedings of SPIE 3753, 1999, swaps at any gain).
    positions (c, d): of the candidates; chosen (k,): anchors among them, the first n_fixed of which stay. Returns (k,);
    unchanged unless k = d + 1.
    """
    lifted = np.hstack([np.ones((len(positions), 1)), positions / max(float(np.abs(positions).max(initial=0.0)), 1.0)])
    chosen = chosen.copy()
    if len(chosen) != lifted.shape[1]:
        return chosen
    for _ in range(len(chosen)):
        # Cramer's rule: replacing anchor j by candidate i multiplies the volume by |shares[i, j]|
        shares = np.abs(np.linalg.lstsq(lifted[chosen].T, lifted.T, rcond=None)[0].T)
        shares[:, :n_fixed] = 0.0
        candidate, place = np.unravel_index(int(shares.argmax()), shares.shape)
        if not shares[candidate, place] >= _MIN_VOLUME_GAIN:
            break
        chosen[place] = candidate
    return chosen


def _choose_greedily(short: Floats, pool: NDArray[np.intp], n_anchors: int, n_fixed: int) -> list[int]:
    """Extend the fixed candidates by the one of the pool that lowers the total shortfall most, again and again."""
    chosen = list(range(n_fixed))
    reached = short[chosen].min(axis=0, initial=1.0)
    while len(chosen) < min(n_anchors, len(pool)):
        totals = _total_shortfalls(short, reached, pool)
        best = int(totals.argmin())
        if chosen and totals[best] >= reached.sum() - _SHORTFALL_TOL:
            break  # no shortfall is left
        chosen.append(int(pool[best]))
        np.minimum(reached, short[pool[best]], out=reached)
    return chosen


def _swap_each(short: Floats, chosen: list[int], n_fixed: int) -> bool:
    """Replace each choice by the candidate that is best in addition to the others; whether one changed."""
    changed = False
    pool = np.arange(len(short))
    for place in range(n_fixed, len(chosen)):
        others = chosen[:place] + chosen[place + 1 :]
        rest = short[others].min(axis=0) if others else np.ones(short.shape[1])
        totals = _total_shortfalls(short, rest, pool)
        best = int(totals.argmin())
        if totals[best] < totals[chosen[place]] - _SHORTFALL_TOL:
            chosen[place] = best
            changed = True
    return changed


def _total_shortfalls(short: Floats, reached: Floats, pool: NDArray[np.intp]) -> Floats:
    """Total shortfall left after adding each candidate of the pool, shape (len(pool),)."""
    step = max(1, min(_SLAB_ENTRIES // max(short.shape[1], 1), len(pool)))
    held, totals = np.empty((step, short.shape[1])), np.empty(len(pool))
    whole = len(pool) == len(short)  # then the pool is all candidates, in order
    for i in range(0, len(pool), step):
        some = short[i : i + step] if whole else short[pool[i : i + step]]
        np.minimum(some, reached, out=held[: len(some)]).sum(axis=1, out=totals[i : i + step])
    return totals


def coverage_curve(short: Floats) -> Floats:
    """Compute which share of the support function the first 1, 2, ... anchors reach.

    short (k, t): shortfalls of the anchors, in order, along directions that were not used for their selection. Returns
    (k,): mean share of the height that is reached; the last entry is the coverage of all anchors.
    """
    if short.shape[1] == 0:
        return np.ones(len(short))
    return 1.0 - np.minimum.accumulate(short, axis=0).mean(axis=1)
