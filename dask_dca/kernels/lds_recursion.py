"""The Kalman filter and the smoother of many pieces of sequences at once, all frames complete.

Arrays are (steps, chains, k): step t of the recursion is one product of (chains, k) numbers. Gains are known
beforehand (`lds_gains`): they depend on no data. Chains that begin a sequence take theirs from the table, all others
the steady ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dask_dca.kernels.lds_gains import Gains
    from dask_dca.kernels.lds_system import LinearSystem

    Floats = NDArray[np.float64]
    Mask = NDArray[np.bool_]

__all__ = ["Filtered", "filter_chains", "smooth_chains"]

_LOG_2_PI: Final = float(np.log(2.0 * np.pi))


@dataclass(frozen=True)
class Filtered:
    """
    What the filter found.

    Attributes
    ----------
    means : ndarray of float64, shape (steps, chains, k)
        Mean of the state after its frame is seen.
    predicted : ndarray of float64, shape (steps, chains, k)
        And before.
    surprise : ndarray of float64, shape (steps, chains, k)
        y - F s of the predicted state; zero where there is no frame.
    log_density : ndarray of float64, shape (steps, chains)
        Of y given the frames before.
    """

    means: Floats
    predicted: Floats
    surprise: Floats
    log_density: Floats


def filter_chains(
    system: LinearSystem,
    factor: Floats,
    gains: tuple[Gains, Gains],
    y: Floats,
    inside: Mask,
    first: Mask,
    begin: int,
) -> Filtered:
    """
    Filter chains.

    Parameters
    ----------
    system : LinearSystem
        The system.
    factor : ndarray of float64, shape (k, k)
        F.
    gains : tuple of Gains
        From `start_gains` and `steady_gains`.
    y : ndarray of float64, shape (steps, chains, k)
        Observations, from `lds_observe`.
    inside : ndarray of bool, shape (steps, chains)
        Where there is a frame.
    first : ndarray of bool, shape (chains,)
        Chains whose sequence begins at step `begin`; the others begin amid a sequence, at step 0.
    begin : int
        That step.

    Returns
    -------
    Filtered
        The means and what they surprised with. Its covariances are the gains'.
    """
    start, steady = gains
    kicks = y @ steady.update.gain[0].T
    means = np.empty_like(y)
    closed = np.ascontiguousarray(steady.closed[0].T)
    mean = np.zeros(y.shape[1:])
    for t in range(len(y)):
        i = t - begin
        if 0 <= i < len(start) and first.any():
            before = (
                mean @ start.closed[i].T
                if i
                else np.broadcast_to(start.update.left[0] @ system.initial_mean, mean.shape)
            )
            own = before + y[t] @ start.update.gain[i].T
            mean = np.where(first[:, None], own, mean @ closed + kicks[t])
        else:
            mean = mean @ closed + kicks[t]
        means[t] = mean
    predicted = np.zeros_like(y)
    predicted[1:] = means[:-1] @ system.transition.T
    predicted[begin, first] = system.initial_mean
    surprise = (y - predicted @ factor.T) * inside[:, :, None]
    return Filtered(means, predicted, surprise, _log_density(gains, factor, surprise, inside, first, begin))


def _log_density(
    gains: tuple[Gains, Gains], factor: Floats, surprise: Floats, inside: Mask, first: Mask, begin: int
) -> Floats:
    """Of each surprise, Gaussian with covariance S."""
    k, (start, steady) = surprise.shape[2], gains
    weighted = surprise @ steady.update.precision[0]
    logs = np.full(surprise.shape[:2], steady.update.log_determinant[0])
    for i in range(min(len(start), len(surprise) - begin) if first.any() else 0):
        own = surprise[begin + i] @ start.update.precision[i]
        weighted[begin + i] = np.where(first[:, None], own, weighted[begin + i])
        logs[begin + i] = np.where(first, start.update.log_determinant[i], logs[begin + i])
    found = -0.5 * ((surprise * weighted).sum(axis=2) + logs + k * _LOG_2_PI)
    return np.where(inside, found, 0.0)


def smooth_chains(
    system: LinearSystem, gains: tuple[Gains, Gains], filtered: Filtered, first: Mask, begin: int
) -> Floats:
    """
    Smooth chains: what later frames add to the filter's means.

    The recursion of de Jong, which needs no inverse of a covariance.

    Parameters
    ----------
    system : LinearSystem
        The system.
    gains : tuple of Gains
        From `start_gains` and `steady_gains`.
    filtered : Filtered
        From `filter_chains`.
    first : ndarray of bool, shape (chains,)
        As `filter_chains` takes it.
    begin : int
        As `filter_chains` takes it.

    Returns
    -------
    ndarray of float64, shape (steps, chains, k)
        Mean of each state given all frames of its chain.
    """
    start, steady = gains
    closed, weight = np.ascontiguousarray(steady.closed[0]), steady.update.weight[0] @ system.transition
    pulls = filtered.surprise @ weight
    means = np.empty_like(pulls)
    later = np.zeros(pulls.shape[1:])  # de Jong's r: what later frames say
    hats = np.empty_like(pulls)
    for t in range(len(pulls) - 1, -1, -1):
        hats[t] = later
        i = t - begin
        if 0 <= i < len(start) and first.any():
            own = later @ start.closed[i] + filtered.surprise[t] @ (start.update.weight[i] @ system.transition)
            later = np.where(first[:, None], own, later @ closed + pulls[t])
        else:
            later = later @ closed + pulls[t]
    means = filtered.means + hats @ steady.update.filtered[0]
    for i in range(min(len(start), len(hats) - begin) if first.any() else 0):
        own = filtered.means[begin + i] + hats[begin + i] @ start.update.filtered[i]
        means[begin + i] = np.where(first[:, None], own, means[begin + i])
    return means
