"""What users report on mixtures elsewhere, and data at the edge."""

import numpy as np
import pytest

import dask_dca as dca
from dask_dca.errors import FewerAnchorsWarning
from tests.models.mixture.data import FORMS, planted_mixture

X = planted_mixture(400, 15, 4, 6.0)[0]
FORM = pytest.mark.parametrize("form", FORMS)


@FORM
@pytest.mark.parametrize("k", [2, 3, 7])
def test_fewer_distinct_rows_than_components_are_told_and_fitted(form, k):
    """Duplicate clusters, NaN and prints elsewhere (scikit-learn #10059)."""
    Z = np.repeat(np.eye(3, 4), 50, axis=0)
    model = dca.GaussianMixture(k, form)
    if k > 3:
        with pytest.warns(FewerAnchorsWarning, match="3 distinct rows"):
            model.fit(Z)
    else:
        model.fit(Z)
    assert model.n_components_ == min(k, 3)
    assert np.isfinite(model.means_).all()
    assert np.isfinite(model.predict_proba(Z)).all()
    if k >= 3:
        np.testing.assert_allclose(np.sort(model.means_, axis=0), np.sort(np.eye(3, 4), axis=0), atol=1e-3)


@FORM
def test_constant_data_are_one_component(form):
    with pytest.warns(FewerAnchorsWarning, match="1 distinct rows"):
        model = dca.GaussianMixture(3, form).fit(np.full((30, 4), 7.5))
    np.testing.assert_allclose(model.means_, 7.5)
    assert np.isfinite(model.score(np.full((2, 4), 7.5)))


@FORM
@pytest.mark.parametrize(("n", "k"), [(1, 1), (2, 2), (5, 5), (12, 7)])
def test_hardly_more_rows_than_components(form, n, k):
    Z = np.random.default_rng(0).standard_normal((n, 3))
    model = dca.GaussianMixture(k, form).fit(Z)
    assert np.isfinite(model.means_).all()
    assert np.isfinite(model.predict_proba(Z)).all()


@FORM
def test_more_features_than_rows(form):
    Z, labels, _, _ = planted_mixture(40, 200, 3, 30.0, unequal=0.0)
    model = dca.GaussianMixture(3, form).fit(Z)
    assert np.isfinite(model.predict_proba(Z)).all()
    if form != "tied":
        assert len(np.unique(labels * 3 + model.predict(Z))) == 3


def test_float32_far_from_zero_has_the_right_variances():
    """Squares of values near 1e4 lose all digits in float32 (hmmlearn #2)."""
    Z, _, _, _ = planted_mixture(3000, 12, 3, 8.0)
    far = (Z + 10_000.0).astype(np.float32)
    near = dca.GaussianMixture(3, "diag").fit(Z)
    model = dca.GaussianMixture(3, "diag").fit(far)
    order = [int(((model.means_ - 10_000.0 - mean) ** 2).sum(axis=1).argmin()) for mean in near.means_]
    np.testing.assert_allclose(model.covariances_[order], near.covariances_, rtol=1e-2)
    np.testing.assert_allclose(model.means_[order] - 10_000.0, near.means_, atol=1e-2)


@pytest.mark.parametrize("scale", [1e-12, 1e9])
def test_units_change_nothing(scale):
    """Thresholds are relative, so amperes or picoamperes are the same (ziatdinovmax/SciLink #381 via PR #387)."""
    before, after = dca.GaussianMixture(4).fit(X), dca.GaussianMixture(4).fit(X * scale)
    assert np.array_equal(before.predict(X), after.predict(X * scale))
    np.testing.assert_allclose(after.means_, before.means_ * scale, rtol=1e-5, atol=1e-5 * scale)


def test_constant_and_all_zero_features_do_no_harm():
    """Reported as dylkot/cNMF #116 and dylkot/cNMF #1."""
    Z = np.hstack([X, np.zeros((400, 2)), np.full((400, 1), 3.0)])
    model = dca.GaussianMixture(4).fit(Z)
    assert np.isfinite(model.score(Z))
    assert len(np.unique(model.predict(Z) * 4 + dca.GaussianMixture(4).fit_predict(X))) <= 6


def test_one_feature():
    Z = np.concatenate([np.random.default_rng(0).normal(m, 0.3, 200) for m in (-3.0, 0.0, 4.0)])[:, None]
    model = dca.GaussianMixture(3).fit(Z)
    np.testing.assert_allclose(np.sort(model.means_[:, 0]), [-3.0, 0.0, 4.0], atol=0.1)


def test_a_component_at_both_ends_of_a_direction_has_one_vote_there():
    rng = np.random.default_rng(0)
    around = rng.standard_normal((600, 5)) * np.repeat([0.1, 5.0], 300)[:, None]  # the second holds most ends
    for seed in range(3):
        model = dca.GaussianMixture(2, "spherical", random_state=seed).fit(rng.permutation(around))
        shares, bounds = np.sort(model.vote_share_), model.vote_confidence_
        assert 0.8 < shares[1] <= 1.0
        assert (bounds[:, 0] <= model.vote_share_).all()
        assert (model.vote_share_ <= bounds[:, 1]).all()
