"""The exact solver: remove every row that lies in the cone of the others, by linear programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
from scipy.optimize import linprog

from dask_dca.geometry.membership import contained
from dask_dca.geometry.separation import binary_scale, prepare_cone

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Floats = NDArray[np.float64]
    Numbers = NDArray[np.int64]

__all__ = ["backward_removal", "cone_distance"]

_PLANES: Final = (64, 4)  # random planes that prove rows to be extreme: at least, and for each dimension


def cone_distance(point: ArrayLike, generators: ArrayLike) -> float:
    """
    Least greatest difference between a point and the cone of some rows, by one linear program.

    Parameters
    ----------
    point : array_like, shape (d,)
        A point.
    generators : array_like, shape (k, d)
        Rows that span the cone; there may be none.

    Returns
    -------
    float
        min over f >= 0 of `max_j |x - f G|_j`, as a share of the point's greatest magnitude; 0 for the origin.

    Raises
    ------
    ValueError
        The program could not be solved: entries are not finite.

    Examples
    --------
    >>> cone_distance([1.0, 1.0], [[1.0, 0.0], [1.0, 2.0]])
    0.0
    >>> round(cone_distance([0.0, 1.0], [[1.0, 0.0], [1.0, 1.0]]), 6)
    0.5
    """
    x = binary_scale(np.asarray(point, dtype=np.float64)[None, :])[0]
    peak = float(np.abs(x).max(initial=0.0))
    if peak == 0.0:
        return 0.0
    G = binary_scale(np.asarray(generators, dtype=np.float64).reshape(-1, len(x)))
    ones = np.ones((len(x), 1))
    answer = linprog(
        np.append(np.zeros(len(G)), 1.0),
        A_ub=np.block([[G.T, -ones], [-G.T, -ones]]),
        b_ub=np.concatenate([x, -x]),
        method="highs",
    )
    if answer.fun is None:
        msg = f"no distance to the cone was found: {answer.message}"
        raise ValueError(msg)
    return max(0.0, float(answer.fun)) / peak


def backward_removal(
    points: ArrayLike, n_anchors: int | None = None, *, tolerance: float = 1e-7, planes: bool = True
) -> Numbers:
    """
    Remove rows that lie in the cone of those that are left, until none does: the LP test.

    Arora, Ge, Kannan and Moitra, Computing a nonnegative matrix factorization - provably, STOC 2012, Theorem 5.4:
    what is left is *simplicial* (no row in the cone of the others) and spans the same cone, so it solves the
    minimum conical hull problem wherever that cone is pointed. Exact on exact data, and not robust to noise.

    Parameters
    ----------
    points : array_like, shape (n, d)
        Rows of any sign.
    n_anchors : int, optional
        Keep at most so many: of more, those furthest from the cone of the others.
    tolerance : float, default 1e-7
        Distance from the cone, as a share of the row's greatest magnitude, up to which a row is removed.
    planes : bool, default True
        Settle by planes and least squares what they can prove, and leave only the other rows to linear programs:
        the paper's DCA as a subroutine. The answer is the same, up to the tolerance.

    Returns
    -------
    ndarray of int64, shape (m,)
        Row numbers, increasing; of equal rows (scaled copies) the first. Zero rows are never among them.

    Raises
    ------
    ValueError
        Entries are not finite.

    Examples
    --------
    >>> rows = [[1.0, 1.0, 0.0], [1.0, 0.0, 0.0], [2.0, 2.0, 0.0], [0.0, 1.0, 0.0], [0.0, 1.0, 1.0]]
    >>> backward_removal(rows)
    array([1, 3, 4])
    """
    P = binary_scale(np.asarray(points, dtype=np.float64))
    if not np.isfinite(P).all():
        msg = "points have entries that are NaN or infinite"
        raise ValueError(msg)
    left = np.flatnonzero(P.any(axis=1))
    extreme = _proven_extremes(P, left, tolerance) if planes else left[:0]
    if len(extreme):
        left = left[np.isin(left, extreme) | ~contained(P[left], prepare_cone(P[extreme]), tolerance=tolerance)]
    for i in left[::-1]:  # from the last, so that of equal rows the first is left
        others = left[left != i]
        if i not in extreme and cone_distance(P[i], P[others]) <= tolerance:
            left = others
    if n_anchors is None or len(left) <= n_anchors:
        return left.astype(np.int64)
    distances = np.array([cone_distance(P[i], P[left[left != i]]) for i in left])
    return np.sort(left[np.argsort(-distances, kind="stable")[:n_anchors]]).astype(np.int64)


def _proven_extremes(P: Floats, left: Numbers, tolerance: float) -> Numbers:
    """Rows that are alone on a bound of some plane, clearly: no combination of the others reaches them."""
    cone = prepare_cone(P[left], n_planes=1)
    if not cone.is_pointed or not len(left):
        return left[:0]
    heights = P[left] @ cone.axis
    places = (P[left] / heights[:, None]) @ cone.basis
    least, each = _PLANES
    draws = np.random.default_rng(0).standard_normal((least + each * places.shape[1], places.shape[1]))
    ratios = places @ (draws / cone.stretch).T
    found: set[int] = set()
    for signed in (ratios, -ratios):
        best = signed.argmax(axis=0)
        if len(signed) > 1:
            first, second = -np.partition(-signed, 1, axis=0)[:2]
            # ... by more than what a row within the tolerance of the others' cone could
            reach = tolerance * np.abs(places).sum(axis=1).max() * np.abs(draws / cone.stretch).sum(axis=1)
            best = best[first - second > 4.0 * reach / cone.margin]
        found.update(best.tolist())
    return left[np.array(sorted(found), dtype=np.intp)]
