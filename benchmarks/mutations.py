"""The mutation round: the package with one breakage at a time, and whether the ordinary tests notice."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import ClassVar

from benchmarks.harness import Benchmark, Check, Record, Table
from benchmarks.mutation_list import MUTATIONS, Mutation

ROOT = Path(__file__).parents[1]
COUNTED = ("tried", "noticed")
LONGEST = 600  # seconds of a run, after which it counts as noticed: somebody waits for it
WANTED = 0.9  # share that must be noticed
NOT_COPIED = (".git", ".venv", "__pycache__", "results", "site", "demo-output", ".hypothesis", ".*_cache")


class Mutations(Benchmark):
    """At least nine tenths of the breakages must be noticed."""

    id = "mutations"
    title = "Mutations: breakages that the tests notice"
    protocol = (
        f"{len(MUTATIONS)} mistakes that somebody could make, one at a time in a copy of the package: ties decided the"
        " other way, terms of merges left out, borders of blocks missed by one, means not taken off. The test files"
        " named beside each run until one test fails; that test must pass without the mistake."
    )
    param_names: ClassVar = ["mutation", "counted"]
    params: ClassVar = [tuple(one.name for one in MUTATIONS), COUNTED]
    quick_params: ClassVar = {"mutation": tuple(one.name for one in MUTATIONS[:2])}
    tables: ClassVar = [Table("Breakages", ["floor"], "value", columns="counted", counts=True)]

    def __init__(self, *, quick: bool = False) -> None:
        super().__init__(quick=quick)
        self.folder: Path | None = None
        self.done: dict[str, Record] = {}

    def setup(self, mutation: str, counted: str) -> None:
        if self.folder is None:
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
        return [Check(f"at least {WANTED:.0%} are noticed", value, met if noticed else None)]

    def close(self) -> None:
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)


def copied(folder: Path) -> Path:
    """Copy what the tests need."""
    return Path(shutil.copytree(ROOT, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns(*NOT_COPIED)))


def mutated(text: str, mutation: Mutation) -> str:
    """The text with the breakage; an error where what it breaks is not there once."""
    count = text.count(mutation.old)
    if count != 1:
        raise LookupError(
            f"{mutation.name}: {mutation.file} holds the text {count} times: {mutation.old!r};"
            " renew the list in benchmarks/mutation_list.py"
        )
    return text.replace(mutation.old, mutation.new)


def tried(folder: Path, mutation: Mutation) -> Record:
    """Run the tests on the broken copy; what fails must pass on the whole one."""
    path = folder / "dask_dca" / mutation.file
    before, begin = path.read_text(), time.monotonic()
    broken = mutated(before, mutation)
    try:
        path.write_text(broken)
        by = failing(folder, [*(f"tests/{name}" for name in mutation.tests), f"dask_dca/{mutation.file}"])
    finally:
        path.write_text(before)
    seconds = round(time.monotonic() - begin, 1)
    if by and failing(folder, [by]):
        raise AssertionError(f"{by} fails without the breakage as well")
    found = {"floor": mutation.floor, "file": mutation.file, "noticed": int(bool(by)), "by": by, "seconds": seconds}
    print(f"{mutation.name}: {by or 'NOT NOTICED'} ({seconds} s)", file=sys.stderr, flush=True)
    return found


def failing(folder: Path, tests: list[str]) -> str:
    """Name of the first test that fails; nothing if all pass."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "--tb=no", "-p", "no:cacheprovider", *tests]
    own = {"PYTHONPATH": str(folder), "CI": "1", "OPENBLAS_NUM_THREADS": "1", "COLUMNS": "400"}
    try:
        ended = subprocess.run(
            command, cwd=folder, env=os.environ | own, capture_output=True, text=True, timeout=LONGEST, check=False
        )
    except subprocess.TimeoutExpired:
        return tests[0]
    if ended.returncode == 0:
        return ""
    named = re.search(r"^(?:FAILED|ERROR) (\S+?(?:\[.*?\])?)(?: - .*)?$", ended.stdout, re.MULTILINE)
    if ended.returncode != 1 or named is None:
        raise AssertionError(f"pytest ended with {ended.returncode}: {ended.stdout[-800:]}{ended.stderr[-400:]}")
    return named[1]
