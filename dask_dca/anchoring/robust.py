"""Robust anchoring: anchors of X = F X_A from a sample, one pass for moments and one for the divide step."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dask_dca.anchoring.divide import Directions, divide
from dask_dca.anchoring.preprocess import look, spectral_counts
from dask_dca.anchoring.result import AnchorResult
from dask_dca.engine.passes import step
from dask_dca.errors import FewerAnchorsWarning, NotPointedWarning, warn
from dask_dca.geometry import selection, sketch, solvers, votes
from dask_dca.geometry.coordinates import POSITION_BITS, coordinates, residual_energy

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dask_dca.anchoring.divide import Divided
    from dask_dca.anchoring.parameters import Settings
    from dask_dca.anchoring.preprocess import Preprocessed, Subspaces
    from dask_dca.engine.passes import Run
    from dask_dca.engine.rows import Rows
    from dask_dca.geometry.coordinates import SubspaceCoordinates
    from dask_dca.geometry.votes import VoteHistogram

    Floats = NDArray[np.float64]
    Numbers = NDArray[np.int64]

__all__ = ["robust_anchors", "robust_votes", "subproblem_count"]

_FRESH: Final = 128  # two-sided directions kept out of the selection, for the certificate
_JUDGED_DIRECTIONS: Final = 2048  # signed directions that candidates are selected by, at most, or 4 k
_JUDGES: Final = 128  # rows that a model may be judged by
_EVEN: Final = 0.135  # of the median, the quartiles' distance below which rows are of even height: a deviation of .1
_OVERFITTED: Final = 0.6  # a leading shrinkage factor below this, with n < p: the subspace is noise
_SAME: Final = 2.0**-26  # of its length: rows that differ by less are copies of one ray, in any dtype
_PLANES_PER_ANCHOR: Final = 10.0  # s = 10 k ln k


def robust_anchors(
    rows: Rows, n_anchors: int | None, settings: Settings, run: Run, *, nonnegative: bool = False
) -> AnchorResult:
    """Find anchors by the measured default method.

    A sample sets centre and radius; one pass over sampled runs of rows sums robust moments; the driver finds a shrunk
    subspace; one pass over all rows finds the extreme row on each of s planes there (divide); the driver selects the
    candidates that together reach furthest (conquer).
    n_anchors: how many anchors; chosen from the data if None; nonnegative: refuse rows with negative entries.
    """
    subspaces = look(rows, run, nonnegative=nonnegative, n_anchors=n_anchors)
    if n_anchors is not None:
        return _anchor(rows, subspaces, n_anchors, settings, run)
    by_ratio, by_edge = spectral_counts(subspaces, rows)
    widest = _anchor(rows, subspaces, max(by_ratio, by_edge), settings, run, quiet=True)
    by_curve = _elbow(widest.coverage_curve)
    again = len(widest.indices) != by_ratio
    found = _anchor(rows, subspaces, by_ratio, settings, run, quiet=True) if again else widest
    counts = (len(found.indices), by_edge, by_curve)
    return replace(found, n_range=(min(counts), max(counts)))


def robust_votes(rows: Rows, n_anchors: int, settings: Settings, run: Run, *, nonnegative: bool = False) -> Voted:
    """Let the planes of the default method vote, and merge their votes: all but the selection.

    Returns what anchors are selected from; a Delayed in a lazy run.
    """
    return _vote(rows, look(rows, run, nonnegative=nonnegative, n_anchors=n_anchors), n_anchors, settings, run)


def subproblem_count(settings: Settings, n_anchors: int) -> int:
    """Return the number of planes s.

    settings: with the number that was asked for, if any. Returns what was asked for, else ceil(10 k ln k), at least 32.
    """
    if settings.n_subproblems is not None:
        return settings.n_subproblems
    return max(32, math.ceil(_PLANES_PER_ANCHOR * n_anchors * math.log(n_anchors)))


@dataclass(frozen=True)
class Plan:
    """Where a fit looks: the subspace, how rows are placed in it, and the planes."""

    sub: sketch.Subspace
    frame: SubspaceCoordinates
    planes: Directions
    rounding: float  # how far apart the places of copies of one ray may be


@dataclass(frozen=True)
class Voted:
    """What anchors are selected from: the sample's view, the plan, and what the divide step found."""

    view: Preprocessed
    plan: Plan
    found: Divided


def _vote(rows: Rows, subspaces: Subspaces, n_anchors: int, settings: Settings, run: Run) -> Voted:
    view, s = subspaces.view, subproblem_count(settings, n_anchors)
    plan = step(run, "plan", _plan, view, subspaces.of(n_anchors), settings, s, rows.output_dtype)
    found = divide(rows, view.reading, plan.frame, plan.planes, run, n_planes=s)
    return step(run, "votes", Voted, view, plan, found)


def _plan(view: Preprocessed, sub: sketch.Subspace, settings: Settings, n_planes: int, dtype: np.dtype[Any]) -> Plan:
    features = _features(settings, view, sub)
    planes = Directions(settings.ensemble, settings.seed, n_planes, _FRESH, sub.dim, sub.scales, features)
    seen = view.frame(sub)
    return Plan(sub, seen, planes, _rounding(dtype, seen))


def _anchor(
    rows: Rows, subspaces: Subspaces, n_anchors: int, settings: Settings, run: Run, *, quiet: bool = False
) -> AnchorResult:
    voted = _vote(rows, subspaces, n_anchors, settings, run)
    return step(run, "anchors", _select, voted, n_anchors, settings, rows.n_rows, quiet)


def _select(voted: Voted, n_anchors: int, settings: Settings, n_rows: int, quiet: bool) -> AnchorResult:
    """The driver's part: choose among the candidates, and certify."""
    view, plan, found = voted.view, voted.plan, voted.found
    directions = plan.planes.regenerate()
    chosen = _conquer(found.votes, directions[: plan.planes.count], plan, n_anchors, settings)
    overfitted = len(view.numbers) == n_rows < len(plan.sub.mean) and plan.sub.shrinkage[0] < _OVERFITTED
    if overfitted and settings.selection == "candidates" and _is_even(view.heights()):
        chosen = _on_weighted_rows(view, plan, n_anchors)
    result = _certify(voted, directions[plan.planes.count :], chosen)
    if not quiet:
        _warn(n_rows, result, n_anchors)
    return result


def _rounding(dtype: np.dtype[Any], seen: SubspaceCoordinates) -> float:
    """How far apart the places of copies of one ray may be: entries are rounded, and so are their sums."""
    share = max(_SAME, 4.0 * float(np.finfo(dtype).eps))
    return share * float(np.sqrt((seen.offset**2).sum())) * 2.0**POSITION_BITS


def _features(settings: Settings, view: Preprocessed, sub: sketch.Subspace) -> Floats | None:
    """The vectors that an ensemble draws from, as the subspace sees them."""
    if settings.ensemble == "data":
        return ((view.scaled - sub.mean) * sub.feature_weights) @ sub.basis
    return sub.basis * sub.feature_weights[:, None] if settings.ensemble in ("sparse", "unit") else None


def _conquer(found: VoteHistogram, directions: Floats, plan: Plan, n_anchors: int, settings: Settings) -> Numbers:
    if settings.selection == "votes":
        return votes.select_votes(found.rows, found.votes, n_anchors)
    dim = plan.sub.dim
    places, signed = found.places[:, :dim], np.concatenate([directions, -directions])
    some = slice(None, None, -(-len(signed) // max(_JUDGED_DIRECTIONS, 4 * n_anchors)))
    # squared: many small gaps weigh less than a ray that is missed
    short = selection.shortfalls(places, signed[some, :dim], found.heights.ravel()[some], plan.rounding) ** 2
    chosen = selection.widen_simplex(places, selection.select_candidates(short, n_anchors))
    order = selection.select_candidates(short[chosen], len(chosen))
    return found.rows[chosen[order]]


def _on_weighted_rows(view: Preprocessed, plan: Plan, n_anchors: int) -> Numbers:
    """Few noisy rows of many features: XRAY on the rows themselves, unscaled, foreign ones left out."""
    outside = residual_energy(view.scaled, plan.frame)
    native = np.flatnonzero(outside <= 3.0 * np.median(outside))
    return view.numbers[native[solvers.xray(view.raw[native] * plan.sub.feature_weights, n_anchors)]]


def _is_even(heights: Floats) -> bool:
    """Whether rows have about the same height, so that unscaled ones compare."""
    low, middle, high = np.quantile(heights, (0.25, 0.5, 0.75))
    return bool(high - low < _EVEN * middle)


def _certify(voted: Voted, fresh: Floats, chosen: Numbers) -> AnchorResult:
    view, found = voted.view, voted.found
    histogram, s = found.votes, found.votes.n_subproblems
    own, places = _of_chosen(voted, chosen)
    both = np.concatenate([fresh, -fresh])
    short = selection.shortfalls(places, both, found.fresh.ravel(), voted.plan.rounding)
    curve = selection.coverage_curve(short)
    return AnchorResult(
        indices=chosen,
        votes=own,
        vote_share=own / s,
        confidence=votes.wilson_bounds(own, s),
        n_subproblems=s,
        n_pointed=s,  # a reference axis inside the dual cone makes every plane pointed
        candidates=histogram.rows,
        candidate_votes=histogram.votes,
        coverage=float(curve[-1]),
        coverage_curve=curve,
        n_range=(len(chosen), len(chosen)),
        sample=view.raw[:: -(-len(view.raw) // _JUDGES)],
        rows=_rows_at_hand(found, chosen),
        n_zero_rows=found.census.zero_rows,
        n_behind_rows=found.census.behind_rows,
        n_clipped_entries=found.census.clipped_entries,
    )


def _rows_at_hand(found: Divided, chosen: Numbers) -> NDArray[np.float64]:
    """The chosen rows, if all of them were brought along."""
    if not len(found.numbers) or not np.isin(chosen, found.numbers).all():
        return np.zeros((0, found.rows.shape[1]))
    return found.rows[np.searchsorted(found.numbers, chosen)].astype(np.float64)


def _of_chosen(voted: Voted, chosen: Numbers) -> tuple[Numbers, Floats]:
    """Votes and places of the chosen rows, which are candidates, or rows of the sample without a vote."""
    histogram, view = voted.found.votes, voted.view
    at = np.minimum(np.searchsorted(histogram.rows, chosen), len(histogram.rows) - 1)
    there = histogram.rows[at] == chosen
    places = histogram.places[at]
    if not there.all():
        sampled = np.searchsorted(view.numbers, chosen[~there])
        places[~there] = coordinates(view.scaled[sampled], voted.plan.frame)
    return np.where(there, histogram.votes[at], 0), places


def _elbow(curve: Floats) -> int:
    """Number of anchors where the coverage curve bends most: furthest from its chord."""
    if len(curve) < 3:
        return len(curve)
    chord = np.linspace(curve[0], curve[-1], len(curve))
    return 1 + int((curve - chord).argmax())


def _warn(n_rows: int, result: AnchorResult, n_anchors: int) -> None:
    if len(result.indices) < n_anchors:
        warn(
            f"only {len(result.indices)} anchors were found where {n_anchors} were asked for: no further ray stands "
            f"out (duplicates share one anchor, and noise may hide rays); use {len(result.indices)}",
            FewerAnchorsWarning,
        )
    if result.n_behind_rows > 0.05 * n_rows:
        warn(
            f"{result.n_behind_rows} of {n_rows} rows lie behind the reference axis and were left out: the "
            "data do not fit in one pointed cone; shift them, for example X - X.min(axis=0)",
            NotPointedWarning,
        )
