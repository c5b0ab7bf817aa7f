"""The start of a fit, from a sample of frames: coordinates, canonical states, and a system by least squares."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from scipy.special import ndtri

from dask_dca.geometry.planes import child_seeds, uniforms
from dask_dca.kernels.lds_subspace import canonical_states, discriminant, start_system

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dask_dca.kernels.lds_system import LinearSystem

    Floats = NDArray[np.float64]
    Numbers = NDArray[np.int64]

__all__ = ["WIDEST", "Start", "start_from_frames"]

WIDEST: Final = 1024  # channels up to which covariances of p x p are formed
_DEPTH: Final = 8  # frames of past and of future, L
_MOST_DIRECTIONS: Final = 12  # coordinates that an unknown number of states is looked for in
_LAGS: Final = (1, 2)


@dataclass(frozen=True)
class Start:
    """
    Where a fit starts.

    Attributes
    ----------
    system : LinearSystem
        The parameters.
    correlations : ndarray of float64, shape (m,)
        Canonical correlations of past and future, decreasing.
    """

    system: LinearSystem
    correlations: Floats


def start_from_frames(
    frames: Floats, edges: Numbers, n_dim_state: int | None, centre: Floats, *, diagonal: bool
) -> Start:
    """
    Learn a linear dynamical system without iterations.

    Parameters
    ----------
    frames : ndarray of float64, shape (n, p)
        Frames less their centre, missing entries zero.
    edges : ndarray of int64, shape (m + 1,)
        First frame of each sequence, and the number of frames.
    n_dim_state : int or None
        Number of state dimensions k; None to choose it by Bauer's criterion.
    centre : ndarray of float64, shape (p,)
        What was taken off.
    diagonal : bool
        Of R, keep the diagonal alone.

    Returns
    -------
    Start
        The system. Its k may be below `n_dim_state` where the frames are too few to tell so many apart.
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
    return Start(start_system(states, window, d, cross, covariance, centre, diagonal=diagonal), canonical.correlations)


def _coordinates(frames: Floats, edges: Numbers, d: int) -> Floats:
    n, p = frames.shape
    which = np.repeat(np.arange(len(edges) - 1), np.diff(edges))
    earlier = [np.flatnonzero(which[:-lag] == which[lag:]) for lag in _LAGS]
    if p <= WIDEST:
        lagged = [
            frames[t].T @ frames[t + lag] / max(len(t), 1) for t, lag in zip(earlier, _LAGS, strict=True) if len(t)
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
    for t, lag in zip(earlier, _LAGS, strict=True):
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
