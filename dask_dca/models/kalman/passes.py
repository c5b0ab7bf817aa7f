"""The E-step of a Kalman filter over all frames, by exact sums over pieces, which includes the divide step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from dask_dca.engine.passes import Pass, Run, run_pass
from dask_dca.engine.rows import Rows
from dask_dca.engine.types import Window
from dask_dca.geometry import planes, votes
from dask_dca.geometry.arrays import Floats, Mask, Numbers
from dask_dca.geometry.exact import Total, plain_total, power_of_two, product_total
from dask_dca.geometry.solvers import successive_projection
from dask_dca.geometry.votes import ArgBest
from dask_dca.models.kalman.em import StateSums
from dask_dca.models.kalman.pieces import PieceBatch, PreparedFilter, read_pieces, smooth_complete, smooth_missing
from dask_dca.models.kalman.scan import smoothed_sums
from dask_dca.models.kalman.system import row_products

Sums = dict[str, Any]  # Total, except for the extremes' ArgBest

_DIRECTIONS_PER_STATE: Final = 5.0  # s = 5 k ln(k + 1)
_MIN_AXIS_HEIGHT: Final = 1e-6  # minimum singular value of the anchor states, in units of unit variance


@dataclass(frozen=True)
class AnchorStates:
    """Axes for the state space.

    states (k, k): anchor states as columns; indices (k,): their frames, -1 for an axis that is not a frame's state;
    votes (k,): number of directions on which each frame is extreme; bounds (k, 2): Wilson's 95 % bounds of the shares.
    """

    states: Floats
    indices: Numbers
    votes: Numbers
    bounds: Floats
    n_directions: int


def state_directions(spread: Floats, n_directions: int | None, seed: int) -> Floats:
    """Draw the directions of the divide step in the state space.

    spread (k, k): covariance of the states; n_directions: number s of directions; None for 5 k ln(k + 1). Returns
    (k, s): linear maps from states to heights.
    """
    k = len(spread)
    count = n_directions or max(1, math.ceil(_DIRECTIONS_PER_STATE * k * math.log(k + 1)))
    return _whitener(spread).T @ planes.directions("gaussian", seed, np.arange(count), np.ones(k)).T


def choose_anchor_states(extremes: ArgBest, spread: Floats) -> AnchorStates:
    """Choose k of the extreme states by successive projection, the conquer step.

    extremes (2 s,): states of greatest, then of least height on each direction; spread (k, k): covariance of the
    states. Returns well-conditioned axes, the most extreme first.
    """
    k, s = len(spread), len(extremes.rows) // 2
    whitener = _whitener(spread)
    numbers, where = np.unique(extremes.rows, return_index=True)
    white = extremes.values[where] @ whitener.T
    chosen = successive_projection(white, k)
    axes = white[chosen].T
    while axes.shape[1] and np.linalg.svd(axes, compute_uv=False)[-1] < _MIN_AXIS_HEIGHT:
        chosen, axes = chosen[:-1], axes[:, :-1]
    if axes.shape[1] < k:  # complete the basis with directions that are no frame's state
        axes = np.hstack([axes, np.linalg.qr(axes, mode="complete")[0][:, axes.shape[1] :]])
    histogram = dict(
        zip(*(part.tolist() for part in votes.count_votes(extremes.rows[s:], extremes.rows[:s])), strict=True)
    )
    indices = np.full(k, -1, dtype=np.int64)
    indices[: len(chosen)] = numbers[chosen]
    own = np.array([histogram.get(int(row), 0) for row in indices], dtype=np.int64)
    states = np.asarray(np.linalg.solve(whitener, axes), dtype=np.float64)
    return AnchorStates(states, indices, own, votes.wilson_bounds(own, s), s)


def _whitener(spread: Floats) -> Floats:
    """Compute a lower triangular whitener of states (k, k), with a small ridge for directions without variance."""
    least = 1e-12 * float(np.trace(spread)) / len(spread) or 1.0
    return np.linalg.inv(np.linalg.cholesky(spread + least * np.eye(len(spread))))


_EXTREMES_KEY: Final = "extremes"
_MISSING_KEY: Final = "missing"  # key by which a block reports that entries are missing
# Values are rounded to a share of a standard deviation before they are summed exactly. For complete frames all sums
# are of products of the same rounded values, so a coarse grid only adds noise of 1e-9 of the variance.
_COARSE_GRID: Final = 2.0**-14  # share of a standard deviation to which values of complete frames are rounded
_FINE_GRID: Final = 2.0**-26  # share to which values of incomplete frames are rounded
_ERROR_GRID: Final = 2.0**-20  # absolute grid of squared prediction errors, in the fit's units
_RUN_ROWS: Final = 1024  # rows that are summed at a time, so that they stay in the cache


@dataclass(frozen=True)
class _State:
    """State of the pass."""

    plan: PreparedFilter
    scale: Floats  # (k,): powers of two, about the standard deviations of the states
    directions: Floats  # (k, s): maps from states to heights
    missing: bool
    full: bool  # sum the products of channels, not only their squares
    second: bool  # whether these are summed in this pass


@dataclass(frozen=True)
class SystemSums:
    """Result of an E-step over all frames.

    log_likelihood: of all frames; extremes (2 s,): frames of greatest, then of least height on each direction, with
    their smoothed states; errors, variances (p,): sums of squares of each channel's one-step prediction error, and of
    its deviation from the offset; counts (p,): frames in which each channel is observed.
    """

    sums: StateSums
    log_likelihood: float
    extremes: ArgBest
    errors: Floats
    variances: Floats
    counts: Floats


def state_scale(plan: PreparedFilter) -> Floats:
    """Choose units for exact sums over states.

    Returns (k,): powers of two near the states' standard deviations.
    """
    system, steady = plan.system, plan.gains[1].predicted[0]
    spread = np.diagonal(system.initial_covariance) + np.diagonal(steady) + system.initial_mean**2
    return power_of_two(np.sqrt(np.maximum(spread, 0.0)))


def e_step_pass(
    rows: Rows,
    plan: PreparedFilter,
    run: Run,
    *,
    missing: bool,
    full: bool,
    second: Floats | None,
    directions: Floats | None = None,
) -> SystemSums | None:
    """Run the smoother over all frames, sum what the M-step needs, and find the extreme states: the divide step.

    missing: whether entries may be missing; full: sum the products of channels, not only their squares; second: these
    sums (p, p) or (p,), if known from an earlier pass; directions (k, s): maps from states to heights. Returns None if
    an entry is missing but `missing` is False, or some entries of a frame, but not all, and `full` is True.
    """
    k = plan.system.n_dim_state
    heights = np.zeros((k, 0)) if directions is None else directions
    state = _State(plan, state_scale(plan), heights, missing, full, second is None)
    job: Pass[Sums] = Pass("refine", _block, merge_sums, plan.cut.halo)
    total = run_pass(rows, job, state, run)
    if _MISSING_KEY in total:
        return None
    best: ArgBest = total.pop(_EXTREMES_KEY)
    found = {name: value.value() for name, value in total.items()}
    lengths = np.diff(plan.cut.edges)
    every = found["every"].copy()
    parts = {"first": found["first"][:k, :k].copy(), "last": found["last"], "pairs": found["pairs"]}
    if not missing:
        unique, counts = np.unique(lengths, return_counts=True)
        own = smoothed_sums(plan.system, plan.observer.factor, plan.gains[0], plan.memory, unique, counts)
        every[:k, :k] += own.every
        parts = {name: value + getattr(own, name) for name, value in parts.items()}
    sums = StateSums(
        every=every,
        pairs=parts["pairs"],
        before=every[:k, :k] - parts["last"],
        after=every[:k, :k] - parts["first"],
        starts=parts["first"],
        start_means=found["first"][:k, k],
        cross=found["cross"],
        second=found["second"] if second is None else second,
        sequences=np.array([float(len(lengths))]),
        seen=found["seen"].reshape((k + 1, k + 1) if full else (-1, k + 1, k + 1)) if missing else None,
    )
    measures = (found[name] for name in ("errors", "squares", "counts"))
    return SystemSums(sums, float(found["log_likelihood"]), best, *measures)


def merge_sums(parts: Sequence[Sums]) -> Sums:
    """Add the sums of blocks.

    parts: sums by name; empty for blocks in which no piece begins.
    """
    found: Sums = {}
    for part in parts:
        for name, value in part.items():
            found[name] = found[name] + value if name in found else value
    return found


def _block(state: _State, window: Window, *columns: Any) -> Sums:
    found: Sums = {}
    for pieces in read_pieces(state.plan, window, columns, missing=state.missing, keep=True):
        gone = np.isnan(pieces.frames)
        if gone.any() and (not state.missing or (state.full and (gone.any(axis=1) != gone.all(axis=1)).any())):
            return {_MISSING_KEY: plain_total(np.ones(1), 1.0)}
        found = merge_sums([found, _incomplete_sums(state, pieces) if state.missing else _complete_sums(state, pieces)])
    return found


def _complete_sums(state: _State, pieces: PieceBatch) -> Sums:
    batch, k = pieces.batch, state.plan.system.n_dim_state
    filtered, means = smooth_complete(state.plan, pieces)
    with_one = np.concatenate([means, np.ones((*means.shape[:2], 1))], axis=2)
    units = _COARSE_GRID * np.append(state.scale, 1.0)
    own, before = _successive_frames(batch.own, batch.first, state.plan.cut.burn_in)
    rows = np.zeros((len(batch.values), k + 1))
    rows[batch.index[batch.own]] = with_one[batch.own]
    begins, ends = with_one[state.plan.cut.burn_in, batch.first], means[_sequence_ends(batch)]
    now, then = means[own], means[before]
    return {
        **_prediction_sums(state, pieces, means, filtered.predicted),
        "every": product_total(rows, rows, units, units),
        "pairs": product_total(now, then, units[:k], units[:k]),
        "first": product_total(begins, begins, units, units),
        "last": product_total(ends, ends, units[:k], units[:k]),
        **_frame_sums(state, pieces, rows, units),
        "log_likelihood": _log_likelihood_sum(batch.own, filtered.log_density + pieces.log_density),
    }


def _incomplete_sums(state: _State, pieces: PieceBatch) -> Sums:
    batch, k, begin = pieces.batch, state.plan.system.n_dim_state, state.plan.cut.burn_in
    real = np.arange(len(batch.begins))  # without empty pieces, whose covariances would cost as much
    filtered, smoothed = smooth_missing(state.plan, pieces, real)
    own, first, places = batch.own[:, real], batch.first[real], batch.index[:, real]
    means, scale = smoothed.means, np.append(state.scale, 1.0)
    with_one = np.concatenate([means, np.ones((*means.shape[:2], 1))], axis=2)
    products = with_one[..., :, None] * with_one[..., None, :]
    products[..., :k, :k] += smoothed.covariances
    unit = _FINE_GRID * np.multiply.outer(scale, scale)
    rows, second = np.zeros((len(batch.values), k + 1)), np.zeros((len(batch.values), (k + 1) ** 2))
    rows[places[own]] = with_one[own]
    second[places[own]] = products[own].reshape(-1, (k + 1) ** 2)
    later, before = _successive_frames(own, first, begin)
    pairs = means[later][:, :, None] * means[before][:, None, :] + smoothed.lag_one[later]
    seen = (~np.isnan(pieces.frames[:, : 1 if state.full else None])).astype(np.float64)  # frames, or their entries
    return {
        **_prediction_sums(state, pieces, means, filtered.predicted),
        "every": plain_total(products[own], unit),
        "pairs": plain_total(pairs, unit[:k, :k]),
        "first": plain_total(products[begin, first], unit),
        "last": plain_total(products[_sequence_ends(batch)[:, real]][:, :k, :k], unit[:k, :k]),
        "seen": product_total(seen, second, np.ones(seen.shape[1]), unit.ravel()),
        **_frame_sums(state, pieces, rows, _FINE_GRID * scale),
        "log_likelihood": _log_likelihood_sum(own, filtered.log_density + pieces.log_density[:, real]),
    }


def _prediction_sums(state: _State, pieces: PieceBatch, means: Floats, predicted: Floats) -> Sums:
    """Find the frames of extreme states, and sum squared prediction errors."""
    batch, system = pieces.batch, state.plan.system
    means, predicted = (
        np.pad(part, ((0, 0), (0, batch.own.shape[1] - part.shape[1]), (0, 0))) for part in (means, predicted)
    )
    heights = (means.reshape(-1, means.shape[2]) @ state.directions)[
        batch.own.ravel()
    ]  # a product whose shape does not depend on the block
    places = batch.index[batch.own]
    order = np.argsort(places)
    keys, flat = np.hstack([heights, -heights])[order], means[batch.own][order]
    best = ArgBest.of_rows(keys, places[order] + batch.low, flat)
    states, there = np.zeros((len(batch.values), means.shape[2])), np.zeros(len(batch.values), dtype=bool)
    states[places], there[places] = predicted[batch.own], True
    centred = pieces.frames - system.offset
    errors, seen = centred - row_products(states, system.observation), there[:, None] & ~np.isnan(centred)
    return {
        _EXTREMES_KEY: best,
        "errors": plain_total(np.where(seen, errors, 0.0) ** 2, _ERROR_GRID),
        "squares": plain_total(np.where(seen, centred, 0.0) ** 2, _ERROR_GRID),
        "counts": plain_total(seen.astype(np.float64), 1.0),
    }


def _successive_frames(own: Mask, first: Mask, begin: int) -> tuple[Any, Any]:
    """Indices of own frames with a previous frame in their sequence, and of these previous frames."""
    later = own.copy()
    later[begin, first] = False
    steps, pieces = np.nonzero(later)
    return (steps, pieces), (steps - 1, pieces)


def _sequence_ends(batch: Any) -> Any:
    """Mask of the last frames of sequences."""
    following = np.zeros_like(batch.inside)
    following[:-1] = batch.inside[1:]
    return batch.own & batch.last & ~following


def _frame_sums(state: _State, pieces: PieceBatch, rows: Floats, units: Floats) -> Sums:
    """Sums of products of frames with states, and of frames with themselves."""
    fine = _FINE_GRID if state.missing else _COARSE_GRID
    grid = np.full(pieces.frames.shape[1], fine)
    own = np.zeros(len(rows), dtype=bool)
    own[pieces.batch.index[pieces.batch.own]] = True
    found: Sums = {}
    for begin in range(0, len(rows), _RUN_ROWS):
        some = slice(begin, begin + _RUN_ROWS)
        frames = np.where(own[some, None], pieces.frames[some], 0.0)
        if state.missing:
            frames = np.where(np.isnan(frames), 0.0, frames)
        sums = {"cross": product_total(frames, rows[some], grid, units)}
        if state.second:
            sums["second"] = product_total(frames, frames, grid, grid) if state.full else _square_sums(frames, fine)
        found = merge_sums([found, sums])
    return found


def _square_sums(values: Floats, unit: float) -> Total:
    """Sums of the squares of rounded values."""
    return plain_total((np.rint(values / unit) * unit) ** 2, unit**2)


def _log_likelihood_sum(own: Mask, log_density: Floats) -> Total:
    return plain_total(np.where(own, log_density, 0.0).ravel(), 2.0**-20)
