"""Clusters of two million rows on two workers, by this library and by dask-ml."""

from __future__ import annotations

import statistics
import time
import warnings
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from benchmarks.harness import Check, Record, Table, group, mean, timed
from benchmarks.methods import MissingError
from benchmarks.mixture_scale import K, mixture_rows, truth, write_mixture
from benchmarks.two_workers import TwoWorkers

if TYPE_CHECKING:
    from collections.abc import Callable

    import dask.array as da

MAIN = "dask_dca"


def _ours(X: da.Array, seed: int) -> np.ndarray:
    from dask_dca import GaussianMixture

    return np.asarray(GaussianMixture(K, "tied-spherical", random_state=seed).fit(X).means_)


def _kmeans(X: da.Array, seed: int) -> np.ndarray:
    from dask_ml.cluster import KMeans

    return np.asarray(KMeans(K, random_state=seed).fit(X.persist()).cluster_centers_)


def _batches(X: da.Array, seed: int) -> np.ndarray:
    from dask_ml.wrappers import Incremental
    from sklearn.cluster import MiniBatchKMeans

    return np.asarray(Incremental(MiniBatchKMeans(K, random_state=seed)).fit(X).cluster_centers_)


METHODS: dict[str, Callable[[da.Array, int], np.ndarray]] = {
    MAIN: _ours,
    "dask-ml KMeans": _kmeans,
    "dask-ml Incremental": _batches,
}


class DaskNeighbours(TwoWorkers):
    """S18: the k-means form of a mixture against dask-ml's clusters, of the same Dask array."""

    id = "S18"
    title = "Clusters of two million rows: against dask-ml"
    protocol = (
        "2,000,000 x 50 of S10's mixture (10 components of unequal weights and variances), float32, zarr chunks "
        "of 131,072 rows; two worker processes of one thread and 2 GB; k = 10, default parameters, three seeds in "
        "turn. dask_dca: GaussianMixture(10, 'tied-spherical'). dask-ml KMeans: its own (k-means||), on the "
        "persisted array, as its documentation has it; Incremental: scikit-learn's MiniBatchKMeans, block by "
        "block. Inertia: mean squared distance of 50,000 fresh rows to the nearest centre, relative to that to "
        "the true means. CPU: of the workers and of the driver."
    )
    param_names: ClassVar = ["n", "seed", "method"]
    params: ClassVar = [(2_000_000,), (0, 1, 2), tuple(METHODS)]
    quick_params: ClassVar = {"n": (4000,), "seed": (0,)}
    tables: ClassVar = [
        Table("Inertia of fresh rows", ["n"], "inertia", better="min", digits=4),
        Table("CPU seconds", ["n"], "cpu", better="min"),
        Table("Wall seconds", ["n"], "seconds", better="min"),
    ]

    def setup(self, n: int, seed: int, method: str) -> None:
        try:
            import dask_ml.cluster  # noqa: F401
        except ImportError:
            raise MissingError("dask-ml is not installed") from None
        self.start()
        self.path = self.folder / f"{n}.zarr"
        if not self.path.exists():
            write_mixture(self.path, n, 50)
            for name in () if self.quick else METHODS:
                self._run(name, 0)  # imports, and the file cache

    def _run(self, method: str, seed: int) -> np.ndarray:
        import dask.array as da

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of neighbours, about what will change
            return METHODS[method](da.from_zarr(str(self.path)), seed)

    def measure(self, n: int, seed: int, method: str) -> Record:
        workers, driver = self.cpu(), time.process_time()
        means, seconds = timed(lambda: self._run(method, seed))
        cpu = self.cpu() - workers + time.process_time() - driver
        fresh = mixture_rows(np.random.default_rng(n + 1), 50_000, 50).astype(float)
        return {"inertia": _inertia(fresh, means) / _inertia(fresh, truth(50)[1]), "cpu": cpu, "seconds": seconds}

    def check(self, records: list[Record]) -> list[Check]:
        by = {name: rows for (name,), rows in group(records, "method").items()}
        if MAIN not in by:
            return []
        ours, peer = by[MAIN], by["dask-ml KMeans"]
        losses = {name: mean([r["inertia"] for r in rows]) for name, rows in by.items()}
        cpu = [statistics.median(r["cpu"] for r in rows) for rows in (ours, peer)]
        text = ", ".join(f"{name} {loss:.4f}" for name, loss in losses.items())
        return [
            Check("inertia at most that of dask-ml", text, losses[MAIN] <= min(losses.values()) + 1e-4),
            Check("CPU seconds: times dask-ml KMeans (reported)", f"{cpu[1] / cpu[0]:.1f} times its speed", None),
        ]


def _inertia(rows: np.ndarray, means: np.ndarray) -> float:
    squares = (rows**2).sum(axis=1)[:, None] - 2.0 * rows @ means.T + (means**2).sum(axis=1)
    return float(squares.min(axis=1).mean())
