"""Linear dynamical systems: their parameters, a change of the state's basis, forecasts and samples.

s_{t+1} = T s_t + w_t and x_t = mu + O s_t + v_t, with independent Gaussian noise w ~ N(0, Q) and v ~ N(0, R). T is the
transition matrix and O the observation matrix, as the paper calls them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = [
    "LinearSystem",
    "change_basis",
    "covariance_root",
    "forecast",
    "row_products",
    "safe_system",
    "sample_system",
    "symmetric",
    "without_growth",
]

_LEAST_NOISE: Final = 1e-12  # of a channel's variance: what singular noise gets, so that it can be divided by
_ROUNDING: Final = float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class LinearSystem:
    """
    Parameters of a linear dynamical system with k state and p observed dimensions.

    Attributes
    ----------
    transition : ndarray of float64, shape (k, k)
        T.
    observation : ndarray of float64, shape (p, k)
        O.
    transition_covariance : ndarray of float64, shape (k, k)
        Q.
    observation_covariance : ndarray of float64, shape (p, p) or (p,)
        R, or its diagonal.
    initial_mean : ndarray of float64, shape (k,)
        Mean of the first state of a sequence.
    initial_covariance : ndarray of float64, shape (k, k)
        Its covariance.
    offset : ndarray of float64, shape (p,)
        What is observed at state zero, mu.
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
        """
        Number of state dimensions k.

        Returns
        -------
        int
            The number.
        """
        return len(self.transition)

    @property
    def n_dim_obs(self) -> int:
        """
        Number of observed dimensions p.

        Returns
        -------
        int
            The number.
        """
        return len(self.observation)


def symmetric(matrices: Floats) -> Floats:
    """
    Remove the asymmetry that rounding leaves.

    Parameters
    ----------
    matrices : ndarray of float64, shape (..., k, k)
        Matrices that are symmetric but for rounding.

    Returns
    -------
    ndarray of float64, shape (..., k, k)
        Their symmetric parts.
    """
    return 0.5 * (matrices + matrices.swapaxes(-1, -2))


def without_growth(transition: Floats, largest: float = 1.0) -> Floats:
    """
    Shrink a transition whose states would grow without bound.

    Parameters
    ----------
    transition : ndarray of float64, shape (k, k)
        Any matrix.
    largest : float, default 1.0
        Greatest absolute eigenvalue that is allowed.

    Returns
    -------
    ndarray of float64, shape (k, k)
        The matrix itself, or its eigenvalues outside the disc pulled back to the circle.

    Examples
    --------
    >>> without_growth(np.diag([2.0, 0.5])).tolist()
    [[1.0, 0.0], [0.0, 0.5]]
    """
    values, vectors = np.linalg.eig(transition)
    size = np.abs(values)
    if size.max() <= largest:
        return transition
    if np.linalg.cond(vectors) > 1e8:  # a defective matrix has no basis of eigenvectors
        return transition * (largest / size.max())
    pulled = vectors @ np.diag(values * np.minimum(1.0, largest / np.maximum(size, largest))) @ np.linalg.inv(vectors)
    return np.ascontiguousarray(pulled.real)


def safe_system(system: LinearSystem) -> LinearSystem:
    """
    Give singular observation noise as little as it can be divided by; other noise is left as it is.

    Parameters
    ----------
    system : LinearSystem
        Any system; covariances may be singular or zero.

    Returns
    -------
    LinearSystem
        Where R is singular, it is raised to 1e-12 of the variance that the noises give each channel (the first state,
        if they give none). A diagonal R of shape (p, p) comes back as shape (p,).

    Examples
    --------
    >>> one = np.eye(1)
    >>> noise = [0.0, 1e-30]
    >>> systems = [LinearSystem(one, one, one, np.array([r]), one[0], 1e12 * one, one[0]) for r in noise]
    >>> [float(safe_system(system).observation_covariance[0]) for system in systems]
    [1e-12, 1e-30]
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
    """
    Express the state in another basis; what is observed stays the same.

    Parameters
    ----------
    system : LinearSystem
        A system.
    basis : ndarray of float64, shape (k, k)
        Columns are states, in the present basis, that become the unit vectors.

    Returns
    -------
    LinearSystem
        The same system.

    Examples
    --------
    >>> one = np.eye(1)
    >>> change_basis(LinearSystem(one, one, one, one, one[0], one, one[0]), 2 * one).observation
    array([[2.]])
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


def forecast(system: LinearSystem, mean: Floats, covariance: Floats, n_steps: int) -> tuple[Floats, Floats]:
    """
    Predict the frames that follow a state.

    Parameters
    ----------
    system : LinearSystem
        The system.
    mean : ndarray of float64, shape (k,)
        Mean of the state now.
    covariance : ndarray of float64, shape (k, k)
        Its covariance.
    n_steps : int
        How many frames.

    Returns
    -------
    means : ndarray of float64, shape (n_steps, p)
        Expected frames.
    variances : ndarray of float64, shape (n_steps, p)
        Variance of each channel.
    """
    means, variances = np.empty((n_steps, system.n_dim_obs)), np.empty((n_steps, system.n_dim_obs))
    noise = system.observation_covariance
    own = noise if noise.ndim == 1 else np.diagonal(noise)
    for step in range(n_steps):
        mean = system.transition @ mean
        covariance = system.transition @ covariance @ system.transition.T + system.transition_covariance
        means[step] = system.offset + system.observation @ mean
        variances[step] = own + np.einsum("ij,jk,ik->i", system.observation, covariance, system.observation)
    return means, variances


def sample_system(system: LinearSystem, n_frames: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """
    Draw a sequence.

    Parameters
    ----------
    system : LinearSystem
        The system; its covariances may be singular.
    n_frames : int
        Frames to draw.
    rng : numpy.random.Generator
        Source of the noise.

    Returns
    -------
    states : ndarray of float64, shape (n_frames, k)
        States.
    frames : ndarray of float64, shape (n_frames, p)
        Observed frames.
    """
    k, p = system.n_dim_state, system.n_dim_obs
    kicks = rng.standard_normal((n_frames, k))
    noise = rng.standard_normal((n_frames, p))
    states = np.empty((n_frames, k))
    kicks[1:] = kicks[1:] @ _root(system.transition_covariance).T
    for t in range(n_frames):
        if t == 0:
            states[0] = system.initial_mean + _root(system.initial_covariance) @ kicks[0]
        else:
            states[t] = system.transition @ states[t - 1] + kicks[t]
    own = system.observation_covariance
    noise = noise * np.sqrt(own) if own.ndim == 1 else noise @ _root(own).T
    return states, system.offset + states @ system.observation.T + noise


def row_products(states: Floats, observation: Floats) -> Floats:
    """
    Multiply states by O^T, added up in one order whatever the number of rows: the bits of a row are its own.

    Parameters
    ----------
    states : ndarray of float64, shape (n, k)
        States.
    observation : ndarray of float64, shape (p, k)
        O.

    Returns
    -------
    ndarray of float64, shape (n, p)
        Frames, less their offset.
    """
    found = states[:, :1] * observation[:, 0]
    for j in range(1, states.shape[1]):
        found += states[:, j : j + 1] * observation[:, j]
    return found


def covariance_root(covariance: Floats) -> Floats:
    """
    Take a square root, precise for each state by its own scale.

    Parameters
    ----------
    covariance : ndarray of float64, shape (k, k)
        A covariance; it may be singular.

    Returns
    -------
    ndarray of float64, shape (k, k)
        L with L L^T the covariance.

    Examples
    --------
    >>> covariance_root(np.diag([4e12, 0.0, 1e-12])).tolist()
    [[0.0, 2000000.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 1e-06]]
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
