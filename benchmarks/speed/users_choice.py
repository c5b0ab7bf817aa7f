"""S9: every model against what a user would pick, at a size that takes the peer a good while."""

from __future__ import annotations

import time
import warnings
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from benchmarks.harness import Benchmark, Check, Record, Table, group, timed
from benchmarks.linear_dynamics import learn, plant
from benchmarks.markov_data import chain
from benchmarks.markov_peers import METHODS as MARKOV
from benchmarks.methods import MissingError
from benchmarks.subspace_data import cones
from benchmarks.subspaces import accuracy, run_method
from benchmarks.topic_peers import METHODS as TOPICS
from benchmarks.topics import perplexity

if TYPE_CHECKING:
    from collections.abc import Callable

MAIN = "dask_dca"


class Task(NamedTuple):
    """Data to learn from, each method's fit, and the loss of what it gives (smaller is better)."""

    data: Any
    methods: dict[str, Callable[[Any], Any]]
    loss: Callable[[Any, Any], float]


def factorization(quick: bool, name: str, rows: int) -> Task:
    """Rows in a cone of 20 rays with noise; the share of the energy that is left when rows are put together again."""
    n, p, k = (500, 40, 4) if quick else (rows, 200, 20)
    rng = np.random.default_rng(0)
    rays = rng.random((k, p), dtype=np.float32)
    X = rng.dirichlet(np.ones(k), n).astype(np.float32) @ rays
    X += np.float32(0.01) * rng.standard_normal(X.shape, dtype=np.float32)
    np.abs(X, out=X)

    def ours(X: np.ndarray) -> Any:
        from dask_dca import NMF

        model = NMF(k, basis="free" if name == "NMF" else "rows").fit(X)
        return model.transform(X), model.components_

    def theirs(X: np.ndarray) -> Any:
        from sklearn import decomposition

        model = getattr(decomposition, name)(k, random_state=0)
        if name == "NMF":
            return model.fit_transform(X), model.components_
        return model.fit(X).transform(X), model.components_  # fit_transform of batches leaves rows as they were drawn

    def left(X: np.ndarray, found: Any) -> float:
        parts = (slice(i, i + 10_000) for i in range(0, n, 10_000))
        energies = [(((X[part] - found[0][part] @ found[1]) ** 2).sum(), (X[part] ** 2).sum()) for part in parts]
        share = float(np.divide(*np.sum(energies, axis=0)))
        if share > 1.0:
            raise ValueError(f"{share:.1f} times the energy is left: worse than no factorization")
        return share

    return Task(X, {MAIN: ours, f"scikit-learn {name}": theirs}, left)


def mixture(quick: bool) -> Task:
    """Rows of unequal Gaussians; less the log density of a fresh row, in nats."""
    data = _blobs(*((600, 6, 3) if quick else (4_000_000, 20, 20)))
    k = 3 if quick else 20

    def ours(X: np.ndarray) -> Any:
        from dask_dca import GaussianMixture

        return GaussianMixture(k, "diag").fit(X)

    def theirs(X: np.ndarray) -> Any:
        from sklearn.mixture import GaussianMixture

        return GaussianMixture(k, covariance_type="diag", random_state=0).fit(X)

    def loss(data: Any, model: Any) -> float:
        return float(-model.score(data[1]))

    return Task(data, {MAIN: lambda d: ours(d[0]), "scikit-learn GaussianMixture": lambda d: theirs(d[0])}, loss)


def clusters(quick: bool) -> Task:
    """The same rows; mean squared distance of fresh rows to the nearest centre. Ten starts of k-means."""
    n, p, k = (600, 6, 3) if quick else (2_000_000, 20, 20)

    def ours(data: Any) -> np.ndarray:
        from dask_dca import GaussianMixture

        return np.asarray(GaussianMixture(k, "tied-spherical").fit(data[0]).means_)

    def theirs(data: Any) -> np.ndarray:
        from sklearn.cluster import KMeans

        return np.asarray(KMeans(k, n_init=10, random_state=0).fit(data[0]).cluster_centers_)

    def loss(data: Any, means: np.ndarray) -> float:
        fresh = data[1]
        squares = (fresh**2).sum(axis=1)[:, None] - 2.0 * fresh @ means.T + (means**2).sum(axis=1)
        return float(squares.min(axis=1).mean())

    return Task(_blobs(n, p, k), {MAIN: ours, "scikit-learn KMeans, 10 starts": theirs}, loss)


@lru_cache(maxsize=1)
def _blobs(n: int, p: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    weights, means = rng.dirichlet(np.full(k, 3.0)), 4.0 * rng.standard_normal((k, p)) / np.sqrt(p / 4)
    deviations = np.exp(0.2 * rng.standard_normal((k, p)))

    def draw(count: int) -> np.ndarray:
        labels = rng.choice(k, count, p=weights)
        return means[labels] + deviations[labels] * rng.standard_normal((count, p))

    return draw(n), draw(5000)


def topics(quick: bool, name: str, documents: int) -> Task:
    """Documents of planted topics; perplexity of held-out words, by document completion."""
    n, v, k = (200, 120, 4) if quick else (documents, 2000, 20)
    rng = np.random.default_rng(0)
    words = rng.dirichlet(np.full(v, 0.05), k)
    counts = _documents(words, n, 80, rng)
    cuts = [int(0.8 * n), int(0.9 * n)]
    parts = (counts[: cuts[0]], counts[cuts[0] : cuts[1]], counts[cuts[1] :])

    def of(name: str) -> Callable[[Any], Any]:
        return lambda data: TOPICS[name](data[0], k)

    methods = {MAIN: of(MAIN), name: of(name)}
    return Task(parts, methods, lambda data, found: perplexity(found, *data))


def _documents(words: np.ndarray, n: int, length: int, rng: np.random.Generator) -> Any:
    from scipy import sparse

    k, v = words.shape
    drawn = np.zeros((n, v), dtype=np.float64)
    mixtures = rng.dirichlet(np.full(k, 0.1), n)
    for some in np.array_split(np.arange(n), max(1, n // 1000)):
        rates = mixtures[some] @ words
        drawn[some] = rng.multinomial(length, rates / rates.sum(axis=1, keepdims=True))
    return sparse.csr_array(drawn)


def states(quick: bool) -> Task:
    """A planted hidden Markov model with Gaussian states; less the log likelihood per fresh frame, in nats."""
    n, p, k = (400, 5, 3) if quick else (300_000, 10, 10)
    data = chain(k, p, 3.0, n, 0)

    def of(name: str) -> Callable[[Any], Any]:
        return lambda data: MARKOV[name](data.frames, None, k, "diag", 0)

    def loss(data: Any, model: Any) -> float:
        return float(-model.score(data.fresh) / len(data.fresh))

    return Task(data, {MAIN: of(MAIN), "hmmlearn GaussianHMM": of("hmmlearn")}, loss)


def dynamics(quick: bool) -> Task:
    """A planted linear system; squared error of prediction one step ahead on fresh frames, over the truth's."""
    data = plant(*((2, 6, 300) if quick else (4, 20, 10_000)), False, 0)
    k = 2 if quick else 4

    def of(name: str) -> Callable[[Any], Any]:
        return lambda data: learn(name, data.X, k, 0)

    methods = {MAIN: of(MAIN), "pykalman EM": of("pykalman")}
    return Task(data, methods, lambda data, found: found.errors(data.fresh) / data.truth.errors(data.fresh))


def subspaces(quick: bool) -> Task:
    """Four cones of ten rays; share of rows in a wrong cluster, by the best matching."""
    data = cones(60.0, 0.1, 0, common=False, **({"n": 60, "p": 40} if quick else {"n": 8000}))

    def of(name: str) -> Callable[[Any], Any]:
        return lambda data: run_method(name, data, 0)[0]

    methods = {MAIN: of(MAIN), "scikit-learn SpectralClustering": of("spectral")}
    return Task(data, methods, lambda data, found: 1.0 - accuracy(data.labels, found))


TASKS: dict[str, Callable[[bool], Task]] = {
    "NMF": partial(factorization, name="NMF", rows=130_000),
    "NMF (as mini-batches)": partial(factorization, name="MiniBatchNMF", rows=2_000_000),
    "GaussianMixture": mixture,
    "GaussianMixture (as k-means)": clusters,
    "LatentDirichletAllocation": partial(topics, name="scikit-learn batch", documents=20_000),
    "LatentDirichletAllocation (as Gibbs)": partial(topics, name="tomotopy 200", documents=50_000),
    "GaussianHMM": states,
    "KalmanFilter": dynamics,
    "SubspaceClustering": subspaces,
}
PEERS = (
    "scikit-learn NMF",
    "scikit-learn MiniBatchNMF",
    "scikit-learn GaussianMixture",
    "scikit-learn KMeans, 10 starts",
    "scikit-learn batch",
    "tomotopy 200",
    "hmmlearn GaussianHMM",
    "pykalman EM",
    "scikit-learn SpectralClustering",
)


class UsersChoice(Benchmark):
    """All models, each with its default parameters."""

    id = "S9"
    title = "Against the libraries that users would choose"
    protocol = (
        "Sizes at which the peer takes about a minute. NMF: 130,000 rows (2,000,000 for mini-batches) x 200 of "
        "float32 in a cone of 20 rays, none of them among the rows, noise .01, loss: the residual as a share of "
        "the energy; with basis='free' against NMF, the default against mini-batches. Mixture: 4,000,000 x 20, k "
        "= 20, diagonal covariances, loss in nats per new row; and 2,000,000 of these rows for k-means, loss the "
        "squared distance of new rows. Topics: 20,000 (scikit- learn) and 50,000 (tomotopy) documents of 80 "
        "words, 2,000 words, k = 20, perplexity by document completion. Hidden Markov model: 300,000 frames of 10 "
        "features, k = 10, loss in nats per new frame. Linear system: 10,000 frames of 20 channels, k = 4, "
        "one-step prediction error relative to the true system's (pykalman: 10 EM steps). Cones: four of 8,000 "
        "rows, p = 300, share of wrong labels. Every method with its default parameters (KMeans: ten starts; "
        "tomotopy: 200 sweeps); CPU seconds of one process with one thread, data in memory. A peer's quality is "
        "reached if the loss is at most its own."
    )
    param_names: ClassVar = ["model", "method"]
    params: ClassVar = [tuple(TASKS), (MAIN, *PEERS)]
    quick_params: ClassVar = {"model": ("NMF", "GaussianMixture (as k-means)", "GaussianHMM")}
    tables: ClassVar = [
        Table("CPU seconds", ["model"], "cpu", better="min"),
        Table("Loss", ["model"], "loss", better="min", digits=4, summary=False),
    ]

    def setup(self, model: str, method: str) -> None:
        self.task = _task(model, self.quick)
        if method not in self.task.methods:
            raise MissingError("")
        small = TASKS[model](True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            small.methods[method](small.data)  # imports, which count for nobody

    def measure(self, model: str, method: str) -> Record:
        from threadpoolctl import threadpool_limits

        with threadpool_limits(1), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # not converged after a default number of steps
            start = time.process_time()
            found, seconds = timed(lambda: self.task.methods[method](self.task.data))
            cpu = time.process_time() - start
            return {"cpu": cpu, "seconds": seconds, "loss": self.task.loss(self.task.data, found)}

    def time_fit(self, model: str, method: str) -> None:
        self.measure(model, method)

    def check(self, records: list[Record]) -> list[Check]:
        checks = []
        for (model,), rows in group(records, "model").items():
            by = {record["method"]: record for record in rows}
            ours = by.pop(MAIN, None)
            for name, peer in by.items() if ours else ():
                ratio, reached = peer["cpu"] / ours["cpu"], ours["loss"] <= peer["loss"]
                text = f"{ratio:.1f} times; loss {ours['loss']:.4g} against {peer['loss']:.4g}"
                must = f"{model}: the quality of {name} in a tenth of its time"
                checks.append(Check(must, text, bool(reached and ratio >= 10.0)))
        return checks


@lru_cache(maxsize=1)
def _task(model: str, quick: bool) -> Task:
    return TASKS[model](quick)
