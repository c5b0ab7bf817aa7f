"""Features by which states of equal means differ: products and lengths, averaged over time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = ["lifted_features", "moving_average"]


def lifted_features(whitened: Floats, *, products: bool) -> Floats:
    """
    Lift frames to features whose means show covariances.

    Parameters
    ----------
    whitened : ndarray of float64, shape (n, q)
        Frames of about zero mean and unit variance.
    products : bool
        Products of all pairs of coordinates; squares only if False.

    Returns
    -------
    ndarray of float64, shape (n, r)
        The coordinates, their products damped by the frame's length, and the logarithm of that length, each of zero
        mean and unit variance.

    Examples
    --------
    >>> lifted_features(np.array([[1.0, 2.0], [3.0, -1.0], [0.0, 0.5]]), products=True).shape
    (3, 6)
    """
    q = whitened.shape[1]
    squares = (whitened**2).sum(axis=1, keepdims=True)
    left, right = np.triu_indices(q) if products else (np.arange(q), np.arange(q))
    damped = whitened[:, left] * whitened[:, right] / (1.0 + squares / q)
    features = np.hstack([whitened, damped, np.log(q / 10.0 + squares)])
    features -= features.mean(axis=0)
    spreads = features.std(axis=0)
    return features / np.where(spreads > 1e-9, spreads, 1.0)


def moving_average(values: Floats, edges: NDArray[np.int64], reach: int) -> Floats:
    """
    Average each row with its neighbours in time.

    Parameters
    ----------
    values : ndarray of float64, shape (n, r)
        Rows in the order of time.
    edges : ndarray of int64, shape (m + 1,)
        Ends of sequences, which are not averaged across.
    reach : int
        How many rows on either side.

    Returns
    -------
    ndarray of float64, shape (n, r)
        The averages.

    Examples
    --------
    >>> moving_average(np.array([[0.0], [3.0], [6.0], [9.0]]), np.array([0, 3, 4]), 1)[:, 0]
    array([1.5, 3. , 4.5, 9. ])
    """
    number = np.arange(len(values))
    which = np.searchsorted(edges, number, side="right") - 1
    low, high = np.maximum(number - reach, edges[which]), np.minimum(number + reach + 1, edges[which + 1])
    sums = np.concatenate([np.zeros((1, values.shape[1])), np.cumsum(values, axis=0)])
    found: Floats = (sums[high] - sums[low]) / (high - low)[:, None]
    return found
