"""The E-step of Baum and Welch on a tile: both recursions in one product a step, expected counts and moments.

Arrays are (step, direction, state, piece). Densities are scaled by the greatest of each frame, messages on every fourth
step; densities below exp(-87) of the greatest count as that much, which no chain without impossible transitions can
tell from less.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np

from dask_dca.models.hmm.layout import in_time
from dask_dca.models.hmm.recursions import stationary_distribution

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dask_dca.models.hmm.layout import Layout, Tile
    from dask_dca.models.hmm.recursions import Markov, Scratch

    Floats = NDArray[np.float64]

__all__ = ["Emissions", "Expectation", "Expected", "expectation", "labels_of"]

_EVERY: Final = 4  # steps after which messages are scaled
_LEAST: Final = np.float32(-87.0)  # logarithm of a density over the greatest


class Emissions(Protocol):
    """What states emit, for tiles of features."""

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

    line: the sums of `Expectation`, over all of them.
    """

    line: Floats
    k: int

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
