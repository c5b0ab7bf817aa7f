"""Climbing the likelihood on a sample: expectation-maximisation with Anderson's acceleration, and a guard.

Steps of EM are short where noise is small or memory long. From the last few of them least squares extrapolates to where
they would end (Anderson, Iterative procedures for nonlinear integral equations, Journal of the ACM 12, 1965).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from dask_dca.models.kalman.em import corrected_sums, expected_log_density, m_step
from dask_dca.models.kalman.system import LinearSystem, positive_part, without_growth

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from dask_dca.models.kalman.em import StateSums

    Floats = NDArray[np.float64]
    Look = Callable[[LinearSystem], tuple[StateSums, float]]

__all__ = ["Look", "climb", "corrected"]

_MEMORY: Final = 10  # steps that are extrapolated from
_RIDGE: Final = 1e-6  # of the greatest singular value, squared: directions of less are not followed
_NATS: Final = 0.1  # a rise that is none; so many
_LEVEL: Final = 3  # of them in a row are the end
_LARGEST: Final = 0.9999  # eigenvalue of an extrapolated transition


def climb(system: LinearSystem, look: Look, n_looks: int) -> LinearSystem:
    """Raise the likelihood as far as so many looks at the sample can.

    look: the E-step: sums of the states, and what is to be raised; n_looks: at most; with one it is a step of EM.
    """
    sums, value = look(system)
    image = m_step(sums)
    points, images, looks, level = [_pack(system)], [_pack(image)], 1, 0
    while looks < n_looks and level < _LEVEL:
        found = None
        if len(points) > 1:
            found, looks = _attempt(points, images, image, look, value), looks + 1
            if found is None:
                points, images = [], []
        if found is None:
            found, looks = (image, *look(image)), looks + 1
        level = level + 1 if abs(found[2] - value) < _NATS else 0
        system, sums, value = found
        image = m_step(sums)
        points, images = [*points, _pack(system)][-_MEMORY - 1 :], [*images, _pack(image)][-_MEMORY - 1 :]
    return image


def corrected(look: Look, whole: StateSums, system: LinearSystem) -> Look:
    """Let a sample stand for all frames: what these have of their own is added to what it says.

    whole: sums over all frames, of this system. Returns a look whose fixed point is that of all frames, except for what
    changes otherwise in the sample between the system and the fixed point.
    """
    before = look(system)[0]
    factor = whole.n_frames / before.n_frames

    def _look(other: LinearSystem) -> tuple[StateSums, float]:
        after, value = look(other)
        sums = corrected_sums(whole, before, after)
        own = expected_log_density(other, sums) - factor * expected_log_density(other, after)
        return sums, factor * value + own

    return _look


def _attempt(
    points: list[Floats], images: list[Floats], like: LinearSystem, look: Look, value: float
) -> tuple[LinearSystem, StateSums, float] | None:
    """Extrapolate; None where that is no system, or a worse one."""
    with np.errstate(all="ignore"):
        try:
            system = _unpack(_extrapolated(np.array(points), np.array(images)), like)
            sums, reached = look(system)
        except np.linalg.LinAlgError:
            return None
    return (system, sums, reached) if reached >= value else None


def _extrapolated(points: Floats, images: Floats) -> Floats:
    steps = images - points
    changes, moves = np.diff(steps, axis=0).T, np.diff(images, axis=0).T
    size = np.linalg.norm(changes, axis=0)
    size = np.where(size > 0.0, size, 1.0)
    left, values, right = np.linalg.svd(changes / size, full_matrices=False)
    weights = right.T @ (values / (values**2 + _RIDGE * values[0] ** 2 + 1e-300) * (left.T @ steps[-1])) / size
    return np.asarray(images[-1] - moves @ weights, dtype=np.float64)


def _pack(system: LinearSystem) -> Floats:
    """All parameters except those of first states, covariances by their factors."""
    noise = system.observation_covariance
    seen = np.sqrt(noise) if noise.ndim == 1 else _lower(noise)
    parts = (system.transition, system.observation, system.offset, _lower(system.transition_covariance), seen)
    return np.concatenate([part.ravel() for part in parts])


def _lower(covariance: Floats) -> Floats:
    size = float(np.trace(covariance)) / len(covariance)
    lower = np.linalg.cholesky(positive_part(covariance, max(1e-12 * size, 1e-300)))[np.tril_indices(len(covariance))]
    return np.asarray(lower, dtype=np.float64)


def _unpack(vector: Floats, like: LinearSystem) -> LinearSystem:
    """The system of these parameters, with the first states of another."""
    k, p, full = like.n_dim_state, like.n_dim_obs, like.observation_covariance.ndim == 2
    sizes = np.cumsum([k * k, p * k, p, k * (k + 1) // 2])
    transition, observation, offset, *lower = np.split(vector, sizes)
    return replace(
        like,
        transition=without_growth(transition.reshape(k, k), _LARGEST),
        observation=observation.reshape(p, k).copy(),
        transition_covariance=_square(lower[0], k),
        observation_covariance=_square(lower[1], p) if full else lower[1] ** 2,
        offset=offset.copy(),
    )


def _square(lower: Floats, size: int) -> Floats:
    root = np.zeros((size, size))
    root[np.tril_indices(size)] = lower
    return root @ root.T
