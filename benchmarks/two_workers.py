"""Benchmarks that two small worker processes run: the cluster, its CPU seconds and its memory."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any, ClassVar

from benchmarks.harness import Benchmark


class TwoWorkers(Benchmark):
    """Two worker processes (quick: one), of one thread each by default, and a folder for data, from `start` to `close`.

    The scheduler runs in this process, or in one of its own, as it does on a cluster of several machines.
    """

    scheduler_apart: ClassVar[bool] = False
    threads: ClassVar[int] = 1

    def __init__(self, *, quick: bool = False) -> None:
        super().__init__(quick=quick)
        self.folder: Path = Path()
        self.client: Any = None

    def start(self, memory_limit: str | float = "2GB") -> None:
        """Start the workers, if they are not there."""
        if self.client is not None:
            return
        from distributed import Client, LocalCluster, SubprocessCluster

        self.folder = Path(tempfile.mkdtemp(prefix="dask-dca-bench-"))
        n_workers = 1 if self.quick else 2
        size: dict[str, Any] = {"n_workers": n_workers, "threads_per_worker": self.threads, "dashboard_address": ":0"}
        place: dict[str, Any] = {"memory_limit": memory_limit, "local_directory": str(self.folder)}
        if self.scheduler_apart:
            cluster = SubprocessCluster(**size, worker_kwargs=place)
        else:
            cluster = LocalCluster(**size, **place)
        self.client = Client(cluster)

    def cpu(self) -> float:
        """CPU seconds of the workers so far."""
        return sum(self.client.run(process_seconds).values())

    def peak_mb(self) -> float:
        """Greatest memory of a worker so far, in MB."""
        return max(self.client.run(peak_mb).values())

    def close(self) -> None:
        """End the workers and remove the data."""
        if self.client is None:
            return
        cluster = self.client.cluster
        self.client.close()
        cluster.close()
        self.client = None
        shutil.rmtree(self.folder, ignore_errors=True)

    teardown_cache = close


def process_seconds() -> float:
    """User and system seconds of this process so far."""
    import psutil

    times = psutil.Process().cpu_times()
    return times.user + times.system


def peak_mb() -> float:
    """Greatest resident size of this process so far, in MB.

    Linux's own count of it: that of `getrusage` begins with the size that the process had which started this one.
    """
    [line] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1]) / 1024
