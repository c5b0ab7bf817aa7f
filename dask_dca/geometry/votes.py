"""Extremes and votes: which row is extreme in each direction, histograms, and the choice of k of the candidates.

Positions and directions are integers whose products stay below 2**53, so heights are exact and equal rows tie
exactly. The tie rule is: the greater height, then the lower row number. Merging is associative and commutative.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from dask_dca.geometry.arrays import Floats, Numbers

NOBODY: Final = np.iinfo(np.int64).max  # the row number where no row was seen: any row is lower


def beats(keys: Floats, rows: Numbers, old_keys: Floats, old_rows: Numbers) -> NDArray[np.bool_]:
    """Tell where new rows are better than old ones: by a greater key, among equals by a lower number.

    keys, old_keys: what rows are compared by; rows, old_rows: their numbers, of the same shape. Returns true where the
    new one wins.
    """
    return (keys > old_keys) | ((keys == old_keys) & (rows < old_rows))


@dataclass(frozen=True)
class ArgBest:
    """The best row in each of several respects; the sum of two is the best of both.

    keys: the greatest key in each respect; -inf where no row was seen; rows: the row that has it, of the same shape;
    `NOBODY` where no row was seen; values: what comes along with each row, one axis more; of width zero where nothing
    does.
    """

    keys: Floats
    rows: Numbers
    values: Floats

    @classmethod
    def nobody(cls, shape: int | tuple[int, ...], width: int = 0) -> ArgBest:
        """Return the neutral element of the sum.

        width: of the values that come along.
        """
        keys = np.full(shape, -np.inf)
        return cls(keys, np.full(shape, NOBODY), np.zeros((*keys.shape, width)))

    @classmethod
    def of_rows(cls, keys: Floats, numbers: Numbers, values: Floats | None = None) -> ArgBest:
        """Find the best of some rows in each respect.

        keys (n, ...): keys of the rows, n > 0; NaN and -inf where a row does not count; numbers (n,): their numbers, in
        increasing order; values (n, w): what comes along with each. Returns of the keys' further axes.
        """
        known = np.where(np.isnan(keys), -np.inf, keys)
        where = known.argmax(axis=0)
        best = np.take_along_axis(known, where[None], axis=0)[0]
        there = best > -np.inf
        values = np.zeros((len(numbers), 0)) if values is None else values
        return cls(best, np.where(there, numbers[where], NOBODY), np.where(there[..., None], values[where], 0.0))

    @property
    def found(self) -> Numbers:
        """Row numbers, -1 where no row was seen."""
        return np.where(self.rows == NOBODY, -1, self.rows)

    def __add__(self, other: ArgBest) -> ArgBest:
        wins = beats(other.keys, other.rows, self.keys, self.rows)
        return ArgBest(
            np.where(wins, other.keys, self.keys),
            np.where(wins, other.rows, self.rows),
            np.where(wins[..., None], other.values, self.values),
        )


_DIRECTION_BITS: Final = 20
_TILE: Final = 512  # rows whose heights are held at once
LONGEST: Final = 2.0**_DIRECTION_BITS  # no integer direction is longer
_SHARES: Final = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0)  # of the directions, by height, up to the end of each group


def integer_directions(directions: Floats) -> Floats:
    """Round unit directions to integers, so that heights are exact.

    directions (s, d): unit vectors. Returns (s, d): integers; the vectors have a length of about 2**20.
    """
    return np.rint(directions * (2.0**_DIRECTION_BITS - 2.0**4))


def extremes(positions: Floats, numbers: Numbers, directions: Floats, best: ArgBest | None = None) -> ArgBest:
    """Find the rows of greatest and of least height in each direction.

    positions (n, d): integer positions of rows, in increasing order of their numbers; numbers (n,): the rows' numbers;
    directions (s, d): as `integer_directions` returns them; best: what other rows gave, to go on from. Returns (2 s,):
    heights on the directions and against them, and what comes along are the rows' positions (2 s, d).
    """
    best = ArgBest.nobody(2 * len(directions), directions.shape[1]) if best is None else best
    found = ArgBest(best.keys.copy(), best.rows.copy(), best.values.copy())
    lengths = np.sqrt((positions**2).sum(axis=1)) * LONGEST
    for start in range(0, len(positions), _TILE):
        part = slice(start, start + _TILE)
        _update(found, positions[part], numbers[part], directions, lengths[part])
    return found


def _update(found: ArgBest, positions: Floats, numbers: Numbers, directions: Floats, reach: Floats) -> None:
    """Let the rows of a tile compete, in place; a row is tried only where it is long enough to win or tie."""
    s = len(directions)
    lower = np.minimum(found.keys[:s], found.keys[s:])
    for group in rising(lower):
        tall = np.flatnonzero(reach >= lower[group[0]])
        if not len(tall):
            return  # the other directions have greater heights still
        _compete(found, positions[tall], numbers[tall], directions[group], group)


def rising(bars: Floats, shares: Sequence[float] = _SHARES) -> Iterator[NDArray[np.intp]]:
    """Group directions by the height that a row must have to count there, the lowest first.

    bars (s,): the heights; shares: of all directions, up to the end of each group; the last is one. Returns which
    directions, by rising bars: few at first, where many rows count.
    """
    order = np.argsort(bars)
    begin = 0
    for share in shares:
        end = int(np.ceil(share * len(bars)))
        if end > begin:
            yield order[begin:end]
        begin = end


def _compete(found: ArgBest, positions: Floats, numbers: Numbers, directions: Floats, group: NDArray[np.intp]) -> None:
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
    Votes of sub-problems: which rows they voted for, how often, and where these rows lie.

    Attributes
    ----------
    rows : ndarray of int64, shape (c,)
        Rows with a vote, increasing: the candidates.
    votes : ndarray of int64, shape (c,)
        In how many planes each is an extreme row.
    places : ndarray of float64, shape (c, r)
        Their places in the subspace, in units of the planes' integer grid; none (r = 0) for the paper's method,
        whose planes lie in feature space.
    heights : ndarray of float64, shape (2, s)
        How far the data reach along each plane's direction, and against it; (2, 0) for the paper's method.
    n_subproblems : int
        Number of planes s.
    """

    rows: Numbers
    votes: Numbers
    places: Floats
    heights: Floats
    n_subproblems: int


def merge_histograms(parts: Sequence[VoteHistogram]) -> VoteHistogram:
    """Merge the histograms of different planes: the conquer step.

    parts: at least one; in the order of their planes, which `heights` keeps. Returns votes added, planes one after the
    other.
    """
    rows, counted = merge_votes([(part.rows, part.votes) for part in parts])
    every = np.concatenate([part.rows for part in parts])
    first = np.unique(every, return_index=True)[1]  # a row has one place, whichever plane voted for it
    places = np.concatenate([part.places for part in parts])[first]
    heights = np.concatenate([part.heights for part in parts], axis=1)
    return VoteHistogram(rows, counted, places, heights, sum(part.n_subproblems for part in parts))


def voted_rows(best: ArgBest, n_planes: int) -> Numbers:
    """Tell which rows planes vote for.

    best: of their directions first, and then perhaps of others. Returns (2, s): the greatest and the least of each; -1
    for none.
    """
    rows = np.where(np.isfinite(best.keys), best.rows, -1)
    return rows.reshape(2, -1)[:, :n_planes]


def votes_of_extremes(best: ArgBest, n_planes: int) -> VoteHistogram:
    """Count the votes of planes whose extremes over all rows are known.

    best: of their directions first, and then perhaps of others.
    """
    greatest, least = voted_rows(best, n_planes)
    rows, counted = count_votes(least, greatest)
    every, first = np.unique(best.rows, return_index=True)
    places = best.values[first[np.searchsorted(every, rows)]]
    return VoteHistogram(rows, counted, places, best.keys.reshape(2, -1)[:, :n_planes], n_planes)


def count_votes(low: Numbers, high: Numbers) -> tuple[Numbers, Numbers]:
    """Count for each row in how many planes it is an extreme: the paper's vote, s times its g-hat.

    low, high (s,): rows of least and of greatest angle in each plane; -1 where there is none. Returns rows (c,): rows
    with at least one vote, increasing: a sparse histogram; votes (c,): their votes; a row that is both extremes of a
    plane has one vote there.
    """
    both = np.concatenate([low, high[high != low]])
    return np.unique(both[both >= 0], return_counts=True)


def merge_votes(parts: Sequence[tuple[Numbers, Numbers]]) -> tuple[Numbers, Numbers]:
    """Add sparse vote histograms of different planes.

    parts: as `count_votes` returns them, in any order. Returns rows, votes (c,): the sum.
    """
    rows = np.concatenate([part[0] for part in parts])
    votes = np.concatenate([part[1] for part in parts])
    unique, where = np.unique(rows, return_inverse=True)
    return unique, np.bincount(where, weights=votes, minlength=len(unique)).astype(np.int64)


def wilson_bounds(votes: Numbers, n_planes: int, z: float = 1.959963984540054) -> Floats:
    """Bound the probability of a vote from its share among the planes.

    Wilson, Probable inference, the law of succession, and statistical inference, JASA 22, 1927. Unlike the normal
    interval it is honest for rare votes.
    votes (c,): votes; n_planes: in how many planes a vote could be cast; z: normal quantile: 95 % by default. Returns
    (c, 2): lower and upper bounds.
    """
    n = max(n_planes, 1)
    share = np.asarray(votes) / n
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * np.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return np.clip(np.stack([middle - half, middle + half], axis=1), 0.0, 1.0)


def select_votes(rows: Numbers, votes: Numbers, n_anchors: int) -> Numbers:
    """Select the rows with the most votes: the conquer step as the paper has it.

    rows, votes (c,): sparse histogram. Returns (<= n_anchors,): row numbers; ties go to the lower one.
    """
    return rows[np.lexsort((rows, -votes))[:n_anchors]]


_SLAB: Final = 2**15  # entries of a temporary array
_FLAT: Final = 1e-290  # a height up to this is none
_NOTHING: Final = 1e-6  # a shortfall below this share of the height is rounding


def shortfalls(positions: Floats, directions: Floats, heights: Floats, rounding: float = 0.0) -> Floats:
    """How far each candidate falls short of the data's extent on each signed direction.

    positions (c, d): places of the candidates; directions (t, d): signed directions; heights (t,): the support
    function: greatest height of all rows on each; rounding: distance between places up to which rows are the same: what
    is missed by no more is not missed. Returns (c, t): share of the height that is missed, between 0 (reached) and 1
    (at or below the mean).
    """
    tall = np.where(heights > _FLAT, heights, 1.0)
    short = positions @ (directions / -tall[:, None]).T
    short += 1.0
    np.clip(short, 0.0, 1.0, out=short)
    short[:, heights <= _FLAT] = 0.0
    same = rounding * np.sqrt((directions**2).sum(axis=1))
    short[short < np.maximum(_NOTHING, same / tall)] = 0.0
    short[:, heights <= same] = 0.0
    return short


def select_candidates(short: Floats, n_anchors: int, sweeps: int = 2, *, n_fixed: int = 0) -> NDArray[np.intp]:
    """Select the candidates that together reach furthest: facility location on the support function.

    Greedy, then swap sweeps. Near-duplicates of a ray, whose votes are split, cost nothing here: the second one adds
    nothing to the first.
    short (c, t): what each candidate misses in each direction: `shortfalls`, or an increasing function of them;
    n_fixed: how many of the first candidates are chosen in any case. Returns (m,): indices into the candidates, the
    fixed ones first, then the most useful; m < n_anchors where fewer already reach everything.
    """
    chosen = _greedy(short, np.arange(len(short)), n_anchors, n_fixed)
    for _ in range(sweeps):
        if not _swap_each(short, chosen, n_fixed):
            break
    return np.array(_greedy(short, np.sort(chosen), len(chosen), n_fixed), dtype=np.intp)


def widen_simplex(
    positions: Floats, chosen: NDArray[np.intp], gain: float = 2.0, *, n_fixed: int = 0
) -> NDArray[np.intp]:
    """Swap anchors for candidates as long as a swap multiplies the volume of their simplex by a good factor.

    Where two near-duplicates stand for one ray, another one is missed; the volume tells, in any coordinates, while
    heights of ill-conditioned rays hardly do (Winter, N-FINDR, Proceedings of SPIE 3753, 1999, swaps at any gain).
    positions (c, d): places of the candidates; chosen (k,): the anchors among them; gain: least factor; small gains are
    noise; n_fixed: how many of the first anchors stay. Returns (k,): the anchors after the swaps; as they were unless
    k = d + 1.
    """
    lifted = np.hstack([np.ones((len(positions), 1)), positions / max(float(np.abs(positions).max(initial=0.0)), 1.0)])
    chosen = chosen.copy()
    if len(chosen) != lifted.shape[1]:
        return chosen
    for _ in range(len(chosen)):
        # Cramer's rule: putting candidate i in the place of anchor j multiplies the volume by |shares[i, j]|
        shares = np.abs(np.linalg.lstsq(lifted[chosen].T, lifted.T, rcond=None)[0].T)
        shares[:, :n_fixed] = 0.0
        candidate, place = np.unravel_index(int(shares.argmax()), shares.shape)
        if not shares[candidate, place] >= gain:
            break
        chosen[place] = candidate
    return chosen


def _greedy(short: Floats, pool: NDArray[np.intp], n_anchors: int, n_fixed: int) -> list[int]:
    chosen = list(range(n_fixed))
    reached = short[chosen].min(axis=0, initial=1.0)
    while len(chosen) < min(n_anchors, len(pool)):
        totals = _totals(short, reached, pool)
        best = int(totals.argmin())
        if chosen and totals[best] >= reached.sum() - _NOTHING:
            break  # nothing is missed any more
        chosen.append(int(pool[best]))
        np.minimum(reached, short[pool[best]], out=reached)
    return chosen


def _swap_each(short: Floats, chosen: list[int], n_fixed: int) -> bool:
    """Swap each choice for the candidate that serves best beside the others; True if one changed."""
    changed = False
    everyone = np.arange(len(short))
    for place in range(n_fixed, len(chosen)):
        others = chosen[:place] + chosen[place + 1 :]
        rest = short[others].min(axis=0) if others else np.ones(short.shape[1])
        totals = _totals(short, rest, everyone)
        best = int(totals.argmin())
        if totals[best] < totals[chosen[place]] - _NOTHING:
            chosen[place] = best
            changed = True
    return changed


def _totals(short: Floats, reached: Floats, pool: NDArray[np.intp]) -> Floats:
    """What is still missed, in sum, with each of the pool added."""
    step = max(1, min(_SLAB // max(short.shape[1], 1), len(pool)))
    held, totals = np.empty((step, short.shape[1])), np.empty(len(pool))
    whole = len(pool) == len(short)  # then the pool is everyone, in order
    for i in range(0, len(pool), step):
        some = short[i : i + step] if whole else short[pool[i : i + step]]
        np.minimum(some, reached, out=held[: len(some)]).sum(axis=1, out=totals[i : i + step])
    return totals


def coverage_curve(short: Floats) -> Floats:
    """How much of the support function the first 1, 2, ... anchors reach.

    short (k, t): shortfalls of the anchors, in order, on directions that did not take part in their selection. Returns
    (k,): mean share of the height that is reached; the last entry is the coverage of all.
    """
    if short.shape[1] == 0:
        return np.ones(len(short))
    return 1.0 - np.minimum.accumulate(short, axis=0).mean(axis=1)
