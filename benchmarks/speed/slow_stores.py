"""S15: data in a store that takes 50 ms a request and sends 100 MB/s to each connection."""

from __future__ import annotations

import statistics
import time
from typing import Any, ClassVar

import numpy as np

from benchmarks.harness import Check, Record, Table
from benchmarks.slow_store import SlowStore, take
from benchmarks.two_workers import TwoWorkers

P, K = 100, 10
ROW_BYTES = 8 * P
ROUNDS = 3


def write(path: str, megabytes: int, n_bytes: int) -> int:
    """Mixtures of K profiles and noise, in uncompressed chunks. Returns the number of rows."""
    import zarr

    height, rng = megabytes * 10**6 // ROW_BYTES, np.random.default_rng(0)
    n = n_bytes // ROW_BYTES
    stored = zarr.create_array(path, shape=(n, P), chunks=(height, P), dtype="f8", compressors=None)
    profiles = rng.random((K, P))
    for i in range(0, n, height):
        m = min(height, n - i)
        stored[i : i + m] = rng.dirichlet(np.full(K, 0.3), m) @ profiles + 0.01 * rng.random((m, P))
    return n


class SlowStores(TwoWorkers):
    """`NMF.fit` against `x.sum()` of the same array."""

    id = "S15"
    title = "A store of high latency"
    protocol = (
        f"1 GB of float64, {P} features, in uncompressed chunks of a local store that takes 50 ms per request and "
        f"sends 100 MB/s to each connection; two workers of one thread; `x.sum()` and `NMF({K}).fit`, in turn, "
        f"{ROUNDS} times; seconds are medians, and so are the ratios within one turn. Bytes are those requested by "
        "a fit, in multiples of the array."
    )
    param_names: ClassVar = ["chunk_mb"]
    params: ClassVar = [(16, 64)]
    quick_params: ClassVar = {"chunk_mb": (2,)}
    tables: ClassVar = [
        Table("Seconds of x.sum()", ["chunk_mb"], "seconds_sum", "method", better="min"),
        Table("Seconds of a fit", ["chunk_mb"], "seconds", "method", better="min"),
        Table("Sums a fit takes", ["chunk_mb"], "ratio", "method", better="min"),
        Table("Bytes asked for, in arrays", ["chunk_mb"], "arrays", "method", better="min"),
        Table("Most memory of a worker, MB", ["chunk_mb"], "memory", "method", better="min"),
    ]

    def setup(self, chunk_mb: int) -> None:
        """The workers, and the array."""
        import zarr
        from zarr.storage import LocalStore

        self.start("3GB")
        path = self.folder / f"x{chunk_mb}.zarr"
        if not path.exists():
            write(str(path), chunk_mb, 4 * 10**7 if self.quick else 10**9)
        self.X = zarr.open_array(SlowStore(LocalStore(path, read_only=True)), mode="r")

    def measure(self, chunk_mb: int) -> Record:
        """Sums and fits, in turn."""
        import dask.array as da

        x = da.from_array(self.X, chunks=self.X.chunks, name=False)
        turns = [self._turn(x) for _ in range(1 if self.quick else ROUNDS)]
        sums, fits, asked = zip(*turns, strict=True)
        return {
            "method": f"NMF({K})",
            "seconds_sum": statistics.median(sums),
            "seconds": statistics.median(fits),
            "ratio": statistics.median(fit / own for own, fit in zip(sums, fits, strict=True)),
            "arrays": max(asked) / (self.X.shape[0] * ROW_BYTES),
            "memory": self.peak_mb(),
        }

    def _turn(self, x: Any) -> tuple[float, float, int]:
        import dask_dca as dca

        begin = time.perf_counter()
        x.sum().compute()
        middle = time.perf_counter()
        self.client.run(take)
        dca.NMF(K).fit(self.X)
        end = time.perf_counter()
        asked = sum(sum(requested.values()) for requested, _ in self.client.run(take).values())
        return middle - begin, end - middle, asked

    def check(self, records: list[Record]) -> list[Check]:
        """At most 1.1 sums with chunks of 16 MB, 1.5 with chunks of 64 MB."""
        most = {16: 1.1, 64: 1.5}
        return [
            Check(f"at most {limit} sums, {size} MB", f"{r['ratio']:.2f}", r["ratio"] <= limit)
            for size, limit in most.items()
            for r in records
            if r["chunk_mb"] == size
        ]
