"""S16: a fit on more workers than there are here: a simulation by measured paces, checked against real runs."""

from __future__ import annotations

import itertools
import shutil
import statistics
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from benchmarks.harness import Benchmark, Check, Plot, Record, Table, timed
from benchmarks.methods import MissingError
from benchmarks.simulation import Outcome, Pace, simulate
from benchmarks.slow_store import SlowStore
from benchmarks.slow_stores import ROW_BYTES, K, P, write

LATENCY, CONNECTION = 0.05, 1e8  # of the slow store
IN_FLIGHT, IN_FLIGHT_BYTES, PLACES = 8, 2**27, 256  # of the sample pass
CHUNK_MB = 16  # of the arrays here
PROCESSORS = 2  # of the machine here
TERABYTE, BLOCK = 1e12, 64e6
WORKERS = (10, 30, 100, 300, 1000, 3000)


@dataclass(frozen=True)
class Layout:
    """Bytes of an array, of its chunks, and of the blocks of whole chunks that tasks read."""

    total: float
    chunk: float
    block: float


FAR = {"1 TB": Layout(TERABYTE, BLOCK, BLOCK), "100 TB": Layout(100 * TERABYTE, 8 * BLOCK, 8 * BLOCK)}


def message_bytes(k: int) -> float:
    """Bytes of a block's value: the extreme row of each direction, in k - 1 coordinates."""
    import dask_dca as dca

    return 16.0 * (dca.n_subproblems(k) + 128) * (k + 1)


def seconds_by_blocks() -> tuple[float, float, float]:
    """Seconds of a fit before and after its pass, per byte of a block, and per block, by least squares."""
    import dask
    import dask.array as da

    import dask_dca as dca

    rng, shapes, seconds = np.random.default_rng(0), [], []
    X = rng.dirichlet(np.full(K, 0.3), 400_000) @ rng.random((K, P))
    for rows, height in ((100_000, 20_000), (400_000, 20_000), (400_000, 100_000), (400_000, 5_000)):
        data = da.from_array(X[:rows], chunks=(height, P))
        with dask.config.set(scheduler="synchronous"):
            trials = []
            for _ in range(3):
                begin = time.process_time()
                dca.NMF(K).fit(data)
                trials.append(time.process_time() - begin)
        shapes.append((1.0, rows * ROW_BYTES, rows / height))
        seconds.append(min(trials))
    found = np.linalg.lstsq(np.array(shapes) / np.max(shapes, axis=0), seconds, rcond=None)[0] / np.max(shapes, axis=0)
    fixed, byte, block = np.maximum(found, 0.0).tolist()
    return fixed, byte, block


def seconds_of_messages() -> float:
    """CPU seconds of the scheduler per task, in the process of the client, for tasks that do nothing."""
    from distributed import Client, LocalCluster

    n = 5_000
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster, Client(cluster) as client:
        client.gather(client.map(abs, range(100)))
        begin = time.process_time()
        client.submit(sum, client.map(abs, range(100, 100 + n))).result()
        return (time.process_time() - begin) / n


def seconds_to_read(path: str) -> float:
    """CPU seconds of reading, per byte."""
    array = slow_array(path)
    begin = time.process_time()
    read = array[:]
    return (time.process_time() - begin) / float(read.nbytes)


def slow_array(path: str) -> Any:
    """An array on a local store that answers slowly."""
    import zarr
    from zarr.storage import LocalStore

    return zarr.open_array(SlowStore(LocalStore(path, read_only=True)), mode="r")


@dataclass(frozen=True)
class Paces:
    """The paces of this machine: those of a pass, CPU seconds of reading a byte, and of a fit beside its pass."""

    whole: Pace
    read: float
    fixed: float


def measured_paces(path: str) -> Paces:
    """What this machine takes: computing on data in memory, reading, and messages, each by itself."""
    fixed, byte, block = seconds_by_blocks()
    read = seconds_to_read(path)
    whole = Pace(LATENCY, CONNECTION, byte + read, block, message_bytes(K), seconds_of_messages())
    return Paces(whole, read, fixed)


def predicted(paces: Paces, data: Layout, workers: int, cores: int | None = None) -> tuple[float, Outcome]:
    """Seconds of a fit: sample pass, pass over all blocks, whose chunks are asked for together, and what is fixed."""
    pace, n_chunks = replace(paces.whole, cores=cores), max(round(data.total / data.chunk), 1)
    places = min(n_chunks, PLACES)
    together = max(int(min(IN_FLIGHT_BYTES // data.chunk, IN_FLIGHT, places // (2 * workers))), 1)
    looking = replace(pace, byte=paces.read * together)
    sample = simulate(looking, -(-places // together), data.chunk, workers)
    at_once = replace(pace, connection=pace.connection * min(round(data.block / data.chunk), IN_FLIGHT))
    whole = simulate(at_once, max(round(data.total / data.block), 1), data.block, workers)
    return paces.fixed + sample.seconds + whole.seconds, whole


class ManyWorkers(Benchmark):
    """Real runs on 1, 2 and 4 workers, and what the simulation says of these and of far more."""

    id = "S16"
    title = "More workers: measured up to four, simulated up to 3,000"
    protocol = (
        "A pass simulated event by event (benchmarks/speed/simulation.py): a store of 50 ms per request and 100 MB/s "
        "per connection, the chunks of a block requested together; kernel, reading, merges and the scheduler's time "
        "per message as measured separately, a network of 10 "
        f"Gbit/s. Here: {P} features, k = {K}, NMF.fit on a local store that answers at that pace, .5, 1 and 2 GB in "
        "chunks of 16 MB, worker processes of one thread on two processors, median of three. 1 TB in blocks of 64 MB "
        "and 100 TB in blocks of 512 MB are simulated alone, for a store without a limit on the total rate."
    )
    param_names: ClassVar = ["data", "workers"]
    params: ClassVar = [("0.5 GB", "1 GB", "2 GB", *FAR), (1, 2, 4, *WORKERS)]
    quick_params: ClassVar = {"data": ("0.04 GB", "1 TB"), "workers": (2, 10)}
    tables: ClassVar = [
        Table("Seconds, simulated", ["data", "workers"], "seconds", better="none", digits=1),
        Table("Seconds, measured", ["data", "workers"], "measured", better="none", digits=1),
        Table("Share of the pass in which the scheduler is busy", ["data", "workers"], "scheduler", better="none"),
        Table("Workers' threads busy computing", ["data", "workers"], "threads", better="none"),
    ]
    plots: ClassVar = [Plot(f"seconds, {data}", x="workers", values=["seconds"], where={"data": data}) for data in FAR]

    def __init__(self, *, quick: bool = False) -> None:
        super().__init__(quick=quick)
        self.folder = Path(tempfile.mkdtemp(prefix="dask-dca-bench-"))
        self.paces: Paces | None = None
        self.cluster: tuple[int, Any] | None = None

    def setup(self, data: str, workers: int) -> None:
        """What is run here runs on few workers; what is simulated, on more."""
        if (data in FAR) == (workers in (1, 2, 4)):
            raise MissingError("")
        if self.paces is None:
            self.paces = measured_paces(self._array(0.5))

    def measure(self, data: str, workers: int) -> Record:
        from dask_dca.engine.rows import as_rows

        assert self.paces is not None
        if data in FAR:
            seconds, whole = predicted(self.paces, FAR[data], workers)
            return {"method": "NMF.fit", "seconds": seconds, **_shares(whole)}
        X = slow_array(self._array(float(data.split()[0])))
        layout = Layout(X.nbytes, 1e6 * CHUNK_MB, X.nbytes / as_rows(X).n_blocks)
        seconds, whole = predicted(self.paces, layout, workers, cores=PROCESSORS)
        return {"method": "NMF.fit", "seconds": seconds, "measured": self._seconds(X, workers), **_shares(whole)}

    def _array(self, gigabytes: float) -> str:
        path = self.folder / f"x{gigabytes}.zarr"
        if not path.exists():
            write(str(path), CHUNK_MB, int(1e9 * gigabytes))
        return str(path)

    def _seconds(self, X: Any, workers: int) -> float:
        """Median of fits on real workers, after one that isn't counted."""
        import dask_dca as dca

        self._start(workers)
        return statistics.median([timed(lambda: dca.NMF(K).fit(X))[1] for _ in range(4)][1:])

    def _start(self, workers: int) -> None:
        from distributed import Client, LocalCluster

        if self.cluster is not None and self.cluster[0] != workers:
            self._stop()
        if self.cluster is None:
            cluster = LocalCluster(
                n_workers=workers, threads_per_worker=1, dashboard_address=":0", local_directory=self.folder
            )
            self.cluster = workers, Client(cluster)

    def _stop(self) -> None:
        if self.cluster is not None:
            client = self.cluster[1]
            client.close()
            client.cluster.close()
            self.cluster = None

    def close(self) -> None:
        """End the workers and remove the data."""
        self._stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def check(self, records: list[Record]) -> list[Check]:
        """Real runs are at most 15 % off; and where more workers stop to help."""
        checks = []
        for name, most in (("real runs", 4), ("real runs with a processor for each worker", PROCESSORS)):
            off = {
                f"{r['data']} on {r['workers']}": r["seconds"] / r["measured"] - 1
                for r in records
                if "measured" in r and r["workers"] <= most
            }
            if off:
                worst = max(off, key=lambda case: abs(off[case]))
                said = f"{100 * off[worst]:+.0f} % ({worst})"
                checks.append(Check(f"{name} within 15 %", said, abs(off[worst]) <= 0.15))
        for data in FAR:
            halves = [
                (a["workers"], b["workers"] / a["workers"] * b["seconds"] / a["seconds"])
                for a, b in itertools.pairwise([r for r in records if r["data"] == data])
            ]
            if halves:
                useful = max([n for n, waste in halves if waste < 1.25], default=0)
                checks.append(Check(f"{data}: more workers help (reported)", f"up to {useful:,}", None))
        return checks


def _shares(whole: Outcome) -> dict[str, float]:
    return {"scheduler": whole.scheduler, "threads": whole.threads}
