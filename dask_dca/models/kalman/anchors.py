"""Anchor states: frames whose smoothed states are extreme, which become the axes of the state space."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dask_dca.engine.passes import Pass, run_pass
from dask_dca.engine.types import add_parts
from dask_dca.geometry import planes, votes
from dask_dca.geometry.arg_best import ArgBest
from dask_dca.geometry.exact import plain_total
from dask_dca.geometry.solvers import successive_projection
from dask_dca.models.kalman.passes import read_pieces, smooth_complete, smooth_missing
from dask_dca.models.kalman.system import row_products

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from dask_dca.engine.halo import Window
    from dask_dca.engine.passes import Run
    from dask_dca.engine.rows import Rows
    from dask_dca.geometry.exact import Total
    from dask_dca.models.kalman.passes import PieceBatch, PreparedFilter

    Floats = NDArray[np.float64]
    Numbers = NDArray[np.int64]

__all__ = ["AnchorStates", "StateExtremes", "choose_anchor_states", "extreme_states"]

_FINE: Final = 2.0**-20
_PLANES_PER_STATE: Final = 5.0  # s = 5 k ln(k + 1)
_FLAT: Final = 1e-6  # anchor states closer than this to the span of the others are none


@dataclass(frozen=True)
class _State:
    tracker: PreparedFilter
    vectors: Floats  # (k, s): a state's height on each direction
    missing: bool


@dataclass(frozen=True)
class _ExtremesAndSums:
    """What some blocks gave: the frames of extreme states, with these (2 s, k), and sums."""

    extremes: ArgBest  # (2 s,)
    totals: dict[str, Total]

    def __add__(self, other: _ExtremesAndSums) -> _ExtremesAndSums:
        totals = {name: total + other.totals[name] for name, total in self.totals.items()}
        return _ExtremesAndSums(self.extremes + other.extremes, totals)


@dataclass(frozen=True)
class StateExtremes:
    """What the last pass saw.

    rows (2 s,): frames of greatest, then of least height on each direction; states (2 s, k): their smoothed states;
    errors, variances (p,): sums of squares of what is left of each channel after prediction one step ahead, and about
    its offset; counts (p,): frames in which each channel is not missing.
    """

    rows: Numbers
    states: Floats
    log_likelihood: float
    errors: Floats
    variances: Floats
    counts: Floats


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


def extreme_states(
    rows: Rows, tracker: PreparedFilter, spread: Floats, n_directions: int | None, seed: int, run: Run, *, missing: bool
) -> StateExtremes:
    """Find the extreme states on random directions, and how well frames are predicted: the divide pass.

    spread (k, k): second moment of the states; n_directions: number of directions s; None for 5 k ln(k + 1); missing:
    whether entries may be missing.
    """
    k = tracker.system.n_dim_state
    count = n_directions or max(1, math.ceil(_PLANES_PER_STATE * k * math.log(k + 1)))
    drawn = planes.directions("gaussian", seed, np.arange(count), np.ones(k))
    state = _State(tracker, _whitener(spread).T @ drawn.T, missing)
    job: Pass[_ExtremesAndSums | None] = Pass("divide", _block, _merge, tracker.cut.halo)
    found = run_pass(rows, job, state, run)
    assert found is not None
    values = {name: total.value() for name, total in found.totals.items()}
    likelihood, best = float(values["log_likelihood"]), found.extremes
    return StateExtremes(best.rows, best.values, likelihood, values["errors"], values["squares"], values["counts"])


def choose_anchor_states(look: StateExtremes, spread: Floats) -> AnchorStates:
    """Choose k of the extreme states by successive projection: the conquer step.

    spread (k, k): second moment of the states. Returns well-conditioned axes, most extreme first.
    """
    k, s = len(spread), len(look.rows) // 2
    whitener = _whitener(spread)
    numbers, where = np.unique(look.rows, return_index=True)
    white = look.states[where] @ whitener.T
    chosen = successive_projection(white, k)
    axes = white[chosen].T
    while axes.shape[1] and np.linalg.svd(axes, compute_uv=False)[-1] < _FLAT:
        chosen, axes = chosen[:-1], axes[:, :-1]
    if axes.shape[1] < k:  # fill up with directions that no frame stands for
        axes = np.hstack([axes, np.linalg.qr(axes, mode="complete")[0][:, axes.shape[1] :]])
    histogram = dict(zip(*(part.tolist() for part in votes.count_votes(look.rows[s:], look.rows[:s])), strict=True))
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


def _block(state: _State, window: Window, *columns: Any) -> _ExtremesAndSums | None:
    found: _ExtremesAndSums | None = None
    for chains in read_pieces(state.tracker, window, columns, missing=state.missing, keep=True):
        batch = chains.batch
        if state.missing:
            real = np.arange(len(batch.begins))
            lacking, smooth = smooth_missing(state.tracker, chains, real)
            means, predicted, density = (np.zeros(shape) for shape in (chains.y.shape,) * 2 + (batch.own.shape,))
            means[:, real], predicted[:, real] = smooth.means, lacking.predicted
            density[:, real] = lacking.log_density
        else:
            filtered, means = smooth_complete(state.tracker, chains)
            predicted, density = filtered.predicted, filtered.log_density
        totals = _totals(state, chains, predicted, density + chains.log_density)
        found = _merge([found, _extremes(state, chains, means, totals)])
    return found


def _extremes(state: _State, chains: PieceBatch, means: Floats, totals: dict[str, Total]) -> _ExtremesAndSums:
    batch = chains.batch
    own, numbers = batch.own.ravel(), (batch.index + batch.low).ravel()
    flat = means.reshape(-1, means.shape[2])
    heights = flat @ state.vectors
    some = np.flatnonzero(own)[np.argsort(numbers[own])]
    signed = np.hstack([heights[some], -heights[some]])
    return _ExtremesAndSums(ArgBest.of_rows(signed, numbers[some], flat[some]), totals)


def _totals(state: _State, chains: PieceBatch, predicted: Floats, density: Floats) -> dict[str, Total]:
    batch, system = chains.batch, state.tracker.system
    states = np.zeros((len(batch.values), predicted.shape[2]))
    states[batch.index[batch.own]] = predicted[batch.own]
    own = np.zeros(len(states), dtype=bool)
    own[batch.index[batch.own]] = True
    centred = chains.frames - system.offset
    errors = centred - row_products(states, system.observation)
    seen = own[:, None] & ~np.isnan(centred)
    return {
        "errors": plain_total(np.where(seen, errors, 0.0) ** 2, _FINE),
        "squares": plain_total(np.where(seen, centred, 0.0) ** 2, _FINE),
        "counts": plain_total(seen.astype(np.float64), 1.0),
        "log_likelihood": plain_total(np.where(batch.own, density, 0.0).ravel(), _FINE),
    }


def _merge(parts: Sequence[_ExtremesAndSums | None]) -> _ExtremesAndSums | None:
    found = [part for part in parts if part is not None]
    return add_parts(found) if found else None
