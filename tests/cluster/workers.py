"""What tests on worker processes share: their marks, waiting for workers, and arrays whose reading goes wrong."""

import os
import signal
import time

import dask.array as da
import pytest
from distributed import get_worker

MARKS = [
    pytest.mark.cluster,
    # comms of workers that were killed on purpose, and of nodes that close while others still call
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


def scaled(cluster, client, *counts):
    """Scale a cluster to each number of workers in turn, and say so when they are there."""
    for n_workers in counts:
        cluster.scale(n_workers)
        deadline = time.monotonic() + 30
        while len(client.scheduler_info(n_workers=-1)["workers"]) != n_workers and time.monotonic() < deadline:
            time.sleep(0.05)
        yield n_workers


class Faulty:
    """An array in memory whose reading goes wrong, in tasks of one pass."""

    def __init__(self, X, name, marker=None, fault="kill"):
        self.X, self.name, self.marker, self.fault = X, name, marker, fault
        self.shape, self.dtype, self.ndim = X.shape, X.dtype, X.ndim

    def __getitem__(self, where):
        if where[0].start and self.name in str(get_worker().get_current_task()) and self.first():
            if self.fault == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            raise OSError(f"chunk at row {where[0].start} can't be read")
        return self.X[where]

    def first(self):
        """Whether nobody was here before; always, if there is no file to mark it."""
        if self.marker is None:
            return True
        try:
            os.close(os.open(self.marker, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True


def faulty(X, name, marker=None, fault="kill", chunk=600):
    return da.from_array(Faulty(X, name, marker, fault), chunks=(chunk, -1), name=False, meta=X[:0])
