"""Covariances of the Kalman filter, as square roots; where all frames are complete they depend on no data.

Then they come from a short table: the first frames of a sequence, until nothing changes any more. Frames are what
`lds_observe` makes of them: y = F s + N(0, I). A covariance P is carried as L with P = L L^T, so that it is never
negative, and small variances beside huge ones keep their digits (Kaminski, Bryson and Schmidt, Discrete square root
filtering, IEEE Transactions on Automatic Control 16, 1971).
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Final

import numpy as np

from dask_dca.kernels.lds_system import covariance_root

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dask_dca.kernels.lds_system import LinearSystem

    Floats = NDArray[np.float64]

__all__ = [
    "Gains",
    "Update",
    "in_own_units",
    "joint_root",
    "memory_of",
    "smoother_step",
    "square",
    "start_gains",
    "steady_gains",
    "update_covariance",
]

_SETTLED: Final = 1e-13  # change of a covariance, as a share of its states' own scales, that is none
_MOST_STEPS: Final = 4096
_GROWN: Final = 1e100  # an error that has become so large is never forgotten; its square can still be formed


@dataclass(frozen=True)
class Update:
    """
    What seeing a frame does to the covariance of the state.

    Attributes
    ----------
    turn : ndarray of float64, shape (..., k, k)
        By what the root L before is multiplied: L turn is the root after.
    root : ndarray of float64, shape (..., k, k)
        L of the covariance after.
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

    turn: Floats
    root: Floats
    gain: Floats
    left: Floats
    weight: Floats
    precision: Floats
    log_determinant: Floats

    @property
    def filtered(self) -> Floats:
        """
        Covariance after.

        Returns
        -------
        ndarray of float64, shape (..., k, k)
            L L^T.
        """
        return square(self.root)


@dataclass(frozen=True)
class Gains:
    """
    What the filter does to complete frames, by their place.

    Attributes
    ----------
    root : ndarray of float64, shape (m, k, k)
        L of the covariance of the state before its frame is seen.
    update : Update
        What seeing it does; arrays of shape (m, k, k) and (m,).
    closed : ndarray of float64, shape (m, k, k)
        (I - gain F) T: what the mean of the frame before is multiplied by.
    """

    root: Floats
    update: Update
    closed: Floats

    @property
    def predicted(self) -> Floats:
        """
        Covariance of the state before its frame is seen.

        Returns
        -------
        ndarray of float64, shape (m, k, k)
            L L^T.
        """
        return square(self.root)

    def __len__(self) -> int:
        return len(self.root)


def update_covariance(root: Floats, factor: Floats) -> Update:
    """
    See one frame: P (I + F^T F P)^{-1}, of which no entry is a difference.

    Parameters
    ----------
    root : ndarray of float64, shape (..., k, k)
        L of the covariance before.
    factor : ndarray of float64, shape (..., k, k)
        F.

    Returns
    -------
    Update
        Root of the covariance after, and what the recursions of the means need.

    Examples
    --------
    >>> update = update_covariance(np.eye(1), np.eye(1))
    >>> update.filtered.round(3), update.gain.round(3), update.log_determinant.round(3)
    (array([[0.5]]), array([[0.5]]), np.float64(0.693))
    """
    left, sizes, right = np.linalg.svd(factor @ root)
    turned, rest = root @ right.swapaxes(-1, -2), 1.0 / (1.0 + sizes**2)
    shrunk = np.sqrt(rest)[..., None, :]
    precision = (left * rest[..., None, :]) @ left.swapaxes(-1, -2)
    gain = (turned * (sizes * rest)[..., None, :]) @ left.swapaxes(-1, -2)
    return Update(
        right.swapaxes(-1, -2) * shrunk,
        turned * shrunk,
        gain,
        np.eye(root.shape[-1]) - gain @ factor,
        precision @ factor,
        precision,
        np.log1p(sizes**2).sum(axis=-1),
    )


def joint_root(one: Floats, other: Floats) -> Floats:
    """
    Add two covariances by their roots.

    Parameters
    ----------
    one, other : ndarray of float64, shape (..., k, k)
        Roots.

    Returns
    -------
    ndarray of float64, shape (..., k, k)
        Root of the sum.

    Examples
    --------
    >>> np.abs(joint_root(3 * np.eye(1), 4 * np.eye(1))).round(9).tolist()
    [[5.0]]
    """
    both = np.concatenate(np.broadcast_arrays(one, other), axis=-1)
    found: Floats = np.asarray(np.linalg.qr(both.swapaxes(-1, -2), mode="r"), dtype=np.float64)
    return found.swapaxes(-1, -2)


def square(root: Floats) -> Floats:
    """
    Covariances of roots.

    Parameters
    ----------
    root : ndarray of float64, shape (..., k, k)
        L.

    Returns
    -------
    ndarray of float64, shape (..., k, k)
        L L^T.
    """
    return root @ root.swapaxes(-1, -2)


@dataclass(frozen=True)
class SmootherStep:
    """
    What later frames say of a state s, w = C^T s + N(0, I), from what they say of the state after it.

    Attributes
    ----------
    information : ndarray of float64, shape (..., k, k)
        C.
    carry, take : ndarray of float64, shape (..., k, k)
        w is carry w' + take y, of what the next state's w' and y say.
    back : ndarray of float64, shape (..., k, k)
        T^T (I + X Q)^{-1}, X the information of the next frame and those after it.
    """

    information: Floats
    carry: Floats
    take: Floats
    back: Floats


def smoother_step(system: LinearSystem, kicks: Floats, information: Floats, factor: Floats) -> SmootherStep:
    """
    Go one frame back: the square-root information filter, whose update is the filter's with T turned round.

    Parameters
    ----------
    system : LinearSystem
        The system.
    kicks : ndarray of float64, shape (k, k)
        Root of Q.
    information : ndarray of float64, shape (..., k, k)
        C of the next state.
    factor : ndarray of float64, shape (..., k, k)
        F of its frame.

    Returns
    -------
    SmootherStep
        Of this state.
    """
    k = len(kicks)
    left, right = np.linalg.qr(np.concatenate([information.swapaxes(-1, -2), factor], axis=-2))
    update = update_covariance(right.swapaxes(-1, -2), kicks.T)
    found = update.turn.swapaxes(-1, -2) @ left.swapaxes(-1, -2)
    back = system.transition.T
    return SmootherStep(back @ update.root, found[..., :k], found[..., k:], back @ update.left)


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
    root, kicks = covariance_root(system.initial_covariance), covariance_root(system.transition_covariance)
    before, updates = [], []
    for _ in range(most):
        update = update_covariance(root, factor)
        before.append(root)
        updates.append(update)
        later = joint_root(system.transition @ update.root, kicks)
        if _settled(square(root), square(later)):
            break
        root = later
    found = Update(*(np.stack([getattr(one, field.name) for one in updates]) for field in fields(Update)))
    return Gains(np.stack(before), found, found.left @ system.transition)


def _settled(before: Floats, after: Floats) -> bool:
    scale = np.sqrt(np.diagonal(before))
    return bool((np.abs(after - before) <= _SETTLED * np.multiply.outer(scale, scale)).all())


def steady_gains(start: Gains) -> Gains:
    """
    Give the steady state, that of frames with a long past: where the first frames of a sequence lead.

    Parameters
    ----------
    start : Gains
        From `start_gains`.

    Returns
    -------
    Gains
        Its last entry alone.
    """
    update = Update(*(getattr(start.update, field.name)[-1:] for field in fields(Update)))
    return Gains(start.root[-1:], update, start.closed[-1:])


def memory_of(steady: Gains, tolerance: float) -> float:
    """
    Number of frames after which the filter has forgotten where it began.

    Parameters
    ----------
    steady : Gains
        From `steady_gains`.
    tolerance : float
        What is left of an error then, in standard deviations of the predicted states.

    Returns
    -------
    float
        Frames; infinity where the filter never forgets.

    Examples
    --------
    >>> from dask_dca.kernels.lds_system import LinearSystem
    >>> one = np.eye(1)
    >>> system = LinearSystem(0.5 * one, one, one, one, one[0], one, one[0])
    >>> memory_of(steady_gains(start_gains(system, one)), 1e-6)
    10.0
    """
    closed = in_own_units(steady.closed[-1], steady.root[-1])
    power, frames = closed, 1.0
    scale = max(1.0, float(np.linalg.norm(closed, 2)))
    steps = [closed]
    while np.linalg.norm(power, 2) > tolerance * scale:  # powers 1, 2, 4, ... : growth before decay counts too
        if frames > 2.0**40 or np.abs(power).max() > _GROWN:
            return float("inf")
        power, frames = power @ power, 2.0 * frames
        steps.append(power)
    found, reached = 0.0, np.eye(len(closed))
    for i in range(len(steps) - 2, -1, -1):  # the greatest number of frames that does not do yet, by its bits
        trial = reached @ steps[i]
        if np.linalg.norm(trial, 2) > tolerance * scale:
            reached, found = trial, found + 2.0**i
    return found + 1.0


def in_own_units(matrices: Floats, root: Floats) -> Floats:
    """
    Express maps of states in units of the states' standard deviations.

    Parameters
    ----------
    matrices : ndarray of float64, shape (..., k, k)
        Maps of states.
    root : ndarray of float64, shape (k, k)
        Root of the states' covariance.

    Returns
    -------
    ndarray of float64, shape (..., k, k)
        The same maps, whatever the units of the states.
    """
    size = np.linalg.norm(root, axis=1)
    size = np.where(size > 0.0, size, 1.0)
    return matrices * (size / size[:, None])
