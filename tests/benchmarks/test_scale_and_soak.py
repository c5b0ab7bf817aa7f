"""Graphs of many blocks stay small, and the tables of the soak add up."""

import inspect
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks import __main__ as command
from benchmarks import report
from benchmarks.mutation_list import MUTATIONS
from benchmarks.mutations import mutated
from benchmarks.scheduler import FEATURES, count, rows_of, sent_bytes
from benchmarks.soak import COUNTED, FAULTS, Soak
from benchmarks.streaming import Streaming, make_block, rays
from dask_dca.engine.passes import Pass, Run, delayed_pass, run_pass
from dask_dca.engine.types import add_parts
from tests.conftest import ROOT


@pytest.mark.parametrize(("kind", "most"), [("zarr", 90), ("dask", 220)])
def test_a_block_more_costs_few_bytes_and_tasks(kind, most):
    """100,000 blocks may take 10 MiB (zarr) and 30 MiB (Dask): 105 and 315 bytes per block; names grow with numbers."""
    job, state, found = Pass("count", count, add_parts), np.ones((30, FEATURES)), {}
    for n_blocks in (1000, 3000):
        value = delayed_pass(rows_of(kind, n_blocks), job, state)
        found[n_blocks] = sent_bytes(value), len(value.dask)
    assert (found[3000][0] - found[1000][0]) / 2000 < most
    assert (found[3000][1] - found[1000][1]) / 2000 < 1.2


@pytest.mark.parametrize("kind", ["zarr", "dask"])
def test_some_of_very_many_blocks_are_visited(kind):
    chosen = np.array([0, 7, 1999])
    found = run_pass(rows_of(kind, 2000), Pass("count", count, add_parts), np.ones((1, 1)), Run(), blocks=chosen)
    assert found == (3 * 100_000, 2006)


def test_the_readme_of_a_folder_says_what_its_ids_show():
    for name, benchmark in command.BENCHMARKS.items():
        folder = Path(inspect.getfile(benchmark)).parent
        if folder != ROOT / "benchmarks":  # a new one may begin beside the folders
            assert f"| {name} | {benchmark.title} |" in (folder / "README.md").read_text(), name


def test_the_soak_runs_only_when_it_is_named():
    assert not {"soak", "S6-soak", "S6-holes", "chunkings", "blocks", "streams", "mutations"} & set(command.select([]))
    assert command.select(["soak", "S6-soak"]) == ["soak", "S6-soak"]


def test_the_table_of_the_soak_adds_up():
    soak = Soak(quick=True)
    records = [
        {"fault": fault, "counted": name, "value": 2 if name == "runs" else 1} for fault in FAULTS for name in COUNTED
    ]
    (spec,) = soak.tables
    lines = report.counted(vars(spec), records).splitlines()
    assert lines[2].startswith("| fault | runs |")
    assert lines[4].startswith("| worker killed | 2 | 1 |")
    assert lines[-1].startswith(f"| all | {2 * len(FAULTS)} | {len(FAULTS)} |")
    by_name = {check.must: check for check in soak.check(records)}
    assert by_name["answers that differ: 0"].met is False
    assert by_name["states lost: 0"].value == f"{len(FAULTS)} of {2 * len(FAULTS)}"


def test_every_breakage_breaks_a_text_that_is_there_once():
    assert len({mutation.name for mutation in MUTATIONS}) == len(MUTATIONS) >= 40
    for mutation in MUTATIONS:
        mutated((ROOT / "dask_dca" / mutation.file).read_text(), mutation)
        assert all((ROOT / "tests" / name.partition("::")[0]).exists() for name in mutation.tests)
    with pytest.raises(LookupError, match="holds the text 0 times"):
        mutated("", MUTATIONS[0])


def test_generated_blocks_are_the_same_each_time_and_begin_with_the_rays():
    info = {None: {"array-location": [(0, 64), (0, 500)]}}
    block = make_block(info)
    np.testing.assert_array_equal(block, make_block(info))
    assert np.abs(block[:20] - rays()).max() <= 0.002
    assert Streaming(quick=True).cases


def test_the_peak_of_a_process_is_not_that_of_the_one_that_started_it():
    held = np.ones(2**25)  # 256 MB
    words = [sys.executable, "-c", "from benchmarks.two_workers import peak_mb; print(peak_mb())"]
    done = subprocess.run(words, cwd=ROOT, check=True, capture_output=True, text=True)
    assert 10 < float(done.stdout) < held.nbytes / 2**20 / 2
