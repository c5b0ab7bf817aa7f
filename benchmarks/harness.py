"""What every benchmark is: an asv-style class with parameters, `setup`, `measure` and tables."""

from __future__ import annotations

import itertools
import json
import platform
import statistics
import sys
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, ClassVar

from benchmarks.methods import MissingError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

Record = dict[str, Any]
SHOWN = {"chain": "hidden Markov model", "holes": "missing entries"}  # names in stored results, as reports show them
PACKAGES = ("dask-dca", "dask", "distributed", "numpy", "scipy", "scikit-learn", "zarr")
PEERS = ("dask-ml", "gensim", "hmmlearn", "pykalman", "tomotopy")


@dataclass(frozen=True)
class Table:
    """Rows by `rows`, one column for each value of `columns`; a cell is the mean of `value` and its worst."""

    title: str
    rows: list[str]
    value: str
    columns: str = "method"
    better: str = "max"  # or "min"; "none" where a cell is no merit
    digits: int = 2
    where: dict[str, Any] | None = None
    counts: bool = False  # cells are sums of counts, and the last row is that of all
    summary: bool = True  # whether a last row has the means over all rows, which are then of one unit


@dataclass(frozen=True)
class Plot:
    """One panel for each of `values` against `x`, one line a method."""

    title: str
    x: str
    values: list[str]
    where: dict[str, Any] | None = None


@dataclass(frozen=True)
class Grid:
    """Heat maps over `x` and `y`: a row for each of `values`, a column a method; with `level`, one map of contours."""

    title: str
    x: str
    y: str
    values: list[str]
    level: float | None = None
    where: dict[str, Any] | None = None


@dataclass(frozen=True)
class Check:
    """A requirement and what came out; `met` is None if it can't be judged."""

    must: str
    value: str
    met: bool | None


class Benchmark:
    """Base of all: asv calls `setup(*params)` and `track_*(*params)`; the runner `setup` and `measure`."""

    id: ClassVar[str]
    title: ClassVar[str]
    protocol: ClassVar[str]
    tables: ClassVar[list[Table]] = []
    plots: ClassVar[list[Plot | Grid]] = []
    param_names: ClassVar[list[str]]
    params: ClassVar[list[tuple]]
    quick_params: ClassVar[dict[str, tuple]] = {}

    def __init__(self, *, quick: bool = False) -> None:
        self.quick = quick
        small = self.quick_params if quick else {}
        pairs = zip(self.param_names, self.params, strict=True)
        self.cases = list(itertools.product(*(small.get(name, values) for name, values in pairs)))

    def setup(self, *params: Any) -> None:
        """Make the data of one case; MissingError leaves the case out."""
        raise NotImplementedError

    def measure(self, *params: Any) -> Record:
        """Run one case and score it."""
        raise NotImplementedError

    def check(self, records: list[Record]) -> list[Check]:
        """Compare with what is required."""
        return []

    def close(self) -> None:
        """Remove what the cases left behind."""


def run(benchmark: Benchmark, only: dict[str, list[str]] | None = None, results: Path | None = None) -> Record:
    """All cases of a benchmark, as the dictionary that is kept as JSON.

    only: values of parameters: other cases are not run, and have the results that are kept in the folder `results`.
    """
    missing: dict[str, None] = {}
    records, kept = [], _kept(benchmark, results) if only and results is not None else {}
    for params in benchmark.cases:
        case = dict(zip(benchmark.param_names, params, strict=True))
        if only and not all(str(case[name]) in values for name, values in only.items()):
            records += kept.get(tuple(map(str, params)), [])
            continue
        try:
            benchmark.setup(*params)
            records.append(case | benchmark.measure(*params))
        except MissingError as error:
            missing.setdefault(str(error))
        except Exception as error:  # a failure is a result: it is shown, and the others go on
            records.append(case | {"failed": f"{type(error).__name__}: {error}"})
        if sys.stderr.isatty():
            print(f"\r{benchmark.id} {len(records)} {' '.join(map(str, params)):60.60}", end="", file=sys.stderr)
    benchmark.close()
    return _document(benchmark, records, [text for text in missing if text], versions())


def judged(benchmark: Benchmark, kept: Record) -> Record:
    """Kept results under today's titles, tables and requirements."""
    return _document(benchmark, kept["records"], kept["missing"], kept["versions"])


def _kept(benchmark: Benchmark, results: Path) -> dict[tuple[str, ...], list[Record]]:
    """Results of an earlier run, by the values of parameters."""
    kept: dict[tuple[str, ...], list[Record]] = {}
    for record in json.loads((results / f"{benchmark.id}.json").read_text())["records"]:
        kept.setdefault(tuple(str(record[name]) for name in benchmark.param_names), []).append(record)
    return kept


def _document(benchmark: Benchmark, records: list[Record], missing: list[str], used: dict[str, str]) -> Record:
    good = [record for record in records if "failed" not in record]
    return {
        "id": benchmark.id,
        "title": benchmark.title,
        "protocol": benchmark.protocol,
        "quick": benchmark.quick,
        "versions": used,
        "missing": missing,
        "checks": [asdict(check) for check in [*benchmark.check(good), _failures(records)]],
        "tables": [asdict(table) for table in benchmark.tables],
        "plots": [asdict(plot) for plot in benchmark.plots],
        "records": records,
    }


def _failures(records: list[Record]) -> Check:
    failed = [record for record in records if "failed" in record]
    texts = sorted({f"{record.get('method')}: {record['failed']}" for record in failed})
    value = f"{len(failed)} of {len(records)} failed"
    return Check("no case fails", "; ".join([value, *texts[:5]]), not failed if records else None)


def save(document: Record, folder: Path) -> None:
    """Write beside, then rename: a stopped run leaves the old results."""
    folder.mkdir(parents=True, exist_ok=True)
    head = {key: value for key, value in document.items() if key != "records"}
    lines = ",\n".join("  " + json.dumps(record) for record in document["records"])
    text = json.dumps(head, indent=1)[:-2] + f',\n "records": [\n{lines}\n ]\n}}\n'
    beside = folder / f".{document['id']}.json"
    beside.write_text(text)
    beside.replace(folder / f"{document['id']}.json")


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that matter and are installed."""
    found = {"python": platform.python_version()}
    for package in PACKAGES + PEERS:
        with suppress(PackageNotFoundError):
            found[package] = version(package)
    return found


def timed(function: Callable[[], Any]) -> tuple[Any, float]:
    """Result and wall seconds."""
    start = time.perf_counter()
    result = function()
    return result, time.perf_counter() - start


def interleaved(functions: dict[str, Callable[[], Any]], repeats: int) -> Iterator[tuple[str, float]]:
    """Wall seconds of each function in turn (A B A B ...), after one unmeasured run of each."""
    for function in functions.values():
        function()
    for _ in range(repeats):
        for name, function in functions.items():
            yield name, timed(function)[1]


def mean(values: list[float]) -> float:
    """Mean; nan if there is nothing."""
    return statistics.fmean(values) if values else float("nan")


def group(records: list[Record], *names: str) -> dict[tuple, list[Record]]:
    """Records by the values of `names`, in the order of their first appearance."""
    groups: dict[tuple, list[Record]] = {}
    for record in records:
        groups.setdefault(tuple(record[name] for name in names), []).append(record)
    return groups
