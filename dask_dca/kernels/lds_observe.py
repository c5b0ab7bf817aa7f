"""From a frame of p numbers, some of them missing, to the k numbers that tell all about the state.

With R = L L^T and L^{-1} O = Q F (QR), the frame x says of the state s what y = Q^T L^{-1} (x - mu) = F s + N(0, I)
says. All recursions run on y and F, of size k, whatever p is; and the noise of y is never singular. Where entries are
missing, their rows of O and R are left out, so that each pattern of missing entries has an F of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from scipy.linalg import solve_triangular

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dask_dca.kernels.lds_system import LinearSystem

    Floats = NDArray[np.float64]

__all__ = ["Observer", "frame_numbers", "incomplete_numbers", "prepare_observer", "split_numbers"]

_LOG_2_PI: Final = float(np.log(2.0 * np.pi))


@dataclass(frozen=True)
class Observer:
    """
    What turns frames into k numbers each.

    Attributes
    ----------
    system : LinearSystem
        Whose noise is nowhere singular: from `safe_system`.
    factor : ndarray of float64, shape (k, k)
        F of complete frames.
    projection : ndarray of float64, shape (k, p)
        Q^T L^{-1}.
    seen : ndarray of float64, shape (k, p)
        Q^T: what of a whitened frame tells of the state.
    whitener : ndarray of float64, shape (p, p) or (p,)
        L^{-1}.
    log_constant : float
        What no frame changes of the logarithm of the density of the part of a frame that tells nothing of the state.
    """

    system: LinearSystem
    factor: Floats
    projection: Floats
    seen: Floats
    whitener: Floats
    log_constant: float


def prepare_observer(system: LinearSystem) -> Observer:
    """
    Factor the observation noise, once for all frames.

    Parameters
    ----------
    system : LinearSystem
        From `safe_system`.

    Returns
    -------
    Observer
        For `frame_numbers`.
    """
    noise, p, k = system.observation_covariance, system.n_dim_obs, system.n_dim_state
    if noise.ndim == 1:
        whitener = 1.0 / np.sqrt(noise)
        white, logs = system.observation * whitener[:, None], np.log(whitener).sum()
    else:
        lower = np.linalg.cholesky(noise)
        whitener = solve_triangular(lower, np.eye(p), lower=True)
        white, logs = whitener @ system.observation, np.log(np.diagonal(whitener)).sum()
    left, factor = _factor(white, k)
    projection = left.T * whitener if noise.ndim == 1 else left.T @ whitener
    return Observer(system, factor, projection, left.T.copy(), whitener, float(logs - 0.5 * (p - k) * _LOG_2_PI))


def _factor(white: Floats, k: int) -> tuple[Floats, Floats]:
    """QR, filled up with rows of zeros where there are fewer than k channels."""
    left, right = np.linalg.qr(white)
    missing = k - len(right)
    return np.pad(left, ((0, 0), (0, missing))), np.pad(right, ((0, missing), (0, 0)))


def frame_numbers(observer: Observer, frames: Floats, *, density: bool = True) -> Floats:
    """
    Reduce complete frames.

    Parameters
    ----------
    observer : Observer
        The prepared system.
    frames : ndarray of float64, shape (n, p)
        Complete frames.
    density : bool, default True
        Work out the density of the rest too; zeros if not.

    Returns
    -------
    ndarray of float64, shape (n, k + 1)
        y, and the logarithm of the density of the part of the frame that tells nothing of the state.
    """
    centred = frames - observer.system.offset
    k = observer.system.n_dim_state
    found = np.zeros((len(frames), k + 1))
    found[:, :k] = centred @ observer.projection.T
    if density:
        white = centred * observer.whitener if observer.whitener.ndim == 1 else centred @ observer.whitener.T
        rest = white - found[:, :k] @ observer.seen  # a difference of squares would lose its digits
        found[:, k] = observer.log_constant - 0.5 * (rest**2).sum(axis=1)
    return found


def incomplete_numbers(observer: Observer, frames: Floats) -> Floats:
    """
    Reduce frames some of which lack entries.

    Parameters
    ----------
    observer : Observer
        The prepared system.
    frames : ndarray of float64, shape (n, p)
        Frames; NaN where an entry is missing.

    Returns
    -------
    ndarray of float64, shape (n, k + 1 + k k)
        As `frame_numbers` (of complete frames the very same numbers), and F of each frame.
    """
    k, seen = observer.system.n_dim_state, ~np.isnan(frames)
    found = np.empty((len(frames), k + 1 + k * k))
    found[:, : k + 1] = frame_numbers(observer, np.where(seen, frames, observer.system.offset))
    found[:, k + 1 :] = observer.factor.ravel()
    reduce = _diagonal_pattern if observer.whitener.ndim == 1 else _full_pattern
    for rows, pattern in _patterns(seen):
        left, factor, whitener, constant = reduce(observer, pattern)
        # one layout and a product a row: the bits of a row must not depend on how many others lack the same entries
        centred = np.ascontiguousarray(frames[rows][:, pattern]) - observer.system.offset[pattern]
        white = centred * whitener if whitener.ndim == 1 else (whitener @ centred[:, :, None])[:, :, 0]
        y = (left.T @ white[:, :, None])[:, :, 0]
        found[rows, :k] = y
        found[rows, k] = constant - 0.5 * ((white - (left @ y[:, :, None])[:, :, 0]) ** 2).sum(axis=1)
        found[rows, k + 1 :] = factor.ravel()
    return found


def split_numbers(numbers: Floats, n_dim_state: int) -> tuple[Floats, Floats, Floats]:
    """
    Take what `incomplete_numbers` returns apart.

    Parameters
    ----------
    numbers : ndarray of float64, shape (..., k + 1 + k k)
        Numbers of frames.
    n_dim_state : int
        Number of state dimensions k.

    Returns
    -------
    y : ndarray of float64, shape (..., k)
        Observations of the state.
    log_density : ndarray of float64, shape (...)
        Density of the rest.
    factors : ndarray of float64, shape (..., k, k)
        F.
    """
    k = n_dim_state
    return numbers[..., :k], numbers[..., k], numbers[..., k + 1 :].reshape(*numbers.shape[:-1], k, k)


def _patterns(seen: NDArray[np.bool_]) -> list[tuple[NDArray[np.intp], NDArray[np.bool_]]]:
    """Rows that lack entries, by which entries they have."""
    lacking = np.flatnonzero(~seen.all(axis=1))
    if not len(lacking):
        return []
    packed, which = np.unique(np.packbits(seen[lacking], axis=1), axis=0, return_inverse=True)
    patterns = np.unpackbits(packed, axis=1, count=seen.shape[1]).astype(bool)
    return [(lacking[which.ravel() == i], pattern) for i, pattern in enumerate(patterns)]


def _diagonal_pattern(observer: Observer, pattern: NDArray[np.bool_]) -> tuple[Floats, Floats, Floats, float]:
    whitener = observer.whitener[pattern]
    left, factor = _factor(observer.system.observation[pattern] * whitener[:, None], len(observer.factor))
    return left, factor, whitener, _constant(np.log(whitener).sum(), pattern, factor)


def _full_pattern(observer: Observer, pattern: NDArray[np.bool_]) -> tuple[Floats, Floats, Floats, float]:
    noise = observer.system.observation_covariance[np.ix_(pattern, pattern)]
    whitener = solve_triangular(np.linalg.cholesky(noise), np.eye(len(noise)), lower=True)
    left, factor = _factor(whitener @ observer.system.observation[pattern], len(observer.factor))
    return left, factor, whitener, _constant(np.log(np.diagonal(whitener)).sum(), pattern, factor)


def _constant(logs: float, pattern: NDArray[np.bool_], factor: Floats) -> float:
    return float(logs - 0.5 * (int(pattern.sum()) - len(factor)) * _LOG_2_PI)
