"""KalmanFilter on worker processes: the same bits for any number of workers, and for workers that die."""

import os
import signal
import time

import dask
import dask.array as da
import numpy as np
import pytest
from distributed import Client, LocalCluster

import dask_dca as dca
from tests.models.kalman_data import draw, kalman_bits, make_system

pytestmark = [
    pytest.mark.cluster,
    # comms of workers that were killed on purpose, and of nodes that close while others still call
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

X = draw(make_system(3, 10, 1), 2400)
LENGTHS = [1000, 3, 1397]


@pytest.fixture(scope="module")
def cluster():
    with (
        dask.config.set({"distributed.comm.timeouts.connect": "20s"}),
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0", silence_logs=50
        ) as running,
    ):
        yield running


@pytest.fixture
def client(cluster):
    with Client(cluster) as active:
        active.wait_for_workers(1)
        yield active


def fit(given):
    return dca.KalmanFilter(3, max_iter=2).fit(given, LENGTHS)


def test_one_two_and_four_workers_give_the_same_bits(cluster, client):
    whole = kalman_bits(fit(X))
    chunked = da.from_array(X, chunks=(370, 6))
    for n_workers in (1, 4, 2):
        cluster.scale(n_workers)
        deadline = time.monotonic() + 30
        while len(client.scheduler_info(n_workers=-1)["workers"]) != n_workers and time.monotonic() < deadline:
            time.sleep(0.05)
        assert kalman_bits(fit(chunked)) == whole


class Dying:
    """An array in memory one of whose reads kills the worker: blocks with halos are read in tasks of their own."""

    def __init__(self, X, folder, at):
        self.X, self.folder, self.at = X, folder, at
        self.shape, self.dtype, self.ndim = X.shape, X.dtype, X.ndim

    def __getitem__(self, where):
        (self.folder / f"{os.getpid()}-{time.monotonic_ns()}").touch()
        if len(list(self.folder.iterdir())) >= self.at and not (self.folder.parent / "killed").exists():
            (self.folder.parent / "killed").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return self.X[where]


def dying(folder, at):
    (folder / "reads").mkdir()
    return da.from_array(Dying(X, folder / "reads", at), chunks=(400, -1), name=False, meta=X[:0])


@pytest.mark.parametrize(("name", "at"), [("fetch", 3), ("refine", 9), ("refine again", 15), ("divide", 21)])
def test_a_worker_killed_in_a_pass_changes_no_bit(client, tmp_path, name, at):
    """Six blocks a pass."""
    assert kalman_bits(fit(dying(tmp_path, at))) == kalman_bits(fit(X))
    assert (tmp_path / "killed").exists()


@pytest.mark.parametrize("name", ["filter", "smooth", "predict"])
def test_a_worker_killed_on_the_way_changes_no_state(client, tmp_path, name):
    model = fit(X)
    found, wanted = (getattr(model, name)(given, lengths=LENGTHS) for given in (dying(tmp_path, 3), X))
    found, wanted = (part if name == "predict" else part[0] for part in (found, wanted))
    np.testing.assert_allclose(found.compute(), wanted, atol=1e-9)
    assert (tmp_path / "killed").exists()
