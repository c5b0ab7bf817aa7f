"""The Kalman filter and the smoother of pieces of sequences in which frames, or entries of frames, are missing.

The textbook recursions, batched over chains: each chain has covariances of its own. A frame outside the sequence is a
frame all of whose entries are missing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from dask_dca.kernels.lds_gains import Update, update_covariance
from dask_dca.kernels.lds_system import symmetric

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dask_dca.kernels.lds_system import LinearSystem

    Floats = NDArray[np.float64]

__all__ = ["FilteredStates", "SmoothedStates", "filter_states", "smooth_states"]

_LOG_2_PI: Final = float(np.log(2.0 * np.pi))


@dataclass(frozen=True)
class FilteredStates:
    """
    What the filter found, with covariances.

    Attributes
    ----------
    predicted, means : ndarray of float64, shape (steps, chains, k)
        Mean of the state before and after its frame is seen.
    predicted_covariances, covariances : ndarray of float64, shape (steps, chains, k, k)
        Their covariances.
    pull : ndarray of float64, shape (steps, chains, k)
        F^T S^{-1} (y - F s): what the frame says of the predicted state.
    information : ndarray of float64, shape (steps, chains, k, k)
        F^T S^{-1} F.
    left : ndarray of float64, shape (steps, chains, k, k)
        I - gain F.
    log_density : ndarray of float64, shape (steps, chains)
        Of y given the frames before.
    """

    predicted: Floats
    means: Floats
    predicted_covariances: Floats
    covariances: Floats
    pull: Floats
    information: Floats
    left: Floats
    log_density: Floats


@dataclass(frozen=True)
class SmoothedStates:
    """
    What the smoother found.

    Attributes
    ----------
    means : ndarray of float64, shape (steps, chains, k)
        Mean of each state given all frames of its chain.
    covariances : ndarray of float64, shape (steps, chains, k, k)
        Its covariance.
    lag_one : ndarray of float64, shape (steps, chains, k, k)
        Cov(s_t, s_{t-1}); zeros at step 0.
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
    """
    Filter chains.

    Parameters
    ----------
    system : LinearSystem
        The system.
    y : ndarray of float64, shape (steps, chains, k)
        Observations, from `lds_observe`; zero where there is no frame.
    factors : ndarray of float64, shape (steps, chains, k, k)
        F; zero where there is no frame.
    first : ndarray of bool, shape (chains,)
        Chains whose sequence begins at step `begin`; the others begin amid a sequence, at step 0.
    begin : int
        That step.
    steady : ndarray of float64, shape (k, k)
        Covariance of the predicted state amid a sequence.

    Returns
    -------
    FilteredStates
        Means and covariances.
    """
    steps, chains, k = y.shape
    mean, covariance = np.zeros((chains, k)), np.broadcast_to(steady, (chains, k, k))
    found = []
    for t in range(steps):
        if t:
            mean = _times(system.transition, mean)
            covariance = system.transition @ covariance @ system.transition.T + system.transition_covariance
        if t == begin:
            mean = np.where(first[:, None], system.initial_mean, mean)
            covariance = np.where(first[:, None, None], system.initial_covariance, covariance)
        update = update_covariance(covariance, factors[t])
        surprise = y[t] - _times(factors[t], mean)
        pull = _times(update.weight.swapaxes(-1, -2), surprise)
        after = mean + _times(update.gain, surprise)
        found.append((mean, after, covariance, update.filtered, pull, *_seen(update, factors[t], surprise)))
        mean, covariance = after, update.filtered
    return FilteredStates(*(np.stack(column) for column in zip(*found, strict=True)))


def _seen(update: Update, factor: Floats, surprise: Floats) -> tuple[Floats, Floats, Floats]:
    """Information, I - gain F, and the density of the surprise."""
    squares = (surprise * _times(update.precision, surprise)).sum(axis=-1)
    density = -0.5 * (squares + update.log_determinant + surprise.shape[-1] * _LOG_2_PI)
    return symmetric(factor.swapaxes(-1, -2) @ update.weight), update.left, density


def smooth_states(system: LinearSystem, filtered: FilteredStates) -> SmoothedStates:
    """
    Smooth chains: what later frames add.

    The recursion of de Jong (Biometrika 76, 1989), which needs no inverse of a covariance, so that states without
    noise do no harm.

    Parameters
    ----------
    system : LinearSystem
        The system.
    filtered : FilteredStates
        From `filter_states`.

    Returns
    -------
    SmoothedStates
        Means, covariances and covariances of neighbours.
    """
    steps, chains, k = filtered.means.shape
    vector, matrix = np.zeros((chains, k)), np.zeros((chains, k, k))  # de Jong's r and N
    means, covariances = np.empty((steps, chains, k)), np.empty((steps, chains, k, k))
    lag_one = np.zeros((steps, chains, k, k))
    for t in range(steps - 1, -1, -1):
        own = filtered.covariances[t]
        means[t] = filtered.means[t] + _times(own, vector)
        covariances[t] = symmetric(own - own @ matrix @ own)
        left = filtered.left[t].swapaxes(-1, -2)
        tilde = symmetric(filtered.information[t] + left @ matrix @ filtered.left[t])
        if t:
            coming = np.eye(k) - filtered.predicted_covariances[t] @ tilde
            lag_one[t] = coming @ system.transition @ filtered.covariances[t - 1]
        vector = _times(system.transition.T, filtered.pull[t] + _times(left, vector))
        matrix = system.transition.T @ tilde @ system.transition
    return SmoothedStates(means, covariances, lag_one)


def _times(matrices: Floats, vectors: Floats) -> Floats:
    """Matrix times vector, chain by chain: the bits of a chain do not depend on the others."""
    found: Floats = (matrices @ vectors[..., None])[..., 0]
    return found
