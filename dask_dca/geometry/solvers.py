"""Solvers of the minimum conical hull problem in any dimension, on arrays in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dask_dca.geometry.cone import nonnegative_coefficients

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

__all__ = ["successive_projection", "xray"]


def successive_projection(points: ArrayLike, n_anchors: int) -> NDArray[np.int64]:
    """
    Choose rows by successive projection (SPA).

    Araujo et al., The successive projections algorithm for variable selection, Chemometrics and Intelligent
    Laboratory Systems 57, 2001. One of the solvers that the paper compares with.

    Parameters
    ----------
    points : array_like, shape (n, d)
        Points whose convex hull is sought, such as rows scaled to sum one.
    n_anchors : int
        How many rows to choose.

    Returns
    -------
    ndarray of int64, shape (m,)
        Row numbers in the order of choice; m < n_anchors where the points span fewer dimensions.

    Examples
    --------
    >>> successive_projection([[1.0, 0.0], [0.5, 0.5], [0.0, 2.0]], 2)
    array([2, 0])
    """
    P = np.asarray(points, dtype=np.float64)
    left = (P**2).sum(axis=1)
    floor = 1e-12 * left.max(initial=0.0)
    basis = np.zeros((min(n_anchors, P.shape[1]), P.shape[1]))
    chosen: list[int] = []
    for step in range(min(len(basis), len(P))):
        best = int(left.argmax())
        if left[best] <= floor:
            break
        chosen.append(best)
        u = P[best] - (basis[:step] @ P[best]) @ basis[:step]
        basis[step] = u / np.linalg.norm(u)
        left = np.maximum(left - (P @ basis[step]) ** 2, 0.0)
        left[best] = 0.0
    return np.array(chosen, dtype=np.int64)


def xray(points: ArrayLike, n_anchors: int) -> NDArray[np.int64]:
    """
    Choose rows by XRAY with its rule "max".

    Kumar, Sindhwani and Kambadur, Fast conical hull algorithms for near-separable non-negative matrix
    factorization, ICML 2013: the row with the greatest residual outside the cone so far gives a direction, and the
    row that reaches furthest along it, relative to its mass, is chosen.

    Parameters
    ----------
    points : array_like, shape (n, p)
        Rows with positive sums; they need no scaling, so equal noise stays equal.
    n_anchors : int
        How many rows to choose.

    Returns
    -------
    ndarray of int64, shape (m,)
        Row numbers in the order of choice; fewer than n_anchors where the cone covers all rows.

    Examples
    --------
    >>> sorted(xray([[1.0, 0.0], [0.5, 0.5], [0.0, 2.0]], 2).tolist())
    [0, 2]
    """
    P = np.asarray(points, dtype=np.float64)
    mass = np.maximum(P.sum(axis=1), 1e-300)
    residual, size = P, (P**2).sum(axis=1)
    floor = 1e-20 * size.max(initial=0.0)
    chosen: list[int] = []
    while len(chosen) < min(n_anchors, len(P)):
        worst = int(size.argmax())
        reach = (P @ residual[worst]) / mass
        reach[chosen] = -np.inf
        if size[worst] <= floor:
            break
        chosen.append(int(reach.argmax()))
        residual = P - nonnegative_coefficients(P, P[chosen]) @ P[chosen]
        size = (residual**2).sum(axis=1)
        size[chosen] = 0.0
    return np.array(chosen, dtype=np.int64)
