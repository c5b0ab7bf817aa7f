"""
The one list of models that every contract is tested with: a model more is an entry more.

An entry says how a small fit is made, what data it is of, and which results it has; what a contract says of a
model's steps is found from the fit itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import dask
import numpy as np

import dask_dca as dca
from dask_dca._registry import MODELS

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

COVARIANCES = ("diag", "full", "tied", "spherical")
METHODS = ("robust", "robust", "paper")


@dataclass(frozen=True)
class Entry:
    """A model as the contracts see it."""

    make: Callable[..., Any]  # the class with the parameters of a quick fit; more are given by name
    kind: str  # of its data
    results: tuple[str, ...]  # methods of X alone: results per row, and numbers of all rows
    options: dict[str, tuple[Any, ...]] = field(default_factory=dict)  # that take other roads through a fit
    sequences: bool = False
    sample: tuple[str, Any] | None = None  # what makes its samples small: where, and a value
    command: str = ""  # of `dask dca fit`, with its options

    @property
    def many(self) -> int:
        """Rows that are more than its samples hold."""
        return 6_000 if self.sample else 24_000

    def given(self, lengths: Any) -> dict[str, Any]:
        return {"lengths": lengths} if self.sequences else {}


ENTRIES: dict[str, Entry] = {
    "NMF": Entry(
        partial(dca.NMF, 3),
        "cones",
        ("transform", "reconstruction_err"),
        {"method": METHODS, "ensemble": ("auto", "gaussian"), "basis": ("rows", "free")},
        command="nmf",
    ),
    "GaussianMixture": Entry(
        partial(dca.GaussianMixture, 3, max_iter=2),
        "clouds",
        ("predict", "predict_proba", "score_samples", "score", "bic", "aic"),
        {"method": METHODS, "covariance_type": (*COVARIANCES, "tied-spherical", "auto"), "max_iter": (0, 2)},
        sample=("mixture.fit._SAMPLE_ROWS", 2048),
        command="mixture --covariance-type spherical --max-iter 2",
    ),
    "GaussianHMM": Entry(
        partial(dca.GaussianHMM, 3, max_iter=2),
        "clouds",
        ("predict", "predict_proba", "score_samples", "score", "decode", "bic", "aic"),
        {"method": METHODS, "covariance_type": COVARIANCES, "recursion": ("auto", "segments", "scan")},
        sequences=True,
        sample=("hmm.start._MAX_SAMPLE_FRAMES", 2048),
        command="hmm",
    ),
    "CategoricalHMM": Entry(
        partial(dca.CategoricalHMM, 3, max_iter=2),
        "symbols",
        ("predict", "predict_proba", "score_samples", "score", "decode"),
        {"recursion": ("auto", "segments", "scan")},
        sequences=True,
        sample=("categorical.fit._SAMPLE_RUNS", (16, 64)),
    ),
    "KalmanFilter": Entry(
        partial(dca.KalmanFilter, 2, max_iter=1),
        "clouds",
        ("filter", "smooth", "predict", "loglikelihood", "forecast"),
        {"method": METHODS, "covariance_type": ("auto", "diag", "full")},
        sequences=True,
        sample=("kalman.fit._MAX_SAMPLE_FRAMES", 2048),
        command="kalman",
    ),
    "LatentDirichletAllocation": Entry(
        partial(dca.LatentDirichletAllocation, 3, min_df=1, max_iter=2),
        "counts",
        ("transform", "score", "perplexity"),
        {"method": METHODS, "subsample": (50_000, 40)},
        command="lda --min-df 2",
    ),
    "SubspaceClustering": Entry(
        partial(dca.SubspaceClustering, 2, subspace_dim=3),
        "cones",
        ("predict",),
        {"method": METHODS, "max_iter": (20, 0)},
        sample=("subspace.fit._MAX_SAMPLE_ROWS", 1024),
        command="subspace",
    ),
}
NAMES = tuple(MODELS)  # of the library: a model without an entry fails every contract
ROWS = {"clouds": 150, "cones": 120, "counts": 90, "symbols": 160}


def data(kind: str, n: int, p: int, rng: np.random.Generator) -> NDArray[Any]:
    """Rows of cones, frames about centres that stay for a while, counts of words, or symbols."""
    if kind == "clouds":
        states = np.repeat(rng.integers(3, size=-(-n // 5)), 5)[:n]
        return 4.0 * rng.standard_normal((3, p))[states] + rng.standard_normal((n, p)) + 3.0
    if kind == "symbols":
        states = np.repeat(rng.integers(3, size=-(-n // 8)), 8)[:n]
        return ((3 * states + rng.integers(0, 5, n)) % (2 * p))[:, None]
    if kind == "counts":
        topics = rng.dirichlet(np.full(4 * p, 0.2), 3)
        return np.asarray(rng.multinomial(rng.integers(2, 40, n), rng.dirichlet(np.full(3, 0.2), n) @ topics), float)
    rays = rng.random((2, 3, p))
    X = np.vstack([rng.dirichlet(np.ones(3), -(-n // 2)) @ some for some in rays])[rng.permutation(n)]
    X += 0.01 * rng.random(X.shape)
    X[rng.integers(n, size=n // 10)] = X[rng.integers(n, size=n // 10)]
    X[rng.integers(n, size=n // 20)] = 0.0
    return X


@cache
def example(name: str) -> NDArray[Any]:
    """Small data of a model, not to be written to."""
    kind = ENTRIES[name].kind
    X = data(kind, ROWS[kind], 6, np.random.default_rng(0))
    X.flags.writeable = False
    return X


@cache
def fitted(name: str) -> Any:
    """A model of its small data, in memory; not to be changed."""
    return ENTRIES[name].make().fit(example(name))


def as_bytes(result: Any) -> Any:
    """A result, or several, as bytes: equal if and only if every bit is."""
    if isinstance(result, tuple | list):
        return tuple(as_bytes(part) for part in dask.compute(*result))  # the passes of all parts once
    found = np.asarray(result.compute() if hasattr(result, "compute") else result)
    content = repr(found.tolist()) if found.dtype.kind in "OUT" else found.tobytes()
    return found.dtype.str, found.shape, content


def fitted_bytes(model: Any) -> dict[str, Any]:
    """Every attribute that the fit has set, as bytes."""
    return {key: as_bytes(value) for key, value in vars(model).items() if key.endswith("_") and key[0] != "_"}


def result_bytes(name: str, model: Any, X: Any, lengths: Any = None) -> dict[str, Any]:
    """Every result of X, as bytes; `forecast` has no lengths."""
    entry = ENTRIES[name]
    given = {method: {} if method in ("forecast", "bic", "aic") else entry.given(lengths) for method in entry.results}
    return {method: as_bytes(getattr(model, method)(X, **given[method])) for method in entry.results}


@cache
def example_results(name: str) -> dict[str, Any]:
    """Every result of a model's small data, in memory."""
    return result_bytes(name, fitted(name), example(name))
