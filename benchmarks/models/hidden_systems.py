"""Linear dynamical systems whose state one frame does or does not show, and what learns them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.linalg import block_diag, expm, solve_discrete_lyapunov

from benchmarks.linear_dynamics_peers import Planted, Predictor, n4sid_system, steady

SHOWN = ("4 in 20", "4 in 20, correlated", "6 in 50", "4 in 20, fitted with 5")
SYSTEMS = (
    *SHOWN,
    "oscillation in 3",
    "oscillation in 3, fitted with 3",
    "two positions and speeds in 2",
    "trend and season of 4",
    "trend and season of 12",
    "two oscillations in 1",
    "two oscillations in 5",
    "AR(2)",
    "AR(4)",
    "ARMA(2, 1)",
    "five masses on springs, 2 seen",
    "slow and fast in 1",
)
Parts = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]  # A, C, Q, R


def plant_hidden(name: str, n: int, seed: int) -> tuple[Planted, int, Parts]:
    """Frames to learn from and 5,000 fresh ones, how many states are fitted, and the true system."""
    rng = np.random.default_rng(seed)
    A, C, Q, R = _parts(name, rng)
    mu, tiny = rng.standard_normal(len(C)), 1e-10
    X, fresh = (mu + _frames(A, C, Q, R, size, rng) for size in (n, 5000))
    truth = steady(A, C, Q + tiny * np.eye(len(A)), R + tiny * np.eye(len(C)), mu)
    return Planted(A, truth, X, fresh), len(A) + ("fitted" in name), (A, C, Q, R)


def _parts(name: str, rng: np.random.Generator) -> Parts:
    if name.startswith(("4 in", "6 in")):
        return _shown(int(name[0]), int(name[5:7]), "correlated" in name, rng)
    if name.startswith("AR"):
        poles = {"AR(2)": [0.95, 0.4], "AR(4)": [0.95, 0.3, 0.9, 1.2], "ARMA(2, 1)": [0.9, 0.5]}[name]
        return _autoregression(poles, [0.6] if "MA" in name else [])
    if name.startswith("trend"):
        return _structural(int(name.split()[-1]))
    if name.startswith("oscillation"):
        return _turn(0.995, 56), np.array([[1.0, 0.0], [0.7, 0.0], [0.5, 0.0]]), 0.01 * np.eye(2), 0.09 * np.eye(3)
    if name.startswith("two positions"):
        one = np.array([[0.99, 1.0], [0.0, 0.9]])
        return block_diag(one, one), np.eye(4)[[0, 2]], np.diag([1e-4, 0.05, 1e-4, 0.05]), 4.0 * np.eye(2)
    if name == "two oscillations in 1":
        turns = block_diag(_turn(0.98, 20), _turn(0.99, 50))
        return turns, np.array([[1.0, 0.0, 1.0, 0.0]]), 0.05 * np.eye(4), 0.5 * np.eye(1)
    if name == "two oscillations in 5":
        mixed = np.random.default_rng(5).standard_normal((5, 2)) @ np.eye(4)[[0, 2]]
        return block_diag(_turn(0.99, 40), _turn(0.99, 100)), mixed, 0.05 * np.eye(4), np.eye(5)
    if name.startswith("five masses"):
        return _springs()
    if name == "one noise in 3":
        return _one_noise(rng)
    return np.diag([0.995, 0.5]), np.ones((1, 2)), np.diag([0.01, 1.0]), 0.25 * np.eye(1)


def _turn(size: float, period: float) -> np.ndarray:
    angle = 2 * np.pi / period
    return size * np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])


def _shown(k: int, p: int, correlated: bool, rng: np.random.Generator) -> Parts:
    blocks = [rng.uniform(0.7, 0.98) * _turn(1.0, 2 * np.pi / rng.uniform(0.1, 0.6 * np.pi)) for _ in range(k // 2)]
    basis = np.linalg.qr(rng.standard_normal((k, k)))[0]
    C, R = rng.standard_normal((p, k)) / np.sqrt(k), np.diag(rng.uniform(0.5, 2.0, p))
    if correlated:
        common = rng.standard_normal((p, 3))
        R = R + common @ common.T
    return basis @ block_diag(*blocks) @ basis.T, C, np.eye(k), R


def _structural(period: int) -> Parts:
    """A damped trend and a season of that period, the sum of both seen through noise."""
    season = 0.999 * np.eye(period - 1, k=-1)
    season[0] = -0.999
    A = block_diag(np.array([[0.99, 1.0], [0.0, 0.9]]), season)
    seen, kicks = np.zeros((1, len(A))), np.zeros(len(A))
    seen[0, [0, 2]], kicks[:3] = 1.0, (0.1, 0.02, 0.05)
    return A, seen, np.diag(kicks), np.eye(1)


def _autoregression(poles: list[float], moving: list[float]) -> Parts:
    roots = np.array(poles[::2]) * np.exp(1j * np.array(poles[1::2]))
    k = 2 * len(roots)
    A, kick = np.eye(k, k=1), np.zeros(k)
    A[:, 0] = -np.real(np.poly([*roots, *roots.conj()]))[1:]
    kick[: 1 + len(moving)] = 1.0, *moving
    return A, np.eye(1, k), np.multiply.outer(kick, kick), np.zeros((1, 1))


def _springs() -> Parts:
    pull = 2 * np.eye(5) - np.eye(5, k=1) - np.eye(5, k=-1)
    A = expm(0.7 * np.block([[np.zeros((5, 5)), np.eye(5)], [-pull, -0.06 * np.eye(5)]]))
    return A, np.eye(10)[[0, 3]], np.diag([0.0] * 5 + [0.04] * 5), 0.05 * np.eye(2)


def _one_noise(rng: np.random.Generator) -> Parts:
    """Two turns that the noise of three channels moves: the noise is three states of its own."""
    A = block_diag(_turn(0.95, 15), _turn(0.8, 5), np.zeros((3, 3)))
    A[:4, 4:] = -0.4 * rng.standard_normal((4, 3))
    C = np.hstack([rng.standard_normal((3, 4)), np.eye(3)])
    return A, C, np.diag([0.0] * 4 + [1.0] * 3), 1e-6 * np.eye(3)


def _frames(A: np.ndarray, C: np.ndarray, Q: np.ndarray, R: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
    roots = []
    for covariance in (Q, solve_discrete_lyapunov(A, Q), R):
        values, vectors = np.linalg.eigh(covariance)
        roots.append(vectors * np.sqrt(np.maximum(values, 0.0)))
    states = rng.standard_normal((n, len(A)))
    states[1:], states[0] = states[1:] @ roots[0].T, roots[1] @ states[0]
    for t in range(1, n):
        states[t] += A @ states[t - 1]
    return states @ C.T + rng.standard_normal((n, len(C))) @ roots[2].T


def em_from_n4sid(X: np.ndarray, k: int) -> Predictor:
    """Fifty EM iterations from N4SID's system, by this library's E-step: pykalman's takes a hundred times as long."""
    A, C, Q, R, _, mu = n4sid_system(X, k)
    return _em(X, (A, C, Q, R), mu, 50)


def em_from_truth(X: np.ndarray, parts: Parts, mu: np.ndarray) -> Predictor:
    """Where EM leads from the true system, with extrapolation: what no start can be expected to beat."""
    return _em(X, parts, mu, 0)


def _em(X: np.ndarray, parts: Parts, mu: np.ndarray, iterations: int) -> Predictor:
    from dask_dca.models.kalman.em import accelerated_em, m_step
    from dask_dca.models.kalman.scan import e_step
    from dask_dca.models.kalman.system import LinearSystem

    A, C, Q, R = parts
    unit, (n, p), k = X.std(axis=0), X.shape, len(A)
    Z, tiny = (X - mu) / unit, 1e-8
    noise = (R + tiny * np.eye(p)) / np.multiply.outer(unit, unit)
    Q = Q + tiny * np.trace(Q) * np.eye(k)
    system = LinearSystem(A, C / unit[:, None], Q, noise, np.zeros(k), solve_discrete_lyapunov(A, Q), np.zeros(p))
    edges, second = np.array([0, n]), Z.T @ Z

    def look(now):
        return e_step(now, Z, edges, second)

    for _ in range(iterations):
        system = m_step(look(system)[0])
    system = system if iterations else accelerated_em(system, look, 20)
    found = replace(system, observation=system.observation * unit[:, None], offset=mu + unit * system.offset)
    noise = found.observation_covariance * np.multiply.outer(unit, unit)
    return steady(found.transition, found.observation, found.transition_covariance, noise, found.offset)
