"""Where the time of each model's fit goes: a profile, summed by floors of the library."""

from __future__ import annotations

import cProfile
import pstats
import shutil
import tempfile
import time
import warnings
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

import dask_dca as dca
from benchmarks.harness import Benchmark, Record, Table
from benchmarks.topics_scale import write_documents

if TYPE_CHECKING:
    from collections.abc import Callable

Function = tuple[str, int, str]
PARTS = ("reading", "exact sums", "geometry", "kernels", "passes", "models")
_PACKAGE = str(Path(dca.__file__).parent)
_READING = ("stores", "tiles", "rows", "sparse_rows", "sequences")
_KERNELS = (
    *(
        "gaussians",
        "kmeans",
        "em",
        "e_step",
        "correction",
        "furthest",
        "recursions",
        "scan",
        "system",
        "filter",
        "incomplete",
        "start",
    ),
    *("documents", "inference", "topics", "landmarks", "clusters"),
)
_DEEPEST = 12  # callers of callers that foreign functions are traced back through


def cones(n: int) -> np.ndarray:
    """Rows in a cone of ten rays."""
    rng = np.random.default_rng(0)
    rows = rng.dirichlet(np.ones(10), n).astype(np.float32) @ rng.random((10, 200), dtype=np.float32)
    return np.abs(rows + np.float32(0.01) * rng.standard_normal(rows.shape, dtype=np.float32))


def clouds(n: int) -> np.ndarray:
    """Rows about ten means, that stay where they are for some twenty rows."""
    rng = np.random.default_rng(0)
    labels = np.repeat(rng.integers(10, size=n // 20 + 1), 20)[:n]
    return 2.0 * rng.standard_normal((10, 20))[labels] + rng.standard_normal((n, 20))


FITS: dict[str, tuple[Any, Callable[[int], np.ndarray] | None, int]] = {
    "NMF": (dca.NMF(10), cones, 400_000),
    "SubspaceClustering": (dca.SubspaceClustering(4), cones, 40_000),
    "GaussianMixture": (dca.GaussianMixture(10), clouds, 1_000_000),
    "GaussianHMM": (dca.GaussianHMM(10), clouds, 300_000),
    "KalmanFilter": (dca.KalmanFilter(4), clouds, 300_000),
    "LatentDirichletAllocation": (dca.LatentDirichletAllocation(20), None, 100_000),
}


class Profiles(Benchmark):
    """A fit of each model on a zarr store, profiled; the first is not counted."""

    id = "profile"
    title = "Where the time of a fit goes"
    protocol = (
        "A fit of each model with its default parameters on a zarr store in the file cache (rows of the size "
        "given), one process, the synchronous scheduler, one BLAS thread; CPU time by Python's profiler, which "
        "overstates the cost of small functions. Foreign functions (NumPy, zarr, Dask) count for the part that "
        "calls them: reading (and decoding, and cutting into tiles), exact sums over rows, geometry (planes, "
        "extremes, cones), kernels (the statistics of the models), passes (graphs, scheduling, merges) and models "
        "(what the driver does itself)."
    )
    param_names: ClassVar = ["model", "rows", "part"]
    params: ClassVar = [tuple(FITS), (None,), PARTS]
    tables: ClassVar = [
        Table("Share of the CPU seconds", ["model", "rows"], "share", columns="part", better="none"),
        Table("CPU seconds", ["model", "rows"], "seconds", columns="part", better="none", digits=2),
    ]

    def __init__(self, *, quick: bool = False) -> None:
        super().__init__(quick=quick)
        self.cases = [(name, 600 if quick else FITS[name][2], part) for name in FITS for part in PARTS]
        self.folder = Path(tempfile.mkdtemp(prefix="dask-dca-profile-"))
        self.found = cache(self._profiled)

    def setup(self, model: str, rows: int, part: str) -> None:
        self.found(model, rows)

    def measure(self, model: str, rows: int, part: str) -> Record:
        spent = self.found(model, rows)
        return {"seconds": spent[part], "share": spent[part] / sum(spent.values())}

    def close(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def _profiled(self, name: str, rows: int) -> dict[str, float]:
        import dask
        import zarr
        from threadpoolctl import threadpool_limits

        model, make, _ = FITS[name]
        path = self.folder / f"{name}.zarr"
        if make is None:
            write_documents(path, rows, 500 if self.quick else 50_000)
        else:
            data = make(rows)
            zarr.create_array(path, data=data, chunks=(min(rows, 50_000), data.shape[1]))
        profile = cProfile.Profile(time.process_time)
        with threadpool_limits(1), dask.config.set(scheduler="synchronous"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(str(path))
            profile.runcall(model.fit, str(path))
        shutil.rmtree(path)
        return by_part(pstats.Stats(profile).stats)  # type: ignore[attr-defined]


def by_part(stats: dict[Function, tuple[int, int, float, float, dict[Function, tuple[int, int, float, float]]]]) -> Any:
    """Seconds of each part; a function of another package counts for the functions of this one that called it."""
    spent = dict.fromkeys(PARTS, 0.0)
    for function, (_, _, own, _, callers) in stats.items():
        if part := part_of(function):
            spent[part] += own
            continue
        if not callers:
            spent["passes"] += own  # a thread's or an interpreter's own work
        for caller, (_, _, seconds, _) in callers.items():
            for part, share in _shares(stats, caller, _DEEPEST).items():
                spent[part] += seconds * share
    return spent


def _shares(stats: Any, function: Function, depth: int) -> dict[str, float]:
    """Which parts a function works for, in proportion to the time that they waited for it."""
    if part := part_of(function):
        return {part: 1.0}
    callers = {caller: times[3] for caller, times in stats[function][4].items()}
    whole = sum(callers.values())
    if depth == 0 or not whole:
        return {"passes": 1.0}
    found: dict[str, float] = {}
    for caller, seconds in callers.items():
        for part, share in _shares(stats, caller, depth - 1).items():
            found[part] = found.get(part, 0.0) + share * seconds / whole
    return found


def part_of(function: Function) -> str | None:
    """The part that a function of the library belongs to."""
    if not function[0].startswith(_PACKAGE):
        return None
    floor, *module = Path(function[0]).relative_to(_PACKAGE).with_suffix("").parts
    if floor == "geometry":
        return "exact sums" if module == ["exact"] else "geometry"
    if floor == "engine":
        return "reading" if module[0] in _READING else "passes"
    return "kernels" if floor == "models" and module[-1] in _KERNELS else "models"
