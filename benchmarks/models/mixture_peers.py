"""Mixtures as other tools learn them: k-means and EM (scikit-learn), and two spectral moment methods."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.mixture_data import Sample

MAIN = "dask_dca"


class Fit(NamedTuple):
    """Means (k, p), labels of the rows, rows that stand for the components, mean log-likelihood of other rows."""

    means: np.ndarray
    labels: np.ndarray
    anchors: np.ndarray | None = None
    score: Callable[[np.ndarray], float] | None = None


def fit(method: str, data: Sample, covariance_type: str, seed: int, own: str = "auto") -> Fit:
    """The mixture of `data` by the method of that name; `own` is the form of the library's, its default."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # 100 steps are scikit-learn's default
        if method.startswith("dask_dca") or method == "dca_paper":
            return _library(method, data, own, seed)
        if method.startswith("kmeans"):
            return _kmeans(data, _starts(method), seed)
        if method.startswith("em"):
            return _em(method, data, covariance_type, seed)
        return {"moments_views": moments_of_views, "moments": moments}[method](data, seed)


def _starts(method: str) -> int:
    return int(method.rpartition(" x")[2])


def _library(method: str, data: Sample, covariance_type: str, seed: int) -> Fit:
    import dask_dca

    options: dict[str, Any] = {"views": data.views, "random_state": seed}
    options |= {"max_iter": 0} if method == "dask_dca start" else {}
    options |= {"tails": "normal"} if method == "dask_dca normal" else {}
    options |= {"method": "paper"} if method == "dca_paper" else {}
    model = dask_dca.GaussianMixture(data.k, covariance_type, **options)
    if method == "dca_paper":
        warnings.simplefilter("ignore", dask_dca.errors.FewerAnchorsWarning)
    model.fit(data.X)
    return Fit(model.means_, model.predict(data.X), model.anchor_indices_, model.score)


def _kmeans(data: Sample, starts: int, seed: int) -> Fit:
    model = KMeans(data.k, n_init=starts, random_state=seed).fit(data.X)
    return Fit(model.cluster_centers_, model.labels_)


def _em(method: str, data: Sample, covariance_type: str, seed: int) -> Fit:
    """scikit-learn's EM: started by k-means (its default), k-means++, or the truth."""
    options: dict[str, Any] = {"n_init": 1}
    covariance_type = covariance_type.removeprefix("tied-")
    if method == "em truth":
        precisions = {"diag": 1 / data.variances, "spherical": 1 / data.variances.mean(axis=1)}[covariance_type]
        options |= {"weights_init": data.weights, "means_init": data.means, "precisions_init": precisions}
    else:
        options |= {"n_init": _starts(method), "init_params": "k-means++" if "++" in method else "kmeans"}
    model = GaussianMixture(data.k, covariance_type=covariance_type, random_state=seed, **options).fit(data.X)
    return Fit(model.means_, model.predict(data.X), None, model.score)


def moments(data: Sample, seed: int, draws: int = 20) -> Fit:
    """
    Spherical Gaussians from three moments: Hsu and Kakade, Learning mixtures of spherical Gaussians, ITCS 2013.

    M2 = E[x x^T] - s2 I and M3, whitened by W, W^T M2 W = I; eigenvectors of M3(W, W, W eta) for the random eta (of
    20) whose eigenvalues are farthest apart. s2 is the mean of all but the k - 1 largest eigenvalues of the
    covariance (in the paper, the least, where moments are exact). No moment of order three is formed.
    """
    X, k = data.X, data.k
    n, p = X.shape
    mean = X.mean(axis=0)
    values, vectors = np.linalg.eigh((X - mean).T @ (X - mean) / n)
    variance = values[: max(1, p - k + 1)].mean()
    first = X.T @ ((X - mean) @ vectors[:, 0]) ** 2 / n if n > p else variance * mean  # E[x (v.(x - mean))^2]
    values, vectors = np.linalg.eigh(X.T @ X / n - variance * np.eye(p))
    roots = np.sqrt(values[-k:].clip(min=1e-12 * values[-1]))
    W, B = vectors[:, -k:] / roots, vectors[:, -k:] * roots
    Y, a, C = X @ W, W.T @ first, W.T @ W
    rng = np.random.default_rng(seed)
    found = []
    for eta in rng.standard_normal((draws, k)):
        eta /= np.linalg.norm(eta)
        T = (Y * (Y @ eta)[:, None]).T @ Y / n
        T -= np.outer(a, C @ eta) + np.outer(C @ eta, a) + C * (a @ eta)
        lam, V = np.linalg.eigh((T + T.T) / 2)
        gap = np.diff(lam).min(initial=np.inf)
        found.append((gap, (B @ V * (lam / (eta @ V))).T))
    return _nearest(data, max(found, key=lambda pair: pair[0])[1])


def moments_of_views(data: Sample, seed: int) -> Fit:
    """
    Three views: Anandkumar, Hsu and Kakade, A method of moments for mixture models and HMMs, COLT 2012, algorithm B.

    P12 and P123(eta) in the leading singular subspaces U1, U2; the eigenvectors R of the first of
    B(eta_i) = U1^T P123(eta_i) U2 (U1^T P12 U2)^-1, eta_i = U3 theta_i with theta a random rotation, diagonalise all
    of them; their eigenvalues are theta U3^T O3. The weights and the other views' means follow by least squares.
    """
    k = data.k
    X1, X2, X3 = (data.X[:, view] for view in _views(data, seed))
    n = len(X1)
    rng = np.random.default_rng(seed)
    U1, U2 = _leading(X1, X2, k)
    U3, _ = _leading(X3, X1, k)
    Y1, Y2, Y3 = X1 @ U1, X2 @ U2, X3 @ U3
    theta = np.linalg.qr(rng.standard_normal((k, k)))[0]
    inverse = np.linalg.pinv(Y1.T @ Y2 / n)
    B = [(Y1 * (Y3 @ row)[:, None]).T @ Y2 / n @ inverse for row in theta]
    R = np.linalg.eig(B[0])[1]
    back = np.linalg.pinv(R)
    L = np.array([np.einsum("ij,jk,ki->i", back, matrix, R) for matrix in B]).real
    O3 = U3 @ theta.T @ L
    P3 = np.linalg.pinv(O3)
    weights = (P3 @ X3.mean(axis=0)).clip(min=1.0 / n)
    others = [(P3 @ (X3.T @ X) / n) / weights[:, None] for X in (X1, X2)]
    means = np.empty((k, data.X.shape[1]))
    for view, part in zip(_views(data, seed), (*others, O3.T), strict=True):
        means[:, view] = part
    return _nearest(data, means)


def _views(data: Sample, seed: int) -> list[Any]:
    """The views of the data, or a random split of all features in three, as the paper does with images."""
    if data.views is not None:
        return data.views
    return np.array_split(np.random.default_rng(seed).permutation(data.X.shape[1]), 3)


def _leading(X: np.ndarray, Y: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The k leading singular vectors of X^T Y on both sides."""
    left, _, right = np.linalg.svd(X.T @ Y, full_matrices=False)
    return left[:, :k], right[:k].T


def _nearest(data: Sample, means: np.ndarray) -> Fit:
    means = np.nan_to_num(means, posinf=0.0, neginf=0.0)
    return Fit(means, ((means**2).sum(axis=1) - 2 * data.X @ means.T).argmin(axis=1))
