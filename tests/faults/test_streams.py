"""Streams whose process is killed between batches go on from the saved model with the same bits."""

import os
import signal

import numpy as np
import pytest
from distributed.utils import get_mp_context

import dask_dca as dca
from tests.conftest import SOAK_ONLY
from tests.contract.entries import fitted_bytes
from tests.models.test_streams import MODELS, SOME, batch, see, streamed


def stream(name, path, n_batches, kill):
    """What a process does: a stream from where its saved model is, which ends at a batch by SIGKILL."""
    model = dca.load_model(path) if os.path.exists(path) else MODELS[name][0]()
    for seed in range(getattr(model, "n_samples_seen_", 0) // 200, n_batches):
        see(model, name, batch(name, seed)).save(path, overwrite=True)
        if seed == kill:
            os.kill(os.getpid(), signal.SIGKILL)


def killed(name, path, n_batches, kills):
    """A stream that saves its model after each batch, in processes that are killed."""
    for kill in [*kills, -1]:
        process = get_mp_context().Process(target=stream, args=(name, path, n_batches, kill))
        process.start()
        process.join(280)
        assert process.exitcode == (0 if kill < 0 else -signal.SIGKILL)
    return dca.load_model(path)


def test_a_killed_stream_has_the_same_bits(tmp_path):
    found = killed("hmm", str(tmp_path / "m.zarr"), 6, [2])
    assert fitted_bytes(found) == fitted_bytes(streamed("hmm", 6))


@SOAK_ONLY
@pytest.mark.parametrize("name", SOME)
def test_a_long_stream_that_is_killed_again_and_again_has_the_same_bits(name, tmp_path):
    kills = sorted(np.random.default_rng(0).choice(199, 8, replace=False).tolist())
    found = killed(name, str(tmp_path / "m.zarr"), 200, kills)
    assert fitted_bytes(found) == fitted_bytes(streamed(name, 200))
