"""A fitted hidden Markov model has the same bits for any chunking, scheduler and container."""

from contextlib import contextmanager
from unittest.mock import patch

import dask
import dask.array as da
import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

import dask_dca as dca
from dask_dca.models.hmm import chain_model, lags, layout
from dask_dca.models.hmm import fit as hmm_fit
from dask_dca.models.hmm import sample as hmm_frames
from tests.conftest import bits
from tests.models.hmm.test_hmm import drawn
from tests.strategies import chunkings

pytestmark = pytest.mark.filterwarnings("ignore::dask_dca.errors.FewerAnchorsWarning")
FITTED = (
    "startprob_",
    "transmat_",
    "means_",
    "covariances_",
    "anchor_indices_",
    "state_counts_",
    "votes_",
    "vote_confidence_",
    "start_scores_",
    "log_likelihoods_",
    "burn_in_",
)


@contextmanager
def path(kind):
    """Send few frames down the road of many: samples in stretches, sketches of wide data, tiles, segments."""
    with dask.config.set(scheduler="synchronous"):
        if kind == "all":
            yield
            return
        with (
            patch.object(hmm_frames, "_STRETCH", 16),
            patch.object(hmm_frames, "_SAMPLE_FRAMES", 128),
            patch.object(hmm_fit, "_MOVED", 64),
            patch.object(lags, "_WIDE", 1 if kind == "wide" else 512),
            patch.object(layout, "_PIECES", (2, 2)),
            patch.object(chain_model, "_SCANNED", 10),
        ):
            yield


@given(st.data())
@settings(max_examples=12)
def test_the_same_bits_for_any_chunking(data):
    n, p, k = data.draw(st.integers(150, 400)), data.draw(st.integers(1, 5)), data.draw(st.integers(1, 4))
    dtype = data.draw(st.sampled_from([np.float32, np.float64]))
    X = drawn(n, p, k, 2.0, data.draw(st.integers(0, 99)))[0].astype(dtype)
    lengths, kind = data.draw(chunkings(n, most=4)), data.draw(st.sampled_from(["all", "sampled", "wide"]))
    form = data.draw(st.sampled_from(["diag", "full", "tied", "spherical"]))
    chunks = (data.draw(chunkings(n)), data.draw(chunkings(p, most=3, empty=False)))
    with path(kind):
        whole = dca.GaussianHMM(k, form, max_iter=2).fit(X, lengths=lengths)
        for x in (
            da.from_array(X, chunks=chunks),
            zarr.create_array({}, data=X, chunks=(data.draw(st.integers(9, 99)), p)),
        ):
            parts = dca.GaussianHMM(k, form, max_iter=2).fit(x, lengths=lengths)
            assert bits(parts, FITTED) == bits(whole, FITTED)
            np.testing.assert_array_equal(np.asarray(parts.predict_proba(x, lengths)), whole.predict_proba(X, lengths))
            np.testing.assert_array_equal(np.asarray(parts.predict(x, lengths)), whole.predict(X, lengths))
            assert parts.score(x, lengths=lengths) == whole.score(X, lengths=lengths)


@pytest.mark.parametrize("scheduler", ["synchronous", "threads"])
def test_the_same_bits_for_any_scheduler(scheduler):
    X = drawn(900, 4, 3, 2.0)[0]
    whole = dca.GaussianHMM(3, max_iter=2).fit(X)
    with path("sampled"):
        sampled = dca.GaussianHMM(3, max_iter=2).fit(X)
        with dask.config.set(scheduler=scheduler):
            parts = dca.GaussianHMM(3, max_iter=2).fit(da.from_array(X, chunks=(113, 3)))
    assert bits(parts, FITTED) == bits(sampled, FITTED)
    assert bits(sampled, FITTED) != bits(whole, FITTED)  # the other road was taken


def test_the_passes_and_their_names(computes):
    X = drawn(900, 4, 3, 2.0)[0]
    with path("sampled"), dask.config.set(scheduler=computes):
        dca.GaussianHMM(3, max_iter=1).fit(da.from_array(X, chunks=(100, 4)))
    assert computes.passes == ["fetch", "describe", "learn", "refine", "correct", "refine", "forget"]
    assert all(len(graph) < 100 for graph in computes.graphs)


def test_the_papers_model_has_the_same_bits_too():
    X = drawn(300, 4, 3, 2.0)[0]
    whole = dca.GaussianHMM(3, method="paper").fit(X, lengths=[100, 200])
    with path("all"):
        parts = dca.GaussianHMM(3, method="paper").fit(
            da.from_array(X, chunks=((7, 200, 0, 93), (3, 1))), lengths=[100, 200]
        )
    assert bits(parts, FITTED) == bits(whole, FITTED)
