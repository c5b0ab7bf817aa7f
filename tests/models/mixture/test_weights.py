"""Weights of rows: a whole number is so many copies, whatever the chunks."""

import dask.array as da
import numpy as np
import pytest

import dask_dca as dca
from dask_dca.errors import InvalidParameterError
from tests.contract.entries import fitted_bytes

FORMS = ("auto", "full", "diag", "tied", "spherical", "tied-spherical")


def clusters(n=240, seed=0):
    rng = np.random.default_rng(seed)
    X = (5.0 * np.eye(3, 4))[rng.integers(3, size=n)] + rng.standard_normal((n, 4))
    return X, rng.integers(0, 4, n)


def fitted(X, weights=None, form="diag", **options):
    return dca.GaussianMixture(3, form, **options).fit(X, sample_weight=weights)


@pytest.mark.parametrize(("form", "reg_covar"), [*((form, "auto") for form in FORMS), ("auto", 1e-6), ("full", 1e-6)])
def test_whole_weights_are_copies(form, reg_covar):
    X, weights = clusters()
    one = fitted(X, weights, form, reg_covar=reg_covar)
    copied = fitted(np.repeat(X, weights, axis=0), None, form, reg_covar=reg_covar)
    where = np.repeat(np.arange(240), weights)
    for name in ("anchor_indices_", "extreme_indices_", "candidates_"):
        assert np.array_equal(getattr(one, name), where[getattr(copied, name)]), name
    for name in ("weights_", "means_", "covariances_", "log_likelihoods_", "bic_curve_"):
        np.testing.assert_allclose(getattr(one, name), getattr(copied, name), rtol=1e-6, atol=1e-7, err_msg=name)
    assert np.array_equal(one.predict(X), copied.predict(X))
    assert abs(one.means_ - fitted(X, None, form, reg_covar=reg_covar).means_).max() > 1e-3  # which weights do change


@pytest.mark.parametrize(("form", "scale"), [("full", 1.0), ("tied", 0.37), ("spherical", 0.37)])
def test_any_chunks_of_data_and_weights_give_the_same_bits(form, scale):
    X, weights = clusters()
    expected = fitted_bytes(fitted(X, scale * weights, form))
    chunked = da.from_array(X, chunks=((7, 0, 200, 33), (3, 1)))
    for some in (scale * weights, da.from_array(scale * weights, chunks=110)):
        assert fitted_bytes(fitted(chunked, some, form)) == expected


def test_only_proportions_matter_to_where_components_are():
    X, weights = clusters(2000)
    one, other = fitted(X, weights.astype(float)), fitted(X, 0.37 * weights)
    np.testing.assert_allclose(np.sort(one.means_, axis=0), np.sort(other.means_, axis=0), atol=0.02)


def test_rows_without_weight_may_hold_anything():
    X, weights = clusters()
    broken = X.copy()
    broken[weights == 0] = np.nan
    broken[np.flatnonzero(weights == 0)[::2]] = 1e9
    assert fitted_bytes(fitted(broken, weights)) == fitted_bytes(fitted(X, weights))


def test_rows_that_are_noise_count_by_their_weight():
    X, weights = clusters(1000)
    X[:4], weights[:4] = 1e3 * np.eye(4), (3, 2, 1, 1)
    found = fitted(X, weights)
    assert found.n_outliers_ == 7
    assert found.outliers_.tolist() == [0, 1, 2, 3]


def test_a_sample_is_drawn_by_weight():
    X, _ = clusters(50_000)
    heavy = np.where(np.arange(50_000) < 25_000, 3.0, 0.0)
    found, half = fitted(X, heavy, max_iter=0), fitted(X[:25_000], max_iter=0)
    assert found.score(X[25_000:]) == pytest.approx(half.score(X[25_000:]), abs=0.01)
    assert found.anchor_indices_.max() < 25_000


def test_weights_are_not_for_the_papers_method_nor_streams():
    X, weights = clusters()
    with pytest.raises(InvalidParameterError, match="has no weights"):
        fitted(X, weights, method="paper")
    with pytest.raises(InvalidParameterError, match="as they are"):
        dca.GaussianMixture(3).fit(X, sample_weight=weights, resume=fitted(X[:50]))
