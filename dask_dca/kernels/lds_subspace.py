"""The start of a fit: a linear dynamical system from moments of successive frames alone, without iterations.

Canonical variate analysis (Larimore, 1990; van Overschee and de Moor, Subspace identification, 1996): the state is what
the past tells of the future.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from dask_dca.kernels.lds_system import LinearSystem, symmetric, without_growth

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = ["Canonical", "canonical_states", "discriminant", "positive_part", "start_system"]

_LEAST: Final = 1e-10  # of a covariance's greatest eigenvalue: less is nothing
_LAGS: Final = 3  # autocovariances that decide the variance of the state


@dataclass(frozen=True)
class Canonical:
    """
    What the past tells of the future.

    Attributes
    ----------
    correlations : ndarray of float64, shape (m,)
        Canonical correlations, decreasing.
    states : ndarray of float64, shape (m, L d)
        From past frames, oldest first, to states of unit variance.
    """

    correlations: Floats
    states: Floats


def positive_part(matrix: Floats, least: float = 0.0) -> Floats:
    """
    Return the nearest covariance to a symmetric matrix.

    Parameters
    ----------
    matrix : ndarray of float64, shape (k, k)
        Symmetric.
    least : float, default 0.0
        Smallest eigenvalue of the result.

    Returns
    -------
    ndarray of float64, shape (k, k)
        With no eigenvalue below `least`.

    Examples
    --------
    >>> positive_part(np.diag([1.0, -1.0])).tolist()
    [[1.0, 0.0], [0.0, 0.0]]
    """
    values, vectors = np.linalg.eigh(symmetric(matrix))
    return symmetric((vectors * np.maximum(values, least)) @ vectors.T)


def discriminant(covariance: Floats, lagged: list[Floats], n_directions: int, ridge: float) -> Floats:
    """
    Find the directions of frames that their neighbours tell of.

    Noise is independent between frames: with H = S^{-1/2}, the columns of H [C_1, C_1^T, C_2, C_2^T] H lie in the span
    of S^{-1/2} O, and S^{-1} O spans what R^{-1} O does, which is all that matters of a frame.

    Parameters
    ----------
    covariance : ndarray of float64, shape (p, p)
        S.
    lagged : list of ndarray of float64, shape (p, p)
        C_l, covariances of frames l apart.
    n_directions : int
        How many directions d.
    ridge : float
        Share of each variance that is added to it.

    Returns
    -------
    ndarray of float64, shape (p, d)
        W: z = W^T (x - mu) has about unit variance.
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
    """
    Correlate the past with the future.

    Parameters
    ----------
    window : ndarray of float64, shape (2 L d, 2 L d)
        Second moment of (z_{t-L}, ..., z_{t+L-1}).
    half : int
        L d.

    Returns
    -------
    Canonical
        Correlations, and the states that have them.
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
    """
    Solve for all parameters by least squares on moments.

    Parameters
    ----------
    states : ndarray of float64, shape (k, L d)
        The first k rows of `Canonical.states`.
    window : ndarray of float64, shape (2 L d, 2 L d)
        Second moment of (z_{t-L}, ..., z_{t+L-1}).
    n_directions : int
        Numbers a frame, d.
    cross : ndarray of float64, shape (p, L d)
        Products of x_t - mu and (z_{t-L}, ..., z_{t-1}), their mean.
    covariance : ndarray of float64, shape (p, p) or (p,)
        Covariance of the frames, or its diagonal.
    offset : ndarray of float64, shape (p,)
        The mean, mu.
    diagonal : bool
        Of R, keep the diagonal alone.

    Returns
    -------
    LinearSystem
        With independent noises, so that its states vary more than what is known of them from the past.
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
