"""Markov chains: forward and backward recursions over many pieces side by side, and across pieces.

Arrays are (steps, states, pieces), so that a step is one product (k, k) x (k, pieces) for both recursions. Messages are
scaled to sum to one, and the logarithms of the sums add up to the log likelihood. Pieces whose messages come near
underflow, which requires nearly impossible transitions, are computed again in logarithms.

A piece acts linearly on a message, by a (k, k) transfer matrix of likelihoods from the state at its first frame to the
state right after its last. The matrices of all pieces are computed side by side; a short scan over pieces then gives
the exact messages at the entry and exit of every piece, even for chains that forget slowly.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dask_dca.geometry.arrays import Floats, Mask
from dask_dca.geometry.exact import Workspace

States = NDArray[np.intp]

_PSEUDO_COUNT: Final = 0.1  # pseudo-count of transitions out of each state
_LOG_SMALL_SUM: Final = np.log(1e-4)  # log sums of scaled messages below this count as a loss of range
_MAX_LOG_LOSS: Final = 450.0  # maximum total of such losses, in nats, before underflow is near
_UNDERFLOW: Final = 1e-250  # products of messages below this are near underflow


@dataclass(frozen=True)
class Markov:
    """Start probabilities (k,) and transition matrix (k, k) of a Markov chain."""

    startprob: Floats
    transmat: Floats


def stationary_distribution(transmat: Floats) -> Floats:
    """Compute the stationary distribution (k,) of a transition matrix (k, k).

    If the chain has several closed classes, the result is some mixture of theirs.
    """
    k = len(transmat)
    slightly_mixed = (1.0 - 1e-9) * transmat + 1e-9 / k
    # columns of I - T^T sum to zero; adding ones to all entries makes the solution unique, with sum one
    found = np.linalg.solve(np.eye(k) - slightly_mixed.T + 1.0, np.ones(k))
    found = np.maximum(found, 0.0)
    return found / found.sum()


def smoothed_chain(starts: Floats, transitions: Floats) -> Markov:
    """Estimate a Markov chain without impossible transitions from expected counts, with pseudo-counts.

    starts (k,): expected number of sequences that start in each state; transitions (k, k): expected transitions.
    """
    visits = transitions.sum(axis=0) + transitions.sum(axis=1) + _PSEUDO_COUNT
    first = starts + visits / visits.sum()
    rows = transitions + _PSEUDO_COUNT / len(starts)
    return Markov(first / first.sum(), rows / rows.sum(axis=1, keepdims=True))


def near_underflow(log_sums: Floats) -> Mask:
    """Find scaled recursions that may have rounded a relevant probability to zero.

    log_sums (steps, ...): logarithms of the sums by which messages were scaled at each step. Returns a mask (...).
    """
    return ~(np.where(log_sums < _LOG_SMALL_SUM, -log_sums, 0.0).sum(axis=0) < _MAX_LOG_LOSS)


def safe_log(values: Floats) -> Floats:
    """Compute logarithms, minus infinity for zero, without a warning."""
    with np.errstate(divide="ignore"):
        found: Floats = np.log(values)
    return found


def log_sum_exp(values: Floats, axis: int) -> Floats:
    """Compute the logarithm of the sum of exponentials along an axis; minus infinity stands for zero."""
    peak = _finite_peaks(values, axis)
    return safe_log(np.exp(values - np.expand_dims(peak, axis)).sum(axis=axis)) + peak


def _finite_peaks(logs: Floats, axis: int) -> Floats:
    """Greatest logarithms along an axis; zero where all are minus infinity, so that they can be subtracted."""
    peaks = logs.max(axis=axis)
    return np.where(np.isfinite(peaks), peaks, 0.0)


def _rescale(logs: Floats, level: float) -> Floats:
    """Subtract a level from a log message; if it is minus infinity, all states become equally likely."""
    return logs - level if np.isfinite(level) else np.zeros_like(logs)


def log_filtered(markov: Markov, chains: Chains) -> Floats:
    """Run the forward recursion in logarithms.

    Returns predicted and filtered log probabilities (2, steps, k, m); at a frame that is impossible in all states the
    filtered ones are the predicted ones.
    """
    log_start, log_transmat = safe_log(markov.startprob), safe_log(markov.transmat)
    predicted, filtered = found = np.empty((2, *chains.log_emissions.shape))
    for t, emission in enumerate(chains.log_emissions):
        predicted[t] = _propagate(filtered[t - 1], log_transmat) if t else chains.log_entry
        if t == chains.restart:
            predicted[t][:, chains.first] = log_start[:, None]
        filtered[t] = _normalise(predicted[t] + emission, predicted[t])
    return found


def log_messages(markov: Markov, chains: Chains) -> tuple[Floats, Floats, Floats]:
    """Run both recursions in logarithms.

    Returns the fields of `Messages`: log likelihoods (steps, m) of each frame given the earlier ones; posteriors and
    filtered probabilities (steps, k, m).
    """
    log_emissions, log_transmat = chains.log_emissions, safe_log(markov.transmat)
    steps, (predicted, filtered) = len(log_emissions), log_filtered(markov, chains)
    weighted, backward = np.empty_like(log_emissions), np.empty_like(log_emissions)
    for t in range(steps - 1, -1, -1):
        backward[t] = chains.log_exit if t == steps - 1 else _propagate(weighted[t + 1], log_transmat.T)
        weighted[t] = _normalise(backward[t] + log_emissions[t], backward[t])
    likelihoods = log_sum_exp(predicted + log_emissions, 1)
    posteriors = np.exp(_normalise(filtered + backward, filtered))
    return likelihoods, posteriors, np.exp(filtered)


def _propagate(logs: Floats, log_matrix: Floats) -> Floats:
    """Propagate log messages (k, m) by a log matrix (k, k): sums over its first index."""
    return log_sum_exp(logs[:, None, :] + log_matrix[:, :, None], 0)


def _normalise(logs: Floats, otherwise: Floats) -> Floats:
    """Normalise log probabilities (..., k, m); use `otherwise` where all are minus infinity."""
    total = log_sum_exp(logs, -2)[..., None, :]
    return np.where(np.isfinite(total), logs - np.where(np.isfinite(total), total, 0.0), otherwise)


@dataclass(frozen=True)
class Chains:
    """Pieces of sequences side by side.

    log_emissions (steps, k, m): log densities of frames in the states, zero where there is no frame; log_entry (k, m):
    predicted log probabilities of the state at step 0; log_exit (k, m): log likelihood of all frames after the last
    step, given the state there, up to a constant; zeros if there are none; first (m,): pieces in which a sequence
    begins at step `restart`.
    """

    log_emissions: Floats
    log_entry: Floats
    log_exit: Floats
    first: Mask
    restart: int

    def select(self, which: States) -> Chains:
        """Select some of the pieces."""
        logs, entry, exit_ = (part[..., which] for part in (self.log_emissions, self.log_entry, self.log_exit))
        return Chains(logs, entry, exit_, self.first[which], self.restart)


@dataclass(frozen=True)
class Messages:
    """Result of the recursions.

    log_likelihoods (steps, m): of each frame given the earlier ones; posteriors, filtered (steps, k, m).
    """

    log_likelihoods: Floats
    posteriors: Floats
    filtered: Floats


def forward_backward(markov: Markov, chains: Chains, scratch: Workspace | None = None) -> Messages:
    """Run both recursions on all pieces.

    scratch: reused memory; overwrites the messages of an earlier call. The results of a piece do not depend on the
    other pieces, bit for bit if m is a multiple of 64.
    """
    scratch = Workspace() if scratch is None else scratch
    peaks = _finite_peaks(chains.log_emissions, 1)
    predicted, messages, sums = _recursions(markov, chains, peaks, scratch)
    before = messages[:, 0]
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        log_sums = np.log(sums)
        posteriors = np.multiply(before, predicted[::-1, 1], out=scratch.array("posteriors", *before.shape))
        totals = posteriors.sum(axis=1)
        posteriors /= totals[:, None]
        safe = totals.min(axis=0) > _UNDERFLOW
    likelihoods = log_sums[:, 0] + peaks
    lost = np.flatnonzero(near_underflow(log_sums).any(axis=0) | ~safe)
    if len(lost):
        found = log_messages(markov, chains.select(lost))
        likelihoods[:, lost], posteriors[:, :, lost], before[:, :, lost] = found
    return Messages(likelihoods, posteriors, before)


def _recursions(markov: Markov, chains: Chains, peaks: Floats, scratch: Workspace) -> tuple[Floats, Floats, Floats]:
    """Run both recursions at once: entry 0 of the second axis forward, entry 1 backward from the last step."""
    steps, k, m = chains.log_emissions.shape
    both, predicted = (scratch.array(name, steps, 2, k, m) for name in ("both", "predicted"))
    sums = scratch.array("sums", steps, 2, m)
    np.subtract(chains.log_emissions, peaks[:, None], out=both[:, 0])
    np.exp(both[:, 0], out=both[:, 0])
    both[:, 1] = both[::-1, 0]
    predicted[0, 0] = np.exp(chains.log_entry)
    predicted[0, 1] = np.exp(chains.log_exit - chains.log_exit.max(axis=0))
    matrices = np.stack([markov.transmat.T, markov.transmat])
    restarts = bool(chains.first.any())
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        for t in range(steps):
            message, before, total = both[t], predicted[t], sums[t]
            if t:
                np.matmul(matrices, both[t - 1], out=before)
            if restarts and t == chains.restart:
                before[0][:, chains.first] = markov.startprob[:, None]
            np.multiply(message, before, out=message)
            np.add.reduce(message, axis=1, out=total)
            np.divide(message, total[:, None], out=message)
    return predicted, both, sums


def filter_next(markov: Markov, before: Floats | None, log_densities: Floats) -> Floats:
    """Update filtered probabilities (k,) by one more frame.

    before (k,): filtered probabilities at the previous frame; None at the beginning of a sequence; log_densities (k,):
    of the frame, zeros if it is missing. If the frame is impossible in all states, the prediction is returned.
    """
    predicted = markov.startprob if before is None else before @ markov.transmat
    logs = safe_log(predicted) + log_densities
    total = log_sum_exp(logs, 0)
    return np.exp(logs - total) if np.isfinite(total) else predicted


def predict_states(last: Floats, transmat: Floats, n_steps: int) -> Floats:
    """Predict the probabilities (n_steps, k) of future states from those at the last frame (k,)."""
    found = np.empty((n_steps, len(last)))
    for step in range(n_steps):
        last = last @ transmat
        found[step] = last / last.sum()
    return found


_BURN_INS: Final = (8, 16, 32, 64)  # frames that are tested; the burn-in is twice as long
_FORGOTTEN_TOL: Final = 1e-10  # maximum l1 distance between messages from different initial states


def log_transfer_matrices(transmat: Floats, log_emissions: Floats) -> Floats:
    """Compute the log transfer matrices of pieces.

    log_emissions (steps, k, m): log densities, zero where there is no frame. Returns (m, k, k): entry (i, j) is the log
    likelihood of all frames and of state j right after them, given state i at the first frame.
    """
    steps, k, m = log_emissions.shape
    peaks = _finite_peaks(log_emissions, 1)
    emissions = np.exp(log_emissions - peaks[:, None])
    message = np.repeat(np.eye(k)[:, :, None], m, axis=2)  # (first state, state now, piece)
    log_sums = np.empty((steps, k, m))
    continues = np.ascontiguousarray(transmat.T)
    with np.errstate(divide="ignore", invalid="ignore"):
        for emission, logs in zip(emissions, log_sums, strict=True):
            message *= emission
            total = message.sum(axis=1)
            np.log(total, out=logs)
            message /= total[:, None]
            message = np.matmul(continues, message)
    found = (safe_log(message) + (log_sums.sum(axis=0) + peaks.sum(axis=0))[:, None]).transpose(2, 0, 1)
    # the first step of a single state cannot underflow; a state of zero probability at the end may matter later
    lost = (near_underflow(log_sums[1:]) | ~np.isfinite(log_sums[0])).any(axis=0)
    lost |= ((message < _UNDERFLOW) & _reachable(transmat, steps)[:, :, None]).any(axis=(0, 1))
    if lost.any():
        some = log_emissions[..., lost]
        found[lost] = log_domain_transfers(
            safe_log(transmat), some, np.ones((steps, some.shape[2]), dtype=bool), log_sum_exp
        )
    return np.ascontiguousarray(found)


def _reachable(transmat: Floats, steps: int) -> Mask:
    """Mask (k, k) of the states (column) that can be reached from each state (row) in this number of steps."""
    found, possible = np.eye(len(transmat), dtype=np.bool_), transmat > 0.0
    for _ in range(steps):
        found = found @ possible
        if found.all():
            break
    return found


def join_messages(startprob: Floats, transmat: Floats, logs: Floats, first: Mask) -> tuple[Floats, Floats, float]:
    """Join transfer matrices to the exact messages at the entry and exit of pieces.

    logs (m, k, k): from `log_transfer_matrices`, for all pieces in the order of time; first (m,): pieces that begin a
    sequence. Returns log_entry (m, k): predicted log probabilities at each piece's first frame; log_exit (m, k): log
    likelihood of all frames after a piece given the state at its last frame, up to a constant; and the log likelihood.
    """
    entry, exit_ = np.empty(logs.shape[:2]), np.empty(logs.shape[:2])
    log_start, log_transmat, total = safe_log(startprob), safe_log(transmat), 0.0
    for begin, end in itertools.pairwise([*np.flatnonzero(first), len(logs)]):
        now = log_start
        for r in range(begin, end):
            entry[r] = now
            now = log_sum_exp(now[:, None] + logs[r], 0)
            likelihood = float(log_sum_exp(now, 0))
            total += likelihood
            now = _rescale(now, likelihood)
        after = np.zeros(logs.shape[1])
        for r in range(end - 1, begin - 1, -1):
            backward = log_sum_exp(log_transmat + after, 1)
            exit_[r] = _rescale(backward, backward.max())
            after = log_sum_exp(logs[r] + after, 1)
            after = _rescale(after, after.max())
    return entry, exit_, total


def forgetting_burn_in(transmat: Floats, log_densities: Floats) -> int:
    """Measure the burn-in after which messages no longer depend on their initial values.

    log_densities (m, steps, k): of the frames of m stretches. Returns twice the number of frames after which messages
    from different states differ by less than 1e-10 on all stretches, forward and backward: 16 to 128; 0 if 64 frames
    are not enough.
    """
    steps, k = log_densities.shape[1:]
    for enough in _BURN_INS:
        windows = log_densities[:, : steps - steps % enough].reshape(-1, enough, k)
        if len(windows) and _distance(log_transfer_matrices(transmat, windows.transpose(1, 2, 0))) < _FORGOTTEN_TOL:
            return 2 * enough
    return 0


def _distance(logs: Floats) -> float:
    """Maximum l1 distance of messages through log transfer matrices (m, k, k) from different states, both ways."""
    with np.errstate(invalid="ignore"):
        rows = np.exp(logs - logs.max(axis=2, keepdims=True))
        columns = np.exp(logs - logs.max(axis=1, keepdims=True))
    rows /= rows.sum(axis=2, keepdims=True)
    columns /= columns.sum(axis=1, keepdims=True)
    forward = np.abs(rows - rows[:, :1]).sum(axis=2).max()
    backward = np.abs(columns - columns[:, :, :1]).sum(axis=1).max()
    return float(np.nan_to_num(max(forward, backward), nan=1.0))


def best_paths(
    log_transmat: Floats, log_emissions: Floats, continues: Mask, entry: Floats, exit_: Floats
) -> tuple[States, Floats]:
    """Find the best path through each piece by Viterbi's algorithm.

    log_transmat (k, k); log_emissions (steps, k, m); continues (steps, m): whether a step is followed by a frame of the
    same sequence; entry, exit_ (k, m): log scores. Returns states (steps, m) and scores (m,).
    """
    steps, k, m = log_emissions.shape
    came_from = np.empty((steps, k, m), dtype=np.int32)
    score, still = entry + log_emissions[0], np.arange(k)[:, None]
    for t in range(1, steps):
        ways = score[:, None] + log_transmat[:, :, None]
        came_from[t], best = ways.argmax(axis=0), ways.max(axis=0)
        if not continues[t - 1].all():
            came_from[t] = np.where(continues[t - 1], came_from[t], still)
            best = np.where(continues[t - 1], best, score)
        score = best + log_emissions[t]
    score = score + exit_
    states = np.empty((steps, m), dtype=np.intp)
    states[-1], chain = score.argmax(axis=0), np.arange(m)
    for t in range(steps - 1, 0, -1):
        states[t - 1] = came_from[t, states[t], chain]
    return states, score.max(axis=0)


def log_domain_transfers(
    log_transmat: Floats, log_emissions: Floats, continues: Mask, reduce: Callable[..., Floats] = np.max
) -> Floats:
    """Compute the transfer matrices of pieces in logarithms, for best paths or for sums over paths.

    log_transmat (k, k); log_emissions (steps, k, m); continues (steps, m): as in `best_paths`; reduce: `np.max` for
    best paths, `log_sum_exp` for sums. Returns (m, k, k): entry (i, j) is the score of all frames from state i at the
    first frame to state j right after the last one, or at the last one if the sequence ends there.
    """
    _, k, m = log_emissions.shape
    score = np.full((k, k, m), -np.inf)  # (first state, state now, piece)
    score[np.arange(k), np.arange(k)] = 0.0
    after = np.empty_like(score)
    for emission, goes_on in zip(log_emissions, continues, strict=True):
        score += emission
        for j in range(k):
            after[:, j] = reduce(score + log_transmat[:, j, None], 1)
        if goes_on.all():
            score, after = after, score
        else:
            score = np.where(goes_on, after, score)
    return np.ascontiguousarray(score.transpose(2, 0, 1))


def join_paths(log_startprob: Floats, scores: Floats, first: Mask) -> tuple[States, float]:
    """Find the state at the first frame of each piece on the best path through all pieces.

    log_startprob (k,); scores (m, k, k): from `log_domain_transfers`, for all pieces in the order of time; first (m,):
    pieces that begin a sequence. Returns states (m,), and the log score of the paths through all sequences.
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
