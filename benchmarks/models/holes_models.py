"""Q14: mixtures and hidden Markov models of rows with missing entries."""

from __future__ import annotations

import warnings
from typing import Any, ClassVar

import numpy as np

import dask_dca as dca
from benchmarks.harness import SHOWN, Benchmark, Check, Record, Table, group, mean, timed

FORMS = ("diag", "full")
MODELS = ("mixture", "chain")
METHODS = ("complete", "dask_dca", "means")
MISSING = 0.3


def planted(model: str, form: str, n: int, seed: int) -> np.ndarray:
    """Rows of five clusters, or frames of four states in each of which one stays for ten frames."""
    rng = np.random.default_rng(seed)
    p, k = (10, 5) if model == "mixture" else (8, 4)
    labels = rng.integers(k, size=n)
    if model == "chain":
        for t in np.flatnonzero(rng.random(n - 1) < 0.9) + 1:
            labels[t] = labels[t - 1]
    noise, means = rng.standard_normal((n, p)), 1.5 * rng.standard_normal((k, p))
    if form == "diag":
        return means[labels] + noise * (0.5 + rng.random((k, p)))[labels]
    roots = rng.standard_normal((k, p, p)) / np.sqrt(p) + 0.5 * np.eye(p)
    return means[labels] + np.einsum("nij,nj->ni", roots[labels], noise)


def filled(X: np.ndarray) -> np.ndarray:
    """Rows with column means in place of their missing entries."""
    return np.where(np.isnan(X), np.nanmean(X, axis=0), X)


class HolesInModels(Benchmark):
    """Likelihood of what was observed of new rows."""

    id = "Q14"
    title = "Missing entries: mixtures and hidden Markov models"
    protocol = (
        "Planted Gaussian mixtures (10 features, five components) and hidden Markov models (8 features, four "
        "states): 4,000 rows to fit, 2,000 new ones, 30 % of all entries missing at random, three seeds. The "
        "complete fit saw the 4,000 rows before entries were lost; means: a fit of rows whose missing entries are "
        "replaced by column means. All three are evaluated on the observed entries of the new rows."
    )
    param_names: ClassVar = ["model", "form", "seed", "method"]
    params: ClassVar = [MODELS, FORMS, (0, 1, 2), METHODS]
    quick_params: ClassVar = {"form": FORMS[:1], "seed": (0,)}
    tables: ClassVar = [
        Table("Log likelihood per observed entry of new rows", ["model", "form"], "likelihood", digits=4),
        Table("Seconds of the fit", ["model", "form"], "seconds", better="min", digits=1),
    ]

    def setup(self, model: str, form: str, seed: int, method: str) -> None:
        n = 450 if self.quick else 6000
        self.X, self.n = planted(model, form, n, seed), 2 * n // 3
        drop = np.random.default_rng(1000 + seed).random(self.X.shape) < MISSING
        self.holes = np.where(drop, np.nan, self.X)

    def measure(self, model: str, form: str, seed: int, method: str) -> dict[str, float]:
        rows = {"complete": self.X, "dask_dca": self.holes, "means": filled(self.holes)}[method][: self.n]
        new = self.holes[self.n :]
        estimator = dca.GaussianMixture(5, form) if model == "mixture" else dca.GaussianHMM(4, form)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", dca.errors.MissingEntriesWarning)  # no heavy tails are planted
            fitted, seconds = timed(lambda: estimator.fit(rows))
        total = fitted.score(new) * (len(new) if model == "mixture" else 1)
        return {"likelihood": total / int((~np.isnan(new)).sum()), "seconds": seconds}

    def track_likelihood(self, *params: Any) -> float:
        return self.measure(*params)["likelihood"]

    def check(self, records: list[Record]) -> list[Check]:
        of = {k: mean([r["likelihood"] for r in rs]) for k, rs in group(records, "model", "form", "method").items()}
        found = []
        for model, form in sorted({key[:2] for key in of}):
            lost = of[model, form, "complete"] - of[model, form, "dask_dca"]
            said = f"{SHOWN.get(model, model)}, {form}"
            gained = of[model, form, "dask_dca"] - of[model, form, "means"]
            found.append(Check(f"nats lost by missing entries, {said}: <= .01", f"{lost:.4f}", lost <= 0.01))
            found.append(Check(f"nats gained over means, {said}: > 0", f"{gained:.4f}", gained > 0.0))
        return found
