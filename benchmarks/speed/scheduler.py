"""S7: what a pass over very many blocks costs before the first of them is read."""

from __future__ import annotations

import time
from typing import Any, ClassVar

import numpy as np

from benchmarks.harness import Benchmark, Check, Record, Table

ROWS, FEATURES = 100_000, 200  # of a block
LIMITS = {"zarr": (5.0, 10.0, 1.2), "dask": (30.0, 30.0, None)}  # seconds, MiB, tasks per block
VISITED = 500  # blocks that are really visited


class Stub:
    """An array of any number of rows, of which a slice costs nothing: every entry is one."""

    ndim, dtype, shards, store_path = 2, np.dtype(np.float32), None, "stub"

    def __init__(self, n_blocks: int) -> None:
        self.shape, self.chunks = (n_blocks * ROWS, FEATURES), (ROWS, FEATURES)

    def __getitem__(self, index: Any) -> Any:
        rows = index[0] if isinstance(index, tuple) else index
        start, stop, _ = rows.indices(self.shape[0])
        return np.broadcast_to(np.float32(1.0), (stop - start, FEATURES))


def count(state: Any, start: int, *columns: Any) -> tuple[int, int]:
    """Rows of a block, and the block's number: of a pass that reads next to nothing."""
    return int(columns[0].shape[0] * state[0, 0]), start // ROWS


def rows_of(kind: str, n_blocks: int) -> Any:
    """The stub as the engine takes a zarr array, or inside a Dask array."""
    import dask.array as da

    from dask_dca.engine.rows import Rows, as_rows

    stub = Stub(n_blocks)
    if kind == "zarr":
        return Rows(stub, "zarr", np.arange(n_blocks + 1) * ROWS, FEATURES, stub.dtype)
    meta = np.zeros((0, 0), np.float32)
    return as_rows(da.from_array(stub, chunks=stub.chunks, asarray=False, name=f"stub-{n_blocks}", meta=meta))


def sent_bytes(value: Any) -> int:
    """Bytes of a graph as the client sends it to the scheduler."""
    from dask.base import collections_to_expr
    from distributed.protocol import serialize, to_serialize
    from distributed.utils import nbytes

    header, frames = serialize(to_serialize(collections_to_expr([value])), on_error="raise")
    return len(str(header)) + sum(map(nbytes, frames))


class Scheduler(Benchmark):
    """S7: graph of a pass over up to 100,000 blocks."""

    id = "S7"
    title = "Scheduler: a pass over up to 100,000 blocks"
    protocol = (
        f"A stub array of blocks of {ROWS:,} x {FEATURES} float32 (1e10 rows in 100,000 blocks), as zarr input and"
        " inside a Dask array; a pass with a state of 30 x 200 float64. Seconds are CPU seconds of building the graph"
        " (Dask's own optimisation of the array included); MiB are those of the pickled graph as distributed sends it;"
        f" {VISITED} blocks are then actually visited on an in-process cluster."
    )
    param_names: ClassVar = ["n_blocks", "method"]
    params: ClassVar = [(1000, 10_000, 100_000), ("zarr", "dask")]
    quick_params: ClassVar = {"n_blocks": (300,)}
    tables: ClassVar = [
        Table("CPU seconds to build the graph", ["n_blocks"], "build", better="min"),
        Table("MiB on the wire, a pass", ["n_blocks"], "mib", better="min"),
        Table("Tasks a block", ["n_blocks"], "tasks", better="min", digits=3),
        Table("Milliseconds a visited block", ["n_blocks"], "ms", better="min"),
    ]

    def setup(self, n_blocks: int, method: str) -> None:
        self.rows = rows_of(method, n_blocks)

    def measure(self, n_blocks: int, method: str) -> Record:
        from dask_dca.engine.passes import Pass, delayed_pass
        from dask_dca.engine.types import add_parts

        job, state = Pass("count", count, add_parts), np.ones((30, FEATURES))
        begin = time.process_time()
        value = delayed_pass(self.rows, job, state)
        build = time.process_time() - begin
        tasks = sum(1 for key in value.dask if isinstance(key, tuple)) / n_blocks
        found: Record = {"build": build, "mib": sent_bytes(value) / 2**20, "tasks": tasks}
        del value
        return found | {"ms": visit(self.rows, job, state, n_blocks)}

    def check(self, records: list[Record]) -> list[Check]:
        checks = []
        for kind, (seconds, mib, tasks) in LIMITS.items():
            found = [r for r in records if r["method"] == kind and r["n_blocks"] == 100_000]
            for name, most in (("build", seconds), ("mib", mib), ("tasks", tasks)):
                if most is not None:
                    value = found[0][name] if found else None
                    met = None if value is None else value <= most
                    text = "-" if value is None else f"{value:.3g}"
                    checks.append(Check(f"{kind} input, 100,000 blocks: {name} <= {most:g}", text, met))
        return checks


def visit(rows: Any, job: Any, state: Any, n_blocks: int) -> float:
    """Milliseconds a block of a pass over some blocks, which must see them all."""
    from distributed import Client, LocalCluster

    from dask_dca.engine.passes import Run, run_pass

    chosen = np.random.default_rng(0).choice(n_blocks, min(VISITED, n_blocks), replace=False)
    chosen.sort()
    with (
        LocalCluster(n_workers=1, threads_per_worker=2, processes=False, dashboard_address=":0") as cluster,
        Client(cluster),
    ):
        begin = time.perf_counter()
        seen, numbers = run_pass(rows, job, state, Run(), blocks=chosen)
        seconds = time.perf_counter() - begin
    if (seen, numbers) != (len(chosen) * ROWS, int(chosen.sum())):
        raise AssertionError("a block was not visited, or visited twice")
    return 1000 * seconds / len(chosen)
