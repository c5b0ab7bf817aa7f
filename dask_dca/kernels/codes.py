"""Codes: each row as a non-negative combination of its nearest landmarks, by ridge-regularised least squares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from scipy import sparse

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Places = NDArray[np.intp]

__all__ = ["RIDGE", "Codes", "code_rows", "nonnegative_ridge"]

_NEAREST: Final = 30  # landmarks that a row is a combination of, at most
_KEPT: Final = 10  # of them keep their weight: the largest
RIDGE: Final = 0.1
_SWEEPS: Final = 8
_SAME: Final = 2.0**-44  # squared distance a coordinate, up to which rows are the same but for rounding
_NEAR_ONE: Final = 2.0**-16  # how far from one a product of two vectors that are the same may be
_SLAB: Final = 1024  # rows that are solved at once


@dataclass(frozen=True)
class Codes:
    """Sparse codes of rows: which landmarks, with which weights."""

    landmarks: Places  # (n, m)
    weights: Floats  # (n, m), rows of sum one; zeros for a zero row

    def matrix(self, count: int) -> sparse.csr_array:
        """
        Lay the codes out as a sparse matrix.

        Parameters
        ----------
        count : int
            Number of landmarks K.

        Returns
        -------
        scipy.sparse.csr_array, shape (n, K)
            Without stored zeros.
        """
        n, m = self.landmarks.shape
        found = sparse.csr_array(
            (self.weights.ravel(), self.landmarks.ravel(), np.arange(n + 1) * m), shape=(n, count), copy=True
        )
        found.eliminate_zeros()
        return found

    def combine(self, values: Floats) -> Floats:
        """
        Sum values at the landmarks by weight, added in one order for every row.

        Parameters
        ----------
        values : ndarray of float64, shape (K, m)
            One row a landmark.

        Returns
        -------
        ndarray of float64, shape (n, m)
            The sums.
        """
        total = np.zeros((len(self.landmarks), values.shape[1]))
        for j in range(self.landmarks.shape[1]):
            total += self.weights[:, j, None] * values[self.landmarks[:, j]]
        return total


def nonnegative_ridge(gram: Floats, products: Floats, ridge: float, sweeps: int = _SWEEPS) -> Floats:
    """
    Minimise f H f - 2 c . f + ridge |f|^2 over f >= 0 for many small problems, by coordinate descent.

    Parameters
    ----------
    gram : ndarray of float64, shape (m, m, n)
        Matrices H, the problems along the last axis.
    products : ndarray of float64, shape (m, n)
        Vectors c.
    ridge : float
        Positive; it bounds the weights of near-duplicates.
    sweeps : int, default 8
        How often each coordinate is minimised.

    Returns
    -------
    ndarray of float64, shape (m, n)
        Coefficients f, up to the accuracy of that many sweeps. Problems do not affect each other's bits.

    Examples
    --------
    >>> nonnegative_ridge(np.eye(2)[:, :, None], np.array([[2.0], [-1.0]]), 1.0)
    array([[1.],
           [0.]])
    """
    found = np.zeros_like(products)
    left = products.copy()
    for _ in range(sweeps):
        for j in range(len(products)):
            own = gram[j, j]
            moved = np.maximum(left[j] + own * found[j], 0.0) / (own + ridge)
            left -= gram[j] * (moved - found[j])
            found[j] = moved
    return found


def code_rows(coordinates: Floats, landmarks: Floats, ridge: float = RIDGE) -> Codes:
    """
    Code rows by their nearest landmarks; a row that is a landmark is coded by the others.

    Non-negative least squares on the 30 landmarks of greatest inner product; the ten largest weights are kept,
    divided by the largest and squared. It is the self-expression X = C X of subspace clustering, with columns for
    the landmarks only.

    Parameters
    ----------
    coordinates : ndarray of float64, shape (n, d)
        Quantised rows of unit length, or of zeros.
    landmarks : ndarray of float64, shape (K, d)
        Quantised rows of unit length.
    ridge : float, default 0.1
        Positive; the greater, the more landmarks share in a code.

    Returns
    -------
    Codes
        Of m = min(K, 30) landmarks a row; a row's do not depend on the others.

    Examples
    --------
    >>> rows = np.array([[1.0, 0.0], [0.0, 1.0]])
    >>> code_rows(rows, rows).matrix(2).toarray()  # nobody is near: each is its own
    array([[1., 0.],
           [0., 1.]])
    """
    gram = landmarks @ landmarks.T
    parts = [_code(coordinates[i : i + _SLAB], landmarks, gram, ridge) for i in range(0, len(coordinates), _SLAB)]
    m = min(len(landmarks), _NEAREST)
    parts = parts or [Codes(np.zeros((0, m), dtype=np.intp), np.zeros((0, m)))]
    return Codes(*(np.concatenate([getattr(part, name) for part in parts]) for name in ("landmarks", "weights")))


def _code(rows: Floats, landmarks: Floats, gram: Floats, ridge: float) -> Codes:
    products = rows @ landmarks.T
    products[_same(rows, products, gram.diagonal())] = -np.inf
    count = len(landmarks)
    m = min(count, _NEAREST)
    nearest = np.sort(np.argpartition(products, count - m, axis=1)[:, count - m :], axis=1)
    near = np.maximum(np.take_along_axis(products, nearest, axis=1), 0.0)
    order = np.argsort(-near, axis=1, kind="stable")
    nearest, near = (np.take_along_axis(part, order, axis=1) for part in (nearest, near))
    across = np.ascontiguousarray(nearest.T)
    own = gram.ravel().take(across[:, None, :] * count + across[None, :, :])
    weights = np.where(near > 0.0, nonnegative_ridge(own, near.T.copy(), ridge).T, 0.0)
    _fall_back(rows, landmarks, nearest, weights)
    return Codes(nearest, _sharpen(weights))


def _same(rows: Floats, products: Floats, energies: Floats) -> tuple[Places, Places]:
    """Rows, and landmarks that are the same but for rounding: of unit vectors only products near one are looked at."""
    which, where = np.divmod(np.flatnonzero(products > 1.0 - _NEAR_ONE), products.shape[1])
    gaps = (rows[which] ** 2).sum(axis=1) + energies[where] - 2.0 * products[which, where]
    same = gaps <= rows.shape[1] * _SAME
    return which[same], where[same]


def _fall_back(rows: Floats, landmarks: Floats, nearest: Places, weights: Floats) -> None:
    """Rows near to no other landmark are coded by the nearest of all, themselves if need be."""
    alone = np.flatnonzero(~weights.any(axis=1) & rows.any(axis=1))
    if len(alone):
        nearest[alone, 0] = (rows[alone] @ landmarks.T).argmax(axis=1)
        weights[alone] = 0.0
        weights[alone, 0] = 1.0


def _sharpen(weights: Floats) -> Floats:
    """Keep the largest weights, squared, of sum one."""
    if weights.shape[1] > _KEPT:
        least = -np.partition(-weights, _KEPT - 1, axis=1)[:, _KEPT - 1 : _KEPT]
        weights = np.where(weights >= least, weights, 0.0)
    largest = weights.max(axis=1, initial=0.0, keepdims=True)
    sharp = (weights / np.where(largest > 0.0, largest, 1.0)) ** 2
    total = np.zeros((len(sharp), 1))
    for j in range(sharp.shape[1]):
        total += sharp[:, j : j + 1]
    return sharp / np.where(total > 0.0, total, 1.0)
