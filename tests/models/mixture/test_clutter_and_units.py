"""Far clutter that the search did not see has no weight, and units of features change nothing but the units."""

import numpy as np
import pytest

import dask_dca as dca

MEANS = np.array([[0.0, 0.0, 0.0], [6.0, 0.0, 0.0], [0.0, 6.0, 6.0]])


def clusters(n, seed):
    rng = np.random.default_rng(seed)
    return MEANS[rng.integers(3, size=n)] + rng.standard_normal((n, 3)), rng


@pytest.mark.parametrize(("n", "seed"), [(15_000, 0), (90_000, 3)])
def test_clutter_nearer_than_the_search_saw_has_no_weight(n, seed):
    rows, rng = clusters(n, seed)
    rows = np.vstack([rows, rng.uniform(-1e4, 1e4, (n // 150, 3))])[rng.permutation(n + n // 150)]
    model = dca.GaussianMixture(3).fit(rows)
    assert model.n_outliers_ == n // 150
    np.testing.assert_allclose(np.sort(model.means_[:, 0]), [0.0, 0.0, 6.0], atol=0.1)


@pytest.mark.parametrize("n", [3_000, 6_000, 20_000])  # few, the whole sample, and more
def test_units_of_features_change_no_cluster(n, monkeypatch):
    monkeypatch.setattr("dask_dca.models.mixture.fit._SAMPLE_ROWS", 6_000)
    rows, _ = clusters(n, 0)
    units = np.array([1e-12, 1.0, 1e12])
    plain, scaled = dca.GaussianMixture(3).fit(rows), dca.GaussianMixture(3).fit(rows * units)
    assert scaled.lower_bound_ + np.log(units).sum() == pytest.approx(plain.lower_bound_, abs=1e-3)
    assert scaled.lower_bound_ == pytest.approx(scaled.score(rows * units), abs=1e-5)
    np.testing.assert_allclose(np.sort(scaled.means_[:, 0]) / 1e-12, np.sort(plain.means_[:, 0]), atol=0.02)


@pytest.mark.parametrize(("exponent", "n"), [(8, 6_000), (20, 400), (100, 400), (100, 6_000)])
def test_diagonal_variances_are_those_of_their_own_features(n, exponent):
    """A share of the mean variance, be it 2**-32 of a row's, is far above that of features in other units."""
    rows, _ = clusters(n, exponent)
    units = 10.0 ** (exponent * np.array([1.0, -1.0, 0.0]))
    plain, scaled = (dca.GaussianMixture(3, "diag").fit(X) for X in (rows, rows * units))
    order, other = np.lexsort(plain.means_.T), np.lexsort((scaled.means_ / units).T)
    np.testing.assert_allclose(scaled.means_[other] / units, plain.means_[order], atol=0.3)
    ratio = scaled.covariances_[other] / units / units
    assert (ratio > 0.5).all()
    assert (ratio < 2.0).all()


@pytest.mark.parametrize(
    ("units", "n"),
    [
        ((1e-300, 1.0, 1.0), 400),
        ((1e-150, 1.0, 1e150), 3_000),
        ((1e-100, 1e-200, 1.0), 400),
        ((1e-150, 1e-100, 10.0), 3_000),
    ],
)
@pytest.mark.parametrize("form", ["full", "auto"])
def test_features_that_are_next_to_nothing_beside_others(form, units, n):
    rows, _ = clusters(n, 0)
    model = dca.GaussianMixture(2, form).fit(rows * units)
    assert np.isfinite(model.score(rows * units))
    assert np.isfinite(model.partial_fit(rows * units).score(rows * units))


@pytest.mark.parametrize("units", [(1e-200, 1, 1e150), (1e150, 1, 1e-200), (1e-150, 1, 1e-150), (1e-200, 1e-200, 1)])
def test_the_papers_mixture_takes_units_whose_squares_are_out_of_range(units):
    rows, _ = clusters(500, 0)
    scaled = np.hstack([rows * units[0], (rows + 1.0) * units[1], rows * units[2]])
    weights = dca.GaussianMixture(2, method="paper", views=[range(3), range(3, 6), range(6, 9)]).fit(scaled).weights_
    assert weights.sum() == pytest.approx(1.0)
