"""Baselines for linear dynamical systems: N4SID, EM by pykalman; and planted systems."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.linalg import block_diag, solve_discrete_are, solve_discrete_lyapunov

from benchmarks.methods import MissingError

if TYPE_CHECKING:
    from collections.abc import Callable

DEPTH = 8  # block rows of past and of future, as the library has


@dataclass(frozen=True)
class Predictor:
    """A one-step predictor s <- A s + K (x - mu - C s), whatever method it comes from."""

    A: np.ndarray
    C: np.ndarray
    K: np.ndarray
    mu: np.ndarray

    def errors(self, X: np.ndarray, skip: int = 50) -> float:
        """Mean squared error of prediction one step ahead, after the first frames."""
        state, total = np.zeros(len(self.A)), 0.0
        centred = X - self.mu
        for t, x in enumerate(centred):
            left = x - self.C @ state
            total += float(left @ left) if t >= skip else 0.0
            state = self.A @ state + self.K @ left
        return total / ((len(X) - skip) * X.shape[1])


def steady(A: np.ndarray, C: np.ndarray, Q: np.ndarray, R: np.ndarray, mu: np.ndarray) -> Predictor:
    """The steady-state Kalman filter."""
    P = solve_discrete_are(A.T, C.T, Q, R)
    return Predictor(A, C, A @ P @ C.T @ np.linalg.inv(C @ P @ C.T + R), mu)


@dataclass(frozen=True)
class Planted:
    """A system, frames to learn from, and fresh ones."""

    A: np.ndarray
    truth: Predictor
    X: np.ndarray
    fresh: np.ndarray


def plant(k: int, p: int, n: int, correlated: bool, seed: int) -> Planted:
    """Turns and decays of size .7 to .98 in a random basis, Q = I, R diagonal in [.5, 2] (plus rank three)."""
    rng = np.random.default_rng(seed)
    blocks: list[np.ndarray] = []
    while sum(map(len, blocks)) < k:
        size, angle = rng.uniform(0.7, 0.98), rng.uniform(0.1, 0.6 * np.pi)
        turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        blocks.append(size * (turn if k - sum(map(len, blocks)) > 1 else np.eye(1)))
    basis = np.linalg.qr(rng.standard_normal((k, k)))[0]
    A, C = basis @ block_diag(*blocks) @ basis.T, rng.standard_normal((p, k)) / np.sqrt(k)
    R = np.diag(rng.uniform(0.5, 2.0, p))
    if correlated:
        common = rng.standard_normal((p, 3))
        R = R + common @ common.T
    mu, start = rng.standard_normal(p), np.linalg.cholesky(solve_discrete_lyapunov(A, np.eye(k)))
    X, fresh = (_draw(A, C, R, mu, start, size, rng) for size in (n, 5000))
    return Planted(A, steady(A, C, np.eye(k), R, mu), X, fresh)


def _draw(A, C, R, mu, start, n: int, rng: np.random.Generator) -> np.ndarray:
    states = rng.standard_normal((n, len(A)))
    states[0] = start @ states[0]
    for t in range(1, n):
        states[t] += A @ states[t - 1]
    return mu + states @ C.T + rng.standard_normal((n, len(C))) @ np.linalg.cholesky(R).T


def n4sid(X: np.ndarray, k: int, seed: int) -> Predictor:
    """Stochastic N4SID: van Overschee and de Moor, Subspace identification for linear systems, 1996, chapter 3."""
    del seed
    return _predictor(*n4sid_system(X, k))


def cva(X: np.ndarray, k: int, seed: int) -> Predictor:
    """The same with the weights of canonical variate analysis (Larimore, 1990)."""
    del seed
    return _predictor(*n4sid_system(X, k, canonical=True))


def _predictor(A: np.ndarray, C: np.ndarray, Q: np.ndarray, R: np.ndarray, S: np.ndarray, mu: np.ndarray) -> Predictor:
    P = solve_discrete_are(A.T, C.T, Q, R, s=S)
    return Predictor(A, C, (A @ P @ C.T + S) @ np.linalg.inv(C @ P @ C.T + R), mu)


def n4sid_system(X: np.ndarray, k: int, *, canonical: bool = False) -> tuple[np.ndarray, ...]:
    """
    A, C, Q, R, S and the mean.

    States of two successive projections of the future on the past, A and C by least squares, Q, R and S from what is
    left. Eight block rows, more where a state has more dimensions than these see.
    """
    n, p = X.shape
    mu, i = X.mean(axis=0), max(DEPTH, -(-k // p) + 1)
    count = n - 2 * i + 1
    Z = X - mu
    H = np.vstack([Z[j : j + count].T for j in range(2 * i)]) / np.sqrt(count)
    L = np.linalg.cholesky(H @ H.T + 1e-10 * np.trace(H @ H.T) / len(H) * np.eye(len(H)))  # H = L Q^T, an LQ by blocks
    past, future = slice(0, i * p), slice(i * p, 2 * i * p)
    longer, shorter = slice(0, (i + 1) * p), slice((i + 1) * p, 2 * i * p)
    root = np.linalg.cholesky(L[future] @ L[future].T) if canonical else np.eye(i * p)
    U, s, _ = np.linalg.svd(np.linalg.solve(root, L[future, past]), full_matrices=False)
    gamma = root @ U[:, :k] * np.sqrt(s[:k])
    width = 2 * i * p  # states in coordinates of the orthonormal rows
    state, following = np.zeros((k, width)), np.zeros((k, width))
    state[:, past] = np.linalg.pinv(gamma) @ L[future, past]
    following[:, longer] = np.linalg.pinv(gamma[:-p]) @ L[shorter, longer]
    present = np.zeros((p, width))
    present[:, longer] = L[slice(i * p, (i + 1) * p), longer]
    both = np.vstack([following, present])
    AC = both @ np.linalg.pinv(state)
    left = both - AC @ state
    noise = left @ left.T
    A, C = AC[:k], AC[k:]
    size = np.abs(np.linalg.eigvals(A)).max()
    return (
        A * min(1.0, 0.999 / size),
        C,
        noise[:k, :k] + 1e-9 * np.eye(k),
        noise[k:, k:] + 1e-9 * np.eye(p),
        noise[:k, k:],
        mu,
    )


def pykalman_em(X: np.ndarray, k: int, seed: int) -> Predictor:
    """Ten EM iterations of pykalman from its own start: identities."""
    return _pykalman(X, {}, k)


def pykalman_n4sid(X: np.ndarray, k: int, seed: int) -> Predictor:
    """Ten EM iterations of pykalman from N4SID's A and C: the best start that it can be given."""
    start = n4sid(X, k, seed)
    left = np.diag((X - start.mu).var(axis=0)) * 0.5
    given = {
        "transition_matrices": start.A,
        "observation_matrices": start.C,
        "observation_offsets": start.mu,
        "observation_covariance": left,
    }
    return _pykalman(X, given, k)


def _pykalman(X: np.ndarray, given: dict, k: int) -> Predictor:
    try:
        from pykalman import KalmanFilter
    except ImportError as error:
        raise MissingError("pykalman is not installed") from error
    peer = KalmanFilter(n_dim_state=k, n_dim_obs=X.shape[1], em_vars="all", **given).em(X, n_iter=10)
    A, C = peer.transition_matrices, peer.observation_matrices
    mean = np.linalg.lstsq(np.eye(k) - A, peer.transition_offsets, rcond=None)[0]
    mu = peer.observation_offsets + C @ mean
    Q, R = (0.5 * (noise + noise.T) for noise in (peer.transition_covariance, peer.observation_covariance))
    return steady(A, C, Q, R, mu)


PEERS: dict[str, Callable[[np.ndarray, int, int], Predictor]] = {
    "n4sid": n4sid,
    "pykalman": pykalman_em,
    "pykalman_n4sid": pykalman_n4sid,
}
SMALL = ("pykalman", "pykalman_n4sid")  # 1,000 frames take seconds: no longer sequences
