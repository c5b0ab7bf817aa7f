"""KalmanFilter: the same bits for any chunking, scheduler and container."""

import dask
import dask.array as da
import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

import dask_dca as dca
from dask_dca.engine import rows as engine_rows
from dask_dca.models.kalman import fit as kalman_fit
from dask_dca.models.kalman import sample as kalman_frames
from tests.models.kalman.data import draw, kalman_bits, make_system, model_of
from tests.strategies import chunkings

pytestmark = pytest.mark.filterwarnings("ignore::dask_dca.errors.FewerAnchorsWarning")


@st.composite
def sequences(draw_):
    """Frames of one or several sequences, complete or not, in float32 or float64; and their lengths."""
    n = draw_(st.integers(12, 150))
    system = make_system(draw_(st.integers(1, 3)), draw_(st.integers(2, 6)), draw_(st.integers(0, 50)))
    X = draw(system, n, draw_(st.integers(0, 1000))).astype(draw_(st.sampled_from([np.float32, np.float64])))
    if draw_(st.booleans()):
        X[np.random.default_rng(n).random(X.shape) < 0.2] = np.nan
    lengths = draw_(st.sampled_from([None, "some"]))
    if lengths is not None:
        lengths = list(draw_(chunkings(n, most=6)))
    if lengths is not None and max(lengths) < 4:
        lengths = None
    return X, lengths, system.n_dim_state


def row_results(model, X, lengths):
    return dask.compute(*model.filter(X, lengths), *model.smooth(X, lengths), model.predict(X, 2, lengths))


@given(st.data())
@settings(max_examples=25)
def test_any_chunking_gives_the_same_bits(data):
    X, lengths, k = data.draw(sequences())
    chunks = (data.draw(chunkings(X.shape[0])), data.draw(chunkings(X.shape[1], most=3, empty=False)))
    chunked = da.from_array(X, chunks=chunks)
    sample, piece = data.draw(st.sampled_from([(20_480, 128), (40, 32), (40, 128)]))
    with pytest.MonkeyPatch.context() as patch, dask.config.set(scheduler="synchronous"):
        patch.setattr(kalman_frames, "_SAMPLE_ROWS", sample)
        patch.setattr(kalman_frames, "_STRETCHES", 2 if sample < 100 else 20)
        patch.setattr(kalman_fit, "_PIECE", piece)
        model = dca.KalmanFilter(k, max_iter=2).fit(X, lengths=lengths)
        parts = dca.KalmanFilter(k, max_iter=2).fit(chunked, lengths=lengths)
        assert kalman_bits(parts) == kalman_bits(model)
        for found, wanted in zip(dask.compute(*parts.smooth(chunked, lengths)), model.smooth(X, lengths), strict=True):
            np.testing.assert_array_equal(found, wanted)
        assert parts.loglikelihood(chunked, lengths) == model.loglikelihood(X, lengths)


@given(st.data())
@settings(max_examples=10)
def test_any_chunking_gives_the_same_bits_with_the_papers_method(data):
    X = draw(make_system(2, 5, 1), data.draw(st.integers(30, 150)), data.draw(st.integers(0, 1000)))
    chunked = da.from_array(X, chunks=(data.draw(chunkings(X.shape[0])), data.draw(st.sampled_from([2, 5]))))
    with dask.config.set(scheduler="synchronous"):
        whole = dca.KalmanFilter(2, method="paper").fit(X)
        assert kalman_bits(dca.KalmanFilter(2, method="paper").fit(chunked)) == kalman_bits(whole)


@pytest.mark.parametrize("missing", [False, True])
def test_zarr_dask_and_numpy_agree(tmp_path, monkeypatch, missing):
    monkeypatch.setattr(engine_rows, "_BLOCK_BYTES", 2**11)
    X, lengths = draw(make_system(3, 8, 2), 250), [100, 150]
    if missing:
        X[20:220:7, 3] = np.nan
    stored = zarr.create_array(tmp_path / "x.zarr", data=X, chunks=(32, 3))
    whole = dca.KalmanFilter(3, max_iter=2).fit(X, lengths=lengths)
    wanted_rows = row_results(whole, X, lengths)
    for form in (stored, str(tmp_path / "x.zarr"), da.from_array(X, chunks=60), np.asfortranarray(X)):
        model = dca.KalmanFilter(3, max_iter=2).fit(form, lengths=lengths)
        assert kalman_bits(model) == kalman_bits(whole)
        for found, wanted in zip(row_results(model, form, lengths), wanted_rows, strict=True):
            np.testing.assert_array_equal(found, wanted)
    assert engine_rows.as_rows(stored).n_blocks > 3


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("chunks", [((1, 400, 299), 5), ((333, 367), (2, 3)), ((7, 600, 93), 5)])
def test_results_of_rows_have_the_same_bits_for_any_chunking(chunks, missing):
    """Products with O were of whole blocks, whose last rows BLAS adds up otherwise."""
    system = make_system(3, 5, 4)
    X = draw(system, 700, 1)
    if missing:
        X[40:600:50, 3] = np.nan
    model, chunked = model_of(system), da.from_array(X, chunks=chunks)
    for found, wanted in zip(row_results(model, chunked, None), row_results(model, X, None), strict=True):
        assert found.tobytes() == wanted.tobytes()
    assert model.loglikelihood(chunked) == model.loglikelihood(X)


def test_another_fit_gives_the_same_bits_and_another_seed_other_directions():
    X = draw(make_system(3, 8, 2), 600)
    model = dca.KalmanFilter(3).fit(X)
    assert kalman_bits(dca.KalmanFilter(3).fit(X)) == kalman_bits(model)
    assert kalman_bits(model.fit(X)) == kalman_bits(dca.KalmanFilter(3, retries=1).fit(X))
    other = dca.KalmanFilter(3, random_state=1).fit(X)
    assert other.votes_.tobytes() != model.votes_.tobytes()
    found, wanted = (np.sort_complex(np.linalg.eigvals(m.transition_matrices_)) for m in (other, model))
    np.testing.assert_allclose(found, wanted, atol=1e-9)
