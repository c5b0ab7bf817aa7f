"""Simplices: least squares over a simplex, the minimum-volume simplex, and the maximum-likelihood simplex.

Active-set methods (`geometry.nnls`) are exact, but slow where tens of vertices lie close together. The first-order
method here gives topics to three digits in a fixed number of steps, which is more than word counts determine.

With points in affine coordinates z = (1, y) and vertices as the rows of V, the barycentric coordinates of points Z are
Z Q with Q = V^-1. The volume is least where log |det Q| is greatest; points with no negative coordinate are inside.

The likelihood model: a point is a mixture of the vertices with shares from a symmetric Dirichlet distribution of
concentration a, plus Gaussian noise. Where the noise is small against the simplex, its density is proportional to
1 / volume times a factor for each face: the integral over t > 0 of t^(a - 1) times the normal density at u - t, where u
is the distance from the face in standard deviations of the noise. Many points near a face thus average out the noise.

Points near a vertex may be rarer than in that distribution, so that faces have fewer points than their size suggests.
Densities are therefore multiplied by exp(-r s), where s is the sum of the eighth powers of the shares and r >= 0
maximises the likelihood; the normalisation is estimated from random shares.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from operator import itemgetter
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import CubicHermiteSpline
from scipy.optimize import minimize
from scipy.special import gammaln, pbdv

from dask_dca.geometry.arrays import Floats, Mask
from dask_dca.geometry.exact import Workspace

Reals = NDArray[np.floating]

SLAB_ROWS: Final = 2048  # targets per slab; parts of a multiple of it have the same bits as the whole
_MAX_NEWTON_STEPS: Final = 20  # greatest number of Newton steps; three or four are usual
_STEP_TOL: Final = 1e-6  # change of the coefficients in a step below which the descent ends


def project_to_simplex(columns: Reals, likely: Mask | None = None, space: Workspace | None = None) -> Reals:
    """Project columns (k, n) onto the probability simplex.

    The threshold is the root of a convex piecewise linear function, which Newton's method finds in a few steps from the
    left (C. Michelot, Journal of Optimization Theory and Applications 50, 1986).
    likely (k, n): entries that are probably positive, at least one per column, to start from; space: reused buffers.
    Returns (k, n), in the memory of `columns` if there is a space.
    """
    one, threshold = np.ones(len(columns), columns.dtype), np.full(columns.shape[1], -np.inf, columns.dtype)
    found, space = np.empty_like(columns) if space is None else columns, space or Workspace()
    above, part = (space.array(name, *columns.shape, dtype=columns.dtype) for name in ("above", "part"))
    above[:] = True if likely is None else likely
    for _ in range(_MAX_NEWTON_STEPS):
        moved = (one @ np.multiply(columns, above, out=part) - 1.0) / np.maximum(one @ above, 1.0)
        if np.all(moved <= threshold):
            break
        threshold = np.maximum(moved, threshold)
        np.greater(columns, threshold, out=above)
    np.subtract(columns, threshold, out=found)
    return np.maximum(found, 0.0, out=found)


def simplex_descent(targets: Floats, vertices: Floats, start: Floats | None = None, n_steps: int = 200) -> Floats:
    """Minimise |r_i - b_i V|^2 over the simplex for every target r_i, in Gram form and single precision.

    targets (n, d): rows R; vertices (k, d): V; start (n, k): coefficients to start from, by default the centre;
    n_steps: greatest number of steps of Nesterov's method. Returns coefficients B (n, k) on the simplex.
    A. Beck, M. Teboulle, "A fast iterative shrinkage-thresholding algorithm for linear inverse problems", SIAM Journal
    on Imaging Sciences 2, 2009.
    """
    centre = vertices.mean(axis=0)
    spread = vertices - centre
    gram = spread @ spread.T
    curvature = max(float(np.linalg.eigvalsh(gram)[-1]), 1e-300)
    gram = (gram / curvature).astype(np.float32)
    B = np.full((len(targets), len(vertices)), 1.0 / len(vertices)) if start is None else start.copy()
    space = Workspace()
    for begin in range(0, len(targets), SLAB_ROWS):
        part = slice(begin, begin + SLAB_ROWS)
        products = (spread @ (targets[part] - centre).T / curvature).astype(np.float32)
        B[part] = _descend(np.ascontiguousarray(B[part].T, dtype=np.float32), gram, products, n_steps, space).T
    return B


def _descend(B: Reals, gram: Reals, products: Reals, n_steps: int, space: Workspace) -> Reals:
    """Do accelerated projected gradient steps of length one on columns (k, n), restarted where they go uphill."""
    ahead, moved, step, way = (space.array(name, *B.shape, dtype=B.dtype) for name in ("ahead", "moved", "step", "way"))
    pace, ahead[:] = 1.0, B
    for _ in range(n_steps):
        np.subtract(ahead, np.matmul(gram, ahead, out=moved), out=moved)
        moved += products
        project_to_simplex(moved, B > 0.0, space)
        np.subtract(moved, B, out=step)
        B, moved = moved, B
        if np.abs(step, out=way).max(initial=0.0) < _STEP_TOL:
            break
        np.subtract(ahead, B, out=way)
        if float(np.multiply(way, step, out=way).sum()) > 0.0:  # uphill: O'Donoghue and Candes' adaptive restart
            pace = 1.0
        faster = 0.5 * (1.0 + math.sqrt(1.0 + 4.0 * pace**2))
        np.multiply(np.float32((pace - 1.0) / faster), step, out=ahead)
        ahead += B
        pace = faster
    return B


_PENALTY: Final = 2.0  # weight of the squares of negative coordinates beyond the slack, divided by the mean slack
# greatest weight of the penalty in each round, the first one also the least; the slack is updated in each round
_PENALTIES: Final = (200.0, 2_000.0, 20_000.0)
_MIN_SLACK: Final = 1e-4  # least slack: negative coordinates of up to the slack are not penalised
_START_SCALE: Final = 1.1  # factor by which the simplex to start from is enlarged about its centre
_MAX_ITER: Final = 500  # iterations of L-BFGS
_MIN_WIDTH_RATIO: Final = 1e-9  # ratio of singular values of the start below which it counts as flat


@dataclass(frozen=True)
class Simplex:
    """A simplex around points.

    vertices (k, k - 1); growth: linear size relative to that of the start; outside: greatest magnitude of a negative
    barycentric coordinate of a point; converged: whether the optimiser converged.
    """

    vertices: Floats
    growth: float
    outside: float
    converged: bool


def enclosing_simplex(points: Floats, start: Floats, noise: float) -> Simplex | None:
    """Find the minimum-volume simplex that contains points up to noise.

    points (m, k - 1); start (k, k - 1): vertices; noise: distance by which points may be outside. Returns None if
    the start is flat. J. Li, J. Bioucas-Dias, "Minimum volume simplex analysis", IGARSS 2008; with coordinates that sum
    to one by parametrisation, and a penalty instead of constraints.
    """
    centre, scale = points.mean(axis=0), float(np.abs(points - points.mean(axis=0)).max())
    if scale == 0.0:
        return None
    Z, V = (add_ones((part - centre) / scale) for part in (points, start))
    widths, size = np.linalg.svd(V, compute_uv=False), _linear_size(V)
    if widths[-1] < _MIN_WIDTH_RATIO * widths[0]:
        return None
    middle = V.mean(axis=0)
    Q, good = np.linalg.inv(middle + _START_SCALE * (V - middle)), True
    for most in _PENALTIES:
        slack = np.maximum(_MIN_SLACK, noise / scale * np.linalg.norm(Q[1:], axis=0))
        Q, good = _minimise_volume(Z, Q, slack, float(np.clip(_PENALTY / slack.mean(), _PENALTIES[0], most)))
    found = np.linalg.inv(Q)
    outside = float(-np.minimum((Z @ Q).min(), 0.0))
    return Simplex(found[:, 1:] * scale + centre, _linear_size(found) / size, outside, good)


def add_ones(points: Floats) -> Floats:
    """Prepend a one to the coordinates of points (m, d), so that affine maps are matrices."""
    return np.hstack([np.ones((len(points), 1)), points])


def _linear_size(V: Floats) -> float:
    """The (k - 1)st root of the volume, up to a factor that depends on k alone."""
    return float(np.exp(np.linalg.slogdet(V)[1] / max(len(V) - 1, 1)))


def _full_matrix(free: Floats) -> Floats:
    """Build Q (k, k) from its first k - 1 columns; the last one makes coordinates sum to one."""
    k = (1 + math.isqrt(1 + 4 * len(free))) // 2  # k (k - 1) numbers are free
    columns = free.reshape(k, k - 1)
    return np.hstack([columns, np.eye(k)[:, :1] - columns.sum(axis=1, keepdims=True)])


def _minimise_volume(Z: Floats, Q: Floats, slack: Floats, penalty: float) -> tuple[Floats, bool]:
    """Minimise the volume plus the penalty, starting from Q (k, k); returns Q and whether it converged."""

    def cost(free: Floats) -> tuple[float, Floats]:
        trial = _full_matrix(free)
        sign, logarithm = np.linalg.slogdet(trial)
        if sign == 0.0 or not np.isfinite(logarithm):
            return np.inf, np.zeros_like(free)
        beyond = np.minimum(Z @ trial + slack, 0.0)
        slope = 2.0 * penalty * (Z.T @ beyond) - np.linalg.inv(trial).T
        return penalty * float((beyond**2).sum()) - logarithm, (slope[:, :-1] - slope[:, -1:]).ravel()

    found = minimize(cost, Q[:, :-1].ravel(), jac=True, method="L-BFGS-B", options={"maxiter": _MAX_ITER})
    return _full_matrix(found.x), bool(found.success)


_CONCENTRATIONS: Final = (1.0, 0.7, 0.5, 0.35, 0.25, 0.175)  # of the Dirichlet distribution; low near the faces
_HIGH_CONCENTRATION: Final = 1.5  # tried where lower concentrations than the first are not likelier
# distance outside a face, in standard deviations of the noise, beyond which the influence of a point no longer grows
_GRID_LOW: Final = -6.0
_GRID_HIGH: Final = 25.0  # distance inside a face, in standard deviations, from which the noise is negligible
_GRID: Final = np.linspace(_GRID_LOW, _GRID_HIGH, 621)
# accepted linear sizes, relative to the start: smaller ones take points for noise, larger ones follow the noise
_SIZE_RANGE: Final = (0.5, 1.5)
_PURITY_POWER: Final = 8  # power of the shares whose sum measures purity
_N_DRAWS: Final = 2**13  # random shares from which the mean purity is estimated
_MAX_RARITY: Final = 10.0  # bound on the parameter r, in units of 1 / the standard deviation of the purity
_MIN_NOISE: Final = 2.0**-10  # least noise, relative to the least standard deviation of the coordinates


@dataclass(frozen=True)
class _ScaledPoints:
    """Standardised points with a leading one (m, k), inverse variances (k - 1,), and noise deviations (m,)."""

    coordinates: Floats
    inverse_variances: Floats
    noise: Floats


def likely_simplex(points: Floats, noise: Floats, start: Floats) -> Floats | None:
    """Find the maximum-likelihood simplex around points.

    points (m, k - 1); noise (m,): standard deviation of each in any direction; start (k, k - 1): vertices to
    start from. Returns vertices (k, k - 1), or None if no simplex of acceptable size is found: there is too much noise.
    The model is that of R. Wu et al., "Probabilistic simplex component analysis", IEEE TSP 2022, for shares that may
    concentrate near the faces.
    """
    centre, spread = points.mean(axis=0), points.std(axis=0)
    if len(points) <= len(start) or not (spread > 0.0).all():
        return None
    least = _MIN_NOISE * spread.min()
    near = _ScaledPoints(add_ones((points - centre) / spread), 1.0 / spread**2, np.maximum(noise, least))
    first = np.asarray(np.linalg.inv(add_ones((start - centre) / spread)), dtype=np.float64)
    best = _choose_concentration(near, first)
    return None if best is None else np.linalg.inv(best)[:, 1:] * spread + centre


def _choose_concentration(near: _ScaledPoints, start: Floats) -> Floats | None:
    """Lower the concentration as long as the likelihood increases; raise it if it does not."""
    least, most = np.linalg.slogdet(start)[1] - (len(start) - 1) * np.log(_SIZE_RANGE[::-1])
    found: list[tuple[float, Floats]] = []
    for concentration in _CONCENTRATIONS:
        Q, cost = _maximise_likelihood(near, start, concentration)
        if least < np.linalg.slogdet(Q)[1] < most:
            found.append((cost, Q))
        if len(found) > 1 and found[-1][0] > found[-2][0]:
            break
    if len(found) < 3:
        Q, cost = _maximise_likelihood(near, start, _HIGH_CONCENTRATION)
        found += [(cost, Q)] * bool(least < np.linalg.slogdet(Q)[1] < most)
    return min(found, key=itemgetter(0))[1] if found else None


def _maximise_likelihood(near: _ScaledPoints, start: Floats, concentration: float) -> tuple[Floats, float]:
    """Maximise the likelihood for a given concentration, starting from Q (k, k).

    Returns Q, and minus the log likelihood per point.
    """
    Z, n, k, power = near.coordinates, len(near.coordinates), len(start), concentration - 1.0
    table, drawn = _tabulate_face_factor(concentration), _draw_purities(k, concentration)
    unit = 1.0 / drawn.std()

    def cost(free: Floats) -> tuple[float, Floats]:
        Q, rarity = _full_matrix(free[:-1]), unit * free[-1]
        sign, logarithm = np.linalg.slogdet(Q)
        if sign == 0.0 or not np.isfinite(logarithm):
            return np.inf, np.zeros_like(free)
        steepness = np.sqrt((Q[1:] ** 2 * near.inverse_variances[:, None]).sum(axis=0))
        shares = Z @ Q
        away = shares / (near.noise[:, None] * steepness)
        values, slopes = _log_face_factor(away, table, power)
        powers = np.where(shares < 1.0, np.maximum(shares, 0.0), 0.0) ** (_PURITY_POWER - 1)
        purity = float((powers * shares).sum() + (shares >= 1.0).sum()) / n
        left = np.exp(-rarity * drawn)
        likelihood = logarithm + values.sum() / n + power * float(np.log(steepness).sum())
        likelihood -= rarity * purity + np.log(left.mean())
        pulls = slopes / (near.noise[:, None] * steepness) - _PURITY_POWER * rarity * powers
        slope = Z.T @ pulls / n + np.linalg.inv(Q).T
        turn = power - (slopes * away).sum(axis=0) / n
        slope[1:] += turn * Q[1:] * near.inverse_variances[:, None] / steepness**2
        rise = unit * (purity - float(left @ drawn) / left.sum())
        return -likelihood, np.append((slope[:, -1:] - slope[:, :-1]).ravel(), rise)

    begin = np.append(start[:, :-1].ravel(), 0.0)
    bounds = [(None, None)] * (len(begin) - 1) + [(0.0, _MAX_RARITY)]
    found = minimize(cost, begin, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": _MAX_ITER})
    constant = power * k * np.log(near.noise).mean() + gammaln(k * concentration) - k * gammaln(concentration)
    return _full_matrix(found.x[:-1]), float(found.fun - constant)


def _draw_purities(k: int, concentration: float) -> Floats:
    """Draw random shares, and compute their purities: nearly one where one share is nearly one."""
    shares = np.random.default_rng(0).dirichlet(np.full(k, concentration), _N_DRAWS)
    return (shares**_PURITY_POWER).sum(axis=1)


def _tabulate_face_factor(concentration: float) -> Floats:
    """Tabulate the log factor of a face, a parabolic cylinder function, as a cubic from each point of the grid."""
    D, slopes = pbdv(-concentration, -_GRID)
    values = np.log(D) - _GRID**2 / 4.0 + gammaln(concentration) - 0.5 * np.log(2.0 * np.pi)
    return np.ascontiguousarray(CubicHermiteSpline(_GRID, values, -_GRID / 2.0 - slopes / D).c.T)


def _log_face_factor(away: Floats, table: Floats, power: float) -> tuple[Floats, Floats]:
    """Log factors of faces and their derivatives, extended linearly below the grid and by a power above it."""
    near = np.clip(away, _GRID_LOW, _GRID_HIGH)
    cell = np.minimum(((near - _GRID_LOW) / (_GRID[1] - _GRID[0])).astype(np.intp), len(table) - 1)
    x, (c3, c2, c1, c0) = near - _GRID[cell], np.moveaxis(table[cell], -1, 0)
    slopes = np.where(away > _GRID_HIGH, power / np.maximum(away, _GRID_HIGH), (3.0 * c3 * x + 2.0 * c2) * x + c1)
    beyond = np.where(away < _GRID_LOW, slopes * (away - near), power * np.log(np.maximum(away / _GRID_HIGH, 1.0)))
    return ((c3 * x + c2) * x + c1) * x + c0 + beyond, slopes
