"""Algorithm 1 of the paper as it stands: random planes in feature space, angles to an axis, top-k votes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dask_dca.engine.angles import angle_votes
from dask_dca.engine.graphs import as_dask
from dask_dca.engine.passes import step
from dask_dca.engine.rows import as_rows
from dask_dca.engine.sampling import fetch_rows, spread_rows
from dask_dca.errors import FewerAnchorsWarning, InvalidInputError, warn
from dask_dca.geometry import votes
from dask_dca.models.result import AnchorResult

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dask_dca.engine.angles import AngleVotes
    from dask_dca.engine.passes import Run
    from dask_dca.engine.rows import Rows
    from dask_dca.geometry.votes import VoteHistogram
    from dask_dca.models.parameters import Settings

    Floats = NDArray[np.float64]
    Numbers = NDArray[np.int64]

__all__ = ["elect", "n_planes", "paper_anchors", "same_space"]

_SAMPLE: Final = (32, 8)  # rows whose mean direction tells whether a plane is pointed
_PLANES_PER_ANCHOR: Final = 5.0  # s = 5 k ln k


def paper_anchors(
    rows: Rows, n_anchors: int, settings: Settings, run: Run, *, Y: Any = None, nonnegative: bool = False
) -> AnchorResult:
    """
    Find anchors by the paper's Algorithm 1 with its equation for 2-D anchors.

    Every plane votes, pointed or not, as in the paper; how many were pointed is reported.

    Parameters
    ----------
    rows : Rows
        Rows X to be covered.
    n_anchors : int
        Number of anchors k.
    settings : Settings
        Planes, selection and seed.
    run : Run
        How passes are run.
    Y : array-like, optional
        Rows to choose from; X itself if None.
    nonnegative : bool, default False
        Refuse rows with negative entries.

    Returns
    -------
    AnchorResult
        Without coverage, which needs the robust method's subspace.
    """
    s = n_planes(n_anchors, settings)
    sample = fetch_rows(rows, spread_rows(rows.n_rows, *_SAMPLE), run, nonnegative=nonnegative)
    others = None if Y is None else _other(rows, Y, run)
    found = angle_votes(rows, settings.ensemble, settings.seed, s, sample, run, others=others, nonnegative=nonnegative)
    missing = (
        f"no row has a vote on any of {s} planes: are all rows zero?"
        if Y is None
        else f"no row of Y lies outside the angles of X on any of {s} planes: Y can't cover X"
    )
    return step(run, "anchors", _select, found, n_anchors, missing, sample)


def _select(found: AngleVotes, n_anchors: int, missing: str, sample: Floats) -> AnchorResult:
    return elect(
        found.votes,
        n_anchors,
        missing,
        n_pointed=found.n_pointed,
        sample=sample[:128],
        n_zero_rows=found.census.zero_rows,
        n_clipped_entries=found.census.clipped_entries,
    )


def n_planes(n_anchors: int, settings: Settings) -> int:
    """
    Number of planes s: as asked for, else 5 k ln k.

    Parameters
    ----------
    n_anchors : int
        Number of anchors k.
    settings : Settings
        Parameters of anchoring.

    Returns
    -------
    int
        At least one.
    """
    return settings.n_subproblems or max(1, math.ceil(_PLANES_PER_ANCHOR * n_anchors * math.log(max(n_anchors, 2))))


def elect(found: VoteHistogram, n_anchors: int, missing: str, **more: Any) -> AnchorResult:
    """
    Conquer as the paper does: the k rows with the most votes.

    Parameters
    ----------
    found : VoteHistogram
        Votes of all planes.
    n_anchors : int
        Number of anchors k.
    missing : str
        What to say where no row has a vote.
    **more : object
        Further attributes of the result.

    Returns
    -------
    AnchorResult
        Fewer than k anchors, with a warning, where fewer rows have votes.

    Raises
    ------
    InvalidInputError
        No row has a vote.
    """
    s, candidates, counts = found.n_subproblems, found.rows, found.votes
    if not len(candidates):
        raise InvalidInputError(missing)
    chosen = votes.select_votes(candidates, counts, n_anchors)
    if len(chosen) < n_anchors:
        warn(
            f"only {len(chosen)} rows have a vote where {n_anchors} anchors were asked for; "
            f"raise n_subproblems (now {s}) or ask for fewer",
            FewerAnchorsWarning,
        )
    own = counts[np.searchsorted(candidates, chosen)]
    return AnchorResult(
        indices=chosen,
        votes=own,
        vote_share=own / s,
        confidence=votes.wilson_bounds(own, s),
        n_subproblems=s,
        candidates=candidates,
        candidate_votes=counts,
        n_range=(len(chosen), len(chosen)),
        **more,
    )


def _other(rows: Rows, Y: Any, run: Run) -> Rows:
    other = as_dask(as_rows(Y)) if run.lazy else as_rows(Y)
    same_space(rows, other)
    return other


def same_space(rows: Rows, others: Rows) -> None:
    """
    Check that X and Y have the same features.

    Parameters
    ----------
    rows, others : Rows
        X and Y.

    Raises
    ------
    InvalidInputError
        They have not.
    """
    if others.n_features != rows.n_features:
        msg = f"X has {rows.n_features} features and Y has {others.n_features}: they must live in the same space"
        raise InvalidInputError(msg)
