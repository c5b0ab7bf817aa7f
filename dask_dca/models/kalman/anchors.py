"""Anchor states: frames whose smoothed states are extreme, which become the axes of the state space."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from dask_dca.geometry import planes, votes
from dask_dca.geometry.solvers import successive_projection

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Numbers = NDArray[np.int64]

__all__ = ["AnchorStates", "StateExtremes", "choose_anchor_states", "state_directions"]

_PLANES_PER_STATE: Final = 5.0  # s = 5 k ln(k + 1)
_FLAT: Final = 1e-6  # anchor states closer than this to the span of the others are none


@dataclass(frozen=True)
class StateExtremes:
    """The frames of greatest, then of least height on each direction, and their smoothed states.

    rows (2 s,); states (2 s, k).
    """

    rows: Numbers
    states: Floats


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


def choose_anchor_states(extremes: StateExtremes, spread: Floats) -> AnchorStates:
    """Choose k of the extreme states by successive projection: the conquer step.

    spread (k, k): covariance of the states. Returns well-conditioned axes, most extreme first.
    """
    k, s = len(spread), len(extremes.rows) // 2
    whitener = _whitener(spread)
    numbers, where = np.unique(extremes.rows, return_index=True)
    white = extremes.states[where] @ whitener.T
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
