"""The default method: anchors of X = F X_A from a sample, a pass for moments and a divide pass."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dask_dca.anchoring.divide import Directions, Divided, divide
from dask_dca.anchoring.parameters import AnchorResult, Settings, certify, evaluation_rows, open_beside
from dask_dca.anchoring.preprocess import Preprocessed, Subspaces, prepare_subspaces, spectral_counts
from dask_dca.engine.advice import is_matrix
from dask_dca.engine.cubes import Cube
from dask_dca.engine.graphs import as_dask
from dask_dca.engine.passes import Run, step
from dask_dca.engine.rows import Rows
from dask_dca.engine.sampling import fetch_rows
from dask_dca.errors import FewerAnchorsWarning, InvalidParameterError, NotPointedWarning, warn
from dask_dca.geometry import moments, outlying, solvers, votes
from dask_dca.geometry.arrays import Floats, Numbers
from dask_dca.geometry.moments import POSITION_BITS, SubspaceCoordinates, coordinates, residual_energy
from dask_dca.geometry.votes import VoteHistogram


@dataclass(frozen=True)
class Known:
    """Rows that must be among the anchors."""

    rows: Floats  # (r, p)
    numbers: Numbers  # (r,) their row numbers, -1 for rows that were given themselves


def check_known(known: Any, source: Rows, n_anchors: int | None, run: Run, *, nonnegative: bool = False) -> Known:
    """Check and fetch anchors that are known beforehand.

    known: row numbers of `source`, or rows (r, p); n_anchors: number of anchors, if given. Returns a Delayed in a lazy
    run.
    Raises DCAError: neither of these, more than n_anchors, or repeated numbers, or numbers out of range.
    """
    given = _parse_known(known, source)
    count = given.n_rows if isinstance(given, Rows) else len(given)
    if n_anchors is not None and count > n_anchors:
        msg = f"known names {count} anchors where {n_anchors} are asked for; ask for at least {count}"
        raise InvalidParameterError(msg)
    if isinstance(given, Rows):
        return step(run, "known", Known, fetch_known(given, None, run, nonnegative=nonnegative), np.full(count, -1))
    numbers = _check_row_numbers(given, source.n_rows)
    return step(run, "known", Known, fetch_known(source, numbers, run, nonnegative=nonnegative), numbers)


def _parse_known(known: Any, source: Rows) -> Rows | NDArray[Any]:
    """Return rows, or a vector of row numbers. Raises InvalidParameterError: it is neither."""
    if is_matrix(known) or isinstance(known, Cube) or hasattr(known, "to_dask_array"):
        return open_beside(source, known, "known")
    try:
        found = np.asarray(known)
    except (TypeError, ValueError):
        found = np.zeros(0)
    if found.ndim not in (1, 2) or not len(found):
        msg = f"known must be row numbers, or rows of shape (r, {source.n_features}); received {known!r}"
        raise InvalidParameterError(msg)
    return open_beside(source, known, "known") if found.ndim == 2 else found


def fetch_known(rows: Rows, numbers: Numbers | None, run: Run, *, nonnegative: bool = False) -> Floats:
    """Fetch few rows (m, p); a Delayed for chunked rows in a lazy run."""
    if rows.kind == "memory":
        return fetch_rows(rows, numbers, Run(), nonnegative=nonnegative)
    return fetch_rows(as_dask(rows) if run.lazy else rows, numbers, run, nonnegative=nonnegative)


def _check_row_numbers(given: NDArray[Any], n_rows: int) -> Numbers:
    """Check that numbers are distinct rows of the data."""
    if given.dtype.kind not in "iu" or len(np.unique(given)) < len(given) or not (given >= 0).all():
        msg = f"known must be distinct row numbers from 0, or rows of the data; received {given.tolist()!r}"
        raise InvalidParameterError(msg)
    if given.max() >= n_rows:
        msg = f"known names row {given.max()}, and there are {n_rows:,} rows; the last one is {n_rows - 1}"
        raise InvalidParameterError(msg)
    return given.astype(np.int64)


_N_FRESH_DIRECTIONS: Final = 128  # directions that are not used for the selection, for the certificate
_MAX_SELECTION_DIRECTIONS: Final = 2048  # signed directions that the selection uses at most, or 4 k
_MIN_LEADING_SHRINKAGE: Final = 0.6  # leading shrinkage factor below which, with n < p, the subspace is noise
_COPY_TOL: Final = 2.0**-26  # relative distance up to which rows count as copies of one ray, in any dtype
_MAX_EXTRA_ROUNDS: Final = 3  # further divide steps, where rows that the sample missed have a common direction
# squared norm of the projection of a missed direction onto the new subspace below which no further divide step is done
_MIN_OVERLAP: Final = 0.05
_PLANES_PER_ANCHOR: Final = 10.0  # the number of planes is 10 k ln k


def robust_anchors(
    rows: Rows,
    n_anchors: int | None,
    settings: Settings,
    run: Run,
    *,
    nonnegative: bool = False,
    known: Known | None = None,
) -> AnchorResult:
    """Find anchors by the default method.

    A sample gives centre and radius; a pass over sampled runs of rows sums robust moments; the driver computes a
    shrunken subspace; a pass over all rows finds the extreme rows of s planes in it (divide); the driver selects the
    candidates that minimise the total shortfall (conquer). n_anchors: None if chosen from the data; nonnegative: refuse
    negative entries; known: rows that come first.
    """
    subspaces = prepare_subspaces(rows, run, nonnegative=nonnegative, n_anchors=n_anchors)
    if n_anchors is not None:
        return _find_given_number(rows, subspaces, n_anchors, settings, run, known)
    by_ratio, by_edge = spectral_counts(subspaces, rows)
    most = max(by_ratio, by_edge)
    voted, joined = collect_votes(rows, subspaces, most, settings, run)
    if joined is not subspaces:
        by_ratio, by_edge = spectral_counts(joined, rows)
    if by_ratio == most:
        found = _select(voted, most, settings, rows.n_copies, True, known)
    else:
        found = _find_given_number(rows, joined, by_ratio, settings, run, known, quiet=True)
    counts = (len(found.indices), by_edge)
    return replace(found, n_range=(min(counts), max(counts)))


def robust_votes(rows: Rows, n_anchors: int, settings: Settings, run: Run, *, nonnegative: bool = False) -> Voted:
    """Do all steps of the default method except the selection; returns a Delayed in a lazy run."""
    subspaces = prepare_subspaces(rows, run, nonnegative=nonnegative, n_anchors=n_anchors)
    return collect_votes(rows, subspaces, n_anchors, settings, run)[0]


def subproblem_count(settings: Settings, n_anchors: int) -> int:
    """Return the number of planes s: that of the settings, else ceil(10 k ln k), at least 32."""
    if settings.n_subproblems is not None:
        return settings.n_subproblems
    return max(32, math.ceil(_PLANES_PER_ANCHOR * n_anchors * math.log(n_anchors)))


@dataclass(frozen=True)
class Plan:
    """The subspace, its coordinate frame, and the planes."""

    sub: moments.Subspace
    frame: SubspaceCoordinates
    planes: Directions
    rounding: float  # distance between positions up to which rows count as copies of one ray


@dataclass(frozen=True)
class Voted:
    """What anchors are selected from: the preprocessed sample, the plan, and the result of the divide step."""

    view: Preprocessed
    plan: Plan
    found: Divided
    n_sampled: int  # number of rows that the subspace was computed from
    rare: Numbers  # rows in a direction that the sample had missed, which were added to it


def collect_votes(
    rows: Rows, subspaces: Subspaces, n_anchors: int, settings: Settings, run: Run
) -> tuple[Voted, Subspaces]:
    """Do the divide step, and repeat it in a larger sample's subspace if outlying rows have a common direction.

    A graph that is not computed yet can't branch, so that a lazy run has one divide step. Also returns the subspaces of
    the enlarged sample, the last of which need not have been used for a divide step.
    """
    view, s, sub = subspaces.view, subproblem_count(settings, n_anchors), subspaces.of(n_anchors)
    sampled = not run.lazy and subspaces.rows.n_rows < rows.n_copies
    typical = float(np.median(moments.heights(view.raw, view.reading.axis))) if sampled else 0.0
    for more in range(_MAX_EXTRA_ROUNDS, -1, -1):
        plan = step(run, "plan", _make_plan, view, sub, settings, s, rows.output_dtype)
        height = typical if more else 0.0
        found = divide(rows, view.reading, plan.frame, plan.planes, run, n_planes=s, typical_height=height)
        voted = step(run, "votes", Voted, view, plan, found, subspaces.n_rows, subspaces.rare)
        if not sampled:
            break
        new = found.outlying.without(subspaces.rare)
        missed = outlying.common_direction(new, plan.frame)
        if missed is None:
            break
        subspaces = subspaces.join(new)
        sub = subspaces.of(n_anchors)
        if ((missed @ sub.vectors[:, : sub.dim]) ** 2).sum() < _MIN_OVERLAP:  # stronger directions fill the subspace
            break
    return voted, subspaces


def _make_plan(
    view: Preprocessed, sub: moments.Subspace, settings: Settings, n_planes: int, dtype: np.dtype[Any]
) -> Plan:
    features = _ensemble_vectors(settings, view, sub)
    planes = Directions(settings.ensemble, settings.seed, n_planes, _N_FRESH_DIRECTIONS, sub.dim, sub.scales, features)
    seen = view.frame(sub)
    return Plan(sub, seen, planes, _copy_distance(dtype, seen))


def _find_given_number(
    rows: Rows,
    subspaces: Subspaces,
    n_anchors: int,
    settings: Settings,
    run: Run,
    known: Known | None,
    *,
    quiet: bool = False,
) -> AnchorResult:
    """Find a given number of anchors."""
    voted, _ = collect_votes(rows, subspaces, n_anchors, settings, run)
    return step(run, "anchors", _select, voted, n_anchors, settings, rows.n_copies, quiet, known)


def _select(
    voted: Voted, n_anchors: int, settings: Settings, n_rows: int, quiet: bool, known: Known | None
) -> AnchorResult:
    """Select anchors among the candidates, and certify them; runs on the driver."""
    view, plan, found = voted.view, voted.plan, voted.found
    directions = plan.planes.regenerate()
    candidates = _gather_candidates(voted, known)
    chosen = _conquer(candidates, found.votes, directions[: plan.planes.count], plan, n_anchors, settings)
    overfitted = len(view.numbers) == n_rows < len(plan.sub.mean) and plan.sub.shrinkage[0] < _MIN_LEADING_SHRINKAGE
    if overfitted and settings.selection == "candidates" and known is None and view.reading.even.band:
        chosen = _xray_on_rows(view, plan, n_anchors)
    result = _certify(voted, directions[plan.planes.count :], chosen, candidates)
    if not quiet:
        _warn(n_rows, result, n_anchors)
    return result


@dataclass(frozen=True)
class _Candidates:
    """Rows that anchors are selected from, known anchors first."""

    numbers: Numbers  # row numbers, -1 for known rows that are not rows of the data
    places: Floats
    known: Floats  # (r, p)


def _gather_candidates(voted: Voted, known: Known | None) -> _Candidates:
    found = voted.found.votes
    if known is None:
        return _Candidates(found.rows, found.places, np.zeros((0, len(voted.plan.sub.mean))))
    others = ~np.isin(found.rows, known.numbers)
    scaled, usable = voted.view.scale(known.rows)
    places = np.where(usable[:, None], coordinates(scaled, voted.plan.frame), 0.0)
    numbers = np.concatenate([known.numbers, found.rows[others]])
    return _Candidates(numbers, np.vstack([places, found.places[others]]), known.rows)


def _copy_distance(dtype: np.dtype[Any], seen: SubspaceCoordinates) -> float:
    """Greatest distance between the positions of copies of one ray, due to rounding of entries and sums."""
    share = max(_COPY_TOL, 4.0 * float(np.finfo(dtype).eps))
    return share * float(np.sqrt((seen.offset**2).sum())) * 2.0**POSITION_BITS


def _ensemble_vectors(settings: Settings, view: Preprocessed, sub: moments.Subspace) -> Floats | None:
    """Vectors that some ensembles draw from, in coordinates of the subspace; None for the others."""
    if settings.ensemble == "data":
        return ((view.scaled - sub.mean) * sub.feature_weights) @ sub.basis
    return sub.basis * sub.feature_weights[:, None] if settings.ensemble in ("sparse", "unit") else None


def _conquer(
    candidates: _Candidates, found: VoteHistogram, directions: Floats, plan: Plan, n_anchors: int, settings: Settings
) -> Numbers:
    """Select k candidates, by facility location or by votes."""
    dim, fixed = plan.sub.dim, len(candidates.known)
    if settings.selection == "votes":
        first = candidates.numbers[:fixed]
        others = ~np.isin(found.rows, first)
        chosen = votes.select_votes(found.rows[others], found.votes[others], n_anchors - fixed)
        return np.concatenate([first, chosen])
    places, signed = candidates.places[:, :dim], np.concatenate([directions, -directions])
    some = slice(None, None, -(-len(signed) // max(_MAX_SELECTION_DIRECTIONS, 4 * n_anchors)))
    # squared, so that many small shortfalls weigh less than a ray that is missed
    short = votes.shortfalls(places, signed[some, :dim], found.heights.ravel()[some], plan.rounding) ** 2
    chosen = votes.select_candidates(short, n_anchors, n_fixed=fixed)
    chosen = votes.widen_simplex(places, chosen, n_fixed=fixed)
    order = votes.select_candidates(short[chosen], len(chosen), n_fixed=fixed)
    return candidates.numbers[chosen[order]]


def _xray_on_rows(view: Preprocessed, plan: Plan, n_anchors: int) -> Numbers:
    """Run XRAY on the unscaled sample without outliers, for few noisy rows of many features."""
    outside = residual_energy(view.scaled, plan.frame)
    inliers = np.flatnonzero(outside <= 3.0 * np.median(outside))
    return view.numbers[inliers[solvers.xray(view.raw[inliers] * plan.sub.feature_weights, n_anchors)]]


def _certify(voted: Voted, fresh: Floats, chosen: Numbers, candidates: _Candidates) -> AnchorResult:
    view, found, histogram = voted.view, voted.found, voted.found.votes
    own, places = _votes_and_places(voted, chosen, candidates)
    both = np.concatenate([fresh, -fresh])
    short = votes.shortfalls(places, both, found.fresh.ravel(), voted.plan.rounding)
    return certify(
        chosen,
        (histogram.rows, histogram.votes),
        histogram.n_subproblems,  # all pointed: the reference axis is inside the dual cone
        own=own,
        curve=votes.coverage_curve(short),
        row_counts=found.row_counts,
        sample=evaluation_rows(view.raw),
        rows=_available_rows(found, chosen, candidates.known),
        rare_rows=voted.rare,
    )


def _available_rows(found: Divided, chosen: Numbers, known: Floats) -> Floats:
    """The known rows, and the other anchors if the divide step returned all of them."""
    others = chosen[len(known) :]
    if not len(found.numbers) or not np.isin(others, found.numbers).all():
        return known
    return np.vstack([known, found.rows[np.searchsorted(found.numbers, others)]])


def _votes_and_places(voted: Voted, chosen: Numbers, candidates: _Candidates) -> tuple[Numbers, Floats]:
    """Votes and positions of the anchors, which are known rows, candidates, or rows of the sample without a vote."""
    histogram, view, fixed = voted.found.votes, voted.view, len(candidates.known)
    at = np.minimum(np.searchsorted(histogram.rows, chosen), len(histogram.rows) - 1)
    there = histogram.rows[at] == chosen
    places = histogram.places[at]
    places[:fixed] = candidates.places[:fixed]
    lacking = np.flatnonzero(~there[fixed:]) + fixed
    if len(lacking):
        sampled = np.searchsorted(view.numbers, chosen[lacking])
        places[lacking] = coordinates(view.scaled[sampled], voted.plan.frame)
    return np.where(there, histogram.votes[at], 0), places


def _warn(n_rows: int, result: AnchorResult, n_anchors: int) -> None:
    if len(result.indices) < n_anchors:
        warn(
            f"found only {len(result.indices)} of the {n_anchors} anchors asked for: no further ray stands "
            f"out (duplicates share one anchor, and noise may hide rays); use {len(result.indices)}",
            FewerAnchorsWarning,
        )
    if result.n_behind_rows > 0.05 * n_rows:
        warn(
            f"{result.n_behind_rows} of {n_rows} rows lie behind the reference axis and were left out: the "
            "data do not fit in one pointed cone; shift them, for example X - X.min(axis=0)",
            NotPointedWarning,
        )
