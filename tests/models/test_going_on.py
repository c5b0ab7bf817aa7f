"""Fits that begin where the last one ended, by the neighbours' names: `warm_start`, `means_init` and its kin, `em`."""

import pickle

import dask.array as da
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.decomposition import LatentDirichletAllocation
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture

import dask_dca as dca
from dask_dca.errors import CheckpointError, InvalidParameterError
from tests.contract.entries import ENTRIES, example, fitted_bytes

WITH_INIT = [name for name in ENTRIES if "init" in getattr(dca, name)._get_param_names()]
RNG = np.random.default_rng(0)
X = np.repeat([[0.0, 0, 0], [4, 0, 1], [0, 4, -1]], 100, axis=0) + RNG.standard_normal((300, 3))
START = X[[0, 120, 250]]
WEIGHTS = np.array([0.2, 0.3, 0.5])
INVERSES = {
    "full": np.array([np.eye(3) + 0.2 * j for j in range(3)]),
    "tied": np.eye(3) + 0.3,
    "diag": 1.0 + RNG.random((3, 3)),
    "spherical": np.array([1.0, 2.0, 0.5]),
}


def test_models_with_starts_go_on():
    assert len(WITH_INIT) == 4


@pytest.mark.parametrize("name", WITH_INIT)
def test_the_next_fit_begins_where_the_last_one_ended(name, tmp_path):
    data, make = example(name), lambda **more: ENTRIES[name].make(max_iter=1, tol=0.0, **more)
    first, model = make().fit(data), make(warm_start=True).fit(data)
    assert fitted_bytes(model) == fitted_bytes(first)  # from anchors
    second = make(init=first).fit(data)
    assert fitted_bytes(second) != fitted_bytes(first)
    for again in (pickle.loads(pickle.dumps(model)), model):
        assert fitted_bytes(again.fit(da.from_array(data, chunks=(50, 1)))) == fitted_bytes(second)
    model.save(tmp_path / "model.zarr")
    loaded = dca.load_model(tmp_path / "model.zarr")
    third = fitted_bytes(make(init=second).fit(data))
    assert fitted_bytes(loaded.fit(data)) == fitted_bytes(model.fit(data)) == third
    assert fitted_bytes(clone(model).fit(data)) == fitted_bytes(first)  # a clone has not been fitted
    assert fitted_bytes(model.set_params(warm_start=False).fit(data)) == fitted_bytes(first)


def test_init_is_where_the_first_of_several_fits_begins():
    make = lambda init, **more: dca.GaussianMixture(3, "diag", init=init, max_iter=1, tol=0, **more)  # noqa: E731
    model, first = make({"means": START}, warm_start=True).fit(X), make({"means": START}).fit(X)
    assert fitted_bytes(model) == fitted_bytes(first)
    assert fitted_bytes(model.fit(X)) == fitted_bytes(make(first).fit(X))
    named = dca.GaussianMixture(3, "diag", means_init=START, max_iter=1, tol=0, warm_start=True).fit(X)
    assert fitted_bytes(named.fit(X)) == fitted_bytes(model)


def test_a_fit_that_fails_leaves_the_start_as_it_was():
    model = dca.GaussianMixture(3, "diag", max_iter=1, warm_start=True).fit(X)
    before = fitted_bytes(model)
    with pytest.raises(InvalidParameterError, match="means of init"):
        model.fit(X[:, :2])
    with pytest.raises(InvalidParameterError, match="are 'diag', and can't start covariance_type='full'"):
        clone(model).set_params(covariance_type="diag").fit(X).set_params(covariance_type="full").fit(X)
    assert fitted_bytes(model) == before
    assert not [name for name in vars(model) if "before" in name]


def test_parameters_set_by_hand_are_a_start():
    model = dca.GaussianHMM(2, max_iter=1, warm_start=True)
    model.means_ = X[[0, 120]]
    start = dca.GaussianHMM(2, max_iter=1, init={"means": X[[0, 120]]})
    assert fitted_bytes(model.fit(X)) == fitted_bytes(start.fit(X))


@pytest.mark.parametrize("make", [dca.GaussianMixture, dca.GaussianHMM])
def test_covariances_keep_the_form_that_auto_came_to(make):
    far = X + [0.0, 3.0, 0.0] * (np.arange(300) % 2)[:, None]
    far[:, 0] += far[:, 1]
    model = make(2, "auto", max_iter=1, warm_start=True, **({"tails": "normal"} if make is dca.GaussianMixture else {}))
    form = model.fit(far).covariance_type_
    assert form in ("full", "tied")  # and not that of a start without a form
    covariances = model.covariances_
    assert model.set_params(max_iter=0).fit(far).covariance_type_ == form
    np.testing.assert_allclose(model.covariances_, covariances, rtol=1e-12)


def test_checkpoints_know_the_start(tmp_path):
    cut = da.from_array(X, chunks=(50, 3))
    model = dca.GaussianMixture(3, "diag", max_iter=1, warm_start=True).fit(cut)
    model.set_params(checkpoint=str(tmp_path / "kept")).fit(cut)
    with pytest.raises(CheckpointError):  # of another start
        model.fit(cut)


@pytest.mark.parametrize("kind", INVERSES)
def test_passes_from_scikit_learns_start_are_scikit_learns(kind):
    start = {"means_init": START, "weights_init": WEIGHTS, "precisions_init": INVERSES[kind]}
    common = {"covariance_type": kind, "reg_covar": 0.0, "tol": 0.0, "max_iter": 4, "warm_start": True}
    own, other = dca.GaussianMixture(3, **start, **common), GaussianMixture(3, **start, **common)
    own.fit(X)
    with pytest.warns(ConvergenceWarning):
        other.fit(X)
    for name in ("weights_", "means_", "covariances_"):
        np.testing.assert_allclose(getattr(own, name), getattr(other, name), atol=1e-6, err_msg=name)
    alike = dca.GaussianMixture(3, **start, **{**common, "covariance_type": "auto"})
    if kind != "tied":  # 3 x 3 of three means are variances
        assert fitted_bytes(alike.fit(X)) == fitted_bytes(own)
    own.fit(X)
    with pytest.warns(ConvergenceWarning):
        other.fit(X)
    np.testing.assert_allclose(own.means_, other.means_, atol=1e-6)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"init": {"means": START}, "means_init": START}, "both give a start: pass init alone"),
        ({"weights_init": WEIGHTS}, "needs means; pass means_init"),
        ({"means_init": START, "precisions_init": -INVERSES["full"]}, "precisions_init of covariance_type='full' must"),
        ({"means_init": START, "precisions_init": WEIGHTS, "covariance_type": "diag"}, r"must have shape \(3, 3\)"),
        ({"means_init": START[:2]}, "the start has 2; pass n_components=2"),
        ({"means_init": START, "method": "paper"}, "method='paper' starts from the paper's anchors"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_unusable_starts_are_told(given, message):
    with pytest.raises(InvalidParameterError, match=message):
        dca.GaussianMixture(3, **given).fit(X)


def test_starts_of_a_mixture_are_cloned_and_not_saved(tmp_path):
    model = dca.GaussianMixture(3, means_init=START, precisions_init=INVERSES["full"]).fit(X)
    np.testing.assert_array_equal(clone(model).means_init, START)
    assert fitted_bytes(clone(model).fit(X)) == fitted_bytes(model)
    model.save(tmp_path / "model.zarr")
    assert dca.load_model(tmp_path / "model.zarr").means_init is None


def walk():
    return dca.KalmanFilter.from_parameters(np.eye(2), np.eye(3, 2), np.eye(2), np.eye(3))


NOISES = ["transition_covariance", "observation_covariance"]


def test_em_goes_on_as_pykalman_does():
    pykalman = pytest.importorskip("pykalman")
    own, other = walk().set_params(tol=0), pykalman.KalmanFilter(np.eye(2), np.eye(3, 2), em_vars=NOISES)
    given = own.get_params()
    for n_iter in (3, 2):
        assert own.em(X, n_iter=n_iter, em_vars=NOISES) is own
        other.em(X, n_iter=n_iter)
        for name in NOISES:
            np.testing.assert_allclose(getattr(own, f"{name}_"), getattr(other, name), rtol=1e-3, atol=1e-3)
        assert own.n_iter_ == n_iter
    np.testing.assert_array_equal(own.transition_matrices_, np.eye(2))
    assert own.get_params() == given


def test_em_is_a_fit_from_the_filter_itself():
    start = dca.KalmanFilter(2, max_iter=1).fit(X)
    model = dca.KalmanFilter(2, max_iter=1).fit(X).em(X, n_iter=3, lengths=[100, 200])
    same = dca.KalmanFilter(2, init=start, max_iter=3).fit(X, lengths=[100, 200])
    assert fitted_bytes(model) == fitted_bytes(same)
    assert fitted_bytes(dca.KalmanFilter(2).em(X, n_iter=1)) == fitted_bytes(start)  # no parameters yet
    before = fitted_bytes(model)
    for given, message in (({"n_iter": -1}, "n_iter must be"), ({"em_vars": ["nothing"]}, "params names 'nothing'")):
        with pytest.raises(InvalidParameterError, match=message):
            model.em(X, **given)
    assert fitted_bytes(model) == before
    assert model.max_iter == 1


@pytest.mark.parametrize(("seed", "bursts"), [(0, False), (1, True)])
def test_the_bound_of_topics_is_the_perplexity_of_what_was_fitted(seed, bursts):
    rng = np.random.default_rng(seed)
    topics = rng.dirichlet(np.full(60, 0.05), 3)
    shares = rng.dirichlet(np.full(3, 0.3), 400) @ topics
    shares = np.array([rng.dirichlet(60 * share + 1e-9) for share in shares]) if bursts else shares
    counts = np.array([rng.multinomial(60, share) for share in shares])
    model = dca.LatentDirichletAllocation(3).fit(counts)
    likelihoods = (counts * np.log(model.transform(counts) @ model.components_ + 1e-300)).sum()
    assert model.bound_ == pytest.approx(np.exp(-likelihoods / counts.sum()), rel=0.05)
    other = LatentDirichletAllocation(3, random_state=seed, max_iter=30).fit(counts)
    assert model.bound_ < 1.02 * other.bound_  # which bounds it
    with pytest.raises(AttributeError, match="bound_ comes from EM steps"):
        _ = dca.LatentDirichletAllocation(3, method="paper").fit(counts).bound_


@pytest.mark.parametrize("chunked", [False, True])
def test_words_of_each_topic_are_what_scikit_learns_mixtures_are_of(chunked):
    rng = np.random.default_rng(0)
    topics = np.kron(np.eye(3), np.full(10, 0.1))
    counts = np.array([rng.multinomial(60, mixture @ topics) for mixture in rng.dirichlet(np.full(3, 0.3), 200)])
    counts[7] = 0
    model = dca.LatentDirichletAllocation(3, doc_topic_prior=0.5).fit(counts)
    unknown = np.hstack([counts, np.zeros((200, 1))])  # a word that the fit did not meet
    wide = dca.LatentDirichletAllocation(3, doc_topic_prior=0.5).fit(unknown)
    unknown[:, -1] = 9
    data = da.from_array(counts, chunks=(70, 13)) if chunked else counts
    found = np.asarray(model.transform(data, normalize=False))
    np.testing.assert_allclose(found.sum(axis=1), counts.sum(axis=1) + 1.5)
    np.testing.assert_allclose(found / found.sum(axis=1, keepdims=True), model.transform(counts), rtol=1e-6)
    np.testing.assert_allclose(wide.transform(unknown, normalize=False), found, rtol=1e-4, atol=1e-4)
    other = LatentDirichletAllocation(3, doc_topic_prior=0.5, random_state=0, max_iter=30).fit(counts)
    theirs = other.transform(counts, normalize=False)
    order = [int(np.argmax([np.corrcoef(found[:, j], theirs[:, i])[0, 1] for i in range(3)])) for j in range(3)]
    assert np.abs(found - theirs[:, order]).max() < 2.0


@pytest.mark.parametrize("name", ["GaussianHMM", "CategoricalHMM"])
def test_a_monitor_has_the_likelihood_of_all_frames(name):
    data = example(name)
    model = ENTRIES[name].make(max_iter=3, tol=0).fit(data)
    assert model.monitor_.history[-1] == pytest.approx(model.score(data), rel=1e-4)
    assert len(model.monitor_.history) == model.monitor_.iter + 1
    start = ENTRIES[name].make(init=model, max_iter=1).fit(data)
    assert start.monitor_.history[0] == pytest.approx(model.score(data), rel=1e-4)


def test_a_mixture_says_what_auto_did():
    from dask_dca.models.describe import describe

    model = dca.GaussianMixture().fit(X)
    least, most = model.bic_curve_[:, 0].min(), model.bic_curve_[:, 0].max()
    assert f"Of {least:.0f} to {most:.0f} components, which n_components='auto' tried, 3 have the" in describe(model)
    assert "auto" not in describe(dca.GaussianMixture(3).fit(X))


def test_a_model_is_shown_whatever_its_parameters_are():
    """scikit-learn asks for every attribute, and one was a property that refused `warm_start`."""
    for make in (dca.GaussianMixture, dca.GaussianHMM, dca.KalmanFilter, dca.CategoricalHMM):
        model = make(2, warm_start=7)
        assert "fit" in dir(model)
        assert "warm_start" in model._repr_html_()
