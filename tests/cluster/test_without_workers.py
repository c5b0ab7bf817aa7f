"""What a caller is told who waits for workers, or whose workers die of want of memory, one after the other."""

import re
import time

import dask
import dask.array as da
import numpy as np
import pytest
import zarr
from click.testing import CliRunner
from distributed import Client, LocalCluster
from distributed.scheduler import KilledWorker

import dask_dca as dca
from dask_dca.cli.main import main
from dask_dca.engine import computing
from dask_dca.errors import ClusterError, ClusterWarning, warn
from tests.cluster.workers import MARKS
from tests.conftest import bits, planted

pytestmark = MARKS
MEMORY = 400 * 2**20
DIED = (
    r"2 workers died, one after the other, at the task dca-\S+ of the block of rows \d+ to \d+, or one beside it.*"
    r"the last had 400.00 MiB for 1 threads.*smaller chunks of rows"
)


@pytest.fixture(scope="module")
def data():
    return planted(3000, 20, 4, dtype=np.float32)[0]


@pytest.fixture
def empty(monkeypatch):
    """A cluster that has no worker until somebody is told so."""
    with LocalCluster(n_workers=0, threads_per_worker=1, processes=False, dashboard_address=":0") as cluster:

        def told(*args):
            cluster.scale(1)
            warn(*args)

        monkeypatch.setattr(computing, "_WARN_AFTER", 0.5)
        monkeypatch.setattr(computing, "warn", told)
        yield cluster


def test_a_fit_without_workers_says_that_it_waits_and_goes_on_when_they_come(empty, data):
    address = re.escape(empty.scheduler_address)
    with Client(empty), pytest.warns(ClusterWarning, match=rf"no workers at {address}: waiting.*dask worker {address}"):
        model = dca.NMF(4).fit(da.from_array(data, chunks=(500, -1)))
    assert bits(model) == bits(dca.NMF(4).fit(data))


@pytest.mark.filterwarnings("default::dask_dca.errors.ClusterWarning")
@pytest.mark.parametrize("out", ["f.zarr", "f.csv"])
def test_so_do_commands(empty, data, tmp_path, out):
    zarr.create_array(tmp_path / "x.zarr", data=data, chunks=(500, 20))
    dca.NMF(4).fit(data).save(tmp_path / "m.zarr")
    words = ["transform", *(str(tmp_path / name) for name in ("m.zarr", "x.zarr")), "-o", str(tmp_path / out)]
    done = CliRunner().invoke(main, [*words, "--scheduler", empty.scheduler_address])
    assert done.exit_code == 0, done.output
    assert done.output.count("Warning: no workers at") == 1


def test_nothing_is_said_while_workers_work(client, data, monkeypatch):
    monkeypatch.setattr(computing, "_WARN_AFTER", 0.05)

    def slow(block):
        time.sleep(0.2)
        return block

    dca.NMF(4).fit(da.from_array(data, chunks=(500, -1)).map_blocks(slow, meta=data[:0]))  # warnings are errors


def hungry(block, block_info=None):
    """Take more memory than a worker has, in one block, while it computes."""
    if block_info is not None and block_info[0]["chunk-location"][0] == 3:
        held = np.ones(MEMORY // 4)
        time.sleep(60)
        del held
    return block


@pytest.fixture(scope="module")
def small():
    """A worker process of little memory, whose nanny ends it when it takes more."""
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 1}),
        LocalCluster(
            n_workers=1, threads_per_worker=1, memory_limit=MEMORY, dashboard_address=":0", silence_logs=50
        ) as cluster,
    ):
        yield cluster


def test_workers_that_die_of_want_of_memory_name_the_rows_and_what_helps(small, data):
    X = da.from_array(data, chunks=(500, -1)).map_blocks(hungry, dtype=data.dtype, meta=data[:0])
    with Client(small), pytest.raises(ClusterError, match=DIED) as told:
        dca.NMF(4).fit(X)
    assert isinstance(told.value.__cause__, KilledWorker)
    assert "checkpoint=PATH" in str(told.value)


def test_a_command_ends_with_one_line_of_it(small, data, tmp_path, monkeypatch):
    """Of a transform, whose tasks are called otherwise than those of a fit."""
    zarr.create_array(tmp_path / "x.zarr", data=data, chunks=(500, 20))
    dca.NMF(4).fit(data).save(tmp_path / "m.zarr")
    monkeypatch.setattr(dca.NMF, "transform", lambda self, X: da.from_zarr(X).map_blocks(hungry, meta=data[:0]))
    words = ["transform", *(str(tmp_path / name) for name in ("m.zarr", "x.zarr")), "-o", str(tmp_path / "f.zarr")]
    done = CliRunner().invoke(main, [*words, "--scheduler", small.scheduler_address])
    assert done.exit_code == 2
    [line] = done.output.splitlines()
    assert line.startswith("Error: 2 workers died, one after the other, at the task ")
    assert not (tmp_path / "f.zarr").exists()
