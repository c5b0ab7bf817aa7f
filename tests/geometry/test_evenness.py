"""Heights that are equal up to noise: their level and band, and what rows are divided by."""

import numpy as np
import pytest

from dask_dca.geometry.evenness import find_level
from dask_dca.geometry.moments import UNEVEN, Evenness, ratios

K, RANK = 6, 16


def averages(seed, noise, n=2000, p=80):
    """Rows that are averages of rays with noise of the same size on all features, and its deviation."""
    rng = np.random.default_rng(seed)
    clean = rng.dirichlet(np.full(K, 0.5), n) @ rng.random((K, p))
    size = noise * np.sqrt((clean**2).mean())
    return clean + size * rng.standard_normal(clean.shape), size


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("shape", [(2000, 80), (300, 500), (700, 3000)])
def test_averages_in_noise_are_even_and_the_band_is_of_the_noise(seed, shape):
    X, size = averages(seed, 1.0, *shape)
    found = find_level(X, X.sum(axis=1), None, RANK)
    assert found.level == np.median(X.sum(axis=1))
    np.testing.assert_allclose(found.band, 4.0 * size * np.sqrt(shape[1]), rtol=0.1)


@pytest.mark.parametrize("seed", range(5))
def test_outliers_and_an_axis_do_not_change_it(seed):
    X, size = averages(seed, 1.0)
    X[:40] += 5.0 * np.random.default_rng(seed).random((40, 80)) ** 8
    X[40:140] += 10.0 * size * np.random.default_rng(seed).standard_normal((100, 80))
    axis = np.random.default_rng(seed).random(80) + 0.5
    found = find_level(X, X @ axis, axis, RANK)
    np.testing.assert_allclose(found.band, 4.0 * size * np.sqrt((axis**2).sum()), rtol=0.1)


@pytest.mark.parametrize("seed", range(5))
def test_what_is_more_than_noise_is_uneven(seed):
    rng = np.random.default_rng(seed)
    faint, _ = averages(seed, 0.03)
    exact, _ = averages(seed, 0.0)
    sums = rng.random((2000, K)) @ rng.random((K, 80))
    sums += 0.3 * sums.mean() * rng.standard_normal(sums.shape)
    bright = averages(seed, 1.0)[0] * rng.lognormal(sigma=0.5, size=(2000, 1))
    for X in (faint, exact, sums, bright, np.zeros((50, 80)), -exact):
        assert find_level(X, X.sum(axis=1), None, RANK) == UNEVEN


def test_it_has_no_unit_and_few_rows_are_uneven():
    X, _ = averages(0, 1.0)
    found = find_level(X, X.sum(axis=1), None, RANK)
    for power in (-700, 700):
        scaled = np.ldexp(X, power)
        again = find_level(scaled, scaled.sum(axis=1), None, RANK)
        assert (again.level, again.band) == (np.ldexp(found.level, power), np.ldexp(found.band, power))
    assert find_level(X[:20], X[:20].sum(axis=1), None, RANK) == UNEVEN


def test_rows_are_divided_by_heights_that_are_drawn_to_the_level():
    rows = np.array([[1.0, 1.0], [4.0, 5.0], [10.0, 10.0], [0.0, 0.0]])
    scaled, usable = ratios(rows, None, Evenness(10.0, 3.0))
    np.testing.assert_array_equal(usable, [True, True, True, False])
    np.testing.assert_allclose(scaled[:3], rows[:3] / np.array([[5.0], [10.0], [17.0]]))
