"""Results of a row each have the same bits beside any other rows, where a contract of all models doesn't see it."""

import dask.array as da
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone

import dask_dca as dca
from dask_dca.geometry.exact import piecewise_matmul
from dask_dca.geometry.nnls import nonnegative_coefficients, simplex_coefficients
from tests.conftest import bits
from tests.contract.entries import as_bytes, example, fitted
from tests.strategies import chunkings


@given(data=st.data())
@settings(max_examples=6)
def test_combinations_of_anchors_too(data):
    model, X = fitted("NMF"), example("NMF")
    F = model.transform(X).astype(data.draw(st.sampled_from([np.float32, np.float64])))
    cut = da.from_array(F, chunks=(data.draw(chunkings(len(F))), -1))
    assert as_bytes(model.inverse_transform(cut)) == as_bytes(model.inverse_transform(F))


def test_the_sum_of_most_likely_states():
    """Sums of float32 differ in the order of adding."""
    model, X = clone(fitted("GaussianHMM")).fit(example("GaussianHMM")), example("GaussianHMM")
    X = np.vstack([X] * 8).astype(np.float32)
    for recursion in ("auto", "scan"):
        given = model.set_params(recursion=recursion)
        total, states = given.decode(X, algorithm="map")
        cut, others = given.decode(da.from_array(X, chunks=((1, 500, 0, 699), 6)), algorithm="map")
        assert total == cut
        np.testing.assert_array_equal(states, others)
        assert total == pytest.approx(given.predict_proba(X.astype(np.float64)).max(axis=1).sum(), rel=1e-7)


@pytest.mark.parametrize("n", [1, 2, 63, 64, 65, 200, 700])
@pytest.mark.parametrize("solve", [piecewise_matmul, nonnegative_coefficients, simplex_coefficients])
def test_a_row_has_the_same_bits_beside_any_others(solve, n):
    rng = np.random.default_rng(n)
    X, G = rng.random((1000, 24)), rng.random((17, 24))
    right = G.T if solve is piecewise_matmul else G
    whole = solve(X, right)
    begin = int(rng.integers(0, 1000 - n))
    assert solve(X[begin : begin + n], right).tobytes() == whole[begin : begin + n].tobytes()


@pytest.mark.parametrize("options", [{}, {"method": "paper"}, {"dim": 3, "solver": "spa"}])
def test_anchors_come_with_their_rows_in_memory_and_on_dask(options):
    X = np.random.default_rng(0).random((150, 8)).astype(np.float32)
    memory = dca.find_anchors(X, 4, **options)
    chunked = dca.find_anchors(da.from_array(X, chunks=((1, 70, 0, 79), (3, 5))), 4, **options)
    np.testing.assert_array_equal(memory.rows, X[memory.indices])
    names = [name for name in vars(memory) if name != "n_range"]
    assert bits(memory, names) == bits(chunked, names)


def test_residuals_far_below_the_data_are_summed():
    """|x - f G| of a row that is off its cone by 2**-60 of its length, by hand."""
    rays, off = np.eye(3)[:2], 2.0**-60
    model = dca.NMF(2).fit(np.vstack([rays, rays]))
    assert model.reconstruction_err([[1.0, 0.0, off], [0.0, 1.0, 0.0]]) == off


@pytest.mark.parametrize(
    ("model", "methods"),
    [
        (dca.NMF(3), ("transform",)),
        (dca.GaussianMixture(3, "diag"), ("score_samples", "predict_proba")),
        (dca.GaussianHMM(3, "diag"), ("predict_proba", "filter")),
        (dca.KalmanFilter(2), ("predict", "filter", "smooth")),
    ],
)
def test_results_of_half_precision_are_those_of_single_precision(model, methods):
    """A log density below -65504 is no number of float16."""
    rng = np.random.default_rng(0)
    centres = 20.0 + 3.0 * rng.standard_normal((3, 20))
    X = np.abs(centres[np.repeat(np.arange(3), 100)] + rng.standard_normal((300, 20))).astype(np.float16)
    far = np.vstack([X, X + np.float16(2000)])
    model = clone(model).fit(X)
    for method in methods:
        expected = getattr(model, method)(far.astype(np.float32))
        for form in (far, da.from_array(far, chunks=(70, -1))):
            found = getattr(model, method)(form)
            for one, other in zip(found, expected, strict=True) if isinstance(found, tuple) else [(found, expected)]:
                assert one.dtype == np.float32
                assert np.isfinite(other).all()
                np.testing.assert_array_equal(np.asarray(one), other)
