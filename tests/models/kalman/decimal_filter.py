"""Filter and smoother in 150 decimal digits: all states and noises jointly, conditioned on an entry at a time."""

from decimal import Decimal, localcontext

import numpy as np

DIGITS = 150
_TWO_PI = Decimal("6.28318530717958647692528676655900576839433879875021164194988918461563281257241799725606965068")
_decimals = np.vectorize(Decimal, otypes=[object])


class Reference:
    """
    What is known of states, given known parameters and a short sequence; NaN where an entry is missing.

    Attributes `filtered` and `smoothed` are pairs of means (n, k) and covariances (n, k, k), `log_likelihood` a number.
    """

    def __init__(self, system, X):
        with localcontext(prec=DIGITS):
            n, k, p = len(X), system.n_dim_state, system.n_dim_obs
            self.n, self.k = n, k
            mean, cov = _joint(system, n)
            O, offset = _decimals(system.observation), _decimals(system.offset)
            total, filtered = Decimal(0), []
            for t in range(n):
                for i in np.flatnonzero(~np.isnan(X[t])):
                    seen = np.full(len(mean), Decimal(0))
                    seen[t * k : (t + 1) * k], seen[n * k + t * p + i] = O[i], Decimal(1)
                    column = cov @ seen
                    variance, innovations = seen @ column, Decimal(float(X[t, i])) - offset[i] - seen @ mean
                    total -= ((_TWO_PI * variance).ln() + innovations * innovations / variance) / 2
                    mean = mean + column * (innovations / variance)
                    cov = cov - np.multiply.outer(column, column / variance)
                filtered.append([part[t] for part in self._states(mean, cov)])
            self.filtered = tuple(np.stack(part) for part in zip(*filtered, strict=True))
            self.smoothed, self.log_likelihood = self._states(mean, cov), float(total)

    def _states(self, mean, cov):
        n, k = self.n, self.k
        own = np.stack([cov[t * k : (t + 1) * k, t * k : (t + 1) * k] for t in range(n)])
        return mean[: n * k].reshape(n, k).astype(float), own.astype(float)


def _joint(system, n):
    """Mean and covariance of all states, then of all observation noises."""
    k, p = system.n_dim_state, system.n_dim_obs
    T, Q, spread, m = map(
        _decimals,
        (system.transition, system.transition_covariance, system.initial_covariance, system.initial_mean),
    )
    noise = system.observation_covariance
    R = _decimals(np.diag(noise) if noise.ndim == 1 else noise)
    mean, cov = np.full(n * (k + p), Decimal(0)), np.full((n * (k + p),) * 2, Decimal(0))
    for t in range(n):
        block = spread
        for u in range(t, n):
            cov[u * k : (u + 1) * k, t * k : (t + 1) * k] = block
            cov[t * k : (t + 1) * k, u * k : (u + 1) * k] = block.T
            block = T @ block
        mean[t * k : (t + 1) * k] = m
        places = slice(n * k + t * p, n * k + (t + 1) * p)
        cov[places, places] = R
        spread, m = T @ spread @ T.T + Q, T @ m
    return mean, cov
