"""GaussianMixture: its API, its agreement with scikit-learn's, and bad input."""

import inspect
import pickle

import dask.array as da
import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.mixture import GaussianMixture as Reference
from sklearn.utils.estimator_checks import check_estimator

import dask_dca as dca
from dask_dca.engine.rows import as_rows
from dask_dca.engine.types import Run
from dask_dca.errors import InvalidInputError, InvalidParameterError, NotFiniteError
from dask_dca.models.describe import describe, model_facts
from dask_dca.models.gaussians import prepare_gaussians
from dask_dca.models.mixture.densities import Densities
from dask_dca.models.mixture.passes import e_step_pass
from tests.conftest import raise_if_dask_computes
from tests.models.mixture.data import FITTED, FORMS, mixture_bits, planted_mixture

X, LABELS, TEST, _ = planted_mixture(400, 15, 4, 6.0)
FORM = pytest.mark.parametrize("form", FORMS)
VIEWS = [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9], [10, 11, 12, 13, 14]]

# name of the check -> why it can't pass
EXPECTED_TO_FAIL = {
    "check_estimator_sparse_array": "takes whatever has predict_proba for a classifier, and asks for its classes",
    "check_estimator_sparse_matrix": "takes whatever has predict_proba for a classifier, and asks for its classes",
}


@pytest.mark.filterwarnings("ignore::dask_dca.errors.FewerAnchorsWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
def test_scikit_learns_own_checks_pass():
    results = check_estimator(dca.GaussianMixture(), expected_failed_checks=EXPECTED_TO_FAIL, on_fail=None)
    failed = {r["check_name"]: repr(r["exception"]) for r in results if r["status"] == "failed"}
    assert not failed
    assert {r["check_name"] for r in results if r["status"] == "xfail"} == set(EXPECTED_TO_FAIL)
    assert sum(r["status"] == "passed" for r in results) > 35


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("form", FORMS[:4])
@pytest.mark.parametrize("n_features", [3, 15])
def test_probabilities_and_criteria_are_scikit_learns_for_the_same_parameters(form, n_features):
    Z = X[:, :n_features]
    model = dca.GaussianMixture(4, form).fit(Z)
    same = Reference(4, covariance_type=form, max_iter=1).fit(Z)
    for name in ("weights_", "means_", "covariances_", "precisions_cholesky_"):
        setattr(same, name, getattr(model, name))
    np.testing.assert_allclose(
        model.predict_proba(TEST[:, :n_features]), same.predict_proba(TEST[:, :n_features]), atol=1e-9
    )
    np.testing.assert_allclose(model.score_samples(Z), same.score_samples(Z), rtol=1e-9)
    assert np.array_equal(model.predict(Z), same.predict(Z))
    assert model.score(Z) == pytest.approx(same.score(Z), rel=1e-6)
    assert model.bic(Z) == pytest.approx(same.bic(Z), rel=1e-6)
    assert model.aic(Z) == pytest.approx(same.aic(Z), rel=1e-6)
    assert model.lower_bound_ == pytest.approx(model.score(Z), abs=2e-6)  # its exponentials are single


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("form", FORMS[:4])
def test_one_pass_over_all_rows_is_one_step_of_scikit_learns(form):
    """Responsibilities are multiples of 2**-16, from exponentials in single precision: the same to about 1e-5."""
    start = dca.GaussianMixture(4, form, max_iter=0, reg_covar=1e-6).fit(X)
    after = dca.GaussianMixture(4, form, max_iter=1, tol=0.0, reg_covar=1e-6).fit(X)
    factor = start.precisions_cholesky_
    precisions = factor @ np.swapaxes(factor, -1, -2) if form in ("full", "tied") else factor**2
    reference = Reference(
        4,
        covariance_type=form,
        max_iter=1,
        reg_covar=1e-6,
        weights_init=start.weights_,
        means_init=start.means_,
        precisions_init=precisions,
    ).fit(X)
    for name in ("weights_", "means_", "covariances_"):
        np.testing.assert_allclose(getattr(after, name), getattr(reference, name), rtol=1e-5, atol=1e-5)
    assert (start.n_iter_, after.n_iter_) == (0, 1)


@FORM
def test_attributes_are_small_and_of_their_shapes(form):
    model = dca.GaussianMixture(4, form).fit(X)
    shapes = {"full": (4, 15, 15), "tied": (15, 15), "diag": (4, 15), "spherical": (4,), "tied-spherical": ()}
    assert model.covariances_.shape == model.precisions_cholesky_.shape == shapes[form]
    assert model.means_.shape == model.anchors_.shape == (4, 15)
    assert model.weights_.sum() == pytest.approx(1.0)
    np.testing.assert_array_equal(model.anchors_, X[model.anchor_indices_])
    labels = model.predict(X)
    assert labels.dtype == np.int64
    assert sorted(labels[model.anchor_indices_]) == [0, 1, 2, 3]
    known = model.extreme_indices_ >= 0
    assert np.isin(model.extreme_indices_[known], model.candidates_).all()
    assert model.n_subproblems_ <= model.votes_.sum() <= model.candidate_votes_.sum()  # both ends: one vote
    assert len(pickle.dumps(model)) < 60_000
    assert np.array_equal(dca.GaussianMixture(4, form).fit_predict(X), labels)


@FORM
def test_samples_have_the_moments_of_the_model(form):
    model = dca.GaussianMixture(4, form).fit(X)
    drawn, labels = model.sample(40_000)
    assert drawn.shape == (40_000, 15)
    np.testing.assert_allclose(np.bincount(labels) / 40_000, model.weights_, atol=0.02)
    np.testing.assert_allclose(drawn.mean(axis=0), model.weights_ @ model.means_, atol=0.06)
    assert model.score(drawn) == pytest.approx(model.lower_bound_, abs=1.0)
    assert np.array_equal(drawn, model.sample(40_000)[0])
    with pytest.raises(InvalidParameterError, match="n_samples"):
        model.sample(0)


@FORM
def test_a_saved_model_says_the_same(form, tmp_path):
    model = dca.GaussianMixture(4, form, views=VIEWS).fit(pd.DataFrame(X).add_prefix("f"))
    model.save(str(tmp_path / "model.zarr"))
    loaded = dca.load_model(str(tmp_path / "model.zarr"))
    assert mixture_bits(loaded) == mixture_bits(model)
    frame = pd.DataFrame(TEST).add_prefix("f")
    assert loaded.predict_proba(frame).tobytes() == model.predict_proba(frame).tobytes()
    assert model_facts(loaded)["weights"] == model.weights_.tolist()
    assert "4 components of 15 features" in describe(loaded)


def test_views_are_numbers_slices_or_names():
    frame = pd.DataFrame(X, columns=[f"f{j}" for j in range(15)])
    names = [[f"f{j}" for j in view] for view in VIEWS]
    slices = [slice(0, 5), slice(5, 10), slice(10, 15)]
    found = [
        mixture_bits(dca.GaussianMixture(4, views=views, method="paper").fit(frame)) for views in (VIEWS, names, slices)
    ]
    assert found[0] == found[1] == found[2]
    assert found[0] != mixture_bits(dca.GaussianMixture(4, method="paper").fit(frame))


def test_the_papers_means_are_rows_of_the_data():
    """No pass of EM moves them, unless it is asked for."""
    model = dca.GaussianMixture(4, method="paper", n_subproblems=50).fit(X)
    np.testing.assert_allclose(model.means_, X[model.anchor_indices_], atol=1e-12)
    assert model.n_iter_ == 0
    refined = dca.GaussianMixture(4, method="paper", n_subproblems=50, max_iter=2, tol=0.0).fit(X)
    np.testing.assert_array_equal(refined.anchor_indices_, model.anchor_indices_)
    assert refined.n_iter_ == 2
    assert refined.lower_bound_ > model.lower_bound_
    assert dca.GaussianMixture(4, tol=0.0).fit(X).n_iter_ == 5
    with pytest.raises(InvalidParameterError, match="'auto'"):
        dca.GaussianMixture(method="paper").fit(X)
    with pytest.raises(InvalidParameterError, match="three views"):
        dca.GaussianMixture(2, method="paper").fit(X[:, :2])


def test_auto_finds_the_number_of_separated_components():
    for k in (1, 3, 6):
        Z = planted_mixture(900, 12, k, 10.0, seed=k)[0]
        model = dca.GaussianMixture().fit(Z)
        assert model.n_components_ == k
        assert model.bic_curve_[model.bic_curve_[:, 1].argmin(), 0] == k
    assert dca.GaussianMixture(2).fit(X).bic_curve_.shape == (0, 2)


def test_correlated_features_are_not_taken_for_more_components():
    """With diagonal covariances alone the least BIC would be that of more than three."""
    rng = np.random.default_rng(0)
    members, noise = rng.integers(3, size=300), rng.standard_normal((300, 3))
    means, own = 6.0 * rng.standard_normal((3, 3)), rng.standard_normal((3, 3, 3))
    for mix in (np.broadcast_to(np.tril(np.ones((3, 3))), (3, 3, 3)), own):
        model = dca.GaussianMixture(tails="normal").fit(means[members] + np.einsum("ni,nij->nj", noise, mix[members]))
        assert model.n_components_ == 3


def test_what_was_chosen_is_said():
    rng = np.random.default_rng(0)
    means = 9.0 * rng.standard_normal((3, 4))[rng.integers(3, size=900)]
    turn = np.linalg.qr(rng.standard_normal((4, 4)))[0] * [3.0, 1.0, 0.5, 0.2]
    round_, tilted = means + rng.standard_normal((900, 4)), means + rng.standard_normal((900, 4)) @ turn.T
    found = [dca.GaussianMixture(3).fit(Z) for Z in (round_, round_ * [1.0, 4.0, 0.1, 9.0], tilted)]
    assert [model.covariance_type_ for model in found] == ["tied-spherical", "diag", "tied"]
    assert [np.isinf(model.pulls_).tolist() for model in found] == [[True, True], [True, False], [True, False]]
    assert {model.shrinkage_target_ for model in found} == {"common"}
    assert "covariances tied" in describe(found[2])
    assert model_facts(found[2])["covariance_type"] == "tied"
    np.testing.assert_allclose(found[2].covariances_, turn @ turn.T, atol=0.6)
    assert found[2].get_params()["covariance_type"] == "auto"


def test_many_correlated_features_have_covariances_in_a_subspace(tmp_path):
    rng = np.random.default_rng(0)
    labels, axes = rng.integers(3, size=600), np.linalg.qr(rng.standard_normal((150, 5)))[0]
    shapes = 2.0 * rng.standard_normal((3, 5, 5))
    inner = np.einsum("nij,nj->ni", shapes[labels], rng.standard_normal((600, 5))) + 6.0 * labels[:, None]
    Z = inner @ axes.T + 0.3 * rng.standard_normal((600, 150)) + 100.0
    model = dca.GaussianMixture(3).fit(Z)
    assert model.covariance_type_ == "subspace"
    assert model.covariances_.shape == model.precisions_cholesky_.shape == (3, 32, 32)
    np.testing.assert_allclose(model.subspace_ @ model.subspace_.T, np.eye(32), atol=1e-9)
    assert model.noise_variance_ == pytest.approx(0.09, rel=0.25)  # less what the leading directions took along
    whole = model.subspace_.T @ model.covariances_ @ model.subspace_
    whole += model.noise_variance_ * (np.eye(150) - model.subspace_.T @ model.subspace_)
    same = Reference(3, covariance_type="full")
    same.weights_, same.means_, same.covariances_ = model.weights_, model.means_, whole
    same.precisions_cholesky_ = np.linalg.inv(np.linalg.cholesky(whole)).swapaxes(1, 2)
    np.testing.assert_allclose(model.score_samples(Z), same.score_samples(Z), rtol=1e-7)
    assert model.lower_bound_ == pytest.approx(model.score(Z), rel=1e-9)
    drawn, _ = model.sample(20_000)
    assert model.score(drawn) == pytest.approx(model.lower_bound_, abs=6.0)
    model.save(str(tmp_path / "model.zarr"))
    assert dca.load_model(str(tmp_path / "model.zarr")).predict_proba(Z).tobytes() == model.predict_proba(Z).tobytes()
    chunked = dca.GaussianMixture(3).fit(da.from_array(Z, chunks=(170, 80)))
    assert mixture_bits(chunked, (*FITTED, "subspace_")) == mixture_bits(model, (*FITTED, "subspace_"))


def test_no_component_is_flatter_in_a_subspace_than_part_of_the_noise_across():
    """The subspace has noise as well; a component that varies along a few of its directions has that in the others."""
    rng = np.random.default_rng(2)
    labels = rng.integers(3, size=1200)
    factors = 3.0 * np.linalg.qr(rng.standard_normal((150, 30)))[0].T.reshape(3, 10, 150)
    X = 4.0 * rng.standard_normal((3, 150))[labels]
    X += np.einsum("nq,nqp->np", rng.standard_normal((1200, 10)), factors[labels])
    X += np.array([1.0, 0.02, 0.02])[labels, None] * rng.standard_normal(X.shape)
    model = dca.GaussianMixture(3).fit(X)
    assert model.covariance_type_ == "subspace"
    least = np.linalg.eigvalsh(model.covariances_)[:, 0].min() / model.noise_variance_
    assert 0.99 / 64 < least < 0.1


@pytest.mark.parametrize("chunked", [False, True])
def test_noise_is_set_aside_and_has_no_weight(chunked):
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=1500)
    Z = 8.0 * np.eye(3, 5)[labels] + rng.standard_normal((1500, 5))
    noise = rng.choice(1500, 12, replace=False)
    Z[noise] = rng.uniform(-100, 100, (12, 5))
    model = dca.GaussianMixture(3).fit(da.from_array(Z, chunks=(400, 3)) if chunked else Z)
    assert model.n_outliers_ == 12
    np.testing.assert_array_equal(model.outliers_, np.sort(noise))
    clean = np.delete(Z, noise, axis=0)
    alone = dca.GaussianMixture(3).fit(clean)
    assert len(alone.outliers_) == alone.n_outliers_ == 0
    order = [int(((model.means_ - mean) ** 2).sum(axis=1).argmin()) for mean in alone.means_]
    np.testing.assert_allclose(model.means_[order], alone.means_, atol=0.02)
    assert model.lower_bound_ == pytest.approx(model.score(clean), abs=2e-6)
    assert "12 rows are noise" in describe(model)
    own = prepare_gaussians(model.means_, model.covariances_, model.covariance_type_, np.zeros(5))
    densities = Densities(own, np.log(model.weights_), 64)
    for copies in (1, 12):  # sums of few rows take several digits
        seen = e_step_pass(as_rows(np.tile(Z, (copies, 1))), densities, Z.std(axis=0), Run(), model.stream_least_)
        assert seen.moments.counts.sum() == pytest.approx(1488 * copies, abs=0.01)


def test_outputs_have_the_inputs_dtype_and_parameters_float64():
    Z = X.astype(np.float32)
    model = dca.GaussianMixture(4).fit(Z)
    assert model.predict_proba(Z).dtype == model.score_samples(Z).dtype == model.anchors_.dtype == np.float32
    assert model.means_.dtype == model.covariances_.dtype == np.float64


def test_predictions_of_chunked_data_are_lazy_and_the_same():
    model = dca.GaussianMixture(4).fit(X)
    chunked = da.from_array(X, chunks=((100, 0, 1, 299), (7, 8)))
    with raise_if_dask_computes():
        lazy = [getattr(model, name)(chunked) for name in ("predict", "predict_proba", "score_samples")]
    for array, name in zip(lazy, ("predict", "predict_proba", "score_samples"), strict=True):
        assert array.compute(scheduler="synchronous").tobytes() == getattr(model, name)(X).tobytes()
    assert lazy[0].dtype == np.int64


def test_sparse_data_give_the_same_model():
    Z = np.where(X > 0.5, X, 0.0)
    assert mixture_bits(dca.GaussianMixture(3).fit(sparse.csr_array(Z))) == mixture_bits(dca.GaussianMixture(3).fit(Z))


def test_clones_have_the_parameters_and_fits_start_afresh():
    model = dca.GaussianMixture(3, "full", views=VIEWS, max_iter=2, tol=0.1, reg_covar=0.5, random_state=7)
    first = mixture_bits(model.fit(X))
    copy = clone(model)
    assert not hasattr(copy, "means_")
    assert set(model.get_params()) == set(inspect.signature(dca.GaussianMixture).parameters)
    assert mixture_bits(model.fit(X)) == mixture_bits(copy.fit(X)) == first


# --- bad input ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_components": 0}, "n_components"),
        ({"n_components": 401}, "exceeds the number of rows"),
        ({"n_components": 2, "covariance_type": "round"}, "unknown covariance_type 'round'; use one of 'auto', 'full'"),
        ({"n_components": 2, "max_iter": -1}, "max_iter"),
        ({"n_components": 2, "tol": -1.0}, "tol must be a finite number of at least 0"),
        ({"n_components": 2, "tol": "small"}, "tol must be"),
        ({"n_components": 2, "reg_covar": np.nan}, "reg_covar must be 'auto' or"),
        ({"n_components": 2, "reg_covar": True}, "reg_covar must be"),
        ({"n_components": 2, "views": [[0], [1]]}, "three disjoint groups"),
        ({"n_components": 2, "views": [["a"], [1], [2]]}, "feature 'a'"),
        ({"n_components": 6, "views": VIEWS}, "view of 5 features"),
        ({"n_components": 2, "method": "em"}, "unknown method"),
    ],
)
def test_unusable_parameters_are_refused_and_leave_no_model(parameters, message):
    model = dca.GaussianMixture(**parameters)
    with pytest.raises(InvalidParameterError, match=message):
        model.fit(X)
    assert not hasattr(model, "means_")


@pytest.mark.parametrize("form", ["full", "tied"])
def test_covariances_too_wide_to_form_are_refused_with_the_way_out(form):
    """Reported as apache/spark PR #16661."""
    with pytest.raises(InvalidParameterError, match="covariance_type='diag'"):
        dca.GaussianMixture(2, form).fit(np.zeros((5, 2001)))


@pytest.mark.parametrize("chunked", [False, True])
def test_entries_that_are_infinite_are_named(chunked):
    Z = X.copy()
    Z[333, 7] = np.inf
    model = dca.GaussianMixture(3)
    with pytest.raises(NotFiniteError, match="infinity: row 333, column 7"):
        model.fit(da.from_array(Z, chunks=100) if chunked else Z)
    assert not hasattr(model, "means_")
    with pytest.raises(NotFiniteError, match="row 333"):
        model.fit(X).predict(Z)


def test_other_features_than_those_of_fit_are_refused():
    model = dca.GaussianMixture(3).fit(X)
    with pytest.raises(ValueError, match="15 features"):
        model.predict(X[:, :4])
    with pytest.raises(InvalidInputError, match="15 features"):
        model.score(da.from_array(X[:, :4], chunks=100))
