"""Which points lie inside a cone: planes first, then a few rounds of projections, then least squares.

Each step settles what it can prove and leaves the rest to the next, which is slower. The rounds are
projected gradient steps in coordinates in which the generators are orthonormal columns, so that they converge fast.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from dask_dca.geometry.nonnegative import few_coefficients
from dask_dca.geometry.separation import Cone, binary_scale, prove

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Mask = NDArray[np.bool_]
    Numbers = NDArray[np.intp]

__all__ = ["contained"]

_PIECE: Final = 128  # rows that go through a round together, filled up with zeros: a row's bits depend on it alone
_STEPS: Final = 6  # projections of a round
_ROUNDS: Final = (4, 10)  # rounds, if not exact and if exact
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
    """
    Tell which points lie inside a cone.

    Parameters
    ----------
    X : ndarray of float64, shape (n, p)
        Finite points.
    cone : Cone
        From `prepare_cone`.
    exact : bool, default True
        Settle all points. If not, those that no plane and no short round of projections settles count as inside,
        which is likely but not certain, unless `cone.complete`.
    tolerance : float, default 1e-9
        Distance from the cone, as a share of the point's length, up to which a point counts as inside.
    proofs : ndarray of float64, shape (n, p), optional
        Is filled with a proof for each point outside, and zeros for the others.

    Returns
    -------
    ndarray of bool, shape (n,)
        True inside. A point is called outside only with a proof; one at the origin is inside.

    Examples
    --------
    >>> from dask_dca.geometry.separation import prepare_cone
    >>> cone = prepare_cone([[1.0, 0.0, 0.0], [1.0, 1.0, 0.0]])
    >>> contained(np.array([[2.0, 1.0, 0.0], [1.0, 2.0, 0.0], [2.0, 1.0, 0.1]]), cone)
    array([ True, False, False])
    """
    points = _look(X, cone, tolerance, proofs)
    _by_span(points, cone, tolerance)
    _by_planes(points, cone)
    if not cone.complete:
        _by_rounds(points, cone, _ROUNDS[exact])
    if exact or not (cone.complete or cone.is_pointed):
        _by_least_squares(points, cone)
    return ~points.outside


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
    for start in range(0, len(some), _PIECE):
        at = some[start : start + _PIECE]
        rows, tried = _padded(points.rows[at]), _padded(vectors[start : start + _PIECE])
        proven, proofs = prove(rows, tried, cone, _padded(points.allowed[at, None])[:, 0])
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


def _by_planes(points: _Points, cone: Cone) -> None:
    """Points beyond a plane that bounds the cone are outside."""
    if not len(cone.normals):
        return
    heights = points.places @ (cone.normals @ cone.basis).T
    lowest = heights.argmin(axis=1)
    least = heights[np.arange(len(heights)), lowest]
    rounding = cone.slack * points.sizes
    beyond = np.flatnonzero((least < -(points.allowed + rounding)) & ~points.settled)
    _refuse(points, beyond, cone.normals[lowest[beyond]])
    if cone.complete:
        points.settled |= least >= -rounding


def _by_rounds(points: _Points, cone: Cone, rounds: int) -> None:
    """
    Alternate projections on {f : f G = x} and {f >= 0}, with momentum, until f or the residual settles the point.

    In even coordinates a gradient step of length one is the projection on {f : f G = x}.
    """
    open_ = np.flatnonzero(~points.settled)
    x = points.places[open_] / cone.stretch
    allowed = points.allowed[open_] + cone.slack * points.sizes[open_]
    f = np.zeros((len(open_), len(cone.even)))
    ahead, speed = f.copy(), 1.0
    for _ in range(rounds):
        left = np.flatnonzero(~points.settled[open_])
        for start in range(0, len(left), _PIECE):
            at = left[start : start + _PIECE]
            piece = _padded(x[at])
            here, there, later = _project(piece, _padded(f[at]), _padded(ahead[at]), speed, cone)
            f[at], ahead[at] = here[: len(at)], there[: len(at)]
            residual, missed = _shortfall(piece, here, cone)
            near = missed[: len(at)] <= allowed[at]
            points.settled[open_[at[near]]] = True
            likely = np.flatnonzero(
                _separates(residual, piece, _padded(allowed[at, None])[:, 0], cone)[: len(at)] & ~near
            )
            if len(likely):
                vectors = (residual / -cone.stretch) @ cone.basis.T
                _try(points, cone, open_[at[likely]], vectors[likely])
        if not len(left):
            return
        speed = later


def _padded(rows: Floats) -> Floats:
    full = np.zeros((_PIECE, rows.shape[1]))
    full[: len(rows)] = rows
    return full


def _project(x: Floats, f: Floats, ahead: Floats, speed: float, cone: Cone) -> tuple[Floats, Floats, float]:
    """Some steps of Nesterov's method; coefficients, where the next step starts from, and its momentum."""
    for _ in range(_STEPS):
        new = np.maximum(ahead + (x - ahead @ cone.even) @ cone.even.T, 0.0)
        faster = (1.0 + np.sqrt(1.0 + 4.0 * speed**2)) / 2.0
        ahead, f, speed = new + (speed - 1.0) / faster * (new - f), new, faster
    return f, ahead, speed


def _shortfall(x: Floats, f: Floats, cone: Cone) -> tuple[Floats, Floats]:
    """The residual x - f G in even coordinates, and how far x is from a point of the cone near f G, as a length."""
    residual = x - f @ cone.even
    nearly = np.maximum(f + residual @ cone.even.T, 0.0)
    missed = (x - nearly @ cone.even) * cone.stretch
    return residual, np.sqrt((missed**2).sum(axis=1))


def _separates(residual: Floats, x: Floats, allowed: Floats, cone: Cone) -> Mask:
    """Whether residuals, leaned towards the axis, are about to be proofs: cheaply, in even coordinates."""
    vectors = -residual
    if cone.is_pointed:
        short = np.maximum((residual @ cone.even.T).max(axis=1), 0.0)
        vectors = vectors + np.outer(short / cone.margin, (cone.axis @ cone.basis) * cone.stretch)
    heights = (vectors * x).sum(axis=1)
    return heights < -1.5 * allowed * np.sqrt(((vectors / cone.stretch) ** 2).sum(axis=1))


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
