"""Q-ablation: what each step of each model's default recipe is worth, and what it costs."""

from __future__ import annotations

import contextlib
import time
import warnings
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar
from unittest.mock import patch

import numpy as np
from scipy.optimize import linear_sum_assignment

import dask_dca as dca
from benchmarks import linear_dynamics, markov_data, mixture_data, regimes, subspace_data, subspaces
from benchmarks import topics as topic_data
from benchmarks.harness import Benchmark, Check, Record, Table, group
from benchmarks.linear_dynamics_peers import plant, steady
from benchmarks.methods import MissingError

if TYPE_CHECKING:
    from scipy import sparse

DEFAULT = "default"


@dataclass(frozen=True)
class Step:
    """A step of a recipe: how it is taken away, by parameters or by what stands in for functions."""

    options: dict[str, Any] = field(default_factory=dict)
    instead: dict[str, Any] = field(default_factory=dict)  # what stands in for names under dask_dca.

    @contextlib.contextmanager
    def away(self) -> Any:
        """Take the step away."""
        with contextlib.ExitStack() as stack:
            for name, other in self.instead.items():
                stack.enter_context(patch(f"dask_dca.{name}", other))
            yield


def _random_rows(candidates: np.ndarray, k: int) -> np.ndarray:
    return candidates[np.random.default_rng(0).choice(len(candidates), k, replace=len(candidates) < k)]


def _spread_rows(candidates: np.ndarray, k: int) -> np.ndarray:
    from dask_dca.models.kmeans import kmeans_plusplus

    return kmeans_plusplus(candidates, k, np.random.default_rng(0))


def _no_moves(rows: Any, start: Any, shrinkage: Any) -> Any:
    return start


def _no_tuning(rows: Any, responsibilities: Any, mixture: Any, shrinkage: Any, targets: Any) -> Any:
    return shrinkage


def _random_words(points: Any, candidates: np.ndarray, k: int) -> np.ndarray:
    return np.sort(np.random.default_rng(0).choice(candidates, k, replace=False))


def _spa_words(points: Any, candidates: np.ndarray, k: int) -> np.ndarray:
    from dask_dca.models.lda.topics import select_words

    return select_words(points, np.flatnonzero(points.recovery.any(axis=1)), k)


def _ungrouped(points: Any, anchors: np.ndarray, descend: Any) -> Any:
    return points.recovery[anchors], None


def _random_tails(tails: np.ndarray, k: int) -> np.ndarray:
    return np.random.default_rng(0).integers(len(tails), size=k)


def _first_centres(rows: np.ndarray, landmarks: np.ndarray, k: int) -> Any:
    from dask_dca.models.kmeans import kmeans_plusplus, lloyd
    from dask_dca.models.subspace.landmarks import quantise

    best = lloyd(rows, kmeans_plusplus(rows, k, np.random.default_rng(0)))
    return best.labels, quantise(best.centres)


STEPS: dict[str, dict[str, Step]] = {
    "mixture": {
        "anchors (k-means++)": Step(instead={"models.mixture.start.choose_anchors": _spread_rows}),
        "choice among candidates (random ones)": Step(instead={"models.mixture.start.choose_anchors": _random_rows}),
        "principal directions (features themselves)": Step(instead={"models.mixture.start._SPARE": 1000}),
        "split and merge": Step(instead={"models.mixture.search.split_and_merge": _no_moves}),
        "choice of pulls": Step(instead={"models.mixture.search.tune_own": _no_tuning}),
        "full covariances": Step({"covariance_type": "diag"}),
        "passes over all rows": Step({"max_iter": 0}),
    },
    "hmm": {
        "anchors (random tails)": Step(instead={"models.hmm.start._select_anchors": _random_tails}),
        "starts by lifted features": Step(instead={"models.hmm.start._REACHES": ()}),
        "split and merge": Step(instead={"models.hmm.fit.split_and_merge": lambda model, *_, **__: model}),
        "long steps": Step(instead={"models.hmm.fit._LOOKS": (1, 1)}),
        "steps over all frames": Step({"max_iter": 0}),
    },
    "kalman": {
        "EM passes": Step({"max_iter": 0}),
        "shrinkage of correlations": Step({"covariance_type": "diag"}),
    },
    "lda": {
        "divide (successive projection on all words)": Step(instead={"models.lda.fit.select_words": _spa_words}),
        "anchors (random words)": Step(instead={"models.lda.fit.select_words": _random_words}),
        "vertices from groups of words": Step(instead={"models.lda.fit.grouped_vertices": _ungrouped}),
        "EM passes": Step({"max_iter": 0}),
        "EM passes but two": Step({"max_iter": 2}),
    },
    "subspace": {
        "sweeps": Step({"max_iter": 0}),
        "codes again where there are no clear parts": Step({"damping": 0.0}),
        "Ward's tree (k-means++)": Step(instead={"models.subspace.fit._k_means": _first_centres}),
        "half of the landmarks": Step({"n_landmarks": 1000}),
    },
    "nmf": {
        "whitened and isotropic directions": Step({"ensemble": "row-space"}),
        "row-space directions": Step({"ensemble": "gaussian"}),
        "selection by reach (most votes)": Step({"selection": "votes"}),
        "swaps by volume": Step(instead={"geometry.selection.widen_simplex": lambda places, chosen, **_: chosen}),
        "XRAY on few noisy rows": Step(instead={"anchoring.robust._is_even": lambda heights: False}),
        "three quarters of the planes": Step({"n_subproblems": 150}),
    },
}
CASES: dict[str, tuple[str, ...]] = {
    "mixture": ("paper, variance 3", "paper, variance 5", "unequal k=10 sep 2.5", "unequal k=20 sep 4, scales"),
    "hmm": ("k=6 p=20 sep 2.5", "k=8 p=4 sep 3", "variances k=4 p=6"),
    "kalman": ("4 x 20, n 1e3", "4 x 20 correlated, n 1e3", "4 x 20, n 1e4"),
    "lda": ("k=20", "k=20, correlated", "k=50, short"),
    "subspace": ("apart", "common centre", "narrow"),
    "nmf": ("plain", "near-duplicates", "outliers", "heteroscedastic", "ill", "few rows"),
}
MEASURES = {
    "mixture": "adjusted Rand",
    "hmm": "held-out log likelihood per frame, less the truth's",
    "kalman": "minus the excess one-step error",
    "lda": "minus the L1 error of topics",
    "subspace": "accuracy of labels",
    "nmf": "share of the anchors found",
}


@lru_cache(maxsize=1)
def data_of(model: str, case: str, seed: int) -> Any:
    """The data of a case, as the benchmarks of quality draw them."""
    if model == "mixture":
        if case.startswith("paper"):
            return mixture_data.paper(float(case[-1]), 0.5, seed)
        return mixture_data.unequal(case.removeprefix("unequal "), seed)
    if model == "hmm":
        k, p, apart, kind = {"k=6": (6, 20, 2.5, "plain"), "k=8": (8, 4, 3.0, "plain")}.get(
            case[:3], (4, 6, 0.0, "variances")
        )
        return markov_data.chain(k, p, apart, 2000, seed, kind)
    if model == "kalman":
        k, p, n, correlated = linear_dynamics.SHAPES[case]
        return plant(k, p, n, correlated, seed)
    if model == "lda":
        k, length = (50, 50) if "short" in case else (20, 200)
        return _documents(k, length, "correlated" in case, seed)
    if model == "subspace":
        spans = {"apart": (60, 0.5, False), "common centre": (60, 0.2, True), "narrow": (30, 0.8, False)}
        span, noise, common = spans[case]
        return subspace_data.cones(span, noise, seed, common=common)
    n, p = (300, 500) if case == "few rows" else (3000, 100)
    return regimes.plant("dirichlet1" if case in ("plain", "few rows") else case, n, p, 20, 0.3, seed)


def _documents(k: int, length: int, correlated: bool, seed: int) -> tuple[sparse.csr_array, np.ndarray]:
    X, topics = topic_data.planted(2000, 1000, k, length, correlated)
    half = np.random.default_rng(seed).permutation(X.shape[0])[:1500]
    return X[half], topics


def fitted(model: str, data: Any, seed: int, options: dict[str, Any]) -> Any:
    """A fit with the default recipe, except for the options."""
    if model == "mixture":
        return dca.GaussianMixture(data.k, random_state=seed, **options).fit(data.X)
    if model == "hmm":
        return dca.GaussianHMM(len(data.means), random_state=seed, **options).fit(data.frames)
    if model == "kalman":
        return dca.KalmanFilter(len(data.A), random_state=seed, **options).fit(data.X)
    if model == "lda":
        return dca.LatentDirichletAllocation(len(data[1]), random_state=seed, **options).fit(data[0])
    if model == "subspace":
        return dca.SubspaceClustering(data.k, random_state=seed, **options).fit(data.X)
    return dca.find_anchors(data.X, len(data.anchors), random_state=seed, **options)


def quality(model: str, data: Any, found: Any) -> float:
    """How good a fit is; more is better."""
    if model == "mixture":
        from sklearn.metrics import adjusted_rand_score

        return float(adjusted_rand_score(data.labels, found.predict(data.X)))
    if model == "hmm":
        truth = dca.GaussianHMM(len(data.means))
        truth.startprob_, truth.transmat_, truth.means_ = data.startprob, data.transmat, data.means
        truth.covars_ = data.deviations**2
        return float(found.score(data.fresh) - truth.score(data.fresh)) / len(data.fresh)
    if model == "kalman":
        noise = found.observation_covariance_
        own = steady(
            found.transition_matrices_,
            found.observation_matrices_,
            found.transition_covariance_,
            np.diag(noise) if noise.ndim == 1 else noise,
            found.observation_offsets_,
        )
        return 1.0 - own.errors(data.fresh) / data.truth.errors(data.fresh)
    if model == "lda":
        apart = np.abs(found.components_[:, None] - data[1][None]).sum(axis=2)
        return -float(np.mean(apart[linear_sum_assignment(apart)]))
    if model == "subspace":
        return subspaces.accuracy(data.labels, found.labels_)
    return regimes.recall(found.indices, data.anchors)


class Ablation(Benchmark):
    """Every step of every recipe, taken away by itself."""

    id = "Q-ablation"
    title = "What each step of a recipe is worth"
    protocol = (
        "Default parameters; one step at a time is left out, or replaced by the cheapest that there is (in brackets),"
        " on data of the benchmarks of quality in memory, five seeds for each of three or four cases. Quality: "
        + "; ".join(f"{name}: {text}" for name, text in MEASURES.items())
        + ". Lost: the default's quality less that without the step, on the same data and seed."
        " CPU: seconds of the fit without the step over the default's."
    )
    param_names: ClassVar = ["model", "case", "seed", "method"]
    params: ClassVar = [
        tuple(STEPS),
        tuple(dict.fromkeys(case for cases in CASES.values() for case in cases)),
        tuple(range(5)),
        (DEFAULT, *dict.fromkeys(step for steps in STEPS.values() for step in steps)),
    ]
    quick_params: ClassVar = {"model": ("nmf",), "case": ("few rows",), "seed": (0,)}
    tables: ClassVar = [
        Table("Quality of the default", ["model", "case"], "quality", digits=3, where={"method": DEFAULT}),
        Table("Lost without the step (mean and worst)", ["model", "method"], "lost", "what", "min", 4),
        Table("Standard error of what is lost", ["model", "method"], "error", "what", "none", 4),
        Table("CPU without the step, the default's being 1", ["model", "method"], "cpu", "what", "none", 2),
    ]

    def setup(self, model: str, case: str, seed: int, method: str) -> None:
        if case not in CASES[model] or method not in (DEFAULT, *STEPS[model]):
            raise MissingError("")
        self.data = data_of(model, case, seed)

    def measure(self, model: str, case: str, seed: int, method: str) -> Record:
        found, seconds = self._run(model, seed, Step() if method == DEFAULT else STEPS[model][method])
        if method == DEFAULT:
            found, seconds = self._run(model, seed, Step())  # once more, with all imported
            self.default = found, seconds
            return {"what": "default", "quality": found, "seconds": seconds, "lost": 0.0, "cpu": 1.0, "error": 0.0}
        best, before = self.default
        return {"what": "step", "quality": found, "seconds": seconds, "lost": best - found, "cpu": seconds / before}

    def _run(self, model: str, seed: int, step: Step) -> tuple[float, float]:
        begin = time.process_time()
        with warnings.catch_warnings(), step.away():
            warnings.simplefilter("ignore")
            found = fitted(model, self.data, seed, step.options)
            seconds = time.process_time() - begin
            return quality(model, self.data, found), seconds

    def check(self, records: list[Record]) -> list[Check]:
        """Steps without which nothing is lost, beyond twice the standard error."""
        useless = []
        for (model, method), some in group(
            [one for one in records if one["what"] == "step"], "model", "method"
        ).items():
            lost = np.array([one["lost"] for one in some])
            error = float(lost.std() / np.sqrt(len(lost)))
            for one in some:
                one["error"] = error
            if lost.mean() <= 2.0 * error:
                useless.append(f"{model}: {method} ({lost.mean():.4f} +- {error:.4f})")
        return [Check("steps without which no more is lost than chance explains", "; ".join(useless) or "-", None)]
