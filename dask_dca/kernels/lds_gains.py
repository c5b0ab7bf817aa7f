"""Covariances of the Kalman filter and smoother where all frames are complete: they depend on no data.

They come from a short table (the first frames of a sequence, until nothing changes any more) and from the steady state.
Frames are what `lds_observe` makes of them: y = F s + N(0, I).
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Final

import numpy as np
from scipy.linalg import LinAlgError, solve_discrete_are

from dask_dca.kernels.lds_system import symmetric

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dask_dca.kernels.lds_system import LinearSystem

    Floats = NDArray[np.float64]

__all__ = [
    "Gains",
    "Update",
    "memory_of",
    "start_gains",
    "steady_gains",
    "update_covariance",
]

_SETTLED: Final = 1e-13  # relative change of a covariance that is none
_MOST_STEPS: Final = 4096


@dataclass(frozen=True)
class Update:
    """
    What seeing a frame does to the covariance of the state.

    Attributes
    ----------
    filtered : ndarray of float64, shape (..., k, k)
        Covariance after.
    gain : ndarray of float64, shape (..., k, k)
        P F^T S^{-1}, with S = F P F^T + I the covariance of the surprise.
    left : ndarray of float64, shape (..., k, k)
        I - gain F.
    weight : ndarray of float64, shape (..., k, k)
        S^{-1} F.
    precision : ndarray of float64, shape (..., k, k)
        S^{-1}.
    log_determinant : ndarray of float64, shape (...)
        log det S.
    """

    filtered: Floats
    gain: Floats
    left: Floats
    weight: Floats
    precision: Floats
    log_determinant: Floats


@dataclass(frozen=True)
class Gains:
    """
    What the filter does to complete frames, by their place.

    Attributes
    ----------
    predicted : ndarray of float64, shape (m, k, k)
        Covariance of the state before its frame is seen.
    update : Update
        What seeing it does; arrays of shape (m, k, k) and (m,).
    closed : ndarray of float64, shape (m, k, k)
        (I - gain F) T: what the mean of the frame before is multiplied by.
    """

    predicted: Floats
    update: Update
    closed: Floats

    def __len__(self) -> int:
        return len(self.predicted)


def update_covariance(predicted: Floats, factor: Floats) -> Update:
    """
    See one frame, in Joseph's form, whose result is a covariance whatever rounding does.

    Parameters
    ----------
    predicted : ndarray of float64, shape (..., k, k)
        Covariance P before.
    factor : ndarray of float64, shape (..., k, k)
        F.

    Returns
    -------
    Update
        Covariance after, and what the recursions of the means need.

    Examples
    --------
    >>> update = update_covariance(np.eye(1), np.eye(1))
    >>> update.filtered, update.gain, update.log_determinant.round(3)
    (array([[0.5]]), array([[0.5]]), np.float64(0.693))
    """
    identity = np.eye(predicted.shape[-1])
    surprise = symmetric(factor @ predicted @ factor.swapaxes(-1, -2)) + identity
    precision = symmetric(np.asarray(np.linalg.inv(surprise), dtype=np.float64))
    weight = precision @ factor
    gain = predicted @ weight.swapaxes(-1, -2)
    left = identity - gain @ factor
    filtered = symmetric(left @ predicted @ left.swapaxes(-1, -2) + gain @ gain.swapaxes(-1, -2))
    return Update(filtered, gain, left, weight, precision, np.linalg.slogdet(surprise)[1])


def start_gains(system: LinearSystem, factor: Floats, most: int = _MOST_STEPS) -> Gains:
    """
    Work out the first frames of a sequence, until nothing changes any more.

    Parameters
    ----------
    system : LinearSystem
        The system.
    factor : ndarray of float64, shape (k, k)
        F of complete frames.
    most : int, default 4096
        At most so many frames.

    Returns
    -------
    Gains
        The last entry holds for all later frames, if they settled before `most`.
    """
    return _table(system, factor, system.initial_covariance, most)


def steady_gains(system: LinearSystem, factor: Floats) -> Gains:
    """
    Work out the steady state, that of frames with a long past.

    Parameters
    ----------
    system : LinearSystem
        The system.
    factor : ndarray of float64, shape (k, k)
        F of complete frames.

    Returns
    -------
    Gains
        One entry: the stabilising solution of the Riccati equation; where there is none (modes without noise that
        do not decay), what the recursion arrives at after 4,096 frames.
    """
    k = len(factor)
    try:
        steady = symmetric(
            solve_discrete_are(system.transition.T, factor.T, symmetric(system.transition_covariance), np.eye(k))
        )
        for _ in range(2):  # the recursion contracts: it also polishes
            steady = _next(system, update_covariance(steady, factor).filtered)
        fine = bool(np.isfinite(steady).all()) and np.linalg.eigvalsh(steady)[0] > -1e-8 * np.trace(steady)
    except (LinAlgError, ValueError):
        fine = False
    if not fine:
        steady = _table(system, factor, system.initial_covariance, _MOST_STEPS).predicted[-1]
    return _table(system, factor, steady, 1)


def _next(system: LinearSystem, filtered: Floats) -> Floats:
    return symmetric(system.transition @ filtered @ system.transition.T) + system.transition_covariance


def _table(system: LinearSystem, factor: Floats, predicted: Floats, most: int) -> Gains:
    before, updates = [], []
    for _ in range(most):
        update = update_covariance(predicted, factor)
        before.append(predicted)
        updates.append(update)
        later = _next(system, update.filtered)
        if np.abs(later - predicted).max() <= _SETTLED * np.abs(predicted).max():
            break
        predicted = later
    update = Update(*(np.stack([getattr(one, field.name) for one in updates]) for field in fields(Update)))
    return Gains(np.stack(before), update, update.left @ system.transition)


def memory_of(steady: Gains, tolerance: float) -> float:
    """
    Number of frames after which the filter has forgotten where it began.

    Parameters
    ----------
    steady : Gains
        From `steady_gains`.
    tolerance : float
        What is left of an error then.

    Returns
    -------
    float
        Frames; infinity where the filter never forgets.

    Examples
    --------
    >>> from dask_dca.kernels.lds_system import LinearSystem
    >>> one = np.eye(1)
    >>> system = LinearSystem(0.5 * one, one, one, one, one[0], one, one[0])
    >>> memory_of(steady_gains(system, one), 1e-6)
    10.0
    """
    closed, power, frames = steady.closed[-1], steady.closed[-1], 1.0
    scale = max(1.0, float(np.linalg.norm(closed, 2)))
    steps = [closed]
    while np.linalg.norm(power, 2) > tolerance * scale:  # powers 1, 2, 4, ... : growth before decay counts too
        if frames > 2.0**40 or not np.isfinite(power).all():
            return float("inf")
        power, frames = power @ power, 2.0 * frames
        steps.append(power)
    found, reached = 0.0, np.eye(len(closed))
    for i in range(len(steps) - 2, -1, -1):  # the greatest number of frames that does not do yet, by its bits
        trial = reached @ steps[i]
        if np.linalg.norm(trial, 2) > tolerance * scale:
            reached, found = trial, found + 2.0**i
    return found + 1.0
