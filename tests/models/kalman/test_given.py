"""Starts that the user gives, and parameters that stay: steps are those of pykalman."""

import dask.array as da
import numpy as np
import pytest

import dask_dca as dca
from dask_dca.errors import DCAError, MissingEntriesWarning
from tests.contract.entries import fitted_bytes as bits

pykalman = pytest.importorskip("pykalman")
NAMES = (
    "transition_matrices",
    "observation_matrices",
    "transition_covariance",
    "observation_covariance",
    "initial_state_mean",
    "initial_state_covariance",
)
TURN = 0.95 * np.array([[np.cos(0.4), -np.sin(0.4)], [np.sin(0.4), np.cos(0.4)]])
LOOK = np.array([[1.0, 0.2], [-0.5, 1.0], [0.3, 0.7]])
TRUTH = dca.KalmanFilter.from_parameters(TURN, LOOK, 0.3 * np.eye(2), 0.5 * np.eye(3))
X = TRUTH.sample(400, random_state=0)[1]
START = {"transition_matrices": 0.8 * np.eye(2), "observation_matrices": LOOK}


@pytest.mark.parametrize(
    ("learnt", "missing"),
    [
        (("transition_covariance", "observation_covariance", "initial_state_mean", "initial_state_covariance"), 0.0),
        (("transition_matrices", "transition_covariance"), 0.0),
        (("observation_matrices", "observation_covariance"), 0.2),
        (("observation_covariance",), 0.3),
        (NAMES, 0.0),
        (NAMES, 0.2),
    ],
)
def test_steps_from_a_start_are_those_of_pykalman(learnt, missing):
    Y = np.ma.masked_array(X, np.tile(np.random.default_rng(0).random((400, 1)) < missing, 3))
    model = dca.KalmanFilter(2, init=START, params=learnt, max_iter=3, tol=0).fit(Y)
    same = pykalman.KalmanFilter(**START, em_vars=list(learnt)).em(Y, n_iter=3)
    for name in NAMES:
        atol = 3e-4 if name.startswith("initial") else 1e-5  # of one state, on the grid of exact sums
        found = getattr(model, f"{name}_")
        np.testing.assert_allclose(found, getattr(same, name), rtol=1e-4, atol=atol, err_msg=name)
    assert model.loglikelihood(Y) == pytest.approx(same.loglikelihood(Y), abs=0.01)
    assert (np.diff(model.log_likelihoods_) > 0).all()
    assert model.log_likelihoods_[-1] == pytest.approx(model.loglikelihood(Y) / 400, abs=1e-6)


def test_what_is_not_learnt_keeps_its_bits():
    model = dca.KalmanFilter(2, init=START, params=["transition_covariance"], max_iter=2).fit(X)
    np.testing.assert_array_equal(model.transition_matrices_, START["transition_matrices"])
    np.testing.assert_array_equal(model.observation_matrices_, LOOK)
    np.testing.assert_array_equal(model.observation_covariance_, np.eye(3))
    np.testing.assert_array_equal(model.observation_offsets_, np.zeros(3))
    assert not np.array_equal(model.transition_covariance_, np.eye(2))
    assert dca.KalmanFilter(init=START).fit(X).n_dim_state_ == 2
    arrays = [TURN, LOOK, np.eye(2), np.eye(3)]
    own = dca.KalmanFilter.from_parameters(*arrays)
    for name, array in zip(("transition_matrices_", "observation_matrices_"), arrays, strict=False):
        assert not np.shares_memory(getattr(own, name), array)  # a filter that is changed changes nothing of the caller


def test_a_fitted_filter_is_a_start_and_steps_go_up_from_it(tmp_path):
    first = dca.KalmanFilter(2, max_iter=0).fit(X)
    on = dca.KalmanFilter(init=first, max_iter=5, tol=0).fit(X)
    assert on.log_likelihoods_[0] == pytest.approx(first.log_likelihoods_[-1], abs=1e-6)
    assert (np.diff(on.log_likelihoods_) > -1e-9).all()
    on.save(str(tmp_path / "m.zarr"))
    again = dca.load_model(str(tmp_path / "m.zarr"))
    assert bits(again) == bits(on)
    assert again._describe() == on._describe()
    known = dca.KalmanFilter(init=TRUTH, params=["observation_covariance"]).fit(X)
    np.testing.assert_array_equal(known.transition_matrices_, TURN)


def test_noises_alone_are_learnt_beside_what_anchors_say():
    model = dca.KalmanFilter(2, params="transition_matrices,transition_covariance", max_iter=2).fit(X)
    start = dca.KalmanFilter(2, max_iter=0).fit(X)
    np.testing.assert_array_equal(model.observation_matrices_, start.observation_matrices_)
    assert not np.array_equal(model.transition_matrices_, start.transition_matrices_)
    fixed = np.diag([0.4, 0.5, 0.6])
    model = dca.KalmanFilter(2, init={"observation_covariance": fixed}, params="transition_matrices").fit(X)
    np.testing.assert_array_equal(model.observation_covariance_, fixed)


def test_the_same_bits_for_any_chunks_and_with_a_hole():
    gone = X.copy()
    gone[100:110] = np.nan
    parts = gone.copy()
    parts[300, 1] = np.nan
    for data, form in ((X, (3, 3)), (gone, (3, 3)), (parts, (3,))):
        whole = dca.KalmanFilter(init=START, max_iter=2).fit(data)
        chunked = da.from_array(data, chunks=(130, 3) if data is X else (77, 2))
        assert bits(dca.KalmanFilter(init=START, max_iter=2).fit(chunked)) == bits(whole)
        assert whole.observation_covariance_.shape == form
    assert (np.diff(whole.log_likelihoods_) > 0).all()


def test_starts_make_searches_and_clones_possible():
    from sklearn.base import clone

    model = dca.KalmanFilter(init=TRUTH, max_iter=1)
    assert clone(model).init is TRUTH
    assert clone(model).fit(X).n_dim_state_ == 2


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"init": {"transition_matrices": TURN}}, "has transition_matrices but not observation_matrices"),
        ({"init": {"observation_matrices": LOOK}}, "has observation_matrices but not transition_matrices"),
        ({"init": {"em_vars": 1}}, "init has no parameter 'em_vars'; it takes transition_matrices, "),
        ({"init": dict(START, observation_matrices=LOOK[:2])}, "init has 2 channels, and X has 3"),
        ({"init": dict(START, transition_covariance=-np.eye(2))}, "transition_covariance is no covariance"),
        ({"init": START, "n_dim_state": 3}, "n_dim_state=3, and the start has 2; pass n_dim_state=2"),
        ({"init": dca.KalmanFilter(2)}, "init is a model that is not fitted"),
        ({"init": 5}, "init must be a fitted KalmanFilter, or a dict of transition_matrices"),
        ({"init": START, "method": "paper"}, "leave init and params out"),
        ({"params": ["transition_offsets"]}, "params names 'transition_offsets'; it must be 'all', or some of"),
        ({"params": 5}, "params must be"),
    ],
)
def test_unusable_starts_are_told(parameters, message):
    with pytest.raises(DCAError, match=message):
        dca.KalmanFilter(**parameters).fit(X)


def test_a_full_r_of_frames_with_holes_is_refused():
    gone = X.copy()
    gone[7, 0] = np.nan
    with pytest.raises(DCAError, match="frames that are complete or missing as a whole, but frames of X have some"):
        dca.KalmanFilter(init=START, covariance_type="full").fit(gone)
    assert dca.KalmanFilter(init=START, covariance_type="diag").fit(X).observation_covariance_.shape == (3,)
    for params in ("all", "transition_matrices"):  # R is not learnt there, and yet not what was given
        model = dca.KalmanFilter(init=dict(START, observation_covariance=np.eye(3) + 0.5), params=params)
        with pytest.warns(MissingEntriesWarning, match=r"between channels of the start, up to 0\.5, are left out"):
            assert model.fit(gone).observation_covariance_.shape == (3,)
