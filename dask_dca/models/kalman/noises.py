"""Independent noises of states and frames with which the steady filter has a given gain and given innovations.

Subspace methods learn the innovations form of a system, s_{t+1} = T s_t + K e_t and x_t = mu + O s_t + e_t, where one
noise e ~ N(0, V) moves states and frames. A Kalman filter has two that don't depend on each other, w ~ N(0, Q) and
v ~ N(0, R). Its steady state is an innovations form too, of which Q and R decide K and V.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from scipy.linalg import solve_triangular

from dask_dca.models.kalman.system import positive_part, stationary_covariance, symmetric, without_growth

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = ["Innovations", "independent_noises", "steady_covariance"]

_DOUBLINGS: Final = 60
_SETTLED: Final = 1e-13
_KNOWN: Final = (0.02, 0.9)  # shares of an innovation's variance that may be the state's
_STEPS: Final = 25
_WIDEST_MATCH: Final = 30  # state dimensions up to which noises are matched
_NO_GAIN: Final = 1e-4  # share of the squared error: a step that takes off less is the last
_NEAR: Final = 1e-6
_LEAST: Final = (0.03, 0.01)  # of the factors of Q and of R, where the match begins


@dataclass(frozen=True)
class Innovations:
    """A system in innovations form.

    transition (k, k): T; observation (p, k): O; gain (k, p): K; covariance (p, p) or (p,): V, or its diagonal.
    """

    transition: Floats
    observation: Floats
    gain: Floats
    covariance: Floats


def steady_covariance(transition: Floats, factor: Floats, noise: Floats, seen: Floats) -> Floats:
    """Covariance of the predicted state where y = F s + N(0, R): the Riccati equation, by structured doubling.

    factor (q, k): F; noise (k, k): Q; seen (q, q): R.
    """
    a, g, h = transition.T, factor.T @ np.linalg.solve(seen, factor), noise
    for _ in range(_DOUBLINGS):
        inverse = np.linalg.inv(np.eye(len(a)) + g @ h)
        moved, before = a @ inverse, h
        g, h = symmetric(g + moved @ g @ a.T), symmetric(h + a.T @ h @ inverse @ a)
        a = moved @ a
        if np.abs(h - before).max() <= _SETTLED * np.abs(h).max():
            break
    return h


def independent_noises(form: Innovations) -> tuple[Floats, Floats]:
    """Find Q and R whose steady filter is nearest to an innovations form, with its T and O.

    Returns Q (k, k) and R, of the shape of V.
    """
    whole = form.covariance
    if whole.ndim == 1:
        root = np.sqrt(whole)
        left, factor = np.linalg.qr(form.observation / root[:, None])
        gain = form.gain * root @ left
    else:
        lower = np.linalg.cholesky(whole)
        left, factor = np.linalg.qr(solve_triangular(lower, form.observation, lower=True))
        gain = form.gain @ lower @ left
    noise, seen = _split(form.transition, factor, gain)
    if len(factor.T) <= _WIDEST_MATCH:
        noise, seen = _match(form.transition, factor, gain, noise, seen)
    less = np.eye(len(seen)) - seen  # of the innovations, what the state's is
    if whole.ndim == 1:
        return noise, whole * np.maximum(1.0 - ((left @ less) * left).sum(axis=1), 0.0)
    known = lower @ left
    return noise, symmetric(whole - known @ less @ known.T)


def _split(transition: Floats, factor: Floats, gain: Floats) -> tuple[Floats, Floats]:
    """Where V = I: P F^T = T^-1 K, with what it has of the innovations clipped; and Q, R from P."""
    shared = np.linalg.lstsq(transition, gain, rcond=1e-3)[0]
    values, vectors = np.linalg.eigh(symmetric(factor @ shared))
    values = np.clip(values, *_KNOWN)
    own = shared @ vectors
    predicted = (own / values) @ own.T
    ahead = predicted @ factor.T
    noise = predicted - transition @ (predicted - ahead @ ahead.T) @ transition.T
    least = 1e-3 * float((gain**2).sum()) / len(gain)
    return positive_part(noise, least), np.eye(len(factor)) - (vectors * values) @ vectors.T


def _match(transition: Floats, factor: Floats, gain: Floats, noise: Floats, seen: Floats) -> tuple[Floats, Floats]:
    """Levenberg and Marquardt's least squares on the Cholesky factors of Q and R, where V = I.

    An error of the gain counts by what it does to predictions: the observability Gramian of T - K F.
    """
    k = len(gain)
    closed = without_growth(transition - gain @ factor, 0.999)
    values, vectors = np.linalg.eigh(symmetric(stationary_covariance(closed.T, factor.T @ factor)))
    weight = np.sqrt(np.maximum(values, 1e-10 * values[-1]))[:, None] * vectors.T
    kicks = gain @ gain.T
    scale = np.linalg.cholesky(kicks + 0.1 * (float(np.trace(kicks)) / k or 1.0) * np.eye(k))
    inverse = np.linalg.inv(scale)
    problem = _Match(transition, factor, gain, weight, np.asarray(scale, dtype=np.float64))
    start = (positive_part(inverse @ noise @ inverse.T, _LEAST[0]), positive_part(seen, _LEAST[1]))
    factors = [np.linalg.cholesky(part)[np.tril_indices(len(part))] for part in start]
    return problem.noises(_least_squares(problem, np.concatenate(factors)))


@dataclass(frozen=True)
class _Match:
    """What Q = S L (S L)^T and R = M M^T are compared with; L and M are lower triangular."""

    transition: Floats
    factor: Floats
    gain: Floats
    weight: Floats  # (k, k): of an error of the gain
    scale: Floats  # (k, k): S

    def roots(self, vector: Floats) -> tuple[Floats, Floats]:
        """S L and M."""
        k, q = len(self.gain), len(self.factor)
        found = np.zeros((k, k)), np.zeros((q, q))
        found[0][np.tril_indices(k)], found[1][np.tril_indices(q)] = np.split(vector, [k * (k + 1) // 2])
        return self.scale @ found[0], found[1]

    def noises(self, vector: Floats) -> tuple[Floats, Floats]:
        """Q and R."""
        state, seen = self.roots(vector)
        return state @ state.T + 1e-12 * np.eye(len(state)), seen @ seen.T + 1e-8 * np.eye(len(seen))

    def errors(self, vector: Floats) -> tuple[Floats, Floats, Floats]:
        """What is wrong, the gain, and the covariance of innovations."""
        noise, seen = self.noises(vector)
        predicted = steady_covariance(self.transition, self.factor, noise, seen)
        innovations = symmetric(self.factor @ predicted @ self.factor.T) + seen
        gain = np.linalg.solve(innovations, self.factor @ predicted @ self.transition.T).T
        wrong = self._wrong(gain - self.gain, innovations - np.eye(len(seen)))
        return wrong, np.asarray(gain, dtype=np.float64), innovations

    def _wrong(self, gain: Floats, innovations: Floats) -> Floats:
        parts = (self.weight @ gain, innovations / np.sqrt(2.0))
        return np.concatenate([part.reshape(*part.shape[:-2], -1) for part in parts], axis=-1)

    def slopes(self, vector: Floats, gain: Floats, innovations: Floats) -> Floats:
        """Derivatives of the errors: dP = (T - K F) dP (T - K F)^T + dQ + K dR K^T, and what follows from it."""
        state, seen = self.roots(vector)
        noise, other = _slopes(state, self.scale), _slopes(seen, np.eye(len(seen)))
        k, q = len(state), len(seen)
        change = np.concatenate([np.zeros((len(noise), q, q)), other])
        kicks = np.concatenate([noise, np.zeros((len(other), k, k))]) + gain @ change @ gain.T
        predicted = stationary_covariance(without_growth(self.transition - gain @ self.factor, 0.9999), kicks)
        change = change + self.factor @ predicted @ self.factor.T
        moved = (self.transition @ predicted @ self.factor.T - gain @ change) @ np.linalg.inv(innovations)
        return self._wrong(moved, change).T


def _slopes(root: Floats, scale: Floats) -> Floats:
    """Derivatives of root root^T by the entries of L, where root = scale L."""
    i, j = np.tril_indices(len(root))
    half = scale.T[i][:, :, None] * root.T[j][:, None, :]
    return half + half.swapaxes(1, 2)


def _least_squares(problem: _Match, vector: Floats) -> Floats:
    damping, (errors, *steady) = 1e-2, problem.errors(vector)
    for _ in range(_STEPS):
        slopes = problem.slopes(vector, *steady)
        curvature, cost = slopes.T @ slopes, float(errors @ errors)
        own = np.diagonal(curvature)
        own = own + 1e-6 * (float(own.mean()) or 1.0)
        for _ in range(6):
            step = np.linalg.solve(curvature + damping * np.diag(own), slopes.T @ errors)
            trial, *there = problem.errors(vector - step)
            if trial @ trial < cost:
                break
            damping *= 5.0
        else:
            break
        vector, errors, steady, damping = vector - step, trial, there, max(0.2 * damping, 1e-8)
        if trial @ trial > (1.0 - _NO_GAIN) * cost or trial @ trial < _NEAR:
            break
    return vector
