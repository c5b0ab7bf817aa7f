"""Processes that die or hang in the middle of a fit: the same bits, at once or after going on from the checkpoint."""

import os
import signal
import time
from types import SimpleNamespace

import pytest

from benchmarks.soak import Fit
from benchmarks.soak_cluster import Cluster
from benchmarks.soak_fits import whole, write
from tests.cluster.workers import MARKS
from tests.conftest import SOAK_ONLY

pytestmark = MARKS


@pytest.fixture(scope="module")
def soak(tmp_path_factory):
    folder = tmp_path_factory.mktemp("soak")
    write(folder)
    cluster = Cluster(folder)
    yield SimpleNamespace(folder=folder, cluster=cluster, bits={"GaussianMixture": whole(folder, "GaussianMixture")})
    cluster.stop()


def begun(soak, place):
    """A fit of which two passes are done."""
    running = Fit(soak, "GaussianMixture", "zarr", place)
    deadline = time.monotonic() + 60
    while len(running.kept()) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.005)
    return running


def resumed(soak, running):
    """The fit goes on from its checkpoint to the same bits, and repeats nothing that was done."""
    kept = running.kept()
    again = Fit(soak, running.name, running.form, running.place.name)
    assert again.until_it_ends() == {"bits": soak.bits[running.name], "warnings": []}
    assert {path: again.kept()[path] for path in kept} == kept


@SOAK_ONLY  # its checkpoint, each model's: tests/contract/test_checkpoints.py
def test_a_driver_that_is_killed_goes_on_where_it_was(soak):
    running = begun(soak, "driver")
    running.process.kill()
    assert running.until_it_ends() == {"killed": True}
    resumed(soak, running)


@SOAK_ONLY  # a client waits half a minute for its scheduler
def test_a_scheduler_that_is_killed_ends_the_fit_with_a_clear_error(soak):
    running = begun(soak, "scheduler")
    soak.cluster.kill_scheduler()
    ended = running.until_it_ends()
    assert ended["error"] == "ClusterError"
    assert "the scheduler was lost or restarted in the pass dca-" in ended["message"]
    assert "the same fit goes on from there" in ended["message"]
    assert ended["clear"]
    resumed(soak, running)


@SOAK_ONLY
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_worker_that_dies_or_hangs_changes_no_bit(soak, number):
    running = begun(soak, f"worker-{number}")
    victim = soak.cluster.worker_pids()[0]
    os.kill(victim, number)
    assert running.until_it_ends()["bits"] == soak.bits[running.name]
