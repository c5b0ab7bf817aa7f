"""Linear dynamical systems: parameters, changes of basis, forecasts and samples; and the reduction of frames.

s_{t+1} = T s_t + w_t and x_t = mu + O s_t + v_t, with independent Gaussian noise w ~ N(0, Q) and v ~ N(0, R). T is the
transition matrix and O the observation matrix, as in the paper.

With R = L L^T and L^{-1} O = Q F (QR), y = Q^T L^{-1} (x - mu) = F s + N(0, I) is a sufficient statistic of the frame x
for the state s. All recursions run on y and F, of size k for any p, and the noise of y is never singular. For frames
with missing entries, the rows of O and R are left out, so that each pattern of missing entries has its own F.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import schur, solve_triangular

from dask_dca.errors import InvalidParameterError
from dask_dca.geometry.arrays import Floats

_NOISE_FLOOR: Final = 1e-12  # noise variance of a channel with singular noise, relative to its variance
_EPS: Final = float(np.finfo(np.float64).eps)  # relative rounding error
_MAX_STABLE_EIGENVALUE: Final = 0.9999  # maximum absolute eigenvalue of a T with a stationary covariance
_MAX_DOUBLINGS: Final = 60  # maximum number of doublings for a stationary covariance
_EIGENVALUE_SLACK: Final = 1.0 + 1e-9  # factor by which rounding may exceed a bound on eigenvalues
_DOUBLING_RTOL: Final = 1e-13  # relative change of a stationary covariance at convergence
_MAX_LOG_GROWTH: Final = 300.0  # maximum log growth of states, whose squares are then still finite
LOG_2_PI: Final = float(np.log(2.0 * np.pi))


PARAMETERS: Final = {
    "transition_matrices": "transition",
    "observation_matrices": "observation",
    "transition_covariance": "transition_covariance",
    "observation_covariance": "observation_covariance",
    "initial_state_mean": "initial_mean",
    "initial_state_covariance": "initial_covariance",
    "observation_offsets": "offset",
}  # names of pykalman, and the fields of LinearSystem in their order


@dataclass(frozen=True)
class LinearSystem:
    """Parameters of a linear dynamical system with k state and p observed dimensions.

    transition (k, k): T; observation (p, k): O; transition_covariance (k, k): Q; observation_covariance (p, p) or (p,):
    R, or its diagonal; initial_mean (k,), initial_covariance (k, k): of the first state of a sequence; offset (p,):
    mu, the expected frame at state zero.
    """

    transition: Floats
    observation: Floats
    transition_covariance: Floats
    observation_covariance: Floats
    initial_mean: Floats
    initial_covariance: Floats
    offset: Floats

    @property
    def n_dim_state(self) -> int:
        """Number of state dimensions k."""
        return len(self.transition)

    @property
    def n_dim_obs(self) -> int:
        """Number of observed dimensions p."""
        return len(self.observation)


def checked_system(values: Mapping[str, ArrayLike]) -> LinearSystem:
    """Check the parameters of a system.

    values: all parameters by name.
    Raises InvalidParameterError: inconsistent shapes, numbers that are not finite, or an invalid covariance.
    """
    both = ("transition_matrices", "observation_matrices")
    values = {**values, **{name: np.atleast_2d(np.asarray(values[name], dtype=np.float64)) for name in both}}
    p, k = np.shape(values["observation_matrices"])
    shapes: tuple[list[tuple[int, ...]], ...]
    shapes = ([(k, k)], [(p, k)], [(k, k)], [(p, p), (p,)], [(k,)], [(k, k)], [(p,)])
    return LinearSystem(*(_checked(name, values[name], own) for name, own in zip(PARAMETERS, shapes, strict=True)))


def _checked(name: str, value: Any, shapes: list[tuple[int, ...]]) -> Floats:
    array = np.array(value, dtype=np.float64)  # a copy: filters are changed in place
    if array.ndim == 0 and math.prod(shapes[0]) == 1:  # as pykalman takes it
        array = array.reshape(shapes[0])
    if array.shape not in shapes:
        wanted = " or ".join(map(str, shapes))
        msg = f"{name} has shape {array.shape}, where the other parameters need {wanted}"
        raise InvalidParameterError(msg)
    if not np.isfinite(array).all():
        msg = f"{name} holds NaN or infinity; pass finite numbers"
        raise InvalidParameterError(msg)
    if name.endswith("covariance"):
        scale = float(np.abs(array).max(initial=0.0))
        least = float(array.min() if array.ndim == 1 else np.linalg.eigvalsh(array)[0])
        if least < -1e-8 * scale or (array.ndim == 2 and float(np.abs(array - array.T).max()) > 1e-8 * scale):
            msg = f"{name} is no covariance: it must be symmetric without negative eigenvalues (least: {least:.3g})"
            raise InvalidParameterError(msg)
    return array


def symmetric(matrices: Floats) -> Floats:
    """Return the symmetric parts of matrices (..., k, k)."""
    return 0.5 * (matrices + matrices.swapaxes(-1, -2))


def limit_eigenvalues(transition: Floats, largest: float = 1.0) -> Floats:
    """Limit the absolute eigenvalues of a transition matrix (k, k), so that states do not grow without bound.

    largest: maximum absolute eigenvalue; greater ones are projected to this circle.
    """
    values, vectors = np.linalg.eig(transition)
    size = np.abs(values)
    if size.max() <= largest:
        return transition
    if np.linalg.cond(vectors) > 1e8:  # a defective matrix has no basis of eigenvectors
        return transition * (largest / size.max())
    pulled = vectors @ np.diag(values * np.minimum(1.0, largest / np.maximum(size, largest))) @ np.linalg.inv(vectors)
    pulled = np.ascontiguousarray(pulled.real)
    left = float(np.abs(np.linalg.eigvals(pulled)).max())  # rounding may move eigenvalues of nearly defective ones
    return pulled if left <= largest * _EIGENVALUE_SLACK else pulled * (largest / left)


def positive_part(matrix: Floats, least: float = 0.0, most: float = math.inf) -> Floats:
    """Clip the eigenvalues of a symmetric matrix (k, k) to [least, most]."""
    values, vectors = np.linalg.eigh(symmetric(matrix))
    return symmetric((vectors * np.clip(values, least, most)) @ vectors.T)


def regularised(system: LinearSystem) -> LinearSystem:
    """Make the observation noise R regular, if it is singular.

    A singular R is raised to 1e-12 of the variance of each channel by the noises, or by the first state if these are
    zero. A diagonal R of shape (p, p) is returned with shape (p,).
    """
    noise = system.observation_covariance
    own = noise if noise.ndim == 1 else np.diagonal(noise)
    if noise.ndim == 1 or not np.any(noise - np.diag(own)):
        scale = np.ones_like(own) if (own > 0.0).all() else _noise_scales(system, own)
        return replace(system, observation_covariance=np.where(own > 0.0, own, _NOISE_FLOOR * scale))
    root = np.sqrt(own if (own > 0.0).all() else _noise_scales(system, own))
    values, vectors = np.linalg.eigh(symmetric(noise) / np.multiply.outer(root, root))
    if values[0] < len(own) * _EPS * values[-1]:
        root = np.sqrt(_noise_scales(system, own))
        values, vectors = np.linalg.eigh(symmetric(noise) / np.multiply.outer(root, root))
        noise = (vectors * np.maximum(values, _NOISE_FLOOR)) @ vectors.T * np.multiply.outer(root, root)
    return replace(system, observation_covariance=symmetric(noise))


def _noise_scales(system: LinearSystem, own: Floats) -> Floats:
    """Variances of the channels by the noises, or by the first state where these are zero; all positive."""
    spreads = (system.transition_covariance, system.initial_covariance)
    seen = [np.einsum("ij,jk,ik->i", system.observation, spread, system.observation) for spread in spreads]
    scale = np.where(own + seen[0] > 0.0, own + seen[0], seen[1])
    return np.where(scale > 0.0, scale, scale.max(initial=0.0) or 1.0)


def change_basis(system: LinearSystem, basis: Floats) -> LinearSystem:
    """Express the state in another basis, for the same distribution of frames.

    basis (k, k): columns are the new unit vectors, in the present basis.
    """
    inverse = np.linalg.inv(basis)
    return replace(
        system,
        transition=inverse @ system.transition @ basis,
        observation=system.observation @ basis,
        transition_covariance=symmetric(inverse @ system.transition_covariance @ inverse.T),
        initial_mean=inverse @ system.initial_mean,
        initial_covariance=symmetric(inverse @ system.initial_covariance @ inverse.T),
    )


def stationary_covariance(transition: Floats, noise: Floats) -> Floats:
    """Solve P = T P T^T + Q for a stable T by doubling; noise (..., k, k).

    T is brought to Schur form, since rounding can make powers of a nearly defective T grow.
    """
    power, basis = schur(transition, output="complex")
    found = basis.conj().T @ noise @ basis
    for _ in range(_MAX_DOUBLINGS):
        more = power @ found @ power.conj().T
        found, power = found + more, power @ power
        if np.abs(more).max() <= _DOUBLING_RTOL * np.abs(found).max():
            break
    return np.ascontiguousarray((basis @ found @ basis.conj().T).real)


def state_covariance(system: LinearSystem) -> Floats:
    """Stationary covariance (k, k) of the states, with the eigenvalues of T limited below one."""
    slow = limit_eigenvalues(system.transition, _MAX_STABLE_EIGENVALUE)
    return symmetric(stationary_covariance(slow, system.transition_covariance))


def forecast(system: LinearSystem, mean: Floats, covariance: Floats, n_steps: int) -> tuple[Floats, Floats]:
    """Predict the frames that follow a state.

    mean (k,), covariance (k, k): of the present state. Returns means and variances of the channels, both (n_steps, p).
    """
    means, variances = np.empty((n_steps, system.n_dim_obs)), np.empty((n_steps, system.n_dim_obs))
    noise = system.observation_covariance
    own = noise if noise.ndim == 1 else np.diagonal(noise)
    with np.errstate(over="ignore", invalid="ignore"):
        for step in range(n_steps):
            mean = system.transition @ mean
            covariance = system.transition @ covariance @ system.transition.T + system.transition_covariance
            means[step] = system.offset + system.observation @ mean
            variances[step] = own + np.einsum("ij,jk,ik->i", system.observation, covariance, system.observation)
    require_range(system, "n_steps", n_steps, means, variances)
    return means, variances


def require_range(system: LinearSystem, name: str, asked: int, *found: Floats) -> None:
    """Raise InvalidParameterError if results of a growing system overflow.

    name, asked: the parameter that sets the number of steps, and its value; found: the results.
    """
    if all(np.isfinite(values).all() for values in found):
        return
    growth = float(np.abs(np.linalg.eigvals(system.transition)).max())
    msg = (
        f"{name}={asked} goes beyond the range of float64, since states of this system grow {growth:.4g} times a step; "
        f"ask for at most {max(1, int(_MAX_LOG_GROWTH / np.log(growth)))}"
    )
    raise InvalidParameterError(msg)


def sample_system(system: LinearSystem, n_frames: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Draw a sequence: states (n_frames, k) and frames (n_frames, p); covariances may be singular."""
    states = rng.standard_normal((n_frames, system.n_dim_state))
    noise = rng.standard_normal((n_frames, system.n_dim_obs))
    states[1:] = states[1:] @ _symmetric_root(system.transition_covariance).T
    states[0] = system.initial_mean + _symmetric_root(system.initial_covariance) @ states[0]
    with np.errstate(over="ignore", invalid="ignore"):
        for t in range(1, n_frames):
            states[t] += system.transition @ states[t - 1]
    require_range(system, "n_timesteps", n_frames, states)
    own = system.observation_covariance
    noise = noise * np.sqrt(own) if own.ndim == 1 else noise @ _symmetric_root(own).T
    return states, system.offset + states @ system.observation.T + noise


def row_products(states: Floats, observation: Floats) -> Floats:
    """Multiply states (n, k) by O^T in a fixed order of summation, so that the bits of a row do not depend on others.

    observation (p, k): O. Returns (n, p).
    """
    found = states[:, :1] * observation[:, 0]
    for j in range(1, states.shape[1]):
        found += states[:, j : j + 1] * observation[:, j]
    return found


def covariance_root(covariance: Floats) -> Floats:
    """Compute a root L (k, k) of a covariance L L^T, which may be singular, at the scale of each state."""
    own = np.diagonal(covariance)
    scale = np.sqrt(np.where(own > 0.0, own, 1.0))
    values, vectors = np.linalg.eigh(symmetric(covariance) / np.multiply.outer(scale, scale))
    values = np.where(values > len(own) * _EPS * values[-1], values, 0.0)  # zero except for rounding
    return scale[:, None] * vectors * np.sqrt(values)


def _symmetric_root(covariance: Floats) -> Floats:
    """Compute a root of a covariance that may be singular."""
    values, vectors = np.linalg.eigh(symmetric(covariance))
    return vectors * np.sqrt(np.maximum(values, 0.0))


@dataclass(frozen=True)
class Observer:
    """Reduction of frames to k numbers each.

    system: with regular noise, from `regularised`; factor (k, k): F of complete frames; projection (k, p):
    Q^T L^{-1}; seen (k, p): Q^T, from whitened frames to y; whitener (p, p) or (p,): L^{-1}; log_constant: constant
    term of the log density of the part of a frame that is independent of the state.
    """

    system: LinearSystem
    factor: Floats
    projection: Floats
    seen: Floats
    whitener: Floats
    log_constant: float


def prepare_observer(system: LinearSystem) -> Observer:
    """Factor the observation noise, once for all frames."""
    noise = system.observation_covariance
    left, factor, whitener, constant = _factor_observation(system.observation, noise)
    projection = left.T * whitener if noise.ndim == 1 else left.T @ whitener
    return Observer(system, factor, projection, left.T.copy(), whitener, constant)


def _factor_observation(observation: Floats, noise: Floats) -> tuple[Floats, Floats, Floats, float]:
    """Compute Q, F, L^{-1} and the log constant from rows of O (p, k) and R."""
    p, k = observation.shape
    if noise.ndim == 1:
        whitener = 1.0 / np.sqrt(noise)
        white, logs = observation * whitener[:, None], np.log(whitener).sum()
    else:
        whitener = solve_triangular(np.linalg.cholesky(noise), np.eye(p), lower=True)
        white, logs = whitener @ observation, np.log(np.diagonal(whitener)).sum()
    return *_padded_qr(white, k), whitener, float(logs - 0.5 * (p - k) * LOG_2_PI)


def _padded_qr(white: Floats, k: int) -> tuple[Floats, Floats]:
    """QR decomposition, padded with zeros if there are fewer than k channels."""
    left, right = np.linalg.qr(white)
    missing = k - len(right)
    return np.pad(left, ((0, 0), (0, missing))), np.pad(right, ((0, missing), (0, 0)))


def reduce_frames(observer: Observer, frames: Floats) -> Floats:
    """Reduce complete frames (n, p).

    Returns (n, k + 1): y, and the log density of the part of the frame that is independent of the state.
    """
    centred = frames - observer.system.offset
    k = observer.system.n_dim_state
    found = np.zeros((len(frames), k + 1))
    found[:, :k] = centred @ observer.projection.T
    white = centred * observer.whitener if observer.whitener.ndim == 1 else centred @ observer.whitener.T
    rest = white - found[:, :k] @ observer.seen  # a difference of squares would lose digits
    found[:, k] = observer.log_constant - 0.5 * (rest**2).sum(axis=1)
    return found


def reduce_incomplete(observer: Observer, frames: Floats) -> Floats:
    """Reduce frames (n, p) with missing entries, NaN.

    Returns (n, k + 1 + k k): as `reduce_frames` (the same bits for complete frames), and F of each frame.
    """
    k, seen = observer.system.n_dim_state, ~np.isnan(frames)
    found = np.empty((len(frames), k + 1 + k * k))
    found[:, : k + 1] = reduce_frames(observer, np.where(seen, frames, observer.system.offset))
    found[:, k + 1 :] = observer.factor.ravel()
    system, noise = observer.system, observer.system.observation_covariance
    for rows, pattern in _missing_patterns(seen):
        own = noise[pattern] if noise.ndim == 1 else noise[np.ix_(pattern, pattern)]
        left, factor, whitener, constant = _factor_observation(system.observation[pattern], own)
        # one product per row, since the bits of a row must not depend on the number of rows with this pattern
        centred = np.ascontiguousarray(frames[rows][:, pattern]) - observer.system.offset[pattern]
        white = centred * whitener if whitener.ndim == 1 else (whitener @ centred[:, :, None])[:, :, 0]
        y = (left.T @ white[:, :, None])[:, :, 0]
        found[rows, :k] = y
        found[rows, k] = constant - 0.5 * ((white - (left @ y[:, :, None])[:, :, 0]) ** 2).sum(axis=1)
        found[rows, k + 1 :] = factor.ravel()
    return found


def split_reduced(numbers: Floats, n_dim_state: int) -> tuple[Floats, Floats, Floats]:
    """Split the result of `reduce_incomplete` (..., k + 1 + k k).

    Returns y (..., k), log_density (...) and F (..., k, k).
    """
    k = n_dim_state
    return numbers[..., :k], numbers[..., k], numbers[..., k + 1 :].reshape(*numbers.shape[:-1], k, k)


def _missing_patterns(seen: NDArray[np.bool_]) -> list[tuple[NDArray[np.intp], NDArray[np.bool_]]]:
    """Group rows with missing entries by their pattern of observed entries."""
    lacking = np.flatnonzero(~seen.all(axis=1))
    if not len(lacking):
        return []
    packed, which = np.unique(np.packbits(seen[lacking], axis=1), axis=0, return_inverse=True)
    patterns = np.unpackbits(packed, axis=1, count=seen.shape[1]).astype(bool)
    return [(lacking[which.ravel() == i], pattern) for i, pattern in enumerate(patterns)]
