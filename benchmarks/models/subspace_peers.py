"""
Peers of subspace clustering: scikit-learn's, and short faithful versions of published methods, marked as own.

Own versions follow the papers' formulas on small data, without their authors' tuning for each data set.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse
from sklearn.cluster import KMeans, SpectralClustering
from sklearn.linear_model import ElasticNet, lars_path

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["PEERS", "SLOW"]


def unit(X: np.ndarray) -> np.ndarray:
    """Rows of length one."""
    length = np.linalg.norm(X, axis=1, keepdims=True)
    return X / np.where(length > 0, length, 1.0)


def spectral(W: np.ndarray | sparse.sparray, k: int, seed: int) -> np.ndarray:
    """Labels by normalised spectral clustering of an affinity (scikit-learn)."""
    W = W.toarray() if sparse.issparse(W) else W
    return SpectralClustering(k, affinity="precomputed", random_state=seed, n_init=10).fit_predict(W + 1e-12)


def k_means(X: np.ndarray, k: int, seed: int) -> np.ndarray:
    """scikit-learn, ten starts."""
    return KMeans(k, n_init=10, random_state=seed).fit_predict(X)


def spectral_neighbours(X: np.ndarray, k: int, seed: int) -> np.ndarray:
    """scikit-learn, ten nearest neighbours: its default number."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a graph that is not connected
        return SpectralClustering(k, affinity="nearest_neighbors", random_state=seed).fit_predict(X)


def ssc_omp(X: np.ndarray, k: int, seed: int, *, most: int = 10, tol: float = 1e-6) -> np.ndarray:
    """SSC by orthogonal matching pursuit (You, Robinson and Vidal, CVPR 2016); own version, one row at a time."""
    Z = unit(X)
    n = len(Z)
    rows, columns, values = [], [], []
    for i in range(n):
        left, support = Z[i].copy(), []
        coefficients = np.zeros(0)
        for _ in range(most):
            match = np.abs(Z @ left)
            match[[i, *support]] = -1.0
            support.append(int(match.argmax()))
            coefficients = np.linalg.lstsq(Z[support].T, Z[i], rcond=None)[0]
            left = Z[i] - coefficients @ Z[support]
            if left @ left < tol:
                break
        rows += [i] * len(support)
        columns += support
        values += np.abs(coefficients).tolist()
    C = sparse.csr_array((values, (rows, columns)), shape=(n, n))
    return spectral(C + C.T, k, seed)


def elastic_net(X: np.ndarray, k: int, seed: int, *, gamma: float = 50.0, mix: float = 0.95) -> np.ndarray:
    """SSC by the elastic net (You, Li, Robinson and Vidal, CVPR 2016); own version on scikit-learn's solver."""
    import warnings

    Z = unit(X)
    n, p = Z.shape
    C = np.zeros((n, n))
    for i in range(n):
        others = np.delete(np.arange(n), i)
        peak = np.abs(Z[others] @ Z[i]).max()
        strength = peak / gamma  # the penalty that leaves nothing, over gamma
        model = ElasticNet(alpha=strength / p, l1_ratio=mix, fit_intercept=False, max_iter=300, tol=1e-3)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            C[i, others] = np.abs(model.fit(Z[others].T, Z[i]).coef_)
    return spectral(C + C.T, k, seed)


def low_rank(X: np.ndarray, k: int, seed: int) -> np.ndarray:
    """LRR with clean data in closed form (Liu et al., PAMI 2013): V V^T at 99 % of the energy; own version."""
    U, s, _ = np.linalg.svd(unit(X), full_matrices=False)
    rank = 1 + int(np.searchsorted(np.cumsum(s**2) / (s**2).sum(), 0.99))
    rows = unit(U[:, :rank] * np.sqrt(s[:rank]))
    return spectral(np.abs(rows @ rows.T) ** 4, k, seed)  # LRR's own post-processing: powers of cosines


def curvature(X: np.ndarray, k: int, seed: int, *, dim: int = 9, columns: int | None = None) -> np.ndarray:
    """SCC's affinities (Chen and Lerman, IJCV 2009) for linear subspaces; own version, one round of sampling."""
    rng = np.random.default_rng(seed)
    Z = unit(X)
    found = []
    for _ in range(columns or 100 * k):
        sample = Z[rng.choice(len(Z), min(dim, len(Z)), replace=False)]
        basis = np.linalg.qr(sample.T)[0]
        found.append(1.0 - ((Z @ basis) ** 2).sum(axis=1))
    distances = np.maximum(np.array(found).T, 0.0)
    width = np.quantile(distances, 1.0 / k**2) + 1e-12
    A = np.exp(-distances / (2 * width))
    left = np.linalg.svd(A / np.sqrt(np.maximum(A @ A.sum(axis=0), 1e-300))[:, None], full_matrices=False)[0]
    return KMeans(k, n_init=10, random_state=seed).fit_predict(unit(left[:, :k]))


def thresholding(X: np.ndarray, k: int, seed: int) -> np.ndarray:
    """TSC (Heckel and Bölcskei, IEEE Trans. Information Theory 61, 2015): q nearest by correlation; own version."""
    Z = unit(X)
    n = len(Z)
    q = max(3, min(n - 1, -(-n // (20 * k))))
    W = np.abs(Z @ Z.T)
    np.fill_diagonal(W, 0.0)
    nearest = np.argpartition(-W, q - 1, axis=1)[:, :q]
    C = np.zeros_like(W)
    values = np.exp(-2.0 * np.arccos(np.clip(np.take_along_axis(W, nearest, 1), 0.0, 1.0)))
    np.put_along_axis(C, nearest, values, axis=1)
    return spectral(C + C.T, k, seed)


def robust_lasso(X: np.ndarray, k: int, seed: int, *, most: int = 60) -> np.ndarray:
    """
    RSC (Soltanolkotabi, Elhamifar and Candès, Annals of Statistics 42, 2014): the lasso, its penalty row by row.

    Algorithm 1: beta of least l1 norm with |y - Y beta| <= tau, tau twice the noise, then the lasso with penalty
    1 / (4 |beta|_1). Both are points of one path of least angles (scikit-learn), followed for `most` steps; the noise
    is the energy below Gavish and Donoho's threshold. Own version.
    """
    Z = unit(X)
    n = len(Z)
    tau = min(2.0 * noise_level(Z), 0.9)
    columns = Z.T.copy(order="F")
    C = np.zeros((n, n))
    for i in range(n):
        columns[:, i] = 0.0  # a row must not explain itself
        penalties, _, path = lars_path(columns, Z[i], method="lasso", max_iter=most)
        penalties = penalties * len(Z[i])  # scikit-learn divides by the number of samples
        columns[:, i] = Z[i]
        left = np.linalg.norm(Z[i][:, None] - columns @ path, axis=0)
        first = int(np.argmax(left <= tau)) if (left <= tau).any() else len(left) - 1
        wanted = 0.25 / max(float(np.abs(path[:, first]).sum()), 1e-12)
        at = np.interp(-wanted, -penalties, np.arange(len(penalties)))  # the path is linear between its knots
        low, share = int(at), at - int(at)
        C[i] = np.abs((1.0 - share) * path[:, low] + share * path[:, min(low + 1, path.shape[1] - 1)])
    return spectral(C + C.T, k, seed)


def noise_level(Z: np.ndarray) -> float:
    """Noise of a row, as a length, by Gavish and Donoho's threshold of singular values (2014, noise unknown)."""
    s = np.linalg.svd(Z, compute_uv=False)
    shape = min(Z.shape) / max(Z.shape)
    edge = (0.56 * shape**3 - 0.95 * shape**2 + 1.82 * shape + 1.43) * np.median(s)
    return float(np.sqrt((s[s < edge] ** 2).sum() / len(Z)))


PEERS: dict[str, Callable[..., np.ndarray]] = {
    "k-means": k_means,
    "spectral": spectral_neighbours,
    "SSC-OMP (own)": ssc_omp,
    "elastic-net SSC (own)": elastic_net,
    "LRR (own)": low_rank,
    "SCC (own)": curvature,
    "RSC (own)": robust_lasso,
    "TSC (own)": thresholding,
}
SLOW = ("elastic-net SSC (own)", "RSC (own)")
