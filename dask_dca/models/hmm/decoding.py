"""Scores, state probabilities and best paths of a hidden Markov model, for sequences of any length.

Two ways to cut a recursion over time. *Segments* are entered a burn-in early, after which the messages have forgotten
where they came from: one read, and every block of a lazy result stands alone. A *scan* first computes what each piece
does to any message, joins these matrices, and then runs every piece with its exact messages: two reads, exact however
slowly the chain forgets.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dask_dca.engine.numerics import call_on_one_blas_thread
from dask_dca.engine.passes import Pass, delayed_pass, map_frames, run_pass
from dask_dca.engine.sequences import batches, cut_sequences, piece_numbers
from dask_dca.engine.types import add_parts, stack_parts
from dask_dca.geometry.exact import Total, plain_total
from dask_dca.models.hmm.model import GaussianEmission
from dask_dca.models.hmm.recursions import (
    Chains,
    Scratch,
    best_paths,
    forward_backward,
    join_messages,
    join_paths,
    log_transfers,
    safe_log,
    stationary_distribution,
    transfer_logs,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dask_dca.engine.passes import Run
    from dask_dca.engine.rows import Rows
    from dask_dca.engine.sequences import Batch, Cut
    from dask_dca.engine.types import Window
    from dask_dca.geometry.arrays import Floats, Mask, Numbers
    from dask_dca.models.hmm.recursions import Markov

_SEGMENT: Final = 64
_FINE: Final = 2.0**-30
_LEAST_PIECE: Final = 64


@dataclass(frozen=True)
class Decoder:
    """A model and sequences, ready to be decoded.

    edges (m + 1,): ends of their sequences; emission: densities of frames in the states; burn_in: frames after which
    messages forget; 0 asks for a scan.
    """

    rows: Rows
    edges: Numbers
    emission: Callable[[Floats], Floats]
    markov: Markov
    burn_in: int
    run: Run

    def log_likelihood(self) -> float:
        """Score all frames, in one pass.

        Returns log likelihood of all sequences.
        """
        if not self.burn_in:
            return float(self.scanned(_join_sum).total)
        job: Pass[Total] = Pass("score", _score_block, add_parts, self._segments().halo)
        return float(run_pass(self.rows, job, self._state(self._segments()), self.run).value())

    def posteriors(self) -> Any:
        """Compute the probabilities of the states, given all frames of a sequence.

        Returns (n, k): lazy for chunked input.
        """
        return self._probabilities("posteriors", "decode")

    def filtered(self) -> Any:
        """Compute the probabilities of the states, given the frames of a sequence up to each.

        Returns (n, k): lazy for chunked input.
        """
        return self._probabilities("filtered", "filter")

    def _probabilities(self, which: str, name: str) -> Any:
        block, k, halo = partial(_states_of, which), len(self.markov.startprob), self._cut().halo_touching
        return map_frames(self.rows, block, self._messages(lazy=True), k, halo, self.rows.result_dtype, name)

    def last_filtered(self) -> Floats:
        """Compute the probabilities of the states at the last frame, whose blocks alone are read after a scan.

        Returns (k,).
        """
        last = self.rows.blocks_with(np.array([self.rows.n_rows - 1]))
        job: Pass[Floats] = Pass("filter", partial(_states_of, "filtered"), stack_parts, self._cut().halo_touching)
        found = run_pass(self.rows, job, self._messages(lazy=False), self.run, blocks=last)
        return np.asarray(found[-1], dtype=np.float64)

    def posterior_sum(self) -> float:
        """Add up the probability of each frame's most likely state, in one pass after that of a scan.

        Returns the sum, the same for any chunking.
        """
        job: Pass[Total] = Pass("score", _height_block, add_parts, self._cut().halo_touching)
        return float(run_pass(self.rows, job, self._messages(lazy=False), self.run).value())

    def _messages(self, *, lazy: bool) -> Any:
        """State of blocks for posteriors."""
        return self._state(self._segments()) if self.burn_in else self._scan(_transfer_block, _join_sum, lazy=lazy)

    def best_path(self, *, lazy: bool) -> tuple[Any, Any]:
        """Find the most likely path of states.

        lazy: whether chunked data are read only when the states are computed; else one pass is made at once. Returns
        log_probability: of the path and the frames together; nothing to look at where lazy; states (n,): the states.
        """
        joined = self._scan(_best_scores_block, _join_best, lazy=lazy)
        states = map_frames(self.rows, _path_block, joined, None, self._pieces().halo_touching, np.dtype(np.int64))
        return (joined.total if isinstance(joined, _State) else np.nan), states

    def scanned(self, join: Any) -> Any:
        """Compute what every piece does to any message, in one pass, and join that.

        join: of these and the chain, what to make of them. Returns what blocks need then, with `cut`, `entry`, `exit`
        and `total`.
        """
        return self._scan(_transfer_block, join, lazy=False)

    def _cut(self) -> Cut:
        return self._segments() if self.burn_in else self._pieces()

    def _segments(self) -> Cut:
        length = max(_SEGMENT, 2 * self.burn_in)
        return cut_sequences(self.edges, length=length, burn_in=self.burn_in, width=self._width())

    def _pieces(self) -> Cut:
        """Pieces of a scan: so long that the scan over pieces is no longer than the work inside them."""
        n = int(self.edges[-1])
        length = max(_LEAST_PIECE, 2 ** round(np.log2(np.sqrt(n / 2) + 1)))
        return cut_sequences(self.edges, length=length, burn_in=0, width=self._width())

    def _width(self) -> int:
        return self.rows.n_features + len(self.markov.startprob)

    def _state(self, cut: Cut) -> _State:
        return _State(cut, self.emission, self.markov)

    def _scan(self, block: Any, join: Any, *, lazy: bool) -> Any:
        """Run the scan, at once in memory, else when the result is asked for."""
        state = self._state(self._pieces())
        job: Pass[tuple[Floats, Mask]] = Pass("scan", block, stack_parts, state.cut.halo)
        if self.rows.kind == "memory" or not lazy:
            return call_on_one_blas_thread(_join, run_pass(self.rows, job, state, self.run), join, state)
        import dask

        found = delayed_pass(self.rows, job, state)
        return dask.delayed(call_on_one_blas_thread, pure=False)(_join, found, join, state)


@dataclass(frozen=True)
class _State:
    """What blocks need; with a scan, what pieces are entered and left with, by their number."""

    cut: Cut
    emission: Callable[[Floats], Floats]
    markov: Markov
    entry: Any = None
    exit: Any = None
    total: float = 0.0


def _join(found: tuple[Floats, Mask], join: Any, state: _State) -> _State:
    entry, leave, total = join(found, state.markov)
    return replace(state, entry=entry, exit=leave, total=total)


def _join_sum(found: tuple[Floats, Mask], markov: Markov) -> tuple[Floats, Floats, float]:
    return join_messages(markov.startprob, markov.transmat, *found)


def _join_best(found: tuple[Floats, Mask], markov: Markov) -> tuple[Floats, Floats, float]:
    """Log scores that pin every piece to the best path: its first state, and the first state of the next piece."""
    scores, first = found
    log_transmat = safe_log(markov.transmat)
    states, total = join_paths(safe_log(markov.startprob), scores, first)
    entry = np.where(np.arange(scores.shape[1]) == states[:, None], 0.0, -np.inf)
    ends = np.append(first[1:], True)
    leave = np.where(ends[:, None], 0.0, log_transmat[:, np.append(states[1:], 0)].T)
    return entry, leave, total


def _batches(state: _State, window: Window, columns: Any, *, touching: bool = False) -> Iterator[Batch]:
    """The pieces of a block; of numbers, entries may be missing."""
    finite = not isinstance(state.emission, GaussianEmission)
    return batches(state.cut, window, columns, state.emission, touching=touching, finite=finite)


def _score_block(state: _State, window: Window, *columns: Any) -> Total:
    total, scratch = plain_total(np.zeros(0), _FINE), Scratch()
    for batch in _batches(state, window, columns):
        found = forward_backward(state.markov, _chains(state, batch), scratch)
        total += plain_total((found.log_likelihoods * batch.own).sum(axis=0)[: len(batch.begins)], _FINE)
    return total


def _transfer_block(state: _State, window: Window, *columns: Any) -> tuple[Floats, Mask]:
    k = len(state.markov.startprob)
    found = [(np.zeros((0, k, k)), np.zeros(0, dtype=bool))]
    for batch in _batches(state, window, columns):
        m = len(batch.begins)
        logs = transfer_logs(state.markov.transmat, steps_first(batch, k))
        found.append((logs[:m], batch.first[:m]))
    return stack_parts(found)


def _best_scores_block(state: _State, window: Window, *columns: Any) -> tuple[Floats, Mask]:
    k = len(state.markov.startprob)
    found, logs = [(np.zeros((0, k, k)), np.zeros(0, dtype=bool))], safe_log(state.markov.transmat)
    for batch in _batches(state, window, columns):
        m = len(batch.begins)
        scores = log_transfers(logs, steps_first(batch, k), _onward(batch))
        found.append((scores[:m], batch.first[:m]))
    return stack_parts(found)


def _onward(batch: Batch) -> Mask:
    """Where the next step has a frame of the same sequence; after the last step, where the sequence goes on."""
    onward = np.zeros_like(batch.inside)
    onward[:-1] = batch.inside[1:]
    onward[-1] = batch.inside[-1] & ~batch.last
    return onward


def _states_of(which: str, state: _State, window: Window, *columns: Any) -> Floats:
    """Probabilities of the states of a block's own frames: of `Messages`, which."""
    scratch, result = Scratch(), np.empty((window.stop - window.start, len(state.markov.startprob)))
    for batch in _batches(state, window, columns, touching=True):
        found = forward_backward(state.markov, _chains(state, batch), scratch)
        batch.scatter(result, window, getattr(found, which).transpose(0, 2, 1))
    return result


def _height_block(state: _State, window: Window, *columns: Any) -> Total:
    return plain_total(_states_of("posteriors", state, window, *columns).max(axis=1), _FINE)


def _chains(state: _State, batch: Batch) -> Chains:
    """Pieces of a batch, entered with the messages of a scan; without one from the long-run distribution, early.

    What the recursions find at the steps of the burn-in is approximate.
    """
    k = len(state.markov.startprob)
    logs = steps_first(batch, k)
    if state.entry is not None:
        return Chains(logs, *piece_ends(state, batch, -np.log(k)), np.zeros(state.cut.chains, dtype=bool), 0)
    entry = np.repeat(stationary_distribution(state.markov.transmat)[:, None], state.cut.chains, axis=1)
    return Chains(logs, safe_log(entry), np.zeros_like(entry), batch.first, state.cut.burn_in)


def piece_ends(state: _State, batch: Batch, fill: float) -> tuple[Floats, Floats]:
    """Take the messages of the pieces of a batch.

    state: with `cut`, and `entry` and `exit` (pieces, k). Returns both for the batch, (k, pieces).
    """
    number = piece_numbers(state.cut, batch.begins)
    k, m = state.entry.shape[1], len(number)
    entry, leave = np.full((k, state.cut.chains), fill), np.zeros((k, state.cut.chains))
    entry[:, :m], leave[:, :m] = state.entry[number].T, state.exit[number].T
    return entry, leave


def _path_block(state: _State, window: Window, *columns: Any) -> Floats:
    k, logs = len(state.markov.startprob), safe_log(state.markov.transmat)
    result = np.empty((window.stop - window.start, 1))
    for batch in _batches(state, window, columns, touching=True):
        entry, leave = piece_ends(state, batch, 0.0)
        states, _ = best_paths(logs, steps_first(batch, k), _onward(batch), entry, leave)
        batch.scatter(result, window, states[:, :, None].astype(np.float64))
    return result


def steps_first(batch: Batch, k: int) -> Floats:
    """Arrange values of a batch as the kernels take them.

    k: how many of its values per frame. Returns (steps, k, pieces): zero where there is no frame.
    """
    return np.ascontiguousarray(batch.values[:, :k][batch.index].transpose(0, 2, 1))
