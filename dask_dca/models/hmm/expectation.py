"""The E-step of the Baum-Welch algorithm on frames laid out as pieces, side by side.

The concatenated sequences are cut into pieces of L frames, regardless of where sequences end; M pieces form a *tile*.
Tiles begin at multiples of M L for any blocks, so that a tile's numbers have the same bits for any chunking. A tile
includes the previous and the next piece: the recursions start a burn-in before a piece, in the last frames of the
previous one or the first of the next one, and restart wherever a sequence begins or ends, also inside a piece.

Arrays are (step, direction, state, piece). Densities are scaled by the maximum of each frame, and messages every fourth
step. Densities below exp(-87) of the maximum are raised to this value, which makes no difference to a chain without
impossible transitions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from dask_dca.geometry.arrays import Floats, Mask, Numbers
from dask_dca.geometry.exact import Workspace
from dask_dca.models.hmm.recursions import Markov, stationary_distribution

Places = tuple[NDArray[np.intp] | None, ...]  # for each step the indices of pieces, or None

_PIECE_FRAMES: Final = (24, 64)  # length of a piece below and from _MANY_FRAMES frames on
_MANY_FRAMES: Final = 3000  # number of frames from which on pieces are long
_BURN_IN: Final = 16  # frames of a burn-in
_N_PIECES_RANGE: Final = (16, 128)  # minimum and maximum number of pieces of a tile
_MAX_TILE_ENTRIES: Final = 2**19  # maximum number of entries of a tile


@dataclass(frozen=True)
class Layout:
    """Layout of frames in pieces and tiles, which depends only on the lengths of the sequences."""

    edges: Numbers  # (m + 1,): first frame of each sequence, and the number of frames
    length: int  # L, frames of a piece
    burn_in: int  # frames of the neighbouring pieces before the recursions enter a piece
    n_pieces: int  # M, pieces of a tile

    @property
    def n_frames(self) -> int:
        """Number M L of a tile's own frames."""
        return self.length * self.n_pieces


@dataclass(frozen=True)
class Tile:
    """M pieces side by side, with the previous and the next one.

    begin: number of the first own frame; features (q, L, M + 2): zero where there is no frame; exists (L, M + 2): mask
    of frames, None if there are no gaps; begins, ends: for each step of the forward recursion the pieces in which a
    sequence begins, and for each step of the backward one those in which a sequence ends; early_begins, early_ends: the
    same for the burn-in.
    """

    begin: int
    features: Floats
    exists: Mask | None
    begins: Places
    ends: Places
    early_begins: Places
    early_ends: Places


def lay_out(edges: Numbers, width: int, length: int | None = None, burn_in: int = _BURN_IN) -> Layout:
    """Choose the layout of frames.

    edges (m + 1,): from `as_edges`; width: entries per frame; length: frames of a piece, chosen by the number of frames
    if None; burn_in: maximum burn-in.
    """
    n = int(edges[-1])
    length = min(_PIECE_FRAMES[int(n >= _MANY_FRAMES)] if length is None else length, n)
    if n <= length + burn_in:
        length = n
    most = int(np.clip(_MAX_TILE_ENTRIES // (length * max(width, 1)), *_N_PIECES_RANGE))
    return Layout(edges, length, min(burn_in, length), min(most, -(-n // length)))


def time_order(layout: Layout, values: NDArray[Any]) -> NDArray[Any]:
    """Reorder values (..., L, M) of a tile's own frames in time, (..., M L)."""
    return np.ascontiguousarray(values.swapaxes(-1, -2)).reshape(*values.shape[:-2], layout.n_frames)


def _padded_frames(layout: Layout, begin: int, frames: Floats, low: int) -> Floats:
    """Frames of a tile and its neighbours ((M + 2) L, p), padded with zeros; `frames` begin at number `low`."""
    first, count = begin - layout.length, layout.n_frames + 2 * layout.length
    here = frames[max(first - low, 0) : first + count - low]
    if len(here) == count:
        return here
    whole = np.zeros((count, frames.shape[1]))
    at = max(low - first, 0)
    whole[at : at + len(here)] = here
    return whole


def lay_out_tile(layout: Layout, begin: int, frames: Floats, low: int, features: Callable[[Floats], Floats]) -> Tile:
    """Lay out the frames of a tile.

    begin: number of its first own frame; frames (n, p): its frames and those of its neighbours, from number `low` on;
    features: maps values (p, L, M + 2) to features (q, L, M + 2).
    """
    frames = _padded_frames(layout, begin, frames, low)
    steps, pieces, n = layout.length, layout.n_pieces, int(layout.edges[-1])
    shape = (pieces + 2, steps)
    values = features(frames.reshape(*shape, -1).transpose(2, 1, 0))
    first, exists = begin - steps, None
    if first < 0 or first + len(frames) > n:
        number = first + np.arange(len(frames)).reshape(shape).T
        exists = (number >= 0) & (number < n)
        values[:, ~exists] = 0.0
    low, high = np.searchsorted(layout.edges, [first, first + len(frames) + 1])
    at = layout.edges[low:high] - first  # where sequences begin; the previous one ends a frame earlier
    piece, step = np.divmod(at, steps)
    before, last = np.divmod(at - 1, steps)
    early, late = step - (steps - layout.burn_in), layout.burn_in - 1 - last
    return Tile(
        begin,
        values,
        exists,
        _pieces_by_step(step, piece - 1, steps, pieces),
        _pieces_by_step(steps - 1 - last, before - 1, steps, pieces),
        _pieces_by_step(early, piece, layout.burn_in, pieces),
        _pieces_by_step(late, before - 2, layout.burn_in, pieces),
    )


def _pieces_by_step(step: Numbers, piece: Numbers, steps: int, pieces: int) -> Places:
    """Group the tile's own pieces by step."""
    own = (step >= 0) & (step < steps) & (piece >= 0) & (piece < pieces)
    found: list[NDArray[np.intp] | None] = [None] * steps
    for t in np.unique(step[own]).tolist():
        found[t] = piece[own & (step == t)].astype(np.intp)
    return tuple(found)


_RESCALE_STEPS: Final = 4  # number of steps after which messages are rescaled
_MIN_LOG_DENSITY: Final = np.float32(-87.0)  # minimum log density relative to the maximum, near float32's limit


class Emissions(Protocol):
    """Emissions of the states, on tiles of features."""

    @property
    def origins(self) -> Floats | None:
        """Origins (k, p) of the moments of Gaussian states."""
        ...

    def log_densities(self, features: Floats) -> Floats:
        """Evaluate the log densities (k, n) of features (q, n)."""
        ...

    def sums(self, weights: Floats, features: Floats) -> Floats:
        """Sum features (q, n) by weights (k, n) for the M-step, in one vector that begins with counts (k,)."""
        ...

    def scales(self) -> Floats:
        """Return the scales of these sums, powers of two, relative to which they are rounded."""
        ...


@dataclass(frozen=True)
class TileSums:
    """Result of an E-step on a tile.

    sums: log likelihood, starts (k,), transitions (k, k) and the sums of the emissions, in one vector; log_densities
    (k, L, M); posteriors (L, k, M).
    """

    sums: Floats
    log_densities: Floats
    posteriors: Floats


@dataclass(frozen=True)
class ExpectedCounts:
    """Expected counts of an E-step, over all frames.

    vector: the sums of `TileSums`; k: number of states; origins (k, p): of the moments of Gaussian states.
    """

    vector: Floats
    k: int
    origins: Floats | None = None

    @property
    def log_likelihood(self) -> float:
        """Log likelihood of all sequences."""
        return float(self.vector[0])

    @property
    def starts(self) -> Floats:
        """Expected number of sequences that start in each state (k,)."""
        return self.vector[1 : 1 + self.k]

    @property
    def transitions(self) -> Floats:
        """Expected number of transitions between states (k, k)."""
        return self.vector[1 + self.k : 1 + self.k + self.k**2].reshape(self.k, self.k)

    @property
    def moments(self) -> Floats:
        """The sums of the emissions, in one vector."""
        return self.vector[1 + self.k + self.k**2 :]

    @property
    def counts(self) -> Floats:
        """Expected number of frames in each state (k,)."""
        return self.moments[: self.k]


@dataclass(frozen=True)
class _Messages:
    """Messages of both recursions, (L, k, M).

    filtered: forward messages; backward: backward messages; weighted: densities times `backward`;
    next_weighted (k, M): `weighted` at the first frame of the next piece; log_likelihood: of the pieces,
    without the maxima by which densities are scaled.
    """

    filtered: Floats
    weighted: Floats
    backward: Floats
    next_weighted: Floats
    log_likelihood: float


def expectation(layout: Layout, tile: Tile, emissions: Emissions, markov: Markov, scratch: Workspace) -> TileSums:
    """Run both recursions over the pieces of a tile, and compute the M-step's sums.

    scratch: reused memory; overwrites the posteriors of an earlier call.
    """
    q, steps, wide = tile.features.shape
    k, own = len(markov.startprob), slice(1, wide - 1)
    logs = emissions.log_densities(tile.features.reshape(q, -1))
    peaks = np.maximum.reduce(logs, axis=0)
    scaled = np.subtract(logs, peaks, out=np.empty(logs.shape, dtype=np.float32), casting="same_kind")
    densities = np.exp(np.maximum(scaled, _MIN_LOG_DENSITY, out=scaled), out=scaled).reshape(k, steps, wide)
    peaks = peaks.reshape(steps, wide)[:, own]
    if tile.exists is not None:
        densities[:, ~tile.exists] = 1.0
        peaks = peaks[tile.exists[:, own]]
    found = _messages(layout, tile, densities, markov, scratch)
    posteriors, transitions = _posteriors(tile, found, markov, scratch)
    starts = sum((posteriors[t][:, at].sum(axis=1) for t, at in enumerate(tile.begins) if at is not None), np.zeros(k))
    weights = scratch.array("weights", k, steps, wide)
    weights[:, :, 0] = weights[:, :, -1] = 0.0
    weights[:, :, own] = posteriors.transpose(1, 0, 2)
    sums = emissions.sums(weights.reshape(k, -1), tile.features.reshape(q, -1))
    line = np.concatenate([[found.log_likelihood + peaks.sum()], starts, transitions.ravel(), sums])
    return TileSums(line, logs.reshape(k, steps, wide)[:, :, own], posteriors)


def _messages(
    layout: Layout, tile: Tile, densities: NDArray[np.float32], markov: Markov, scratch: Workspace
) -> _Messages:
    """Run both recursions at once: entry 0 of the second axis forward, entry 1 backward from the last step."""
    k, steps, wide = densities.shape
    m, matrices = wide - 2, np.stack([markov.transmat.T, markov.transmat])
    both, predicted = (scratch.array(name, steps, 2, k, m) for name in ("both", "predicted"))
    both[:, 0] = densities[:, :, 1:-1].transpose(1, 0, 2)
    both[:, 1] = both[::-1, 0]
    predicted[0], after = _entry_messages(layout, tile, densities, markov, matrices)
    logs = np.empty((-(-steps // _RESCALE_STEPS), m))
    for t in range(steps):
        message, before = both[t], predicted[t]
        if t:
            np.matmul(matrices, both[t - 1], out=before)
        _restart_sequences(before, tile.begins[t], tile.ends[t], markov, both[t - 1, 0] if t else None)
        np.multiply(message, before, out=message)
        if t % _RESCALE_STEPS == _RESCALE_STEPS - 1 or t == steps - 1:
            total = np.add.reduce(message, axis=1)
            logs[t // _RESCALE_STEPS] = total[0]
            np.divide(message, total[:, None], out=message)
    return _Messages(both[:, 0], both[::-1, 1], predicted[::-1, 1], after, float(np.log(logs).sum()))


def _entry_messages(
    layout: Layout, tile: Tile, densities: NDArray[np.float32], markov: Markov, matrices: Floats
) -> tuple[Floats, Floats]:
    """Run the burn-in: predictions (2, k, M) at the entry of pieces, and the weighted backward message there."""
    k, steps, wide = densities.shape
    burn_in, m = layout.burn_in, wide - 2
    early = np.empty((burn_in, 2, k, m))
    early[:, 0] = densities[:, steps - burn_in :, :m].transpose(1, 0, 2)
    early[:, 1] = densities[:, burn_in - 1 :: -1, 2:].transpose(1, 0, 2)
    now = np.ones((2, k, m))
    now[0] = stationary_distribution(markov.transmat)[:, None]
    for t in range(burn_in):
        if t:
            now = np.matmul(matrices, now)
        _restart_sequences(now, tile.early_begins[t], tile.early_ends[t], markov, None)
        now *= early[t]
        if t % _RESCALE_STEPS == _RESCALE_STEPS - 1 or t == burn_in - 1:
            now /= np.add.reduce(now, axis=1)[:, None]
    return np.matmul(matrices, now), now[1]


def _restart_sequences(
    predicted: Floats,
    enter: NDArray[np.intp] | None,
    leave: NDArray[np.intp] | None,
    markov: Markov,
    last: Floats | None,
) -> None:
    """Reset messages where sequences begin and end; forward ones keep the scale of the `last` message (k, m)."""
    if enter is not None:
        scale = 1.0 if last is None else last[:, enter].sum(axis=0)
        predicted[0][:, enter] = markov.startprob[:, None] * scale
    if leave is not None:
        predicted[1][:, leave] = 1.0


def _posteriors(tile: Tile, found: _Messages, markov: Markov, scratch: Workspace) -> tuple[Floats, Floats]:
    """Compute posteriors (L, k, M), and expected transitions (k, k)."""
    filtered, steps = found.filtered, len(found.filtered)
    posteriors = np.multiply(filtered, found.backward, out=scratch.array("posteriors", *filtered.shape))
    total = np.add.reduce(posteriors, axis=1)
    scale = 1.0 / total if tile.exists is None else tile.exists[:, 1:-1] / total
    posteriors *= scale[:, None]
    filtered *= scale[:, None]
    for t, at in enumerate(tile.ends):
        if at is not None:  # no transition into the next sequence
            filtered[steps - 1 - t][:, at] = 0.0
    pairs = (
        np.matmul(filtered[:-1], found.weighted[1:].swapaxes(1, 2)).sum(axis=0) + filtered[-1] @ found.next_weighted.T
    )
    return posteriors, pairs * markov.transmat


def most_likely_states(layout: Layout, posteriors: Floats) -> NDArray[np.intp]:
    """Find the state of greatest posterior (L, k, M) of each frame, in the order of time (M L,)."""
    return time_order(layout, posteriors.argmax(axis=1))
