"""A million rows in ten cones on two small workers: does memory stay flat, what does it cost against one read?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from benchmarks.harness import Check, Record, Table, timed
from benchmarks.subspaces import accuracy
from benchmarks.two_workers import TwoWorkers

if TYPE_CHECKING:
    from pathlib import Path

FIT = "SubspaceClustering.fit"
K, RAYS, NOISE, CHUNK = 10, 10, 0.2, 50_000
TESTED = 20_000


class SubspaceScale(TwoWorkers):
    """S11: a fit on a zarr array that two worker processes of 2 GB read, against the sum of the same array."""

    id = "S11"
    title = "A million rows: SubspaceClustering.fit on zarr against x.sum()"
    protocol = (
        "Ten cones with a common centre, ten rays each, 300 features, noise .2 of a row's norm, float32, "
        "uncompressed chunks of 50,000 rows; two worker processes of one thread and 2 GB; k = 10, default "
        "parameters. Warm file cache; sum, fit, sum, fit. Peak: of the larger worker, up to then. Accuracy: of "
        "20,000 fresh rows."
    )
    param_names: ClassVar = ["n", "p", "turn", "method"]
    params: ClassVar = [(100_000, 1_000_000), (300,), (0, 1), ("sum", FIT)]
    quick_params: ClassVar = {"n": (4000,), "p": (100,), "turn": (0,)}
    tables: ClassVar = [
        Table("Wall seconds", ["n"], "seconds", better="min"),
        Table("CPU seconds of the workers", ["n"], "cpu", better="min"),
        Table("Peak memory of a worker so far, MB", ["n"], "peak_mb", better="min", digits=0),
        Table("Accuracy on fresh rows", ["n"], "accuracy", digits=3),
    ]

    def setup(self, n: int, p: int, turn: int, method: str) -> None:
        self.start()
        self.path = self.folder / f"{n}.zarr"
        if not self.path.exists():
            write_cones(self.path, n, p)

    def measure(self, n: int, p: int, turn: int, method: str) -> Record:
        import dask.array as da
        import zarr

        from dask_dca import SubspaceClustering

        model = SubspaceClustering(K)

        def job() -> Any:
            if method == "sum":
                return da.from_zarr(str(self.path)).sum().compute()
            return model.fit(zarr.open_array(str(self.path), mode="r"))

        if method == "sum" and not turn:
            job()  # into the file cache
        before = self.cpu()
        _, seconds = timed(job)
        record = {"seconds": seconds, "cpu": self.cpu() - before, "peak_mb": self.peak_mb()}
        if method == "sum":
            return record
        X, labels = cone_rows(n + 1, 1000 if self.quick else TESTED, p)
        return record | {"accuracy": accuracy(labels, model.predict(X)), "passes": model.n_passes_}

    def check(self, records: list[Record]) -> list[Check]:
        fits = [record for record in records if record["method"] == FIT]
        if not fits or len(fits) == len(records):
            return [Check("finishes", "no result", None)]
        sizes = sorted({record["n"] for record in fits})
        most, least = ([r for r in fits if r["n"] == n] for n in (sizes[-1], sizes[0]))
        sums = [r["seconds"] for r in records if r["method"] == "sum" and r["n"] == sizes[-1]]
        ratio = float(np.median([r["seconds"] for r in most]) / np.median(sums))
        high, low = (max(r["peak_mb"] for r in part) for part in (most, least))
        found = min(r["accuracy"] for r in fits)
        return [
            Check(f"time against the sum, {sizes[-1]:,} rows (reported)", f"{ratio:.1f} times", True),
            Check(
                "peak of a worker does not grow with n (at most 100 MB)",
                f"{low:.0f} to {high:.0f} MB",
                high <= low + 100,
            ),
            Check("accuracy on fresh rows >= .95", f"{found:.3f}", found >= 0.95),
        ]


def cone_rows(seed: int, n: int, p: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of ten cones with a common centre, float32, and their labels."""
    fixed = np.random.default_rng(7)
    centre = fixed.standard_normal(p) / np.sqrt(p)
    rays = centre + fixed.standard_normal((K, RAYS, p)) / np.sqrt(p)
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, K, n)
    weights = np.zeros((n, K * RAYS), dtype=np.float32)
    weights[np.arange(n)[:, None], labels[:, None] * RAYS + np.arange(RAYS)] = rng.random((n, RAYS), dtype=np.float32)
    X = weights @ rays.reshape(-1, p).astype(np.float32)
    size = NOISE * np.linalg.norm(X, axis=1, keepdims=True) / np.float32(np.sqrt(p))
    return X + size * rng.standard_normal(X.shape, dtype=np.float32), labels


def write_cones(path: Path, n: int, p: int) -> None:
    """Write rows chunk by chunk."""
    import zarr

    array = zarr.create_array(path, shape=(n, p), chunks=(min(n, CHUNK), p), dtype="float32", compressors=None)
    for start in range(0, n, CHUNK):
        stop = min(n, start + CHUNK)
        array[start:stop] = cone_rows(start, stop - start, p)[0]
