"""Steps of expectation-maximisation against scikit-learn's; Lloyd, breathing, split and merge."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import GaussianMixture as Reference

from dask_dca.models.gaussians import gaussian_moments
from dask_dca.models.kmeans import breathing_kmeans, kmeans_plusplus, lloyd, squared_distances
from dask_dca.models.mixture.em import WeightedRows, expectation, mixture_of_labels, normalise, run_em
from dask_dca.models.mixture.family import Mixture, Shrinkage, maximization
from dask_dca.models.mixture.moves import split_and_merge


def data_of(X):
    return WeightedRows(X, np.ones(len(X)))


def plain(p, floor):
    return Shrinkage(np.full(p, floor), 0.0, 0.0, "common", plain=True)


def drawn(X):
    return Shrinkage(1e-6 * X.var(axis=0), 4.0, 1.0)


def blobs(k, p, n, separation, seed):
    rng = np.random.default_rng(seed)
    labels = rng.integers(k, size=n)
    X = (separation * rng.standard_normal((k, p)) / np.sqrt(p))[labels] + rng.standard_normal((n, p))
    return X - X.mean(axis=0), labels


@pytest.mark.parametrize("form", ["full", "diag"])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_one_step_is_scikit_learns(form):
    X, labels = blobs(4, 6, 300, 4.0, 0)
    start = mixture_of_labels(data_of(X), labels, 4, form, plain(6, 1e-6))
    precisions = (np.linalg.inv if form == "full" else np.reciprocal)(start.covariances)
    reference = Reference(
        4,
        covariance_type=form,
        max_iter=1,
        reg_covar=1e-6,
        weights_init=start.weights,
        means_init=start.means,
        precisions_init=precisions,
    ).fit(X)
    found = run_em(data_of(X), start, plain(6, 1e-6), 1)[0]
    np.testing.assert_allclose(found.weights, reference.weights_, rtol=1e-9)
    np.testing.assert_allclose(found.means, reference.means_, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(found.covariances, reference.covariances_, rtol=1e-7, atol=1e-9)
    assert expectation(found, X)[1].mean() == pytest.approx(reference.score(X), rel=1e-9)


def test_copies_of_rows_weigh_on_means_and_are_no_evidence_for_shapes():
    X, labels = blobs(3, 4, 90, 3.0, 1)
    few, many = data_of(X), WeightedRows(X, np.full(90, 30.0))
    start = mixture_of_labels(few, labels, 3, "diag", drawn(X))
    one, other = (run_em(data, start, drawn(X), 3)[0] for data in (few, many))
    np.testing.assert_allclose(one.covariances, other.covariances, rtol=1e-9)
    some = WeightedRows(X, np.where(np.arange(90) == 0, 500.0, 1.0))
    moved = run_em(some, start, drawn(X), 1)[0].means[labels[0]]
    assert np.linalg.norm(moved - X[0]) < 0.2 * np.linalg.norm(one.means[labels[0]] - X[0])


def test_an_empty_component_keeps_its_mean_and_a_sound_covariance():
    X, _ = blobs(2, 3, 50, 5.0, 2)
    responsibilities = np.zeros((50, 2))
    responsibilities[:, 0] = 1.0
    for form in ("full", "diag", "spherical"):
        kept = np.full((2, 3), 7.0)
        moments = gaussian_moments(responsibilities, X, form)
        found = maximization(moments, form, drawn(X), np.array([50.0, 0.0]), kept)
        assert (found.means[1] == 7.0).all()
        assert np.isfinite(found.covariances).all()
        assert np.isfinite(expectation(found, X)[0]).all()


def test_responsibilities_of_hopeless_rows_are_finite():
    shares, logs = normalise(np.array([[-1e308, -1e308], [-5.0, -1e6]]))
    np.testing.assert_allclose(shares, [[0.5, 0.5], [1.0, 0.0]])
    assert np.isfinite(logs).all()


# --- partitions -----------------------------------------------------------------------------------------------


def test_lloyd_from_the_same_centres_is_k_means():
    X, _ = blobs(6, 5, 500, 4.0, 3)
    start = X[:6]
    ours = lloyd(X, start, 300, 0.0)
    theirs = KMeans(6, init=start, n_init=1, tol=0.0, max_iter=300).fit(X)
    assert ours.inertia == pytest.approx(theirs.inertia_, rel=1e-9)
    assert adjusted_rand_score(ours.labels, theirs.labels_) == 1.0


def test_an_empty_cluster_gets_the_row_furthest_off():
    X = np.array([[0.0], [1.0], [9.0], [10.0]])
    found = lloyd(X, np.array([[0.5], [1e6]]))
    assert sorted(found.centres.ravel()) == [0.5, 9.5]


def test_breathing_reaches_the_best_of_ten_starts_of_k_means():
    for seed in range(4):
        X, _ = blobs(15, 8, 1500, 6.0, seed)
        rng = np.random.default_rng(seed)
        first = lloyd(X, kmeans_plusplus(X, 15, rng))
        found = breathing_kmeans(X, first, rng)
        assert found.inertia <= first.inertia
        assert found.inertia <= 1.002 * KMeans(15, n_init=10, random_state=seed).fit(X).inertia_


@pytest.mark.parametrize("k", [1, 2, 5, 8])
def test_breathing_with_fewer_distinct_rows_than_centres_ends(k):
    X = np.repeat(np.eye(3), 20, axis=0)
    rng = np.random.default_rng(0)
    found = breathing_kmeans(X, lloyd(X, kmeans_plusplus(X, k, rng)), rng)
    assert found.centres.shape == (k, 3)
    assert np.isfinite(found.centres).all()
    if k > 2:
        assert found.inertia == pytest.approx(0.0, abs=1e-12)


def test_distances_are_never_negative():
    X = 1e8 + np.random.default_rng(0).standard_normal((40, 3))
    assert squared_distances(X, X).min() >= 0.0


# --- moves ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["diag", "full"])
def test_moves_leave_a_poor_optimum_that_steps_alone_do_not(form):
    X, labels = blobs(4, 3, 1200, 12.0, 5)
    halves = (labels == 0) * (X[:, 0] > np.median(X[labels == 0, 0]))
    wrong = np.where(labels == 0, 3 * halves, np.minimum(labels, 2))  # one cluster cut in two, two taken as one
    start = mixture_of_labels(data_of(X), wrong, 4, form, drawn(X))
    stuck = run_em(data_of(X), start, drawn(X), 40)[0]
    moved = split_and_merge(data_of(X), start, drawn(X))
    assert adjusted_rand_score(labels, expectation(stuck, X)[0].argmax(axis=1)) < 0.8
    assert adjusted_rand_score(labels, expectation(moved, X)[0].argmax(axis=1)) > 0.98


def test_two_components_are_cut_at_another_place():
    """Two long clusters side by side, taken as their upper and lower halves: steps stay there, and nothing merges."""
    rng = np.random.default_rng(0)
    labels = rng.integers(2, size=600)
    X = np.column_stack([rng.standard_normal(600), 30.0 * rng.standard_normal(600)])
    X[:, 0] += 8.0 * labels
    X -= X.mean(axis=0)
    start = mixture_of_labels(data_of(X), (X[:, 1] > 0.0).astype(np.intp), 2, "full", drawn(X))
    stuck = run_em(data_of(X), start, drawn(X), 20)[0]
    moved = split_and_merge(data_of(X), start, drawn(X))
    assert adjusted_rand_score(labels, expectation(stuck, X)[0].argmax(axis=1)) < 0.2
    assert adjusted_rand_score(labels, expectation(moved, X)[0].argmax(axis=1)) > 0.99


def test_moves_keep_a_mixture_of_identical_rows_finite():
    X = np.repeat(np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [3.0, 3.0]]), 30, axis=0)
    start = mixture_of_labels(data_of(X), np.repeat(np.arange(4), 30), 4, "diag", drawn(X))
    found = split_and_merge(data_of(X), start, drawn(X))
    assert isinstance(found, Mixture)
    assert np.isfinite(found.covariances).all()
    assert (found.covariances > 0.0).all()


@pytest.mark.parametrize("form", ["full", "diag"])
def test_a_component_of_hardly_any_rows_keeps_a_covariance(form):
    """Its sums are rounding errors of the others', so that its variances come out a little below zero."""
    X, _ = blobs(2, 5, 100, 4.0, 3)
    moments = gaussian_moments(np.stack([np.ones(100), np.full(100, 1e-12)], axis=1), X, form)
    mean = moments.first[1] / moments.counts[1]
    second = moments.second.copy()
    second[1] = moments.counts[1] * ((np.outer(mean, mean) if form == "full" else mean**2) - 1.0)
    found = maximization(replace(moments, second=second), form, drawn(X), moments.counts, np.zeros((2, 5)))
    assert np.isfinite(found.covariances).all()
    variances = np.diagonal(found.covariances[1]) if form == "full" else found.covariances[1]
    assert (variances > 0.0).all()
