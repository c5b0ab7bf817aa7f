"""What anchoring returns: anchors with their certificate."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from dask_dca.geometry.votes import wilson_bounds

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dask_dca.engine.tiles import RowCensus
    from dask_dca.geometry.arrays import Floats, Numbers
    from dask_dca.geometry.low_rank import LowRank


def _nothing() -> NDArray[np.float64]:
    return np.zeros(0)


@dataclass(frozen=True)
class AnchorResult:
    """
    Anchors with their certificate.

    Attributes
    ----------
    indices : ndarray of int64, shape (k,)
        Row numbers of the anchors (rows of Y where Y was given, else of X), most useful first.
    votes : ndarray of int64, shape (k,)
        In how many planes each is an extreme row.
    vote_share : ndarray of float64, shape (k,)
        Votes over pointed planes: the paper's g-hat.
    confidence : ndarray of float64, shape (k, 2)
        Wilson's 95 % bounds on the probability of a vote.
    n_subproblems : int
        Number of planes s.
    n_pointed : int
        How many of them were pointed, so that their extremes are rays of the projected cone.
    candidates : ndarray of int64, shape (c,)
        All rows with a vote.
    candidate_votes : ndarray of int64, shape (c,)
        Their votes.
    coverage : float
        Share of the data's extent that the anchors reach, averaged over fresh planes that took no part in
        choosing them: 1 means that their cone reaches all rows on every plane.
    coverage_curve : ndarray of float64, shape (k,)
        The same for the first 1, 2, ... k anchors.
    n_range : tuple of int
        Least and greatest number of anchors that the data speak for, (k, k) where k was given.
    sample : ndarray of float64, shape (m, p)
        At most 128 rows, spread over the data, to judge a model by.
    rows : ndarray of float64, shape (k, p)
        The anchors' rows; none with views, whose anchors are outer products that are never formed.
    rare_rows : ndarray of int64, shape (j,)
        Rows in a direction that the sample had missed, all in one place of the data maybe: they joined the sample,
        and all rows were looked at once more. Mostly none.
    groups : tuple of ndarray of int64
        With a library (Y): for each anchor the rows of Y that the data can't tell from it, itself first.
    offset : bool
        With a library: whether the rows of X hold a constant as well, the same for all features of a row.
    unexplained : float
        With a library: the share of the spread of X, beyond its noise, that lies outside the span of the anchors; NaN
        without one.
    n_zero_rows, n_behind_rows, n_clipped_entries : int
        All-zero rows, rows behind the reference axis (both left out), negative entries clipped as rounding.
    n_unobserved_rows : int
        Rows without any observed entry, left out too; not 0 only where entries are missing.
    completion : LowRank or None
        The model that missing entries were filled by, None where every entry was observed.
    """

    indices: NDArray[np.int64]
    votes: NDArray[np.int64]
    vote_share: NDArray[np.float64]
    confidence: NDArray[np.float64]
    n_subproblems: int
    n_pointed: int
    candidates: NDArray[np.int64]
    candidate_votes: NDArray[np.int64]
    coverage: float = float("nan")
    coverage_curve: NDArray[np.float64] = field(default_factory=_nothing)
    n_range: tuple[int, int] = (0, 0)
    sample: NDArray[np.float64] = field(default_factory=lambda: np.zeros((0, 0)), repr=False, compare=False)
    rows: NDArray[np.float64] = field(default_factory=lambda: np.zeros((0, 0)), repr=False, compare=False)
    n_zero_rows: int = 0
    n_behind_rows: int = 0
    n_clipped_entries: int = 0
    rare_rows: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    groups: tuple[NDArray[np.int64], ...] = field(default=(), compare=False)
    offset: bool = False
    unexplained: float = float("nan")
    n_unobserved_rows: int = 0
    completion: LowRank | None = field(default=None, repr=False, compare=False)


def certified(
    chosen: Numbers,
    candidates: tuple[Numbers, Numbers],
    n_planes: int,
    *,
    own: Numbers | None = None,
    curve: Floats | None = None,
    census: RowCensus | None = None,
    **more: Any,
) -> AnchorResult:
    """Certify anchors by the votes of planes, all pointed unless more is said.

    chosen (k,): the anchors; candidates: rows with a vote, increasing, and their votes; own (k,): votes of the anchors,
    if these may have none; curve (k,): coverage of the first ones; census: of the rows that were met.
    """
    rows, counts = candidates
    own = counts[np.searchsorted(rows, chosen)] if own is None else own
    facts: dict[str, Any] = {"n_pointed": n_planes, "n_range": (len(chosen), len(chosen))}
    if curve is not None:
        facts |= {"coverage": float(curve[-1]), "coverage_curve": curve}
    if census is not None:
        facts |= {"n_zero_rows": census.zero_rows, "n_behind_rows": census.behind_rows}
        facts |= {"n_clipped_entries": census.clipped_entries}
    return AnchorResult(
        indices=chosen,
        votes=own,
        vote_share=own / n_planes,
        confidence=wilson_bounds(own, n_planes),
        n_subproblems=n_planes,
        candidates=rows,
        candidate_votes=counts,
        **facts | more,
    )
