"""Q12: anchors of rows with missing entries. Q13: anchors of rows that arrive in batches."""

from __future__ import annotations

import warnings
from typing import Any, ClassVar

import numpy as np

import dask_dca as dca
from benchmarks import data
from benchmarks.harness import Benchmark, Check, Record, Table, group, mean, timed
from benchmarks.regimes import make, recall
from dask_dca.geometry.solvers import successive_projection

COUNT = 10  # spectra
HOLES = ("random .5", "random .7", "random .9", "sensors .3", "sensors .5", "high values .5")


def mixtures(holes: str, n: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Mixtures of ten spectra, where their entries are missing, the spectra, and the rows that are pure."""
    rng = np.random.default_rng(seed)
    spectra = data.library()
    M = spectra[rng.choice(len(spectra), COUNT, replace=False)]
    A = np.vstack([np.eye(COUNT), rng.dirichlet(np.full(COUNT, 0.5), n - COUNT)])[rng.permutation(n)]
    X = A @ M
    X = np.maximum(X + 0.002 * np.sqrt((X**2).mean()) * rng.standard_normal(X.shape), 0.0)
    kind, share = holes.rsplit(" ", 1)
    if kind == "sensors":  # the bands are those of eight sensors
        drop = (rng.random((n, 8)) < float(share))[:, np.arange(X.shape[1]) * 8 // X.shape[1]]
    else:
        ranks = np.argsort(np.argsort(X, axis=None)).reshape(X.shape) / X.size
        drop = rng.random(X.shape) < float(share) * (2.0 * ranks if kind == "high values" else 1.0)
    return X, drop, M, np.argmax(A == 1.0, axis=0)


def _ours(holes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    model = dca.NMF(COUNT).fit(holes)
    return model.impute(holes), model.anchor_indices_


def _filled(fill: Any) -> Any:
    def both(holes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        filled = fill(holes)
        heights = np.maximum(filled.sum(axis=1, keepdims=True), 1e-12)
        return filled, successive_projection(filled / heights, COUNT)

    return both


def _iterative_svd(holes: np.ndarray, rounds: int = 60) -> np.ndarray:
    mask = ~np.isnan(holes)
    filled = np.where(mask, holes, np.nanmean(holes, axis=0))
    for _ in range(rounds):
        U, s, V = np.linalg.svd(filled, full_matrices=False)
        filled = np.where(mask, holes, (U[:, :COUNT] * s[:COUNT]) @ V[:COUNT])
    return filled


def _masked_nmf(holes: np.ndarray, rounds: int = 200) -> np.ndarray:
    mask, X, rng = ~np.isnan(holes), np.nan_to_num(holes), np.random.default_rng(0)
    W, H = rng.random((len(X), COUNT)), rng.random((COUNT, X.shape[1]))
    for _ in range(rounds):
        W *= (X @ H.T) / np.maximum((mask * (W @ H)) @ H.T, 1e-12)
        H *= (W.T @ X) / np.maximum(W.T @ (mask * (W @ H)), 1e-12)
    return np.where(mask, holes, W @ H)


def _neighbours(holes: np.ndarray) -> np.ndarray:
    from sklearn.impute import KNNImputer

    return KNNImputer(keep_empty_features=True).fit_transform(holes)


def _means(holes: np.ndarray) -> np.ndarray:
    return np.where(np.isnan(holes), np.nanmean(holes, axis=0), holes)


FILLERS = {
    "dask_dca": _ours,
    "iterative_svd": _filled(_iterative_svd),
    "masked_nmf": _filled(_masked_nmf),
    "knn": _filled(_neighbours),
    "means": _filled(_means),
}


class Holes(Benchmark):
    """Spectra of minerals, mixed, with entries missing."""

    id = "Q12"
    title = "Missing entries: mixtures of ten USGS spectra"
    protocol = (
        "2,000 mixtures, Dirichlet(.5) abundances, one pure row per spectrum, noise of .2 %; one seed, which "
        "draws the ten spectra out of 498. Entries are missing at random; by sensor, of which each row lacks some "
        "of eight; or more often the higher they are. Others fill in the missing entries, then successive "
        "projection finds rows: iterative SVD of rank ten (60 rounds), masked NMF (200 multiplicative updates), "
        "scikit-learn's KNNImputer, and column means. Error: of the entries that were missing, as a share of "
        "their norm."
    )
    param_names: ClassVar = ["holes", "seed", "method"]
    params: ClassVar = [HOLES, (0,), tuple(FILLERS)]
    quick_params: ClassVar = {"holes": HOLES[:1], "seed": (0,)}
    tables: ClassVar = [
        Table("Share of the pure rows found", ["holes"], "share"),
        Table("Error of what is filled in", ["holes"], "error", better="min", digits=4),
        Table("Seconds", ["holes"], "seconds", better="min", digits=1),
    ]

    def setup(self, holes: str, seed: int, method: str) -> None:
        self.X, self.drop, self.M, self.pure = mixtures(holes, 400 if self.quick else 2000, seed)

    def measure(self, holes: str, seed: int, method: str) -> dict[str, float]:
        given = np.where(self.drop, np.nan, self.X)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of few entries, which is what is measured
            (filled, chosen), seconds = timed(lambda: FILLERS[method](given))
        left = np.linalg.norm((filled - self.X)[self.drop]) / np.linalg.norm(self.X[self.drop])
        return {"share": float(np.isin(self.pure, chosen).mean()), "error": float(left), "seconds": seconds}

    def track_share(self, *params: Any) -> float:
        return self.measure(*params)["share"]

    def check(self, records: list[Record]) -> list[Check]:
        of = {key: mean([r["share"] for r in rs]) for key, rs in group(records, "holes", "method").items()}
        return [
            Check(f"share found, {holes}: >= {least}", f"{of[holes, 'dask_dca']:.2f}", of[holes, "dask_dca"] >= least)
            for holes, least in (("random .5", 1.0), ("random .9", 0.85))
            if (holes, "dask_dca") in of
        ]


class Batches(Benchmark):
    """A stream against the fit of the whole."""

    id = "Q13"
    title = "Streams: the share of the anchors found in batches"
    protocol = (
        "The regimes of Q1, negative entries set to zero; one seed. partial_fit sees 20 batches, each once (any other"
        " number gives the same bits); fit reads the whole, sample and pass; successive projection has it in memory."
    )
    param_names: ClassVar = ["data", "noise", "seed", "method"]
    params: ClassVar = [
        ("ill, 20,000 x 200, k = 20", "dirichlet1, 20,000 x 200, k = 10"),
        (0.05, 0.2),
        (0,),
        ("partial_fit", "fit", "spa"),
    ]
    quick_params: ClassVar = {"noise": (0.05,), "seed": (0,)}
    tables: ClassVar = [
        Table("Share of the anchors found", ["data", "noise"], "share"),
        Table("Seconds", ["data", "noise"], "seconds", better="min", digits=1),
    ]

    def setup(self, data: str, noise: float, seed: int, method: str) -> None:
        regime, _, rest = data.partition(",")
        self.k = int(rest.rsplit(" ", 1)[1])
        X, self.anchors = make(regime, 2000 if self.quick else 20_000, 200, self.k, noise, seed)
        self.X = np.maximum(X, 0.0)

    def measure(self, data: str, noise: float, seed: int, method: str) -> dict[str, float]:
        chosen, seconds = timed(lambda: self._find(method))
        return {"share": recall(chosen, self.anchors), "seconds": seconds}

    def _find(self, method: str) -> np.ndarray:
        if method == "spa":
            return successive_projection(self.X / self.X.sum(axis=1, keepdims=True), self.k)
        model = dca.NMF(self.k)
        if method == "fit":
            return model.fit(self.X).anchor_indices_
        for batch in np.array_split(self.X, 20):
            model.partial_fit(batch)
        return model.anchor_indices_

    def track_share(self, *params: Any) -> float:
        return self.measure(*params)["share"]

    def check(self, records: list[Record]) -> list[Check]:
        of = {method: mean([r["share"] for r in rs]) for (method,), rs in group(records, "method").items()}
        behind = of["fit"] - of["partial_fit"]
        return [Check("mean share at most .05 behind the fit of the whole", f"{behind:.3f} behind", behind <= 0.05)]
