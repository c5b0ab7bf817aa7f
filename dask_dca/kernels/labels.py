"""Counts of labelled frames."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Labels = NDArray[np.intp]
    Numbers = NDArray[np.int64]

__all__ = ["label_counts"]


def label_counts(labels: Labels, edges: Numbers, k: int) -> tuple[Floats, Floats]:
    """
    Count starts and transitions of labels.

    Parameters
    ----------
    labels : ndarray of intp, shape (n,)
        A state for each frame.
    edges : ndarray of int64, shape (m + 1,)
        Ends of sequences.
    k : int
        Number of states.

    Returns
    -------
    starts : ndarray of float64, shape (k,)
        How many sequences start in each state.
    transitions : ndarray of float64, shape (k, k)
        How many frames in one state are followed by one in the other.

    Examples
    --------
    >>> label_counts(np.array([0, 1, 1, 0]), np.array([0, 3, 4]), 2)[1]
    array([[0., 1.],
           [0., 1.]])
    """
    follows = np.ones(len(labels) - 1, dtype=bool)
    follows[edges[1:-1] - 1] = False
    pairs = np.bincount(labels[:-1][follows] * k + labels[1:][follows], minlength=k * k)
    starts = np.bincount(labels[edges[:-1]], minlength=k)
    return starts.astype(np.float64), pairs.reshape(k, k).astype(np.float64)
