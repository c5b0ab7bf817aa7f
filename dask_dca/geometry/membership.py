"""Which points lie inside a cone: planes first, then a few rounds of projections, then least squares.

Each step settles what it can prove and leaves the rest to the next, which is slower. The rounds are
projected gradient steps in coordinates in which the generators are orthonormal columns, so that they converge fast.
Least squares starts from the supports that the rounds found, for many points at once, and is repeated point by point
for the few where that fails.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from dask_dca.geometry.exact import PIECE_ROWS, padded
from dask_dca.geometry.nnls import exchange, few_coefficients
from dask_dca.geometry.planes import binary_scale
from dask_dca.geometry.separation import Cone, prove

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dask_dca.geometry.arrays import Floats, Mask

    Numbers = NDArray[np.intp]

_STEPS: Final = 6  # projections of a round
_ROUNDS: Final = (4, 8)  # rounds, if not every point is to be settled and if so
_FEW: Final = 256  # planes that all points are tried on
_FAR: Final = 1e100  # rows longer than this, or shorter than one over this, are scaled


@dataclass
class _Points:
    """Points on their way, in the order given; verdicts are filled in."""

    rows: Floats  # (n, p) scaled by powers of two
    sizes: Floats  # (n,) lengths
    places: Floats  # (n, r) coordinates in the basis of the cone's span
    allowed: Floats  # (n,) distance inside the span up to which a point counts as inside
    outside: Mask  # (n,) proven outside
    settled: Mask  # (n,) proven either way
    proofs: Floats | None  # (n, p)


def contained(
    X: Floats, cone: Cone, *, exact: bool = True, tolerance: float = 1e-9, proofs: Floats | None = None
) -> Mask:
    """Tell which points lie inside a cone.

    X (n, p): finite points; proofs (n, p): is filled with a proof for each point outside, and zeros for the others.
    Returns (n,): true inside. A point is called outside only with a proof; one at the origin is inside.
    """
    points = _look(X, cone, tolerance, proofs)
    _by_span(points, cone, tolerance)
    _by_planes(points, cone, cone.normals[:_FEW], len(X))
    if cone.complete and len(cone.normals) > _FEW:
        _by_rounds(points, cone, 1)
        _by_planes(points, cone, cone.normals, PIECE_ROWS)
    every = exact or not (cone.complete or cone.is_pointed)
    if (every or not cone.complete) and not points.settled.all():
        _by_projections(points, cone, every)
    return ~points.outside


def _by_projections(points: _Points, cone: Cone, every: bool) -> None:
    """Points on faces, next to them, and inside a cone whose faces are not known."""
    if len(cone.generators):
        f = _by_rounds(points, cone, _ROUNDS[every])
        if every:
            _by_exchanges(points, cone, f)
    if every:
        _by_least_squares(points, cone)


def _look(X: Floats, cone: Cone, tolerance: float, proofs: Floats | None) -> _Points:
    rows = X
    sizes = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    extreme = ~((sizes > 1.0 / _FAR) & (sizes < _FAR))
    if extreme.any():
        rows = X.copy()
        rows[extreme] = binary_scale(X[extreme])
        sizes[extreme] = np.sqrt((rows[extreme] ** 2).sum(axis=1))
    if proofs is not None:
        proofs[:] = 0.0
    return _Points(rows, sizes, rows @ cone.basis, tolerance * sizes, np.zeros(len(X), dtype=bool), sizes == 0, proofs)


def _try(points: _Points, cone: Cone, some: Numbers, vectors: Floats) -> None:
    """Settle those of some points whose vectors make proofs; products of one shape give a row the same bits."""
    for start in range(0, len(some), PIECE_ROWS):
        at = some[start : start + PIECE_ROWS]
        rows, tried = padded(points.rows[at]), padded(vectors[start : start + PIECE_ROWS])
        proven, proofs = prove(rows, tried, cone, padded(points.allowed[at, None])[:, 0])
        good = np.flatnonzero(proven)
        _refuse(points, at[good], proofs[good])


def _refuse(points: _Points, some: Numbers, proofs: Floats) -> None:
    points.outside[some] = points.settled[some] = True
    if points.proofs is not None:
        points.proofs[some] = proofs


def _by_span(points: _Points, cone: Cone, tolerance: float) -> None:
    """Points that are far from the span of the generators are outside; of others, count what distance is left."""
    if len(cone.stretch) == points.rows.shape[1]:
        return
    away = points.rows - points.places @ cone.basis.T
    distances = np.sqrt(np.einsum("ij,ij->i", away, away))
    left = np.sqrt(np.maximum((tolerance * points.sizes) ** 2 - distances**2, 0.0))
    far = np.flatnonzero((distances > tolerance * points.sizes) & ~points.settled)
    if points.proofs is None and cone.is_pointed:
        # the vector's cosine to a generator is wrong by slack * size / distance, and leaning it costs 1 / margin more
        clear = distances[far] > (4.0 * tolerance + 4.0 * np.sqrt(cone.slack / cone.margin)) * points.sizes[far]
        points.outside[far[clear]] = points.settled[far[clear]] = True
        far = far[~clear]
    if len(far):
        away -= (away @ cone.basis) @ cone.basis.T
        _try(points, cone, far, -away[far])
    points.allowed = left


def _by_planes(points: _Points, cone: Cone, normals: Floats, piece: int) -> None:
    """Points beyond a plane that bounds the cone are outside; where the planes are all faces, others are inside."""
    if not len(normals):
        return
    within = (normals @ cone.basis).T
    open_ = np.flatnonzero(~points.settled)
    for start in range(0, len(open_), max(piece, 1)):
        at = open_[start : start + piece]
        heights = (padded(points.places[at], piece) @ within)[: len(at)]
        lowest = heights.argmin(axis=1)
        least = heights[np.arange(len(at)), lowest]
        rounding = cone.slack * points.sizes[at]
        beyond = least < -(points.allowed[at] + rounding)
        _refuse(points, at[beyond], normals[lowest[beyond]])
        if cone.complete and len(normals) == len(cone.normals):
            points.settled[at] |= least >= -rounding


def _by_rounds(points: _Points, cone: Cone, rounds: int) -> Floats:
    """
    Alternate projections on {f : f G = x} and {f >= 0}, with momentum, until f or the residual settles the point.

    In even coordinates a gradient step of length one is the projection on {f : f G = x}. Steps are for points of
    length one, in double precision: single-precision products of some BLAS give a row other bits in another place of
    a tile. Returns the coefficients.
    """
    open_ = np.flatnonzero(~points.settled)
    f = np.zeros((len(points.rows), len(cone.even)))
    away = np.eye(len(cone.even)) - cone.even @ cone.even.T
    here = np.zeros((len(open_), len(away)))
    ahead, speed = here.copy(), np.ones((len(open_), 1))
    for _ in range(rounds):
        left = np.flatnonzero(~points.settled[open_])
        for start in range(0, len(left), PIECE_ROWS):
            at = left[start : start + PIECE_ROWS]
            some, count = open_[at], len(at)
            sizes = points.sizes[some, None]
            x = padded(points.places[some] / sizes) / cone.stretch
            near = x @ cone.even.T
            moved = _project(near, padded(here[at]), padded(ahead[at]), padded(speed[at]), away)
            here[at], ahead[at], speed[at] = (part[:count] for part in moved)
            f[some] = sizes * here[at]
            _judge(points, cone, some, padded(points.places[some]) / cone.stretch, padded(f[some]))
    return f


def _by_exchanges(points: _Points, cone: Cone, f: Floats) -> None:
    """Least squares from the supports that the rounds found."""
    open_ = np.flatnonzero(~points.settled)
    x = points.places[open_] / cone.stretch
    found = exchange(x, f[open_], cone.even)
    for start in range(0, len(open_), PIECE_ROWS):
        at = open_[start : start + PIECE_ROWS]
        _judge(points, cone, at, padded(x[start : start + PIECE_ROWS]), padded(found[start : start + PIECE_ROWS]))


def _judge(points: _Points, cone: Cone, some: Numbers, x: Floats, f: Floats) -> None:
    """Settle those of some points that are near enough to f G, or whose residuals make proofs."""
    count = len(some)
    allowed = padded((points.allowed[some] + cone.slack * points.sizes[some])[:, None])[:, 0]
    residual = x - f @ cone.even
    slopes = residual @ cone.even.T
    near = _shortfall(x, f + slopes, cone) <= allowed
    points.settled[some[near[:count]]] = True
    likely = np.flatnonzero(_separates(residual, slopes, x, allowed, cone)[:count] & ~near[:count])
    if len(likely):
        vectors = (residual / -cone.stretch) @ cone.basis.T
        _try(points, cone, some[likely], vectors[likely])


def _project(near: Floats, f: Floats, ahead: Floats, speed: Floats, away: Floats) -> tuple[Floats, ...]:
    """
    Some steps of Nesterov's method; coefficients, where the next step starts from, and its momentum.

    A point whose step turns back loses its momentum, as O'Donoghue and Candes, Adaptive restart for accelerated
    gradient schemes, Foundations of Computational Mathematics 15, 2015, have it.
    """
    for _ in range(_STEPS):
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


def _shortfall(x: Floats, f: Floats, cone: Cone) -> Floats:
    """How far x is from the point of the cone with coefficients f, those below zero left out, as a length."""
    missed = (x - np.maximum(f, 0.0) @ cone.even) * cone.stretch
    return np.sqrt(np.einsum("ij,ij->i", missed, missed))


def _separates(residual: Floats, slopes: Floats, x: Floats, allowed: Floats, cone: Cone) -> Mask:
    """Whether residuals, leaned towards the axis, are about to be proofs: cheaply, in even coordinates."""
    vectors = -residual
    if cone.is_pointed:
        short = np.maximum(slopes.max(axis=1), 0.0)
        vectors += np.outer(short / cone.margin, (cone.axis @ cone.basis) * cone.stretch)
    heights = np.einsum("ij,ij->i", vectors, x)
    vectors /= cone.stretch
    return heights < -1.5 * allowed * np.sqrt(np.einsum("ij,ij->i", vectors, vectors))


def _by_least_squares(points: _Points, cone: Cone) -> None:
    """Non-negative least squares, one point at a time; the residuals are tried as proofs together."""
    open_ = np.flatnonzero(~points.settled)
    if not len(open_):
        return
    units = cone.generators / cone.lengths[:, None]
    found = [_residual(points.places[i] @ cone.basis.T, units, float(points.allowed[i])) for i in open_]
    _try(points, cone, open_, -np.stack(found))
    points.settled[open_] = True


def _residual(point: Floats, units: Floats, allowed: float) -> Floats:
    """What non-negative least squares leaves of a point, free of rounding: the best proof; zeros for a point inside."""
    if not len(units):
        return point
    coefficients = few_coefficients(point[None, :], units)[0]
    residual = point - coefficients @ units
    if residual @ residual <= 0.25 * allowed**2:
        return np.zeros_like(point)
    face = np.linalg.qr(units[coefficients > 0].T)[0]
    residual = point
    for _ in range(3):  # a short residual of a long row has few digits, which projections restore
        residual = residual - face @ (face.T @ residual)
    return residual
