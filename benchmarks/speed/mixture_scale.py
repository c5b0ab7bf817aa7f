"""A mixture of ten million rows on two small workers: does it finish, does memory stay flat, what does it cost?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from benchmarks.harness import Check, Record, Table, timed
from benchmarks.two_workers import TwoWorkers

if TYPE_CHECKING:
    from pathlib import Path

FIT = "GaussianMixture.fit"
K, SEPARATION, CHUNK = 10, 4.0, 131_072


class MixtureScale(TwoWorkers):
    """S10: a fit on a zarr array that two worker processes of 2 GB read, against the sum of the same array."""

    id = "S10"
    title = "Ten million rows: GaussianMixture.fit on zarr against x.sum()"
    protocol = (
        "A mixture of 10 components, unequal and diagonal, 50 features, float32, uncompressed chunks of 131,072 "
        "rows, generated chunk by chunk; two worker processes of one thread and 2 GB; k = 10, default parameters. "
        "Warm file cache. Peak: of the larger worker, up to then. Loss: nats per row, of fresh rows, against the "
        "truth."
    )
    param_names: ClassVar = ["n", "p", "turn", "method"]
    params: ClassVar = [(1_000_000, 10_000_000), (50,), (0,), ("sum", FIT)]
    quick_params: ClassVar = {"n": (4000,), "p": (10,)}
    tables: ClassVar = [
        Table("Wall seconds", ["n"], "seconds", better="min"),
        Table("CPU seconds of the workers", ["n"], "cpu", better="min"),
        Table("Peak memory of a worker so far, MB", ["n"], "peak_mb", better="min", digits=0),
    ]

    def setup(self, n: int, p: int, turn: int, method: str) -> None:
        self.start()
        self.path = self.folder / f"{n}.zarr"
        if not self.path.exists():
            write_mixture(self.path, n, p)

    def measure(self, n: int, p: int, turn: int, method: str) -> Record:
        import dask.array as da
        import zarr

        from dask_dca import GaussianMixture

        model = GaussianMixture(K)

        def job() -> Any:
            if method == "sum":
                return da.from_zarr(str(self.path)).sum().compute()
            return model.fit(zarr.open_array(str(self.path), mode="r"))

        if method == "sum":
            job()  # into the file cache
        before = self.cpu()
        _, seconds = timed(job)
        record = {"seconds": seconds, "cpu": self.cpu() - before, "peak_mb": self.peak_mb()}
        return record if method == "sum" else record | {"loss": self._loss(model, n, p), "passes": 5 + model.n_iter_}

    def _loss(self, model: Any, n: int, p: int) -> float:
        """Likelihood of fresh rows under the truth, less that under the model."""
        X = mixture_rows(np.random.default_rng(n + 1), 5000 if self.quick else 50_000, p).astype(float)
        weights, means, variances = truth(p)
        logs = -0.5 * (((X[:, None] - means) ** 2 / variances) + np.log(2 * np.pi * variances)).sum(axis=2)
        return float(np.logaddexp.reduce(logs + np.log(weights), axis=1).mean() - model.score(X))

    def check(self, records: list[Record]) -> list[Check]:
        cells = {(record["n"], record["method"]): record for record in records}
        sizes = sorted({n for n, method in cells if method == FIT})
        if not sizes or (sizes[-1], "sum") not in cells:
            return [Check("finishes", "no result", None)]
        most, least = cells[sizes[-1], FIT], cells[sizes[0], FIT]
        ratio = most["seconds"] / cells[sizes[-1], "sum"]["seconds"]
        passes = most["passes"]
        return [
            Check(f"time against the sum ({passes} passes over all rows; reported)", f"{ratio:.1f} times", True),
            Check(
                "peak memory of a worker does not grow with n (at most 100 MB)",
                f"{least['peak_mb']:.0f} to {most['peak_mb']:.0f} MB",
                most["peak_mb"] - least["peak_mb"] <= 100,
            ),
            Check("likelihood of fresh rows within .01 of the truth's", f"{most['loss']:.4f}", most["loss"] <= 0.01),
        ]


def truth(p: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Weights, means and variances of the components."""
    rng = np.random.default_rng(7)
    weights = rng.dirichlet(np.full(K, 3.0)) + 0.03
    means = SEPARATION * rng.standard_normal((K, p)) / np.sqrt(p)
    return weights / weights.sum(), means, np.exp(0.4 * rng.standard_normal((K, p)))


def mixture_rows(rng: np.random.Generator, n: int, p: int) -> np.ndarray:
    """Rows drawn from the truth, float32."""
    weights, means, variances = truth(p)
    labels = rng.choice(K, n, p=weights)
    noise = rng.standard_normal((n, p), dtype=np.float32)
    return means.astype(np.float32)[labels] + np.sqrt(variances).astype(np.float32)[labels] * noise


def write_mixture(path: Path, n: int, p: int) -> None:
    """Write rows chunk by chunk."""
    import zarr

    array = zarr.create_array(path, shape=(n, p), chunks=(min(n, CHUNK), p), dtype="float32", compressors=None)
    for start in range(0, n, CHUNK):
        stop = min(n, start + CHUNK)
        array[start:stop] = mixture_rows(np.random.default_rng(start), stop - start, p)
