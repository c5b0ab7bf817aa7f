"""The Kalman filter and the smoother of pieces of sequences in which frames, or entries of frames, are missing.

The textbook recursions, batched over chains: each chain has covariances of its own. A frame outside the sequence is a
frame all of whose entries are missing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from dask_dca.models.kalman.filter import LOST, in_own_units, joint_root, smoother_step, square, update_covariance
from dask_dca.models.kalman.system import covariance_root

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dask_dca.models.kalman.system import LinearSystem

    Floats = NDArray[np.float64]

__all__ = ["FilteredStates", "SmoothedStates", "filter_states", "smooth_states"]

_LOG_2_PI: Final = float(np.log(2.0 * np.pi))


@dataclass(frozen=True)
class FilteredStates:
    """What the filter found, with covariances.

    predicted, means (steps, chains, k); roots (steps, chains, k, k); surprise (steps, chains, k); log_density (steps,
    chains); remembered (steps, chains).
    """

    predicted: Floats
    means: Floats
    roots: Floats
    surprise: Floats
    log_density: Floats
    remembered: Floats

    @property
    def covariances(self) -> Floats:
        """Covariances after frames are seen.

        Returns (steps, chains, k, k): L L^T.
        """
        return square(self.roots)


@dataclass(frozen=True)
class SmoothedStates:
    """What the smoother found.

    means (steps, chains, k): mean of each state given all frames of its chain; covariances (steps, chains, k, k): its
    covariance; lag_one (steps, chains, k, k): cov(s_t, s_{t-1}); zeros at step 0.
    """

    means: Floats
    covariances: Floats
    lag_one: Floats


def filter_states(
    system: LinearSystem,
    y: Floats,
    factors: Floats,
    first: NDArray[np.bool_],
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
        found.append((mean, after, root, surprise, density, remembered))
        mean = after
    return FilteredStates(*(np.stack(column) for column in zip(*found, strict=True)))


def _bounded(values: Floats) -> Floats:
    """Keep chains finite where they grow through frames that are missing: nothing is known there beyond some size."""
    axes = tuple(range(1, values.ndim))
    most = np.abs(values).max(axis=axes, keepdims=True)
    return values if (most <= LOST).all() else values * (LOST / np.maximum(most, LOST))


def smooth_states(system: LinearSystem, factors: Floats, filtered: FilteredStates) -> SmoothedStates:
    """Smooth chains: what later frames add.

    Their information C C^T is run backwards and met with the filter's covariance: no inverse of a covariance is needed,
    so that states without noise do no harm, and nothing is taken off, so that no variance is negative.
    factors (steps, chains, k, k): as `filter_states` takes them. Returns means, covariances and covariances of
    neighbours.
    """
    steps, chains, k = filtered.means.shape
    kicks = covariance_root(system.transition_covariance)
    later, information = np.zeros((chains, k)), np.zeros((chains, k, k))  # w of the state less its filtered mean, and C
    means, covariances = np.empty((steps, chains, k)), np.empty((steps, chains, k, k))
    lag_one = np.zeros((steps, chains, k, k))
    back = information
    for t in range(steps - 1, -1, -1):
        update = update_covariance(filtered.roots[t], information.swapaxes(1, 2))
        means[t], covariances[t] = filtered.means[t] + _times(update.gain, later), update.filtered
        if t + 1 < steps:
            lag_one[t + 1] = back.swapaxes(1, 2) @ covariances[t]
        later = later + _times(information.swapaxes(1, 2), filtered.means[t] - filtered.predicted[t])
        step = smoother_step(system, kicks, information, factors[t])
        later = _times(step.carry, later) + _times(step.take, filtered.surprise[t])
        information, back = step.information, step.back
    return SmoothedStates(means, covariances, lag_one)


def _times(matrices: Floats, vectors: Floats) -> Floats:
    """Matrix times vector, chain by chain: the bits of a chain do not depend on the others."""
    found: Floats = (matrices @ vectors[..., None])[..., 0]
    return found
