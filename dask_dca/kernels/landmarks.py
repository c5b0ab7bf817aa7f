"""Landmarks: some hundred to thousand distinct rows that all others are expressed by."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from dask_dca.geometry import planes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Places = NDArray[np.intp]

__all__ = ["choose_landmarks", "distinct_rows", "quantise"]

_BITS: Final = 24  # products of two quantised unit vectors are sums of integers below 2**53: exact in any order
_PLANES: Final = 8  # whose cells give half of the landmarks, at most


def quantise(vectors: Floats) -> Floats:
    """
    Round numbers of magnitude up to one to multiples of 2**-24.

    Scalar products of two such vectors of at most unit length are exact, so they have the same bits whatever the
    shapes of the matrices that they are computed in.

    Parameters
    ----------
    vectors : ndarray of float64
        Numbers.

    Returns
    -------
    ndarray of float64
        The rounded numbers, of the same shape.

    Examples
    --------
    >>> float(quantise(np.array(0.1)) * 2**24)
    1677722.0
    """
    return np.ldexp(np.rint(np.ldexp(vectors, _BITS)), -_BITS)


def distinct_rows(coordinates: Floats) -> Places:
    """
    Return the first of all equal rows, zero rows left out.

    Parameters
    ----------
    coordinates : ndarray of float64, shape (n, d)
        Rows.

    Returns
    -------
    ndarray of intp, shape (m,)
        Places, increasing.

    Examples
    --------
    >>> distinct_rows(np.array([[1.0, 0.0], [0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]))
    array([0, 3])
    """
    first = np.unique(coordinates, axis=0, return_index=True)[1]
    return np.sort(first[coordinates[first].any(axis=1)])


def choose_landmarks(coordinates: Floats, count: int, seed: int) -> Places:
    """
    Choose landmarks: the extreme rows of the cells of a few planes, filled up with rows drawn by their number.

    Each of eight planes is spanned by the mean direction and a random one; its rows, in the order of their angle,
    are cut into cells of equal count, and the two extreme rows of every cell are landmarks. In the paper cells come
    from mean shift; cells of equal count leave no part of the data without landmarks.

    Parameters
    ----------
    coordinates : ndarray of float64, shape (n, d)
        Rows of unit length, or of zeros, which can't be chosen.
    count : int
        How many landmarks; all distinct rows where there are no more.
    seed : int
        Seed of planes and draws.

    Returns
    -------
    ndarray of intp, shape (K,)
        Places, increasing.

    Examples
    --------
    >>> choose_landmarks(np.eye(3)[[0, 1, 2, 0]], 10, 0)
    array([0, 1, 2])
    """
    pool = distinct_rows(coordinates)
    if len(pool) <= count:
        return pool
    rows = coordinates[pool]
    chosen = np.unique(np.concatenate([_cells(ratio, count) for ratio in _ratios(rows, seed)]))
    others = np.setdiff1d(np.arange(len(pool)), chosen)
    draws = planes.uniforms(planes.child_seeds(seed, pool[others]), 1)[:, 0]
    filling = others[np.argsort(draws, kind="stable")[: max(count - len(chosen), 0)]]
    return pool[np.sort(np.concatenate([chosen, filling]))]


def _ratios(rows: Floats, seed: int) -> Floats:
    """Tangents of the rows' angles on each plane, shape (planes, n); rows behind the axis count as far out."""
    axis = rows.mean(axis=0)
    scales = np.sqrt((rows**2).mean(axis=0)) + np.finfo(float).tiny
    directions = planes.directions("row-space", seed, np.arange(_PLANES), scales)
    along = np.maximum(rows @ axis, 1e-3 * np.sqrt((axis**2).sum()) + np.finfo(float).tiny)
    return (directions @ rows.T) / along


def _cells(ratio: Floats, count: int) -> Places:
    """First and last row of each cell of equal count."""
    order = np.argsort(ratio, kind="stable")
    n_cells = max(1, count // (4 * _PLANES))
    edges = np.arange(n_cells + 1) * len(order) // n_cells
    return np.concatenate([order[edges[:-1]], order[edges[1:] - 1]])
