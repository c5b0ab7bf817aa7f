"""Markov chains: forward and backward recursions over many pieces side by side, and across the ends of pieces.

Arrays are (steps, states, pieces): one step is one product (k, k) x (k, pieces), whatever the number of frames. The
forward recursion and the backward one run in the same products. Arithmetic is scaled: each message sums to one, and
the logarithms of the sums add up to the likelihood. Pieces whose messages come near underflow, which can only happen
where transitions are all but impossible, are computed again in logarithms.

What a piece does to a message is linear: a (k, k) matrix of likelihoods, from the state at its first frame to the one
right after its last. Matrices of all pieces are computed side by side; a short scan over pieces then gives the exact
messages with which every piece is entered and left, however slowly the chain forgets.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from dask_dca.geometry.arrays import Floats, Mask

    States = NDArray[np.intp]

_PSEUDO: Final = 0.1  # transitions out of a state that are counted without having been seen
_SMALL: Final = np.log(1e-4)  # steps on which the sum of a scaled message falls below this are counted
_MOST_LOST: Final = 450.0  # natural logarithms that such steps may lose in all before underflow is near
_LEAST: Final = 1e-250  # sums of products of messages below this are near underflow


@dataclass(frozen=True)
class Markov:
    """Start probabilities (k,) and transition matrix (k, k) of a Markov chain."""

    startprob: Floats
    transmat: Floats


def stationary_distribution(transmat: Floats) -> Floats:
    """Return how often the states are visited in the long run.

    transmat (k, k): transition matrix. Returns (k,): probabilities; where the chain has several closed classes, some
    mixture of theirs.
    """
    k = len(transmat)
    slightly_mixed = (1.0 - 1e-9) * transmat + 1e-9 / k
    # rows of (1 - T^T) sum to zero: adding ones to all of them leaves one solution, whose sum is one
    found = np.linalg.solve(np.eye(k) - slightly_mixed.T + 1.0, np.ones(k))
    found = np.maximum(found, 0.0)
    normalised: Floats = found / found.sum()
    return normalised


def smoothed_chain(starts: Floats, transitions: Floats) -> Markov:
    """Turn expected counts into a Markov chain without impossible transitions.

    starts (k,): expected number of sequences that start in each state; transitions (k, k): expected number of
    transitions. Returns every row sums to one, also that of a state that no frame is in.
    """
    visits = transitions.sum(axis=0) + transitions.sum(axis=1) + _PSEUDO
    first = starts + visits / visits.sum()
    rows = transitions + _PSEUDO / len(starts)
    return Markov(first / first.sum(), rows / rows.sum(axis=1, keepdims=True))


def near_underflow(log_sums: Floats) -> Mask:
    """Tell which scaled recursions may have rounded a state to zero that could come back.

    log_sums (steps, ...): logarithms of the sums by which messages were scaled, step by step. Returns (...): true where
    unlikely steps lost too much in all, or a message was zero.
    """
    found: Mask = ~(np.where(log_sums < _SMALL, -log_sums, 0.0).sum(axis=0) < _MOST_LOST)
    return found


def safe_log(values: Floats) -> Floats:
    """Return logarithms, minus infinity for zero."""
    with np.errstate(divide="ignore"):
        found: Floats = np.log(values)
    return found


def log_sum_exp(values: Floats, axis: int) -> Floats:
    """Return the logarithm of a sum of exponentials.

    values: logarithms; minus infinity stands for zero. Returns without that axis; minus infinity where all are.
    """
    peak = values.max(axis=axis, keepdims=True)
    peak = np.where(np.isfinite(peak), peak, 0.0)
    return safe_log(np.exp(values - peak).sum(axis=axis)) + peak.squeeze(axis)


def log_filtered(markov: Markov, chains: Chains) -> Floats:
    """Run the forward recursion in logarithms.

    Returns (2, steps, k, m): of the states before each frame is seen, and after; a frame that no state can explain
    leaves the prediction as it is.
    """
    log_start, log_transmat = safe_log(markov.startprob), safe_log(markov.transmat)
    predicted, filtered = found = np.empty((2, *chains.log_emissions.shape))
    for t, emission in enumerate(chains.log_emissions):
        predicted[t] = _through(filtered[t - 1], log_transmat) if t else chains.log_entry
        if t == chains.restart:
            predicted[t][:, chains.first] = log_start[:, None]
        filtered[t] = _normalised(predicted[t] + emission, predicted[t])
    return found


def log_messages(markov: Markov, chains: Chains) -> tuple[Floats, Floats, Floats]:
    """Run the forward and backward recursions in logarithms.

    Returns what `Messages` has: log likelihoods (steps, m) of each frame, given the earlier ones; posteriors and
    filtered states (steps, k, m).
    """
    log_emissions, log_transmat = chains.log_emissions, safe_log(markov.transmat)
    steps, (predicted, filtered) = len(log_emissions), log_filtered(markov, chains)
    behind, beyond = np.empty_like(log_emissions), np.empty_like(log_emissions)
    for t in range(steps - 1, -1, -1):
        beyond[t] = chains.log_exit if t == steps - 1 else _through(behind[t + 1], log_transmat.T)
        behind[t] = _normalised(beyond[t] + log_emissions[t], beyond[t])
    likelihoods = log_sum_exp(predicted + log_emissions, 1)
    posteriors = np.exp(_normalised(filtered + beyond, filtered))
    return likelihoods, posteriors, np.exp(filtered)


def _through(logs: Floats, log_matrix: Floats) -> Floats:
    """Propagate log messages (k, m) by a log matrix (k, k): sums over its first index."""
    return log_sum_exp(logs[:, None, :] + log_matrix[:, :, None], 0)


def _normalised(logs: Floats, otherwise: Floats) -> Floats:
    """Logarithms (..., k, m) whose exponentials sum to one; `otherwise` where all are minus infinity."""
    total = log_sum_exp(logs, -2)[..., None, :]
    return np.where(np.isfinite(total), logs - np.where(np.isfinite(total), total, 0.0), otherwise)


@dataclass(frozen=True)
class Chains:
    """Pieces of sequences side by side.

    log_emissions (steps, k, m): log density of each frame in each state; zero where there is no frame; log_entry (k,
    m): logarithm of the distribution of the state at step 0, before its frame is seen; log_exit (k, m): log likelihood
    of all that follows the last step, given the state there, up to a constant; zeros for nothing; first (m,): pieces on
    which a sequence begins at step `restart`.
    """

    log_emissions: Floats
    log_entry: Floats
    log_exit: Floats
    first: Mask
    restart: int

    def some(self, which: States) -> Chains:
        """Take some of them."""
        logs, entry, leave = (part[..., which] for part in (self.log_emissions, self.log_entry, self.log_exit))
        return Chains(logs, entry, leave, self.first[which], self.restart)


@dataclass(frozen=True)
class Messages:
    """What the recursions found.

    log_likelihoods (steps, m); posteriors, filtered (steps, k, m): of the states given all frames, and those so far.
    """

    log_likelihoods: Floats
    posteriors: Floats
    filtered: Floats


class Scratch:
    """Arrays that are used again by later calls, so that the system need not clear memory for each."""

    def __init__(self) -> None:
        self._arrays: dict[str, Floats] = {}

    def array(self, name: str, shape: tuple[int, ...]) -> Floats:
        """Return an array of any content.

        name: its name; the next array of this name takes its memory.
        """
        size = math.prod(shape)
        if name not in self._arrays or self._arrays[name].size < size:
            self._arrays[name] = np.empty(size)
        return self._arrays[name][:size].reshape(shape)


def forward_backward(markov: Markov, chains: Chains, scratch: Scratch | None = None) -> Messages:
    """Run both recursions on all pieces.

    markov: rows of its transition matrix sum to one; chains: the emissions and the ends; scratch: memory of an earlier
    call, whose messages are lost. Returns those of a piece do not depend on the others (bit for bit where m is a
    multiple of 64).
    """
    scratch = Scratch() if scratch is None else scratch
    peaks = chains.log_emissions.max(axis=1)
    predicted, messages, sums = _recursions(markov, chains, peaks, scratch)
    before = messages[:, 0]
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        log_sums = np.log(sums)
        posteriors = np.multiply(before, predicted[::-1, 1], out=scratch.array("posteriors", before.shape))
        totals = posteriors.sum(axis=1)
        posteriors /= totals[:, None]
        safe = totals.min(axis=0) > _LEAST
    likelihoods = log_sums[:, 0] + peaks
    lost = np.flatnonzero(near_underflow(log_sums).any(axis=0) | ~safe)
    if len(lost):
        found = log_messages(markov, chains.some(lost))
        likelihoods[:, lost], posteriors[:, :, lost], before[:, :, lost] = found
    return Messages(likelihoods, posteriors, before)


def _recursions(markov: Markov, chains: Chains, peaks: Floats, scratch: Scratch) -> tuple[Floats, Floats, Floats]:
    """
    Both recursions at once.

    Entry 0 of the second axis runs forward, entry 1 runs backward from the last step.
    """
    steps, k, m = chains.log_emissions.shape
    both, predicted = scratch.array("both", (steps, 2, k, m)), scratch.array("predicted", (steps, 2, k, m))
    sums = scratch.array("sums", (steps, 2, m))
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


def next_filtered(markov: Markov, before: Floats | None, log_densities: Floats) -> Floats:
    """Take one more frame in.

    before (k,): probabilities of the states at the frame before; None where a sequence begins; log_densities (k,): of
    the frame; zeros if it is missing. Returns (k,): the prediction itself where no state can explain the frame.
    """
    predicted = markov.startprob if before is None else before @ markov.transmat
    logs = safe_log(predicted) + log_densities
    total = log_sum_exp(logs, 0)
    found: Floats = np.exp(logs - total) if np.isfinite(total) else predicted
    return found


def states_ahead(last: Floats, transmat: Floats, n_steps: int) -> Floats:
    """Predict the states of the frames that follow.

    last (k,): probabilities at the last frame. Returns (n_steps, k).
    """
    found = np.empty((n_steps, len(last)))
    for step in range(n_steps):
        last = last @ transmat
        found[step] = last / last.sum()
    return found


_ENOUGH: Final = (8, 16, 32, 64)  # frames that are tried; twice as many are taken
_FORGOTTEN: Final = 1e-10  # total variation between messages that came from different states


def transfer_logs(transmat: Floats, log_emissions: Floats) -> Floats:
    """Return the logarithms of what each piece does to a message.

    transmat (k, k): transition matrix; log_emissions (steps, k, m): log densities; zero where there is no frame.
    Returns (m, k, k): entry (i, j) is the log likelihood of all frames together with state j right after them, given
    state i at the first.
    """
    steps, k, m = log_emissions.shape
    peaks = log_emissions.max(axis=1)
    emissions = np.exp(log_emissions - peaks[:, None])
    message = np.repeat(np.eye(k)[:, :, None], m, axis=2)  # (first state, state now, piece)
    log_sums = np.empty((steps, k, m))
    onward = np.ascontiguousarray(transmat.T)
    with np.errstate(divide="ignore", invalid="ignore"):
        for emission, logs in zip(emissions, log_sums, strict=True):
            message *= emission
            total = message.sum(axis=1)
            np.log(total, out=logs)
            message /= total[:, None]
            message = np.matmul(onward, message)
    found = (safe_log(message) + (log_sums.sum(axis=0) + peaks.sum(axis=0))[:, None]).transpose(2, 0, 1)
    # a message of one state alone loses nothing on the first step; a state that is none at the end may come back later
    lost = (near_underflow(log_sums[1:]) | ~np.isfinite(log_sums[0])).any(axis=0)
    lost |= ((message < _LEAST) & _reached(transmat, steps)[:, :, None]).any(axis=(0, 1))
    if lost.any():
        some = log_emissions[..., lost]
        found[lost] = log_transfers(safe_log(transmat), some, np.ones((steps, some.shape[2]), dtype=bool), log_sum_exp)
    return np.ascontiguousarray(found)


def _reached(transmat: Floats, steps: int) -> Mask:
    """Which states (k, k) can be reached from which in so many steps."""
    found, possible = np.eye(len(transmat), dtype=np.bool_), transmat > 0.0
    for _ in range(steps):
        found = found @ possible
        if found.all():
            break
    return found


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
    """Find the best path through each piece (Viterbi's algorithm).

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


def log_transfers(
    log_transmat: Floats, log_emissions: Floats, onward: Mask, reduce: Callable[..., Floats] = np.max
) -> Floats:
    """Score what lies between each state at the first step of each piece and each state right after its last.

    log_transmat (k, k): logarithms of the transition matrix; log_emissions (steps, k, m): log densities; onward (steps,
    m): as `best_paths` takes it; for the last step whether the sequence goes on after the piece; reduce: of the scores
    of ways, along an axis: the best of them, or by `log_sum_exp` all together. Returns (m, k, k): entry (i, j) starts
    in state i, sees all frames, and steps on to state j, or ends in state j where the sequence ends.
    """
    _, k, m = log_emissions.shape
    score = np.full((k, k, m), -np.inf)  # (first state, state now, piece)
    score[np.arange(k), np.arange(k)] = 0.0
    after = np.empty_like(score)
    for emission, goes_on in zip(log_emissions, onward, strict=True):
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

    log_startprob (k,): logarithms of the start probabilities; scores (m, k, k): from `log_transfers`, for all pieces in
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
