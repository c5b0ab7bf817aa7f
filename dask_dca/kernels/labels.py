"""Counts of labelled frames, and of distinct ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Labels = NDArray[np.intp]
    Numbers = NDArray[np.int64]

__all__ = ["distinct_count", "label_counts"]


def distinct_count(rows: Floats) -> int:
    """
    Count distinct rows, by one random combination of their features.

    Parameters
    ----------
    rows : ndarray of float64, shape (n, p)
        Rows.

    Returns
    -------
    int
        How many differ.

    Examples
    --------
    >>> distinct_count(np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]))
    2
    """
    line = np.random.default_rng(0).standard_normal(rows.shape[1])
    return len(np.unique((rows * line).sum(axis=1)))


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
