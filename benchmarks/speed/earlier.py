"""An earlier checkout and this one in turn, on the fits of S14: CPU seconds, reads of the data, the driver's share."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import ClassVar

from benchmarks.driver_share import MODELS, ROWS, DriverShare
from benchmarks.harness import Benchmark, Check, Record, Table, group, mean
from benchmarks.methods import MissingError

ROOT = Path(__file__).parents[2]
NOW = "this one"


class Earlier(Benchmark):
    """Each fit in a process of its own, with the package of either checkout first on its path."""

    id = "S17"
    title = "An earlier checkout against this one"
    protocol = (
        "The fits of S14, with workers and scheduler of their own; EARLIER in the environment is the folder of the"
        " earlier checkout, two rounds in turn. Reads: how often a fit says that it read all rows. The stored run: the"
        " last commit before recipes were pruned by measurement (25ad139)."
    )
    param_names: ClassVar = ["rows", "method", "turn", "checkout"]
    params: ClassVar = [(ROWS,), tuple(MODELS), (0, 1), ("earlier", NOW)]
    quick_params: ClassVar = {"rows": (25_000,), "method": ("GaussianMixture",), "turn": (0,), "checkout": (NOW,)}
    tables: ClassVar = [
        Table("CPU seconds of all processes", ["method"], "cpu", "checkout", "min", 1),
        Table("Share of the driver's process", ["method"], "share", "checkout", "min", 3),
        Table("Reads of the data", ["method"], "reads", "checkout", "min", 0),
    ]

    def setup(self, rows: int, method: str, turn: int, checkout: str) -> None:
        self.package = ROOT if checkout == NOW else Path(os.environ.get("EARLIER", ""))
        if checkout != NOW and "EARLIER" not in os.environ:
            raise MissingError("EARLIER, the folder of another checkout")

    def measure(self, rows: int, method: str, turn: int, checkout: str) -> Record:
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "dask_dca").symlink_to(self.package.resolve() / "dask_dca")
            command = [sys.executable, "-m", "benchmarks.earlier", str(rows), method]
            paths = os.environ | {"PYTHONPATH": f"{folder}:{ROOT}"}
            done = subprocess.run(command, cwd=folder, env=paths, check=True, stdout=subprocess.PIPE, text=True)
        found: Record = json.loads(done.stdout.splitlines()[-1])
        return found

    def check(self, records: list[Record]) -> list[Check]:
        ratios = []
        for (method,), rows in group(records, "method").items():
            cpu = {name: mean([row["cpu"] for row in own]) for (name,), own in group(rows, "checkout").items()}
            if len(cpu) == 2:
                ratios.append((cpu["earlier"] / cpu[NOW], method))
        text = ", ".join(f"{method} {ratio:.1f}" for ratio, method in ratios)
        met = all(ratio >= 1.0 for ratio, _ in ratios) if ratios else None
        return [Check("no fit takes more CPU seconds than it did (earlier / now)", text or "not run", met)]


def _fit_once(rows: int, method: str) -> Record:
    benchmark = DriverShare(quick=rows < ROWS)
    try:
        benchmark.setup(rows, method)
        return benchmark.measure(rows, method) | {"reads": int(benchmark.model.n_passes_)}
    finally:
        benchmark.close()


if __name__ == "__main__":
    print(json.dumps(_fit_once(int(sys.argv[1]), sys.argv[2])))
