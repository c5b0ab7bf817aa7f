"""Covariances that the smoother leaves where all frames are complete: sums over sequences, and frame by frame."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dask_dca.kernels.lds_gains import smoother_step, update_covariance
from dask_dca.kernels.lds_system import covariance_root, symmetric

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dask_dca.kernels.lds_gains import Gains
    from dask_dca.kernels.lds_recursion import Filtered
    from dask_dca.kernels.lds_system import LinearSystem

    Floats = NDArray[np.float64]
    Mask = NDArray[np.bool_]

__all__ = ["SmoothedSums", "filtered_covariances", "smoothed_complete", "smoothed_sums"]


@dataclass(frozen=True)
class SmoothedSums:
    """
    Sums of the smoother's covariances over all frames of complete sequences.

    Attributes
    ----------
    every : ndarray of float64, shape (k, k)
        Of all states.
    pairs : ndarray of float64, shape (k, k)
        Of Cov(s_t, s_{t-1}), over all pairs.
    first, last : ndarray of float64, shape (k, k)
        Of the first and the last states of the sequences alone.
    """

    every: Floats
    pairs: Floats
    first: Floats
    last: Floats


def smoothed_sums(
    system: LinearSystem,
    factor: Floats,
    start: Gains,
    memory: int,
    lengths: NDArray[np.int64],
    counts: NDArray[np.int64],
) -> SmoothedSums:
    """
    Sum the smoother's covariances over all frames of complete sequences.

    The information that later frames add is run backwards as de Jong (Biometrika 76, 1989) has it, without the inverse
    of a covariance. Frames amid a long sequence are all alike and are worked out once.

    Parameters
    ----------
    system : LinearSystem
        The system.
    factor : ndarray of float64, shape (k, k)
        F of complete frames.
    start : Gains
        From `start_gains`.
    memory : int
        Frames after which the filter has forgotten where it began.
    lengths, counts : ndarray of int64, shape (u,)
        Different lengths of sequences, and how many sequences have them.

    Returns
    -------
    SmoothedSums
        The sums.
    """
    k, settled = len(system.transition), len(start)
    shown = np.minimum(lengths, settled + memory + 1)
    weight, extra = counts.astype(np.float64), (lengths - shown).astype(np.float64)
    every, pairs, own = np.zeros((k, k)), np.zeros((k, k)), np.zeros((len(lengths), k, k))
    hat = np.zeros((len(lengths), k, k))  # what later frames say of the state: nothing, after the last
    coming = np.zeros((len(lengths), k, k))  # I - P tilde of the next frame
    after, before = start.update.filtered, start.predicted
    for t in range(int(shown.max()) - 1, -1, -1):
        i = min(t, settled - 1)
        filtered, left = after[i], start.update.left[i]
        own = filtered - filtered @ hat @ filtered
        alike = weight * np.where((t == settled) & (extra > 0.0), 1.0 + extra, 1.0)
        every += np.tensordot(alike * (t < shown), own, 1)
        pairs += np.tensordot(alike * (t + 1 < shown), coming, 1) @ system.transition @ filtered
        tilde = (factor.T @ start.update.weight[i] + left.T @ hat @ left) * (t < shown)[:, None, None]
        coming = np.eye(k) - before[i] @ tilde
        hat = system.transition.T @ tilde @ system.transition
    last = after[np.minimum(shown, settled) - 1]
    sums = (every, pairs, np.tensordot(weight, own, 1), np.tensordot(weight, last, 1))
    return SmoothedSums(symmetric(sums[0]), sums[1], symmetric(sums[2]), sums[3])


def filtered_covariances(gains: tuple[Gains, Gains], first: Mask, begin: int, steps: int) -> Floats:
    """
    Covariances that go with `filter_chains`.

    Parameters
    ----------
    gains : tuple of Gains
        From `start_gains` and `steady_gains`.
    first : ndarray of bool, shape (chains,)
        As `filter_chains` takes it.
    begin, steps : int
        Likewise, and the number of steps.

    Returns
    -------
    ndarray of float64, shape (steps, chains, k, k)
        Covariances of the filtered states.
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
    """
    Smooth chains, with covariances: what later frames add, as `smooth_states` has it.

    Parameters
    ----------
    system : LinearSystem
        The system.
    factor : ndarray of float64, shape (k, k)
        F.
    gains : tuple of Gains
        From `start_gains` and `steady_gains`.
    filtered : Filtered
        From `filter_chains`.
    first : ndarray of bool, shape (chains,)
        As `filter_chains` takes it.
    ends : ndarray of int64, shape (chains,)
        Step after the last frame of each chain.
    begin : int
        As `filter_chains` takes it.

    Returns
    -------
    means : ndarray of float64, shape (steps, chains, k)
        Means of the states given all frames of their chains; of no meaning after a chain's end.
    covariances : ndarray of float64, shape (steps, chains, k, k)
        Likewise.
    """
    kinds, which = np.unique(np.stack([first, ends], axis=1), axis=0, return_inverse=True)
    which, (steps, chains, k) = which.ravel(), filtered.means.shape
    chosen, kicks = kinds[:, 0, None, None] > 0, covariance_root(system.transition_covariance)
    place, start, steady = _places(gains[0], begin, steps), gains[0].update.root, gains[1].update.root[0]
    means, covariances = np.zeros((steps, chains, k)), np.zeros((steps, chains, k, k))
    later, information = np.zeros((chains, k)), np.zeros((len(kinds), k, k))
    for t in range(int(ends.max(initial=0)) - 1, -1, -1):
        update = update_covariance(np.where(chosen, start[place[t]], steady), information.swapaxes(1, 2))
        means[t], covariances[t] = filtered.means[t] + _times(update.gain[which], later), update.filtered[which]
        moved = filtered.means[t] - filtered.predicted[t]
        later = later + _times(information.swapaxes(1, 2)[which], moved)
        step = smoother_step(system, kicks, information, factor * (t < kinds[:, 1])[:, None, None])
        later = _times(step.carry[which], later) + _times(step.take[which], filtered.surprise[t])
        information = step.information
    return means, covariances


def _times(matrices: Floats, vectors: Floats) -> Floats:
    found: Floats = (matrices @ vectors[..., None])[..., 0]
    return found


def _places(start: Gains, begin: int, steps: int) -> NDArray[np.int64]:
    """Entry of the table for each step of a chain that begins a sequence."""
    return np.clip(np.arange(steps) - begin, 0, len(start) - 1)
