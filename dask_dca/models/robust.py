"""Robust anchoring: anchors of X = F X_A from a sample, one pass for moments and one for the divide step."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import numpy as np

from dask_dca.engine.divide import Directions, Divided, divide
from dask_dca.errors import FewerAnchorsWarning, NotPointedWarning, warn
from dask_dca.geometry import extremes as hulls
from dask_dca.geometry import selection, sketch, solvers, votes
from dask_dca.geometry.frame import POSITION_BITS, Frame, coordinates, residual_energy
from dask_dca.models.result import AnchorResult
from dask_dca.models.view import View, look, spectral_counts

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dask_dca.engine.passes import Run
    from dask_dca.engine.rows import Rows
    from dask_dca.models.parameters import Settings

    Floats = NDArray[np.float64]
    Numbers = NDArray[np.int64]

__all__ = ["robust_anchors", "subproblem_count"]

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
    """
    Find anchors by the measured default method.

    A sample sets centre and radius; one pass over sampled runs of rows sums robust moments; the driver finds a
    shrunk subspace; one pass over all rows finds the extreme row on each of s planes there (divide); the driver
    selects the candidates that together reach furthest (conquer).

    Parameters
    ----------
    rows : Rows
        The data.
    n_anchors : int or None
        How many anchors; chosen from the data if None.
    settings : Settings
        Planes, selection and seed.
    run : Run
        How passes are run.
    nonnegative : bool, default False
        Refuse rows with negative entries.

    Returns
    -------
    AnchorResult
        Anchors and certificate.
    """
    view = look(rows, run, nonnegative=nonnegative, n_anchors=n_anchors)
    if n_anchors is not None:
        return _anchor(rows, view, n_anchors, settings, run)
    by_ratio, by_edge = spectral_counts(view, rows)
    widest = _anchor(rows, view, max(by_ratio, by_edge), settings, run, quiet=True)
    by_curve = _elbow(widest.coverage_curve)
    found = widest if len(widest.indices) == by_ratio else _anchor(rows, view, by_ratio, settings, run, quiet=True)
    counts = (len(found.indices), by_edge, by_curve)
    return AnchorResult(**{**vars(found), "n_range": (min(counts), max(counts))})


def subproblem_count(settings: Settings, n_anchors: int) -> int:
    """
    Return the number of planes s.

    Parameters
    ----------
    settings : Settings
        With the number that was asked for, if any.
    n_anchors : int
        Number of anchors k.

    Returns
    -------
    int
        What was asked for, else ceil(10 k ln k), at least 32.
    """
    if settings.n_subproblems is not None:
        return settings.n_subproblems
    return max(32, math.ceil(_PLANES_PER_ANCHOR * n_anchors * math.log(n_anchors)))


def _anchor(
    rows: Rows, view: View, n_anchors: int, settings: Settings, run: Run, *, quiet: bool = False
) -> AnchorResult:
    sub = view.subspace(n_anchors)
    seen = view.frame(sub)
    s = subproblem_count(settings, n_anchors)
    features = _features(settings, view, sub)
    planes = Directions(settings.ensemble, settings.seed, s, _FRESH, sub.dim, sub.scales, features)
    found = divide(rows, view.reading, seen, planes, run)
    half = planes.regenerate()
    rounding = _rounding(rows, seen)
    chosen = _conquer(found, planes, half, n_anchors, settings, rounding)
    overfitted = len(view.numbers) == rows.n_rows < rows.n_features and sub.shrinkage[0] < _OVERFITTED
    if overfitted and settings.selection == "candidates" and _is_even(view.heights()):
        chosen = _on_weighted_rows(view, sub, seen, n_anchors)
    result = _certify(view, seen, found, half, s, chosen, rounding)
    if not quiet:
        _warn(rows, result, n_anchors)
    return result


def _rounding(rows: Rows, seen: Frame) -> float:
    """How far apart the places of copies of one ray may be: entries are rounded, and so are their sums."""
    share = max(_SAME, 4.0 * float(np.finfo(rows.output_dtype).eps))
    return share * float(np.sqrt((seen.offset**2).sum())) * 2.0**POSITION_BITS


def _features(settings: Settings, view: View, sub: sketch.Subspace) -> Floats | None:
    """The vectors that an ensemble draws from, as the subspace sees them."""
    if settings.ensemble == "data":
        return ((view.scaled - sub.mean) * sub.feature_weights) @ sub.basis
    return sub.basis * sub.feature_weights[:, None] if settings.ensemble in ("sparse", "unit") else None


def _signed(found: Divided, half: Floats, part: slice) -> tuple[Floats, hulls.Extremes]:
    """The signed directions made from a part of the two-sided ones, and the extremes on them."""
    every = np.arange(len(half))[part]
    both, tops = np.concatenate([every, every + len(half)]), found.extremes
    directions = np.concatenate([half[part], -half[part]])
    return directions, hulls.Extremes(tops.heights[both], tops.rows[both], tops.positions[both])


def _votes(tops: hulls.Extremes) -> tuple[Numbers, Numbers]:
    s = len(tops.rows) // 2
    return votes.count_votes(tops.rows[s:], tops.rows[:s])


def _conquer(
    found: Divided, planes: Directions, half: Floats, n_anchors: int, settings: Settings, rounding: float
) -> Numbers:
    directions, tops = _signed(found, half, slice(planes.count))
    if settings.selection == "votes":
        return votes.select_votes(*_votes(tops), n_anchors)
    candidates, first = np.unique(tops.rows, return_index=True)
    positions = tops.positions[first, : planes.dim]
    some = slice(None, None, -(-len(directions) // max(_JUDGED_DIRECTIONS, 4 * n_anchors)))
    # squared: many small gaps weigh less than a ray that is missed
    short = selection.shortfalls(positions, directions[some, : planes.dim], tops.heights[some], rounding) ** 2
    chosen = selection.widen_simplex(positions, selection.select_candidates(short, n_anchors))
    order = selection.select_candidates(short[chosen], len(chosen))
    return candidates[chosen[order]]


def _on_weighted_rows(view: View, sub: sketch.Subspace, seen: Frame, n_anchors: int) -> Numbers:
    """Few noisy rows of many features: XRAY on the rows themselves, unscaled, foreign ones left out."""
    outside = residual_energy(view.scaled, seen)
    native = np.flatnonzero(outside <= 3.0 * np.median(outside))
    return view.numbers[native[solvers.xray(view.raw[native] * sub.feature_weights, n_anchors)]]


def _is_even(heights: Floats) -> bool:
    """Whether rows have about the same height, so that unscaled ones compare."""
    low, middle, high = np.quantile(heights, (0.25, 0.5, 0.75))
    return bool(high - low < _EVEN * middle)


def _certify(
    view: View, seen: Frame, found: Divided, half: Floats, s: int, chosen: Numbers, rounding: float
) -> AnchorResult:
    candidates, counts = _votes(_signed(found, half, slice(s))[1])
    own = np.zeros(len(chosen), dtype=np.int64)
    known = np.isin(chosen, candidates)
    own[known] = counts[np.searchsorted(candidates, chosen[known])]
    directions, tops = _signed(found, half, slice(s, None))
    short = selection.shortfalls(_positions(view, seen, found.extremes, chosen), directions, tops.heights, rounding)
    curve = selection.coverage_curve(short)
    return AnchorResult(
        indices=chosen,
        votes=own,
        vote_share=own / s,
        confidence=votes.wilson_bounds(own, s),
        n_subproblems=s,
        n_pointed=s,  # a reference axis inside the dual cone makes every plane pointed
        candidates=candidates,
        candidate_votes=counts,
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


def _positions(view: View, seen: Frame, tops: hulls.Extremes, chosen: Numbers) -> Floats:
    """Places of the chosen rows, which are extremes or rows of the sample."""
    order = np.argsort(tops.rows, kind="stable")
    where = np.minimum(np.searchsorted(tops.rows, chosen, sorter=order), len(order) - 1)
    places = tops.positions[order[where]]
    missing = tops.rows[order[where]] != chosen
    if missing.any():
        at = np.searchsorted(view.numbers, chosen[missing])
        places[missing] = coordinates(view.scaled[at], seen)
    return places


def _elbow(curve: Floats) -> int:
    """Number of anchors where the coverage curve bends most: furthest from its chord."""
    if len(curve) < 3:
        return len(curve)
    chord = np.linspace(curve[0], curve[-1], len(curve))
    return 1 + int((curve - chord).argmax())


def _warn(rows: Rows, result: AnchorResult, n_anchors: int) -> None:
    if len(result.indices) < n_anchors:
        warn(
            f"only {len(result.indices)} anchors were found where {n_anchors} were asked for: no further ray stands "
            f"out (duplicates share one anchor, and noise may hide rays); use {len(result.indices)}",
            FewerAnchorsWarning,
        )
    if result.n_behind_rows > 0.05 * rows.n_rows:
        warn(
            f"{result.n_behind_rows} of {rows.n_rows} rows lie behind the reference axis and were left out: the "
            "data do not fit in one pointed cone; shift them, for example X - X.min(axis=0)",
            NotPointedWarning,
        )
