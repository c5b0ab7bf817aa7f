"""Linear dynamical systems: parameters, basis, forecasts and samples; and what a frame tells of the state.

s_{t+1} = T s_t + w_t and x_t = mu + O s_t + v_t, with independent Gaussian noise w ~ N(0, Q) and v ~ N(0, R). T is the
transition matrix and O the observation matrix, as the paper calls them.

With R = L L^T and L^{-1} O = Q F (QR), the frame x says of the state s what y = Q^T L^{-1} (x - mu) = F s + N(0, I)
says. All recursions run on y and F, of size k, whatever p is; and the noise of y is never singular. Where entries are
missing, their rows of O and R are left out, so that each pattern of missing entries has an F of its own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from scipy.linalg import schur, solve_triangular

from dask_dca.errors import InvalidParameterError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import ArrayLike, NDArray

    from dask_dca.geometry.arrays import Floats

_LEAST_NOISE: Final = 1e-12  # of a channel's variance: what singular noise gets, so that it can be divided by
_ROUNDING: Final = float(np.finfo(np.float64).eps)
_FORGETTING: Final = 0.9999
_DOUBLINGS: Final = 60
_NO_GROWTH: Final = 1.0 + 1e-9  # by which eigenvalues may be too large
_SETTLED: Final = 1e-13  # share of a covariance: a change of less is none
_RANGE: Final = 300.0  # logarithm of how much states may grow: their squares are numbers too
_LOG_2_PI: Final = float(np.log(2.0 * np.pi))


PARAMETERS: Final = {
    "transition_matrices": "transition",
    "observation_matrices": "observation",
    "transition_covariance": "transition_covariance",
    "observation_covariance": "observation_covariance",
    "initial_state_mean": "initial_mean",
    "initial_state_covariance": "initial_covariance",
    "observation_offsets": "offset",
}  # what pykalman calls them, and what a system does, in its order


@dataclass(frozen=True)
class LinearSystem:
    """Parameters of a linear dynamical system with k state and p observed dimensions.

    transition (k, k): T; observation (p, k): O; transition_covariance (k, k): Q; observation_covariance (p, p) or (p,):
    R, or its diagonal; initial_mean (k,): mean of the first state of a sequence; initial_covariance (k, k): its
    covariance; offset (p,): what is observed at state zero, mu.
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
    """Check that parameters fit together.

    values: by their names, all of them.
    Raises InvalidParameterError: shapes that do not fit, numbers that are not finite, or a covariance that is none.
    """
    both = ("transition_matrices", "observation_matrices")
    values = {**values, **{name: np.atleast_2d(np.asarray(values[name], dtype=np.float64)) for name in both}}
    p, k = np.shape(values["observation_matrices"])
    shapes: tuple[list[tuple[int, ...]], ...]
    shapes = ([(k, k)], [(p, k)], [(k, k)], [(p, p), (p,)], [(k,)], [(k, k)], [(p,)])
    return LinearSystem(*(_parameter(name, values[name], own) for name, own in zip(PARAMETERS, shapes, strict=True)))


def _parameter(name: str, value: Any, shapes: list[tuple[int, ...]]) -> Floats:
    array = np.asarray(value, dtype=np.float64)
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
    """Remove the asymmetry that rounding leaves.

    matrices (..., k, k): matrices that are symmetric except for rounding. Returns (..., k, k): their symmetric parts.
    """
    return 0.5 * (matrices + matrices.swapaxes(-1, -2))


def without_growth(transition: Floats, largest: float = 1.0) -> Floats:
    """Shrink a transition whose states would grow without bound.

    transition (k, k): any matrix; largest: greatest absolute eigenvalue that is allowed. Returns (k, k): the matrix
    itself, or its eigenvalues outside the disc pulled back to the circle.
    """
    values, vectors = np.linalg.eig(transition)
    size = np.abs(values)
    if size.max() <= largest:
        return transition
    if np.linalg.cond(vectors) > 1e8:  # a defective matrix has no basis of eigenvectors
        return transition * (largest / size.max())
    pulled = vectors @ np.diag(values * np.minimum(1.0, largest / np.maximum(size, largest))) @ np.linalg.inv(vectors)
    pulled = np.ascontiguousarray(pulled.real)
    left = float(np.abs(np.linalg.eigvals(pulled)).max())  # rounding moves eigenvalues of one that is nearly defective
    return pulled if left <= largest * _NO_GROWTH else pulled * (largest / left)


def positive_part(matrix: Floats, least: float = 0.0, most: float = math.inf) -> Floats:
    """Return the nearest covariance to a symmetric matrix.

    matrix (k, k): symmetric; least, most: bounds of the eigenvalues of the result. Returns (k, k): with no eigenvalue
    below `least` or above `most`.
    """
    values, vectors = np.linalg.eigh(symmetric(matrix))
    return symmetric((vectors * np.clip(values, least, most)) @ vectors.T)


def safe_system(system: LinearSystem) -> LinearSystem:
    """Give singular observation noise as little as it can be divided by; other noise is left as it is.

    system: any system; covariances may be singular or zero. Returns where R is singular, it is raised to 1e-12 of the
    variance that the noises give each channel (the first state, if they give none). A diagonal R of shape (p, p) comes
    back as shape (p,).
    """
    noise = system.observation_covariance
    own = noise if noise.ndim == 1 else np.diagonal(noise)
    if noise.ndim == 1 or not np.any(noise - np.diag(own)):
        scale = np.ones_like(own) if (own > 0.0).all() else _channel_scale(system, own)
        return replace(system, observation_covariance=np.where(own > 0.0, own, _LEAST_NOISE * scale))
    root = np.sqrt(own if (own > 0.0).all() else _channel_scale(system, own))
    values, vectors = np.linalg.eigh(symmetric(noise) / np.multiply.outer(root, root))
    if values[0] < len(own) * _ROUNDING * values[-1]:
        root = np.sqrt(_channel_scale(system, own))
        values, vectors = np.linalg.eigh(symmetric(noise) / np.multiply.outer(root, root))
        noise = (vectors * np.maximum(values, _LEAST_NOISE)) @ vectors.T * np.multiply.outer(root, root)
    return replace(system, observation_covariance=symmetric(noise))


def _channel_scale(system: LinearSystem, own: Floats) -> Floats:
    """Variances that the noises give the channels; where these are zero, what the first state gives; never zero."""
    spreads = (system.transition_covariance, system.initial_covariance)
    seen = [np.einsum("ij,jk,ik->i", system.observation, spread, system.observation) for spread in spreads]
    scale = np.where(own + seen[0] > 0.0, own + seen[0], seen[1])
    return np.where(scale > 0.0, scale, scale.max(initial=0.0) or 1.0)


def change_basis(system: LinearSystem, basis: Floats) -> LinearSystem:
    """Express the state in another basis; what is observed stays the same.

    basis (k, k): columns are states, in the present basis, that become the unit vectors.
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
    """Solve P = T P T^T + Q by doubling; noise (..., k, k): several at a time, of a stable T.

    Powers of a triangular T have those of its eigenvalues, where rounding lets others grow that are nearly defective.
    """
    power, basis = schur(transition, output="complex")
    found = basis.conj().T @ noise @ basis
    for _ in range(_DOUBLINGS):
        more = power @ found @ power.conj().T
        found, power = found + more, power @ power
        if np.abs(more).max() <= _SETTLED * np.abs(found).max():
            break
    return np.ascontiguousarray((basis @ found @ basis.conj().T).real)


def spread_of(system: LinearSystem) -> Floats:
    """Covariance (k, k) of the states after a long time; a system that never forgets is taken to do so slowly."""
    slow = without_growth(system.transition, _FORGETTING)
    return symmetric(stationary_covariance(slow, system.transition_covariance))


def balanced(system: LinearSystem) -> LinearSystem:
    """Express the states in a basis in which they have unit variance and are uncorrelated."""
    values, vectors = np.linalg.eigh(spread_of(system))
    return change_basis(system, vectors * np.sqrt(np.maximum(values, 1e-10 * values[-1] or 1.0)))


def forecast(system: LinearSystem, mean: Floats, covariance: Floats, n_steps: int) -> tuple[Floats, Floats]:
    """Predict the frames that follow a state.

    mean (k,): mean of the state now; covariance (k, k): its covariance. Returns means (n_steps, p): expected frames;
    variances (n_steps, p): variance of each channel.
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
    """Refuse to look so far ahead that the numbers of a system that grows are none any more.

    name, asked: the parameter that says how far, and its value; found: what was computed.
    Raises InvalidParameterError: something is not finite.
    """
    if all(np.isfinite(values).all() for values in found):
        return
    growth = float(np.abs(np.linalg.eigvals(system.transition)).max())
    msg = (
        f"{name}={asked} goes beyond the range of float64, since states of this system grow {growth:.4g} times a step; "
        f"ask for at most {max(1, int(_RANGE / np.log(growth)))}"
    )
    raise InvalidParameterError(msg)


def sample_system(system: LinearSystem, n_frames: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Draw a sequence.

    system: the system; its covariances may be singular. Returns states (n_frames, k): states; frames (n_frames, p):
    observed frames.
    """
    states = rng.standard_normal((n_frames, system.n_dim_state))
    noise = rng.standard_normal((n_frames, system.n_dim_obs))
    states[1:] = states[1:] @ _root(system.transition_covariance).T
    states[0] = system.initial_mean + _root(system.initial_covariance) @ states[0]
    with np.errstate(over="ignore", invalid="ignore"):
        for t in range(1, n_frames):
            states[t] += system.transition @ states[t - 1]
    require_range(system, "n_timesteps", n_frames, states)
    own = system.observation_covariance
    noise = noise * np.sqrt(own) if own.ndim == 1 else noise @ _root(own).T
    return states, system.offset + states @ system.observation.T + noise


def row_products(states: Floats, observation: Floats) -> Floats:
    """Multiply states by O^T, added up in one order whatever the number of rows: the bits of a row are its own.

    states (n, k): states; observation (p, k): O. Returns (n, p): frames, less their offset.
    """
    found = states[:, :1] * observation[:, 0]
    for j in range(1, states.shape[1]):
        found += states[:, j : j + 1] * observation[:, j]
    return found


def covariance_root(covariance: Floats) -> Floats:
    """Take a square root, precise for each state by its own scale.

    covariance (k, k): a covariance; it may be singular. Returns (k, k): L with L L^T the covariance.
    """
    own = np.diagonal(covariance)
    scale = np.sqrt(np.where(own > 0.0, own, 1.0))
    values, vectors = np.linalg.eigh(symmetric(covariance) / np.multiply.outer(scale, scale))
    values = np.where(values > len(own) * _ROUNDING * values[-1], values, 0.0)  # what rounding leaves of a zero
    return scale[:, None] * vectors * np.sqrt(values)


def _root(covariance: Floats) -> Floats:
    """A square root of a covariance that may be singular."""
    values, vectors = np.linalg.eigh(symmetric(covariance))
    return vectors * np.sqrt(np.maximum(values, 0.0))


@dataclass(frozen=True)
class Observer:
    """What turns frames into k numbers each.

    system: whose noise is nowhere singular: from `safe_system`; factor (k, k): F of complete frames; projection (k, p):
    Q^T L^{-1}; seen (k, p): Q^T: what of a whitened frame tells of the state; whitener (p, p) or (p,): L^{-1};
    log_constant: what no frame changes of the logarithm of the density of the part of a frame that tells nothing of the
    state.
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
    left, factor, whitener, constant = _reduced(system.observation, noise)
    projection = left.T * whitener if noise.ndim == 1 else left.T @ whitener
    return Observer(system, factor, projection, left.T.copy(), whitener, constant)


def _reduced(observation: Floats, noise: Floats) -> tuple[Floats, Floats, Floats, float]:
    """Q, F, L^{-1} and the constant, of the channels whose rows of O (p, k) and R these are."""
    p, k = observation.shape
    if noise.ndim == 1:
        whitener = 1.0 / np.sqrt(noise)
        white, logs = observation * whitener[:, None], np.log(whitener).sum()
    else:
        whitener = solve_triangular(np.linalg.cholesky(noise), np.eye(p), lower=True)
        white, logs = whitener @ observation, np.log(np.diagonal(whitener)).sum()
    return *_factor(white, k), whitener, float(logs - 0.5 * (p - k) * _LOG_2_PI)


def _factor(white: Floats, k: int) -> tuple[Floats, Floats]:
    """QR, filled up with rows of zeros where there are fewer than k channels."""
    left, right = np.linalg.qr(white)
    missing = k - len(right)
    return np.pad(left, ((0, 0), (0, missing))), np.pad(right, ((0, missing), (0, 0)))


def frame_numbers(observer: Observer, frames: Floats) -> Floats:
    """Reduce complete frames.

    frames (n, p): complete frames. Returns (n, k + 1): y, and the logarithm of the density of the part of the frame
    that tells nothing of the state.
    """
    centred = frames - observer.system.offset
    k = observer.system.n_dim_state
    found = np.zeros((len(frames), k + 1))
    found[:, :k] = centred @ observer.projection.T
    white = centred * observer.whitener if observer.whitener.ndim == 1 else centred @ observer.whitener.T
    rest = white - found[:, :k] @ observer.seen  # a difference of squares would lose its digits
    found[:, k] = observer.log_constant - 0.5 * (rest**2).sum(axis=1)
    return found


def incomplete_numbers(observer: Observer, frames: Floats) -> Floats:
    """Reduce frames some of which lack entries.

    frames (n, p): frames; NaN where an entry is missing. Returns (n, k + 1 + k k): as `frame_numbers` (of complete
    frames the very same numbers), and F of each frame.
    """
    k, seen = observer.system.n_dim_state, ~np.isnan(frames)
    found = np.empty((len(frames), k + 1 + k * k))
    found[:, : k + 1] = frame_numbers(observer, np.where(seen, frames, observer.system.offset))
    found[:, k + 1 :] = observer.factor.ravel()
    system, noise = observer.system, observer.system.observation_covariance
    for rows, pattern in _patterns(seen):
        own = noise[pattern] if noise.ndim == 1 else noise[np.ix_(pattern, pattern)]
        left, factor, whitener, constant = _reduced(system.observation[pattern], own)
        # one layout and a product a row: the bits of a row must not depend on how many others lack the same entries
        centred = np.ascontiguousarray(frames[rows][:, pattern]) - observer.system.offset[pattern]
        white = centred * whitener if whitener.ndim == 1 else (whitener @ centred[:, :, None])[:, :, 0]
        y = (left.T @ white[:, :, None])[:, :, 0]
        found[rows, :k] = y
        found[rows, k] = constant - 0.5 * ((white - (left @ y[:, :, None])[:, :, 0]) ** 2).sum(axis=1)
        found[rows, k + 1 :] = factor.ravel()
    return found


def split_numbers(numbers: Floats, n_dim_state: int) -> tuple[Floats, Floats, Floats]:
    """Take what `incomplete_numbers` returns apart.

    numbers (..., k + 1 + k k): numbers of frames; n_dim_state: number of state dimensions k. Returns y (..., k):
    observations of the state; log_density (...): density of the rest; factors (..., k, k): F.
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
