"""S4 and S5: how the cost of a fit grows with rows, anchors and features, and what a second worker is worth."""

from __future__ import annotations

import math
import time
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from benchmarks.harness import Benchmark, Check, Record, Table, group, timed
from benchmarks.methods import MissingError
from benchmarks.speed import FIT, fit
from benchmarks.two_workers import process_seconds

if TYPE_CHECKING:
    import dask.array as da

ENTRIES = 2**23  # of a chunk: 32 MB of float32


@lru_cache(maxsize=1)
def base(rows: int, p: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows in a cone of k rays, and noise: blocks differ in which noise is added to which row, and in its signs."""
    rng = np.random.default_rng(0)
    F = rng.dirichlet(np.ones(k), rows).astype(np.float32)
    F[:k] = np.eye(k)
    noise = np.float32(0.05) * rng.standard_normal((rows, p), dtype=np.float32)
    return F @ rng.random((k, p), dtype=np.float32), noise


def block(start: np.ndarray, rows: int, p: int, k: int) -> np.ndarray:
    """One block, from its first row number: made in few sweeps over memory, so that making it is cheap.

    Without other signs the same rows of noise would stand out in every block, as those of a rare material do.
    """
    clean, noise = base(rows, p, k)
    number = int(start[0]) // rows
    turn, signs = 7919 * number % rows, np.random.default_rng(number).choice(np.float32([-1.0, 1.0]), p)
    made = noise * signs
    made[: rows - turn] += clean[turn:]
    made[rows - turn :] += clean[:turn]
    return np.abs(made, out=made)


def lazy_rows(n: int, p: int, k: int, rows: int) -> da.Array:
    """A lazy array of n rows in chunks of that many rows."""
    import dask.array as da

    starts = da.arange(0, n // rows * rows, rows, chunks=1)
    return starts.map_blocks(
        block, rows, p, k, dtype=np.float32, new_axis=1, chunks=((rows,) * (n // rows), (p,)), meta=np.empty((0, 0))
    )


Case = tuple[str, int, int, int]  # what grows, rows, features, anchors


def named(*cases: Case) -> dict[str, Case]:
    """Cases by a name that says all of it."""
    return {f"{grows}: {n} x {p}, {k}": (grows, n, p, k) for grows, n, p, k in cases}


CASES = named(
    *(("n", n, 50, 10) for n in (100_000, 1_000_000, 10_000_000)),
    *(("k", 100_000, 250, k) for k in (5, 10, 20, 50, 100, 200)),
    *(("p", 100_000, p, 10) for p in (100, 300, 1000, 3000, 10_000)),
)
SMALL = named(("n", 2000, 20, 3), ("n", 4000, 20, 3), ("k", 4000, 20, 3), ("k", 4000, 20, 6), ("p", 4000, 40, 3))


class Growth(Benchmark):
    """S4: CPU seconds of one process, with all blocks made when they are read."""

    id = "S4"
    title = "Cost of NMF.fit by rows, anchors and features"
    protocol = (
        "A lazy float32 array whose blocks are made when they are read, in one process with the synchronous "
        "scheduler and one BLAS thread. Rows: 1e5 to 1e7 of 50 features, chunks of 20,000 rows, k = 10. Anchors: "
        "k = 5 to 200, 100,000 x 250, chunks of 20,000 rows. Features: p = 100 to 10,000, 100,000 rows, k = 10, "
        "chunks of 20,000 rows up to 300 features, fewer above. CPU seconds of the process; the sum of the same "
        "array is given for the cost of making and reading the blocks. One run of each."
    )
    param_names: ClassVar = ["case", "method"]
    params: ClassVar = [tuple(CASES), ("sum", FIT)]
    quick_params: ClassVar = {"case": tuple(SMALL)}
    tables: ClassVar = [
        Table(f"CPU seconds, growing {name}", [name], "cpu", better="min", where={"grows": name}) for name in "nkp"
    ]

    def setup(self, case: str, method: str) -> None:
        _, n, p, k = (CASES | SMALL)[case]
        if not hasattr(self, "X"):
            fit(lazy_rows(400, 10, 3, 200), 3)  # imports, which count for no case
        rows = min(20_000, n // 2, 2 ** int(math.log2(ENTRIES / p)))
        self.X = lazy_rows(n, p, k, next(size for size in range(rows, 0, -1) if n % size == 0))

    def measure(self, case: str, method: str) -> Record:
        import dask
        from threadpoolctl import threadpool_limits

        grows, n, p, k = (CASES | SMALL)[case]
        with dask.config.set(scheduler="synchronous"), threadpool_limits(1):
            self.X[:1].compute()  # the base is made once
            start = time.process_time()
            _, seconds = timed(lambda: self.X.sum().compute() if method == "sum" else fit(self.X, k))
            cpu = time.process_time() - start
        blocks = self.X.numblocks[0]
        return {"grows": grows, "n": n, "p": p, "k": k, "blocks": blocks, "cpu": cpu, "seconds": seconds}

    def time_fit(self, case: str, method: str) -> None:
        self.measure(case, method)

    def check(self, records: list[Record]) -> list[Check]:
        found = {
            key: sorted((r[key[0]], r["cpu"]) for r in rs) for key, rs in group(records, "grows", "method").items()
        }
        by = {name: found.get((name, FIT), []) for name in "nkp"}
        checks = [
            _slope("linear in n (slope of log CPU seconds over log n at most 1.05)", by["n"], 1.05),
            _slope("at most linear in p (slope from 1,000 features up at most 1.05)", by["p"][-3:], 1.05),
        ]
        must = "at most k log k in k, from the least to the greatest"
        if len(by["k"]) < 2:
            return [*checks, Check(must, "not run", None)]
        (low, first), (high, last) = by["k"][0], by["k"][-1]
        bound = high * math.log(high) / (low * math.log(low))
        text = f"k = {low} to {high}: {last / first:.1f} times the CPU seconds, k log k grows {bound:.1f} times"
        return [*checks, Check(must, text, last / first <= bound)]


def _slope(must: str, points: list[tuple[int, float]], limit: float) -> Check:
    if len(points) < 2:
        return Check(must, "not run", None)
    x, y = np.log(np.array(points, dtype=float)).T
    slope = float(np.polyfit(x, y, 1)[0])
    return Check(must, f"slope {slope:.2f}", slope <= limit)


class Workers(Benchmark):
    """S5: the same fit on one and on two worker processes."""

    id = "S5"
    title = "One worker process against two"
    protocol = (
        "NMF.fit, k = 20, on a lazy float32 array of 1,000,000 and of 5,000,000 x 100 whose blocks of 50,000 rows "
        "are made when they are read; worker processes of one thread; three runs in turn after one that isn't "
        "counted. Busiest: CPU seconds of the worker with the most work, which bound the speed if every worker "
        "has its own processor; wall seconds also include the driver and other work of the machine."
    )
    param_names: ClassVar = ["n", "p", "turn", "method"]
    params: ClassVar = [(1_000_000, 5_000_000), (100,), tuple(range(4)), ("1 worker", "2 workers")]
    quick_params: ClassVar = {"n": (4000,), "p": (20,), "turn": (0, 1)}
    tables: ClassVar = [
        Table("Wall seconds", ["n"], "seconds", better="min"),
        Table("CPU seconds of the busiest worker", ["n"], "busiest", better="min"),
        Table("CPU seconds of all workers", ["n"], "cpu", better="min"),
    ]

    def __init__(self, *, quick: bool = False) -> None:
        super().__init__(quick=quick)
        self.clusters: dict[str, Any] = {}

    def setup(self, n: int, p: int, turn: int, method: str) -> None:
        from distributed import LocalCluster

        if method not in self.clusters:
            self.clusters[method] = LocalCluster(n_workers=int(method[0]), threads_per_worker=1, dashboard_address=":0")
        self.X = lazy_rows(n, p, 20, min(n // 20, 50_000))

    def measure(self, n: int, p: int, turn: int, method: str) -> Record:
        from distributed import Client

        with Client(self.clusters[method]) as client:
            before = client.run(process_seconds)
            _, seconds = timed(lambda: fit(self.X, 20))
            spent = [after - before[worker] for worker, after in client.run(process_seconds).items()]
        if turn == 0:
            raise MissingError("")
        return {"seconds": seconds, "busiest": max(spent), "cpu": sum(spent)}

    def time_fit(self, n: int, p: int, turn: int, method: str) -> None:
        self.measure(n, p, 1, method)

    def close(self) -> None:
        for cluster in self.clusters.values():
            cluster.close()
        self.clusters = {}

    teardown_cache = close

    def check(self, records: list[Record]) -> list[Check]:
        checks = []
        for value, name in (("seconds", "wall seconds"), ("busiest", "CPU seconds of the busiest worker")):
            for (n,), cells in group(records, "n").items():
                must = f"{name}, {n:,} rows: two workers at least 1.7 times as fast"
                medians = {key: np.median([r[value] for r in rs]) for (key,), rs in group(cells, "method").items()}
                if len(medians) < 2:
                    checks.append(Check(must, "not run", None))
                    continue
                ratio = float(medians["1 worker"] / medians["2 workers"])
                checks.append(Check(must, f"{ratio:.2f} times", ratio >= 1.7))
        return checks
