"""The likeliest simplex around points that noise has moved.

A point is a mixture of the vertices with shares from a symmetric Dirichlet distribution, and Gaussian noise. Where the
noise is small against the simplex its density is, but for what does not depend on the simplex, the volume to the power
-1 times a factor for each face: with u the distance from the face in deviations of the noise, the integral of t^(a - 1)
times the normal density at u - t over all positive t. Many points near a face so tell where it is, noise averaged out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from scipy.interpolate import CubicHermiteSpline
from scipy.optimize import minimize
from scipy.special import gammaln, pbdv

from dask_dca.geometry.minimum_volume import lifted

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = ["likely_simplex"]

_CONCENTRATIONS: Final = (1.5, 1.0, 0.7, 0.5, 0.35)  # of the Dirichlet distribution: low where rows crowd at faces
_OUTSIDE: Final = -6.0  # deviations of the noise, beyond which a point weighs as one there: it may be no mixture
_INSIDE: Final = 25.0  # deviations from which noise does not matter
_GRID: Final = np.linspace(_OUTSIDE, _INSIDE, 621)
_COLLAPSED: Final = 0.5  # of the start's linear size: noise alone explains the points
_LEAST_NOISE: Final = 2.0**-10  # of the points' least deviation
_STEPS: Final = 500


@dataclass(frozen=True)
class _Points:
    """Points in affine coordinates (m, k), of deviation one, what a length is in these, and each point's noise (m,)."""

    lifted: Floats
    lengths: Floats
    noise: Floats


def likely_simplex(points: Floats, noise: Floats, start: Floats) -> Floats | None:
    """Find the likeliest simplex around points.

    points (m, k - 1); noise (m,): deviation of each in any direction; start (k, k - 1): vertices to start from.
    Returns vertices (k, k - 1), or None where there is no likeliest simplex: noise is too great against its size.
    The model is that of R. Wu et al., "Probabilistic simplex component analysis", IEEE TSP 2022, for shares that may
    crowd at the faces.
    """
    centre, spread = points.mean(axis=0), points.std(axis=0)
    if len(points) <= len(start) or not (spread > 0.0).all():
        return None
    least = _LEAST_NOISE * spread.min()
    near = _Points(lifted((points - centre) / spread), 1.0 / spread**2, np.maximum(noise, least))
    first = np.asarray(np.linalg.inv(lifted((start - centre) / spread)), dtype=np.float64)
    found = [_climb(near, first, concentration) for concentration in _CONCENTRATIONS]
    most = np.linalg.slogdet(first)[1] - (len(start) - 1) * np.log(_COLLAPSED)
    apart = [(cost, number) for number, (Q, cost) in enumerate(found) if np.linalg.slogdet(Q)[1] < most]
    if not apart:
        return None
    return np.linalg.inv(found[min(apart)[1]][0])[:, 1:] * spread + centre


def _climb(near: _Points, start: Floats, concentration: float) -> tuple[Floats, float]:
    """Go up from a simplex.

    start (k, k): what makes points barycentric coordinates; the last column is what makes them sum to one. Returns the
    same of the likeliest, and minus its log likelihood per point.
    """
    Z, k, power = near.lifted, len(start), concentration - 1.0
    barrier, ones = _barrier(concentration), np.eye(k)[:, :1]

    def complete(free: Floats) -> Floats:
        columns = free.reshape(k, k - 1)
        return np.hstack([columns, ones - columns.sum(axis=1, keepdims=True)])

    def cost(free: Floats) -> tuple[float, Floats]:
        Q = complete(free)
        sign, logarithm = np.linalg.slogdet(Q)
        if sign == 0.0 or not np.isfinite(logarithm):
            return np.inf, np.zeros_like(free)
        steepness = np.sqrt((Q[1:] ** 2 * near.lengths[:, None]).sum(axis=0))
        away = (Z @ Q) / (near.noise[:, None] * steepness)
        values, slopes = _logarithms(away, barrier, power)
        likelihood = logarithm + values.sum() / len(Z) + power * float(np.log(steepness).sum())
        slope = Z.T @ (slopes / near.noise[:, None]) / (steepness * len(Z)) + np.linalg.inv(Q).T
        turn = power - (slopes * away).sum(axis=0) / len(Z)
        slope[1:] += turn * Q[1:] * near.lengths[:, None] / steepness**2
        return -likelihood, (slope[:, -1:] - slope[:, :-1]).ravel()

    found = minimize(cost, start[:, :-1].ravel(), jac=True, method="L-BFGS-B", options={"maxiter": _STEPS})
    constant = power * k * np.log(near.noise).mean() + gammaln(k * concentration) - k * gammaln(concentration)
    return complete(found.x), float(found.fun - constant)


def _barrier(concentration: float) -> Floats:
    """Tabulate the logarithm of a face's factor, a parabolic cylinder function: a cubic from each point of the grid."""
    D, slopes = pbdv(-concentration, -_GRID)
    values = np.log(D) - _GRID**2 / 4.0 + gammaln(concentration) - 0.5 * np.log(2.0 * np.pi)
    return np.ascontiguousarray(CubicHermiteSpline(_GRID, values, -_GRID / 2.0 - slopes / D).c.T)


def _logarithms(away: Floats, barrier: Floats, power: float) -> tuple[Floats, Floats]:
    """Logarithms of the factors, and their slopes: as they are between the bounds, then straight, or a power."""
    near = np.clip(away, _OUTSIDE, _INSIDE)
    cell = np.minimum(((near - _OUTSIDE) / (_GRID[1] - _GRID[0])).astype(np.intp), len(barrier) - 1)
    x, (c3, c2, c1, c0) = near - _GRID[cell], np.moveaxis(barrier[cell], -1, 0)
    slopes = np.where(away > _INSIDE, power / np.maximum(away, _INSIDE), (3.0 * c3 * x + 2.0 * c2) * x + c1)
    beyond = np.where(away < _OUTSIDE, slopes * (away - near), power * np.log(np.maximum(away / _INSIDE, 1.0)))
    return ((c3 * x + c2) * x + c1) * x + c0 + beyond, slopes
