"""Tests of which points lie inside a cone: by planes, then by a few rounds of projections, then by least squares.

Each step decides the points for which it has a proof and leaves the others to the next, slower step. The rounds are
projected gradient steps in coordinates in which the generators are orthonormal columns, so that they converge fast.
Least squares starts from the supports found by the rounds, for many points at once, and is repeated point by point
for the few where that fails.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dask_dca.geometry.arrays import Floats, Mask
from dask_dca.geometry.exact import PIECE_ROWS, padded
from dask_dca.geometry.nnls import coefficients_row_by_row, exchange_supports
from dask_dca.geometry.planes import binary_scale
from dask_dca.geometry.separation import Cone, prove_outside

Numbers = NDArray[np.intp]

_STEPS_PER_ROUND: Final = 6  # projected gradient steps of a round
_N_ROUNDS: Final = (4, 8)  # number of rounds where undecided points may be left, and where every point must be decided
_FIRST_PLANES: Final = 256  # planes that all points are tested on first
_MAX_UNSCALED_LENGTH: Final = 1e100  # rows longer than this, or shorter than its inverse, are scaled


@dataclass
class _PointStates:
    """The points of one call and what has been decided about them so far."""

    rows: Floats  # (n, p) scaled by powers of two
    sizes: Floats  # (n,) lengths
    places: Floats  # (n, r) coordinates in the basis of the cone's span
    allowed: Floats  # (n,) distance inside the span up to which a point counts as inside
    outside: Mask  # (n,) proven outside
    settled: Mask  # (n,) proven outside or inside
    proofs: Floats | None  # (n, p)


def points_in_cone(
    X: Floats, cone: Cone, *, exact: bool = True, tolerance: float = 1e-9, proofs: Floats | None = None
) -> Mask:
    """Determine which points lie inside a cone.

    X (n, p): finite points; proofs (n, p): is filled with a proof for each point outside, and zeros for the others.
    Returns (n,): true inside. A point is called outside only with a proof; one at the origin is inside.
    """
    points = _prepare_points(X, cone, tolerance, proofs)
    _settle_by_span(points, cone, tolerance)
    _settle_by_planes(points, cone, cone.normals[:_FIRST_PLANES], len(X))
    if cone.complete and len(cone.normals) > _FIRST_PLANES:
        _settle_by_rounds(points, cone, 1)
        _settle_by_planes(points, cone, cone.normals, PIECE_ROWS)
    every = exact or not (cone.complete or cone.is_pointed)
    if (every or not cone.complete) and not points.settled.all():
        _settle_by_projections(points, cone, every)
    return ~points.outside


def _settle_by_projections(points: _PointStates, cone: Cone, every: bool) -> None:
    """Decide points on faces, next to them, and inside a cone whose faces are not known."""
    if len(cone.generators):
        f = _settle_by_rounds(points, cone, _N_ROUNDS[every])
        if every:
            _settle_by_exchanges(points, cone, f)
    if every:
        _settle_by_least_squares(points, cone)


def _prepare_points(X: Floats, cone: Cone, tolerance: float, proofs: Floats | None) -> _PointStates:
    """Scale points to a representable length, and mark those at the origin as decided."""
    rows = X
    sizes = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    extreme = ~((sizes > 1.0 / _MAX_UNSCALED_LENGTH) & (sizes < _MAX_UNSCALED_LENGTH))
    if extreme.any():
        rows = X.copy()
        rows[extreme] = binary_scale(X[extreme])
        sizes[extreme] = np.sqrt((rows[extreme] ** 2).sum(axis=1))
    if proofs is not None:
        proofs[:] = 0.0
    return _PointStates(
        rows, sizes, rows @ cone.basis, tolerance * sizes, np.zeros(len(X), dtype=bool), sizes == 0, proofs
    )


def _try_proofs(points: _PointStates, cone: Cone, some: Numbers, vectors: Floats) -> None:
    """Decide the points whose vectors are proofs; padded, so that the bits of a row do not depend on the others."""
    for start in range(0, len(some), PIECE_ROWS):
        at = some[start : start + PIECE_ROWS]
        rows, tried = padded(points.rows[at]), padded(vectors[start : start + PIECE_ROWS])
        proven, proofs = prove_outside(rows, tried, cone, padded(points.allowed[at, None])[:, 0])
        good = np.flatnonzero(proven)
        _mark_outside(points, at[good], proofs[good])


def _mark_outside(points: _PointStates, some: Numbers, proofs: Floats) -> None:
    points.outside[some] = points.settled[some] = True
    if points.proofs is not None:
        points.proofs[some] = proofs


def _settle_by_span(points: _PointStates, cone: Cone, tolerance: float) -> None:
    """Decide points far from the span of the generators; reduce the allowed distance of the others accordingly."""
    if len(cone.singular_values) == points.rows.shape[1]:
        return
    away = points.rows - points.places @ cone.basis.T
    distances = np.sqrt(np.einsum("ij,ij->i", away, away))
    left = np.sqrt(np.maximum((tolerance * points.sizes) ** 2 - distances**2, 0.0))
    far = np.flatnonzero((distances > tolerance * points.sizes) & ~points.settled)
    if points.proofs is None and cone.is_pointed:
        # a cosine to a generator has an error of rounding * size / distance, and its correction divides by the margin
        clear = distances[far] > (4.0 * tolerance + 4.0 * np.sqrt(cone.rounding / cone.margin)) * points.sizes[far]
        points.outside[far[clear]] = points.settled[far[clear]] = True
        far = far[~clear]
    if len(far):
        away -= (away @ cone.basis) @ cone.basis.T
        _try_proofs(points, cone, far, -away[far])
    points.allowed = left


def _settle_by_planes(points: _PointStates, cone: Cone, normals: Floats, piece: int) -> None:
    """Decide points beyond a plane that bounds the cone and, if the planes are all faces, points inside."""
    if not len(normals):
        return
    within = (normals @ cone.basis).T
    open_ = np.flatnonzero(~points.settled)
    for start in range(0, len(open_), max(piece, 1)):
        at = open_[start : start + piece]
        heights = (padded(points.places[at], piece) @ within)[: len(at)]
        lowest = heights.argmin(axis=1)
        least = heights[np.arange(len(at)), lowest]
        rounding = cone.rounding * points.sizes[at]
        beyond = least < -(points.allowed[at] + rounding)
        _mark_outside(points, at[beyond], normals[lowest[beyond]])
        if cone.complete and len(normals) == len(cone.normals):
            points.settled[at] |= least >= -rounding


def _settle_by_rounds(points: _PointStates, cone: Cone, rounds: int) -> Floats:
    """Alternate projections onto {f : f G = x} and {f >= 0} with momentum; returns the coefficients f.

    In whitened coordinates a gradient step of length one is the projection onto {f : f G = x}. Points are scaled to
    length one. In single precision, the bits of a row would depend on its position in a tile with some BLAS.
    """
    open_ = np.flatnonzero(~points.settled)
    f = np.zeros((len(points.rows), len(cone.whitened)))
    away = np.eye(len(cone.whitened)) - cone.whitened @ cone.whitened.T
    here = np.zeros((len(open_), len(away)))
    ahead, speed = here.copy(), np.ones((len(open_), 1))
    for _ in range(rounds):
        left = np.flatnonzero(~points.settled[open_])
        for start in range(0, len(left), PIECE_ROWS):
            at = left[start : start + PIECE_ROWS]
            some, count = open_[at], len(at)
            sizes = points.sizes[some, None]
            x = padded(points.places[some] / sizes) / cone.singular_values
            near = x @ cone.whitened.T
            moved = _accelerated_steps(near, padded(here[at]), padded(ahead[at]), padded(speed[at]), away)
            here[at], ahead[at], speed[at] = (part[:count] for part in moved)
            f[some] = sizes * here[at]
            _settle(points, cone, some, padded(points.places[some]) / cone.singular_values, padded(f[some]))
    return f


def _settle_by_exchanges(points: _PointStates, cone: Cone, f: Floats) -> None:
    """Decide points by least squares from the supports of f."""
    open_ = np.flatnonzero(~points.settled)
    x = points.places[open_] / cone.singular_values
    found = exchange_supports(x, f[open_], cone.whitened)
    for start in range(0, len(open_), PIECE_ROWS):
        at = open_[start : start + PIECE_ROWS]
        _settle(points, cone, at, padded(x[start : start + PIECE_ROWS]), padded(found[start : start + PIECE_ROWS]))


def _settle(points: _PointStates, cone: Cone, some: Numbers, x: Floats, f: Floats) -> None:
    """Decide the points that are close enough to f G, or whose residuals are proofs."""
    count = len(some)
    allowed = padded((points.allowed[some] + cone.rounding * points.sizes[some])[:, None])[:, 0]
    residual = x - f @ cone.whitened
    slopes = residual @ cone.whitened.T
    near = _distance_bound(x, f + slopes, cone) <= allowed
    points.settled[some[near[:count]]] = True
    likely = np.flatnonzero(_likely_proofs(residual, slopes, x, allowed, cone)[:count] & ~near[:count])
    if len(likely):
        vectors = (residual / -cone.singular_values) @ cone.basis.T
        _try_proofs(points, cone, some[likely], vectors[likely])


def _accelerated_steps(near: Floats, f: Floats, ahead: Floats, speed: Floats, away: Floats) -> tuple[Floats, ...]:
    """Do some steps of Nesterov's method; returns coefficients, the start of the next step, and its momentum.

    The momentum of a point is reset where a step goes uphill (O'Donoghue and Candes, Adaptive restart for accelerated
    gradient schemes, Foundations of Computational Mathematics 15, 2015).
    """
    for _ in range(_STEPS_PER_ROUND):
        origin, new = ahead, ahead @ away
        new += near
        np.maximum(new, 0.0, out=new)
        faster = (1.0 + np.sqrt(1.0 + 4.0 * speed**2)) / 2.0
        moved = new - f
        ahead = moved * ((speed - 1.0) / faster)
        ahead += new
        f, speed = new, faster
    turned = np.einsum("ij,ij->i", origin - f, moved)[:, None] > 0.0
    return f, np.where(turned, f, ahead), np.where(turned, 1.0, speed)


def _distance_bound(x: Floats, f: Floats, cone: Cone) -> Floats:
    """Distance of x from the point of the cone with coefficients max(f, 0): a bound on its distance from the cone."""
    missed = (x - np.maximum(f, 0.0) @ cone.whitened) * cone.singular_values
    return np.sqrt(np.einsum("ij,ij->i", missed, missed))


def _likely_proofs(residual: Floats, slopes: Floats, x: Floats, allowed: Floats, cone: Cone) -> Mask:
    """Whether residuals, moved towards the axis, are nearly proofs: a fast test in whitened coordinates."""
    vectors = -residual
    if cone.is_pointed:
        short = np.maximum(slopes.max(axis=1), 0.0)
        vectors += np.outer(short / cone.margin, (cone.axis @ cone.basis) * cone.singular_values)
    heights = np.einsum("ij,ij->i", vectors, x)
    vectors /= cone.singular_values
    return heights < -1.5 * allowed * np.sqrt(np.einsum("ij,ij->i", vectors, vectors))


def _settle_by_least_squares(points: _PointStates, cone: Cone) -> None:
    """Decide the remaining points by non-negative least squares, one at a time."""
    open_ = np.flatnonzero(~points.settled)
    if not len(open_):
        return
    units = cone.generators / cone.lengths[:, None]
    found = [_least_squares_residual(points.places[i] @ cone.basis.T, units, float(points.allowed[i])) for i in open_]
    _try_proofs(points, cone, open_, -np.stack(found))
    points.settled[open_] = True


def _least_squares_residual(point: Floats, units: Floats, allowed: float) -> Floats:
    """Accurate residual of non-negative least squares, the best proof; zeros for a point inside."""
    if not len(units):
        return point
    coefficients = coefficients_row_by_row(point[None, :], units)[0]
    residual = point - coefficients @ units
    if residual @ residual <= 0.25 * allowed**2:
        return np.zeros_like(point)
    face = np.linalg.qr(units[coefficients > 0].T)[0]
    residual = point
    for _ in range(3):  # repeated projections restore the digits of a short residual of a long row
        residual = residual - face @ (face.T @ residual)
    return residual
