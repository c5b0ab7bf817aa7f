"""S13: one large block, which leaves all threads but one idle unless its rows or its planes are shared out."""

from __future__ import annotations

import statistics
import time
from typing import Any, ClassVar

import numpy as np

from benchmarks.harness import Check, Record, Table
from benchmarks.two_workers import TwoWorkers

N, P, K = 400_000, 200, 20
SMALL = 20_000
ROUNDS = 7


def make_block(n: int) -> np.ndarray:
    """Mixtures of K profiles and noise."""
    rng = np.random.default_rng(0)
    rows = rng.dirichlet(np.full(K, 0.3), n) @ rng.random((K, P))
    return rows + 0.01 * rng.random(rows.shape)


class FewBlocks(TwoWorkers):
    """One block on two workers of two threads each: one task, groups of planes, and parts of its rows."""

    id = "S13"
    title = "One large block: parts of its rows, and groups of planes"
    threads = 2
    protocol = (
        f"One block of {N:,} x {P} float64, kept on a cluster of two processes of two threads each; "
        f"`find_anchors(X, {K})` with one task for the block, with as many groups of planes as threads, and with as "
        f"many parts of its rows (the default), in turn, {ROUNDS} times; seconds are medians, and so are the ratios "
        "within one turn."
    )
    param_names: ClassVar = ["size"]
    params: ClassVar = [(N,)]
    quick_params: ClassVar = {"size": (SMALL,)}
    tables: ClassVar = [
        Table("Seconds of a fit, one task", ["size"], "seconds_one", "method", better="min"),
        Table("The same with groups of planes", ["size"], "seconds_groups", "method", better="min"),
        Table("The same with parts of the rows", ["size"], "seconds_parts", "method", better="min"),
        Table("Times as fast with groups", ["size"], "ratio_groups", "method"),
        Table("Times as fast with parts", ["size"], "ratio", "method"),
    ]

    def setup(self, size: int) -> None:
        """The cluster, and the block on it."""
        import dask
        import dask.array as da

        self.start("auto")
        self.X = da.from_delayed(dask.delayed(make_block)(size), (size, P), dtype=np.float64).persist()
        self.X.sum().compute()

    def measure(self, size: int) -> Record:
        """Fits the three ways, in turn."""
        ways = ({"parts": 1, "groups": 1}, {"parts": 1}, {})
        rounds = range(ROUNDS if size == N else 1)
        turns = [[self._seconds(**way) for way in ways] for _ in rounds]
        one, groups, parts = ([seconds for seconds, _ in same] for same in zip(*turns, strict=True))
        first, *others = (indices for _, indices in turns[-1])
        return {
            "method": "find_anchors",
            "seconds_one": statistics.median(one),
            "seconds_groups": statistics.median(groups),
            "seconds_parts": statistics.median(parts),
            "ratio_groups": statistics.median(a / b for a, b in zip(one, groups, strict=True)),
            "ratio": statistics.median(a / b for a, b in zip(one, parts, strict=True)),
            "same": all(bool((first == other).all()) for other in others),
        }

    def _seconds(self, parts: int | None = None, groups: int | None = None) -> tuple[float, Any]:
        from contextlib import ExitStack
        from unittest.mock import patch

        import dask_dca as dca
        from dask_dca.anchoring import divide
        from dask_dca.engine import passes
        from dask_dca.engine import passes as cuts

        cut = divide.plane_groups
        with ExitStack() as patches:
            if parts is not None:
                for module in (passes, cuts):
                    patches.enter_context(patch.object(module, "n_row_parts", lambda rows: parts))
            if groups is not None:
                patches.enter_context(patch.object(divide, "plane_groups", lambda rows, n, _: cut(rows, n, groups)))
            begin = time.perf_counter()
            found = dca.find_anchors(self.X, K)
            return time.perf_counter() - begin, found.indices

    def check(self, records: list[Record]) -> list[Check]:
        """At least 1.5 times as fast, the same anchors."""
        ratios = [record["ratio"] for record in records]
        if not ratios or self.quick:
            return []
        same = all(record["same"] for record in records)
        return [
            Check("at least 1.5 times as fast as one task", f"{min(ratios):.2f}", min(ratios) >= 1.5),
            Check("the same anchors", "yes" if same else "no", same),
        ]
