"""A cluster of two worker processes for each file, and a client of it."""

import dask
import pytest
from distributed import Client, LocalCluster

from dask_dca.engine import computing


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    """A busy machine may need more than ten seconds to start its only worker again, and a warning is an error."""
    monkeypatch.setattr(computing, "_WARN_AFTER", 600)


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
