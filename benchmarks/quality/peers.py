"""Baselines: own short versions, in NumPy, of published methods that find anchors (rays, pure pixels).

Each takes the rows X (n, p) and k and returns k row indices (SISAL: vertices). Rows are scaled to sum to one where the
method's paper does so for NMF; rows whose sum is not positive (noise) are then set aside.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.optimize import linprog

from benchmarks.leastsquares import nonnegative, projected, residual_energy, subsimplex

Method = Callable[..., np.ndarray]


def spa(X: np.ndarray, k: int, seed: int = 0, *, normalise: bool = True) -> np.ndarray:
    """Own short version of SPA (Araujo et al. 2001; Gillis & Vavasis 2014): norms updated, no residuals."""
    w = _weights(X) if normalise else np.ones(len(X))
    energy = np.einsum("ij,ij->i", X, X) * w**2
    Q = np.zeros((k, X.shape[1]))
    chosen = np.empty(k, dtype=np.int64)
    for t in range(k):
        chosen[t] = i = int(np.argmax(energy))
        u = w[i] * X[i]
        for _ in range(2):  # twice is enough for orthogonality
            u = u - Q[:t].T @ (Q[:t] @ u)
        Q[t] = u / max(np.linalg.norm(u), 1e-300)
        energy -= ((X @ Q[t]) * w) ** 2
        energy[i] = -np.inf
    return chosen


def spa_raw(X: np.ndarray, k: int, seed: int = 0) -> np.ndarray:
    """SPA on the rows as they are."""
    return spa(X, k, normalise=False)


def snpa(X: np.ndarray, k: int, seed: int = 0) -> np.ndarray:
    """Own short version of SNPA (Gillis 2014): residuals of the projections on conv(0, anchors)."""
    R = X * _weights(X)[:, None]
    full = np.einsum("ij,ij->i", R, R)
    energy, chosen = full.copy(), []
    H = np.zeros((0, len(R)))
    for _ in range(k):
        energy[chosen] = -np.inf
        chosen.append(int(np.argmax(energy)))
        B = R[chosen]
        G, C = B @ B.T, B @ R.T
        start = np.vstack([H, np.zeros(len(R))])
        start[:, chosen[-1]] = np.arange(len(chosen)) == len(chosen) - 1
        H = projected(G, C, subsimplex, start)
        energy = residual_energy(full, G, C, H)
    return np.array(chosen)


def xray(X: np.ndarray, k: int, seed: int = 0, *, rule: str = "max") -> np.ndarray:
    """Own short version of XRAY (Kumar, Sindhwani & Kambadur 2013); rules max, dist, rand; not normalised."""
    rng = np.random.default_rng(seed)
    total = X.sum(axis=1)
    H, chosen = np.zeros((0, len(X))), []
    full = np.einsum("ij,ij->i", X, X)
    energy = full
    for _ in range(k):
        i = _exterior(X, H, chosen, energy, rule, rng)
        score = X @ (X[i] - H[:, i] @ X[chosen])
        score = np.where(total > 0, score / np.where(total > 0, total, 1), -np.inf)
        score[chosen] = -np.inf
        chosen.append(int(np.argmax(score)))
        B = X[chosen]
        G, C = B @ B.T, B @ X.T
        H = nonnegative(G, C, np.vstack([H, np.zeros(len(X))]))
        energy = residual_energy(full, G, C, H)
    return np.array(chosen)


def xray_dist(X: np.ndarray, k: int, seed: int = 0) -> np.ndarray:
    """XRAY with the rule 'dist' (against at most 1,000 rows)."""
    return xray(X, k, seed, rule="dist")


def xray_rand(X: np.ndarray, k: int, seed: int = 0) -> np.ndarray:
    """XRAY with the rule 'rand'."""
    return xray(X, k, seed, rule="rand")


def spa_spa(X: np.ndarray, k: int, seed: int = 0) -> np.ndarray:
    """Own short version of SPA-SPA (Gillis & Ma 2015): SPA again on R pinv(R[first answer])."""
    R = X * _weights(X)[:, None]
    return spa_raw(R @ np.linalg.pinv(R[spa_raw(R, k)]), k)


def spa_white(X: np.ndarray, k: int, seed: int = 0) -> np.ndarray:
    """Own short version of pre-whitened SPA (Gillis & Ma 2015): SPA on the first k left singular vectors."""
    Z = _reduced(X, k)
    values, V = np.linalg.eigh(Z.T @ Z)
    return spa_raw(Z @ (V / np.sqrt(np.maximum(values, 1e-300))), k)


def spa_mve(X: np.ndarray, k: int, seed: int = 0) -> np.ndarray:
    """Own short version of Gillis & Vavasis 2015: SPA after making the least ellipsoid of the rows round."""
    Z = _reduced(X, k)
    M = least_ellipsoid(Z)
    values, V = np.linalg.eigh(M)
    return spa_raw(Z @ (V / np.sqrt(np.maximum(values, 1e-300))), k)


def least_ellipsoid(Z: np.ndarray, steps: int = 2000, tol: float = 1e-3) -> np.ndarray:
    """Shape M of the least ellipsoid {z: z M^-1 z <= k} about 0 that holds all rows (Khachiyan's ascent)."""
    n, k = Z.shape
    M = Z.T @ Z / n
    inverse = np.linalg.inv(M + 1e-12 * np.trace(M) / k * np.eye(k))
    g = np.einsum("ij,ij->i", Z @ inverse, Z)
    for _ in range(steps):
        i = int(np.argmax(g))
        if g[i] <= k * (1 + tol):
            break
        beta = (g[i] / k - 1) / (g[i] - 1)
        M = (1 - beta) * M + beta * np.outer(Z[i], Z[i])
        c = beta / (1 - beta + beta * g[i])
        v = inverse @ Z[i]
        g = (g - c * (Z @ v) ** 2) / (1 - beta)
        inverse = (inverse - c * np.outer(v, v)) / (1 - beta)
    return M


def vca(X: np.ndarray, k: int, seed: int = 0) -> np.ndarray:
    """Own short version of VCA (Nascimento & Bioucas-Dias 2005), with its signal-to-noise estimate."""
    rng = np.random.default_rng(seed)
    Y = _vca_coordinates(X, k)
    A = np.zeros((k, k))
    A[-1, 0] = 1
    chosen = np.empty(k, dtype=np.int64)
    for t in range(k):
        w = rng.random(k)
        f = w - A @ (np.linalg.pinv(A) @ w)
        chosen[t] = int(np.argmax(np.abs(Y @ f)))
        A[:, t] = Y[chosen[t]]
    return chosen


def sisal(X: np.ndarray, k: int, seed: int = 0, *, steps: int = 80, tau: float = 1.0) -> np.ndarray:
    """Own short version of SISAL (Bioucas-Dias 2009), with the parameters of its author's program.

    The simplex of least volume, where a hinge of negative coordinates costs `tau`: from VCA's, blown up, by quadratic
    steps, each solved by a split augmented Lagrangian. Returns vertices (k, p), which are no rows.
    """
    centre = X.mean(axis=0)
    V = _basis(X - centre, k - 1)
    Z = (X - centre) @ V
    spread = np.sqrt((Z**2).mean(axis=0) + 1e-8)
    Y = np.column_stack([Z / spread, np.ones(len(X))]) / np.sqrt(k)
    mu, lam = 1000.0 * k / len(X), 1e-6
    sums = np.linalg.solve(Y.T @ Y, Y.sum(axis=0))  # coordinates Y Q sum to one where Q's rows sum to this
    inverse = np.linalg.inv(lam * np.eye(k) + mu * Y.T @ Y)
    corners = Y[vca(X, k, seed)]
    Q = np.linalg.inv(corners + k * (corners - corners.mean(axis=0)))
    positive, multipliers = Y @ Q, np.zeros((len(Y), k))

    def hinge(Q: np.ndarray) -> float:
        return tau * float(np.maximum(-(Y @ Q), 0.0).sum())

    for step in range(steps):
        before, slope = Q, -np.linalg.inv(Q).T
        for _ in range(20):
            for _ in range(3 if step < steps - 1 else 99):
                Q = inverse @ (lam * before - slope + mu * Y.T @ (positive + multipliers))
                Q += (sums - Q.sum(axis=1))[:, None] / k
                moved = Y @ Q - multipliers
                positive = np.where(moved > 0, moved, np.minimum(moved + tau / mu, 0.0))
                multipliers -= Y @ Q - positive
            change = Q - before
            if (change * slope).sum() + lam / 2 * (change**2).sum() + hinge(Q) <= hinge(before):
                break
        least = hinge(before) - np.linalg.slogdet(before)[1]
        for _ in range(50):
            if hinge(Q) - np.linalg.slogdet(Q)[1] <= least:
                break
            Q = (Q + before) / 2
    return (np.linalg.inv(Q)[:, :-1] * (np.sqrt(k) * spread)) @ V.T + centre


def cover(X: np.ndarray, k: int, seed: int = 0, *, rows: int = 500, sweeps: int = 2) -> np.ndarray:
    """Own short version of greedy submodular cover (SFO; Wolsey 1982, as the paper states the problem).

    Covered energy f(A) = |X|^2 - dist(X, cone(X_A))^2 on at most `rows` rows;
    a gain is taken at fixed coefficients. Greedy alone starts inside the cone, so each anchor is exchanged
    `sweeps` times.
    """
    rng = np.random.default_rng(seed)
    S = X if len(X) <= rows else X[rng.choice(len(X), rows, replace=False)]
    norms = np.maximum(np.einsum("ij,ij->i", X, X), 1e-300)
    chosen: list[int] = []
    for step in range(k * (1 + sweeps)):
        if step >= k:
            chosen.pop(0)
        gain = _cover_gain(X, S, norms, chosen)
        gain[chosen] = -np.inf
        chosen.append(int(np.argmax(gain)))
    return np.array(chosen)


def lp_test(X: np.ndarray, k: int, seed: int = 0, *, tol: float = 1e-6) -> np.ndarray:
    """Own short version of backward removal (Arora, Ge, Kannan & Moitra 2012): one linear program a row.

    A row inside the cone of the others that are left is removed. If more than k are left (noise), the k
    farthest from the cone of the others stay.
    """
    left = list(np.flatnonzero(X.sum(axis=1) > 0))
    distance = np.zeros(len(X))
    for i in list(left):
        if len(left) <= k:
            break
        others = [j for j in left if j != i]
        distance[i] = _lp_distance(X[others], X[i]) / np.abs(X[i]).max()
        if distance[i] <= tol:
            left = others
    kept = np.array(left)
    return kept[np.argsort(-distance[kept], kind="stable")[:k]]


PEERS: dict[str, Method] = {
    "spa": spa,
    "spa_raw": spa_raw,
    "snpa": snpa,
    "xray_max": xray,
    "spa_spa": spa_spa,
    "spa_white": spa_white,
    "spa_mve": spa_mve,
    "vca": vca,
}
# seconds to minutes on a few hundred rows
SMALL_PEERS: dict[str, Method] = {"xray_dist": xray_dist, "xray_rand": xray_rand, "cover": cover, "lp_test": lp_test}


def _weights(X: np.ndarray) -> np.ndarray:
    """1 / row sum; 0 where the sum is not positive."""
    total = X.sum(axis=1)
    return np.where(total > 0, 1 / np.where(total > 0, total, 1), 0)


def _basis(X: np.ndarray, k: int) -> np.ndarray:
    """The first k right singular vectors (p, k), from the smaller Gram matrix."""
    n, p = X.shape
    if p <= n:
        return np.linalg.eigh(X.T @ X)[1][:, ::-1][:, :k]
    U = np.linalg.eigh(X @ X.T)[1][:, ::-1][:, :k]
    return np.linalg.qr(X.T @ U)[0]


def _reduced(X: np.ndarray, k: int) -> np.ndarray:
    """Rows of sum one in the coordinates of their first k singular directions (n, k)."""
    R = X * _weights(X)[:, None]
    return R @ _basis(R, k)


def _exterior(
    X: np.ndarray, H: np.ndarray, chosen: list[int], energy: np.ndarray, rule: str, rng: np.random.Generator
) -> int:
    """XRAY's choice of a row outside the cone found so far."""
    if rule == "max":
        return int(np.argmax(energy))
    if rule == "rand":
        outside = np.flatnonzero(energy > 1e-10 * energy.max())
        return int(rng.choice(outside))
    some = X if len(X) <= 1000 else X[rng.choice(len(X), 1000, replace=False)]
    products = X @ some.T - H.T @ (X[chosen] @ some.T)
    return int(np.argmax(np.einsum("ij,ij->i", np.maximum(products, 0), products)))


def _vca_coordinates(X: np.ndarray, k: int) -> np.ndarray:
    """VCA's reduction: projective above its signal-to-noise threshold, else k - 1 components and 1."""
    n, p = X.shape
    mean = X.mean(axis=0)
    V = _basis(X - mean, k)
    total = np.sum(X**2) / n
    kept = np.sum(((X - mean) @ V) ** 2) / n + mean @ mean
    snr = 10 * np.log10(max(kept - k / p * total, 1e-300) / max(total - kept, 1e-300))
    if snr < 15 + 10 * np.log10(k):
        Z = (X - mean) @ V[:, : k - 1]
        return np.column_stack([Z, np.full(n, np.linalg.norm(Z, axis=1).max())])
    Z = X @ _basis(X, k)
    scale = Z @ Z.mean(axis=0)
    return np.where(scale[:, None] > 0, Z / np.where(scale > 0, scale, 1)[:, None], 0)


def _cover_gain(X: np.ndarray, S: np.ndarray, norms: np.ndarray, chosen: list[int]) -> np.ndarray:
    """Energy of the sample S that each row of X would cover more, coefficients of the chosen ones fixed."""
    R = S
    if chosen:
        B = X[chosen]
        R = S - nonnegative(B @ B.T, B @ S.T).T @ B
    return np.sum(np.maximum(R @ X.T, 0) ** 2, axis=0) / norms


def _lp_distance(B: np.ndarray, x: np.ndarray) -> float:
    """min_f>=0 max_j |x - f B|_j."""
    p, m = B.shape[1], B.shape[0]
    ones = -np.ones((p, 1))
    answer = linprog(
        np.append(np.zeros(m), 1.0),
        A_ub=np.vstack([np.hstack([B.T, ones]), np.hstack([-B.T, ones])]),
        b_ub=np.concatenate([x, -x]),
        method="highs",
    )
    return float(answer.fun)
