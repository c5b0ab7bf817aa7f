"""Both sides of a bilateral moment M = O D (O T)^T: which column of O T belongs to which of O, and how long it is.

Anchors give the columns of O and of O T as two sets of rays: neither their order nor their lengths are known. But D is
the second moment of the state, E[h (x) h], so it must be symmetric and positive.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final

import numpy as np
from scipy.optimize import linear_sum_assignment

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Numbers = NDArray[np.int64]

__all__ = ["common_length", "pair_columns"]

_EVERY: Final = 7  # columns up to which all orders are compared
_LEAST_RIDGE: Final = 1e-9
_LEAST_WEIGHT: Final = 1e-3  # of a column in D: lengths are not thrown further than this


def pair_columns(cross: Floats) -> tuple[Numbers, Floats, Floats]:
    """
    Order and scale the columns of D so that it is symmetric and positive.

    Parameters
    ----------
    cross : ndarray of float64, shape (k, k)
        D with its columns in any order and of any positive lengths: O^+ M (C^+)^T, C the columns of O T as found.

    Returns
    -------
    order : ndarray of int64, shape (k,)
        Column `order[j]` of C belongs to column j of O.
    lengths : ndarray of float64, shape (k,)
        What that column is to be multiplied with, up to one factor that all share.
    moment : ndarray of float64, shape (k, k)
        D = cross[:, order] / lengths: symmetric and positive as far as one order and lengths make it so.

    Notes
    -----
    At most one order does it exactly. If D and E = D P S are both symmetric and positive definite, P a permutation and
    S positive and diagonal, then P S = D^-1 E has positive eigenvalues, as products of two positive definite matrices
    have; but those of a cycle of two or more columns are not all positive. Given the order, D_ij / l_j = D_ji / l_i
    fixes the lengths up to one factor, or one for each block of the state that D does not link to others; then columns
    stay near the lengths that they came with.

    Examples
    --------
    >>> D = np.array([[2.0, 1.0], [1.0, 3.0]])
    >>> order, lengths, moment = pair_columns((D * [1.0, 4.0])[:, ::-1])
    >>> order.tolist(), (lengths / lengths[0]).round(6).tolist(), (moment / moment[0, 0] * 2).round(6).tolist()
    ([1, 0], [1.0, 4.0], [[2.0, 1.0], [1.0, 3.0]])
    """
    k = len(cross)
    if k <= _EVERY:
        orders = np.array(list(itertools.permutations(range(k))))
        order = orders[_distances(cross, orders).argmin()]
    else:
        order = _exchanged(cross, _assigned(cross))
    weights, moment = (found[0] for found in _symmetrised(cross, order[None]))
    sizes = np.linalg.norm(cross, axis=0)[order]
    lengths = np.where(sizes > 0.0, sizes / np.where(sizes > 0.0, weights, 1.0), 1.0) / (np.linalg.norm(sizes) or 1.0)
    return order, lengths, moment * np.linalg.norm(sizes)


def common_length(once: Floats, twice: Floats, transition: Floats) -> float:
    """
    Find the factor of a transition from moments of frames that are one and two steps apart.

    Parameters
    ----------
    once, twice : ndarray of float64, shape (k, k)
        E[h_t (x) h_{t+1}] = D T^T, and E[h_t (x) h_{t+2}] = D T^T T^T.
    transition : ndarray of float64, shape (k, k)
        T up to a positive factor.

    Returns
    -------
    float
        The factor, by least squares; one where none is positive.

    Examples
    --------
    >>> common_length(np.array([[0.5]]), np.array([[0.25]]), np.array([[2.0]]))
    0.25
    """
    moved = once @ transition.T
    size = float((moved**2).sum())
    factor = float((moved * twice).sum()) / size if size > 0.0 else 1.0
    return factor if factor > 0.0 else 1.0


def _symmetrised(cross: Floats, orders: Numbers) -> tuple[Floats, Floats]:
    """Weights (m, k) of the columns, of length one each, and D (m, k, k) of norm one, for each order."""
    sizes = np.linalg.norm(cross, axis=0)
    unit = cross / np.where(sizes > 0.0, sizes, 1.0)
    columns = np.moveaxis(unit[:, orders], 0, 1)
    wrong = np.eye(len(cross)) - _agreement(columns)
    # the quadratic form of |D - D^T|^2 in the weights; off the diagonal it is nowhere positive, so its inverse has no
    # negative entry, nor have the weights
    found = np.linalg.eigvalsh(wrong)[:, :1]
    given = sizes[orders] / (np.linalg.norm(sizes) or 1.0)
    ridge = np.maximum(found, _LEAST_RIDGE)
    weights = np.linalg.solve(wrong + ridge[:, :, None] * np.eye(len(cross)), (ridge * given)[:, :, None])[:, :, 0]
    weights = np.maximum(weights / _lengths(weights), _LEAST_WEIGHT)
    weights /= _lengths(weights)
    return weights, columns * weights[:, None, :]


def _lengths(rows: Floats) -> Floats:
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.where(norms > 0.0, norms, 1.0)


def _agreement(columns: Floats) -> Floats:
    """Products D_ij D_ji of each order's matrix; zero where signs differ, or the diagonal is negative."""
    products = np.maximum(columns * np.swapaxes(columns, 1, 2), 0.0)
    diagonal = np.diagonal(columns, axis1=1, axis2=2)
    products[:, np.arange(columns.shape[1]), np.arange(columns.shape[1])] = np.maximum(diagonal, 0.0) ** 2
    return products


def _distances(cross: Floats, orders: Numbers) -> Floats:
    """Squared distance of D, of norm one, from the symmetric positive matrices, for each order."""
    moments = _symmetrised(cross, orders)[1]
    even = 0.5 * (moments + np.swapaxes(moments, 1, 2))
    negative = np.minimum(np.linalg.eigvalsh(even), 0.0)
    return ((moments - even) ** 2).sum(axis=(1, 2)) + (negative**2).sum(axis=1)


def _assigned(cross: Floats) -> Numbers:
    """The order of greatest D_jj (D^-1)_jj in all, which no lengths change; in positive ones each is at least 1."""
    gains = cross * np.linalg.pinv(cross).T
    return linear_sum_assignment(-gains)[1].astype(np.int64)


def _exchanged(cross: Floats, order: Numbers) -> Numbers:
    """Exchange two columns as long as D comes nearer to the symmetric positive matrices."""
    k = len(order)
    pairs = np.array(list(itertools.combinations(range(k), 2)))
    best = _distances(cross, order[None])[0]
    while True:
        orders = np.repeat(order[None], len(pairs), axis=0)
        each = np.arange(len(pairs))
        orders[each, pairs[:, 0]], orders[each, pairs[:, 1]] = order[pairs[:, 1]], order[pairs[:, 0]]
        distances = _distances(cross, orders)
        if not distances.min() < best:
            return order
        order, best = orders[distances.argmin()], distances.min()
