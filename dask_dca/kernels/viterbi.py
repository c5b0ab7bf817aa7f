"""The most likely sequence of states, over many pieces of sequences side by side, and exact across pieces.

Arrays are (steps, states, chains), as in `dask_dca.kernels.markov`.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Mask = NDArray[np.bool_]
    States = NDArray[np.intp]

__all__ = ["best_paths", "best_scores", "join_paths"]


def best_paths(
    log_transmat: Floats, log_emissions: Floats, onward: Mask, entry: Floats, exit_: Floats
) -> tuple[States, Floats]:
    """
    Find the best path through each chain (Viterbi's algorithm).

    Parameters
    ----------
    log_transmat : ndarray of float64, shape (k, k)
        Logarithms of the transition matrix.
    log_emissions : ndarray of float64, shape (steps, k, m)
        Log densities; zero where there is no frame.
    onward : ndarray of bool, shape (steps, m)
        True where the next step has a frame of the same sequence; elsewhere the path stays where it is.
    entry, exit_ : ndarray of float64, shape (k, m)
        Log scores of the states at the first step, before its frame is seen, and of those at the last step.

    Returns
    -------
    states : ndarray of intp, shape (steps, m)
        The paths; of equally good states the one of lower number.
    scores : ndarray of float64, shape (m,)
        Their log scores.

    Examples
    --------
    >>> stay = np.log([[0.9, 0.1], [0.1, 0.9]])
    >>> seen = np.log([[[0.9], [0.1]], [[0.4], [0.6]], [[0.9], [0.1]]])
    >>> ends = np.zeros((2, 1))
    >>> best_paths(stay, seen, np.array([[True], [True], [False]]), ends, ends)[0][:, 0]
    array([0, 0, 0])
    """
    steps, k, m = log_emissions.shape
    came_from = np.empty((steps, k, m), dtype=np.int32)
    score, still = entry + log_emissions[0], np.arange(k)[:, None]
    for t in range(1, steps):
        ways = score[:, None] + log_transmat[:, :, None]
        came_from[t], best = ways.argmax(axis=0), ways.max(axis=0)
        if not onward[t - 1].all():
            came_from[t] = np.where(onward[t - 1], came_from[t], still)
            best = np.where(onward[t - 1], best, score)
        score = best + log_emissions[t]
    score = score + exit_
    states = np.empty((steps, m), dtype=np.intp)
    states[-1], chain = score.argmax(axis=0), np.arange(m)
    for t in range(steps - 1, 0, -1):
        states[t - 1] = came_from[t, states[t], chain]
    return states, score.max(axis=0)


def best_scores(log_transmat: Floats, log_emissions: Floats, onward: Mask) -> Floats:
    """
    Score the best way through each chain, for each state at its first step and each state right after its last.

    Parameters
    ----------
    log_transmat : ndarray of float64, shape (k, k)
        Logarithms of the transition matrix.
    log_emissions : ndarray of float64, shape (steps, k, m)
        Log densities.
    onward : ndarray of bool, shape (steps, m)
        As `best_paths` takes it; for the last step whether the sequence goes on after the chain.

    Returns
    -------
    ndarray of float64, shape (m, k, k)
        Log scores: entry (i, j) starts in state i, sees all frames, and steps on to state j, or ends in state j
        where the sequence ends.

    Examples
    --------
    >>> best_scores(np.log([[0.5, 0.5], [0.25, 0.75]]), np.zeros((1, 2, 1)), np.array([[True]])).round(3)
    array([[[-0.693, -0.693],
            [-1.386, -0.288]]])
    """
    _, k, m = log_emissions.shape
    score = np.full((k, k, m), -np.inf)  # (first state, state now, chain)
    score[np.arange(k), np.arange(k)] = 0.0
    best = np.empty_like(score)
    for emission, goes_on in zip(log_emissions, onward, strict=True):
        score += emission
        for j in range(k):
            np.max(score + log_transmat[:, j, None], axis=1, out=best[:, j])
        if goes_on.all():
            score, best = best, score
        else:
            score = np.where(goes_on, best, score)
    return np.ascontiguousarray(score.transpose(2, 0, 1))


def join_paths(log_startprob: Floats, scores: Floats, first: Mask) -> tuple[States, float]:
    """
    Find the state at the first frame of each piece on the best path through all pieces.

    Parameters
    ----------
    log_startprob : ndarray of float64, shape (k,)
        Logarithms of the start probabilities.
    scores : ndarray of float64, shape (m, k, k)
        From `best_scores`, for all pieces in the order of time.
    first : ndarray of bool, shape (m,)
        Pieces that begin a sequence.

    Returns
    -------
    states : ndarray of intp, shape (m,)
        The states.
    score : float
        Log score of the paths through all sequences.

    Examples
    --------
    >>> scores = np.log([[[0.5, 0.5], [0.25, 0.75]]])
    >>> join_paths(np.log([0.5, 0.5]), scores, np.array([True]))[0]
    array([1])
    """
    came_from = np.empty(scores.shape[:2], dtype=np.intp)
    states = np.empty(len(scores), dtype=np.intp)
    begins = [*np.flatnonzero(first), len(scores)]
    total = 0.0
    for begin, end in itertools.pairwise(begins):
        now = log_startprob
        for r in range(begin, end):
            ways = now[:, None] + scores[r]
            came_from[r], now = ways.argmax(axis=0), ways.max(axis=0)
        total += float(now.max())
        after = int(now.argmax())
        for r in range(end - 1, begin - 1, -1):
            states[r] = after = came_from[r, after]
    return states, total
