"""The subspace: eigenvectors, shrinkage and feature weights against formulas that are written out."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_dca.geometry import moments as sketch
from dask_dca.geometry.moments import (
    huber_weights,
    moments,
    orthonormal,
    power_sums,
    ratios,
    robust_center,
    subspace,
    subspace_of_power,
    subspace_of_rows,
)


def separable(n, p, k, noise=0.0, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.dirichlet(np.ones(k), n) @ rng.random((k, p))
    scaled, usable = ratios(X + noise * X.mean() * rng.standard_normal(X.shape))
    assert usable.all()
    return scaled


def of_moments(scaled, k):
    mean, energy = robust_center(scaled)
    return subspace(moments(scaled, mean, energy, len(scaled)), mean, energy, k)


def angle(first, second):
    """Sine of the greatest principal angle between two subspaces."""
    Q, R = np.linalg.qr(first)[0], np.linalg.qr(second)[0]
    return np.linalg.norm(Q - R @ (R.T @ Q), 2)


@given(
    seed=st.integers(0, 10**6),
    n=st.integers(20, 120),
    p=st.integers(4, 60),
    k=st.integers(2, 5),
    noise=st.sampled_from([0.0, 0.02, 0.2]),
)
@settings(max_examples=80)
def test_the_subspace_of_rows_is_that_of_their_moments(seed, n, p, k, noise):
    scaled = separable(n, p, min(k, p - 1), noise, seed)
    mean, energy = robust_center(scaled)
    by_rows, by_moments = subspace_of_rows(scaled, mean, energy, k), of_moments(scaled, k)
    np.testing.assert_allclose(by_rows.mean, by_moments.mean, atol=1e-5 * np.sqrt(energy))
    np.testing.assert_allclose(by_rows.feature_weights, by_moments.feature_weights, rtol=0.02)
    m = min(len(by_rows.spectrum), len(by_moments.spectrum))
    np.testing.assert_allclose(by_rows.spectrum[:m], by_moments.spectrum[:m], atol=2e-3 * by_rows.spectrum[0])
    if noise == 0.0 and by_rows.spectrum[len(by_rows.scales) - 1] > 1e-3 * by_rows.spectrum[0]:
        assert angle(by_rows.basis, by_moments.basis) < 1e-2


def test_the_spectrum_is_that_of_the_weighted_covariance():
    scaled = separable(500, 20, 4, 0.05)
    found = of_moments(scaled, 4)
    mean, energy = robust_center(scaled)
    w = huber_weights(scaled - mean, energy)
    centred = scaled - (w**2 @ scaled) / (w @ w)
    np.testing.assert_allclose(found.mean, (w**2 @ scaled) / (w @ w), atol=1e-5)
    rows = centred * w[:, None] * found.feature_weights
    values, vectors = np.linalg.eigh(rows.T @ rows / len(rows))
    np.testing.assert_allclose(found.spectrum, values[::-1][: len(found.spectrum)], atol=1e-4 * values[-1])
    assert angle(found.basis, vectors[:, ::-1][:, :3]) < 1e-3
    np.testing.assert_allclose(found.vectors.T @ found.vectors, np.eye(found.vectors.shape[1]), atol=1e-10)


def test_separable_rows_lie_in_the_subspace_of_one_dimension_less():
    for k in (2, 3, 6):
        scaled = separable(300, 25, k)
        found = of_moments(scaled, k)
        assert found.basis.shape == (25, k - 1)
        centred = (scaled - found.mean) * found.feature_weights
        assert np.linalg.norm(centred - centred @ found.basis @ found.basis.T) < 1e-4 * np.linalg.norm(centred)
        # nothing to shrink: the rounding of the exact sums is all the noise there is
        np.testing.assert_allclose(found.shrinkage, 1.0, atol=1e-3)


def test_power_steps_find_the_subspace_of_all_rows_from_that_of_a_sample():
    scaled = separable(3000, 60, 5, 0.3)
    mean, energy = robust_center(scaled[:200])
    start = subspace_of_rows(scaled[:200], mean, energy, 5)
    gain = start.feature_weights
    w = huber_weights(scaled - mean, energy)
    rows = (scaled - mean) * w[:, None] * gain
    exact = np.linalg.eigh(rows.T @ rows)[1][:, ::-1][:, :4]
    basis = start.vectors
    sines = [angle(basis[:, :4], exact)]
    for _ in range(3):
        sums = power_sums(scaled, mean, energy, gain, basis, len(scaled))
        found = subspace_of_power(start, basis, sums, 5)
        sines.append(angle(found.vectors[:, :4], exact))
        basis = orthonormal(sums.product)
    assert sines[1] < 0.5 * sines[0]
    assert sines[3] < 0.1 * sines[0]
    np.testing.assert_allclose(found.spectrum[:4], np.linalg.eigvalsh(rows.T @ rows / 3000)[::-1][:4], rtol=0.02)


def test_power_steps_from_any_basis_end_in_the_eigenvectors_one_by_one():
    """The Ritz vectors of a rotated basis are the eigenvectors, in order."""
    scaled = separable(1000, 60, 5, 0.3)
    mean, energy = robust_center(scaled)
    start = subspace_of_rows(scaled, mean, energy, 5)
    rows = (scaled - mean) * huber_weights(scaled - mean, energy)[:, None] * start.feature_weights
    exact = np.linalg.eigh(rows.T @ rows)[1][:, ::-1][:, :4]
    turned = start.vectors @ np.linalg.qr(np.random.default_rng(1).standard_normal((start.vectors.shape[1],) * 2))[0]
    sums = power_sums(scaled, mean, energy, start.feature_weights, turned, len(scaled))
    found = subspace_of_power(start, turned, sums, 5)
    np.testing.assert_allclose(np.abs((found.vectors[:, :4] * exact).sum(axis=0)), 1.0, atol=0.02)


# --- shrinkage -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("aspect", [0.01, 0.2, 1.0, 3.0])
def test_shrinkage_is_the_formula_of_gavish_and_donoho(aspect):
    """For singular values y of noise level one: sqrt((y^2 - b - 1)^2 - 4 b) / y, Frobenius loss, b = p / n."""
    noise = 0.7
    edge = (1 + np.sqrt(aspect)) ** 2
    y2 = edge * np.array([40.0, 5.0, 2.0, 1.1, 0.99, 0.9, 0.1])
    found = sketch.shrinkage(noise * y2, noise, aspect)
    y = np.sqrt(y2[:4])
    np.testing.assert_allclose(found[:4], np.sqrt((y**2 - aspect - 1) ** 2 - 4 * aspect) / y / y)
    assert not found[4:].any()  # below the edge
    assert (np.diff(found[:4]) < 0).all()


@pytest.mark.parametrize(("n", "p"), [(2000, 50), (200, 150), (100, 600)])
def test_the_noise_level_of_signal_and_noise_is_found(n, p):
    rng = np.random.default_rng(0)
    signal = rng.standard_normal((n, 3)) @ rng.standard_normal((3, p)) * 3.0
    rows = signal + 0.5 * rng.standard_normal((n, p))
    spectrum = np.linalg.svd(rows, compute_uv=False)[:13] ** 2 / n
    assert sketch._noise_variance((rows**2).sum() / n, spectrum, n, p) == pytest.approx(0.25, rel=0.15)


@pytest.mark.parametrize(("n", "p"), [(2000, 50), (300, 300)])
def test_pure_noise_is_shrunk_to_nearly_nothing(n, p):
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((n, p))
    spectrum = np.linalg.svd(rows, compute_uv=False)[:15] ** 2 / n
    noise = sketch._noise_variance((rows**2).sum() / n, spectrum, n, p)
    assert sketch.shrinkage(spectrum, noise, p / n).max() < 0.3


# --- feature weights -----------------------------------------------------------------------------------------


def test_features_are_weighted_by_their_noise_given_the_others():
    """By hand: one over the diagonal of the inverse covariance is a feature's variance given the others."""
    rng = np.random.default_rng(0)
    levels = np.where(np.arange(30) < 25, 0.05, 1.0)
    rows = rng.standard_normal((20_000, 3)) @ rng.standard_normal((3, 30)) + levels * rng.standard_normal((20_000, 30))
    covariance = np.cov(rows.T)
    weights = sketch._feature_weights(covariance.copy(), 20_000)
    level = np.trace(covariance) / 30
    given_others = 1.0 / np.diag(np.linalg.inv(covariance + level + 0.001 * level * np.eye(30)))
    expected = np.minimum(1.0, np.sqrt(np.median(given_others) / given_others))
    np.testing.assert_allclose(weights, expected, rtol=1e-3)
    assert weights[25:].max() < 0.35
    assert weights[:25].min() > 0.8
    assert weights.max() <= 1.0


def test_features_of_no_variance_and_a_single_one_weigh_one():
    np.testing.assert_array_equal(sketch._feature_weights(np.zeros((4, 4)), 10), np.ones(4))
    np.testing.assert_array_equal(sketch._feature_weights(np.ones((1, 1)), 10), np.ones(1))
    np.testing.assert_array_equal(sketch._row_feature_weights(np.zeros((3, 4)), 0.0), np.ones(4))


def test_outliers_do_not_steer_the_subspace():
    scaled = separable(1000, 30, 4)
    clean = of_moments(scaled, 4)
    rng = np.random.default_rng(1)
    bad = scaled.copy()
    bad[rng.choice(1000, 15, replace=False)] = 200.0 * rng.dirichlet(np.full(30, 0.1), 15)
    mean, energy = robust_center(bad)
    found = subspace(moments(bad, mean, energy, 1000), mean, energy, 4)
    plain = np.linalg.svd(bad - bad.mean(axis=0), full_matrices=False)[2][:3].T
    own = clean.basis * clean.feature_weights[:, None] ** -1
    assert angle(own, plain) > 0.9
    assert angle(clean.basis, found.vectors[:, :12]) < 0.6


@pytest.mark.parametrize("seed", range(3))
def test_signs_of_the_basis_are_fixed(seed):
    found = of_moments(separable(200, 15, 4, 0.01, seed), 4)
    peaks = found.vectors[np.abs(found.vectors).argmax(axis=0), np.arange(found.vectors.shape[1])]
    assert (peaks > 0).all()
