"""KalmanFilter: the same bits of incomplete frames for any chunking, and of a row beside any others."""

import dask
import dask.array as da
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dask_dca as dca
from tests.models.kalman.data import draw, kalman_bits, make_system, model_of
from tests.strategies import chunkings

pytestmark = pytest.mark.filterwarnings("ignore::dask_dca.errors.FewerAnchorsWarning")


def row_results(model, X, lengths):
    return dask.compute(*model.filter(X, lengths), *model.smooth(X, lengths), model.predict(X, 2, lengths))


@given(st.data())
@settings(max_examples=3)
def test_any_chunking_of_incomplete_frames_gives_the_same_bits(data):
    n, k = data.draw(st.integers(15, 40)), data.draw(st.integers(1, 2))
    X = draw(make_system(k, data.draw(st.integers(2, 4)), data.draw(st.integers(0, 50))), n)
    X[np.random.default_rng(n).random(X.shape) < 0.2] = np.nan
    lengths = data.draw(st.sampled_from([None, [n - 9, 9]]))
    chunked = da.from_array(X, chunks=(data.draw(chunkings(n)), data.draw(chunkings(X.shape[1], most=3, empty=False))))
    with dask.config.set(scheduler="synchronous"):
        model, parts = (dca.KalmanFilter(k, max_iter=1).fit(held, lengths=lengths) for held in (X, chunked))
        assert kalman_bits(parts) == kalman_bits(model)
        for found, wanted in zip(dask.compute(*parts.smooth(chunked, lengths)), model.smooth(X, lengths), strict=True):
            np.testing.assert_array_equal(found, wanted)
        assert parts.loglikelihood(chunked, lengths) == model.loglikelihood(X, lengths)


@pytest.mark.parametrize("missing", [False, True])
def test_results_of_rows_have_the_same_bits_for_any_chunking(missing):
    """Products with O were of whole blocks, whose last rows BLAS adds up otherwise."""
    system = make_system(3, 5, 4)
    X = draw(system, 700, 1)
    if missing:
        X[40:600:50, 3] = np.nan
    model = model_of(system)
    whole = [wanted.tobytes() for wanted in row_results(model, X, None)]
    chunked = da.from_array(X, chunks=((7, 333, 360), (2, 3)))
    assert [found.tobytes() for found in row_results(model, chunked, None)] == whole
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
