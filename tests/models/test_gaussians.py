"""Gaussian densities and parameters, against scikit-learn and SciPy."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import multivariate_normal
from sklearn.mixture import GaussianMixture as Reference

from dask_dca.errors import InvalidParameterError
from dask_dca.models.gaussians import (
    COVARIANCE_TYPES,
    covariance_parameters,
    gaussian_moments,
    gaussians_of_factors,
    log_densities,
    mean_and_covariance,
    prepare_gaussians,
)

FORMS = pytest.mark.parametrize("form", [*COVARIANCE_TYPES, "tied-spherical"])
K, P = 3, 4


def covariances(form, seed=0):
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((K, P, P))
    full = A @ A.swapaxes(1, 2) + np.eye(P)
    shapes = {
        "full": full,
        "tied": full[0],
        "diag": rng.random((K, P)) + 0.1,
        "spherical": rng.random(K) + 0.1,
        "tied-spherical": np.array(0.7),
    }
    return shapes[form]


def matrices(form, values):
    if form in ("full", "tied"):
        return np.broadcast_to(values, (K, P, P))
    values = np.broadcast_to(values[:, None] if form == "spherical" else values, (K, P))
    return np.stack([np.diag(row) for row in values])


@FORMS
def test_densities_are_those_of_scipy(form):
    rng = np.random.default_rng(1)
    means, values, X = rng.standard_normal((K, P)), covariances(form), 2 * rng.standard_normal((50, P))
    exact = [multivariate_normal(m, c).logpdf(X) for m, c in zip(means, matrices(form, values), strict=True)]
    for centre in (None, np.full(P, 3.0)):
        found = log_densities(prepare_gaussians(means, values, form, centre), X)
        np.testing.assert_allclose(found, np.transpose(exact), rtol=1e-10)
    prepared = prepare_gaussians(means, values, form)
    again = gaussians_of_factors(means, prepared.precisions_cholesky, form)
    assert log_densities(again, X).tobytes() == log_densities(prepared, X).tobytes()


@FORMS
def test_densities_far_from_zero_keep_their_digits(form):
    rng = np.random.default_rng(1)
    means, values, X = rng.standard_normal((K, P)), covariances(form), rng.standard_normal((50, P))
    near = log_densities(prepare_gaussians(means, values, form), X)
    far = log_densities(prepare_gaussians(means + 2.0**20, values, form), X + 2.0**20)
    np.testing.assert_allclose(far, near, rtol=1e-7)


@pytest.mark.parametrize("form", COVARIANCE_TYPES)
def test_a_row_has_the_same_bits_wherever_it_stands_in_a_tile(form):
    rng = np.random.default_rng(2)
    for k, p in ((1, 1), (1, 7), (3, 2), (5, 33), (17, 50)):
        A = rng.standard_normal((k, p, p)) / p
        full = A @ A.swapaxes(1, 2) + np.eye(p)
        values = {"full": full, "tied": full[0], "diag": rng.random((k, p)) + 0.1, "spherical": rng.random(k) + 0.1}
        prepared = prepare_gaussians(rng.standard_normal((k, p)), values[form], form)
        tile = rng.standard_normal((128, p))
        whole = log_densities(prepared, tile)
        for shift in (1, 3, 64, 77):
            assert np.roll(log_densities(prepared, np.roll(tile, shift, axis=0)), -shift, axis=0).tobytes() == (
                whole.tobytes()
            )


@FORMS
def test_parameters_are_the_weighted_moments(form):
    rng = np.random.default_rng(3)
    X, weights = rng.standard_normal((60, P)), rng.dirichlet(np.ones(K), 60)
    means, found = mean_and_covariance(gaussian_moments(weights, X, form), form)
    origins = rng.standard_normal((K, P)) * np.arange(K)[:, None]  # the first is zero
    elsewhere = mean_and_covariance(gaussian_moments(weights, X, form, origins), form)
    np.testing.assert_allclose(elsewhere[0], means)
    np.testing.assert_allclose(elsewhere[1], found)
    full = np.stack([np.cov(X.T, aweights=w, ddof=0) for w in weights.T])
    np.testing.assert_allclose(means, weights.T @ X / weights.sum(axis=0)[:, None])
    shares = weights.mean(axis=0)
    variances = np.diagonal(full, axis1=1, axis2=2)
    expected = {
        "full": full,
        "tied": np.tensordot(shares, full, 1),
        "diag": variances,
        "spherical": variances.mean(axis=1),
        "tied-spherical": shares @ variances.mean(axis=1),
    }
    np.testing.assert_allclose(found, expected[form])


@pytest.mark.parametrize("form", COVARIANCE_TYPES)
def test_parameters_are_counted_as_scikit_learn_does(form):
    X = np.random.default_rng(0).standard_normal((40, P))
    model = Reference(K, covariance_type=form, max_iter=5, tol=10.0).fit(X)
    assert covariance_parameters(form, K, P) + K * P + K - 1 == model._n_parameters()


def test_a_variance_of_zero_is_refused():
    with pytest.raises(InvalidParameterError, match="reg_covar"):
        prepare_gaussians(np.zeros((1, 2)), np.zeros((1, 2)), "diag")


@pytest.mark.parametrize("form", ["full", "tied", "diag", "spherical", "tied-spherical"])
def test_a_component_without_weight_has_no_moments_whatever_rounding_left(form):
    rows = np.random.default_rng(0).standard_normal((50, 3))
    weights = np.column_stack([np.ones(50), np.zeros(50)])
    clean = gaussian_moments(weights, rows, form)
    left = 2.0**-22  # exact sums of other grids need not be zero where the counts are
    lifted = replace(clean, first=clean.first + np.array([[0.0], [left]]))
    if form in ("full", "diag", "spherical"):
        second = lifted.second.copy()
        second[1] += left
        lifted = replace(lifted, second=second)
    means, covariances = mean_and_covariance(lifted, form)
    expected_means, expected = mean_and_covariance(clean, form)
    np.testing.assert_array_equal(means, expected_means)
    np.testing.assert_allclose(covariances, expected, rtol=1e-6)
    assert np.isfinite(covariances).all()
