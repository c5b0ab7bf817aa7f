"""Mixtures of rows with missing entries."""

import dask.array as da
import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

import dask_dca as dca
from dask_dca.engine.rows import as_rows
from dask_dca.engine.types import Run
from dask_dca.errors import FewEntriesWarning
from dask_dca.models.gaussians import prepare_gaussians
from dask_dca.models.mixture.densities import Densities
from dask_dca.models.mixture.passes import e_step_pass
from tests.contract.entries import as_bytes, fitted_bytes

pytestmark = pytest.mark.filterwarnings("ignore::dask_dca.errors.MissingEntriesWarning")
FORMS = ("full", "tied", "diag", "spherical", "tied-spherical")


def planted(seed, n=1200, p=6, k=3, share=0.3):
    """Rows of correlated clusters, the same with holes, and their labels."""
    rng = np.random.default_rng(seed)
    labels, roots = rng.integers(k, size=n), rng.standard_normal((k, p, p)) / np.sqrt(p) + 0.4 * np.eye(p)
    X = 2.0 * rng.standard_normal((k, p))[labels] + np.einsum("nij,nj->ni", roots[labels], rng.standard_normal((n, p)))
    return X, np.where(rng.random(X.shape) < share, np.nan, X), labels


@pytest.mark.parametrize("form", ["full", "diag"])
def test_what_is_lost_is_little_and_far_less_than_by_filling_in_means(form):
    """New rows, in nats for each observed entry: complete fit, fit with holes, fit of filled rows."""
    for seed in range(2):
        X, holes, _ = planted(seed, n=2200)
        new, filled = holes[1200:], np.where(np.isnan(holes), np.nanmean(holes, axis=0), holes)
        each = len(new) / (~np.isnan(new)).sum()
        complete, ours, means = (
            each * dca.GaussianMixture(3, form).fit(rows[:1200]).score(new) for rows in (X, holes, filled)
        )
        assert ours > complete - 0.015
        assert means < complete - 0.04


@pytest.mark.parametrize("form", FORMS)
def test_steps_raise_the_likelihood_of_what_was_observed(form):
    """A broken conditional mean or covariance lowers it."""
    _, holes, _ = planted(0, n=600)
    model = dca.GaussianMixture(3, form, reg_covar=1e-6, max_iter=8, tol=0.0).fit(holes)
    assert (np.diff(model.log_likelihoods_) > -1e-7).all()
    assert model.log_likelihoods_[-1] == pytest.approx(model.score(holes), abs=1e-6)


@pytest.mark.parametrize("form", FORMS)
def test_sums_without_holes_are_moments(form):
    X, _, _ = planted(0, n=300)
    k, p = 2, X.shape[1]
    shapes = {"full": (k, p, p), "tied": (p, p), "diag": (k, p), "spherical": (k,), "tied-spherical": ()}
    covariances = np.broadcast_to(np.eye(p), shapes[form]) if form in ("full", "tied") else np.ones(shapes[form])
    gaussians = prepare_gaussians(X[:k], covariances, form, np.zeros(p))
    densities = Densities(gaussians, np.log([0.5, 0.5]), 64)
    seen = e_step_pass(as_rows(X), densities, X.std(axis=0), Run(), missing=True)
    away = X[None] - X[:k, None]
    logs = -0.5 * (away**2).sum(axis=2)
    shares = np.exp(logs - np.logaddexp(*logs))
    np.testing.assert_allclose(seen.moments.counts, shares.sum(axis=1), atol=1e-4)
    products = np.einsum("kn,kni,knj->kij", shares, away, away)
    squares = np.einsum("kii->ki", products)
    wanted = {"full": products, "tied": products.sum(axis=0), "diag": squares}.get(form, squares.sum(axis=1))
    np.testing.assert_allclose(seen.moments.second, wanted, rtol=1e-4, atol=1e-3)
    assert (seen.n_unobserved_rows, seen.n_observed) == (0, X.size)


@pytest.mark.parametrize("form", ["auto", "tied", "spherical"])
def test_any_chunking_gives_the_same_bits(form):
    _, holes, _ = planted(1, n=250)
    holes[17] = np.nan
    whole = dca.GaussianMixture(3, form, max_iter=2).fit(holes)
    assert whole.n_unobserved_rows_ == 1
    chunked = da.from_array(holes, chunks=((133, 57, 60), 4))
    parts = dca.GaussianMixture(3, form, max_iter=2).fit(chunked)
    assert fitted_bytes(parts) == fitted_bytes(whole)
    for name in ("predict", "predict_proba", "score_samples", "score"):
        assert as_bytes(getattr(parts, name)(chunked)) == as_bytes(getattr(whole, name)(holes))


def test_rows_are_predicted_by_what_was_observed_and_complete_ones_as_before():
    X, holes, labels = planted(2)
    model = dca.GaussianMixture(3, "full").fit(X)
    assert adjusted_rand_score(labels, model.predict(holes)) > 0.75
    mixed = np.where(np.arange(len(X))[:, None] % 2, holes, X)
    same = ~np.isnan(mixed).any(axis=1)
    for name in ("predict_proba", "score_samples"):
        assert getattr(model, name)(mixed)[same].tobytes() == getattr(model, name)(X)[same].tobytes()
    nothing = np.full((1, 6), np.nan)
    np.testing.assert_allclose(model.predict_proba(nothing)[0], model.weights_)
    assert model.score_samples(nothing)[0] == pytest.approx(0.0, abs=1e-12)


def test_densities_in_a_subspace_are_those_of_the_whole_covariances():
    rng = np.random.default_rng(0)
    base = rng.standard_normal((3, 140))
    X = (
        6.0 * rng.standard_normal((900, 3)) @ base
        + 4.0 * base[rng.integers(3, size=900)]
        + rng.standard_normal((900, 140))
    )
    model = dca.GaussianMixture(2, max_iter=1).fit(X)
    assert model.covariance_type_ == "subspace"
    barely = X[:4].copy()
    barely[:, :70] = np.nan
    axes, noise = model.subspace_, model.noise_variance_
    whole = axes.T @ model.covariances_ @ axes + noise * (np.eye(140) - axes.T @ axes)
    wanted = []
    for row in barely[:, 70:]:
        logs = []
        for weight, mean, covariance in zip(model.weights_, model.means_, whole, strict=True):
            away = row - mean[70:]
            own = covariance[70:, 70:]
            square = away @ np.linalg.solve(own, away)
            logs.append(np.log(weight) - 0.5 * (square + np.linalg.slogdet(own)[1] + 70 * np.log(2 * np.pi)))
        wanted.append(np.logaddexp(*logs))
    np.testing.assert_allclose(model.score_samples(barely), wanted, rtol=1e-8)


def test_anchors_are_real_rows_and_what_marks_a_hole_does_not_matter():
    _, holes, _ = planted(3, n=150)
    model = dca.GaussianMixture(3, "diag").fit(holes)
    given = holes[model.anchor_indices_]
    seen = ~np.isnan(given)
    assert (model.anchors_[seen] == given[seen]).all()
    assert np.isfinite(model.anchors_).all()
    marked = dca.GaussianMixture(3, "diag", missing=-9.0).fit(np.where(np.isnan(holes), -9.0, holes))
    masked = dca.GaussianMixture(3, "diag", missing=np.nan).fit(np.ma.masked_invalid(holes))
    assert fitted_bytes(marked) == fitted_bytes(model) == fitted_bytes(masked)


def test_the_warning_counts_entries_of_the_parameters():
    _, holes, _ = planted(0, n=40, share=0.5)
    n_observed = int((~np.isnan(holes)).sum())
    with pytest.warns(FewEntriesWarning, match=f"{n_observed} entries were observed, .* of the 83 parameters"):
        dca.GaussianMixture(3, "full").fit(holes)


def test_a_column_without_an_entry_is_refused():
    _, unseen, _ = planted(0, n=200)
    unseen[:, 4] = np.nan
    with pytest.raises(ValueError, match="column 4 of X has no observed entry"):
        dca.GaussianMixture(2).fit(unseen)
