"""A mixture has the same bits for any chunking, scheduler and container."""

from contextlib import ExitStack, contextmanager
from unittest.mock import patch

import dask
import dask.array as da
import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

import dask_dca as dca
from dask_dca.engine import rows as engine_rows
from dask_dca.engine import tiles
from dask_dca.models.mixture import sample as mixture_sample
from tests.models.mixture.data import FORMS, mixture_bits, planted_mixture
from tests.strategies import chunkings

pytestmark = pytest.mark.filterwarnings("ignore::dask_dca.errors.FewerAnchorsWarning")


@contextmanager
def small_tiles(sampled):
    """Send small data down the road of large ones: many tiles a block, and a sample of the rows."""
    with ExitStack() as stack:
        stack.enter_context(patch.object(tiles, "_MAX_TILE_ROWS", 64))
        if sampled:
            stack.enter_context(patch.object(mixture_sample, "_SAMPLE_ROWS", 80))
        stack.enter_context(dask.config.set(scheduler="synchronous"))
        yield


@st.composite
def cases(draw):
    """Rows, with duplicates and far from zero; number of components; form; views or none, random or given."""
    k, form = draw(st.integers(1, 4)), draw(st.sampled_from(("auto", *FORMS)))
    wide = draw(st.booleans())
    p = draw(st.integers(3 * k, 14)) if wide else draw(st.integers(1, 3 * k))
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    n = draw(st.integers(85, 160))
    X = planted_mixture(n, p, k, 4.0, seed=draw(st.integers(0, 10**6)))[0]
    X = (X + draw(st.sampled_from([0.0, 100.0]))).astype(dtype)
    if draw(st.booleans()):
        X[n // 2 :] = X[: n - n // 2]
    views = None
    if wide and draw(st.booleans()):
        views = [list(range(i * k, (i + 1) * k)) for i in range(3)]
    return X, dca.GaussianMixture(k, form, views=views, max_iter=draw(st.integers(0, 2)))


@given(st.data())
@settings(max_examples=50)
def test_any_chunking_gives_the_same_bits(data):
    X, model = data.draw(cases())
    chunks = (data.draw(chunkings(X.shape[0])), data.draw(chunkings(X.shape[1], most=3, empty=False)))
    with small_tiles(data.draw(st.booleans())):
        whole = mixture_bits(model.fit(X))
        found = {name: getattr(model, name)(X) for name in ("predict", "predict_proba", "score_samples")}
        score = model.score(X)
        chunked = da.from_array(X, chunks=chunks)
        assert mixture_bits(model.fit(chunked)) == whole
        assert model.score(chunked) == score
        for name, values in found.items():
            assert getattr(model, name)(chunked).compute().tobytes() == values.tobytes()


@pytest.mark.parametrize("parameters", [{}, {"method": "paper", "max_iter": 1}, {"n_components": "auto"}], ids=str)
def test_inline_threads_zarr_and_float32_agree(tmp_path, monkeypatch, parameters):
    monkeypatch.setattr(engine_rows, "_BLOCK_BYTES", 2**14)
    X = planted_mixture(1000, 20, 4, 5.0, dtype=np.float32)[0]
    stored = zarr.create_array(tmp_path / "x.zarr", data=X, chunks=(128, 7))
    parameters = {"n_components": 4} | parameters
    whole = mixture_bits(dca.GaussianMixture(**parameters).fit(X))
    for form in (stored, str(tmp_path / "x.zarr"), da.from_zarr(stored), da.from_array(X, chunks=(333, 11))):
        with dask.config.set(scheduler="threads"):
            assert mixture_bits(dca.GaussianMixture(**parameters).fit(form)) == whole


@pytest.mark.parametrize("ensemble", ["mixed", "row-space", "whitened", "gaussian", "sparse", "unit", "data"])
def test_every_ensemble_gives_the_same_bits(ensemble):
    X = planted_mixture(300, 13, 4)[0]
    chunked = da.from_array(X, chunks=((7, 0, 1, 142, 150), (5, 8)))
    with dask.config.set(scheduler="synchronous"):
        whole = dca.GaussianMixture(4, ensemble=ensemble).fit(X)
        assert mixture_bits(dca.GaussianMixture(4, ensemble=ensemble).fit(chunked)) == mixture_bits(whole)


def test_all_rows_are_read_a_few_times_only(computes):
    """The sample; then refinement, which looks once more than it steps, and the first time for tails, too.

    Between them tasks learn on the sample, where it is.
    """
    X = da.from_array(planted_mixture(400, 15, 4)[0], chunks=100)
    model = dca.GaussianMixture(4, max_iter=2, tol=0.0).fit(X)
    assert model.n_iter_ == 2
    assert computes.passes == [
        "fetch", "describe", "start", "refine", "refine", "refine", "fetch",
    ]  # fmt: skip
