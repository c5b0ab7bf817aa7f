"""Q-ablation's data, those of the benchmarks of quality, and how good a fit of them is; more is better."""

from __future__ import annotations

from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment

import dask_dca as dca
from benchmarks import hidden_systems, markov_data, mixture_data, regimes, subspace_data, subspaces
from benchmarks import topics as topic_data
from benchmarks.linear_dynamics_peers import steady

if TYPE_CHECKING:
    from collections.abc import Callable

    from scipy import sparse

MEASURES = {
    "mixture": "adjusted Rand",
    "mixture, many rows": "held-out log likelihood per row minus that of the true model",
    "hmm": "held-out log likelihood per frame minus that of the true model",
    "hmm, many frames": "the same",
    "kalman": "minus the excess one-step error",
    "kalman, many frames": "the same",
    "lda": "minus the L1 error of topics",
    "lda, text": "held-out log likelihood per word by document completion",
    "subspace": "accuracy of labels",
    "nmf": "share of the anchors found",
}


class Documents(NamedTuple):
    """Counts to learn from, the number of topics, and the truth, or other documents: to choose by, and to test on."""

    X: sparse.csr_array
    k: int
    topics: np.ndarray | None = None
    others: tuple[sparse.csr_array, sparse.csr_array] | None = None


def _with_outliers(seed: int) -> mixture_data.Sample:
    """One row in a hundred ten times as far from the middle, in directions of its own."""
    data, rng = mixture_data.unequal("k=10 sep 2.5", seed), np.random.default_rng(seed)
    X, far = data.X.copy(), rng.random(len(data.X)) < 0.01
    X[far] = 10.0 * X.std(axis=0) * rng.standard_normal((int(far.sum()), X.shape[1]))
    return data._replace(X=X, labels=np.where(far, -1, data.labels))


def _four_fifths(data: Any, seed: int) -> Any:
    """Other rows for each seed."""
    kept = np.random.default_rng(seed).permutation(len(data.X))[: 4 * len(data.X) // 5]
    return data._replace(X=data.X[kept], labels=data.labels[kept])


def _documents(k: int, length: int, correlated: bool, seed: int) -> Documents:
    X, topics = topic_data.planted(2000, 1000, k, length, correlated)
    return Documents(X[np.random.default_rng(seed).permutation(X.shape[0])[:1500]], k, topics)


def _text(name: str, k: int, seed: int) -> Documents:
    train, choose, test = topic_data.corpus(name)
    kept = np.random.default_rng(seed).permutation(train.shape[0])[: 4 * train.shape[0] // 5]
    return Documents(train[kept], k, others=(choose, test))


def _hidden(name: str, n: int, seed: int) -> tuple[Any, int, Any]:
    return hidden_systems.plant_hidden(name, n, seed)


def _small(name: str, seed: int) -> mixture_data.Sample:
    return _four_fifths(mixture_data.small(name, 0), seed)


def _pictures(name: str, seed: int) -> subspace_data.Planted:
    return _four_fifths(subspace_data.images(name), seed)


def _some_pictures(name: str, classes: int, rows: int, seed: int) -> subspace_data.Planted:
    """Images of some classes, and some of their rows: others for each seed."""
    data, rng = subspace_data.images(name), np.random.default_rng(seed)
    kept = rng.permutation(np.flatnonzero(np.isin(data.labels, rng.permutation(data.k)[:classes])))[:rows]
    return subspace_data.Planted(data.X[kept], np.unique(data.labels[kept], return_inverse=True)[1], classes)


def _common(span: int, noise: float, seed: int) -> subspace_data.Planted:
    return subspace_data.cones(span, noise, seed, common=True)


def _planted(regime: str, n: int, p: int, noise: float, seed: int) -> regimes.Planted:
    return regimes.plant(regime, n, p, 20, noise, seed)


def _varied(k: int, n: int, seed: int) -> markov_data.Chain:
    return markov_data.chain(k, 6, 0.0, n, seed, "variances")


CASES: dict[str, dict[str, Callable[[int], Any]]] = {
    "mixture": {
        "paper, variance 4": partial(mixture_data.paper, 4.0, 0.5),
        "k=10 sep 2.5": partial(mixture_data.unequal, "k=10 sep 2.5"),
        "k=20 sep 4, scales": partial(mixture_data.unequal, "k=20 sep 4, scales"),
        "k=10 sep 2.5, outliers": _with_outliers,
        "digits": partial(_small, "digits"),
        "wine": partial(_small, "wine"),
    },
    "mixture, many rows": {
        f"{k} sep {apart}, 100,000 x 10": partial(mixture_data.unequal, f"{k} sep {apart}", n=100_000, p=10)
        for k, apart in (("k=5", "2"), ("k=10", "2.5"))
    },
    "hmm": {
        "k=6 p=20 sep 2.5": partial(markov_data.chain, 6, 20, 2.5, 2000),
        "k=8 p=4 sep 3": partial(markov_data.chain, 8, 4, 3.0, 2000),
        "variances k=4 p=6": partial(_varied, 4, 2000),
        "k=10 p=12 sep 3, n 20,000": partial(markov_data.chain, 10, 12, 3.0, 20_000),
        "variances k=8 p=6, n 20,000": partial(_varied, 8, 20_000),
    },
    "hmm, many frames": {"k=10 p=10 sep 1.5, n 100,000": partial(markov_data.chain, 10, 10, 1.5, 100_000)},
    "kalman": {
        f"{name}, n {n:,}": partial(_hidden, name, n)
        for name, n in (
            ("4 in 20", 1000),
            ("4 in 20, correlated", 1000),
            ("oscillation in 3", 1000),
            ("two oscillations in 5", 1000),
            ("trend and season of 4", 1000),
            ("AR(4)", 1000),
            ("five masses on springs, 2 seen", 1000),
            ("one noise in 3", 1000),
        )
    },
    "kalman, many frames": {
        f"{name}, n 50,000": partial(_hidden, name, 50_000) for name in ("4 in 20", "two oscillations in 5")
    },
    "lda": {
        "k=20": partial(_documents, 20, 200, False),
        "k=20, correlated": partial(_documents, 20, 200, True),
        "k=50, short": partial(_documents, 50, 50, False),
    },
    "lda, text": {"AP, k=20": partial(_text, "ap", 20)},
    "subspace": {
        "common centre, span 90, noise .5": partial(_common, 90, 0.5),
        "common centre, span 30, noise .1": partial(_common, 30, 0.1),
        **{name: partial(_pictures, name) for name in ("YALE", "UMIST", "COIL-20")},
        "12 of 15,012 rows": subspace_data.rare_cone,
        "20 cones of 40 rows": lambda seed: subspace_data.cones_apart(0, 0.1, seed, k=20, n=40, p=150),
        "10 objects of COIL-20": partial(_some_pictures, "COIL-20", 10, 720),
        "20 objects of COIL-100": partial(_some_pictures, "COIL-100", 20, 200),
        "3000 rows of MNIST": partial(_some_pictures, "MNIST-5k", 10, 3000),
    },
    "nmf": {
        **{name: partial(_planted, name, 3000, 100, 0.3) for name in regimes.REGIMES},
        "uniform, 300 x 500, noise .5": partial(_planted, "uniform", 300, 500, 0.5),
        "uniform, 300 x 500, noise 1": partial(_planted, "uniform", 300, 500, 1.0),
        "dirichlet1, 300 x 500, noise .3": partial(_planted, "dirichlet1", 300, 500, 0.3),
        "dirichlet1, 300 x 500, noise 1": partial(_planted, "dirichlet1", 300, 500, 1.0),
        "outliers, 300 x 500, noise 1": partial(_planted, "outliers", 300, 500, 1.0),
    },
}


@lru_cache(maxsize=1)
def data_of(model: str, case: str, seed: int) -> Any:
    """The data of a case."""
    return CASES[model][case](seed)


def fitted(model: str, data: Any, seed: int, options: dict[str, Any]) -> Any:
    """A fit with the default recipe, except for the options."""
    name, options = model.partition(",")[0], {**options, "random_state": seed}
    if name == "mixture":
        return dca.GaussianMixture(data.k, **options).fit(data.X)
    if name == "hmm":
        return dca.GaussianHMM(len(data.means), **options).fit(data.frames)
    if name == "kalman":
        return dca.KalmanFilter(data[1], **options).fit(data[0].X)
    if name == "lda":
        return dca.LatentDirichletAllocation(data.k, **options).fit(data.X)
    if name == "subspace":
        return dca.SubspaceClustering(data.k, **options).fit(data.X)
    return dca.find_anchors(data.X, len(data.anchors), **options)


def quality(model: str, data: Any, found: Any) -> float:
    """How good a fit is."""
    return float(SCORES[model](data, found))


def _partition(data: Any, found: Any) -> float:
    from sklearn.metrics import adjusted_rand_score

    own = data.labels >= 0
    return adjusted_rand_score(data.labels[own], found.predict(data.X)[own])


def _other_rows(data: Any, found: Any) -> float:
    truth = np.log(data.weights) + np.stack(
        [
            -0.5 * ((data.test - mean) ** 2 / variances + np.log(2.0 * np.pi * variances)).sum(axis=1)
            for mean, variances in zip(data.means, data.variances, strict=True)
        ],
        axis=1,
    )
    return found.score(data.test) - np.logaddexp.reduce(truth, axis=1).mean()


def _other_frames(data: Any, found: Any) -> float:
    truth = dca.GaussianHMM(len(data.means))
    truth.startprob_, truth.transmat_, truth.means_ = data.startprob, data.transmat, data.means
    truth.covars_ = data.deviations**2
    return (found.score(data.fresh) - truth.score(data.fresh)) / len(data.fresh)


def _predicted(data: Any, found: Any) -> float:
    planted, noise = data[0], found.observation_covariance_
    own = steady(
        found.transition_matrices_,
        found.observation_matrices_,
        found.transition_covariance_,
        np.diag(noise) if noise.ndim == 1 else noise,
        found.observation_offsets_,
    )
    return max(-10.0, 1.0 - own.errors(planted.fresh) / planted.truth.errors(planted.fresh))


def _nearest_topics(data: Documents, found: Any) -> float:
    apart = np.abs(found.components_[:, None] - data.topics[None]).sum(axis=2)
    return -float(np.mean(apart[linear_sum_assignment(apart)]))


def _completed(data: Documents, found: Any) -> float:
    return -float(np.log(topic_data.perplexity(found.components_, data.X, *data.others)))


SCORES: dict[str, Callable[[Any, Any], float]] = {
    "mixture": _partition,
    "mixture, many rows": _other_rows,
    "hmm": _other_frames,
    "hmm, many frames": _other_frames,
    "kalman": _predicted,
    "kalman, many frames": _predicted,
    "lda": _nearest_topics,
    "lda, text": _completed,
    "subspace": lambda data, found: subspaces.accuracy(data.labels, found.labels_),
    "nmf": lambda data, found: regimes.recall(found.indices, data.anchors),
}
