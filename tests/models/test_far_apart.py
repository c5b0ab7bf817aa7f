"""Clusters and states that are far apart for their spread: variances keep their digits, floors are local."""

from __future__ import annotations

from typing import Any

import dask.array as da
import numpy as np
import pytest

import dask_dca as dca
from dask_dca.errors import FloorWarning
from dask_dca.models.gaussians import deviations_of, log_densities, prepare_gaussians

STATES = np.repeat([0, 1, 0, 1], 150)
FORMS = ("full", "tied", "diag", "spherical")


def two_states(apart: float, seed: int = 0) -> Any:
    noise = np.random.default_rng(seed).standard_normal((len(STATES), 2)) @ np.array([[1.0, 0.6], [0.0, 0.8]])
    return noise + apart * STATES[:, None]


def own_covariances(X: Any) -> Any:
    """Each state's covariance about its own mean, in extended precision."""
    parts = [X[j == STATES].astype(np.longdouble) for j in (0, 1)]
    return np.array([((x - x.mean(axis=0)).T @ (x - x.mean(axis=0)) / len(x)).astype(float) for x in parts])


def in_form(covariances: Any, form: str) -> Any:
    variances = np.diagonal(covariances, axis1=1, axis2=2)
    return {
        "full": covariances,
        "tied": covariances.mean(axis=0),
        "diag": variances,
        "spherical": variances.mean(axis=1),
        "tied-spherical": variances.mean(),
    }[form]


def ordered(model: Any, form: str) -> Any:
    return model.covariances_[np.argsort(model.means_[:, 0])] if form[:4] != "tied" else model.covariances_


@pytest.mark.parametrize("apart", [1e3, 1e5, 1e8])
@pytest.mark.parametrize("form", [*FORMS, "tied-spherical"])
def test_components_far_apart_have_their_own_covariances(form: str, apart: float) -> None:
    X = two_states(apart)
    expected = in_form(own_covariances(X), form)
    model = dca.GaussianMixture(2, covariance_type=form, reg_covar=0).fit(X)
    np.testing.assert_allclose(ordered(model, form), expected, rtol=1e-6)
    if apart != 1e5:
        return
    chunked = dca.GaussianMixture(2, covariance_type=form, reg_covar=0).fit(da.from_array(X, chunks=(137, 1)))
    np.testing.assert_array_equal(chunked.covariances_, model.covariances_)
    np.testing.assert_array_equal(chunked.means_, model.means_)
    assert chunked.score(X) == model.score(X)


@pytest.mark.parametrize("apart", [40.0, 1e3, 1e5, 1e8])
@pytest.mark.parametrize("form", FORMS)
def test_states_far_apart_have_their_own_covariances(form: str, apart: float) -> None:
    X = two_states(apart)
    own = own_covariances(X)
    n, borrowed = len(X), 5000 / len(X)  # frames that a covariance borrows from all states together
    pooled = own if form == "tied" else (n / 2 * own + borrowed * own.mean(axis=0)) / (n / 2 + borrowed)
    model = dca.GaussianHMM(2, covariance_type=form, min_covar=1e-12).fit(X)
    np.testing.assert_allclose(ordered(model, form), in_form(pooled, form), rtol=2e-3)
    if apart != 1e5:
        return
    chunked = dca.GaussianHMM(2, covariance_type=form, min_covar=1e-12).fit(da.from_array(X, chunks=(137, 2)))
    np.testing.assert_array_equal(chunked.covariances_, model.covariances_)


@pytest.mark.parametrize("form", [*FORMS, "tied-spherical"])
def test_densities_far_from_the_centre_keep_their_digits(form: str) -> None:
    means = np.array([[-1e8, 3.0], [1e8, 5.0]])
    covariances = in_form(np.stack([np.diag([1.0, 4.0]), np.diag([2.0, 3.0])]), form)
    rows = means[[1, 1]] + np.array([[0.0, 0.0], [1.0, -2.0]])
    found = log_densities(prepare_gaussians(means, covariances, form), rows)
    own = covariances if form[:4] == "tied" else covariances[1:]
    alone = log_densities(prepare_gaussians(means[1:], own, form), rows)
    np.testing.assert_allclose(found[:, 1], alone[:, 0], rtol=1e-12)


def test_mixtures_agree_with_scikit_learn_where_components_are_far_apart() -> None:
    from sklearn.mixture import GaussianMixture

    X = two_states(1e4)[:, :1]
    peer = GaussianMixture(2, covariance_type="diag", reg_covar=0.0, means_init=[[0.0], [1e4]], tol=1e-9).fit(X)
    model = dca.GaussianMixture(2, "diag", reg_covar=0).fit(X)
    np.testing.assert_allclose(ordered(model, "diag"), peer.covariances_, rtol=1e-6)


@pytest.mark.parametrize("form", ["auto", "full"])
@pytest.mark.parametrize("small", [1e-6, 1e-8])
def test_a_component_that_is_narrow_beside_its_distance_from_the_centre(form: str, small: float) -> None:
    """Components begin with one covariance in common: the first step that tells them apart must keep the digits."""
    for seed in range(3):
        rng = np.random.default_rng(seed)
        labels = rng.integers(2, size=300)
        noise = rng.standard_normal((300, 3))
        X = np.where(labels[:, None] == 0, small * noise, 50.0 + 10.0 * noise)
        model = dca.GaussianMixture(2, form).fit(X)
        assert len(np.unique(labels + 2 * model.predict(X))) == 2
        narrow = int(model.predict(X)[labels == 0][0])
        found = deviations_of(model.covariances_, model.covariance_type_, (2, 3))[narrow]
        np.testing.assert_allclose(found, small * noise[labels == 0].std(axis=0), rtol=0.3)


@pytest.mark.parametrize(
    ("form", "n", "small"),  # few rows, the whole sample, and more
    [("diag", 3_000, 1e-4), ("spherical", 3_000, 1e-2), ("full", 3_000, 1e-7),
     ("diag", 6_000, 1e-2), ("spherical", 6_000, 1e-7), ("full", 6_000, 1e-4),
     ("diag", 9_000, 1e-7), ("spherical", 9_000, 1e-4), ("full", 9_000, 1e-2)],
)  # fmt: skip
def test_a_component_that_is_narrow_amid_the_data_keeps_its_variance(
    form: str, n: int, small: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sums of squares about the centre are rounded by the features' deviations, unless that leaves it none."""
    monkeypatch.setattr("dask_dca.models.mixture.fit._SAMPLE_ROWS", 6_000)
    rng = np.random.default_rng(0)
    narrow = rng.random(n) < 0.3
    X = rng.standard_normal((n, 3)) * np.where(narrow, small, 10.0)[:, None]
    model = dca.GaussianMixture(2, form).fit(X)
    j = int(model.predict(X[narrow])[0])
    found = deviations_of(model.covariances_, form, (2, 3))[j]
    np.testing.assert_allclose(found, X[narrow].std(axis=0), rtol=5e-2)
    assert model.weights_[j] == pytest.approx(narrow.mean(), abs=0.01)
    assert model.lower_bound_ == pytest.approx(model.score(X), abs=1e-3)
    if n == 9_000:
        chunked = dca.GaussianMixture(2, form).fit(da.from_array(X, chunks=(1013, 2)))
        np.testing.assert_array_equal(chunked.covariances_, model.covariances_)


def test_a_start_far_broader_than_its_rows() -> None:
    rng = np.random.default_rng(0)
    noise, labels = rng.standard_normal((300, 3)), rng.integers(2, size=300)
    X = np.where(labels[:, None] == 0, 1e-6 * noise, 50.0 + 10.0 * noise)
    start = {"means": np.array([[0.0] * 3, [50.0] * 3]), "covariances": np.stack([100.0 * np.eye(3)] * 2)}
    model = dca.GaussianMixture(2, "full", init=start, max_iter=10).fit(X)
    np.testing.assert_allclose(model.covariances_[0], np.cov(X[labels == 0].T, ddof=0), rtol=1e-3)


def groups_of_clusters() -> Any:
    rng = np.random.default_rng(0)
    return np.concatenate([centre + rng.standard_normal(100) for centre in (0.0, 8.0, 1000.0, 1008.0)])[:, None]


@pytest.mark.parametrize("count", [4, "auto"])
def test_near_clusters_are_told_apart_beside_far_ones(count: Any) -> None:
    X = groups_of_clusters()
    expected = X.reshape(4, 100).mean(axis=1)
    for model in (dca.GaussianMixture(count), dca.GaussianHMM(count)):
        model.fit(X)
        np.testing.assert_allclose(np.sort(model.means_[:, 0]), expected, atol=0.1)
        assert (model.covariances_ < 1.6).all()


@pytest.mark.parametrize("outlier", [1e4, 1e5, 1e6])
def test_one_far_row_does_not_hide_the_clusters(outlier: float) -> None:
    X = np.r_[np.linspace(0, 2, 50), np.linspace(10, 12, 50), outlier][:, None]
    within = np.linspace(0, 2, 50).var()
    for model in (dca.GaussianMixture(3, "diag"), dca.GaussianHMM(3)):
        model.fit(X)
        np.testing.assert_allclose(np.sort(model.means_[:, 0]), [1.0, 11.0, outlier], rtol=1e-4)
        np.testing.assert_allclose(np.sort(model.covariances_[:, 0])[1:], within, rtol=0.02)


def test_a_floor_that_decides_variances_is_told() -> None:
    X = np.r_[np.linspace(0, 2, 50), np.linspace(10, 12, 50), 1e8][:, None]
    with pytest.warns(FloorWarning, match=r"2 of 3 states rest on their least value .* set min_covar below"):
        dca.GaussianHMM(3).fit(X)
    means = dca.GaussianMixture(3).fit(X).means_  # whose floor is the data's resolution, whatever lies far off
    np.testing.assert_allclose(np.sort(means[:, 0]), [1.0, 11.0, 1e8], rtol=1e-4)
