"""Simplices: least squares over one, the smallest one around points, and the likeliest one.

Active sets (`geometry.nnls`) are exact, and slow where tens of vertices lie close together. Here a fixed number
of steps gives topics to three digits, which is more than counts of words can tell.

Points are in affine coordinates z = (1, y), vertices the rows of V; barycentric coordinates of the points are Z Q with
Q = V^-1. The volume is least where log |det Q| is greatest, and points are inside where no coordinate is negative.

A point is a mixture of the vertices with shares from a symmetric Dirichlet distribution, and Gaussian noise. Where the
noise is small against the simplex its density is, but for what does not depend on the simplex, the volume to the power
-1 times a factor for each face: with u the distance from the face in deviations of the noise, the integral of t^(a - 1)
times the normal density at u - t over all positive t. Many points near a face so tell where it is, noise averaged out.

Points that are nearly a vertex may be rarer than by that distribution, and then faces have fewer points than their size
says. So densities are times exp(-r s), s the sum of the shares' eighth powers, with the likeliest r from 0; drawn
shares tell what they then sum to.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Final

import numpy as np
from scipy.interpolate import CubicHermiteSpline
from scipy.optimize import minimize
from scipy.special import gammaln, pbdv

from dask_dca.geometry.exact import Workspace

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dask_dca.geometry.arrays import Floats, Mask

    Reals = NDArray[np.floating]

SLAB_ROWS: Final = 2048  # targets that go down side by side: parts of that many rows have the bits of the whole
_NEWTON: Final = 20  # at most; three or four are the rule
_STILL: Final = 1e-6  # coefficients that move less than this in a step are done


def onto_simplex(columns: Reals, likely: Mask | None = None, space: Workspace | None = None) -> Reals:
    """Project columns (k, n) on the probability simplex.

    The threshold is the root of a convex piecewise linear function, which Newton's method finds in a few steps from the
    left (Michelot, Journal of Optimization Theory and Applications 50, 1986), where any shares of a column lead.
    likely (k, n): these, at least one of each column: the fewer steps, the nearer they are to what will be positive;
    space: for arrays between. Returns (k, n): in the memory of `columns`, where there is a space.
    """
    one, threshold = np.ones(len(columns), columns.dtype), np.full(columns.shape[1], -np.inf, columns.dtype)
    found, space = np.empty_like(columns) if space is None else columns, space or Workspace()
    above, part = (space.array(name, *columns.shape, dtype=columns.dtype) for name in ("above", "part"))
    above[:] = True if likely is None else likely
    for _ in range(_NEWTON):
        moved = (one @ np.multiply(columns, above, out=part) - 1.0) / np.maximum(one @ above, 1.0)
        if np.all(moved <= threshold):
            break
        threshold = np.maximum(moved, threshold)
        np.greater(columns, threshold, out=above)
    np.subtract(columns, threshold, out=found)
    return np.maximum(found, 0.0, out=found)


def simplex_descent(targets: Floats, vertices: Floats, start: Floats | None = None, n_steps: int = 200) -> Floats:
    """Minimise |r_i - b_i V|^2 over the simplex for every target r_i, in Gram form and single precision.

    targets (n, d): rows R; vertices (k, d): vertices V; start (n, k): coefficients to start from; the centre by
    default; n_steps: steps of Nesterov's method, at most. Returns (n, k): coefficients B, rows on the simplex.
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
    """Accelerated steps of length one on columns of curvature one, begun anew where they overshoot."""
    ahead, moved, step, way = (space.array(name, *B.shape, dtype=B.dtype) for name in ("ahead", "moved", "step", "way"))
    pace, ahead[:] = 1.0, B
    for _ in range(n_steps):
        np.subtract(ahead, np.matmul(gram, ahead, out=moved), out=moved)
        moved += products
        onto_simplex(moved, B > 0.0, space)
        np.subtract(moved, B, out=step)
        B, moved = moved, B
        if np.abs(step, out=way).max(initial=0.0) < _STILL:
            break
        np.subtract(ahead, B, out=way)
        if float(np.multiply(way, step, out=way).sum()) > 0.0:  # going uphill: O'Donoghue and Candes' restart
            pace = 1.0
        faster = 0.5 * (1.0 + math.sqrt(1.0 + 4.0 * pace**2))
        np.multiply(np.float32((pace - 1.0) / faster), step, out=ahead)
        ahead += B
        pace = faster
    return B


_PENALTY: Final = 2.0  # of squares of negative coordinates, over what costs nothing of them,
_PENALTIES: Final = (200.0, 2_000.0, 20_000.0)  # at most, in rounds in which the slack follows the simplex, too
_SLACK: Final = 1e-4  # of a coordinate that costs nothing, at least
_BLOWN_UP: Final = 1.1  # the simplex to start from
_STEPS: Final = 500
_FLAT: Final = 1e-9  # least width of the start, as a share of the greatest, below which it is no simplex


@dataclass(frozen=True)
class Simplex:
    """A simplex and what it is around.

    vertices (k, k - 1); growth: k - 1st root of its volume, over that of the start; outside: the greatest share of a
    vertex's height by which a point is beyond the opposite face; converged: whether the steps ended by themselves.
    """

    vertices: Floats
    growth: float
    outside: float
    converged: bool


def enclosing_simplex(points: Floats, start: Floats, noise: float) -> Simplex | None:
    """Find the smallest simplex that holds points up to noise.

    points (m, k - 1); start (k, k - 1): vertices; noise: how far points may be outside, as a distance. Returns None if
    the start is flat. J. Li, J. Bioucas-Dias, "Minimum volume simplex analysis", IGARSS 2008; with coordinates that sum
    to one by parametrisation, and a penalty in the place of constraints.
    """
    centre, scale = points.mean(axis=0), float(np.abs(points - points.mean(axis=0)).max())
    if scale == 0.0:
        return None
    Z, V = (lifted((part - centre) / scale) for part in (points, start))
    widths, size = np.linalg.svd(V, compute_uv=False), _size_of(V)
    if widths[-1] < _FLAT * widths[0]:
        return None
    middle = V.mean(axis=0)
    Q, good = np.linalg.inv(middle + _BLOWN_UP * (V - middle)), True
    for most in _PENALTIES:
        slack = np.maximum(_SLACK, noise / scale * np.linalg.norm(Q[1:], axis=0))
        Q, good = _smallest(Z, Q, slack, float(np.clip(_PENALTY / slack.mean(), _PENALTIES[0], most)))
    found = np.linalg.inv(Q)
    outside = float(-np.minimum((Z @ Q).min(), 0.0))
    return Simplex(found[:, 1:] * scale + centre, _size_of(found) / size, outside, good)


def lifted(points: Floats) -> Floats:
    """Put a one before the coordinates of points (m, d), so that affine maps are matrices."""
    return np.hstack([np.ones((len(points), 1)), points])


def _size_of(V: Floats) -> float:
    return float(np.exp(np.linalg.slogdet(V)[1] / max(len(V) - 1, 1)))


def _complete(free: Floats) -> Floats:
    """Columns of a simplex's coordinates, and the last one, which makes these sum to one."""
    k = (1 + math.isqrt(1 + 4 * len(free))) // 2  # k (k - 1) numbers are free
    columns = free.reshape(k, k - 1)
    return np.hstack([columns, np.eye(k)[:, :1] - columns.sum(axis=1, keepdims=True)])


def _smallest(Z: Floats, Q: Floats, slack: Floats, penalty: float) -> tuple[Floats, bool]:
    """Go down from a simplex; the last column of Q is what makes coordinates sum to one."""

    def cost(free: Floats) -> tuple[float, Floats]:
        trial = _complete(free)
        sign, logarithm = np.linalg.slogdet(trial)
        if sign == 0.0 or not np.isfinite(logarithm):
            return np.inf, np.zeros_like(free)
        beyond = np.minimum(Z @ trial + slack, 0.0)
        slope = 2.0 * penalty * (Z.T @ beyond) - np.linalg.inv(trial).T
        return penalty * float((beyond**2).sum()) - logarithm, (slope[:, :-1] - slope[:, -1:]).ravel()

    found = minimize(cost, Q[:, :-1].ravel(), jac=True, method="L-BFGS-B", options={"maxiter": _STEPS})
    return _complete(found.x), bool(found.success)


_CONCENTRATIONS: Final = (1.0, 0.7, 0.5, 0.35, 0.25, 0.175)  # of Dirichlet's distribution: low if rows crowd at faces
_HIGH: Final = 1.5  # tried where none below the first is likelier
_OUTSIDE: Final = -6.0  # deviations of the noise, beyond which a point weighs as one there: it may be no mixture
_INSIDE: Final = 25.0  # deviations from which noise does not matter
_GRID: Final = np.linspace(_OUTSIDE, _INSIDE, 621)
_SIZES: Final = (0.5, 1.5)  # of the start's linear size; a smaller one leaves points to noise, a larger one follows it
_PURITY: Final = 8  # the power of shares whose sum tells pure rows
_DRAWS: Final = 2**13  # of shares, that tell how frequent these are
_RAREST: Final = 10.0  # how much rarer they may be, in deviations of their sums
_LEAST_NOISE: Final = 2.0**-10  # of the points' least deviation


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
    best = _likeliest(near, first)
    return None if best is None else np.linalg.inv(best)[:, 1:] * spread + centre


def _likeliest(near: _Points, start: Floats) -> Floats | None:
    """Lower the concentration as long as simplices become likelier; raise it, if they do not."""
    least, most = np.linalg.slogdet(start)[1] - (len(start) - 1) * np.log(_SIZES[::-1])
    found: list[tuple[float, Floats]] = []
    for concentration in _CONCENTRATIONS:
        Q, cost = _climb(near, start, concentration)
        if least < np.linalg.slogdet(Q)[1] < most:
            found.append((cost, Q))
        if len(found) > 1 and found[-1][0] > found[-2][0]:
            break
    if len(found) < 3:
        Q, cost = _climb(near, start, _HIGH)
        found += [(cost, Q)] * bool(least < np.linalg.slogdet(Q)[1] < most)
    return min(found, key=itemgetter(0))[1] if found else None


def _climb(near: _Points, start: Floats, concentration: float) -> tuple[Floats, float]:
    """Go up from a simplex.

    start (k, k): what makes points barycentric coordinates; the last column is what makes them sum to one. Returns the
    same of the likeliest, and minus its log likelihood per point.
    """
    Z, n, k, power = near.lifted, len(near.lifted), len(start), concentration - 1.0
    barrier, drawn = _barrier(concentration), _purities(k, concentration)
    unit = 1.0 / drawn.std()

    def cost(free: Floats) -> tuple[float, Floats]:
        Q, rarity = _complete(free[:-1]), unit * free[-1]
        sign, logarithm = np.linalg.slogdet(Q)
        if sign == 0.0 or not np.isfinite(logarithm):
            return np.inf, np.zeros_like(free)
        steepness = np.sqrt((Q[1:] ** 2 * near.lengths[:, None]).sum(axis=0))
        shares = Z @ Q
        away = shares / (near.noise[:, None] * steepness)
        values, slopes = _logarithms(away, barrier, power)
        powers = np.where(shares < 1.0, np.maximum(shares, 0.0), 0.0) ** (_PURITY - 1)
        purity = float((powers * shares).sum() + (shares >= 1.0).sum()) / n
        left = np.exp(-rarity * drawn)
        likelihood = logarithm + values.sum() / n + power * float(np.log(steepness).sum())
        likelihood -= rarity * purity + np.log(left.mean())
        pulls = slopes / (near.noise[:, None] * steepness) - _PURITY * rarity * powers
        slope = Z.T @ pulls / n + np.linalg.inv(Q).T
        turn = power - (slopes * away).sum(axis=0) / n
        slope[1:] += turn * Q[1:] * near.lengths[:, None] / steepness**2
        rise = unit * (purity - float(left @ drawn) / left.sum())
        return -likelihood, np.append((slope[:, -1:] - slope[:, :-1]).ravel(), rise)

    begin = np.append(start[:, :-1].ravel(), 0.0)
    bounds = [(None, None)] * (len(begin) - 1) + [(0.0, _RAREST)]
    found = minimize(cost, begin, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": _STEPS})
    constant = power * k * np.log(near.noise).mean() + gammaln(k * concentration) - k * gammaln(concentration)
    return _complete(found.x[:-1]), float(found.fun - constant)


def _purities(k: int, concentration: float) -> Floats:
    """Draw shares, and sum their powers: nearly one where one ray has nearly all."""
    shares = np.random.default_rng(0).dirichlet(np.full(k, concentration), _DRAWS)
    return (shares**_PURITY).sum(axis=1)


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
