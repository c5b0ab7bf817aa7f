"""What learns on a sample runs on the workers: its data stay there, and outlive them."""

import gc
import os
import pickle
import signal
import threading
import time
import warnings

import dask.array as da
import numpy as np
import pytest
from distributed import wait

import dask_dca as dca
from dask_dca.engine.passes import Run
from dask_dca.engine.rows import as_rows
from dask_dca.engine.sampling import call, call_each, hold_rows
from dask_dca.errors import FloorWarning, warn
from dask_dca.models.hmm import fit as hmm_fit
from dask_dca.models.hmm import start as hmm_frames
from dask_dca.models.kalman import fit as kalman_fit
from dask_dca.models.mixture import fit as mixture_sample
from dask_dca.models.mixture import learning as mixture_learning
from tests.cluster.workers import MARKS

pytestmark = MARKS

X = np.random.default_rng(0).standard_normal((4000, 50))
NUMBERS = np.arange(0, 4000, 2)


def same(rows):
    return rows


def seen(rows, large, number, folder):
    """The sum of a sample, after the first worker that comes by has died."""
    if folder:
        try:
            os.close(os.open(f"{folder}/died", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            pass
        else:
            os.kill(os.getpid(), signal.SIGKILL)
    warn(f"call {number}", FloorWarning)
    return float(rows.sum() + large.sum()) + number, os.getpid()


def held_rows():
    return hold_rows(as_rows(da.from_array(X, chunks=(1000, 30))), NUMBERS, Run(), same)


@pytest.mark.filterwarnings("ignore::dask_dca.errors.FloorWarning")
@pytest.mark.parametrize("large", [np.zeros(1), np.zeros(2_000_000)])
def test_a_worker_that_dies_in_a_call_changes_nothing(client, tmp_path, large):
    found = call_each(Run(), "look", seen, held_rows(), [(large, i, str(tmp_path)) for i in range(4)])
    assert [value for value, _ in found] == [float(X[NUMBERS].sum()) + i for i in range(4)]
    assert os.getpid() not in {process for _, process in found}
    assert (tmp_path / "died").exists()


@pytest.mark.filterwarnings("ignore::dask_dca.errors.FloorWarning")
def test_a_sample_whose_worker_died_is_put_together_again(client):
    held = held_rows()
    wait(held.value)
    ((holder, *_),) = client.who_has(list(client.futures_of(held.value))).values()
    os.kill(client.run(os.getpid, workers=[holder])[holder], signal.SIGKILL)
    assert call(Run(), "look", seen, held, np.zeros(1), 0, "")[0] == float(X[NUMBERS].sum())


def test_neither_data_nor_large_arguments_are_in_graphs(client):
    held = held_rows()
    assert len(pickle.dumps([str(part) for part in dict(held.value.__dask_graph__()).items()])) < 2000
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", category=FloorWarning)
        call(Run(), "look", seen, held, np.zeros(2_000_000), 0, "")


def test_warnings_of_workers_are_given_here(client):
    with pytest.warns(FloorWarning, match="call 7") as told:
        call(Run(), "look", seen, held_rows(), np.zeros(1), 7, "")
    assert [one.filename for one in told] == [__file__]


def unwanted(*_, **__):
    raise AssertionError("this was to run on a worker")


@pytest.mark.parametrize(
    ("model", "sample", "on_workers"),
    [
        (dca.GaussianMixture(3, max_iter=1), (mixture_sample, "_SAMPLE_ROWS"), [(mixture_learning, "start_partition")]),
        (dca.GaussianMixture(3, "tied-spherical", max_iter=1), None, [(mixture_learning, "start_partition")]),
        (
            dca.GaussianHMM(3, max_iter=1),
            (hmm_frames, "_MAX_SAMPLE_FRAMES"),
            [(hmm_fit, "anchored_starts"), (hmm_fit, "forgetting_burn_in")],
        ),
        (dca.GaussianHMM(3, max_iter=1), None, [(hmm_fit, "anchored_starts"), (hmm_fit, "e_step_pass")]),
        (dca.GaussianHMM(max_iter=1, covariance_type="auto"), None, [(hmm_fit, "anchored_starts")]),
        (dca.KalmanFilter(2, max_iter=1), (kalman_fit, "_MAX_SAMPLE_FRAMES"), [(kalman_fit, "start_from_frames")]),
    ],
)
def test_nothing_is_learnt_on_the_driver(client, monkeypatch, model, sample, on_workers):
    if sample is not None:
        monkeypatch.setattr(*sample, 1024)
    few = X[:2000, :9] + 4.0 * (np.arange(2000) // 10 % 3)[:, None]
    expected = {key: value for key, value in vars(model.fit(few)).items() if key.endswith("_")}
    for where, name in on_workers:
        monkeypatch.setattr(where, name, unwanted)
    found = type(model)(**model.get_params()).fit(da.from_array(few, chunks=(700, 5)))
    for key, value in expected.items():
        np.testing.assert_array_equal(getattr(found, key), value, err_msg=key)


def slow(block):
    time.sleep(0.2 if len(block) else 0)
    return block


def test_an_interrupted_fit_leaves_the_cluster_nothing_to_do(client):
    """As by a notebook's stop button: the error, which shells keep, is at hand afterwards."""
    blocks = da.from_array(X, chunks=(50, -1)).map_blocks(slow, dtype=X.dtype, meta=np.empty((0, 0)))

    def asked():
        return client.run_on_scheduler(lambda dask_scheduler: [str(key) for key in dask_scheduler.tasks])

    def stop():
        while not any("dca-fetch-held" in key for key in asked()):
            time.sleep(0.05)
        time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGINT)

    stopper = threading.Thread(target=stop)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs of a shell ignore it
    stopper.start()
    try:
        with pytest.raises(KeyboardInterrupt) as kept:  # as by a shell
            dca.GaussianMixture(3).fit(blocks)
    finally:
        signal.signal(signal.SIGINT, before)
    stopper.join()
    deadline = time.monotonic() + 3  # all blocks would take eight seconds
    while asked() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not asked(), kept


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("model", [dca.GaussianMixture(2, max_iter=0), dca.GaussianHMM(2, max_iter=0)])
def test_a_sample_that_lacks_entries_does_not_stay(cluster, client, model):
    """The first sample, which was refused, goes at once, and not when Python next looks for cycles."""
    incomplete = X[:200, :3].copy()
    incomplete[::7, 1] = np.nan
    gc.disable()
    try:
        model.fit(da.from_array(incomplete, chunks=(100, 3)))
        deadline = time.monotonic() + 10
        while cluster.scheduler.tasks and time.monotonic() < deadline:
            time.sleep(0.02)
        assert not cluster.scheduler.tasks
    finally:
        gc.enable()
