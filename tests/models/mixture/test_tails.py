"""Heavy tails: Student's t distributions in the place of normal ones, where rows left out are denser for it."""

import copy
from functools import cache

import dask.array as da
import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import f as fisher
from scipy.stats import kstest, multivariate_normal, multivariate_t
from sklearn.datasets import load_breast_cancer
from sklearn.metrics import adjusted_rand_score

import dask_dca as dca
from dask_dca.errors import InvalidParameterError
from dask_dca.models.mixture import fit as mixture_fit
from tests.models.mixture.data import FITTED, mixture_bits, planted_mixture


def heavy_mixture(n, p, k, degrees, separation=6.0, seed=0, full=False):
    """Rows of t distributions, their components, and as many rows again; shapes and sizes are unequal."""
    rng = np.random.default_rng([seed, p, k])
    means = separation * rng.standard_normal((k, p)) / np.sqrt(p)
    deviations = 10.0 ** rng.uniform(-0.25, 0.25, (k, 1, p))
    turns = np.linalg.qr(rng.standard_normal((k, p, p)))[0] if full else np.eye(p)
    labels = rng.choice(k, 2 * n, p=rng.dirichlet(np.full(k, 5.0)) * 0.7 + 0.3 / k)
    away = rng.standard_normal((2 * n, p))
    for j, factors in enumerate(np.broadcast_to(turns * deviations, (k, p, p))):
        away[labels == j] = away[labels == j] @ factors.T
    X = means[labels] + away / np.sqrt(rng.chisquare(degrees, (2 * n, 1)) / degrees)
    return X[:n], labels[:n], X[n:]


@pytest.mark.parametrize(
    ("n", "p", "k", "degrees", "full"), [(1500, 5, 4, 3, False), (1200, 8, 4, 4, True), (1200, 20, 4, 5, False)]
)
def test_heavy_tails_are_found_and_clusters_with_them(n, p, k, degrees, full):
    """Normal components lose .1 to .4 of adjusted Rand, and half a nat of every row held out."""
    gains, risen = [], []
    for seed in range(2):
        X, labels, test = heavy_mixture(n, p, k, degrees, seed=seed, full=full)
        model, normal = (dca.GaussianMixture(k, tails=tails).fit(X) for tails in ("auto", "normal"))
        assert abs(model.degrees_of_freedom_ - degrees) <= 2.0
        assert np.isinf(normal.degrees_of_freedom_)
        found = adjusted_rand_score(labels, model.predict(X))
        assert found > 0.8
        gains.append(found - adjusted_rand_score(labels, normal.predict(X)))
        risen.append(model.score(test) - normal.score(test))
    assert np.mean(gains) > 0.08
    assert min(risen) > 0.2


@pytest.mark.parametrize(("seed", "unequal"), [(0, 0.0), (1, 0.4)])
def test_normal_mixtures_stay_what_they_are_to_the_bit(seed, unequal):
    X, *_ = planted_mixture(1200, 8, 4, 3.0, seed=seed, unequal=unequal)
    model = dca.GaussianMixture(4).fit(X)
    assert np.isinf(model.degrees_of_freedom_)
    assert mixture_bits(model) == mixture_bits(dca.GaussianMixture(4, tails="normal").fit(X))


def test_a_few_rows_in_the_middle_of_components_are_no_heavy_tails():
    """The paper's protocol plants means: no normal row of hundreds of features is so near, but five decide nothing."""
    rng = np.random.default_rng(0)
    means = rng.random((5, 300))
    X = np.vstack([means[rng.integers(5, size=1000)] + 1.8 * rng.standard_normal((1000, 300)), means])
    assert np.isinf(dca.GaussianMixture(5).fit(X).degrees_of_freedom_)


def test_breast_cancer():
    """.68; with normal components one of the two is of the tails of both, and it is .32."""
    X, labels = load_breast_cancer(return_X_y=True)
    model, normal = (dca.GaussianMixture(2, tails=tails).fit(X) for tails in ("auto", "normal"))
    assert adjusted_rand_score(labels, model.predict(X)) > 0.6
    assert adjusted_rand_score(labels, normal.predict(X)) < 0.5
    assert model.lower_bound_ > normal.lower_bound_ + 2.0


FORM = pytest.mark.parametrize("form", ["diag", "full", "spherical", "tied-spherical", "subspace"])


@cache
def _fitted(form, n=1500):
    """A model, not to be changed, its rows, and others."""
    p = 140 if form == "subspace" else 5
    X, _, test = heavy_mixture(n, p, 3, 4, seed=1, full=form in ("full", "subspace"))
    model = dca.GaussianMixture(3, "auto" if form == "subspace" else form, tails="heavy").fit(X)
    assert model.covariance_type_ == form
    assert np.isfinite(model.degrees_of_freedom_)
    return model, X, test


def _scale(model, j):
    form, p = model.covariance_type_, model.means_.shape[1]
    return {
        "full": lambda: model.covariances_[j],
        "diag": lambda: np.diag(model.covariances_[j]),
        "spherical": lambda: model.covariances_[j] * np.eye(p),
        "tied-spherical": lambda: model.covariances_ * np.eye(p),
    }[form]()


@FORM
def test_densities_are_those_of_scipy(form):
    model, _, test = _fitted(form)
    degrees, parts = model.degrees_of_freedom_, []
    for j, mean in enumerate(model.means_):
        if form == "subspace":
            axes = model.subspace_
            inside = multivariate_t(axes @ mean, model.covariances_[j], df=degrees).logpdf(test @ axes.T)
            away = test - model.weights_ @ model.means_
            squares = (away**2).sum(axis=1) - ((away @ axes.T) ** 2).sum(axis=1)
            rest = test.shape[1] - len(axes)
            outside = -0.5 * (squares / model.noise_variance_ + rest * np.log(2.0 * np.pi * model.noise_variance_))
            parts.append(inside + outside)
        else:
            parts.append(multivariate_t(mean, _scale(model, j), df=degrees).logpdf(test))
    joint = np.array(parts) + np.log(model.weights_)[:, None]
    np.testing.assert_allclose(model.score_samples(test), logsumexp(joint, axis=0), rtol=1e-9)
    np.testing.assert_allclose(model.predict_proba(test), np.exp(joint - logsumexp(joint, axis=0)).T, atol=1e-9)
    assert np.array_equal(model.predict(test), joint.argmax(axis=0))


@pytest.mark.parametrize(
    ("form", "n"),  # in several digits, and in one
    [("diag", 1500), ("spherical", 1500), ("subspace", 1500), ("full", 4200), ("tied-spherical", 4200)],
)
def test_any_chunks_give_the_same_bits(form, n):
    model, X, _ = _fitted(form, n)
    again = dca.GaussianMixture(3, model.covariance_type, tails="heavy").fit(da.from_array(X, chunks=(n // 3 + 7, 3)))
    names = (*FITTED, "degrees_of_freedom_")
    assert mixture_bits(again, names) == mixture_bits(model, names)
    assert model.lower_bound_ == pytest.approx(model.score(X), abs=1e-5)
    assert model.n_outliers_ == 0  # far rows are of the tails


@pytest.mark.parametrize(("form", "n"), [("full", 1500), ("diag", 4200)])
def test_passes_lead_to_where_the_likelihood_is_flat(form, n):
    """Means and scales are weighted by r (degrees + p) / (degrees + distance), weights_ are means of r."""
    _, X, _ = _fitted(form, n)
    more = dca.GaussianMixture(3, form, tails="heavy", max_iter=60, tol=0.0).fit(X)
    assert np.diff(more.log_likelihoods_).min() > -1e-6
    degrees, shares, p = more.degrees_of_freedom_, more.predict_proba(X), X.shape[1]
    np.testing.assert_allclose(shares.mean(axis=0), more.weights_, atol=2e-4)
    for j, mean in enumerate(more.means_):
        away, scale = X - mean, _scale(more, j)
        distances = (away * np.linalg.solve(scale, away.T).T).sum(axis=1)
        weights = shares[:, j] * (degrees + p) / (degrees + distances)
        np.testing.assert_allclose(weights @ X / weights.sum(), mean, atol=2e-3)
        own = (away.T * weights) @ away / weights.sum()
        np.testing.assert_allclose(np.diag(own), np.diag(scale), rtol=0.1)


def test_corrected_passes_of_more_rows_than_the_sample(monkeypatch):
    monkeypatch.setattr(mixture_fit, "_SAMPLE_ROWS", 8000)
    X, *_ = heavy_mixture(24_000, 4, 4, 4, separation=3.0)
    start, one, many = (
        dca.GaussianMixture(4, "diag", tails="heavy", max_iter=most, tol=0.0).fit(X) for most in (0, 1, 8)
    )
    least, now, most = (model.score(X) for model in (start, one, many))
    assert least < now <= most + 1e-6
    assert most - now < 0.2 * (most - least)
    assert one.lower_bound_ == pytest.approx(now, abs=5e-4)


def test_drawn_rows_are_of_the_model():
    model, X, _ = _fitted("full")
    drawn, labels = model.sample(20_000)
    degrees, p = model.degrees_of_freedom_, X.shape[1]
    away = drawn - model.means_[labels]
    white = np.concatenate([away[labels == j] @ factor for j, factor in enumerate(model.precisions_cholesky_)])
    distances = (white**2).sum(axis=1)
    assert kstest(distances / p, fisher(p, degrees).cdf).pvalue > 1e-3


def test_rows_with_holes_have_the_density_of_what_was_observed():
    model, _, test = _fitted("full")
    rows = test[:50].copy()
    rows[:, [1, 3]] = np.nan
    seen = [0, 2, 4]
    parts = []
    for mean, scale in zip(model.means_, model.covariances_, strict=True):
        marginal = multivariate_t(mean[seen], scale[np.ix_(seen, seen)], df=model.degrees_of_freedom_)
        parts.append(marginal.logpdf(rows[:, seen]))
    wanted = logsumexp(parts, axis=0, b=model.weights_[:, None])
    np.testing.assert_allclose(model.score_samples(rows), wanted, rtol=1e-9)


def test_rows_that_arrive_later_count_as_in_the_fit(tmp_path):
    held, _, test = _fitted("full", 4200)
    model, before = copy.deepcopy(held), held.score(test)
    model.save(str(tmp_path / "model.zarr"))
    again = dca.load_model(str(tmp_path / "model.zarr"))
    assert again.degrees_of_freedom_ == model.degrees_of_freedom_
    for later in (model, again):
        later.partial_fit(test)
        assert later.score(test) > before
        assert later.weights_.sum() == pytest.approx(1.0)
    assert mixture_bits(again) == mixture_bits(model)
    spread = np.sqrt(np.diagonal(model.covariances_, axis1=1, axis2=2))
    far = np.vstack([test, 1e4 * np.ones((3, 5))])
    moved = dca.load_model(str(tmp_path / "model.zarr")).partial_fit(far)
    assert (np.abs(moved.means_ - model.means_) < 0.2 * spread).all()  # of normal components a mean goes to them


def test_criteria_count_one_parameter_more():
    model, X, _ = _fitted("full")
    gain = model.aic(X) + 2.0 * model.score(X) * len(X)
    assert gain == pytest.approx(2.0 * (3 * 5 + 2 + 3 * 15 + 1), abs=1e-6)


def test_normal_densities_are_unchanged_for_models_without_the_attribute():
    X, *_ = planted_mixture(300, 3, 2, 5.0)
    model = dca.GaussianMixture(2, "full").fit(X)
    del model.degrees_of_freedom_
    parts = [multivariate_normal(m, c).logpdf(X) for m, c in zip(model.means_, model.covariances_, strict=True)]
    np.testing.assert_allclose(model.score_samples(X), logsumexp(parts, axis=0, b=model.weights_[:, None]), rtol=1e-9)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"tails": "fat"}, "unknown tails 'fat'"),
        ({"tails": "heavy", "covariance_type": "tied"}, "another covariance_type"),
        ({"tails": "heavy", "reg_covar": 1e-6}, "reg_covar='auto'"),
        ({"tails": "heavy", "method": "paper"}, "method='robust'"),
        ({"tails": "heavy", "init": {"means": np.zeros((2, 6))}}, "leave init out"),
    ],
)
def test_what_heavy_tails_need(arguments, said):
    X, *_ = planted_mixture(200, 6, 2, 5.0)
    with pytest.raises(InvalidParameterError, match=said):
        dca.GaussianMixture(2, **arguments).fit(X)


@pytest.mark.filterwarnings("ignore::dask_dca.errors.MissingEntriesWarning")
def test_heavy_tails_need_all_entries():
    X, *_ = planted_mixture(400, 6, 2, 5.0)
    X[::7, 2] = np.nan
    with pytest.raises(InvalidParameterError, match="missing entries"):
        dca.GaussianMixture(2, tails="heavy").fit(X)
    assert np.isinf(dca.GaussianMixture(2).fit(X).degrees_of_freedom_)
