"""S6: an array many times larger than the workers' memory, which is nowhere stored; their memory over time."""

from __future__ import annotations

import os
import threading
import time
from typing import Any, ClassVar

import numpy as np

from benchmarks.harness import Benchmark, Check, Plot, Record, Table, timed

ROWS, FEATURES, RAYS = 16_384, 500, 20
BLOCK_MIB = ROWS * FEATURES * 4 / 2**20
MOMENTS = 200
PROCESSES = ("worker 1", "worker 2", "driver")
LIMIT = 2 * 10**9  # bytes of a worker


def rays() -> np.ndarray:
    """The extreme rays; row i of block 0 is ray i."""
    return np.random.default_rng(0).random((RAYS, FEATURES), dtype=np.float32)


def make_block(block_info: Any = None, missing: float = 0.0) -> np.ndarray:
    """A block of noisy mixtures of the rays, from its number alone; a share of its entries is missing."""
    (start, stop), _ = block_info[None]["array-location"]
    rng = np.random.default_rng([1, start])
    mixed = rng.standard_exponential((stop - start, RAYS), dtype=np.float32)
    mixed /= mixed.sum(axis=1, keepdims=True)
    if start == 0:
        mixed[:RAYS] = np.eye(RAYS, dtype=np.float32)
    found = mixed @ rays()
    for i in range(0, len(found), 1024):
        tile = found[i : i + 1024]
        tile += np.float32(0.002) * rng.random(tile.shape, dtype=np.float32)
        if missing:
            tile[rng.random(tile.shape, dtype=np.float32) < missing] = np.nan
    return found


class Streaming(Benchmark):
    """S6-soak: NMF.fit on 40 GB by two workers of 2 GB; GB=2 in the environment makes it 2 GB."""

    id = "S6-soak"
    title = "Memory of a fit on 40 GB"
    protocol = (
        "A lazily generated array of 500 features, float32, noisy mixtures of 20 rays, in blocks of 16,384 rows"
        f" ({BLOCK_MIB:.0f} MiB), 40 GB in all (or as many as GB in the environment says); two worker processes of one"
        " thread and 2 GB each; k = 20. Resident memory of workers and driver, five times a second; nothing is stored,"
        " so that a block that is read again is made again."
    )
    param_names: ClassVar = ["moment", "method"]
    params: ClassVar = [tuple(range(MOMENTS)), PROCESSES]
    quick_params: ClassVar = {"moment": (0, MOMENTS - 1)}
    plots: ClassVar = [Plot("resident memory over time", "seconds", ["mib"])]
    tables: ClassVar = [Table("Resident memory in MiB: mean (peak)", ["gb"], "mib", better="min", digits=0)]

    missing: ClassVar[float] = 0.0  # share of the entries

    def __init__(self, *, quick: bool = False) -> None:
        super().__init__(quick=quick)
        self.seen: list[Record] | None = None

    def setup(self, moment: int, method: str) -> None:
        if self.seen is None:
            self.gb = 0.0031 if self.quick else float(os.environ.get("GB", "40"))
            self.rows = ROWS // 32 if self.quick else ROWS
            self.seen = self._fit()

    def measure(self, moment: int, method: str) -> Record:
        """The greatest memory in one of 200 equal stretches of time."""
        edges = np.linspace(0, len(self.seen), MOMENTS + 1).astype(int)
        part = self.seen[edges[moment] : edges[moment + 1]] or [self.seen[min(edges[moment], len(self.seen) - 1)]]
        found = {"gb": self.gb, "seconds": round(part[0]["seconds"], 1), "mib": max(sample[method] for sample in part)}
        return found | {"facts": self.facts if moment == 0 else None}

    def _fit(self) -> list[Record]:
        import dask.array as da
        from distributed import Client, LocalCluster

        import dask_dca as dca

        n_blocks = int(self.gb * 1e9 / (4 * FEATURES)) // self.rows
        chunks = ((self.rows,) * n_blocks, (FEATURES,))
        meta = np.zeros((0, 0), np.float32)
        X = da.map_blocks(make_block, missing=self.missing, chunks=chunks, dtype=np.float32, meta=meta)
        with (
            LocalCluster(n_workers=2, threads_per_worker=1, memory_limit=LIMIT, dashboard_address=":0") as cluster,
            Client(cluster) as client,
            Watch(client) as watch,
        ):
            before = watch.cpu_seconds()
            model, seconds = timed(lambda: dca.NMF(RAYS).fit(X))
            cpu_seconds = watch.cpu_seconds() - before
        lengths = np.linalg.norm(model.components_, axis=1) * np.linalg.norm(rays(), axis=1)[:, None]
        angles = np.degrees(np.arccos(np.clip((rays() @ model.components_.T) / lengths, -1, 1))).min(axis=1)
        self.facts = {
            "seconds": seconds,
            "cpu_seconds": cpu_seconds,
            "n_passes": model.n_passes_,
            "blocks": n_blocks,
            "worst_degrees": float(angles.max()),
            "spilled": max(sample["spilled"] for sample in watch.samples),
            "restarts": watch.restarts,
        }
        return watch.samples

    def check(self, records: list[Record]) -> list[Check]:
        facts = next((r["facts"] for r in records if r.get("facts")), None)
        if facts is None:
            return []
        checks = []
        most = 3 * BLOCK_MIB + 200
        for name in PROCESSES:
            own = [r["mib"] for r in records if r["method"] == name]
            more = max(own) - own[0]
            checks.append(Check(f"{name}: peak <= idle + 3 blocks + 200 MB", f"{more:.0f} MiB", more <= most))
        return [
            *checks,
            Check("nothing spills", f"{facts['spilled']} bytes", facts["spilled"] == 0),
            Check("no worker is restarted", f"{facts['restarts']}", facts["restarts"] == 0),
            Check("all rays within 5 degrees", f"{facts['worst_degrees']:.2f} degrees", facts["worst_degrees"] <= 5),
            Check(
                "the fit ends",
                f"{facts['seconds']:.0f} s for {records[0]['gb']:g} GB, all rows read {facts['n_passes']} time(s)"
                + (f"; {facts['cpu_seconds']:.0f} CPU seconds" if "cpu_seconds" in facts else ""),
                True,
            ),
        ]


class StreamingHoles(Streaming):
    """S6-holes: the same with a tenth of the entries missing."""

    id = "S6-holes"
    title = "Memory of a fit on 40 GB of which a tenth is missing"
    protocol = Streaming.protocol.replace(", float32,", ", float32, 10 % of them NaN,")
    missing: ClassVar[float] = 0.1

    def check(self, records: list[Record]) -> list[Check]:
        found = super().check(records)
        for name in PROCESSES[:2]:
            own = [r["mib"] for r in sorted(records, key=lambda r: r["moment"]) if r["method"] == name]
            more = max(own[len(own) // 2 :]) - max(own[: len(own) // 2])
            found.append(
                Check(f"{name}: in the second half at most 3 blocks more", f"{more:.0f} MiB", more <= 3 * BLOCK_MIB)
            )
        return found


class Watch:
    """Memory of two workers and of this process, five times a second, in a thread."""

    def __init__(self, client: Any) -> None:
        import psutil

        self.client, self.samples, self.restarts = client, [], 0
        self.pids = sorted(client.run(os.getpid).values())
        self.processes = [psutil.Process(pid) for pid in [*self.pids, os.getpid()]]
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Watch:
        self.thread.start()
        time.sleep(1)  # idle
        return self

    def __exit__(self, *error: object) -> None:
        self.restarts = int(sorted(self.client.run(os.getpid).values()) != self.pids)
        self.ended.set()
        self.thread.join()

    def cpu_seconds(self) -> float:
        """Of all three, up to now."""
        return sum(sum(process.cpu_times()[:2]) for process in self.processes)

    def _look(self) -> None:
        import psutil

        begin = time.monotonic()
        while not self.ended.wait(0.2):
            try:
                sizes = [process.memory_info().rss / 2**20 for process in self.processes]
            except psutil.NoSuchProcess:
                return
            told = self.client.scheduler_info(n_workers=-1)["workers"].values()
            spilled = sum(worker["metrics"]["spilled_bytes"]["memory"] for worker in told if worker.get("metrics"))
            sample = dict(zip(PROCESSES, sizes, strict=True))
            self.samples.append(sample | {"seconds": time.monotonic() - begin, "spilled": spilled})
