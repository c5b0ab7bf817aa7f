"""Robust anchoring: anchors of X = F X_A, some of them known, from a sample, a pass for moments and a divide pass."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dask_dca.anchoring.divide import Directions, divide
from dask_dca.anchoring.parameters import certified, judges
from dask_dca.anchoring.preprocess import look, spectral_counts
from dask_dca.engine.advice import form_of, is_matrix
from dask_dca.engine.cubes import Cube
from dask_dca.engine.graphs import as_dask
from dask_dca.engine.passes import Run, step
from dask_dca.engine.rows import Rows, as_rows
from dask_dca.engine.sampling import fetch_rows
from dask_dca.errors import FewerAnchorsWarning, InvalidInputError, InvalidParameterError, NotPointedWarning, warn
from dask_dca.geometry import moments, screening, solvers, votes
from dask_dca.geometry.moments import POSITION_BITS, coordinates, residual_energy

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dask_dca.anchoring.divide import Divided
    from dask_dca.anchoring.parameters import AnchorResult, Settings
    from dask_dca.anchoring.preprocess import Preprocessed, Subspaces
    from dask_dca.geometry.arrays import Floats, Numbers
    from dask_dca.geometry.moments import SubspaceCoordinates
    from dask_dca.geometry.votes import VoteHistogram


@dataclass(frozen=True)
class Known:
    """Rows that must be among the anchors."""

    rows: Floats  # (r, p)
    numbers: Numbers  # (r,) their row numbers; -1 for rows that were given as such


def check_known(known: Any, source: Rows, n_anchors: int | None, run: Run, *, nonnegative: bool = False) -> Known:
    """Check and fetch anchors that are known beforehand.

    known: row numbers of `source`, or rows (r, p); n_anchors: how many anchors there are to be, if that is known.
    Returns the rows; a Delayed in a lazy run.
    Raises DCAError: neither of these, more than n_anchors, or numbers that are repeated or out of range.
    """
    given = _given(known, source)
    count = given.n_rows if isinstance(given, Rows) else len(given)
    if n_anchors is not None and count > n_anchors:
        msg = f"known names {count} anchors where {n_anchors} are asked for; ask for at least {count}"
        raise InvalidParameterError(msg)
    if isinstance(given, Rows):
        rows = given
        if rows.n_features != source.n_features:
            msg = f"known has rows of {rows.n_features} features and the data have {source.n_features}"
            raise InvalidInputError(msg)
        numbers = np.full(count, -1)
    else:
        rows, numbers = source, _numbers(given, source.n_rows)
    fetched = fetch_known(rows, None if rows is not source else numbers, run, nonnegative=nonnegative)
    return step(run, "known", Known, fetched, numbers)


def _given(known: Any, source: Rows) -> Rows | NDArray[Any]:
    """Rows of any kind, or a vector of row numbers. Raises InvalidParameterError: neither."""
    if is_matrix(known) or isinstance(known, Cube) or hasattr(known, "to_dask_array"):
        return _called_known(as_rows(known), known)
    try:
        found = np.asarray(known)
    except (TypeError, ValueError):
        found = np.zeros(0)
    if found.ndim not in (1, 2) or not len(found):
        msg = f"known must be row numbers, or rows of shape (r, {source.n_features}); received {known!r}"
        raise InvalidParameterError(msg)
    return _called_known(as_rows(found), known) if found.ndim == 2 else found


def _called_known(rows: Rows, known: Any) -> Rows:
    return replace(rows, form=replace(form_of(known), name="known"))


def fetch_known(rows: Rows, numbers: Numbers | None, run: Run, *, nonnegative: bool = False) -> Floats:
    """Bring few rows to the driver; those in memory at once, in a lazy run too.

    Returns (m, p): the rows; a Delayed in a lazy run of chunked ones.
    """
    if rows.kind == "memory":
        return fetch_rows(rows, numbers, Run(), nonnegative=nonnegative)
    return fetch_rows(as_dask(rows) if run.lazy else rows, numbers, run, nonnegative=nonnegative)


def _numbers(given: NDArray[Any], n_rows: int) -> Numbers:
    if given.dtype.kind not in "iu" or len(np.unique(given)) < len(given) or not (given >= 0).all():
        msg = f"known must be distinct row numbers from 0, or rows of the data; received {given.tolist()!r}"
        raise InvalidParameterError(msg)
    if given.max() >= n_rows:
        msg = f"known names row {given.max()}, and there are {n_rows:,} rows; the last one is {n_rows - 1}"
        raise InvalidParameterError(msg)
    return given.astype(np.int64)


_FRESH: Final = 128  # two-sided directions kept out of the selection, for the certificate
_JUDGED_DIRECTIONS: Final = 2048  # signed directions that candidates are selected by, at most, or 4 k
_OVERFITTED: Final = 0.6  # a leading shrinkage factor below this, with n < p: the subspace is noise
_SAME: Final = 2.0**-26  # of its length: rows that differ by less are copies of one ray, in any dtype
_ROUNDS: Final = 3  # divide steps more, where rows that the sample missed agree on a direction
_HELD: Final = 0.05  # of a direction, squared, in those that hold the anchors, if planes are to see it
_PLANES_PER_ANCHOR: Final = 10.0  # s = 10 k ln k


def robust_anchors(
    rows: Rows,
    n_anchors: int | None,
    settings: Settings,
    run: Run,
    *,
    nonnegative: bool = False,
    known: Known | None = None,
) -> AnchorResult:
    """Find anchors by the measured default method.

    A sample sets centre and radius; one pass over sampled runs of rows sums robust moments; the driver finds a shrunk
    subspace; one pass over all rows finds the extreme row on each of s planes there (divide); the driver selects the
    candidates that together reach furthest (conquer).
    n_anchors: how many anchors; chosen from the data if None; nonnegative: refuse rows with negative entries; known:
    rows that must be among them, which come first.
    """
    subspaces = look(rows, run, nonnegative=nonnegative, n_anchors=n_anchors)
    if n_anchors is not None:
        return _anchor(rows, subspaces, n_anchors, settings, run, known)
    by_ratio, by_edge = spectral_counts(subspaces, rows)
    most = max(by_ratio, by_edge)
    voted, joined = vote(rows, subspaces, most, settings, run)
    if joined is not subspaces:
        by_ratio, by_edge = spectral_counts(joined, rows)
    if by_ratio == most:
        found = _select(voted, most, settings, rows.n_copies, True, known)
    else:
        found = _anchor(rows, joined, by_ratio, settings, run, known, quiet=True)
    counts = (len(found.indices), by_edge)
    return replace(found, n_range=(min(counts), max(counts)))


def robust_votes(rows: Rows, n_anchors: int, settings: Settings, run: Run, *, nonnegative: bool = False) -> Voted:
    """Let the planes of the default method vote, and merge their votes: all but the selection.

    Returns what anchors are selected from; a Delayed in a lazy run.
    """
    subspaces = look(rows, run, nonnegative=nonnegative, n_anchors=n_anchors)
    return vote(rows, subspaces, n_anchors, settings, run)[0]


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

    sub: moments.Subspace
    frame: SubspaceCoordinates
    planes: Directions
    rounding: float  # how far apart the places of copies of one ray may be


@dataclass(frozen=True)
class Voted:
    """What anchors are selected from: the sample's view, the plan, and what the divide step found."""

    view: Preprocessed
    plan: Plan
    found: Divided
    n_sampled: int  # rows that the subspace was found from
    rare: Numbers  # rows that the sample had missed, and that joined it


def vote(rows: Rows, subspaces: Subspaces, n_anchors: int, settings: Settings, run: Run) -> tuple[Voted, Subspaces]:
    """Let planes vote; again, where rows agree that the sample missed a direction, in the subspace that holds it.

    A graph that is not computed yet can't branch, so a lazy run has one divide step. Returns also the subspaces with
    all rows that joined the sample, of which planes need not have seen the last.
    """
    view, s, sub = subspaces.view, subproblem_count(settings, n_anchors), subspaces.of(n_anchors)
    sampled = not run.lazy and subspaces.rows.n_rows < rows.n_copies
    typical = float(np.median(view.heights())) if sampled else 0.0
    for more in range(_ROUNDS, -1, -1):
        plan = step(run, "plan", _plan, view, sub, settings, s, rows.output_dtype)
        found = divide(rows, view.reading, plan.frame, plan.planes, run, n_planes=s, typical=typical if more else 0.0)
        voted = step(run, "votes", Voted, view, plan, found, subspaces.n_rows, subspaces.rare)
        if not sampled:
            break
        new = found.outlying.without(subspaces.rare)
        missed = screening.common_direction(new, plan.frame)
        if missed is None:
            break
        subspaces = subspaces.join(new)
        sub = subspaces.of(n_anchors)
        if ((missed @ sub.vectors[:, : sub.dim]) ** 2).sum() < _HELD:  # all are taken by stronger ones
            break
    return voted, subspaces


def _plan(view: Preprocessed, sub: moments.Subspace, settings: Settings, n_planes: int, dtype: np.dtype[Any]) -> Plan:
    features = _features(settings, view, sub)
    planes = Directions(settings.ensemble, settings.seed, n_planes, _FRESH, sub.dim, sub.scales, features)
    seen = view.frame(sub)
    return Plan(sub, seen, planes, _rounding(dtype, seen))


def _anchor(
    rows: Rows,
    subspaces: Subspaces,
    n_anchors: int,
    settings: Settings,
    run: Run,
    known: Known | None,
    *,
    quiet: bool = False,
) -> AnchorResult:
    voted, _ = vote(rows, subspaces, n_anchors, settings, run)
    return step(run, "anchors", _select, voted, n_anchors, settings, rows.n_copies, quiet, known)


def _select(
    voted: Voted, n_anchors: int, settings: Settings, n_rows: int, quiet: bool, known: Known | None
) -> AnchorResult:
    """The driver's part: choose among the candidates, and certify."""
    view, plan, found = voted.view, voted.plan, voted.found
    directions = plan.planes.regenerate()
    candidates = _candidates(voted, known)
    chosen = _conquer(candidates, found.votes, directions[: plan.planes.count], plan, n_anchors, settings)
    overfitted = len(view.numbers) == n_rows < len(plan.sub.mean) and plan.sub.shrinkage[0] < _OVERFITTED
    if overfitted and settings.selection == "candidates" and known is None and view.reading.even.band:
        chosen = _on_weighted_rows(view, plan, n_anchors)
    result = _certify(voted, directions[plan.planes.count :], chosen, candidates)
    if not quiet:
        _warn(n_rows, result, n_anchors)
    return result


@dataclass(frozen=True)
class _Candidates:
    """Rows that anchors are chosen from, those that are known to be anchors first."""

    numbers: Numbers  # -1 for known rows that are not of the data
    places: Floats
    known: Floats  # (r, p)


def _candidates(voted: Voted, known: Known | None) -> _Candidates:
    found = voted.found.votes
    if known is None:
        return _Candidates(found.rows, found.places, np.zeros((0, len(voted.plan.sub.mean))))
    others = ~np.isin(found.rows, known.numbers)
    scaled, usable = voted.view.scale(known.rows)
    places = np.where(usable[:, None], coordinates(scaled, voted.plan.frame), 0.0)
    numbers = np.concatenate([known.numbers, found.rows[others]])
    return _Candidates(numbers, np.vstack([places, found.places[others]]), known.rows)


def _rounding(dtype: np.dtype[Any], seen: SubspaceCoordinates) -> float:
    """How far apart the places of copies of one ray may be: entries are rounded, and so are their sums."""
    share = max(_SAME, 4.0 * float(np.finfo(dtype).eps))
    return share * float(np.sqrt((seen.offset**2).sum())) * 2.0**POSITION_BITS


def _features(settings: Settings, view: Preprocessed, sub: moments.Subspace) -> Floats | None:
    """The vectors that an ensemble draws from, as the subspace sees them."""
    if settings.ensemble == "data":
        return ((view.scaled - sub.mean) * sub.feature_weights) @ sub.basis
    return sub.basis * sub.feature_weights[:, None] if settings.ensemble in ("sparse", "unit") else None


def _conquer(
    candidates: _Candidates, found: VoteHistogram, directions: Floats, plan: Plan, n_anchors: int, settings: Settings
) -> Numbers:
    dim, fixed = plan.sub.dim, len(candidates.known)
    if settings.selection == "votes":
        first = candidates.numbers[:fixed]
        others = ~np.isin(found.rows, first)
        chosen = votes.select_votes(found.rows[others], found.votes[others], n_anchors - fixed)
        return np.concatenate([first, chosen])
    places, signed = candidates.places[:, :dim], np.concatenate([directions, -directions])
    some = slice(None, None, -(-len(signed) // max(_JUDGED_DIRECTIONS, 4 * n_anchors)))
    # squared: many small gaps weigh less than a ray that is missed
    short = votes.shortfalls(places, signed[some, :dim], found.heights.ravel()[some], plan.rounding) ** 2
    chosen = votes.select_candidates(short, n_anchors, n_fixed=fixed)
    chosen = votes.widen_simplex(places, chosen, n_fixed=fixed)
    order = votes.select_candidates(short[chosen], len(chosen), n_fixed=fixed)
    return candidates.numbers[chosen[order]]


def _on_weighted_rows(view: Preprocessed, plan: Plan, n_anchors: int) -> Numbers:
    """Few noisy rows of many features: XRAY on the rows themselves, unscaled, foreign ones left out."""
    outside = residual_energy(view.scaled, plan.frame)
    native = np.flatnonzero(outside <= 3.0 * np.median(outside))
    return view.numbers[native[solvers.xray(view.raw[native] * plan.sub.feature_weights, n_anchors)]]


def _certify(voted: Voted, fresh: Floats, chosen: Numbers, candidates: _Candidates) -> AnchorResult:
    view, found, histogram = voted.view, voted.found, voted.found.votes
    own, places = _of_chosen(voted, chosen, candidates)
    both = np.concatenate([fresh, -fresh])
    short = votes.shortfalls(places, both, found.fresh.ravel(), voted.plan.rounding)
    return certified(
        chosen,
        (histogram.rows, histogram.votes),
        histogram.n_subproblems,  # all pointed: the reference axis is inside the dual cone
        own=own,
        curve=votes.coverage_curve(short),
        census=found.census,
        sample=judges(view.raw),
        rows=_rows_at_hand(found, chosen, candidates.known),
        rare_rows=voted.rare,
    )


def _rows_at_hand(found: Divided, chosen: Numbers, known: Floats) -> Floats:
    """The rows that are known, and the others if all of them were brought along."""
    others = chosen[len(known) :]
    if not len(found.numbers) or not np.isin(others, found.numbers).all():
        return known
    return np.vstack([known, found.rows[np.searchsorted(found.numbers, others)]])


def _of_chosen(voted: Voted, chosen: Numbers, candidates: _Candidates) -> tuple[Numbers, Floats]:
    """Votes and places of the chosen rows: known ones, candidates, or rows of the sample without a vote."""
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
