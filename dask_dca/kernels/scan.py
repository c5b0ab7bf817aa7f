"""Exact messages at the ends of pieces of sequences, from one matrix a piece.

What a piece does to a message is linear: a (k, k) matrix of likelihoods, from the state at its first frame to the one
right after its last. Matrices of all pieces are computed side by side; a short scan over pieces then gives the exact
messages with which every piece is entered and left, however slowly the chain forgets.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np

from dask_dca.kernels.markov_logs import log_sum_exp, log_transfers, near_underflow, safe_log

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Mask = NDArray[np.bool_]

__all__ = ["join_messages", "transfer_logs"]


def transfer_logs(transmat: Floats, log_emissions: Floats) -> Floats:
    """
    Return the logarithms of what each chain does to a message.

    Parameters
    ----------
    transmat : ndarray of float64, shape (k, k)
        Transition matrix.
    log_emissions : ndarray of float64, shape (steps, k, m)
        Log densities; zero where there is no frame.

    Returns
    -------
    ndarray of float64, shape (m, k, k)
        Entry (i, j) is the log likelihood of all frames together with state j right after them, given state i at
        the first.

    Examples
    --------
    >>> transfer_logs(np.array([[0.5, 0.5], [0.25, 0.75]]), np.zeros((1, 2, 1))).round(3)
    array([[[-0.693, -0.693],
            [-1.386, -0.288]]])
    """
    steps, k, m = log_emissions.shape
    peaks = log_emissions.max(axis=1)
    emissions = np.exp(log_emissions - peaks[:, None])
    message = np.repeat(np.eye(k)[:, :, None], m, axis=2)  # (first state, state now, chain)
    log_sums = np.empty((steps, k, m))
    onward = np.ascontiguousarray(transmat.T)
    with np.errstate(divide="ignore", invalid="ignore"):
        for emission, logs in zip(emissions, log_sums, strict=True):
            message *= emission
            total = message.sum(axis=1)
            np.log(total, out=logs)
            message /= total[:, None]
            message = np.matmul(onward, message)
    found = safe_log(message) + (log_sums.sum(axis=0) + peaks.sum(axis=0))[:, None]
    # a message of one state alone loses nothing on the first step
    lost = (near_underflow(log_sums[1:]) | ~np.isfinite(log_sums[0])).any(axis=0)
    if lost.any():
        found[..., lost] = log_transfers(transmat, log_emissions[..., lost])
    return np.ascontiguousarray(found.transpose(2, 0, 1))


def join_messages(startprob: Floats, transmat: Floats, logs: Floats, first: Mask) -> tuple[Floats, Floats, float]:
    """
    Return the exact messages with which pieces are entered and left.

    Parameters
    ----------
    startprob, transmat : ndarray of float64, shapes (k,) and (k, k)
        The Markov chain.
    logs : ndarray of float64, shape (m, k, k)
        From `transfer_logs`, for all pieces in the order of time.
    first : ndarray of bool, shape (m,)
        Pieces that begin a sequence.

    Returns
    -------
    log_entry : ndarray of float64, shape (m, k)
        Logarithm of the distribution of the state at each piece's first frame, given all earlier frames.
    log_exit : ndarray of float64, shape (m, k)
        Log likelihood of all that follows a piece given the state at its last frame, up to a constant.
    log_likelihood : float
        Of all sequences.

    Examples
    --------
    >>> T = np.array([[0.5, 0.5], [0.25, 0.75]])
    >>> round(abs(join_messages(np.array([0.5, 0.5]), T, np.log(T)[None], np.array([True]))[2]), 12)
    0.0
    """
    entry, leave = np.empty(logs.shape[:2]), np.empty(logs.shape[:2])
    log_start, log_transmat, total = safe_log(startprob), safe_log(transmat), 0.0
    for begin, end in itertools.pairwise([*np.flatnonzero(first), len(logs)]):
        now = log_start
        for r in range(begin, end):
            entry[r] = now
            now = log_sum_exp(now[:, None] + logs[r], 0)
            likelihood = float(log_sum_exp(now, 0))
            total += likelihood
            now = now - likelihood
        after = np.zeros(logs.shape[1])
        for r in range(end - 1, begin - 1, -1):
            beyond = log_sum_exp(log_transmat + after, 1)
            leave[r] = beyond - beyond.max()
            after = log_sum_exp(logs[r] + after, 1)
            after -= after.max()
    return entry, leave, total
