"""A scheduler and two workers as processes of their own, that can be killed one by one."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import signal
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["benchmarks.soak_fits", "distributed", "dask.array", "zarr"])
PATIENCE = 15  # seconds without a word from a worker, after which it is given up
SETTINGS = {
    "distributed.scheduler.worker-ttl": f"{PATIENCE}s",
    "distributed.comm.timeouts.connect": "60s",
    "distributed.worker.daemon": True,
}


def _quiet() -> None:
    """The noise of processes that die on purpose is not shown."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    os.dup2(nothing, 2)


def scheduler(file: str) -> None:
    """Run a scheduler until it is killed."""
    import dask
    from distributed import Scheduler

    _quiet()

    async def serve() -> None:
        async with Scheduler(
            host="127.0.0.1", port=0, dashboard=True, dashboard_address="127.0.0.1:0", scheduler_file=file
        ) as running:
            await running.finished()

    with dask.config.set(SETTINGS):
        asyncio.run(serve())


def workers(address: str, count: int, folder: str) -> None:
    """Run workers, each with a nanny that starts it again, until killed."""
    import dask
    from distributed import Nanny

    _quiet()

    async def serve() -> None:
        nannies = [
            Nanny(address, nthreads=1, host="127.0.0.1", local_directory=folder, memory_limit=0, dashboard_address=":0")
            for _ in range(count)
        ]
        await asyncio.gather(*(nanny.start() for nanny in nannies))
        await asyncio.gather(*(nanny.finished() for nanny in nannies))

    with dask.config.set(SETTINGS):
        asyncio.run(serve())


class Cluster:
    """Two workers and their scheduler; `renew` starts them again if the scheduler is gone."""

    def __init__(self, folder: Path, count: int = 2) -> None:
        self.folder, self.count, self.number = folder, count, 0
        self.client: Any = None
        self.processes: list[Any] = []
        self.address = ""

    def renew(self) -> None:
        """Make sure that a scheduler and all workers are there."""
        from distributed import Client

        if not self.processes or not all(process.is_alive() for process in self.processes):
            self.stop()
            self.number += 1
            file = self.folder / f"scheduler-{self.number}.json"
            self.processes = [start(scheduler, str(file))]
            self.address = _address(file)
            self.processes.append(start(workers, self.address, self.count, str(self.folder)))
            self.client = Client(self.address, timeout=60, set_as_default=False)
        self.client.wait_for_workers(self.count, timeout=90)

    def worker_pids(self) -> list[int]:
        """Process numbers of the workers that answer."""
        found = self.client.run(os.getpid, on_error="ignore")
        return sorted(found.values())

    def kill_scheduler(self) -> None:
        """As if its machine were switched off."""
        self.client.close()
        self.client = None
        self.processes[0].kill()
        self.processes[0].join()

    def stop(self) -> None:
        """End all processes of this cluster, and only those."""
        if self.client is not None:
            self.client.close()
            self.client = None
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):
                for child in _children(process.pid):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(child, signal.SIGKILL)
                process.kill()
                process.join()
        self.processes = []


def start(target: Any, *args: Any) -> Any:
    """A process forked off one that has imported everything."""
    process = CONTEXT.Process(target=target, args=args)
    process.start()
    return process


def _children(pid: int) -> list[int]:
    import psutil

    with contextlib.suppress(psutil.NoSuchProcess):
        return [child.pid for child in psutil.Process(pid).children(recursive=True)]
    return []


def _address(file: Path) -> str:
    import json

    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError, ValueError, KeyError):
            return str(json.loads(file.read_text())["address"])
        time.sleep(0.05)
    raise TimeoutError(f"no scheduler wrote {file}")
