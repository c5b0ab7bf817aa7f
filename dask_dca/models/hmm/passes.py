"""The passes of a hidden Markov model: the E-step, tile by tile, or with exact messages.

The latter is for starts with impossible transitions, whose chains may never forget. A first pass computes the transfer
matrix of each piece; joined, these matrices give the messages at the entry and exit of every piece. A second pass runs
the recursions on the pieces, and computes the M-step's sums.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dask_dca.engine.passes import Pass, Run, run_pass
from dask_dca.engine.rows import Rows
from dask_dca.engine.sequences import Batch, batches
from dask_dca.engine.tiles import even_tiles, require_squares
from dask_dca.engine.types import Halo, Window, add_parts
from dask_dca.errors import InvalidParameterError
from dask_dca.geometry.arrays import Floats, Mask, Numbers
from dask_dca.geometry.exact import Total, Workspace, plain_total
from dask_dca.geometry.votes import ArgBest
from dask_dca.models.hmm.decoding import Decoder, piece_messages, steps_first
from dask_dca.models.hmm.expectation import (
    Emissions,
    ExpectedCounts,
    Layout,
    Tile,
    expectation,
    lay_out_tile,
    time_order,
)
from dask_dca.models.hmm.model import IncompleteStates
from dask_dca.models.hmm.recursions import (
    Chains,
    Markov,
    forward_backward,
    join_messages,
    log_filtered,
    log_sum_exp,
    safe_log,
)

_Sums = tuple[Total, ArgBest]  # sums over frames, and for each state the frame of greatest density

_SUM_GRID: Final = 2.0**-30  # relative grid to which the sums of a tile or a piece are rounded
_MIN_PREDICTED: Final = 2.0**-960  # predicted probabilities below this are not divisors, to avoid overflow
_LOG_ZERO: Final = -1e300  # finite stand-in for the logarithm of zero


@dataclass(frozen=True)
class _State:
    layout: Layout
    emissions: Emissions
    markov: Markov
    features: Callable[[Floats], Floats]
    units: Floats


def e_step_pass(
    rows: Rows, layout: Layout, emissions: Emissions, markov: Markov, features: Callable[[Floats], Floats], run: Run
) -> tuple[ExpectedCounts, Numbers]:
    """Run the forward and backward recursions over all frames, and compute the M-step's sums.

    features: maps tiles of frames to features of the emissions. Returns the sums, and for each state the frame of
    greatest density, bit for bit the same for any chunking.
    """
    k = len(markov.startprob)
    units = _SUM_GRID * np.concatenate([np.ones(1 + k + k * k), emissions.scales()])
    state = _State(layout, emissions, markov, features, units)
    halo = Halo(layout.length, layout.n_frames + layout.length - 1)  # previous piece; tile and next piece
    job: Pass[_Sums] = Pass("refine", _block, add_parts, halo)
    total, nearest = run_pass(rows, job, state, run)
    return ExpectedCounts(total.value(), k, emissions.origins), nearest.rows


def _block(state: _State, window: Window, *columns: Any) -> _Sums:
    k, scratch = len(state.markov.startprob), Workspace()
    found = plain_total(np.zeros((0, len(state.units))), state.units), ArgBest.empty(k)
    incomplete = state.emissions if isinstance(state.emissions, IncompleteStates) else None
    for tile in _tiles(state, window, columns, missing=incomplete is not None):
        seen = expectation(state.layout, tile, state.emissions, state.markov, scratch)
        total = plain_total(seen.sums[None], state.units)
        heights = seen.log_densities if incomplete is None else _own_typicality(incomplete, tile)
        found = add_parts([found, (total, _densest_frames(state.layout, tile, heights))])
    return found


def _tiles(state: _State, window: Window, columns: Sequence[Any], *, missing: bool) -> Iterator[Tile]:
    """Iterate over the tiles that begin in a block; missing: whether entries may be missing."""
    layout, last = state.layout, window.first + columns[0].shape[0]
    for begin in range(-(-window.start // layout.n_frames) * layout.n_frames, window.stop, layout.n_frames):
        low, high = max(begin - layout.length, 0), min(begin + layout.n_frames + layout.length, last)
        parts = [part[low - window.first : high - window.first] for part in columns]
        ((numbers, frames),) = even_tiles(parts, low, high - low)
        require_squares(frames, numbers, missing=missing)
        yield lay_out_tile(layout, begin, frames, low, state.features)


def _own_typicality(states: IncompleteStates, tile: Tile) -> Floats:
    """Typicality (k, L, M) of a tile's own frames for each state."""
    own = tile.features[:, :, 1:-1]
    return states.typicality(own.reshape(len(own), -1)).reshape(-1, *own.shape[1:])


def _densest_frames(layout: Layout, tile: Tile, log_densities: Floats) -> ArgBest:
    """The frame of greatest density in each state, the first of equal ones."""
    logs = time_order(layout, log_densities)
    if tile.exists is not None:
        logs[:, ~time_order(layout, tile.exists[:, 1:-1])] = -np.inf
    where = logs.argmax(axis=1)
    return ArgBest(logs[np.arange(len(logs)), where], tile.begin + where, np.zeros((len(logs), 0)))


# --- with exact messages ---


@dataclass(frozen=True)
class _ExactState:
    chain: Any  # of a scan, with log likelihoods of the later pieces, given their first state, as exits
    emissions: Emissions
    features: Callable[[Floats], Floats]
    units: Floats


def exact_e_step(
    decoder: Decoder, emissions: Emissions, features: Callable[[Floats], Floats]
) -> tuple[ExpectedCounts, Numbers]:
    """Run the E-step in two passes with exact messages.

    features: maps values (p, n) to features (q, n) of the emissions. Returns the sums, and for each state the frame of
    greatest density, bit for bit the same for any chunking.
    Raises InvalidParameterError: the likelihood is zero.
    """
    k = len(decoder.markov.startprob)
    chain = decoder.run_scan(_join_exact)
    if not np.isfinite(chain.total):
        msg = "the start makes the data impossible: a zero of startprob, transmat or emissionprob forbids what they do"
        raise InvalidParameterError(msg)
    units = _SUM_GRID * np.concatenate([np.ones(k + k * k), emissions.scales()])
    job: Pass[_Sums] = Pass("refine", _exact_block, add_parts, chain.cut.halo)
    total, nearest = run_pass(decoder.rows, job, _ExactState(chain, emissions, features, units), decoder.run)
    return ExpectedCounts(np.concatenate([[chain.total], total.value()]), k, emissions.origins), nearest.rows


def _join_exact(found: tuple[Floats, Mask], markov: Markov) -> tuple[Floats, Floats, float]:
    """Join transfer matrices to messages, with exits before the transition to the next piece."""
    logs, first = found
    with np.errstate(invalid="ignore"):
        entry, _, total = join_messages(markov.startprob, markov.transmat, logs, first)
        ahead = np.zeros(logs.shape[:2])
        for begin, end in itertools.pairwise([*np.flatnonzero(first), len(logs)]):
            for r in range(end - 2, begin - 1, -1):
                ahead[r] = log_sum_exp(logs[r + 1] + ahead[r + 1], 1)
                ahead[r] -= ahead[r].max()
    return entry, ahead, total


def _densities_and_features(state: _ExactState, tile: Floats) -> Floats:
    """Log densities of frames and their features, (height, k + q)."""
    return np.hstack([state.chain.emission(tile), state.features(np.ascontiguousarray(tile.T)).T])


def _exact_block(state: _ExactState, window: Window, *columns: Any) -> _Sums:
    k = len(state.chain.markov.startprob)
    found = plain_total(np.zeros((0, len(state.units))), state.units), ArgBest.empty(k)
    for batch in batches(state.chain.cut, window, columns, partial(_densities_and_features, state)):
        logs = steps_first(batch, k)
        posteriors, pairs = _piece_posteriors(state, batch, logs)
        found = add_parts(
            [found, (_piece_sums(state, batch, posteriors, pairs), _densest_frames_of_pieces(batch, logs))]
        )
    return found


def _piece_posteriors(state: _ExactState, batch: Batch, logs: Floats) -> tuple[Floats, Floats]:
    """Compute posteriors (steps, k, pieces), zero where there is no frame, and expected transitions (pieces, k, k)."""
    markov, k = state.chain.markov, logs.shape[1]
    entry, ahead = piece_messages(state.chain, batch, -np.log(k))
    exit_ = log_sum_exp(safe_log(markov.transmat)[:, :, None] + ahead, 1)
    chains = Chains(logs, entry, np.where(batch.last, 0.0, exit_), np.zeros(logs.shape[2], dtype=bool), 0)
    found = forward_backward(markov, chains)
    posteriors = found.posteriors * batch.inside[:, None]
    goes_on = ~batch.last & (np.arange(len(batch.last)) < len(batch.begins))
    ahead = np.where(goes_on, ahead, -np.inf)
    pairs, underflowing = expected_pairs(markov.transmat, found.filtered, posteriors, ahead)
    if len(underflowing):  # probabilities underflow: repeat in logarithms
        inside = log_filtered(markov, chains.select(underflowing))[1]
        pairs[underflowing] = log_pairs(markov.transmat, inside, posteriors[:, :, underflowing], ahead[:, underflowing])
    return posteriors, pairs


def expected_pairs(
    transmat: Floats, before: Floats, posteriors: Floats, ahead: Floats
) -> tuple[Floats, NDArray[np.intp]]:
    """Compute the expected transitions of pieces.

    before, posteriors (steps, k, m): filtered probabilities; posteriors, zero where there is no frame; ahead (k, m):
    log likelihood of the next piece given its first state, minus infinity if there is none. Returns (m, k, k), from row
    to column, and the pieces that underflow and need `log_pairs`.
    """
    predicted = np.matmul(np.ascontiguousarray(transmat.T), before[:-1])
    ratio = np.divide(posteriors[1:], predicted, out=np.zeros_like(predicted), where=predicted >= _MIN_PREDICTED)
    left, right = np.ascontiguousarray(before[:-1].transpose(2, 1, 0)), np.ascontiguousarray(ratio.transpose(2, 0, 1))
    found: Floats = np.matmul(left, right) * transmat
    peak = ahead.max(axis=0)
    last = before[-1].T[:, :, None] * transmat * np.exp(ahead - np.where(np.isfinite(peak), peak, 0.0)).T[:, None]
    total = last.sum(axis=(1, 2), keepdims=True)
    found += np.divide(last, total, out=np.zeros_like(last), where=total > 0.0)
    return found, np.flatnonzero(((predicted < _MIN_PREDICTED) & (posteriors[1:] > 0.0)).any(axis=(0, 1)))


def log_pairs(transmat: Floats, before: Floats, posteriors: Floats, ahead: Floats) -> Floats:
    """Compute expected transitions as `expected_pairs`, from filtered probabilities as logarithms."""
    log_transmat = safe_log(transmat)[:, :, None]
    found = np.zeros((*transmat.shape, posteriors.shape[2]))
    for logs, later in zip(before[:-1], posteriors[1:], strict=True):
        both = logs[:, None] + log_transmat
        found += np.exp(both - np.maximum(log_sum_exp(both, 0), _LOG_ZERO)) * later
    last = before[-1][:, None] + log_transmat + ahead
    found += np.exp(last - np.maximum(log_sum_exp(last.reshape(-1, last.shape[2]), 0), _LOG_ZERO))
    return found.transpose(2, 0, 1)


def _piece_sums(state: _ExactState, batch: Batch, posteriors: Floats, pairs: Floats) -> Total:
    k = posteriors.shape[1]
    weights, numbers = np.ascontiguousarray(posteriors.transpose(2, 1, 0)), batch.values[:, k:]
    lines = np.empty((len(batch.begins), len(state.units)))
    for c, line in enumerate(lines):
        line[:k] = posteriors[0, :, c] if batch.first[c] else 0.0
        line[k : k + k * k] = pairs[c].ravel()
        line[k + k * k :] = state.emissions.sums(weights[c], np.ascontiguousarray(numbers[batch.index[:, c]].T))
    return plain_total(lines, state.units)


def _densest_frames_of_pieces(batch: Batch, logs: Floats) -> ArgBest:
    """The frame of greatest density in each state, the first of equal ones."""
    m, k = len(batch.begins), logs.shape[1]
    masked = np.where(batch.inside[:, None], logs, -np.inf)[:, :, :m]
    where = masked.argmax(axis=0)
    best = np.take_along_axis(masked, where[None], 0)[0]
    return add_parts([ArgBest(best[:, c], batch.begins[c] + where[:, c], np.zeros((k, 0))) for c in range(m)])
