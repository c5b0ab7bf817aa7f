"""KalmanFilter on worker processes: the same bits for any number of workers, and for workers that die."""

import os
import signal
import time

import dask.array as da
import numpy as np
import pytest

import dask_dca as dca
from tests.cluster.workers import MARKS, scaled
from tests.models.kalman.data import draw, kalman_bits, make_system

pytestmark = MARKS

X = draw(make_system(3, 10, 1), 2400)
LENGTHS = [1000, 3, 1397]


def fit(given):
    return dca.KalmanFilter(3, max_iter=2).fit(given, lengths=LENGTHS)


def test_one_two_and_four_workers_give_the_same_bits(cluster, client):
    whole = kalman_bits(fit(X))
    chunked = da.from_array(X, chunks=(570, 6))
    for _ in scaled(cluster, client, 1, 4, 2):
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
