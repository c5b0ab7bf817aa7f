"""Hidden Markov models by the library and by others, behind one interface."""

from __future__ import annotations

import itertools
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.cluster import KMeans

import dask_dca
from benchmarks.methods import MissingError

if TYPE_CHECKING:
    from collections.abc import Callable

MAIN = "dask_dca"


@dataclass(frozen=True)
class Fit:
    """A model of states: `score` and `predict` take frames and lengths; a method without dynamics has no score."""

    means: np.ndarray
    predict: Callable[[np.ndarray, Any], np.ndarray]
    score: Callable[[np.ndarray, Any], float] | None


def fit(method: str, X: np.ndarray, lengths: Any, k: int, kind: str = "diag", seed: int = 0) -> Fit:
    """Fit by the method of that name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = METHODS[method](X, lengths, k, kind, seed)
    if isinstance(model, KMeans):
        return Fit(model.cluster_centers_, lambda frames, _: model.predict(frames), None)
    return Fit(np.asarray(model.means_), model.predict, model.score)


def _ours(**options: Any) -> Callable[..., Any]:
    def run(X: np.ndarray, lengths: Any, k: int, kind: str, seed: int) -> Any:
        return dask_dca.GaussianHMM(k, kind, random_state=seed, **options).fit(X, lengths=lengths)

    return run


def _hmmlearn(starts: int, **options: Any) -> Callable[..., Any]:
    def run(X: np.ndarray, lengths: Any, k: int, kind: str, seed: int) -> Any:
        from hmmlearn.hmm import GaussianHMM

        found = [
            GaussianHMM(k, kind, random_state=seed * 100 + i, **options).fit(X, lengths=lengths) for i in range(starts)
        ]
        for model in found:
            _repair(model)
        return found[0] if starts == 1 else max(found, key=lambda model: model.score(X, lengths=lengths))

    return run


def _repair(model: Any) -> None:
    """Give a state that was never left, whose row of the transition matrix is zero, any successor: else it refuses."""
    empty = model.transmat_.sum(axis=1) == 0.0
    model.transmat_[empty] = 1.0 / len(empty)


def kmeans(X: np.ndarray, lengths: Any, k: int, kind: str, seed: int) -> KMeans:
    """States without dynamics: ten starts of k-means."""
    del lengths, kind
    return KMeans(k, n_init=10, random_state=seed).fit(X)


def spectral(X: np.ndarray, lengths: Any, k: int, kind: str, seed: int) -> Any:
    """Method of moments: three successive frames as views of the middle one (Anandkumar, Hsu and Kakade, COLT 2012)."""
    del kind
    from hmmlearn.hmm import GaussianHMM

    if k > X.shape[1]:
        raise MissingError("")  # means of more states than features are not independent
    edges = np.cumsum([0, *(lengths if lengths is not None else [len(X)])])
    t = np.concatenate([np.arange(a, b - 2) for a, b in itertools.pairwise(edges)])
    first, middle, last = X[t], X[t + 1], X[t + 2]
    left, _, right = np.linalg.svd(first.T @ last / len(t))
    left, right = left[:, :k], right[:k].T
    inverse = np.linalg.pinv(left.T @ (first.T @ last / len(t)) @ right)
    axes = np.linalg.svd(middle.T @ last / len(t))[0][:, :k]
    theta = np.linalg.qr(np.random.default_rng(seed).standard_normal((axes.shape[1],) * 2))[0]
    operators = [
        left.T @ ((first * (middle @ (axes @ row))[:, None]).T @ last / len(t)) @ right @ inverse for row in theta
    ]
    vectors = np.linalg.eig(operators[0])[1]
    values = np.array([np.diagonal(np.linalg.pinv(vectors) @ one @ vectors).real for one in operators])
    means = (axes @ (np.linalg.inv(theta) @ values)).T
    model = GaussianHMM(k, "diag")
    weights = np.linalg.pinv(means)
    joint = np.maximum(weights.T @ (first.T @ middle / len(t)) @ weights, 1e-6)
    model.means_, model.transmat_ = means, joint / joint.sum(axis=1, keepdims=True)
    model.startprob_ = np.full(k, 1.0 / k)
    labels = ((X[:, None] - means) ** 2).sum(axis=2).argmin(axis=1)
    model.covars_ = np.maximum(np.tile(((X - means[labels]) ** 2).mean(axis=0), (k, 1)), 1e-3 * X.var(axis=0))
    return model


METHODS: dict[str, Callable[..., Any]] = {
    MAIN: _ours(),
    "dca_paper": _ours(method="paper"),
    "hmmlearn": _hmmlearn(1),
    "hmmlearn x10": _hmmlearn(10, n_iter=100),
    "spectral": spectral,
    "kmeans": kmeans,
}
