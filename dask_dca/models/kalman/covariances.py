"""The Kalman filter and smoother with covariances, of pieces of sequences in which entries may be missing.

The textbook recursions, batched over chains: where entries are missing each chain has covariances of its own. A frame
outside the sequence is a frame all of whose entries are missing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from dask_dca.models.kalman.filter import (
    LOST,
    Filtered,
    in_own_units,
    joint_root,
    square,
    update_covariance,
)
from dask_dca.models.kalman.system import covariance_root

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dask_dca.geometry.arrays import Floats, Mask
    from dask_dca.models.kalman.filter import Gains
    from dask_dca.models.kalman.system import LinearSystem

_LOG_2_PI: Final = float(np.log(2.0 * np.pi))


@dataclass(frozen=True)
class FilteredStates(Filtered):
    """What the filter found, with covariances.

    roots (steps, chains, k, k): of the covariances after frames are seen; remembered (steps, chains): what is left
    of an error at the beginning.
    """

    roots: Floats
    remembered: Floats

    @property
    def covariances(self) -> Floats:
        """Covariances after frames are seen.

        Returns (steps, chains, k, k): L L^T.
        """
        return square(self.roots)


def filter_states(
    system: LinearSystem,
    y: Floats,
    factors: Floats,
    first: Mask,
    begin: int,
    steady: Floats,
) -> FilteredStates:
    """Filter chains.

    y (steps, chains, k): observations, from `lds_observe`; zero where there is no frame; factors (steps, chains, k, k):
    F; zero where there is no frame; first (chains,): chains whose sequence begins at step `begin`; the others begin
    amid a sequence, at step 0; steady (k, k): root of the covariance of the predicted state amid a sequence.
    """
    steps, chains, k = y.shape
    kicks, start = covariance_root(system.transition_covariance), covariance_root(system.initial_covariance)
    mean, root = np.zeros((chains, k)), np.broadcast_to(steady, (chains, k, k))
    found, error = [], np.broadcast_to(np.eye(k), (chains, k, k))
    for t in range(steps):
        if t:
            mean, root = _times(system.transition, mean), joint_root(system.transition @ root, kicks)
            mean, root = _bounded(mean), _bounded(root)
        if t == begin:
            mean = np.where(first[:, None], system.initial_mean, mean)
            root = np.where(first[:, None, None], start, root)
        update = update_covariance(root, factors[t])
        surprise = y[t] - _times(factors[t], mean)
        after, root = mean + _times(update.gain, surprise), update.root
        squares = (_times(update.whitener, surprise) ** 2).sum(axis=-1)
        density = -0.5 * (squares + update.log_determinant + k * _LOG_2_PI)
        error = _bounded(update.left @ (system.transition @ error if t % (steps - begin) else np.eye(k)))
        remembered = np.abs(in_own_units(error, steady)).max(axis=(1, 2))
        found.append((after, mean, surprise, density, root, remembered))
        mean = after
    return FilteredStates(*(np.stack(column) for column in zip(*found, strict=True)))


def _bounded(values: Floats) -> Floats:
    """Keep chains finite where they grow through frames that are missing: nothing is known there beyond some size."""
    axes = tuple(range(1, values.ndim))
    most = np.abs(values).max(axis=axes, keepdims=True)
    return values if (most <= LOST).all() else values * (LOST / np.maximum(most, LOST))


def filtered_covariances(gains: tuple[Gains, Gains], first: Mask, begin: int, steps: int) -> Floats:
    """Covariances that go with `filter_chains`.

    first (chains,): as `filter_chains` takes it; begin, steps: likewise, and the number of steps. Returns (steps,
    chains, k, k): covariances of the filtered states.
    """
    return np.where(
        first[:, None, None],
        gains[0].update.filtered[_places(gains[0], begin, steps), None],
        gains[1].update.filtered[0],
    )


def smoothed_complete(
    system: LinearSystem,
    factor: Floats,
    gains: tuple[Gains, Gains],
    filtered: Filtered,
    first: Mask,
    ends: NDArray[np.int64],
    begin: int,
) -> tuple[Floats, Floats]:
    """Smooth chains of complete frames, with covariances.

    factor (k, k): F; first (chains,): as `filter_chains` takes it; ends (chains,): step after the last frame of each
    chain. Returns means (steps, chains, k): means of the states given all frames of their chains; of no meaning after a
    chain's end; covariances (steps, chains, k, k): likewise.
    """
    kinds, which = np.unique(np.stack([first, ends], axis=1), axis=0, return_inverse=True)
    steps, starts = len(filtered.means), gains[0].update.root[_places(gains[0], begin, len(filtered.means)), None]
    roots = np.where(kinds[:, 0, None, None] > 0, starts, gains[1].update.root[0])
    factors = factor * (np.arange(steps)[:, None] < kinds[:, 1])[:, :, None, None]
    found = smooth_kinds(system, filtered, roots, factors, which.ravel())
    return found.means, found.covariances


def _places(start: Gains, begin: int, steps: int) -> NDArray[np.int64]:
    """Entry of the table for each step of a chain that begins a sequence."""
    return np.clip(np.arange(steps) - begin, 0, len(start) - 1)


def _step_back(
    system: LinearSystem, kicks: Floats, information: Floats, factor: Floats
) -> tuple[Floats, Floats, Floats, Floats]:
    """Go one frame back: the square-root information filter, whose update is the filter's with T turned round.

    What later frames say of a state s is w = C^T s + N(0, I). kicks (k, k): root of Q; information (..., k, k): C of
    the next state; factor (..., k, k): F of its frame. Returns C; carry and take: w is carry w' + take y, of what the
    next state's w' and y say; and T^T (I + X Q)^{-1}, X the information of the next frame and those after it.
    """
    k = len(kicks)
    left, right = np.linalg.qr(np.concatenate([information.swapaxes(-1, -2), factor], axis=-2))
    update = update_covariance(right.swapaxes(-1, -2), kicks.T)
    found = update.turn.swapaxes(-1, -2) @ left.swapaxes(-1, -2)
    back = system.transition.T
    return back @ update.root, found[..., :k], found[..., k:], back @ update.left


@dataclass(frozen=True)
class SmoothedStates:
    """What the smoother found.

    means (steps, chains, k): mean of each state given all frames of its chain; covariances (steps, chains, k, k): its
    covariance; lag_one (steps, kinds, k, k): cov(s_t, s_{t-1}); zeros at step 0.
    """

    means: Floats
    covariances: Floats
    lag_one: Floats


def smooth_kinds(
    system: LinearSystem, filtered: Filtered, roots: Floats, factors: Floats, which: NDArray[np.int64] | slice
) -> SmoothedStates:
    """Smooth chains, of which those of a kind have the same covariances: what later frames add.

    Their information C C^T is run backwards and met with the filter's covariance: no inverse of a covariance is needed,
    so that states without noise do no harm, and nothing is taken off, so that no variance is negative.
    roots, factors (steps, kinds, k, k): of the filter's covariances, and F; zero where there is no frame; which
    (chains,): kind of each chain.
    """
    steps, chains, k = filtered.means.shape
    kicks = covariance_root(system.transition_covariance)
    later, information = (
        np.zeros((chains, k)),
        np.zeros(roots.shape[1:]),
    )  # w of the state less its filtered mean, and C
    means, covariances = np.empty((steps, chains, k)), np.empty((steps, chains, k, k))
    lag_one, back = np.zeros(roots.shape), information
    for t in range(steps - 1, -1, -1):
        update = update_covariance(roots[t], information.swapaxes(1, 2))
        known = update.filtered
        means[t], covariances[t] = filtered.means[t] + _times(update.gain[which], later), known[which]
        if t + 1 < steps:
            lag_one[t + 1] = back.swapaxes(1, 2) @ known
        later = later + _times(information.swapaxes(1, 2)[which], filtered.means[t] - filtered.predicted[t])
        information, carry, take, back = _step_back(system, kicks, information, factors[t])
        later = _times(carry[which], later) + _times(take[which], filtered.surprise[t])
    return SmoothedStates(means, covariances, lag_one)


def _times(matrices: Floats, vectors: Floats) -> Floats:
    """Multiply vectors, chain by chain: the bits of a chain do not depend on the others."""
    found: Floats = (matrices @ vectors[..., None])[..., 0]
    return found
