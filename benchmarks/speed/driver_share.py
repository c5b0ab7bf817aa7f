"""How much of a fit on two worker processes runs in the driver's process."""

from __future__ import annotations

import time
import warnings
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from benchmarks.harness import Check, Record, Table
from benchmarks.markov_data import chain
from benchmarks.mixture_scale import CHUNK, write_mixture
from benchmarks.topics_scale import write_documents
from benchmarks.two_workers import TwoWorkers, process_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

ROWS, FEATURES, WORDS = 1_000_000, 50, 50_000
MOST = 0.10
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "GaussianMixture": ("mixture", {"n_components": 10}),
    "GaussianMixture, tied-spherical": ("mixture", {"n_components": 10, "covariance_type": "tied-spherical"}),
    "GaussianHMM": ("chain", {"n_components": 6}),
    "KalmanFilter": ("system", {"n_dim_state": 6}),
    "LatentDirichletAllocation": ("documents", {"n_components": 20}),
}


class DriverShare(TwoWorkers):
    """Fits of data in zarr, with the CPU seconds of the driver's process and of the workers' apart."""

    id = "S14"
    title = "CPU seconds of the driver, the scheduler and two workers"
    scheduler_apart = True
    model: Any
    protocol = (
        "1,000,000 x 50 float32 in zarr, uncompressed chunks of 131,072 rows (mixture of 10, hidden Markov model of"
        " 6 states, linear system of 6), and 200,000 documents of about 100 different words of 50,000 from 20"
        " topics; two worker processes of one thread, and the scheduler in one of its own; default parameters. The"
        " driver's seconds are those of its whole process: the fit itself, graphs and messages; the fit's own are"
        " those of the thread that called it (graphs, M-steps). Shares are of the CPU seconds of all four"
        " processes."
    )
    param_names: ClassVar = ["rows", "method"]
    params: ClassVar = [(ROWS,), tuple(MODELS)]
    quick_params: ClassVar = {"rows": (25_000,)}
    tables: ClassVar = [
        Table("Share of the driver", ["method"], "share", "rows", "min", 3),
        Table("CPU seconds of the driver's process", ["method"], "driver", "rows", "min", 2),
        Table("CPU seconds of the fit's own thread", ["method"], "own", "rows", "min", 2),
        Table("CPU seconds of the scheduler's process", ["method"], "scheduler", "rows", "min", 2),
        Table("CPU seconds of all", ["method"], "cpu", "rows", "min", 1),
    ]

    def setup(self, rows: int, method: str) -> None:
        self.start()
        kind = MODELS[method][0]
        self.path = self.folder / f"{kind}-{rows}.zarr"
        if not self.path.exists():
            WRITERS[kind](self.path, rows, 6 if self.quick else FEATURES)

    def measure(self, rows: int, method: str) -> Record:
        import dask_dca

        _, parameters = MODELS[method]
        self.model = getattr(dask_dca, method.partition(",")[0])(**parameters)
        _warm()
        self.client.run(_warm)
        before, own = self._seconds(), time.thread_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.model.fit(str(self.path))
        own = time.thread_time() - own
        driver, scheduler, workers = (now - then for now, then in zip(self._seconds(), before, strict=True))
        cpu = driver + scheduler + workers
        return {"share": driver / cpu, "driver": driver, "own": own, "scheduler": scheduler, "cpu": cpu}

    def _seconds(self) -> tuple[float, float, float]:
        """CPU seconds so far of driver, scheduler and workers."""
        return process_seconds(), self.client.run_on_scheduler(process_seconds), self.cpu()

    def check(self, records: list[Record]) -> list[Check]:
        text = ", ".join(f"{record['method']} {record['share']:.3f}" for record in records)
        met = all(record["share"] <= MOST for record in records) if records and not self.quick else None
        return [Check(f"the driver's share of the CPU seconds of a fit at most {MOST:.0%}", text or "not run", met)]


def _warm() -> None:
    """Import what tasks need: seconds of a worker's start are none of the fit's."""


def _write_frames(path: Path, p: int, pieces: Iterator[np.ndarray], n: int) -> None:
    import zarr

    array = zarr.create_array(path, shape=(n, p), chunks=(min(n, CHUNK), p), dtype="float32", compressors=None)
    for start, frames in zip(range(0, n, CHUNK), pieces, strict=True):
        array[start : start + len(frames)] = frames


def _write_chain(path: Path, n: int, p: int) -> None:
    """Frames of six planted states, from stretches of one walk."""
    planted, rng = chain(6, p, 3.0, 100_000, 0), np.random.default_rng(1)

    def pieces() -> Iterator[np.ndarray]:
        for start in range(0, n, CHUNK):
            states = np.resize(np.roll(planted.states, int(rng.integers(100_000))), min(CHUNK, n - start))
            noise = rng.standard_normal((len(states), p), dtype=np.float32)
            yield planted.means[states] + planted.deviations[states] * noise

    _write_frames(path, p, pieces(), n)


def _write_system(path: Path, n: int, p: int) -> None:
    """Frames of six states, each with a memory of its own."""
    from scipy.signal import lfilter

    rng = np.random.default_rng(2)
    decays, observe = np.array([0.98, 0.95, 0.9, 0.85, 0.8, 0.7]), rng.standard_normal((6, p))

    def pieces() -> Iterator[np.ndarray]:
        ends = np.zeros((6, 1))
        for start in range(0, n, CHUNK):
            drive = rng.standard_normal((6, min(CHUNK, n - start)))
            each = zip(decays, drive, ends, strict=True)
            found = [lfilter([1.0], [1.0, -a], row, zi=a * end) for a, row, end in each]
            states = np.stack([row for row, _ in found])
            ends = states[:, -1:]
            yield states.T @ observe + rng.standard_normal((states.shape[1], p), dtype=np.float32)

    _write_frames(path, p, pieces(), n)


def _write_documents(path: Path, n: int, p: int) -> None:
    write_documents(path, n // 5, WORDS if p == FEATURES else 500)


WRITERS: dict[str, Callable[[Path, int, int], None]] = {
    "mixture": write_mixture,
    "chain": _write_chain,
    "system": _write_system,
    "documents": _write_documents,
}
