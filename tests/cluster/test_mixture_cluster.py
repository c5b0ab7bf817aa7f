"""Mixtures on worker processes: the same bits for any number of workers, and for workers that die."""

import os
import signal
import time

import dask
import dask.array as da
import numpy as np
import pytest
from distributed import Client, LocalCluster, get_worker

import dask_dca as dca
from dask_dca.models import mixture_signatures
from tests.models.mixture_data import mixture_bits, planted_mixture

pytestmark = [
    pytest.mark.cluster,
    # comms of workers that were killed on purpose, and of nodes that close while others still call
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

X = planted_mixture(4000, 18, 5, 4.0, dtype=np.float32)[0]
MODEL = dca.GaussianMixture(5, max_iter=1, tol=0.0)


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


@pytest.fixture(scope="module", autouse=True)
def sampled():
    """A sample smaller than the data, as large data have it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mixture_signatures, "_SAMPLE_ROWS", 1000)
        yield


@pytest.fixture(scope="module")
def whole(sampled):
    return mixture_bits(MODEL.fit(X))


class Deadly:
    """An array in memory; reading it kills the first worker that does so in tasks of one pass."""

    def __init__(self, name, marker):
        self.name, self.marker = name, marker
        self.shape, self.dtype, self.ndim = X.shape, X.dtype, X.ndim

    def __getitem__(self, where):
        if where[0].start and self.name in str(get_worker().get_current_task()):
            try:
                os.close(os.open(self.marker, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                pass
            else:
                os.kill(os.getpid(), signal.SIGKILL)
        return X[where]


def test_one_two_and_four_workers_give_the_same_bits(cluster, client, whole):
    chunked = da.from_array(X, chunks=(450, 11))
    for n_workers in (1, 4, 2):
        cluster.scale(n_workers)
        deadline = time.monotonic() + 30
        while len(client.scheduler_info(n_workers=-1)["workers"]) != n_workers and time.monotonic() < deadline:
            time.sleep(0.05)
        assert mixture_bits(MODEL.fit(chunked)) == whole


@pytest.mark.parametrize("name", ["cross", "power", "signature", "divide", "refine"])
def test_a_worker_killed_in_a_pass_changes_no_bit(client, whole, tmp_path, name):
    marker = tmp_path / "killed"
    data = da.from_array(Deadly(f"dca-{name}", marker), chunks=(500, -1), name=False, meta=X[:0])
    assert mixture_bits(MODEL.fit(data)) == whole
    assert marker.exists()  # a worker did die


def test_predictions_on_workers_are_those_of_the_driver(client):
    model = dca.GaussianMixture(5).fit(X)
    chunked = da.from_array(X, chunks=(450, 11))
    assert model.predict_proba(chunked).compute().tobytes() == model.predict_proba(X).tobytes()
    assert model.score(chunked) == model.score(X)
