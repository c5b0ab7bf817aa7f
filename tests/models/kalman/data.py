"""Linear dynamical systems and their sequences, a dense oracle, and what a fit must repeat bit for bit."""

import numpy as np
from scipy.linalg import block_diag, solve_discrete_lyapunov
from scipy.optimize import linear_sum_assignment
from scipy.stats import multivariate_normal

import dask_dca as dca
from dask_dca.models.kalman.system import LinearSystem, sample_system

FITTED = (
    "transition_matrices_",
    "observation_matrices_",
    "transition_covariance_",
    "observation_covariance_",
    "observation_offsets_",
    "initial_state_mean_",
    "initial_state_covariance_",
    "anchor_indices_",
    "votes_",
    "vote_confidence_",
    "canonical_correlations_",
    "log_likelihoods_",
    "explained_variance_ratio_",
    "correlated_noise_",
    "n_iter_",
    "converged_",
)


def kalman_bits(model):
    return {name: np.asarray(getattr(model, name)).tobytes() for name in FITTED if hasattr(model, name)}


def make_system(k, p, seed=0, correlated=False):
    """Turns and decays of size .7 to .98 in a random basis, unit state noise, noise variances in [.5, 2]."""
    rng = np.random.default_rng(seed)
    blocks = []
    while sum(map(len, blocks)) < k:
        size, angle = rng.uniform(0.7, 0.98), rng.uniform(0.1, 0.6 * np.pi)
        turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        blocks.append(size * (turn if k - sum(map(len, blocks)) > 1 else np.eye(1)))
    basis = np.linalg.qr(rng.standard_normal((k, k)))[0]
    transition = basis @ block_diag(*blocks) @ basis.T
    noise = np.diag(rng.uniform(0.5, 2.0, p))
    if correlated:
        common = rng.standard_normal((p, 3))
        noise = noise + common @ common.T
    spread = solve_discrete_lyapunov(transition, np.eye(k))
    observation = rng.standard_normal((p, k)) / np.sqrt(k)
    return LinearSystem(transition, observation, np.eye(k), noise, np.zeros(k), spread, rng.standard_normal(p))


def draw(system, n, seed=0):
    return sample_system(system, n, np.random.default_rng(seed))[1]


def model_of(system):
    return dca.KalmanFilter.from_parameters(
        system.transition,
        system.observation,
        system.transition_covariance,
        system.observation_covariance,
        system.initial_mean,
        system.initial_covariance,
        system.offset,
    )


class Dense:
    """The joint Gaussian of all states and frames of a short sequence, conditioned on the frames that are there."""

    def __init__(self, system, n):
        T, k = system.transition, system.n_dim_state
        means, spreads = [system.initial_mean], [system.initial_covariance]
        for _ in range(n - 1):
            means.append(T @ means[-1])
            spreads.append(T @ spreads[-1] @ T.T + system.transition_covariance)
        C = np.zeros((n, k, n, k))
        for t in range(n):
            block = spreads[t]
            for u in range(t, n):
                C[u, :, t], C[t, :, u] = block, block.T
                block = T @ block
        self.mean, self.cov = np.concatenate(means), C.reshape(n * k, n * k)
        noise = system.observation_covariance
        noise = np.diag(noise) if noise.ndim == 1 else noise
        self.H = np.kron(np.eye(n), system.observation)
        self.frame_mean = self.H @ self.mean + np.tile(system.offset, n)
        self.frame_cov = self.H @ self.cov @ self.H.T + np.kron(np.eye(n), noise)
        self.k, self.n = k, n

    def states(self, X, upto=None):
        """Means (n, k) and covariances (n, k, k) given the frames up to one, or all; and Cov(s_t, s_{t-1})."""
        x = X.copy()
        x[self.n if upto is None else upto + 1 :] = np.nan
        seen = ~np.isnan(x.ravel())
        gain = np.linalg.lstsq(self.frame_cov[np.ix_(seen, seen)], (self.H @ self.cov)[seen], rcond=1e-13)[0].T
        means = self.mean + gain @ (x.ravel()[seen] - self.frame_mean[seen])
        left = (self.cov - gain @ (self.H @ self.cov)[seen]).reshape(self.n, self.k, self.n, self.k)
        own = np.stack([left[t, :, t] for t in range(self.n)])
        lag = np.stack([left[t, :, t - 1] for t in range(1, self.n)]) if self.n > 1 else own[:0]
        return means.reshape(self.n, self.k), own, lag

    def filtered(self, X):
        found = [self.states(X, t) for t in range(self.n)]
        return np.stack([f[0][t] for t, f in enumerate(found)]), np.stack([f[1][t] for t, f in enumerate(found)])

    def log_likelihood(self, X):
        seen = ~np.isnan(X.ravel())
        return multivariate_normal.logpdf(X.ravel()[seen], self.frame_mean[seen], self.frame_cov[np.ix_(seen, seen)])


def eigenvalue_error(found, truth):
    """Mean distance of eigenvalues, matched."""
    distance = np.abs(np.linalg.eigvals(found)[:, None] - np.linalg.eigvals(truth))
    return float(distance[linear_sum_assignment(distance)].mean())


def excess_error(model, truth, X):
    """How much larger the squared error of one-step prediction is than the true system's."""
    errors = [((X[1:] - one.predict(X)[:-1])[50:] ** 2).mean() for one in (model, model_of(truth))]
    return float(errors[0] / errors[1] - 1.0)


def hidden_oscillation():
    """A slow turn of which three channels see one coordinate: no single frame shows the state."""
    turn = 0.995 * np.array([[np.cos(0.112), -np.sin(0.112)], [np.sin(0.112), np.cos(0.112)]])
    spread = solve_discrete_lyapunov(turn, 0.01 * np.eye(2))
    seen = np.array([[1.0, 0.0], [0.7, 0.0], [0.5, 0.0]])
    return LinearSystem(turn, seen, 0.01 * np.eye(2), np.full(3, 0.09), np.zeros(2), spread, np.array([1.0, -2.0, 0.0]))


def one_noise(seed=0):
    """Four states that the noise of three channels moves: a filter of independent noises needs seven to say so."""
    rng = np.random.default_rng(seed)
    turns = [
        size * np.array([[np.cos(a), -np.sin(a)], [np.sin(a), np.cos(a)]]) for size, a in ((0.95, 0.42), (0.8, 1.26))
    ]
    transition, kicks = np.zeros((7, 7)), np.zeros((7, 7))
    transition[:4] = np.hstack([block_diag(*turns), -0.4 * rng.standard_normal((4, 3))])
    kicks[4:, 4:] = np.eye(3)
    seen = np.hstack([rng.standard_normal((3, 4)), np.eye(3)])
    spread = solve_discrete_lyapunov(transition, kicks)
    return LinearSystem(transition, seen, kicks, np.full(3, 1e-6), np.zeros(7), spread, np.array([1.0, -2.0, 0.0]))


def autoregression():
    """AR(4): one channel without noise of its own, whose state is its last four values."""
    poles = np.array([0.95 * np.exp(0.3j), 0.9 * np.exp(1.2j)])
    turn = np.eye(4, k=1)
    turn[:, 0] = -np.real(np.poly([*poles, *poles.conj()]))[1:]
    kicks = np.zeros((4, 4))
    kicks[0, 0] = 1.0
    spread = solve_discrete_lyapunov(turn, kicks)
    return LinearSystem(turn, np.eye(1, 4), kicks, np.zeros(1), np.zeros(4), spread, np.zeros(1))
