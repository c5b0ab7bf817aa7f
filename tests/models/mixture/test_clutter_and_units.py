"""Far clutter that the search did not see has no weight, and units of features change nothing but the units."""

import numpy as np
import pytest

import dask_dca as dca

MEANS = np.array([[0.0, 0.0, 0.0], [6.0, 0.0, 0.0], [0.0, 6.0, 6.0]])


def clusters(n, seed):
    rng = np.random.default_rng(seed)
    return MEANS[rng.integers(3, size=n)] + rng.standard_normal((n, 3)), rng


@pytest.mark.parametrize(("n", "seed"), [(15_000, 0), (60_000, 3), (90_000, 3)])
def test_clutter_nearer_than_the_search_saw_has_no_weight(n, seed):
    rows, rng = clusters(n, seed)
    rows = np.vstack([rows, rng.uniform(-1e4, 1e4, (n // 150, 3))])[rng.permutation(n + n // 150)]
    model = dca.GaussianMixture(3).fit(rows)
    assert model.n_outliers_ == n // 150
    np.testing.assert_allclose(np.sort(model.means_[:, 0]), [0.0, 0.0, 6.0], atol=0.1)


@pytest.mark.parametrize("n", [3_000, 15_000, 90_000])  # few, the whole sample, and more
def test_units_of_features_change_no_cluster(n):
    rows, _ = clusters(n, 0)
    units = np.array([1e-12, 1.0, 1e12])
    plain, scaled = dca.GaussianMixture(3).fit(rows), dca.GaussianMixture(3).fit(rows * units)
    assert scaled.lower_bound_ + np.log(units).sum() == pytest.approx(plain.lower_bound_, abs=1e-3)
    assert scaled.lower_bound_ == pytest.approx(scaled.score(rows * units), abs=1e-5)
    np.testing.assert_allclose(np.sort(scaled.means_[:, 0]) / 1e-12, np.sort(plain.means_[:, 0]), atol=0.02)
