"""Q13-topics: topics of papers in batches. Q13-likelihood: mixtures, hidden Markov models and Kalman filters."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

import dask_dca as dca
from benchmarks.harness import Benchmark, Check, Record, Table, group, mean
from benchmarks.methods import MissingError
from benchmarks.topics import corpus, cpu_timed, perplexity

if TYPE_CHECKING:
    from collections.abc import Callable

    from scipy import sparse

    Batches = list[sparse.csr_array]

LENGTH = 500  # frames of a sequence


def partial_fit(**options: Any) -> Callable[[Batches, int], np.ndarray]:
    def fit(batches: Batches, k: int) -> np.ndarray:
        model = dca.LatentDirichletAllocation(k)
        for batch in batches:
            model.partial_fit(batch, **options)
        return model.components_

    return fit


def scikit_learn(batches: Batches, k: int) -> np.ndarray:
    from sklearn.decomposition import LatentDirichletAllocation

    model = LatentDirichletAllocation(k, random_state=0, total_samples=sum(batch.shape[0] for batch in batches))
    for batch in batches:
        model.partial_fit(batch)
    return model.components_ / model.components_.sum(axis=1, keepdims=True)


def gensim(batches: Batches, k: int) -> np.ndarray:
    try:
        from gensim.models import LdaModel
    except ImportError as error:
        raise MissingError("gensim is not installed") from error
    names = {j: str(j) for j in range(batches[0].shape[1])}
    model = LdaModel(num_topics=k, id2word=names, random_state=0)
    for batch in batches:
        ends = zip(batch.indptr[:-1], batch.indptr[1:], strict=True)
        texts = [list(zip(batch.indices[a:b].tolist(), batch.data[a:b].tolist(), strict=True)) for a, b in ends]
        model.update(texts, chunksize=len(texts))
    return model.get_topics().astype(float)


METHODS = {
    "partial_fit": partial_fit(),
    "partial_fit, forget=.8": partial_fit(forget=0.8),
    "scikit-learn": scikit_learn,
    "gensim": gensim,
}


class TopicStreams(Benchmark):
    """Each paper is seen once."""

    id = "Q13-topics"
    title = "Streams: topics of NIPS papers that arrive in batches"
    protocol = (
        "The 900 training papers of Q9 in 5, 10 or 20 batches, each seen once; k = 20; held-out perplexity as in Q9."
        " The first batch of partial_fit is a fit of 180, 90 or 45 papers. One seed. CPU seconds, one thread."
    )
    param_names: ClassVar = ["batches", "method"]
    params: ClassVar = [(5, 10, 20), (*METHODS, "fit of all")]
    quick_params: ClassVar = {"batches": (5,), "method": ("partial_fit",)}
    tables: ClassVar = [
        Table("Held-out perplexity", ["batches"], "perplexity", better="min", digits=0),
        Table("CPU seconds", ["batches"], "seconds", better="min", digits=1),
    ]

    def setup(self, batches: int, method: str) -> None:
        self.parts = corpus("nips")
        train = self.parts[0]
        self.cut = [train[some] for some in np.array_split(np.arange(train.shape[0]), batches)]

    def measure(self, batches: int, method: str) -> Record:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if method == "fit of all":
                train = self.parts[0]
                topics, seconds = cpu_timed(lambda: dca.LatentDirichletAllocation(20).fit(train).components_)
            else:
                topics, seconds = cpu_timed(lambda: METHODS[method](self.cut, 20))
        return {"perplexity": perplexity(topics, *self.parts), "seconds": seconds}

    def track_perplexity(self, *params: Any) -> float:
        return self.measure(*params)["perplexity"]

    def check(self, records: list[Record]) -> list[Check]:
        of = {method: mean([r["perplexity"] for r in rs]) for (method,), rs in group(records, "method").items()}
        peers = [of[name] for name in ("scikit-learn", "gensim") if name in of]
        return [
            Check(
                f"{name}: mean perplexity at most the best peer's",
                f"{of[name]:.0f} against {min(peers):.0f}",
                of[name] <= min(peers),
            )
            for name in of
            if name.startswith("partial_fit") and peers
        ]


def _clusters(n: int, seed: int) -> np.ndarray:
    means = 3.0 * np.random.default_rng(0).standard_normal((8, 10))
    rng = np.random.default_rng([1, seed])
    return means[rng.integers(8, size=n)] + rng.standard_normal((n, 10)) @ np.diag(np.linspace(0.5, 1.5, 10))


def _states(n: int, seed: int) -> np.ndarray:
    stays = np.random.default_rng([2, seed]).random(n) < 0.9
    drawn = np.random.default_rng([3, seed]).integers(5, size=n)
    return drawn[np.maximum.accumulate(np.where(stays, 0, np.arange(n)))]


def _frames(n: int, seed: int) -> np.ndarray:
    means = 2.0 * np.random.default_rng(4).standard_normal((5, 6))
    return means[_states(n, seed)] + np.random.default_rng([5, seed]).standard_normal((n, 6))


def _symbols(n: int, seed: int) -> np.ndarray:
    emissions = np.random.default_rng(6).dirichlet(np.full(12, 0.3), 5).cumsum(axis=1)
    drawn = np.random.default_rng([7, seed]).random(n)[:, None] >= emissions[_states(n, seed)]
    return np.minimum(drawn.sum(axis=1), 11)[:, None]


def _motion(n: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(8)
    turn = 0.97 * np.kron(np.eye(2), [[0.9, 0.4], [-0.4, 0.9]])
    model = dca.KalmanFilter.from_parameters(turn, rng.standard_normal((10, 4)), 0.2 * np.eye(4), np.eye(10))
    sequences = [model.sample(LENGTH, random_state=1000 * seed + i)[1] for i in range(n // LENGTH)]
    return np.concatenate(sequences)


MODELS: dict[str, tuple[Callable[[], Any], Callable[[int, int], np.ndarray], bool]] = {
    "GaussianMixture, full, k = 8": (lambda: dca.GaussianMixture(8, "full"), _clusters, False),
    "GaussianMixture, auto, k = 8": (lambda: dca.GaussianMixture(8), _clusters, False),
    "GaussianHMM, diag, k = 5": (lambda: dca.GaussianHMM(5), _frames, True),
    "CategoricalHMM, k = 5": (lambda: dca.CategoricalHMM(5, n_features=12), _symbols, True),
    "KalmanFilter, k = 4": (lambda: dca.KalmanFilter(4), _motion, True),
}


class LikelihoodStreams(Benchmark):
    """A stream against the fit of the whole."""

    id = "Q13-likelihood"
    title = "Streams: held-out likelihood of models of 20 batches"
    protocol = (
        "20,000 planted rows or frames (sequences of 500) in 20 batches, each seen once, against the fit of all, "
        "and of the first batch alone; mean log likelihood per row of 10,000 held-out rows. Three seeds of the "
        "data."
    )
    param_names: ClassVar = ["model", "seed", "method"]
    params: ClassVar = [tuple(MODELS), (0, 1, 2), ("partial_fit", "fit", "first batch")]
    quick_params: ClassVar = {"model": ("GaussianMixture, full, k = 8",), "seed": (0,)}
    tables: ClassVar = [
        Table("Held-out log likelihood", ["model"], "likelihood", digits=4),
        Table("CPU seconds", ["model"], "seconds", better="min", digits=1),
    ]

    def setup(self, model: str, seed: int, method: str) -> None:
        self.make, draw, self.sequences = MODELS[model]
        self.X, self.new = draw(2000 if self.quick else 20_000, seed), draw(10_000, 100 + seed)

    def _lengths(self, X: np.ndarray) -> dict[str, list[int]]:
        return {"lengths": [LENGTH] * (len(X) // LENGTH)} if self.sequences else {}

    def _fit(self, method: str) -> Any:
        model = self.make()
        batches = np.split(self.X, len(self.X) // 1000)
        if method == "fit":
            return model.fit(self.X, **self._lengths(self.X))
        for batch in batches[: 1 if method == "first batch" else None]:
            model.partial_fit(batch, **self._lengths(batch))
        return model

    def measure(self, model: str, seed: int, method: str) -> Record:
        found, seconds = cpu_timed(lambda: self._fit(method))
        score = found.score(self.new, **self._lengths(self.new))
        return {"likelihood": score / (len(self.new) if self.sequences else 1), "seconds": seconds}

    def track_likelihood(self, *params: Any) -> float:
        return self.measure(*params)["likelihood"]

    def check(self, records: list[Record]) -> list[Check]:
        of = {key: mean([r["likelihood"] for r in rs]) for key, rs in group(records, "model", "method").items()}
        found = []
        for model in dict.fromkeys(name for name, _ in of):
            behind = of[model, "fit"] - of[model, "partial_fit"]
            found.append(Check(f"{model}: at most .01 behind the fit of all", f"{behind:.4f} behind", behind <= 0.01))
        return found
