"""The start of a fit from a sample of frames: coordinates, canonical states, a system by least squares.

Canonical variate analysis (Larimore, 1990; van Overschee and de Moor, Subspace identification, 1996): the state is what
the past tells of the future.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from scipy.special import ndtri

from dask_dca.geometry.planes import child_seeds, uniforms
from dask_dca.models.kalman.system import LinearSystem, symmetric, without_growth

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Numbers = NDArray[np.int64]

__all__ = [
    "WIDEST",
    "Canonical",
    "SystemStart",
    "canonical_states",
    "discriminant",
    "positive_part",
    "start_from_frames",
    "start_system",
]

_LEAST: Final = 1e-10  # of a covariance's greatest eigenvalue: less is nothing
_LAGS: Final = 3  # autocovariances that decide the variance of the state
WIDEST: Final = 1024  # channels up to which covariances of p x p are formed
_DEPTH: Final = 8  # frames of past and of future, L
_MOST_DIRECTIONS: Final = 12  # coordinates that an unknown number of states is looked for in
_START_LAGS: Final = (1, 2)


@dataclass(frozen=True)
class Canonical:
    """What the past tells of the future.

    correlations (m,): canonical correlations, decreasing; states (m, L d): from past frames, oldest first, to states of
    unit variance.
    """

    correlations: Floats
    states: Floats


def positive_part(matrix: Floats, least: float = 0.0) -> Floats:
    """Return the nearest covariance to a symmetric matrix.

    matrix (k, k): symmetric; least: smallest eigenvalue of the result. Returns (k, k): with no eigenvalue below
    `least`.
    """
    values, vectors = np.linalg.eigh(symmetric(matrix))
    return symmetric((vectors * np.maximum(values, least)) @ vectors.T)


def discriminant(covariance: Floats, lagged: list[Floats], n_directions: int, ridge: float) -> Floats:
    """Find the directions of frames that their neighbours tell of.

    Noise is independent between frames: with H = S^{-1/2}, the columns of H [C_1, C_1^T, C_2, C_2^T] H lie in the span
    of S^{-1/2} O, and S^{-1} O spans what R^{-1} O does, which is all that matters of a frame.
    covariance (p, p): S; lagged (p, p): C_l, covariances of frames l apart; ridge: share of each variance that is added
    to it. Returns (p, d): W: z = W^T (x - mu) has about unit variance.
    """
    own = np.diagonal(covariance)
    scale = np.sqrt(np.where(own > 0.0, own, 1.0))
    values, vectors = np.linalg.eigh(symmetric(covariance) / np.multiply.outer(scale, scale) + ridge * np.eye(len(own)))
    roots = np.where(values > max(_LEAST, ridge / 2) * values[-1], values, np.inf) ** -0.5
    half = (vectors * roots) @ vectors.T / scale
    products = [half @ C @ half.T for C in lagged]
    left = np.linalg.svd(np.hstack([side for C in products for side in (C, C.T)]), full_matrices=False)[0]
    return np.ascontiguousarray(half.T @ left[:, :n_directions])


def canonical_states(window: Floats, half: int) -> Canonical:
    """Correlate the past with the future.

    window (2 L d, 2 L d): second moment of (z_{t-L}, ..., z_{t+L-1}). Returns correlations, and the states that have
    them.
    """
    past, future = _inverse_root(window[:half, :half]), _inverse_root(window[half:, half:])
    _, correlations, right = np.linalg.svd(future @ window[half:, :half] @ past)
    return Canonical(np.minimum(correlations, 1.0), right @ past)


def _inverse_root(covariance: Floats) -> Floats:
    values, vectors = np.linalg.eigh(symmetric(covariance))
    return (vectors * np.where(values > _LEAST * values[-1], values, np.inf) ** -0.5) @ vectors.T


def start_system(
    states: Floats,
    window: Floats,
    n_directions: int,
    cross: Floats,
    covariance: Floats,
    offset: Floats,
    *,
    diagonal: bool,
) -> LinearSystem:
    """Solve for all parameters by least squares on moments.

    states (k, L d): the first k rows of `Canonical.states`; window (2 L d, 2 L d): second moment of (z_{t-L}, ...,
    z_{t+L-1}); cross (p, L d): products of x_t - mu and (z_{t-L}, ..., z_{t-1}), their mean; covariance (p, p) or (p,):
    covariance of the frames, or its diagonal; offset (p,): the mean, mu; diagonal: of R, keep the diagonal alone.
    Returns with independent noises, so that its states vary more than what is known of them from the past.
    """
    k, half = states.shape
    d = n_directions
    observation = cross @ states.T
    transition = without_growth(states @ window[d : half + d, :half] @ states.T)
    variance = _state_variance(states, window, transition, d)
    noise = positive_part(variance - transition @ variance @ transition.T, _LEAST * np.trace(variance))
    own = observation @ variance
    if covariance.ndim == 1 or diagonal:
        whole = covariance if covariance.ndim == 1 else np.diagonal(covariance)
        rest = np.maximum(whole - (own * observation).sum(axis=1), 0.05 * whole)
    else:
        rest = _remaining(covariance, own @ observation.T)
    return LinearSystem(transition, observation, noise, rest, np.zeros(k), variance, offset)


def _state_variance(states: Floats, window: Floats, transition: Floats, d: int) -> Floats:
    """Pi with Gamma_l = C T^l Pi C^T for the autocovariances Gamma of z; at least the identity, which is known."""
    half = states.shape[1]
    depth = half // d
    inverse = np.linalg.pinv(window[half : half + d, :half] @ states.T)
    left, right, power = [], [], np.eye(len(states))
    for lag in range(1, min(_LAGS, 2 * depth - 1) + 1):
        blocks = [window[i * d + lag * d : i * d + lag * d + d, i * d : i * d + d] for i in range(2 * depth - lag)]
        power = transition @ power
        left.append(power)
        right.append(inverse @ np.mean(blocks, axis=0) @ inverse.T)
    known = np.eye(len(states))
    found = np.linalg.lstsq(np.vstack(left), np.vstack(right), rcond=1e-6)[0]
    return known + positive_part(symmetric(found) - known)


def _remaining(covariance: Floats, explained: Floats) -> Floats:
    """What is left of a covariance; at least a twentieth of every direction."""
    own = np.diagonal(covariance)
    scale = np.sqrt(np.where(own > 0.0, own, 1.0))
    return positive_part(covariance - explained, 1e-6 * float((scale**2).mean()))


@dataclass(frozen=True)
class SystemStart:
    """Where a fit starts.

    correlations (m,): canonical correlations of past and future, decreasing.
    """

    system: LinearSystem
    correlations: Floats


def start_from_frames(
    frames: Floats, edges: Numbers, n_dim_state: int | None, centre: Floats, *, diagonal: bool
) -> SystemStart:
    """Learn a linear dynamical system without iterations.

    frames (n, p): frames less their centre, missing entries zero; edges (m + 1,): first frame of each sequence, and the
    number of frames; n_dim_state: number of state dimensions k; None to choose it by Bauer's criterion; centre (p,):
    what was taken off; diagonal: of R, keep the diagonal alone. Returns the system. Its k may be below `n_dim_state`
    where the frames are too few to tell that many apart.
    """
    n, p = frames.shape
    d = min(p, n_dim_state or _MOST_DIRECTIONS)
    directions = _coordinates(frames, edges, d)
    z = frames @ directions
    depth = _depth(edges, n_dim_state or 1, d)
    begins = np.concatenate([np.arange(a, max(b - 2 * depth + 1, a)) for a, b in itertools.pairwise(edges)]).astype(
        np.int64
    )
    windows = np.hstack([z[begins + i] for i in range(2 * depth)])
    window = windows.T @ windows / max(len(begins), 1)
    cross = frames[begins + depth].T @ windows[:, : depth * d] / max(len(begins), 1)
    canonical = canonical_states(window, depth * d)
    k = n_dim_state or _choose(canonical.correlations, len(begins), d)
    covariance = (frames**2).sum(axis=0) / n if diagonal else frames.T @ frames / n
    states = canonical.states[: min(k, depth * d)]
    return SystemStart(
        start_system(states, window, d, cross, covariance, centre, diagonal=diagonal), canonical.correlations
    )


def _coordinates(frames: Floats, edges: Numbers, d: int) -> Floats:
    n, p = frames.shape
    which = np.repeat(np.arange(len(edges) - 1), np.diff(edges))
    earlier = [np.flatnonzero(which[:-lag] == which[lag:]) for lag in _START_LAGS]
    if p <= WIDEST:
        lagged = [
            frames[t].T @ frames[t + lag] / max(len(t), 1)
            for t, lag in zip(earlier, _START_LAGS, strict=True)
            if len(t)
        ]
        return discriminant(frames.T @ frames / n, lagged or [np.zeros((p, p))], d, 1e-6 if n > 10 * p else 0.1)
    return _wide_coordinates(frames, earlier, d)


def _wide_coordinates(frames: Floats, earlier: list[NDArray[np.intp]], d: int) -> Floats:
    """The same with the variances alone for a metric, and neighbours seen through a few random columns."""
    variances = (frames**2).mean(axis=0)
    scale = np.where(variances > 0.0, variances, np.inf) ** -0.5
    draws = ndtri(uniforms(child_seeds(0, np.arange(len(scale))), 2 * d + 10))
    seen = frames @ (draws * scale[:, None])
    sides = []
    for t, lag in zip(earlier, _START_LAGS, strict=True):
        sides += [frames[t].T @ seen[t + lag], frames[t + lag].T @ seen[t]]
    left = np.linalg.svd(np.hstack(sides) * scale[:, None], full_matrices=False)[0]
    return left[:, :d] * scale[:, None]


def _depth(edges: Numbers, k: int, d: int) -> int:
    """L: at most 8 (more where there are fewer channels than states), and enough windows of 2 L frames."""
    lengths = np.diff(edges)
    depth = max(_DEPTH, 2 * -(-k // d))
    while depth > 1 and np.maximum(lengths - 2 * depth + 1, 0).sum() < max(0.4 * lengths.sum(), 4 * depth * d):
        depth -= 1
    return depth


def _choose(correlations: Floats, n_windows: int, d: int) -> int:
    """Number of states by Bauer's criterion (Order estimation for subspace methods, Automatica 37, 2001)."""
    penalty = np.log(max(n_windows, 2)) * 2 * d / max(n_windows, 1)
    scores = np.append(correlations, 0.0) ** 2 + penalty * np.arange(len(correlations) + 1)
    return max(1, int(scores.argmin()))
