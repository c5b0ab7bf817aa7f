"""Q4-auto: the number of components of a mixture, where it is not given."""

from __future__ import annotations

import warnings
from typing import ClassVar, NamedTuple

import numpy as np
from sklearn.metrics import adjusted_rand_score

from benchmarks import mixture_data
from benchmarks.harness import Benchmark, Check, Record, Table, group, mean, timed
from benchmarks.mixture_data import Sample
from benchmarks.mixture_peers import MAIN

PLANTED = {  # form of the covariances, components, features, rows; means 6 deviations apart
    "spherical, k=4 p=10": ("spherical", 4, 10, 1500),
    "diag, k=10 p=20": ("diag", 10, 20, 2000),
    "tied, k=4 p=5": ("tied", 4, 5, 1500),
    "tied, k=8 p=15": ("tied", 8, 15, 2000),
    "full, k=5 p=5": ("full", 5, 5, 1500),
    "full, k=8 p=10": ("full", 8, 10, 2500),
}
REAL = ("iris", "wine", "breast_cancer", "digits, 10 components")
PEER = "least BIC of em"
MOST = 14  # components that scikit-learn's search tries
FORMS = ("full", "tied", "diag", "spherical")


class Number(NamedTuple):
    """A number of components, and labels of the rows (n,)."""

    n_components: int
    labels: np.ndarray


def planted(name: str, seed: int) -> Sample:
    """Rows of a mixture whose components are well apart, with covariances of one form."""
    form, k, p, n = PLANTED[name]
    rng = np.random.default_rng(np.random.SeedSequence([seed, k, p, n]))
    means = 6.0 * rng.standard_normal((k, p)) / np.sqrt(p)
    deviations = 10.0 ** rng.uniform(-0.3, 0.3, (k, 1, 1 if form == "spherical" else p))
    turns = np.linalg.qr(rng.standard_normal((k, p, p)))[0] if form in ("full", "tied") else np.eye(p)
    factors = np.broadcast_to(turns * deviations, (k, p, p))
    factors = np.broadcast_to(factors[:1], (k, p, p)) if form == "tied" else factors
    labels = rng.choice(k, n, p=(rng.dirichlet(np.full(k, 2.0)) + 0.3 / k) / 1.3)
    return Sample(means[labels] + np.einsum("nij,nj->ni", factors[labels], rng.standard_normal((n, p))), labels, k)


def measured(name: str, seed: int) -> Sample:
    """Sets that scikit-learn ships: wine and cancer in standard units, digits by their leading components."""
    from sklearn import datasets
    from sklearn.decomposition import PCA
    from sklearn.preprocessing import scale

    if name == "iris":
        return mixture_data.small(name, seed)
    X, labels = getattr(datasets, f"load_{name.partition(',')[0]}")(return_X_y=True)
    X = PCA(10, random_state=0).fit_transform(X) if name.startswith("digits") else scale(X)
    order = np.random.default_rng(seed).permutation(len(X))
    return Sample(X[order], labels[order], len(np.unique(labels)))


def _own(X: np.ndarray, covariance_type: str, seed: int) -> Number:
    import dask_dca

    model = dask_dca.GaussianMixture("auto", covariance_type, random_state=seed).fit(X)
    return Number(model.n_components_, model.predict(X))


def _least_bic(X: np.ndarray, seed: int) -> Number:
    """What scikit-learn's example of model selection does."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.mixture import GaussianMixture

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        tried = [
            GaussianMixture(n_components=k, covariance_type=form, random_state=seed).fit(X)
            for k in range(1, MOST + 1)
            for form in FORMS
        ]
    best = min(tried, key=lambda model: model.bic(X))
    return Number(best.n_components, best.predict(X))


METHODS = {
    MAIN: lambda X, seed: _own(X, "auto", seed),
    "dask_dca diag": lambda X, seed: _own(X, "diag", seed),
    PEER: _least_bic,
}


class NumberOfComponents(Benchmark):
    """Planted mixtures of every form, and sets with labels."""

    id = "Q4-auto"
    title = "Gaussian mixture, the number of components"
    protocol = (
        "n_components='auto' with its default covariances, and with diagonal ones; scikit-learn: the least BIC of 1 to "
        f"{MOST} components and its four forms, as in its example of model selection. Planted: means six deviations "
        "apart, unequal weights. Sets as scikit-learn ships them: iris as it is, wine and breast_cancer in standard "
        "units, digits by ten principal components. Three draws, or orders of the rows."
    )
    param_names: ClassVar = ["set", "seed", "method"]
    params: ClassVar = [(*PLANTED, *REAL), tuple(range(3)), tuple(METHODS)]
    quick_params: ClassVar = {"set": ("tied, k=4 p=5",), "seed": (0,), "method": (MAIN,)}
    tables: ClassVar = [
        Table("Number of components, less that of the labels", ["set"], "excess", better="none", digits=1),
        Table("Adjusted Rand", ["set"], "rand", digits=3),
        Table("Seconds", ["set"], "seconds", better="min"),
    ]

    def setup(self, name: str, seed: int, method: str) -> None:
        whole = planted(name, seed) if name in PLANTED else measured(name, seed)
        self.data = whole._replace(X=whole.X[::4], labels=whole.labels[::4]) if self.quick else whole

    def measure(self, name: str, seed: int, method: str) -> Record:
        found, seconds = timed(lambda: METHODS[method](self.data.X, seed))
        rand = adjusted_rand_score(self.data.labels, found.labels)
        return {"excess": found.n_components - self.data.k, "rand": rand, "seconds": seconds}

    def check(self, records: list[Record]) -> list[Check]:
        """The planted numbers are found, and no set has worse clusters than by the peer's search."""
        planted_ones = [r for r in records if r["set"] in PLANTED]
        found = {name: sum(r["excess"] == 0 for r in rows) for (name,), rows in group(planted_ones, "method").items()}
        rand = {key: mean([r["rand"] for r in rows]) for key, rows in group(records, "set", "method").items()}
        lost = [
            f"{name} ({rand[name, MAIN]:.3f} < {rand[name, PEER]:.3f})"
            for name in (*PLANTED, *REAL)
            if rand.get((name, MAIN), 1.0) < rand.get((name, PEER), 0.0) - 0.01
        ]
        most = len(planted_ones) // max(len(found), 1)
        said = ", ".join(f"{name} {n}" for name, n in found.items()) + f" of {most}"
        enough = found.get(MAIN, 0) >= found.get(PEER, 0)
        return [
            Check(f"the planted number is found as often as by {PEER}", said, enough),
            Check(f"rand >= (less .01) {PEER}", f"lost in {len(lost)}: {', '.join(lost) or '-'}", not lost),
        ]
