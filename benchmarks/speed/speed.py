"""S1 to S3: what a fit costs against reading the data, against SPA, and when the data are tiny.

Every speed is a ratio of two things that are run in turn (A B A B ...); the first run of each is not counted.
"""

from __future__ import annotations

import statistics
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, ClassVar
from unittest import mock

import numpy as np

from benchmarks.harness import Benchmark, Check, Record, Table, group, timed
from benchmarks.methods import MissingError
from benchmarks.peers import spa
from benchmarks.regimes import make
from benchmarks.two_workers import TwoWorkers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

FIT = "NMF.fit"


def fit(X: Any, k: int) -> Any:
    """Fit the library's NMF; MissingError if it can't be imported."""
    try:
        from dask_dca import NMF
    except ImportError as error:
        raise MissingError(f"{FIT}: dask_dca.NMF can't be imported") from error
    return NMF(k, random_state=0).fit(X)


@contextmanager
def no_graph() -> Iterator[None]:
    """Fail where a Dask graph is built or computed."""
    import dask
    from dask.highlevelgraph import HighLevelGraph

    def refuse(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("a Dask graph was built or computed for in-memory data")

    with mock.patch.object(HighLevelGraph, "__init__", refuse), dask.config.set(scheduler=refuse):
        yield


class _Turns(Benchmark):
    """Cases whose last parameters are `turn` and `method`: turn 0 is run and not counted."""

    def time_method(self, *params: Any) -> None:
        with suppress(MissingError):
            self.measure(*params)

    def counted(self, turn: int, record: Record) -> Record:
        if turn == 0:
            raise MissingError("")
        return record

    def ratios(self, records: list[Record], case: str, other: str, value: str = "seconds") -> dict[Any, float]:
        """Median of the library's `value` by that of `other`, by case."""
        found = {}
        for (key,), cells in group(records, case).items():
            medians = {name: statistics.median(r[value] for r in rs) for (name,), rs in group(cells, "method").items()}
            if FIT in medians and medians.get(other):  # none was measured, or too small to be
                found[key] = medians[FIT] / medians[other]
        return found


class Streaming(_Turns, TwoWorkers):
    """S1: a fit on a zarr array that two worker processes read, against the sum of the same array."""

    id = "S1"
    title = "Streaming floor: NMF.fit on zarr against x.sum()"
    protocol = (
        "1,000,000 x 500 float32 (values rounded to 1/1024), chunks of 16,384 rows, compressed by zarr's"
        " default and not compressed; two worker processes of one thread; k = 20; five runs of each in turn,"
        " warm file cache. CPU: user and system seconds of the workers."
    )
    param_names: ClassVar = ["n", "p", "storage", "turn", "method"]
    params: ClassVar = [(1_000_000,), (500,), ("default", "uncompressed"), tuple(range(6)), ("sum", FIT)]
    quick_params: ClassVar = {"n": (4000,), "p": (30,), "turn": (0, 1)}
    tables: ClassVar = [
        Table("Wall seconds", ["storage"], "seconds", better="min"),
        Table("CPU seconds of the workers", ["storage"], "cpu", better="min"),
    ]

    def setup(self, n: int, p: int, storage: str, turn: int, method: str) -> None:
        self.start("auto")
        self.path = self.folder / f"{storage}.zarr"
        if not self.path.exists():
            write_rows(self.path, n, p, storage)

    def measure(self, n: int, p: int, storage: str, turn: int, method: str) -> Record:
        import dask.array as da
        import zarr

        def total() -> Any:
            return da.from_zarr(str(self.path)).sum().compute()

        def model() -> Any:
            return fit(zarr.open_array(str(self.path), mode="r"), 20)

        before, driver = self.cpu(), time.process_time()
        _, seconds = timed(total if method == "sum" else model)
        driver = time.process_time() - driver
        return self.counted(turn, {"seconds": seconds, "cpu": self.cpu() - before, "driver_cpu": driver})

    def check(self, records: list[Record]) -> list[Check]:
        checks = []
        for value in ("seconds", "cpu"):
            for storage, most in (("default", 2.5), ("uncompressed", 2.2)):
                ratio = self.ratios(records, "storage", "sum", value).get(storage)
                must = f"{value} <= {most} times the sum ({storage})"
                checks.append(_at_most(must, ratio, most, "times"))
        return checks


def write_rows(path: Path, n: int, p: int, storage: str, *, k: int = 20, rows: int = 16_384) -> None:
    """A zarr array of separable rows with 10 % of noise, written chunk by chunk."""
    import zarr

    compression = {} if storage == "default" else {"compressors": None}
    array = zarr.create_array(store=str(path), shape=(n, p), chunks=(min(rows, n), p), dtype="float32", **compression)
    W = np.random.default_rng(0).random((k, p), dtype=np.float32)
    for start in range(0, n, rows):
        rng = np.random.default_rng([1, start])
        m = min(rows, n - start)
        F = rng.dirichlet(np.ones(k), size=m).astype(np.float32)
        if start == 0:
            F[:k] = np.eye(k)
        block = F @ W + np.float32(0.05) * rng.standard_normal((m, p), dtype=np.float32)
        array[start : start + m] = np.round(np.abs(block) * 1024) / 1024


class InMemory(_Turns):
    """S2: a fit on a NumPy array against a well-written SPA."""

    id = "S2"
    title = "In memory: NMF.fit on 100,000 x 200 against SPA"
    protocol = (
        "float64, k = 20, regime dirichlet1 with noise .1; benchmarks.peers.spa; seven runs in turn. Judged by "
        "CPU seconds with one BLAS thread, which are comparable on a busy machine."
    )
    param_names: ClassVar = ["n", "p", "k", "turn", "method"]
    params: ClassVar = [(100_000,), (200,), (20,), tuple(range(8)), ("spa", FIT)]
    quick_params: ClassVar = {"n": (2000,), "p": (50,), "k": (5,), "turn": (0, 1)}
    tables: ClassVar = [
        Table("CPU seconds", ["n"], "cpu", better="min", digits=3),
        Table("Wall seconds", ["n"], "seconds", better="min", digits=3),
    ]

    def setup(self, n: int, p: int, k: int, turn: int, method: str) -> None:
        if not hasattr(self, "X"):
            self.X = np.abs(make("dirichlet1", n, p, k, 0.1, 0)[0])

    def measure(self, n: int, p: int, k: int, turn: int, method: str) -> Record:
        seconds, cpu = alone(lambda: spa(self.X, k) if method == "spa" else fit(self.X, k))
        return self.counted(turn, {"seconds": seconds, "cpu": cpu})

    def check(self, records: list[Record]) -> list[Check]:
        ratio = next(iter(self.ratios(records, "n", "spa", "cpu").values()), None)
        return [_at_most(">= 2 times faster than SPA (share of its time <= .5)", ratio, 0.5, "of its time")]


class Tiny(_Turns):
    """S3: a fit on tiny data costs milliseconds and builds no graph."""

    id = "S3"
    title = "Tiny: NMF.fit on 300 x 500"
    protocol = (
        "float64 NumPy, regime uniform with noise .1; twenty runs in turn; building a graph is an error. Judged "
        "by CPU time with one BLAS thread."
    )
    param_names: ClassVar = ["n", "p", "k", "turn", "method"]
    params: ClassVar = [(300,), (500,), (10, 20), tuple(range(21)), ("spa", "sklearn_nmf", FIT)]
    quick_params: ClassVar = {"turn": (0, 1)}
    tables: ClassVar = [
        Table("CPU milliseconds", ["k"], "cpu_ms", better="min", digits=2),
        Table("Wall milliseconds", ["k"], "ms", better="min", digits=2),
    ]

    def setup(self, n: int, p: int, k: int, turn: int, method: str) -> None:
        self.X = np.abs(make("uniform", n, p, k, 0.1, 0)[0])

    def measure(self, n: int, p: int, k: int, turn: int, method: str) -> Record:
        functions = {
            "spa": lambda: spa(self.X, k),
            "sklearn_nmf": lambda: _sklearn(self.X, k),
            FIT: lambda: fit(self.X, k),
        }
        with no_graph():
            seconds, cpu = alone(functions[method])
        return self.counted(turn, {"ms": 1000 * seconds, "cpu_ms": 1000 * cpu})

    def check(self, records: list[Record]) -> list[Check]:
        checks = []
        for k in (10, 20):
            ms = [r["cpu_ms"] for r in records if r["k"] == k and r["method"] == FIT]
            checks.append(_at_most(f"k = {k}: median <= 10 ms", statistics.median(ms) if ms else None, 10, "ms"))
        return checks


def alone(function: Callable[[], Any]) -> tuple[float, float]:
    """Wall and CPU seconds with one BLAS thread."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1, user_api="blas"):
        start = time.process_time()
        _, seconds = timed(function)
        return seconds, time.process_time() - start


def _sklearn(X: np.ndarray, k: int) -> Any:
    import warnings

    from sklearn.decomposition import NMF

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # not converged after its default number of iterations
        return NMF(k).fit(X)


def _at_most(must: str, value: float | None, limit: float, unit: str) -> Check:
    if value is None:
        return Check(must, "not run", None)
    return Check(must, f"{value:.2f} {unit}", value <= limit)
