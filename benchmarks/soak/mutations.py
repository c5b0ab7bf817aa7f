"""The mutation round: the package with one breakage at a time, and whether the ordinary tests notice."""

from __future__ import annotations

import multiprocessing
import os
import re
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import ClassVar

from benchmarks.harness import Benchmark, Check, Record, Table
from benchmarks.mutation_list import MUTATIONS, Mutation

ROOT = Path(__file__).parents[2]
CONTEXT = multiprocessing.get_context("forkserver")
PRELOADED = ("pytest", "hypothesis", "numpy", "scipy.sparse", "scipy.stats", "sklearn.utils.estimator_checks", "zarr")
OPTIONS = ("-q", "--tb=no", "-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning")
COUNTED = ("tried", "noticed")
LONGEST = 600  # seconds of a run, after which it counts as noticed: somebody waits for it
WANTED = 0.9  # share that must be noticed
QUICK = """
from hypothesis import Phase

settings.register_profile("quick", parent=settings.get_profile("ci"), phases=[Phase.explicit, Phase.generate])
settings.load_profile("quick")
"""  # an example that fails need not be shrunk
NOT_COPIED = (".git", ".venv", "__pycache__", "results", "site", "demo-output", ".hypothesis", ".*_cache")


class Mutations(Benchmark):
    """At least nine tenths of the breakages must be noticed."""

    id = "mutations"
    title = "Mutations: injected faults that the tests detect"
    protocol = (
        f"{len(MUTATIONS)} mistakes that somebody could make, one at a time in a copy of the package: ties decided the"
        " other way, terms of merges left out, borders of blocks missed by one, means not taken off. The test files"
        " named beside each run until one test fails; that test must pass without the mistake."
    )
    param_names: ClassVar = ["mutation", "counted"]
    params: ClassVar = [tuple(one.name for one in MUTATIONS), COUNTED]
    quick_params: ClassVar = {"mutation": tuple(one.name for one in MUTATIONS[:1])}
    tables: ClassVar = [Table("Breakages", ["floor"], "value", columns="counted", counts=True)]

    def __init__(self, *, quick: bool = False) -> None:
        super().__init__(quick=quick)
        self.folder: Path | None = None
        self.done: dict[str, Record] = {}
        self.failing_anyhow: list[str] = []

    def setup(self, mutation: str, counted: str) -> None:
        if self.folder is None:
            CONTEXT.set_forkserver_preload([*PRELOADED, "distributed", "dask.array", "dask.dataframe", "xarray"])
            self.folder = copied(Path(tempfile.mkdtemp(prefix="dask-dca-mutations-")))
        if mutation not in self.done:
            (one,) = (some for some in MUTATIONS if some.name == mutation)
            self.done[mutation] = tried(self.folder, one)

    def measure(self, mutation: str, counted: str) -> Record:
        found = self.done[mutation]
        return {**found, "value": 1 if counted == "tried" else found["noticed"]}

    def check(self, records: list[Record]) -> list[Check]:
        noticed = [record["noticed"] for record in records if record["counted"] == "noticed"]
        survivors = [r["mutation"] for r in records if r["counted"] == "noticed" and not r["noticed"]]
        value = "; ".join([f"{sum(noticed)} of {len(noticed)}", *survivors])
        met = len(noticed) >= len(self.cases) / 2 and sum(noticed) >= WANTED * len(noticed)
        anyhow = "; ".join(self.failing_anyhow) or "all pass"
        return [
            Check(f"at least {WANTED:.0%} are noticed", value, met if noticed else None),
            Check("the tests that noticed pass without a breakage", anyhow, not self.failing_anyhow),
        ]

    def close(self) -> None:
        if self.folder is not None:
            noticed = dict.fromkeys(found["by"] for found in self.done.values() if found["by"])
            self.failing_anyhow = failing(self.folder, list(noticed), "--tb=no") if noticed else []
            shutil.rmtree(self.folder, ignore_errors=True)


def copied(folder: Path) -> Path:
    """Copy what the tests need."""
    shutil.copytree(ROOT, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns(*NOT_COPIED))
    with (folder / "tests" / "conftest.py").open("a") as shared:
        shared.write(QUICK)
    return folder


def mutated(text: str, mutation: Mutation) -> str:
    """The text with the breakage; an error where what it breaks is not there once."""
    count = text.count(mutation.old)
    if count != 1:
        raise LookupError(
            f"{mutation.name}: {mutation.file} holds the text {count} times: {mutation.old!r};"
            " renew it in the list of its floor, breakages_of_*.py"
        )
    return text.replace(mutation.old, mutation.new)


def tried(folder: Path, mutation: Mutation) -> Record:
    """Run the tests on the broken copy."""
    path = folder / "dask_dca" / mutation.file
    before, begin = path.read_text(), time.monotonic()
    broken = mutated(before, mutation)
    try:
        path.write_text(broken)
        failed = failing(folder, [*(f"tests/{name}" for name in mutation.tests), f"dask_dca/{mutation.file}"], "-x")
    finally:
        path.write_text(before)
    by, seconds = failed[0] if failed else "", round(time.monotonic() - begin, 1)
    found = {"floor": mutation.floor, "file": mutation.file, "noticed": int(bool(by)), "by": by, "seconds": seconds}
    print(f"{mutation.name}: {by or 'NOT NOTICED'} ({seconds} s)", file=sys.stderr, flush=True)
    return found


def failing(folder: Path, tests: list[str], option: str) -> list[str]:
    """Names of the tests that fail, in a process forked off one that has imported the other libraries."""
    told = folder / "told.txt"
    process = CONTEXT.Process(target=run_tests, args=(str(folder), ["--doctest-modules", option, *tests], str(told)))
    process.start()
    process.join(LONGEST)
    if process.is_alive():
        process.kill()
        process.join()
        return tests[:1]
    named = re.findall(r"^(?:FAILED|ERROR) (\S+?(?:\[.*?\])?)(?: - .*)?$", told.read_text(), re.MULTILINE)
    if process.exitcode not in (0, 1) or bool(named) != bool(process.exitcode):
        raise AssertionError(f"pytest ended with {process.exitcode}: {told.read_text()[-1200:]}")
    return named


def run_tests(folder: str, arguments: list[str], told: str) -> None:
    """Run pytest in a copy of the repository, and exit as it does."""
    import pytest

    os.chdir(folder)
    os.environ |= {"PYTHONPATH": folder, "CI": "1", "COLUMNS": "400"}
    sys.path[:] = [folder, *(path for path in sys.path if path not in ("", str(ROOT)))]
    with open(told, "w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
        sys.exit(int(pytest.main([*OPTIONS, *arguments])))
