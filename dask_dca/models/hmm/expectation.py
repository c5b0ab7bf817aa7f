"""The E-step of Baum and Welch on frames that are laid out in pieces, side by side.

All sequences, one after the other, are cut into pieces of L frames, wherever sequences end; M pieces are a *tile*, and
tiles begin at multiples of M L whatever the blocks are, so that a tile's numbers have the same bits for any chunking.
A tile has the piece before and the piece after, too: a recursion enters a piece from the last frames of the one before
it, or the first of the one after it, where it has forgotten where it began. Where a sequence begins, inside a piece as
well, it begins anew.

Arrays are (step, direction, state, piece). Densities are scaled by the greatest of each frame, messages on every fourth
step; densities below exp(-87) of the greatest count as that much, which no chain without impossible transitions can
tell from less.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np

from dask_dca.models.hmm.recursions import stationary_distribution

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from dask_dca.geometry.arrays import Floats, Mask, Numbers
    from dask_dca.models.hmm.recursions import Markov, Scratch

    Places = tuple[NDArray[np.intp] | None, ...]  # for each step, on which pieces; None for none

_LENGTH: Final = (24, 64)  # frames of a piece where they are few, and where they are many
_MANY: Final = 3000
_BURN_IN: Final = 16
_PIECES: Final = (16, 128)  # of a tile: least and greatest number
_ENTRIES: Final = 2**19  # numbers of a tile


@dataclass(frozen=True)
class Layout:
    """How frames are laid out, by their number and by where sequences end alone."""

    edges: Numbers  # (m + 1,): first frame of each sequence, and the number of frames
    length: int  # L, frames of a piece
    burn_in: int  # frames of its neighbours by which a piece is entered
    pieces: int  # M, side by side in a tile

    @property
    def frames(self) -> int:
        """How many frames a tile has of its own.

        Returns M L.
        """
        return self.length * self.pieces


@dataclass(frozen=True)
class Tile:
    """M pieces side by side, between the one before them and the one after.

    begin: number of the first own frame; features (q, L, M + 2): of each frame; zero where there is none; exists (L, M
    + 2): where there is one; None for everywhere; enter, leave: for each step of the forward recursion the pieces on
    which a sequence begins there, and for each step of the backward one those on which it ends; early_enter,
    early_leave: the same for the steps of the burn-in.
    """

    begin: int
    features: Floats
    exists: Mask | None
    enter: Places
    leave: Places
    early_enter: Places
    early_leave: Places


def lay_out(edges: Numbers, width: int, length: int | None = None, burn_in: int = _BURN_IN) -> Layout:
    """Decide how frames are laid out.

    edges (m + 1,): from `as_edges`; width: numbers per frame; length: frames of a piece; by their number if None;
    burn_in: at most as many.
    """
    n = int(edges[-1])
    length = min(_LENGTH[int(n >= _MANY)] if length is None else length, n)
    if n <= length + burn_in:
        length = n
    most = int(np.clip(_ENTRIES // (length * max(width, 1)), *_PIECES))
    return Layout(edges, length, min(burn_in, length), min(most, -(-n // length)))


def in_time(layout: Layout, values: NDArray[Any]) -> NDArray[Any]:
    """Put values of a tile's own frames in the order of time.

    values (..., L, M). Returns (..., M L).
    """
    return np.ascontiguousarray(values.swapaxes(-1, -2)).reshape(*values.shape[:-2], layout.frames)


def _part(layout: Layout, begin: int, frames: Floats, low: int) -> Floats:
    """The frames of a tile and its neighbours ((M + 2) L, p), zeros where there is none; `frames` begin at `low`."""
    first, count = begin - layout.length, layout.frames + 2 * layout.length
    here = frames[max(first - low, 0) : first + count - low]
    if len(here) == count:
        return here
    whole = np.zeros((count, frames.shape[1]))
    at = max(low - first, 0)
    whole[at : at + len(here)] = here
    return whole


def lay_tile(layout: Layout, begin: int, frames: Floats, low: int, features: Callable[[Floats], Floats]) -> Tile:
    """Lay the frames of a tile out.

    begin: number of its first own frame; frames (n, p): those that it has, and its neighbours; low: number of the first
    of them; features: from values (p, L, M + 2) to (q, L, M + 2).
    """
    frames = _part(layout, begin, frames, low)
    steps, pieces, n = layout.length, layout.pieces, int(layout.edges[-1])
    shape = (pieces + 2, steps)
    values = features(frames.reshape(*shape, -1).transpose(2, 1, 0))
    first, exists = begin - steps, None
    if first < 0 or first + len(frames) > n:
        number = first + np.arange(len(frames)).reshape(shape).T
        exists = (number >= 0) & (number < n)
        values[:, ~exists] = 0.0
    low, high = np.searchsorted(layout.edges, [first, first + len(frames) + 1])
    at = layout.edges[low:high] - first  # where sequences begin; the one before it has ended a frame earlier
    piece, step = np.divmod(at, steps)
    before, last = np.divmod(at - 1, steps)
    early, late = step - (steps - layout.burn_in), layout.burn_in - 1 - last
    return Tile(
        begin,
        values,
        exists,
        _by_step(step, piece - 1, steps, pieces),
        _by_step(steps - 1 - last, before - 1, steps, pieces),
        _by_step(early, piece, layout.burn_in, pieces),
        _by_step(late, before - 2, layout.burn_in, pieces),
    )


def _by_step(step: Numbers, piece: Numbers, steps: int, pieces: int) -> Places:
    """For each step the pieces, of those that are the tile's."""
    own = (step >= 0) & (step < steps) & (piece >= 0) & (piece < pieces)
    found: list[NDArray[np.intp] | None] = [None] * steps
    for t in np.unique(step[own]).tolist():
        found[t] = piece[own & (step == t)].astype(np.intp)
    return tuple(found)


_EVERY: Final = 4  # steps after which messages are scaled
_LEAST: Final = np.float32(-87.0)  # logarithm of a density over the greatest


class Emissions(Protocol):
    """What states emit, for tiles of features."""

    @property
    def origins(self) -> Floats | None:
        """What Gaussian states take their moments about (k, p)."""
        ...

    def log_densities(self, features: Floats) -> Floats:
        """Evaluate the log densities: of features (q, n), shape (k, n)."""
        ...

    def sums(self, weights: Floats, features: Floats) -> Floats:
        """Sum what the next M-step needs of features (q, n) by weights (k, n): counts (k,), and more in one line."""
        ...

    def scales(self) -> Floats:
        """Say in proportion to what these are to be rounded: powers of two."""
        ...


@dataclass(frozen=True)
class Expectation:
    """What an E-step sees in a tile.

    sums: log likelihood, starts (k,), transitions (k, k) and the sums of the emissions, in one line; log_densities (k,
    L, M); posteriors (L, k, M).
    """

    sums: Floats
    log_densities: Floats
    posteriors: Floats


@dataclass(frozen=True)
class Expected:
    """What an E-step sees in frames.

    line: the sums of `Expectation`, over all of them; k: number of states; origins (k, p): what moments of Gaussian
    states are about.
    """

    line: Floats
    k: int
    origins: Floats | None = None

    @property
    def log_likelihood(self) -> float:
        """Log likelihood of all sequences.

        Returns the sum over frames.
        """
        return float(self.line[0])

    @property
    def starts(self) -> Floats:
        """Expected number of sequences that start in each state.

        Returns (k,).
        """
        return self.line[1 : 1 + self.k]

    @property
    def transitions(self) -> Floats:
        """Expected number of transitions between states.

        Returns (k, k).
        """
        return self.line[1 + self.k : 1 + self.k + self.k**2].reshape(self.k, self.k)

    @property
    def moments(self) -> Floats:
        """The sums of the emissions.

        Returns (...,): the rest of the line.
        """
        return self.line[1 + self.k + self.k**2 :]

    @property
    def counts(self) -> Floats:
        """Expected number of frames in each state.

        Returns (k,): the first of the emissions' sums.
        """
        return self.moments[: self.k]


@dataclass(frozen=True)
class _Messages:
    """Of the forward recursion and of the backward one, all (L, k, M).

    filtered: scaled so that with `beyond` it sums to one; behind: density times `beyond`; beyond: of all that follows;
    after (k, M): `behind` at the first frame of the next piece; log_likelihood: of the pieces, less the peaks.
    """

    filtered: Floats
    behind: Floats
    beyond: Floats
    after: Floats
    log_likelihood: float


def expectation(layout: Layout, tile: Tile, emissions: Emissions, markov: Markov, scratch: Scratch) -> Expectation:
    """Run both recursions over the pieces of a tile, and sum what the M-step needs.

    scratch: memory of an earlier call, whose posteriors are lost.
    """
    q, steps, wide = tile.features.shape
    k, own = len(markov.startprob), slice(1, wide - 1)
    logs = emissions.log_densities(tile.features.reshape(q, -1))
    peaks = np.maximum.reduce(logs, axis=0)
    scaled = np.subtract(logs, peaks, out=np.empty(logs.shape, dtype=np.float32), casting="same_kind")
    densities = np.exp(np.maximum(scaled, _LEAST, out=scaled), out=scaled).reshape(k, steps, wide)
    peaks = peaks.reshape(steps, wide)[:, own]
    if tile.exists is not None:
        densities[:, ~tile.exists] = 1.0
        peaks = peaks[tile.exists[:, own]]
    found = _messages(layout, tile, densities, markov, scratch)
    posteriors, transitions = _posteriors(tile, found, markov, scratch)
    starts = sum((posteriors[t][:, at].sum(axis=1) for t, at in enumerate(tile.enter) if at is not None), np.zeros(k))
    weights = scratch.array("weights", (k, steps, wide))
    weights[:, :, 0] = weights[:, :, -1] = 0.0
    weights[:, :, own] = posteriors.transpose(1, 0, 2)
    sums = emissions.sums(weights.reshape(k, -1), tile.features.reshape(q, -1))
    line = np.concatenate([[found.log_likelihood + peaks.sum()], starts, transitions.ravel(), sums])
    return Expectation(line, logs.reshape(k, steps, wide)[:, :, own], posteriors)


def _messages(
    layout: Layout, tile: Tile, densities: NDArray[np.float32], markov: Markov, scratch: Scratch
) -> _Messages:
    """Both recursions at once: entry 0 of the second axis runs forward, entry 1 backward from the last step."""
    k, steps, wide = densities.shape
    m, matrices = wide - 2, np.stack([markov.transmat.T, markov.transmat])
    both, predicted = (scratch.array(name, (steps, 2, k, m)) for name in ("both", "predicted"))
    both[:, 0] = densities[:, :, 1:-1].transpose(1, 0, 2)
    both[:, 1] = both[::-1, 0]
    predicted[0], after = _entered(layout, tile, densities, markov, matrices)
    logs = np.empty((-(-steps // _EVERY), m))
    for t in range(steps):
        message, before = both[t], predicted[t]
        if t:
            np.matmul(matrices, both[t - 1], out=before)
        _begin_anew(before, tile.enter[t], tile.leave[t], markov, both[t - 1, 0] if t else None)
        np.multiply(message, before, out=message)
        if t % _EVERY == _EVERY - 1 or t == steps - 1:
            total = np.add.reduce(message, axis=1)
            logs[t // _EVERY] = total[0]
            np.divide(message, total[:, None], out=message)
    return _Messages(both[:, 0], both[::-1, 1], predicted[::-1, 1], after, float(np.log(logs).sum()))


def _entered(
    layout: Layout, tile: Tile, densities: NDArray[np.float32], markov: Markov, matrices: Floats
) -> tuple[Floats, Floats]:
    """Predictions (2, k, M) with which pieces are entered, from the neighbours' frames; the backward message there."""
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
        _begin_anew(now, tile.early_enter[t], tile.early_leave[t], markov, None)
        now *= early[t]
        if t % _EVERY == _EVERY - 1 or t == burn_in - 1:
            now /= np.add.reduce(now, axis=1)[:, None]
    return np.matmul(matrices, now), now[1]


def _begin_anew(
    predicted: Floats,
    enter: NDArray[np.intp] | None,
    leave: NDArray[np.intp] | None,
    markov: Markov,
    last: Floats | None,
) -> None:
    """Let sequences begin and end; the scale of the `last` forward message (k, m) is kept for the likelihood."""
    if enter is not None:
        scale = 1.0 if last is None else last[:, enter].sum(axis=0)
        predicted[0][:, enter] = markov.startprob[:, None] * scale
    if leave is not None:
        predicted[1][:, leave] = 1.0


def _posteriors(tile: Tile, found: _Messages, markov: Markov, scratch: Scratch) -> tuple[Floats, Floats]:
    """Posteriors (L, k, M), and expected transitions (k, k)."""
    filtered, steps = found.filtered, len(found.filtered)
    posteriors = np.multiply(filtered, found.beyond, out=scratch.array("posteriors", filtered.shape))
    total = np.add.reduce(posteriors, axis=1)
    scale = 1.0 / total if tile.exists is None else tile.exists[:, 1:-1] / total
    posteriors *= scale[:, None]
    filtered *= scale[:, None]
    for t, at in enumerate(tile.leave):
        if at is not None:  # no pair with the next sequence
            filtered[steps - 1 - t][:, at] = 0.0
    pairs = np.matmul(filtered[:-1], found.behind[1:].swapaxes(1, 2)).sum(axis=0) + filtered[-1] @ found.after.T
    return posteriors, pairs * markov.transmat


def labels_of(layout: Layout, posteriors: Floats) -> NDArray[np.intp]:
    """Find the most likely state of each frame by itself.

    posteriors (L, k, M). Returns (M L,), in the order of time.
    """
    return in_time(layout, posteriors.argmax(axis=1))
