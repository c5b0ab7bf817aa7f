"""Exact messages and best paths across the ends of pieces of sequences, and how soon a chain forgets.

What a piece does to a message is linear: a (k, k) matrix of likelihoods, from the state at its first frame to the one
right after its last. Matrices of all pieces are computed side by side; a short scan over pieces then gives the exact
messages with which every piece is entered and left, however slowly the chain forgets.

Arrays are (steps, states, chains), as in `dask_dca.models.hmm.recursions`.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final

import numpy as np

from dask_dca.models.hmm.recursions import log_sum_exp, log_transfers, near_underflow, safe_log

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Mask = NDArray[np.bool_]
    States = NDArray[np.intp]

__all__ = ["best_paths", "best_scores", "burn_in_that_forgets", "join_messages", "join_paths", "transfer_logs"]

_ENOUGH: Final = (8, 16, 32, 64)  # frames that are tried; twice as many are taken
_FORGOTTEN: Final = 1e-10  # total variation between messages that came from different states


def transfer_logs(transmat: Floats, log_emissions: Floats) -> Floats:
    """Return the logarithms of what each chain does to a message.

    transmat (k, k): transition matrix; log_emissions (steps, k, m): log densities; zero where there is no frame.
    Returns (m, k, k): entry (i, j) is the log likelihood of all frames together with state j right after them, given
    state i at the first.
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
    """Return the exact messages with which pieces are entered and left.

    logs (m, k, k): from `transfer_logs`, for all pieces in the order of time; first (m,): pieces that begin a sequence.
    Returns log_entry (m, k): logarithm of the distribution of the state at each piece's first frame, given all earlier
    frames; log_exit (m, k): log likelihood of all that follows a piece given the state at its last frame, up to a
    constant.
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


def burn_in_that_forgets(transmat: Floats, log_densities: Floats) -> int:
    """Measure how many frames it takes until messages no longer depend on where they came from.

    transmat (k, k): transition matrix; log_densities (m, steps, k): log densities of the frames of m stretches. Returns
    twice the frames after which messages from different states differ by less than 1e-10 on all stretches, forward and
    backward: 16 to 128; 0 where 64 frames are not enough.
    """
    steps, k = log_densities.shape[1:]
    for enough in _ENOUGH:
        windows = log_densities[:, : steps - steps % enough].reshape(-1, enough, k)
        if len(windows) and _spread(transfer_logs(transmat, windows.transpose(1, 2, 0))) < _FORGOTTEN:
            return 2 * enough
    return 0


def _spread(logs: Floats) -> float:
    """How far messages through (m, k, k) log matrices depend on their first state, and on their last."""
    with np.errstate(invalid="ignore"):
        rows = np.exp(logs - logs.max(axis=2, keepdims=True))
        columns = np.exp(logs - logs.max(axis=1, keepdims=True))
    rows /= rows.sum(axis=2, keepdims=True)
    columns /= columns.sum(axis=1, keepdims=True)
    forward = np.abs(rows - rows[:, :1]).sum(axis=2).max()
    backward = np.abs(columns - columns[:, :, :1]).sum(axis=1).max()
    return float(np.nan_to_num(max(forward, backward), nan=1.0))


def best_paths(
    log_transmat: Floats, log_emissions: Floats, onward: Mask, entry: Floats, exit_: Floats
) -> tuple[States, Floats]:
    """Find the best path through each chain (Viterbi's algorithm).

    log_transmat (k, k); log_emissions (steps, k, m); onward (steps, m); entry, exit_ (k, m). Returns states (steps, m);
    scores (m,).
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
    """Score the best way through each chain, for each state at its first step and each state right after its last.

    log_transmat (k, k): logarithms of the transition matrix; log_emissions (steps, k, m): log densities; onward (steps,
    m): as `best_paths` takes it; for the last step whether the sequence goes on after the chain. Returns (m, k, k): log
    scores: entry (i, j) starts in state i, sees all frames, and steps on to state j, or ends in state j where the
    sequence ends.
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
    """Find the state at the first frame of each piece on the best path through all pieces.

    log_startprob (k,): logarithms of the start probabilities; scores (m, k, k): from `best_scores`, for all pieces in
    the order of time; first (m,): pieces that begin a sequence. Returns states (m,): the states; score: log score of
    the paths through all sequences.
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
