"""Hidden Markov models on worker processes: the same bits for any number of workers, and for workers that die."""

import os
import signal
from unittest.mock import patch

import dask.array as da
import numpy as np
import pytest
from distributed import get_worker

import dask_dca as dca
from dask_dca.models.hmm import chain_model
from dask_dca.models.hmm import sample as hmm_frames
from tests.cluster.workers import MARKS, scaled
from tests.conftest import bits
from tests.models.hmm.test_hmm import drawn
from tests.models.hmm.test_invariance import FITTED

pytestmark = MARKS
X = drawn(3000, 5, 4, 3.0)[0].astype(np.float32)
LENGTHS = [1250, 1, 1749]


@pytest.fixture(autouse=True)
def many_frames():
    """Take the road of many frames, which reads them in passes."""
    with patch.object(hmm_frames, "_SAMPLE_FRAMES", 1024), patch.object(hmm_frames, "_STRETCH", 64):
        yield


def fitted(x):
    return dca.GaussianHMM(4, max_iter=2).fit(x, lengths=LENGTHS)


def test_any_number_of_workers_gives_the_bits_of_memory(cluster, client):
    whole = bits(fitted(X), FITTED)
    for _ in scaled(cluster, client, 1, 4, 2):
        assert bits(fitted(da.from_array(X, chunks=(700, 3))), FITTED) == whole


class Deadly:
    """Frames whose reading kills the worker once, the n-th time that one chunk is read for a pass with a halo."""

    def __init__(self, folder, times):
        self.folder, self.times = folder, times
        self.shape, self.dtype, self.ndim = X.shape, X.dtype, X.ndim

    def __getitem__(self, where):
        if where[0].start == 700 and "dca-" not in str(get_worker().get_current_task()):
            seen = len(os.listdir(self.folder)) + 1
            (self.folder / str(seen)).touch()
            if seen == self.times:
                os.kill(os.getpid(), signal.SIGKILL)
        return X[where]


@pytest.mark.parametrize(("name", "times"), [("refine", 1), ("refine", 2)])
def test_a_worker_killed_in_a_pass_changes_no_bit(client, tmp_path, name, times):
    whole = bits(fitted(X), FITTED)
    deadly = da.from_array(Deadly(tmp_path, times), chunks=(700, -1), name=False, meta=X[:0])
    assert bits(fitted(deadly), FITTED) == whole
    assert len(os.listdir(tmp_path)) > times  # the worker died, and the chunk was read again


def test_states_decoded_on_workers_are_those_of_memory(client):
    model, chunked = fitted(X), da.from_array(X, chunks=(700, 3))
    np.testing.assert_array_equal(model.predict(chunked, LENGTHS).compute(), model.predict(X, LENGTHS))
    for most in (10, 10**6):
        with patch.object(chain_model, "_SCANNED", most):
            found = model.predict_proba(chunked, LENGTHS).compute()
            np.testing.assert_array_equal(found, model.predict_proba(X, LENGTHS))
            assert model.score(chunked, lengths=LENGTHS) == model.score(X, lengths=LENGTHS)
