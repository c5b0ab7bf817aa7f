"""S13: one large block, where one group of planes leaves all threads but one idle."""

from __future__ import annotations

import statistics
import time
from typing import Any, ClassVar

import numpy as np

from benchmarks.harness import Benchmark, Check, Record, Table

N, P, K = 400_000, 200, 20
SMALL = 20_000
ROUNDS = 7


def make_block(n: int) -> np.ndarray:
    """Mixtures of K profiles and noise."""
    rng = np.random.default_rng(0)
    rows = rng.dirichlet(np.full(K, 0.3), n) @ rng.random((K, P))
    return rows + 0.01 * rng.random(rows.shape)


class FewBlocks(Benchmark):
    """One block on two workers of two threads each, with one group of planes and with as many as fill the threads."""

    id = "S13"
    title = "One large block: groups of planes"
    protocol = (
        f"One block of {N:,} x {P} float64, kept on a cluster of two processes of two threads each; "
        f"`find_anchors(X, {K})` with one group of planes and with as many as the threads, in turn, {ROUNDS} times; "
        "seconds are medians, and so is the ratio of the two in one turn."
    )
    param_names: ClassVar = ["size"]
    params: ClassVar = [(N,)]
    quick_params: ClassVar = {"size": (SMALL,)}
    tables: ClassVar = [
        Table("Seconds of a fit", ["size"], "seconds_one", "method", better="min"),
        Table("The same with groups", ["size"], "seconds_groups", "method", better="min"),
        Table("Times as fast with groups", ["size"], "ratio", "method"),
    ]

    def setup(self, size: int) -> None:
        """The cluster, and the block on it."""
        import dask
        import dask.array as da
        from distributed import Client, LocalCluster

        self.cluster = LocalCluster(n_workers=2, threads_per_worker=2, dashboard_address=None)
        self.client = Client(self.cluster)
        self.X = da.from_delayed(dask.delayed(make_block)(size), (size, P), dtype=np.float64).persist()
        self.X.sum().compute()

    def measure(self, size: int) -> Record:
        """Fits with one group and with all, in turn."""
        turns = [(self._seconds(1), self._seconds(None)) for _ in range(ROUNDS if size == N else 1)]
        (_, one), (_, many) = turns[-1]
        return {
            "method": "find_anchors",
            "seconds_one": statistics.median(a[0] for a, _ in turns),
            "seconds_groups": statistics.median(b[0] for _, b in turns),
            "ratio": statistics.median(a[0] / b[0] for a, b in turns),
            "same": bool((one == many).all()),
        }

    def _seconds(self, n_groups: int | None) -> tuple[float, Any]:
        from unittest.mock import patch

        import dask_dca as dca
        from dask_dca.engine import divide

        cut = divide.plane_groups
        begin = time.perf_counter()
        with patch.object(divide, "plane_groups", lambda rows, n, given: cut(rows, n, n_groups)):
            found = dca.find_anchors(self.X, K)
        return time.perf_counter() - begin, found.indices

    def check(self, records: list[Record]) -> list[Check]:
        """At least 1.5 times as fast, the same anchors."""
        ratios = [record["ratio"] for record in records]
        if not ratios or self.quick:
            return []
        same = all(record["same"] for record in records)
        return [
            Check("at least 1.5 times as fast as with one group", f"{min(ratios):.2f}", min(ratios) >= 1.5),
            Check("the same anchors", "yes" if same else "no", same),
        ]

    def close(self) -> None:
        """End the cluster."""
        self.client.close()
        self.cluster.close()
