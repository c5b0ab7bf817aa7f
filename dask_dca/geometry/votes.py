"""Votes: sparse histograms, their merge, confidence bounds, and the paper's selection of the k rows with most."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from dask_dca.geometry.extremes import Extremes

    Floats = NDArray[np.float64]
    Numbers = NDArray[np.int64]

__all__ = [
    "VoteHistogram",
    "count_votes",
    "merge_histograms",
    "merge_votes",
    "select_votes",
    "voted_rows",
    "votes_of_extremes",
    "wilson_bounds",
]


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


def voted_rows(best: Extremes, n_planes: int) -> Numbers:
    """Tell which rows planes vote for.

    best: of their directions first, and then perhaps of others. Returns (2, s): the greatest and the least of each; -1
    for none.
    """
    rows = np.where(np.isfinite(best.heights), best.rows, -1)
    return rows.reshape(2, -1)[:, :n_planes]


def votes_of_extremes(best: Extremes, n_planes: int) -> VoteHistogram:
    """Count the votes of planes whose extremes over all rows are known.

    best: of their directions first, and then perhaps of others.
    """
    greatest, least = voted_rows(best, n_planes)
    rows, counted = count_votes(least, greatest)
    every, first = np.unique(best.rows, return_index=True)
    places = best.positions[first[np.searchsorted(every, rows)]]
    return VoteHistogram(rows, counted, places, best.heights.reshape(2, -1)[:, :n_planes], n_planes)


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
