"""What it costs that Dask's workers give memory back to the system: the allocator's thresholds, and what they save."""

from __future__ import annotations

import os
from typing import Any, ClassVar

import numpy as np

from benchmarks.harness import Check, Record, Table, group, timed
from benchmarks.speed import FIT, fit, write_rows
from benchmarks.two_workers import TwoWorkers

NAMES = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_")
SETTINGS: dict[str, dict[str, int]] = {
    "Dask's default": {"MALLOC_TRIM_THRESHOLD_": 65_536},
    "trim 256 MiB": {"MALLOC_TRIM_THRESHOLD_": 2**28},
    "trim 256 MiB, mmap 32 MiB": {"MALLOC_TRIM_THRESHOLD_": 2**28, "MALLOC_MMAP_THRESHOLD_": 2**25},
    "glibc's default": {},
}


class WorkerMemory(TwoWorkers):
    """S1's array and fit, under several thresholds."""

    id = "S12"
    title = "Workers that keep freed memory: what it saves"
    protocol = (
        "1,000,000 x 500 float32, chunks of 16,384 rows (31 MiB), not compressed; two worker processes of one "
        "thread, started anew for each setting; sum and fit in turn, the first of each not counted. Trim and "
        "mmap: MALLOC_TRIM_THRESHOLD_ and MALLOC_MMAP_THRESHOLD_ of the workers' environment (glibc). Page faults "
        "in thousands. Peak: of the larger worker at the end."
    )
    param_names: ClassVar = ["setting", "turn", "method"]
    params: ClassVar = [tuple(SETTINGS), (0, 1, 2, 3), ("sum", FIT)]
    quick_params: ClassVar = {"setting": tuple(SETTINGS)[:3:2], "turn": (0, 1)}
    tables: ClassVar = [
        Table("CPU seconds of the workers", ["setting"], "cpu", better="min"),
        Table("Page faults, thousands", ["setting"], "faults", better="min", digits=0),
        Table("Wall seconds", ["setting"], "seconds", better="min"),
        Table("Peak memory of a worker, MB", ["setting"], "peak", better="min", digits=0),
    ]
    held: str = ""

    def setup(self, setting: str, turn: int, method: str) -> None:
        import dask
        import distributed  # noqa: F401  (its settings must be there before they are set)

        if setting == self.held:
            return
        self.close()
        for name in NAMES:
            os.environ.pop(name, None)  # a nanny leaves them in its own process, where they overrule the next settings
        settings = {"OMP_NUM_THREADS": 1, "OPENBLAS_NUM_THREADS": 1} | SETTINGS[setting]
        with dask.config.set({"distributed.nanny.pre-spawn-environ": settings}):
            self.start("auto")
        self.held, self.path = setting, self.folder / "rows.zarr"
        write_rows(self.path, *((4000, 30) if self.quick else (1_000_000, 500)), "uncompressed")

    def measure(self, setting: str, turn: int, method: str) -> Record:
        import dask.array as da
        import zarr

        def job() -> Any:
            if method == "sum":
                return da.from_zarr(str(self.path)).sum().compute()
            return fit(zarr.open_array(str(self.path), mode="r"), 20)

        cpu, faults = self.cpu(), self._faults()
        _, seconds = timed(job)
        cpu, faults = self.cpu() - cpu, self._faults() - faults
        counted = {"cpu": cpu, "faults": faults / 1000, "seconds": seconds, "peak": self.peak_mb()}
        return counted if turn else {}

    def _faults(self) -> int:
        return sum(self.client.run(page_faults).values())

    def check(self, records: list[Record]) -> list[Check]:
        fits = [r for r in records if r["method"] == FIT and "cpu" in r]
        cpu = {key: float(np.median([r["cpu"] for r in rs])) for (key,), rs in group(fits, "setting").items()}
        default, chosen = (cpu.get(name) for name in tuple(SETTINGS)[:3:2])
        if default is None or chosen is None:
            return [Check("the chosen thresholds take less CPU than Dask's", "not run", None)]
        text = f"{chosen / default:.2f} of its CPU seconds"
        return [Check("the chosen thresholds take less CPU than Dask's", text, chosen < default)]


def page_faults() -> int:
    """Minor page faults of this process so far."""
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
