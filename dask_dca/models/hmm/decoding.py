"""Scores, state probabilities and best paths of a hidden Markov model, for sequences of any length.

There are two ways to split a recursion over time. *Segments* start a burn-in early, after which the messages no longer
depend on their initial values: the data are read once, and each block of a lazy result is computed independently. A
*scan* first computes the transfer matrix of each piece, joins these matrices, and then runs each piece with its exact
messages: the data are read twice, and results are exact even for chains that forget slowly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import numpy as np

from dask_dca.engine.entry import run_task
from dask_dca.engine.graphs import as_new_tasks
from dask_dca.engine.passes import Pass, Run, delayed_pass, map_frames, run_pass
from dask_dca.engine.rows import Rows
from dask_dca.engine.sequences import Batch, Cut, batches, cut_sequences, piece_numbers
from dask_dca.engine.types import Window, add_parts, stack_parts
from dask_dca.geometry.arrays import Floats, Mask, Numbers
from dask_dca.geometry.exact import Total, Workspace, plain_total
from dask_dca.models.hmm.model import GaussianEmission
from dask_dca.models.hmm.recursions import (
    Chains,
    Markov,
    best_paths,
    forward_backward,
    join_messages,
    join_paths,
    log_domain_transfers,
    log_transfer_matrices,
    safe_log,
    stationary_distribution,
)

_MIN_SEGMENT_FRAMES: Final = 64  # minimum length of a segment
_MIN_PIECE_FRAMES: Final = 64  # minimum length of a piece of a scan
_LOG_LIKELIHOOD_GRID: Final = 2.0**-30  # nats to which log likelihoods are rounded before they are summed exactly


@dataclass(frozen=True)
class Decoder:
    """A model and sequences to be decoded.

    edges (m + 1,): ends of the sequences; emission: log densities of frames in the states; burn_in: frames after which
    messages have forgotten their initial values; 0 for a scan.
    """

    rows: Rows
    edges: Numbers
    emission: Callable[[Floats], Floats]
    markov: Markov
    burn_in: int
    run: Run

    def log_likelihood(self) -> float:
        """Compute the log likelihood of all sequences, in one pass; minus infinity if some frame is impossible."""
        if not self.burn_in:
            return float(self.run_scan(_join_sum).total)
        job: Pass[tuple[Total, int]] = Pass("score", _score_block, add_parts, self._segments().halo)
        total, n_impossible = run_pass(self.rows, job, self._state(self._segments()), self.run)
        return -np.inf if n_impossible else float(total.value())

    def posteriors(self) -> Any:
        """Compute the posterior probabilities (n, k) of the states, lazy for chunked input."""
        return self._probabilities("posteriors", "decode")

    def filtered(self) -> Any:
        """Compute the filtered probabilities (n, k) of the states, lazy for chunked input."""
        return self._probabilities("filtered", "filter")

    def _probabilities(self, which: str, name: str) -> Any:
        block, k, halo = partial(_states_of, which), len(self.markov.startprob), self._cut().halo_touching
        return map_frames(self.rows, block, self._messages(lazy=True), k, halo, self.rows.result_dtype, name)

    def last_filtered(self) -> Floats:
        """Compute the filtered probabilities (k,) at the last frame; after a scan only its blocks are read."""
        last = self.rows.blocks_with(np.array([self.rows.n_rows - 1]))
        job: Pass[Floats] = Pass("filter", partial(_states_of, "filtered"), stack_parts, self._cut().halo_touching)
        found = run_pass(self.rows, job, self._messages(lazy=False), self.run, blocks=last)
        return np.asarray(found[-1], dtype=np.float64)

    def posterior_sum(self) -> float:
        """Sum the posterior probability of each frame's most likely state, in one pass after that of a scan."""
        job: Pass[Total] = Pass("score", _max_posterior_block, add_parts, self._cut().halo_touching)
        return float(run_pass(self.rows, job, self._messages(lazy=False), self.run).value())

    def _messages(self, *, lazy: bool) -> Any:
        """State of a pass that computes messages."""
        return self._state(self._segments()) if self.burn_in else self._scan(_transfer_block, _join_sum, lazy=lazy)

    def best_path(self, *, lazy: bool) -> tuple[Any, Any]:
        """Find the most likely path of states by Viterbi's algorithm.

        lazy: defer all reading of chunked data; else the scan runs at once. Returns the joint log probability of path
        and frames, or NaN if lazy; and the states (n,).
        """
        joined = self._scan(_best_scores_block, _join_best, lazy=lazy)
        states = map_frames(self.rows, _path_block, joined, None, self._pieces().halo_touching, np.dtype(np.int64))
        return (joined.total if isinstance(joined, _State) else np.nan), states

    def run_scan(self, join: Any) -> Any:
        """Compute the transfer matrices of all pieces, in one pass, and join them.

        join: from these matrices and the chain to messages and a total. Returns the state of a second pass, with `cut`,
        `entry`, `exit` and `total`.
        """
        return self._scan(_transfer_block, join, lazy=False)

    def _cut(self) -> Cut:
        return self._segments() if self.burn_in else self._pieces()

    def _segments(self) -> Cut:
        length = max(_MIN_SEGMENT_FRAMES, 2 * self.burn_in)
        return cut_sequences(self.edges, length=length, burn_in=self.burn_in, width=self._width())

    def _pieces(self) -> Cut:
        """Cut pieces of about sqrt(n / 2) frames, so that joining them costs no more than the work inside them."""
        n = int(self.edges[-1])
        length = max(_MIN_PIECE_FRAMES, 2 ** round(np.log2(np.sqrt(n / 2) + 1)))
        return cut_sequences(self.edges, length=length, burn_in=0, width=self._width())

    def _width(self) -> int:
        return self.rows.n_features + len(self.markov.startprob)

    def _state(self, cut: Cut) -> _State:
        return _State(cut, self.emission, self.markov)

    def _scan(self, block: Any, join: Any, *, lazy: bool) -> Any:
        """Run the scan: lazily if requested and the data are chunked, else at once."""
        state = self._state(self._pieces())
        job: Pass[tuple[Floats, Mask]] = Pass("scan", block, stack_parts, state.cut.halo)
        if self.rows.kind == "memory" or not lazy:
            return run_task(_join_pieces, run_pass(self.rows, job, state, self.run), join, state)
        import dask

        found = delayed_pass(as_new_tasks(self.rows), job, state)
        return dask.delayed(run_task, pure=False)(_join_pieces, found, join, state)


@dataclass(frozen=True)
class _State:
    """State of a pass; after a scan with the messages at the entry and exit of each piece, by its number."""

    cut: Cut
    emission: Callable[[Floats], Floats]
    markov: Markov
    entry: Any = None
    exit: Any = None
    total: float = 0.0


def _join_pieces(found: tuple[Floats, Mask], join: Any, state: _State) -> _State:
    entry, exit_, total = join(found, state.markov)
    return replace(state, entry=entry, exit=exit_, total=total)


def _join_sum(found: tuple[Floats, Mask], markov: Markov) -> tuple[Floats, Floats, float]:
    return join_messages(markov.startprob, markov.transmat, *found)


def _join_best(found: tuple[Floats, Mask], markov: Markov) -> tuple[Floats, Floats, float]:
    """Messages that restrict each piece to the best path, by its first state and that of the next piece."""
    scores, first = found
    log_transmat = safe_log(markov.transmat)
    states, total = join_paths(safe_log(markov.startprob), scores, first)
    entry = np.where(np.arange(scores.shape[1]) == states[:, None], 0.0, -np.inf)
    ends = np.append(first[1:], True)
    exit_ = np.where(ends[:, None], 0.0, log_transmat[:, np.append(states[1:], 0)].T)
    return entry, exit_, total


def _batches(state: _State, window: Window, columns: Any, *, touching: bool = False) -> Iterator[Batch]:
    """Iterate over the pieces of a block; entries may be missing for Gaussian emissions."""
    finite = not isinstance(state.emission, GaussianEmission)
    return batches(state.cut, window, columns, state.emission, touching=touching, finite=finite)


def _score_block(state: _State, window: Window, *columns: Any) -> tuple[Total, int]:
    """Sum the log likelihoods of a block's frames, and count those that are impossible."""
    total, n_impossible, scratch = plain_total(np.zeros(0), _LOG_LIKELIHOOD_GRID), 0, Workspace()
    for batch in _batches(state, window, columns):
        logs = forward_backward(state.markov, _batch_chains(state, batch), scratch).log_likelihoods
        counted = batch.own & np.isfinite(logs)
        n_impossible += int((batch.own & ~counted).sum())
        own = np.where(counted, logs, 0.0).sum(axis=0)[: len(batch.begins)]
        total += plain_total(own, _LOG_LIKELIHOOD_GRID)
    return total, n_impossible


def _transfer_block(state: _State, window: Window, *columns: Any) -> tuple[Floats, Mask]:
    k = len(state.markov.startprob)
    found = [(np.zeros((0, k, k)), np.zeros(0, dtype=bool))]
    for batch in _batches(state, window, columns):
        m = len(batch.begins)
        logs = log_transfer_matrices(state.markov.transmat, steps_first(batch, k))
        found.append((logs[:m], batch.first[:m]))
    return stack_parts(found)


def _best_scores_block(state: _State, window: Window, *columns: Any) -> tuple[Floats, Mask]:
    k = len(state.markov.startprob)
    found, logs = [(np.zeros((0, k, k)), np.zeros(0, dtype=bool))], safe_log(state.markov.transmat)
    for batch in _batches(state, window, columns):
        m = len(batch.begins)
        scores = log_domain_transfers(logs, steps_first(batch, k), _sequence_continues(batch))
        found.append((scores[:m], batch.first[:m]))
    return stack_parts(found)


def _sequence_continues(batch: Batch) -> Mask:
    """Mask of the steps that are followed by a frame of the same sequence, also in the next piece."""
    continues = np.zeros_like(batch.inside)
    continues[:-1] = batch.inside[1:]
    continues[-1] = batch.inside[-1] & ~batch.last
    return continues


def _states_of(which: str, state: _State, window: Window, *columns: Any) -> Floats:
    """Probabilities of the states for a block's own frames; which: the attribute of `Messages`."""
    scratch, result = Workspace(), np.empty((window.stop - window.start, len(state.markov.startprob)))
    for batch in _batches(state, window, columns, touching=True):
        found = forward_backward(state.markov, _batch_chains(state, batch), scratch)
        batch.scatter(result, window, getattr(found, which).transpose(0, 2, 1))
    return result


def _max_posterior_block(state: _State, window: Window, *columns: Any) -> Total:
    return plain_total(_states_of("posteriors", state, window, *columns).max(axis=1), _LOG_LIKELIHOOD_GRID)


def _batch_chains(state: _State, batch: Batch) -> Chains:
    """Arrange the pieces of a batch, with the messages of a scan, or with stationary ones before the burn-in.

    Results at the steps of the burn-in are approximate.
    """
    k = len(state.markov.startprob)
    logs = steps_first(batch, k)
    if state.entry is not None:
        return Chains(logs, *piece_messages(state, batch, -np.log(k)), np.zeros(state.cut.chains, dtype=bool), 0)
    entry = np.repeat(stationary_distribution(state.markov.transmat)[:, None], state.cut.chains, axis=1)
    return Chains(logs, safe_log(entry), np.zeros_like(entry), batch.first, state.cut.burn_in)


def piece_messages(state: _State, batch: Batch, fill: float) -> tuple[Floats, Floats]:
    """Look up the entry and exit messages (k, pieces) of the pieces of a batch.

    state: with `cut`, and `entry` and `exit` (pieces, k); fill: entry messages of empty pieces.
    """
    number = piece_numbers(state.cut, batch.begins)
    k, m = state.entry.shape[1], len(number)
    entry, exit_ = np.full((k, state.cut.chains), fill), np.zeros((k, state.cut.chains))
    entry[:, :m], exit_[:, :m] = state.entry[number].T, state.exit[number].T
    return entry, exit_


def _path_block(state: _State, window: Window, *columns: Any) -> Floats:
    k, logs = len(state.markov.startprob), safe_log(state.markov.transmat)
    result = np.empty((window.stop - window.start, 1))
    for batch in _batches(state, window, columns, touching=True):
        entry, exit_ = piece_messages(state, batch, 0.0)
        states, _ = best_paths(logs, steps_first(batch, k), _sequence_continues(batch), entry, exit_)
        batch.scatter(result, window, states[:, :, None].astype(np.float64))
    return result


def steps_first(batch: Batch, k: int) -> Floats:
    """Arrange the first k values per frame of a batch as (steps, k, pieces), zero where there is no frame."""
    return np.ascontiguousarray(batch.values[:, :k][batch.index].transpose(0, 2, 1))
