"""Votes: sparse histograms, their merge and bounds; and the choice of k anchors among the candidates they name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from dask_dca.geometry.arrays import Floats, Numbers
    from dask_dca.geometry.extremes import ArgBest


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
