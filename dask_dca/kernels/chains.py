"""Markov chains: start and transition probabilities, from counts and in the long run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = ["Markov", "smoothed_chain", "stationary_distribution"]

_PSEUDO: Final = 0.1  # transitions out of a state that are counted without having been seen


@dataclass(frozen=True)
class Markov:
    """Start probabilities (k,) and transition matrix (k, k) of a Markov chain."""

    startprob: Floats
    transmat: Floats


def stationary_distribution(transmat: Floats) -> Floats:
    """
    Return how often the states are visited in the long run.

    Parameters
    ----------
    transmat : ndarray of float64, shape (k, k)
        Transition matrix.

    Returns
    -------
    ndarray of float64, shape (k,)
        Probabilities; where the chain has several closed classes, some mixture of theirs.

    Examples
    --------
    >>> stationary_distribution(np.array([[0.9, 0.1], [0.3, 0.7]])).round(3)
    array([0.75, 0.25])
    """
    k = len(transmat)
    slightly_mixed = (1.0 - 1e-9) * transmat + 1e-9 / k
    # rows of (1 - T^T) sum to zero: adding ones to all of them leaves one solution, whose sum is one
    found = np.linalg.solve(np.eye(k) - slightly_mixed.T + 1.0, np.ones(k))
    found = np.maximum(found, 0.0)
    normalised: Floats = found / found.sum()
    return normalised


def smoothed_chain(starts: Floats, transitions: Floats) -> Markov:
    """
    Turn expected counts into a Markov chain without impossible transitions.

    Parameters
    ----------
    starts : ndarray of float64, shape (k,)
        Expected number of sequences that start in each state.
    transitions : ndarray of float64, shape (k, k)
        Expected number of transitions.

    Returns
    -------
    Markov
        Every row sums to one, also that of a state that no frame is in.

    Examples
    --------
    >>> smoothed_chain(np.array([1.0, 0.0]), np.array([[8.0, 2.0], [0.0, 0.0]])).transmat.round(2)
    array([[0.8, 0.2],
           [0.5, 0.5]])
    """
    visits = transitions.sum(axis=0) + transitions.sum(axis=1) + _PSEUDO
    first = starts + visits / visits.sum()
    rows = transitions + _PSEUDO / len(starts)
    return Markov(first / first.sum(), rows / rows.sum(axis=1, keepdims=True))
