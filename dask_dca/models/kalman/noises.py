"""Independent noises of states and frames for a given gain and given innovations.

Subspace methods learn the innovations form of a system, s_{t+1} = T s_t + K e_t and x_t = mu + O s_t + e_t, where one
noise e ~ N(0, V) moves states and frames. A Kalman filter has two that don't depend on each other, w ~ N(0, Q) and
v ~ N(0, R). Its steady state is an innovations form too: with P, what is not known of a state before its frame is seen,
K V = T P O^T and V = O P O^T + R. So K and V give P O^T, and what of V is not noise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from scipy.linalg import solve_triangular

from dask_dca.models.kalman.system import positive_part, symmetric

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = ["Innovations", "independent_noises"]

_KNOWN: Final = (0.02, 0.9)  # shares of an innovation's variance that may be the state's


@dataclass(frozen=True)
class Innovations:
    """A system in innovations form.

    transition (k, k): T; observation (p, k): O; shared (k, p): K V, the covariance of what is new in the next state and
    in a frame; covariance (p, p) or (p,): V, or its diagonal.
    """

    transition: Floats
    observation: Floats
    shared: Floats
    covariance: Floats


def independent_noises(form: Innovations) -> tuple[Floats, Floats]:
    """Find Q and R whose steady filter is near an innovations form, with its T and O.

    Returns Q (k, k) and R, of the shape of V: a start for expectation-maximisation.
    """
    whole = form.covariance
    if whole.ndim == 1:
        root = np.sqrt(whole)
        left, factor = np.linalg.qr(form.observation / root[:, None])
        gain = form.shared / root @ left
    else:
        lower = np.linalg.cholesky(whole)
        left, factor = np.linalg.qr(solve_triangular(lower, form.observation, lower=True))
        gain = solve_triangular(lower, form.shared.T, lower=True).T @ left
    noise, seen = _split(form.transition, factor, gain)
    less = np.eye(len(seen)) - seen  # of the innovations, what the state's is
    if whole.ndim == 1:
        return noise, whole * np.maximum(1.0 - ((left @ less) * left).sum(axis=1), 0.0)
    known = lower @ left
    return noise, symmetric(whole - known @ less @ known.T)


def _split(transition: Floats, factor: Floats, gain: Floats) -> tuple[Floats, Floats]:
    """Where V = I: P F^T = T^-1 K, with what it has of the innovations clipped; and Q, R from P."""
    shared = np.linalg.lstsq(transition, gain, rcond=1e-3)[0]
    values, vectors = np.linalg.eigh(symmetric(factor @ shared))
    values = np.clip(values, *_KNOWN)
    own = shared @ vectors
    predicted = (own / values) @ own.T
    ahead = predicted @ factor.T
    noise = predicted - transition @ (predicted - ahead @ ahead.T) @ transition.T
    least = 1e-3 * float((gain**2).sum()) / len(gain)
    return positive_part(noise, least), np.eye(len(factor)) - (vectors * values) @ vectors.T
