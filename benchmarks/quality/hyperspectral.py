"""Q3: endmembers and abundances of hyperspectral scenes, against the published truth."""

from __future__ import annotations

import warnings
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from benchmarks import data, methods
from benchmarks.harness import Benchmark, Check, Plot, Record, Table, group, mean, timed
from benchmarks.peers import sisal
from benchmarks.scores import unmixing
from dask_dca import NMF

FACTORIZATIONS = ("sklearn_nmf", "sklearn_nmf_best")
BASES = ("dca_rays", "dca_auto")  # of NMF
METHODS = (*methods.ALL, *BASES, "sisal", *FACTORIZATIONS)
MIXTURES = lru_cache(maxsize=2)(data.mixtures)


def endmembers(method: str, X: np.ndarray, k: int, seed: int) -> np.ndarray:
    """Endmembers (k, p): the pixels that `method` finds, or what it makes of them."""
    if method == "sisal":
        return sisal(X, k, seed)
    if method in BASES:
        return NMF(k, basis=method[4:], random_state=seed).fit(np.maximum(X, 0.0)).components_
    if method not in FACTORIZATIONS:
        return X[methods.find(method, X, k, seed)]
    settings: list[dict] = [{}]
    if method == "sklearn_nmf_best":
        settings = [{"max_iter": 1000}, {"max_iter": 500, "init": "random", "random_state": seed}]
    models = [_factorize(X, k, options) for options in settings]
    return min(models, key=lambda model: model.reconstruction_err_).components_


def _factorize(X: np.ndarray, k: int, options: dict) -> Any:
    from sklearn.decomposition import NMF

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it says when it stops before convergence; that is its default
        return NMF(k, **{"random_state": 0, **options}).fit(np.maximum(X, 0))


class _Unmixing(Benchmark):
    scene: data.Scene

    def score(self, method: str, seed: int) -> dict[str, float]:
        X, M, A = self.scene
        found, seconds = timed(lambda: endmembers(method, X, len(M), seed))
        return unmixing(X, found, M, A) | {"seconds": seconds}

    def track_angle(self, *params: Any) -> float:
        return self.measure(*params)["angle"]

    def track_rmse(self, *params: Any) -> float:
        return self.measure(*params)["rmse"]

    def check(self, records: list[Record]) -> list[Check]:
        return [_best(records, "angle"), _best(records, "rmse")]


class Samson(_Unmixing):
    """A real scene: three endmembers."""

    id = "Q3-samson"
    title = "Hyperspectral: Samson, 9,025 pixels x 156 bands, k = 3"
    protocol = (
        "Angle: mean over endmembers of the degrees to the published spectrum, best matching. Abundances by"
        " least squares on the simplex; RMSE to the published ones. Three seeds."
    )
    param_names: ClassVar = ["scene", "seed", "method"]
    params: ClassVar = [("samson",), (0, 1, 2), METHODS]
    quick_params: ClassVar = {"seed": (0,)}
    tables: ClassVar = [
        Table("Spectral angle (degrees)", ["scene"], "angle", better="min"),
        Table("Abundances, RMSE", ["scene"], "rmse", better="min", digits=3),
        Table("Seconds", ["scene"], "seconds", better="min", digits=3),
    ]

    def setup(self, scene: str, seed: int, method: str) -> None:
        whole = data.samson()
        self.scene = whole._replace(X=whole.X[::8], A=whole.A[::8]) if self.quick else whole
        methods.require(method)

    def measure(self, scene: str, seed: int, method: str) -> dict[str, float]:
        return self.score(method, seed)


class Mixtures(_Unmixing):
    """Real spectra of twelve minerals, mixed with known abundances."""

    id = "Q3-usgs"
    title = "Hyperspectral: mixtures of twelve USGS minerals"
    protocol = (
        "5,000 pixels, Dirichlet(.5) abundances, ten pure pixels per mineral, Gaussian noise at 20, 30 and 40 dB; "
        "three seeds. Angle and RMSE as for Samson; worst angle: of the worst mineral."
    )
    param_names: ClassVar = ["n", "snr", "seed", "method"]
    params: ClassVar = [(5000,), (20, 30, 40), (0, 1, 2), METHODS]
    quick_params: ClassVar = {"n": (120,), "snr": (30,), "seed": (0,)}
    tables: ClassVar = [
        Table("Spectral angle (degrees)", ["snr"], "angle", better="min"),
        Table("Spectral angle (degrees), worst mineral", ["snr"], "worst_angle", better="min"),
        Table("Abundances, RMSE", ["snr"], "rmse", better="min", digits=3),
        Table("Seconds", ["snr"], "seconds", better="min", digits=3),
    ]
    plots: ClassVar = [Plot("twelve minerals", "snr", ["angle", "rmse", "seconds"])]

    def setup(self, n: int, snr: float, seed: int, method: str) -> None:
        self.scene = MIXTURES(n, snr, seed)
        methods.require(method)

    def measure(self, n: int, snr: float, seed: int, method: str) -> dict[str, float]:
        return self.score(method, seed)


LIFT = 100.0  # of the rows' mean sum: the constant that stands for what all rows have in common


class Oracle(_Unmixing):
    """What is in reach of the lost scenes, for who knows the truth, or that shares sum to one."""

    id = "Q3-oracle"
    title = "Hyperspectral: scenes that a peer wins, with prior knowledge"
    protocol = (
        "Samson, and the twelve minerals at 20 dB; three seeds. Purest rows: for every endmember the pixel of its "
        "largest true share. True subspace: find_anchors on pixels projected on the span of the true endmembers. "
        "Sums known: find_anchors on pixels with a large constant column, so that scaling to height one keeps "
        "their brightness, as VCA does. Angle as for Samson."
    )
    param_names: ClassVar = ["scene", "seed", "method"]
    params: ClassVar = [
        ("samson", "minerals, 20 dB"),
        (0, 1, 2),
        ("dask_dca", "purest rows", "true subspace", "sums known", "vca", "xray_max"),
    ]
    quick_params: ClassVar = {"scene": ("minerals, 20 dB",), "seed": (0,)}
    tables: ClassVar = [
        Table("Spectral angle (degrees)", ["scene"], "angle", better="min"),
        Table("Abundances, RMSE", ["scene"], "rmse", better="min", digits=3),
    ]

    def setup(self, scene: str, seed: int, method: str) -> None:
        self.scene = data.samson() if scene == "samson" else MIXTURES(400 if self.quick else 5000, 20, seed)

    def measure(self, scene: str, seed: int, method: str) -> dict[str, float]:
        X, M, A = self.scene
        return unmixing(X, X[self._rows(method, seed)], M, A)

    def _rows(self, method: str, seed: int) -> np.ndarray:
        X, M, A = self.scene
        if method == "purest rows":
            return A.argmax(axis=0)
        if method == "true subspace":
            V = np.linalg.svd(M, full_matrices=False)[2]
            X, method = X @ V.T @ V, methods.MAIN
        if method == "sums known":
            X, method = np.column_stack([X, np.full(len(X), LIFT * X.sum(axis=1).mean())]), methods.MAIN
        return methods.find(method, X, len(M), seed)

    def check(self, records: list[Record]) -> list[Check]:
        means = {name: mean([r["angle"] for r in rs]) for (name,), rs in group(records, "method").items()}
        if not means:
            return []
        text = ", ".join(f"{name} {angle:.2f}" for name, angle in means.items())
        return [Check("as near as the purest rows", text, means[methods.MAIN] <= means["purest rows"])]


def _best(records: list[Record], value: str) -> Check:
    must = f"mean {value} <= the best peer's"
    means = {name: mean([r[value] for r in rs]) for (name,), rs in group(records, "method").items()}
    peers = {name: result for name, result in means.items() if name not in (*methods.LIBRARY, *BASES)}
    if methods.MAIN not in means or not peers:
        return Check(must, "not run", None)
    best = min(peers, key=peers.get)
    text = f"{means[methods.MAIN]:.4g}, best peer {best} {peers[best]:.4g}"
    return Check(must, text, means[methods.MAIN] <= peers[best])
