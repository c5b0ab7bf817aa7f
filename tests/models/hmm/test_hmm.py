"""GaussianHMM: hmmlearn's numbers and manners, bad input, what users of other libraries met."""

import warnings

import dask
import dask.array as da
import numpy as np
import pandas as pd
import pytest
import zarr
from hmmlearn import hmm as hmmlearn
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

import dask_dca as dca
from dask_dca.errors import FewerAnchorsWarning, InvalidInputError, InvalidParameterError, NotFiniteError
from tests.conftest import raise_if_dask_computes

KINDS = ("diag", "full", "tied", "spherical")
LENGTHS = [150, 1, 199, 250]


def drawn(n=600, p=3, k=3, apart=5.0, seed=0):
    """Frames of a sticky chain, their states, and the means."""
    rng = np.random.default_rng(seed)
    means = apart * rng.standard_normal((k, p))
    states = np.empty(n, dtype=int)
    states[0] = 0
    for t in range(1, n):
        states[t] = states[t - 1] if rng.random() < 0.85 else rng.integers(k)
    return means[states] + rng.standard_normal((n, p)), states, means


X, STATES, MEANS = drawn()


def made(kind, model=dca.GaussianHMM, k=3, p=3, seed=0):
    """A model whose parameters are set by hand, as in hmmlearn's tutorial."""
    rng = np.random.default_rng(seed)
    found = model(k, kind)
    found.startprob_ = rng.dirichlet(np.ones(k))
    found.transmat_ = rng.dirichlet(np.ones(k), k)
    found.means_ = rng.standard_normal((k, p))
    square = rng.standard_normal((k, p, p)) / 4
    covariances = square @ square.swapaxes(1, 2) + np.eye(p)
    found.covars_ = {
        "full": covariances,
        "tied": covariances[0],
        "diag": covariances.diagonal(axis1=1, axis2=2),
        "spherical": covariances[:, 0, 0],
    }[kind]
    return found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lengths", [None, LENGTHS], ids=["one", "several"])
def test_the_same_parameters_give_hmmlearns_numbers(kind, lengths):
    ours, theirs = made(kind), made(kind, hmmlearn.GaussianHMM)
    theirs.n_features = 3  # its criteria ask for it
    np.testing.assert_array_equal(ours.covars_, theirs.covars_)
    assert ours.score(X, lengths=lengths) == pytest.approx(theirs.score(X, lengths=lengths), abs=1e-8 * len(X))
    np.testing.assert_allclose(ours.predict_proba(X, lengths), theirs.predict_proba(X, lengths), atol=1e-8)
    for algorithm in ("viterbi", "map"):
        score, states = ours.decode(X, lengths, algorithm)
        expected, path = theirs.decode(X, lengths, algorithm)
        assert score == pytest.approx(expected, abs=1e-8 * len(X))
        np.testing.assert_array_equal(states, path)
    np.testing.assert_array_equal(ours.predict(X, lengths), theirs.predict(X, lengths))
    np.testing.assert_allclose(ours.get_stationary_distribution(), theirs.get_stationary_distribution(), atol=1e-8)
    assert ours.aic(X, lengths) == pytest.approx(theirs.aic(X, lengths))
    assert ours.bic(X, lengths) == pytest.approx(theirs.bic(X, lengths))
    likelihood, posteriors = ours.score_samples(X, lengths)
    assert likelihood == ours.score(X, lengths=lengths)
    np.testing.assert_array_equal(posteriors, ours.predict_proba(X, lengths))


def script(GaussianHMM):
    """A user's script, from hmmlearn's documentation."""
    model = GaussianHMM(n_components=3, covariance_type="full", n_iter=100, tol=1e-2, random_state=42, verbose=False)
    model.fit(X, lengths=LENGTHS)
    Z = model.predict(X, LENGTHS)
    drawn_X, drawn_Z = model.sample(10, random_state=1)
    assert model.monitor_.converged
    assert (drawn_X.shape, drawn_Z.shape, model.n_features) == ((10, 3), (10,), 3)
    return model.score(X, lengths=LENGTHS), Z, model.covars_.shape, model.monitor_.iter


def test_a_script_written_for_hmmlearn_runs():
    ours, theirs = script(dca.GaussianHMM), script(hmmlearn.GaussianHMM)
    assert ours[0] >= theirs[0] - 1.0
    assert ours[2] == theirs[2]


@pytest.mark.parametrize("kind", KINDS)
def test_planted_states_are_found(kind):
    model = dca.GaussianHMM(3, kind).fit(X)
    found = model.predict(X)
    truth = np.array([STATES[model.anchor_indices_[j]] for j in range(3)])  # typical frames name the states
    assert sorted(truth) == [0, 1, 2]
    assert (truth[found] == STATES).mean() > 0.98
    np.testing.assert_allclose(model.means_[np.argsort(truth)], MEANS, atol=0.4)
    assert model.state_counts_.sum() == pytest.approx(600, abs=1e-3)
    assert model.converged_ or model.n_iter_ == 5
    np.testing.assert_allclose(model.transmat_.sum(axis=1), 1.0)


@pytest.mark.parametrize("recursion", ["segments", "scan", "auto"])
def test_both_ways_to_cut_a_recursion_agree(recursion):
    model = dca.GaussianHMM(3).fit(X)
    exact = model.predict_proba(X, LENGTHS)
    assert model.burn_in_ in (16, 32, 64, 128)
    model.set_params(recursion=recursion)
    np.testing.assert_allclose(model.predict_proba(X, LENGTHS), exact, atol=1e-8)
    assert model.score(X, lengths=LENGTHS) == pytest.approx(made_scores(model), abs=1e-8 * len(X))


def made_scores(model):
    other = hmmlearn.GaussianHMM(3)
    other.startprob_, other.transmat_, other.means_ = model.startprob_, model.transmat_, model.means_
    other.covars_ = model.covariances_
    return other.score(X, lengths=LENGTHS)


def test_chains_that_never_forget_are_scanned():
    model = made("diag")
    model.transmat_ = np.eye(3)
    theirs = made("diag", hmmlearn.GaussianHMM)
    theirs.transmat_ = np.eye(3)
    assert model.score(X) == pytest.approx(theirs.score(X), abs=1e-8 * len(X))
    np.testing.assert_allclose(model.predict_proba(X), theirs.predict_proba(X), atol=1e-8)
    model.recursion = "segments"
    with pytest.raises(InvalidParameterError, match="recursion='scan'"):
        model.score(X)


def test_chunked_frames_give_lazy_results():
    model = dca.GaussianHMM(3).fit(X)
    chunked = da.from_array(X, chunks=((100, 0, 1, 399, 100), 2))
    with raise_if_dask_computes():
        posteriors, states = model.predict_proba(chunked, LENGTHS), model.predict(chunked, LENGTHS)
    assert (posteriors.chunks[0], states.chunks[0]) == ((100, 0, 1, 399, 100),) * 2
    assert states.dtype == np.int64
    with dask.config.set(scheduler="synchronous"):
        np.testing.assert_array_equal(posteriors.compute(), model.predict_proba(X, LENGTHS))
        np.testing.assert_array_equal(states.compute(), model.predict(X, LENGTHS))
        score, path = model.decode(chunked, LENGTHS)
        assert score == model.decode(X, LENGTHS)[0]
        np.testing.assert_array_equal(path.compute(), model.predict(X, LENGTHS))
        assert model.score(chunked, lengths=LENGTHS) == model.score(X, lengths=LENGTHS)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int16])
def test_results_keep_the_floating_dtype(dtype):
    """Float32 data, a Cholesky factor that fails (hmmlearn #2)."""
    frames = (10 * X).astype(dtype)
    model = dca.GaussianHMM(3, "full").fit(frames)
    assert model.predict_proba(frames).dtype == (np.float32 if dtype == np.float32 else np.float64)
    assert model.means_.dtype == np.float64


def test_containers(tmp_path):
    whole = dca.GaussianHMM(3).fit(X)
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    named = dca.GaussianHMM(3).fit(frame)
    assert named.feature_names_in_.tolist() == ["a", "b", "c"]
    zarr.create_array(tmp_path / "x.zarr", data=X, chunks=(50, 3))
    stored = dca.GaussianHMM(3).fit(str(tmp_path / "x.zarr"))
    for other in (named, stored):
        np.testing.assert_array_equal(other.means_, whole.means_)


def test_models_are_saved_and_described(tmp_path):
    model = dca.GaussianHMM(3, "full").fit(X)
    model.save(str(tmp_path / "model.zarr"))
    again = dca.load_model(str(tmp_path / "model.zarr"))
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    assert again.score(X) == model.score(X)
    assert again.get_params() == model.get_params()
    lines = model._describe()
    assert lines[0].startswith("GaussianHMM: 3 states of 3 features")
    assert len(model._facts()["anchors"]) == 3


def test_it_is_an_estimator_among_others():
    clone(dca.GaussianHMM(3, "tied", max_iter=2))
    states = make_pipeline(StandardScaler(), dca.GaussianHMM(3)).fit(X).predict(X)
    assert len(np.unique(states)) == 3


EXPECTED_TO_FAIL = {
    "check_estimator_sparse_array": "takes whatever has predict_proba for a classifier",
    "check_estimator_sparse_matrix": "takes whatever has predict_proba for a classifier",
    "check_methods_subset_invariance": "a frame's state depends on the frames before and after it",
    "check_methods_sample_order_invariance": "a frame's state depends on the frames before and after it",
}


@pytest.mark.filterwarnings("ignore::dask_dca.errors.FewerAnchorsWarning")
@pytest.mark.filterwarnings("ignore::dask_dca.errors.FloorWarning")  # of rows most of whose entries are zero
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
def test_scikit_learns_own_checks_pass():
    results = check_estimator(dca.GaussianHMM(2, max_iter=2), expected_failed_checks=EXPECTED_TO_FAIL, on_fail=None)
    failed = {r["check_name"]: repr(r["exception"]) for r in results if r["status"] == "failed"}
    assert not failed
    assert sum(r["status"] == "passed" for r in results) > 30


# what users of other libraries met


@pytest.mark.filterwarnings("ignore::dask_dca.errors.FewerAnchorsWarning")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "frames",
    [
        np.ones((100, 3)),
        np.zeros((100, 3)),
        np.repeat([[0.0, 0.0], [1.0, 1.0]], 50, axis=0),
        np.concatenate([np.zeros((300, 2)), np.random.default_rng(0).standard_normal((30, 2)), np.zeros((300, 2))]),
        np.column_stack([X[:200, :2], np.full(200, 7.0)]),
        X[:200] + 1e9,
        X[:200] * 1e-80,
        X[:4],
    ],
    ids=["constant", "zeros", "two values", "long runs of zeros", "a constant feature", "far away", "small", "few"],
)
def test_awkward_frames_leave_no_nan_and_no_row_of_zeros(frames, kind):
    """NaN parameters, rows of the transition matrix that become zero, covariances not definite (hmmlearn #137)."""
    model = dca.GaussianHMM(4, kind, n_iter=30).fit(frames)
    for name in ("startprob_", "transmat_", "means_", "covariances_", "log_likelihoods_"):
        assert np.isfinite(getattr(model, name)).all(), name
    np.testing.assert_allclose(model.transmat_.sum(axis=1), 1.0)
    assert (np.linalg.eigvalsh(model.covars_) > 0.0).all()
    assert np.isfinite(model.predict_proba(frames)).all()
    assert np.isfinite(model.score(frames))


def test_more_states_than_distinct_frames_are_reported():
    frames = np.repeat([[0.0, 0.0], [1.0, 1.0]], 50, axis=0)
    with pytest.warns(FewerAnchorsWarning, match="2 distinct values, fewer than n_components=4: .*use 2"):
        dca.GaussianHMM(4, "tied").fit(frames)


def test_many_passes_neither_diverge_nor_claim_what_is_not_so():
    model = dca.GaussianHMM(5, "full", n_iter=300, tol=1e-3).fit(X)
    assert model.converged_
    assert model.n_iter_ < 300
    assert (np.diff(model.log_likelihoods_) > -0.02).all()  # covariances borrow from each other: not quite monotone


def test_infinite_entries_are_named_and_leave_no_half_fitted_model():
    frames = X.copy()
    frames[17, 1] = np.inf
    model = dca.GaussianHMM(3)
    with pytest.raises(NotFiniteError, match="row 17, column 1"):
        model.fit(frames)
    with pytest.raises(NotFittedError):
        model.predict(X)
    fitted = dca.GaussianHMM(3).fit(X)
    with pytest.raises(NotFiniteError, match="row 17, column 1"):
        fitted.score(frames)


def test_masked_entries_are_missing_entries():
    masked = np.ma.masked_array(X, np.arange(X.size).reshape(X.shape) == 17)
    assert (dca.GaussianHMM(3).fit(masked).means_ == dca.GaussianHMM(3).fit(masked.filled(np.nan)).means_).all()


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"covariance_type": "round"}, "unknown covariance_type 'round'"),
        ({"max_iter": -1}, "max_iter"),
        ({"n_iter": 2.5}, "n_iter"),
        ({"min_covar": 0.0}, "min_covar"),
        ({"tol": "small"}, "tol"),
        ({"algorithm": "greedy"}, "unknown algorithm"),
        ({"recursion": "loop"}, "unknown recursion"),
        ({"n_components": 601}, "exceeds the number of rows"),
        ({"method": "paper"}, "pass n_components"),
    ],
)
def test_parameters_that_can_not_be(parameters, words):
    with pytest.raises(InvalidParameterError, match=words):
        dca.GaussianHMM(**parameters).fit(X)


def test_a_former_parameter_is_answered():
    with pytest.raises(TypeError, match="has no keyword 'n_starts'; leave it out: anchored starts are always"):
        dca.GaussianHMM(2, n_starts=4)


def test_lengths_and_features_that_do_not_fit():
    with pytest.raises(InvalidInputError, match="add up to 10 frames, but X has 600"):
        dca.GaussianHMM(3).fit(X, lengths=[10])
    with pytest.raises(ValueError, match="3 features"):
        dca.GaussianHMM(3).fit(X).predict(X[:, :2])
    with pytest.raises(InvalidInputError, match="out of range"):
        dca.GaussianHMM(3).fit(X * 1e200)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("transmat_", np.zeros((3, 3)), "transmat_ must hold probabilities"),
        ("transmat_", np.eye(2), "shape"),
        ("startprob_", np.array([0.5, 0.6, 0.2]), "startprob_ must hold probabilities"),
        ("covars_", np.zeros((3, 3)), "positive definite"),
        ("covars_", np.ones((2, 3)), "must have shape"),
    ],
)
def test_parameters_set_by_hand_are_checked(name, value, words):
    model = made("diag")
    setattr(model, name, value)
    with pytest.raises(InvalidParameterError, match=words):
        model.score(X)


def test_samples_follow_the_model_and_the_seed():
    model = dca.GaussianHMM(3).fit(X)
    first, states = model.sample(4000, random_state=1)
    np.testing.assert_array_equal(first, model.sample(4000, random_state=1)[0])
    shares = np.bincount(states, minlength=3) / 4000
    np.testing.assert_allclose(shares, model.get_stationary_distribution(), atol=0.06)
    assert (model.sample(5, currstate=2)[1][0], len(model.sample()[0])) == (2, 1)
    for wrong in (-1, 3):
        with pytest.raises(InvalidParameterError, match=f"currstate must be .* received {wrong}"):
            model.sample(5, currstate=wrong)
    for j in range(3):
        np.testing.assert_allclose(first[states == j].mean(axis=0), model.means_[j], atol=0.2)


def test_fits_are_deterministic_and_follow_the_seed():
    one, two = dca.GaussianHMM(3).fit(X), dca.GaussianHMM(3).fit(X)
    np.testing.assert_array_equal(one.means_, two.means_)
    dca.GaussianHMM(3, random_state=np.random.default_rng(0)).fit(X)
    dca.GaussianHMM(3, random_state=None).fit(X)


def test_a_fit_in_memory_builds_no_graph():
    with raise_if_dask_computes(), warnings.catch_warnings():
        warnings.simplefilter("error")
        model = dca.GaussianHMM(3, max_iter=0).fit(X)
        model.predict(X)
        model.predict_proba(X)
    assert model.n_iter_ == 0


@pytest.mark.parametrize("ensemble", ["gaussian", "sparse", "unit", "data", "pairs"])
def test_the_papers_model_is_made_of_frames(ensemble):
    """O = X_{A,2}, T on the simplex with O T = X_{A,3}."""
    model = dca.GaussianHMM(3, method="paper", ensemble=ensemble).fit(X, lengths=LENGTHS)
    np.testing.assert_array_equal(model.means_, X[model.anchor_indices_])
    following = X[model.anchor_indices_ + 1]
    residual = following - model.transmat_ @ model.means_
    for j in range(3):  # no other point of the simplex is nearer
        for corner in np.eye(3):
            step = 0.01 * (corner - model.transmat_[j])
            assert (residual[j] ** 2).sum() <= ((residual[j] - step @ model.means_) ** 2).sum() + 1e-9
    ends = np.cumsum(LENGTHS) - 1
    assert not set(model.anchor_indices_) & {0, *ends, *(ends[:-1] + 1)}  # middles of triples
    with pytest.raises(InvalidInputError, match="three successive frames"):
        dca.GaussianHMM(2, method="paper").fit(X[:6], lengths=[2, 2, 2])


@pytest.mark.parametrize("kind", KINDS)
def test_parameters_may_be_lists(kind):
    """hmmlearn takes lists; every method does the same with them as with arrays."""
    arrays, lists = made(kind), made(kind)
    for name in ("startprob_", "transmat_", "means_", "covariances_"):
        setattr(lists, name, getattr(arrays, name).tolist())
    np.testing.assert_array_equal(lists.covars_, arrays.covars_)
    assert lists.n_features == 3
    assert lists.score(X) == arrays.score(X)
    for name in ("startprob_", "transmat_", "means_", "covariances_"):
        setattr(lists, name, getattr(arrays, name).tolist())
    np.testing.assert_array_equal(lists.sample(9)[0], arrays.sample(9)[0])
    assert lists.bic(X) == arrays.bic(X)
    np.testing.assert_array_equal(lists.predict(X), arrays.predict(X))


def test_means_that_are_no_matrix_are_one_error():
    model = made("diag")
    model.means_ = [1.0, 2.0, 3.0]
    for use in (model.score, model.predict, lambda X: model.sample(3), lambda X: model.n_features):
        with pytest.raises(InvalidParameterError, match="means_ must be a matrix"):
            use(X)
