"""KalmanFilter: its API, its agreement with the joint Gaussian and with pykalman, missing entries, and bad input."""

import itertools
import pickle
from dataclasses import replace

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import zarr
from scipy import sparse
from sklearn.base import clone
from sklearn.utils.estimator_checks import check_estimator

import dask_dca as dca
from dask_dca.engine.passes import Run
from dask_dca.engine.rows import as_rows
from dask_dca.engine.sequences import as_edges
from dask_dca.errors import FewerAnchorsWarning, InvalidInputError, InvalidParameterError, NotFiniteError
from dask_dca.geometry.planes import draw_weights
from dask_dca.models.describe import describe, model_facts
from dask_dca.models.kalman import paper as kalman_paper
from dask_dca.models.kalman import pieces
from dask_dca.models.kalman.passes import e_step_pass
from dask_dca.models.kalman.pieces import prepare
from dask_dca.plotting.sequences import plot_eigenvalues, plot_path
from tests.conftest import raise_if_dask_computes
from tests.models.kalman.data import Dense, draw, kalman_bits, make_system, model_of

TRUTH = make_system(3, 6, 1)
X = draw(TRUTH, 700)
MODEL = dca.KalmanFilter(3).fit(X)
METHODS = pytest.mark.parametrize("method", ["robust", "paper"])
ALIKE = "a row is a frame of a sequence: its result depends on the rows before it"

# name of the check -> why it can't pass
EXPECTED_TO_FAIL = {
    "check_estimator_sparse_array": "takes whatever has predict for a predictor of one number per row",
    "check_estimator_sparse_matrix": "takes whatever has predict for a predictor of one number per row",
    "check_methods_sample_order_invariance": ALIKE,
    "check_methods_subset_invariance": ALIKE,
}


@pytest.mark.filterwarnings("ignore::dask_dca.errors.FewerAnchorsWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@pytest.mark.parametrize("model", [dca.KalmanFilter()], ids=str)
def test_scikit_learns_own_checks_pass(model):
    results = check_estimator(model, expected_failed_checks=EXPECTED_TO_FAIL, on_fail=None)
    failed = {r["check_name"]: repr(r["exception"]) for r in results if r["status"] == "failed"}
    assert not failed
    assert {r["check_name"] for r in results if r["status"] == "xfail"} == set(EXPECTED_TO_FAIL)
    assert sum(r["status"] == "passed" for r in results) > 30


def gaps(n=12, seed=0):
    Y = draw(TRUTH, n, seed)
    Y[np.random.default_rng(seed).random(Y.shape) < 0.3] = np.nan
    Y[4:6] = np.nan
    return Y


@pytest.mark.parametrize("missing", [False, True])
def test_states_are_those_of_the_joint_gaussian(missing):
    """Entries of a frame, and whole frames (pykalman #58)."""
    Y = gaps() if missing else draw(TRUTH, 12)
    dense, model = Dense(TRUTH, 12), model_of(TRUTH)
    for found, wanted in zip(model.filter(Y), dense.filtered(Y), strict=True):
        np.testing.assert_allclose(found, wanted, atol=1e-9)
    for found, wanted in zip(model.smooth(Y), dense.states(Y)[:2], strict=True):
        np.testing.assert_allclose(found, wanted, atol=1e-9)
    assert model.loglikelihood(Y) == pytest.approx(dense.log_likelihood(Y), rel=1e-9)


def test_long_sequences_agree_with_pykalman():
    """Whole frames masked, as pykalman takes them (pykalman #94, pykalman #49)."""
    pykalman = pytest.importorskip("pykalman")
    Y = np.ma.masked_array(draw(TRUTH, 250), mask=False)
    Y[100:130] = np.ma.masked
    Y[0] = np.ma.masked
    names = ("transition_matrices", "observation_matrices", "transition_covariance", "observation_covariance")
    rest = ("initial_state_mean", "initial_state_covariance", "observation_offsets")
    peer = pykalman.KalmanFilter(**{name: getattr(MODEL, f"{name}_") for name in names + rest})
    theirs, likelihood = (*peer.filter(Y), *peer.smooth(Y)), peer.loglikelihood(Y)
    for given in (Y, da.from_array(np.ma.filled(Y, np.nan), chunks=(170, 4))):
        for found, wanted in zip((*MODEL.filter(given), *MODEL.smooth(given)), theirs, strict=True):
            np.testing.assert_allclose(np.asarray(found), wanted, atol=1e-7)
        assert MODEL.loglikelihood(given) == pytest.approx(likelihood, rel=1e-9)


@pytest.mark.parametrize("method", ["filter", "smooth"])
def test_sequences_do_not_see_each_other(method):
    lengths = [1, 300, 0, 2, 397]
    edges = np.cumsum([0, *lengths])
    whole = getattr(MODEL, method)(X, lengths)
    for a, b in itertools.pairwise(edges):
        if a < b:
            for found, alone in zip(whole, getattr(MODEL, method)(X[a:b]), strict=True):
                np.testing.assert_allclose(found[a:b], alone, atol=1e-9)
    alone = sum(MODEL.loglikelihood(X[a:b]) for a, b in itertools.pairwise(edges) if a < b)
    assert MODEL.loglikelihood(X, lengths) == pytest.approx(alone, rel=1e-10)


def test_pieces_of_slow_systems_agree_with_one_piece(monkeypatch):
    """Memory of some 400 frames: pieces grow, results do not change."""
    slow = model_of(make_system(2, 2, 3))
    slow.transition_matrices_ = np.diag([0.9995, 0.99])
    slow.transition_covariance_ = 1e-4 * np.eye(2)
    Y = draw(make_system(2, 2, 3), 1200)
    found = [slow.filter(Y), slow.smooth(Y), slow.loglikelihood(Y)]
    monkeypatch.setattr(pieces, "_PIECE_FRAMES", 1200)
    wanted = [slow.filter(Y), slow.smooth(Y), slow.loglikelihood(Y)]
    for some, other in zip(found[:2], wanted[:2], strict=True):
        for one, two in zip(some, other, strict=True):
            np.testing.assert_allclose(one, two, atol=1e-8)
    assert found[2] == pytest.approx(wanted[2], rel=1e-10)


def test_a_system_that_never_forgets_is_run_whole():
    """A constant seen through noise: the filter is the running mean."""
    model = dca.KalmanFilter.from_parameters([[1.0]], [[1.0]], [[0.0]], [1.0], [0.0], [[1e6]])
    Y = np.random.default_rng(0).standard_normal((1500, 1)) + 5.0
    means, covariances = model.filter(Y)
    running = Y.cumsum(axis=0) / np.arange(1, 1501)[:, None]
    np.testing.assert_allclose(means, running, atol=1e-4)
    np.testing.assert_allclose(covariances[:, 0, 0] * np.arange(1, 1501), 1.0, rtol=1e-4)
    smoothed = model.smooth(Y)[0]
    np.testing.assert_allclose(smoothed, np.full_like(smoothed, Y.mean()), atol=1e-4)
    np.testing.assert_allclose(np.asarray(model.filter(da.from_array(Y, chunks=(400, 1)))[0]), means, atol=1e-8)
    with pytest.raises(InvalidInputError, match="remembers more than 4096 frames"):
        model.filter(da.zeros((10**6, 1), chunks=(10**5, 1)))


def test_without_noise_the_frames_are_met():
    exact = model_of(TRUTH)
    exact.observation_covariance_ = np.zeros((6, 6))
    states, Y = exact.sample(300)
    means, covariances = exact.filter(Y)
    np.testing.assert_allclose(means, states, atol=1e-4)
    assert np.isfinite(covariances).all()
    assert np.isfinite(exact.loglikelihood(Y))
    assert np.isfinite(exact.smooth(Y)[0]).all()


def test_predictions_and_forecasts():
    Y = draw(TRUTH, 400, 7)
    ahead = MODEL.predict(Y, 3)
    means = MODEL.filter(Y)[0]
    power = np.linalg.matrix_power(MODEL.transition_matrices_, 3)
    np.testing.assert_allclose(ahead, MODEL.observation_offsets_ + means @ (MODEL.observation_matrices_ @ power).T)
    found, variances = MODEL.forecast(Y, 3)
    np.testing.assert_allclose(found[2], ahead[-1])
    assert (np.diff(variances, axis=0) > 0).all()
    lazy = MODEL.forecast(da.from_array(Y, chunks=(60, 2)), 3)
    np.testing.assert_allclose(lazy[0], found, atol=1e-10)
    np.testing.assert_allclose(lazy[1], variances, atol=1e-10)


def test_chunked_input_is_lazy_and_agrees(tmp_path):
    stored = zarr.create_array(tmp_path / "x.zarr", data=X.astype(np.float32), chunks=(128, 6))
    wanted = [*MODEL.filter(X), *MODEL.smooth(X), MODEL.predict(X, 2)]
    for given in (da.from_array(X.astype(np.float32), chunks=((100, 0, 1, 599), (2, 4))), stored):
        with raise_if_dask_computes():
            lazy = [*MODEL.filter(given), *MODEL.smooth(given), MODEL.predict(given, 2)]
        for found, want in zip(lazy, wanted, strict=True):
            assert found.shape == want.shape
            assert found.dtype == np.float32
            np.testing.assert_allclose(found.compute(), want, atol=1e-4, rtol=1e-4)


def test_anchors_are_axes_of_the_state_and_denoised_frames():
    states = MODEL.smooth(X)[0]
    np.testing.assert_allclose(states[MODEL.anchor_indices_], np.eye(3), atol=1e-5)
    frames = MODEL.observation_offsets_ + MODEL.observation_matrices_.T
    assert len(set(MODEL.anchor_indices_.tolist())) == 3
    clean = MODEL.observation_offsets_ + states @ MODEL.observation_matrices_.T
    np.testing.assert_allclose(frames, clean[MODEL.anchor_indices_], atol=1e-4)
    noise = np.sqrt(np.diagonal(TRUTH.observation_covariance))
    assert np.abs((X[MODEL.anchor_indices_] - frames) / noise).mean() < 1.5
    assert (MODEL.votes_ > 0).all()
    assert MODEL.log_likelihoods_[-1] * 700 == pytest.approx(MODEL.loglikelihood(X), rel=1e-8)


def test_other_anchors_change_the_axes_and_no_prediction():
    other = dca.KalmanFilter(3, n_subproblems=3, random_state=2).fit(X)
    assert sorted(other.anchor_indices_) != sorted(MODEL.anchor_indices_)
    assert np.abs(other.transition_matrices_ - MODEL.transition_matrices_).max() > 0.01
    np.testing.assert_allclose(other.predict(X, 2), MODEL.predict(X, 2), atol=1e-9)


def test_explained_is_one_step_prediction():
    left = X[1:] - MODEL.predict(X)[:-1]
    wanted = 1 - ((left**2).sum(axis=0) / ((X[1:] - MODEL.observation_offsets_) ** 2).sum(axis=0)).mean()
    assert MODEL.explained_variance_ratio_ == pytest.approx(wanted, abs=0.005)


def test_likelihood_rises_with_diagonal_noise():
    """EM never loses likelihood; with full noise it may, by the shrinkage of correlations."""
    for given in (X, np.where(np.random.default_rng(0).random(X.shape) < 0.2, np.nan, X)):
        model = dca.KalmanFilter(3, covariance_type="diag", max_iter=2).fit(given, lengths=[300, 150, 150, 100])
        steps = np.diff(model.log_likelihoods_)
        assert (steps > -1e-3).all()
        assert steps[0] > 0
        assert model.observation_covariance_.shape == (6,)


@pytest.mark.parametrize("max_iter", [0, 1])
def test_few_passes(max_iter):
    model = dca.KalmanFilter(3, max_iter=max_iter).fit(X)
    assert len(model.log_likelihoods_) == max_iter + 1
    assert model.loglikelihood(X) > 700 * (MODEL.log_likelihoods_[-1] - 0.2)


def test_passes_are_few(computes):
    dca.KalmanFilter(3, covariance_type="diag", max_iter=2, tol=0.0).fit(da.from_array(X, chunks=(100, 6)))
    assert computes.passes == ["fetch", "describe", "start", "refine", "climb", "refine", "climb", "refine", "compare"]


@METHODS
def test_saved_and_pickled_models_predict_the_same_bits(method, tmp_path):
    model = dca.KalmanFilter(3, method=method).fit(X)
    model.save(str(tmp_path / "model.zarr"))
    for other in (dca.load_model(str(tmp_path / "model.zarr")), pickle.loads(pickle.dumps(model))):
        assert kalman_bits(other) == kalman_bits(model)
        assert other.predict(X).tobytes() == model.predict(X).tobytes()
    assert len(pickle.dumps(model)) < 10_000


@METHODS
def test_words(method):
    model = dca.KalmanFilter(3, method=method).fit(X)
    facts = model_facts(model)
    assert facts["n_dim_state"] == 3
    assert len(facts["eigenvalues"]) == 3
    assert [anchor["row"] for anchor in facts["anchors"]] == model.anchor_indices_.tolist()
    assert "3 state dimensions" in str(describe(model))
    assert model_of(TRUTH)._describe()


def test_known_parameters():
    model = model_of(TRUTH)
    states, frames = model.sample(50, random_state=3)
    assert states.shape == (50, 3)
    assert frames.shape == (50, 6)
    np.testing.assert_array_equal(model.sample(50, random_state=3)[1], frames)
    assert model.sample(2, initial_state=[1, 2, 3])[0][0].tolist() == [1.0, 2.0, 3.0]
    assert clone(model).get_params()["n_dim_state"] == 3
    plain = dca.KalmanFilter.from_parameters([[0.9]], [[1.0], [2.0]], [[1.0]], np.eye(2))
    assert plain.filter(np.ones((3, 2)))[0].shape == (3, 1)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"transition_matrices": np.eye(2)}, "has shape"),
        ({"transition_covariance": -np.eye(3)}, "no covariance"),
        ({"observation_covariance": np.triu(np.ones((6, 6)))}, "no covariance"),
        ({"observation_covariance": np.ones(5)}, r"has shape \(5,\).* need \(6, 6\) or \(6,\)"),
        ({"initial_state_mean": [np.nan, 0, 0]}, "NaN or infinity"),
    ],
)
def test_parameters_that_do_not_fit(change, match):
    names = ("transition_matrices", "observation_matrices", "transition_covariance", "observation_covariance")
    given = {name: getattr(MODEL, f"{name}_") for name in names} | change
    with pytest.raises(InvalidParameterError, match=match):
        dca.KalmanFilter.from_parameters(**given)


def test_masked_arrays_and_frames_that_lack_entries():
    """Reported as pykalman #58 and pykalman #94."""
    lacking = np.random.default_rng(0).random(X.shape) < 0.1
    lacking[200:220] = True
    holes = np.where(lacking, np.nan, X)
    model = dca.KalmanFilter(3, max_iter=1).fit(holes)
    masked = np.ma.masked_array(X, mask=lacking)
    assert kalman_bits(dca.KalmanFilter(3, max_iter=1).fit(masked)) == kalman_bits(model)
    np.testing.assert_array_equal(model.filter(masked)[0], model.filter(holes)[0])
    states, covariances = model.smooth(holes)
    guess = model.observation_offsets_ + states @ model.observation_matrices_.T
    error = np.sqrt(((guess - X)[lacking] ** 2).mean())
    assert error < 0.9 * np.sqrt(((X - X.mean(axis=0))[lacking] ** 2).mean())
    inside = (
        np.abs(guess - X)[lacking]
        < 3
        * np.sqrt(
            np.broadcast_to(model.observation_covariance_, X.shape)
            + np.einsum("tij,pi,pj->tp", covariances, model.observation_matrices_, model.observation_matrices_)
        )[lacking]
    )
    assert inside.mean() > 0.97


def test_a_gap_that_no_sample_shows_is_found(monkeypatch):
    from dask_dca.models.kalman import fit as kalman_fit

    monkeypatch.setattr(kalman_fit, "_MAX_SAMPLE_FRAMES", 200)
    monkeypatch.setattr(kalman_fit, "_N_STRETCHES", 2)
    Y = draw(TRUTH, 500)
    sample = kalman_fit.spread_rows(500, 2, 100)
    hidden = np.setdiff1d(np.arange(500), sample)[7]
    Y[hidden, 2] = np.nan
    model = dca.KalmanFilter(3, max_iter=1).fit(Y)
    assert model.observation_covariance_.ndim == 1
    assert kalman_bits(dca.KalmanFilter(3, max_iter=1).fit(da.from_array(Y, chunks=(77, 3)))) == kalman_bits(model)


def test_constant_channels_and_many_passes_stay_finite():
    """73 channels, 1,000 frames, 150 passes, some channels constant (probml/dynamax #355, probml/dynamax #316)."""
    system = make_system(5, 73, 2)
    Y = draw(system, 1000)
    Y[:, [0, 40]] = [3.0, 0.0]
    model = dca.KalmanFilter(5, max_iter=150).fit(Y)
    for name in kalman_bits(model):
        assert np.isfinite(getattr(model, name)).all(), name
    assert np.isfinite(model.smooth(Y)[1]).all()
    np.testing.assert_allclose(model.predict(Y)[:, [0, 40]], [[3.0, 0.0]] * 1000, atol=1e-3)
    assert np.abs(np.linalg.eigvals(model.transition_matrices_)).max() <= 1 + 1e-9


def test_without_dynamics_nothing_is_predicted():
    """Reported as lindermanlab/ssm #73."""
    Y = np.random.default_rng(0).standard_t(5, (2000, 6))
    model = dca.KalmanFilter(2).fit(Y)
    assert abs(model.explained_variance_ratio_) < 0.03
    left = ((Y[1:] - model.predict(Y)[:-1]) ** 2).mean()
    assert left < 1.01 * ((Y - Y.mean(axis=0)) ** 2).mean()


@pytest.mark.filterwarnings("ignore::dask_dca.errors.FewerAnchorsWarning")
@pytest.mark.parametrize("value", [0.0, 5.0, 1e-12])
def test_constant_data(value):
    """Reported as scikit-learn #10059 and probml/dynamax #355."""
    model = dca.KalmanFilter(2).fit(np.full((50, 3), value))
    assert all(np.isfinite(getattr(model, name)).all() for name in kalman_bits(model))
    np.testing.assert_allclose(model.predict(np.full((5, 3), value)), value, atol=1e-3 * max(value, 1e-3))


def test_fewer_dimensions_than_states():
    with pytest.warns(FewerAnchorsWarning, match="span . of n_dim_state=. dimensions"):
        dca.KalmanFilter(3).fit(np.full((50, 4), 2.0))


def test_fewer_frames_than_tell_the_states_apart():
    with pytest.warns(FewerAnchorsWarning, match="determine only 3 of n_dim_state=15 dimensions"):
        model = dca.KalmanFilter(15).fit(np.random.default_rng(0).standard_normal((20, 1)))
    assert model.n_dim_state_ == 3


def test_a_channel_without_an_entry_is_named(monkeypatch):
    from dask_dca.models.kalman import fit as kalman_fit

    Y = X.copy()
    Y[:, 4] = np.nan
    named = pd.DataFrame(Y, columns=list("abcdef"))
    for some, match in (
        (Y, "column 4 of X"),
        (da.from_array(Y, chunks=(90, 4)), "column 4 of X"),
        (named, r"4 \('e'\) of X"),
    ):
        with pytest.raises(InvalidInputError, match=f"{match} is missing in all 700 frames"):
            dca.KalmanFilter(2).fit(some)
    monkeypatch.setattr(kalman_fit, "_MAX_SAMPLE_FRAMES", 200)
    monkeypatch.setattr(kalman_fit, "_N_STRETCHES", 2)
    with pytest.raises(InvalidInputError, match="column 4 of X"):
        dca.KalmanFilter(2).fit(Y)
    Y[np.setdiff1d(np.arange(700), kalman_fit.spread_rows(700, 2, 100)), 4] = X[0, 4]
    assert dca.KalmanFilter(2, max_iter=1).fit(Y).n_features_in_ == 6  # entries outside the sample alone
    Y[:, 4] = X[:, 4]
    Y[350, 4] = np.nan
    with pytest.raises(InvalidParameterError, match="'full' needs frames that are complete or"):
        dca.KalmanFilter(2, covariance_type="full").fit(Y)
    Y[350] = np.nan
    assert dca.KalmanFilter(2, covariance_type="full", max_iter=0).fit(Y).observation_covariance_.shape == (6, 6)


def test_a_noiseless_turn_is_learnt():
    angle = 0.2 * np.arange(400)
    turn = np.stack([np.cos(angle), np.sin(angle), np.cos(angle + 1.0)], axis=1)
    model = dca.KalmanFilter(2).fit(turn)
    values = np.linalg.eigvals(model.transition_matrices_)
    np.testing.assert_allclose(np.abs(values), 1.0, atol=1e-3)
    np.testing.assert_allclose(np.abs(np.angle(values)), 0.2, atol=1e-3)
    np.testing.assert_allclose(model.forecast(turn, 5)[0][:, 0], np.cos(0.2 * np.arange(400, 405)), atol=0.02)


@pytest.mark.parametrize("scale", [1e-12, 1e150, np.array([1e-9, 1.0, 1e9, 1e3, 1e-3, 1e60])])
def test_units_do_not_matter(scale):
    """Powers of two exactly, others to rounding (ziatdinovmax/SciLink #381 via PR #387)."""
    exact = 2.0 ** np.rint(np.log2(scale))
    model = dca.KalmanFilter(3).fit(X * exact)
    assert model.transition_matrices_.tobytes() == MODEL.transition_matrices_.tobytes()
    np.testing.assert_allclose(model.predict(X * exact) / exact, MODEL.predict(X), rtol=1e-9)
    assert (dca.KalmanFilter(3).fit(X * scale).anchor_indices_ == MODEL.anchor_indices_).all()


def test_more_states_than_channels_and_one_channel():
    angle = np.arange(1500)
    rng = np.random.default_rng(0)
    sound = (np.sin(0.3 * angle) + np.sin(1.1 * angle + 1.0) + 0.1 * rng.standard_normal(1500))[:, None]
    model = dca.KalmanFilter(4).fit(sound)
    found = np.sort(np.abs(np.angle(np.linalg.eigvals(model.transition_matrices_))))
    np.testing.assert_allclose(found, [0.3, 0.3, 1.1, 1.1], atol=0.01)
    assert model.explained_variance_ratio_ > 0.97


def test_many_short_sequences():
    system = make_system(2, 8, 6)
    Y = np.concatenate([draw(system, 12, seed) for seed in range(300)])
    model = dca.KalmanFilter(2).fit(Y, lengths=[12] * 300)
    wanted = np.sort_complex(np.linalg.eigvals(system.transition))
    np.testing.assert_allclose(np.sort_complex(np.linalg.eigvals(model.transition_matrices_)), wanted, atol=0.08)


def test_sequences_shorter_than_a_start_is_deep():
    """Of eight frames each, few have a window of six; there are many, and a shallow start ends at another optimum."""
    system = make_system(3, 4, seed=1)
    sequences = [draw(system, 8, seed) for seed in range(300)]
    fresh = draw(system, 4000, 999)
    model = dca.KalmanFilter(3).fit(np.vstack(sequences), lengths=[8] * 300)
    assert model.loglikelihood(fresh, lengths=[4000]) > model_of(system).loglikelihood(fresh) - 0.02 * len(fresh)


def test_the_number_of_states_is_chosen():
    for k in (2, 4):
        system = make_system(k, 12, k)
        assert dca.KalmanFilter().fit(draw(system, 5000)).n_dim_state_ == k


@METHODS
def test_infinity_is_named(method):
    Y = X.copy()
    Y[17, 2] = np.inf
    for given in (Y, da.from_array(Y, chunks=(50, 3))):
        with pytest.raises(NotFiniteError, match=r"infinity.* row 17, column 2"):
            dca.KalmanFilter(2, method=method).fit(given)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"n_dim_state": 0}, "n_dim_state must be"),
        ({"n_dim_state": 701}, "n_dim_state=701 exceeds"),
        ({"covariance_type": "tied"}, "unknown covariance_type 'tied'"),
        ({"max_iter": -1}, "max_iter must be"),
        ({"method": "em"}, "unknown method"),
        ({"method": "paper", "n_dim_state": "auto"}, "no rule for the number of states"),
    ],
)
def test_unusable_parameters(options, match):
    model = dca.KalmanFilter(**options)
    with pytest.raises(InvalidParameterError, match=match):
        model.fit(X)
    assert not hasattr(model, "transition_matrices_")


def test_unusable_data():
    with pytest.raises(InvalidInputError, match="lengths add up to 3"):
        dca.KalmanFilter(2).fit(X, lengths=[1, 2])
    with pytest.raises(InvalidInputError, match="no sequence has two"):
        dca.KalmanFilter(2).fit(X[:5], lengths=[1] * 5)
    with pytest.raises(ValueError, match="features"):
        MODEL.filter(X[:, :3])
    with pytest.raises(InvalidInputError, match="triples"):
        dca.KalmanFilter(2, method="paper").fit(X[:4], lengths=[2, 2])
    with pytest.raises(NotFiniteError, match="NaN"):
        dca.KalmanFilter(2, method="paper").fit(np.where(X > 3, np.nan, X))
    with pytest.raises(InvalidParameterError, match="n_steps must be"):
        MODEL.predict(X, 0)


def test_other_forms_of_input():
    wanted = MODEL.transition_matrices_
    frame = pd.DataFrame(X, columns=list("abcdef"))
    model = dca.KalmanFilter(3).fit(frame)
    assert model.feature_names_in_.tolist() == list("abcdef")
    np.testing.assert_array_equal(model.transition_matrices_, wanted)
    np.testing.assert_array_equal(dca.KalmanFilter(3).fit(sparse.csr_array(X)).transition_matrices_, wanted)
    assert dca.KalmanFilter(2).fit(np.rint(10 * X).astype(np.int64)).n_dim_state_ == 2
    np.testing.assert_array_equal(MODEL.filter(X.tolist())[0], MODEL.filter(X)[0])


def test_wide_frames_have_diagonal_noise():
    system = make_system(3, 1100, 1)
    model = dca.KalmanFilter(3, max_iter=2).fit(draw(system, 300))
    assert model.observation_covariance_.shape == (1100,)
    assert model.explained_variance_ratio_ > 0.2


def test_pictures():
    ax = plot_path(MODEL, X, channel=2)
    path = ax.lines[1].get_ydata()
    wanted = MODEL.observation_offsets_[2] + MODEL.smooth(X)[0] @ MODEL.observation_matrices_[2]
    np.testing.assert_allclose(path, wanted)
    band = ax.collections[0].get_paths()[0].vertices
    assert band[:, 1].max() > path.max()
    np.testing.assert_array_equal(np.sort(ax.lines[2].get_xdata()), np.sort(MODEL.anchor_indices_))
    assert plot_path(model_of(TRUTH), X, smooth=False).get_legend_handles_labels()[1][2] == "filtered"
    dots = plot_eigenvalues(MODEL).lines[-1]
    values = np.linalg.eigvals(MODEL.transition_matrices_)
    np.testing.assert_allclose(np.sort(dots.get_xdata()), np.sort(values.real))


def test_the_papers_swap_is_put_right(monkeypatch):
    """With T of rank one, rows of M are parallel to O T's column, rows of its transpose to that of O D T^T."""
    turn = np.array([[0.9, 0.0], [0.0, 0.0]])
    kicks = np.array([[1.0, 0.8], [0.8, 1.0]])
    observation = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    truth = dca.KalmanFilter.from_parameters(turn, observation, kicks, 0.01 * np.eye(3))
    Y = truth.sample(20_000)[1]
    seen = []
    original = kalman_paper.paper_anchors

    def recorded(rows, *args, **options):
        seen.append(rows.source[:3])  # the second moment; those of third order vanish
        return original(rows, *args, **options)

    monkeypatch.setattr(kalman_paper, "paper_anchors", recorded)
    model = dca.KalmanFilter(2, method="paper").fit(Y)
    following, present = (np.linalg.svd(moments)[2][0] for moments in seen)
    spread = np.linalg.inv(np.eye(4) - np.kron(turn, turn)) @ kicks.ravel()
    moved, stayed = observation @ turn[:, 0], observation @ spread.reshape(2, 2) @ turn[0]
    assert abs(following @ moved) / np.linalg.norm(moved) > 0.999
    assert abs(present @ stayed) / np.linalg.norm(stayed) > 0.999
    assert abs(present @ moved) / np.linalg.norm(moved) < 0.995
    np.testing.assert_array_equal(model.observation_matrices_.T, Y[model.anchor_indices_])
    assert np.isfinite(model.loglikelihood(Y))


@pytest.mark.parametrize("k", [1, 2, 4])
@pytest.mark.parametrize("growth", [0.9, 1.3])
def test_the_papers_transition_has_the_order_and_lengths_of_its_columns(k, growth):
    """From exact moments, and anchors of O T in another order and of other lengths; no eigenvalue is clipped."""
    rng = np.random.default_rng(k)
    O, root = rng.standard_normal((6, k)), rng.standard_normal((k, k + 1))
    D, T = root @ root.T, rng.standard_normal((k, k))
    T *= growth / np.abs(np.linalg.eigvals(T)).max()
    rays = (O @ T)[:, rng.permutation(k)] * np.exp(rng.standard_normal(k))
    same, following, second = O @ D @ O.T, O @ D @ T.T @ O.T, O @ D @ T.T @ T.T @ O.T
    sums = kalman_paper._Moments(100.0 * same, 98.0 * following, 98.0 * second, following)
    system = kalman_paper._system(O, rays, sums, (100, 98))
    np.testing.assert_allclose(system.transition, T, atol=1e-6)
    np.testing.assert_array_equal(system.observation, O)


def test_the_papers_third_moments_are_weighted_by_vectors_of_the_unit_sphere():
    lengths = [5, 9, 2, 20]
    Y = np.random.default_rng(0).standard_normal((36, 4)) * [1.0, 100.0, 0.01, 1.0]
    edges = as_edges(lengths, 36)
    sums = kalman_paper._moments(as_rows(Y), edges, 3, 7, Run())
    starts = [t for a, b in itertools.pairwise(edges) for t in range(a, b - 2)]
    one, two, three = (Y[np.add(starts, i)] for i in range(3))
    etas = draw_weights(7, 3, 4)[0] / 2.0**26
    np.testing.assert_allclose(np.linalg.norm(etas, axis=1), 1.0, rtol=1e-5)
    np.testing.assert_allclose(sums.same, Y.T @ Y, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(sums.next, two.T @ three, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(sums.second, one.T @ three, rtol=1e-4, atol=1e-4)
    expected = np.array([two.T @ np.diag(one @ eta) @ three for eta in etas])
    found = sums.paper[4:].reshape(3, 4, 4)
    factor = np.vdot(found, expected) / np.vdot(found, found)  # the unit of the frames, one for all
    assert factor > 0
    scale = np.outer(np.sqrt((Y**2).mean(axis=0)), np.sqrt((Y**2).mean(axis=0)))
    np.testing.assert_allclose(factor * found / scale, expected / scale, atol=1e-4 * np.abs(expected / scale).max())


@pytest.mark.parametrize("ensemble", ["gaussian", "sparse", "unit", "data"])
def test_the_papers_planes_come_from_every_ensemble(ensemble):
    model = dca.KalmanFilter(2, method="paper", ensemble=ensemble).fit(X)
    np.testing.assert_array_equal(model.observation_matrices_.T, X[model.anchor_indices_])
    assert np.isfinite(model.loglikelihood(X))
    other = dca.KalmanFilter(2, method="paper").fit(X)
    assert (ensemble == "gaussian") == np.array_equal(model.transition_matrices_, other.transition_matrices_)


@pytest.mark.parametrize("missing", ["", "frames", "entries"])
@pytest.mark.parametrize("lengths", [[9], [4, 1, 7, 2], [3, 3]])
def test_sums_of_the_e_step_are_those_of_the_joint_gaussian(lengths, missing):
    system = replace(TRUTH, initial_mean=np.array([1.0, -2.0, 0.5]))
    edges = np.cumsum([0, *lengths])
    Y = np.concatenate([draw(system, n, n) for n in lengths])
    full, rng = missing != "entries", np.random.default_rng(1)
    if missing:
        Y[rng.random(len(Y)) < 0.25 if full else rng.random(Y.shape) < 0.25] = np.nan
    plan = prepare(system, edges, np.zeros(6), np.ones(6), tolerance=1e-12, n_frames=256, width=60)
    found = e_step_pass(as_rows(Y), plan, Run(), missing=bool(missing), full=full, second=None)
    means, own, lag, likelihood = [], [], np.zeros((3, 3)), 0.0
    for a, b in itertools.pairwise(edges):
        dense = Dense(system, b - a)
        mean, covariance, between = dense.states(Y[a:b])
        means.append(mean)
        own.append(covariance)
        lag += mean[1:].T @ mean[:-1] + between.sum(axis=0)
        likelihood += dense.log_likelihood(Y[a:b]) if not np.isnan(Y[a:b]).all() else 0.0
    starts, ends = edges[:-1], edges[1:] - 1
    states, spread = np.concatenate(means), np.concatenate(own)
    second = states[:, :, None] * states[:, None, :] + spread
    with_one = np.hstack([states, np.ones((len(Y), 1))])
    filled, close = np.where(np.isnan(Y), 0.0, Y), {"atol": 2e-2, "rtol": 1e-3}
    np.testing.assert_allclose(found.sums.every[:3, :3], second.sum(axis=0), **close)
    np.testing.assert_allclose(found.sums.every[3], with_one.sum(axis=0), **close)
    np.testing.assert_allclose(found.sums.pairs, lag, **close)
    np.testing.assert_allclose(found.sums.starts, second[starts].sum(axis=0), **close)
    np.testing.assert_allclose(found.sums.before, second.sum(axis=0) - second[ends].sum(axis=0), **close)
    np.testing.assert_allclose(found.sums.after, second.sum(axis=0) - second[starts].sum(axis=0), **close)
    np.testing.assert_allclose(found.sums.start_means, states[starts].sum(axis=0), **close)
    np.testing.assert_allclose(found.sums.cross, filled.T @ with_one, **close)
    whole = filled.T @ filled if full else (filled**2).sum(axis=0)
    np.testing.assert_allclose(found.sums.second, whole, **close)
    if missing:
        seen = np.einsum("tp,tij->pij", (~np.isnan(Y)).astype(float), second)
        np.testing.assert_allclose(found.sums.seen[..., :3, :3], seen[0] if full else seen, **close)
    assert found.log_likelihood == pytest.approx(likelihood, abs=1e-3)
