"""The E-step of a Kalman filter over all frames, by exact sums over pieces, and the divide step in it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dask_dca.engine.passes import Pass, run_pass
from dask_dca.geometry import planes, votes
from dask_dca.geometry.exact import plain_total, power_of_two, product_total
from dask_dca.geometry.solvers import successive_projection
from dask_dca.geometry.votes import ArgBest
from dask_dca.models.kalman.em import StateSums
from dask_dca.models.kalman.pieces import read_pieces, smooth_complete, smooth_missing
from dask_dca.models.kalman.scan import smoothed_sums
from dask_dca.models.kalman.system import row_products

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dask_dca.engine.passes import Run
    from dask_dca.engine.rows import Rows
    from dask_dca.engine.types import Window
    from dask_dca.geometry.arrays import Floats, Mask, Numbers
    from dask_dca.geometry.exact import Total
    from dask_dca.models.kalman.pieces import PieceBatch, PreparedFilter

    Sums = dict[str, Any]  # Total, except for the extremes' ArgBest

_PLANES_PER_STATE: Final = 5.0  # s = 5 k ln(k + 1)
_FLAT: Final = 1e-6  # anchor states closer than this to the span of the others are none


@dataclass(frozen=True)
class AnchorStates:
    """Axes for the state space.

    states (k, k): anchor states, a column each; indices (k,): their frames; -1 for an axis that no frame stands for;
    votes (k,): on how many directions each frame is extreme; bounds (k, 2): wilson's 95 % bounds on the shares.
    """

    states: Floats
    indices: Numbers
    votes: Numbers
    bounds: Floats
    n_directions: int


def state_directions(spread: Floats, n_directions: int | None, seed: int) -> Floats:
    """Draw directions of the state space: the divide step's.

    spread (k, k): covariance of the states; n_directions: number of directions s; None for 5 k ln(k + 1). Returns (k,
    s): a state's height on each.
    """
    k = len(spread)
    count = n_directions or max(1, math.ceil(_PLANES_PER_STATE * k * math.log(k + 1)))
    return _whitener(spread).T @ planes.directions("gaussian", seed, np.arange(count), np.ones(k)).T


def choose_anchor_states(extremes: ArgBest, spread: Floats) -> AnchorStates:
    """Choose k of the extreme states by successive projection: the conquer step.

    extremes (2 s,): the states of greatest, then of least height on each direction; spread (k, k): covariance of the
    states. Returns well-conditioned axes, most extreme first.
    """
    k, s = len(spread), len(extremes.rows) // 2
    whitener = _whitener(spread)
    numbers, where = np.unique(extremes.rows, return_index=True)
    white = extremes.values[where] @ whitener.T
    chosen = successive_projection(white, k)
    axes = white[chosen].T
    while axes.shape[1] and np.linalg.svd(axes, compute_uv=False)[-1] < _FLAT:
        chosen, axes = chosen[:-1], axes[:, :-1]
    if axes.shape[1] < k:  # fill up with directions that no frame stands for
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
    """Lower triangular, from states to coordinates of unit variance; directions without variance stay small."""
    least = 1e-12 * float(np.trace(spread)) / len(spread) or 1.0
    inverse: Floats = np.linalg.inv(np.linalg.cholesky(spread + least * np.eye(len(spread))))
    return inverse


_EXTREMES: Final = "extremes"
_MISSING: Final = "missing"  # the key under which a block says that it lacks entries
# Shares of a standard deviation that numbers are rounded to before they are summed. Where all sums are of products of
# the same rounded numbers, rounding acts as noise of a share 1e-9 of the variance, and nothing has to cancel.
_COARSE: Final = 2.0**-14
_FINE: Final = 2.0**-26
_LEAST_ERROR: Final = 2.0**-20
_RUN: Final = 1024


@dataclass(frozen=True)
class _State:
    """What a block needs."""

    tracker: PreparedFilter
    scale: Floats  # (k,): powers of two, about the standard deviations of the states
    directions: Floats  # (k, s): a state's height on each
    missing: bool
    full: bool  # sum the products of channels, not the squares alone
    second: bool  # sum them in this pass


@dataclass(frozen=True)
class SystemSums:
    """What one pass found.

    log_likelihood: of all frames; extremes (2 s,): frames of greatest, then of least height on each direction, with
    their smoothed states; errors, variances (p,): sums of squares of
    what is left of each channel after prediction one step ahead, and about its offset; counts (p,): frames in which
    each channel is not missing.
    """

    sums: StateSums
    log_likelihood: float
    extremes: ArgBest
    errors: Floats
    variances: Floats
    counts: Floats


def state_scale(tracker: PreparedFilter) -> Floats:
    """Choose the units in which sums over states are exact.

    Returns (k,): powers of two about the states' standard deviations.
    """
    system, steady = tracker.system, tracker.gains[1].predicted[0]
    spread = np.diagonal(system.initial_covariance) + np.diagonal(steady) + system.initial_mean**2
    return power_of_two(np.sqrt(np.maximum(spread, 0.0)))


def e_step_pass(
    rows: Rows,
    tracker: PreparedFilter,
    run: Run,
    *,
    missing: bool,
    full: bool,
    second: Floats | None,
    directions: Floats | None = None,
) -> SystemSums | None:
    """Run the smoother over all frames, sum what the M-step needs, and find the extreme states: the divide step.

    missing: whether entries may be missing; full: sum the products of channels, not the squares alone; second (p, p) or
    (p,): those sums, where an earlier pass found them; directions (k, s): a state's height on each. Returns None if an
    entry is missing after all.
    """
    k = tracker.system.n_dim_state
    heights = np.zeros((k, 0)) if directions is None else directions
    state = _State(tracker, state_scale(tracker), heights, missing, full, second is None)
    job: Pass[Sums] = Pass("refine", _block, merge_sums, tracker.cut.halo)
    total = run_pass(rows, job, state, run)
    if _MISSING in total:
        return None
    best: ArgBest = total.pop(_EXTREMES)
    found = {name: value.value() for name, value in total.items()}
    lengths = np.diff(tracker.cut.edges)
    every = found["every"].copy()
    parts = {"first": found["first"][:k, :k].copy(), "last": found["last"], "pairs": found["pairs"]}
    if not missing:
        unique, counts = np.unique(lengths, return_counts=True)
        own = smoothed_sums(tracker.system, tracker.observer.factor, tracker.gains[0], tracker.memory, unique, counts)
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
        seen=found["seen"].reshape(-1, k + 1, k + 1) if missing else None,
    )
    measures = (found[name] for name in ("errors", "squares", "counts"))
    return SystemSums(sums, float(found["log_likelihood"]), best, *measures)


def merge_sums(parts: Sequence[Sums]) -> Sums:
    """Add the sums of blocks.

    parts: sums by name; blocks in which no piece begins have none.
    """
    found: Sums = {}
    for part in parts:
        for name, value in part.items():
            found[name] = found[name] + value if name in found else value
    return found


def _block(state: _State, window: Window, *columns: Any) -> Sums:
    found: Sums = {}
    pieces = read_pieces(state.tracker, window, columns, missing=state.missing, keep=True)
    for chains in pieces:
        if not state.missing and np.isnan(chains.frames).any():
            return {_MISSING: plain_total(np.ones(1), 1.0)}
        found = merge_sums([found, _lacking_sums(state, chains) if state.missing else _complete_sums(state, chains)])
    return found


def _complete_sums(state: _State, chains: PieceBatch) -> Sums:
    batch, k = chains.batch, state.tracker.system.n_dim_state
    filtered, means = smooth_complete(state.tracker, chains)
    with_one = np.concatenate([means, np.ones((*means.shape[:2], 1))], axis=2)
    units = _COARSE * np.append(state.scale, 1.0)
    own, before = _neighbours(batch.own, batch.first, state.tracker.cut.burn_in)
    rows = np.zeros((len(batch.values), k + 1))
    rows[batch.index[batch.own]] = with_one[batch.own]
    begins, ends = with_one[state.tracker.cut.burn_in, batch.first], means[_ends(batch)]
    now, then = means[own], means[before]
    return {
        **_seen(state, chains, means, filtered.predicted),
        "every": product_total(rows, rows, units, units),
        "pairs": product_total(now, then, units[:k], units[:k]),
        "first": product_total(begins, begins, units, units),
        "last": product_total(ends, ends, units[:k], units[:k]),
        **_frame_sums(state, chains, rows, units),
        "log_likelihood": _likelihood(batch.own, filtered.log_density + chains.log_density),
    }


def _lacking_sums(state: _State, chains: PieceBatch) -> Sums:
    batch, k, begin = chains.batch, state.tracker.system.n_dim_state, state.tracker.cut.burn_in
    real = np.arange(len(batch.begins))  # covariances of empty pieces would cost as much
    filtered, smoothed = smooth_missing(state.tracker, chains, real)
    own, first, places = batch.own[:, real], batch.first[real], batch.index[:, real]
    means, scale = smoothed.means, np.append(state.scale, 1.0)
    with_one = np.concatenate([means, np.ones((*means.shape[:2], 1))], axis=2)
    products = with_one[..., :, None] * with_one[..., None, :]
    products[..., :k, :k] += smoothed.covariances
    unit = _FINE * np.multiply.outer(scale, scale)
    rows, second = np.zeros((len(batch.values), k + 1)), np.zeros((len(batch.values), (k + 1) ** 2))
    rows[places[own]] = with_one[own]
    second[places[own]] = products[own].reshape(-1, (k + 1) ** 2)
    later, before = _neighbours(own, first, begin)
    pairs = means[later][:, :, None] * means[before][:, None, :] + smoothed.lag_one[later]
    seen = (~np.isnan(chains.frames)).astype(np.float64)
    return {
        **_seen(state, chains, means, filtered.predicted),
        "every": plain_total(products[own], unit),
        "pairs": plain_total(pairs, unit[:k, :k]),
        "first": plain_total(products[begin, first], unit),
        "last": plain_total(products[_ends(batch)[:, real]][:, :k, :k], unit[:k, :k]),
        "seen": product_total(seen, second, np.ones(seen.shape[1]), unit.ravel()),
        **_frame_sums(state, chains, rows, _FINE * scale),
        "log_likelihood": _likelihood(own, filtered.log_density + chains.log_density[:, real]),
    }


def _seen(state: _State, chains: PieceBatch, means: Floats, predicted: Floats) -> Sums:
    """Frames of extreme states, and how well frames are predicted."""
    batch, system = chains.batch, state.tracker.system
    means, predicted = (
        np.pad(part, ((0, 0), (0, batch.own.shape[1] - part.shape[1]), (0, 0))) for part in (means, predicted)
    )
    heights = (means.reshape(-1, means.shape[2]) @ state.directions)[batch.own.ravel()]  # a product of one height
    places = batch.index[batch.own]
    order = np.argsort(places)
    keys, flat = np.hstack([heights, -heights])[order], means[batch.own][order]
    best = ArgBest.of_rows(keys, places[order] + batch.low, flat)
    states, there = np.zeros((len(batch.values), means.shape[2])), np.zeros(len(batch.values), dtype=bool)
    states[places], there[places] = predicted[batch.own], True
    centred = chains.frames - system.offset
    errors, seen = centred - row_products(states, system.observation), there[:, None] & ~np.isnan(centred)
    return {
        _EXTREMES: best,
        "errors": plain_total(np.where(seen, errors, 0.0) ** 2, _LEAST_ERROR),
        "squares": plain_total(np.where(seen, centred, 0.0) ** 2, _LEAST_ERROR),
        "counts": plain_total(seen.astype(np.float64), 1.0),
    }


def _neighbours(own: Mask, first: Mask, begin: int) -> tuple[Any, Any]:
    """Places of own frames that have a frame before them in their sequence, and of those frames."""
    later = own.copy()
    later[begin, first] = False
    steps, chains = np.nonzero(later)
    return (steps, chains), (steps - 1, chains)


def _ends(batch: Any) -> Any:
    """Places of the last frames of sequences."""
    following = np.zeros_like(batch.inside)
    following[:-1] = batch.inside[1:]
    return batch.own & batch.last & ~following


def _frame_sums(state: _State, chains: PieceBatch, rows: Floats, units: Floats) -> Sums:
    """Sums of products with frames, in runs of rows that stay in the cache."""
    fine = _FINE if state.missing else _COARSE
    grid = np.full(chains.frames.shape[1], fine)
    own = np.zeros(len(rows), dtype=bool)
    own[chains.batch.index[chains.batch.own]] = True
    found: Sums = {}
    for begin in range(0, len(rows), _RUN):
        some = slice(begin, begin + _RUN)
        frames = np.where(own[some, None], chains.frames[some], 0.0)
        if state.missing:
            frames = np.where(np.isnan(frames), 0.0, frames)
        sums = {"cross": product_total(frames, rows[some], grid, units)}
        if state.second:
            sums["second"] = product_total(frames, frames, grid, grid) if state.full else _squares(frames, fine)
        found = merge_sums([found, sums])
    return found


def _squares(values: Floats, unit: float) -> Total:
    """Sums of the squares of rounded values."""
    return plain_total((np.rint(values / unit) * unit) ** 2, unit**2)


def _likelihood(own: Mask, log_density: Floats) -> Total:
    return plain_total(np.where(own, log_density, 0.0).ravel(), 2.0**-20)
