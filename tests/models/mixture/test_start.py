"""Where mixtures start: coordinates, tails, anchors; and what a sample's rows are worth."""

import tracemalloc

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from dask_dca.anchoring.parameters import Settings
from dask_dca.models.kmeans import distinct_rows, spread_points
from dask_dca.models.mixture.family import leading_subspace
from dask_dca.models.mixture.given import MixtureSettings
from dask_dca.models.mixture.learning import (
    RowSample,
    fit_sample,
    isolated_rows,
    principal_coordinates,
    rounding_variances,
    start_partition,
    tail_means,
)

RNG = np.random.default_rng(0)


def test_few_features_are_turned_only():
    X = RNG.standard_normal((400, 8)) + 5.0
    (raw, unit) = principal_coordinates(X, np.full(8, 1e-9), 2)
    np.testing.assert_allclose(raw.T @ raw, np.eye(8), atol=1e-12)
    np.testing.assert_allclose(np.diag(unit @ unit.T), 1 / X.var(axis=0), rtol=1e-9)


def test_of_many_features_the_leading_principal_directions_are_taken():
    X = RNG.standard_normal((2000, 63)) * np.array([9.0, 4.0, 1.0] + 60 * [0.1]) + 7.0
    raw, unit = principal_coordinates(X, np.full(63, 1e-9), 1)
    assert raw.shape == unit.shape == (63, 12)
    U = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)[2]
    np.testing.assert_allclose(np.abs(raw[:, :3].T @ U[:3].T), np.eye(3), atol=1e-6)


def test_features_that_do_not_vary_have_no_part_in_unit_coordinates():
    X = np.hstack([RNG.standard_normal((300, 2)) * [1.0, 9.0], np.full((300, 1), 4.0)])
    (_, unit) = principal_coordinates(X, rounding_variances(X), 2)
    np.testing.assert_array_equal(unit[2], 0.0)
    alike = RNG.permuted(np.tile(np.arange(9.0), (2, 1)), axis=1).T
    assert len(list(principal_coordinates(alike, np.ones(2), 1))) == 1  # of equal variances: they are the same


def test_tails_are_averaged_on_both_sides():
    places = np.arange(100.0)[:, None] * np.array([1.0, 0.0]) - 49.5
    found = tail_means(places, np.array([[1.0]]), 2)
    np.testing.assert_allclose(found[:, 0], [49.0, -49.0])


def test_anchors_of_a_simplex_are_its_vertices():
    inner = RNG.dirichlet(np.ones(4), 50) @ np.eye(4)[:, :3]
    assert set(spread_points(np.vstack([inner, np.eye(4)[:, :3]]), 4)) == {50, 51, 52, 53}
    assert len(set(spread_points(inner[:, :1], 3))) == 3  # more than one dimension allows
    assert len(spread_points(np.zeros((2, 1)), 3)) == 3  # more than there are


@pytest.mark.parametrize("scale", [1.0, 1e-9])
def test_the_partition_is_that_of_clusters_apart(scale):
    labels = RNG.integers(12, size=900)
    X = scale * (9.0 * RNG.standard_normal((12, 6))[labels] + RNG.standard_normal((900, 6)))
    raw = next(iter(principal_coordinates(X, np.zeros(6), 12)))
    assert adjusted_rand_score(labels, start_partition(X, raw, 12, Settings()).labels) > 0.99


# --- rows -----------------------------------------------------------------------------------------------------


def test_equal_rows_are_one_and_counted():
    X = RNG.standard_normal((40, 3))
    first, place = distinct_rows(np.tile(X, (3, 1)))
    assert len(first) == 40
    assert np.bincount(place).tolist() == [3] * 40
    np.testing.assert_array_equal(np.tile(X, (3, 1))[first][place], np.tile(X, (3, 1)))


def test_resolution_is_that_of_rounding_whatever_lies_far_off():
    """Uniform within a gap: gap**2 / 12."""
    X = np.column_stack([RNG.integers(0, 9, 500), RNG.integers(0, 9, 500) * 0.25, np.full(500, 7.0)]).astype(float)
    X[0] = [1e6, 1e6, 7.0]
    floor = rounding_variances(X)
    np.testing.assert_allclose(floor[:2], np.array([1.0, 0.0625]) / 12, rtol=1e-9)
    assert floor[2] == pytest.approx(X.var(axis=0).mean())
    np.testing.assert_allclose(rounding_variances(X * 1e-12), floor * 1e-24, rtol=1e-9)
    assert (rounding_variances(np.zeros((5, 2))) > 0.0).all()


def test_isolated_rows_are_found_and_no_others():
    X = 6.0 * RNG.standard_normal((4, 5))[RNG.integers(4, size=1000)] + RNG.standard_normal((1000, 5))
    assert not isolated_rows(X, 4, 0).any()
    X[:8] = RNG.uniform(-100, 100, (8, 5))
    np.testing.assert_array_equal(np.flatnonzero(isolated_rows(X, 4, 0)), np.arange(8))
    assert not isolated_rows(X, 9, 0).any()  # fewer than components: perhaps theirs
    scales = 10.0 ** np.arange(5)
    np.testing.assert_array_equal(isolated_rows(X * scales, 4, 0), isolated_rows(X, 4, 0))


def test_a_subspace_keeps_densities_of_the_covariance_it_stands_for():
    X = RNG.standard_normal((500, 6)) * [5.0, 4.0, 1.0, 1.0, 1.0, 1.0] + 3.0
    space = leading_subspace(X, 2)
    within, across = space.split(X)
    values = np.linalg.eigvalsh(np.cov(X.T, bias=True))
    assert space.noise == pytest.approx(values[:4].mean(), rel=1e-9)
    from scipy.stats import multivariate_normal

    C = np.cov(within.T, bias=True)
    whole = space.axes @ C @ space.axes.T + space.noise * (np.eye(6) - space.axes @ space.axes.T)
    expected = multivariate_normal(X.mean(axis=0), whole).logpdf(X)
    np.testing.assert_allclose(multivariate_normal(np.zeros(2), C).logpdf(within) + across, expected, rtol=1e-9)
    np.testing.assert_allclose(space.split(space.to_features(within))[0], within, atol=1e-9)


def test_the_fit_on_a_sample_needs_little_more_memory_than_the_sample():
    rows = RNG.standard_normal((20_000, 130)) + 4.0 * RNG.integers(2, size=(20_000, 1))
    sample, settings = (
        RowSample(rows - 2.0, np.full(130, 2.0)),
        MixtureSettings(Settings(), "auto", None, 100, 1e-3, None, "auto"),
    )
    tracemalloc.start()
    fit_sample(sample, 2, settings, auto=False)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3.0 * rows.nbytes  # more than four times with copies for distinct, ordinary and centred rows
