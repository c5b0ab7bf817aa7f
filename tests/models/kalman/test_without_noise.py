"""Sequences without noise, as counters, ramps and sines are: the filter's covariances go down to rounding."""

import warnings

import numpy as np
import pytest

import dask_dca as dca
from dask_dca.errors import FewerAnchorsWarning
from dask_dca.models.kalman.system import limit_eigenvalues, stationary_covariance

T = np.arange(60.0)
SEQUENCES = {
    "ramp": T,
    "far from zero": T + 1e9,
    "squares": T**2,
    "cubes": T**3,
    "growing": np.exp(T / 5.0),
    "sine": np.sin(T / 9.0),
    "decaying": 0.5**T,
    "ramp and squares": np.c_[T, T**2],
    "sine and ramp": np.c_[np.sin(T), T],
    "three copies": np.c_[T, T, T],
}


@pytest.mark.parametrize("name", SEQUENCES)
def test_a_sequence_without_noise_is_fitted(name):
    """Each of them by one of one to four states, in turn, and by "auto" or with a missing entry, by turns."""
    turn = list(SEQUENCES).index(name)
    whole = SEQUENCES[name].reshape(len(T), -1)
    missing = np.where(np.arange(len(T))[:, None] == 7, np.nan, whole)
    for X, k in ((whole, 1 + turn % 4), ((whole, "auto"), (missing, 2))[turn % 2]):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FewerAnchorsWarning)
            model = dca.KalmanFilter(k).fit(X)
        for value in (model.transition_matrices_, model.observation_covariance_, model.smooth(X)[0], model.score(X)):
            assert np.isfinite(value).all()
        assert np.linalg.eigvalsh(model.transition_covariance_)[0] >= -1e-12 * np.trace(model.transition_covariance_)


@pytest.mark.parametrize("name", ["ramp", "sine", "far from zero"])
def test_what_follows_is_predicted(name):
    X = SEQUENCES[name].reshape(-1, 1)
    error = dca.KalmanFilter(2).fit(X).predict(X)[20:-1] - X[21:]
    assert np.sqrt((error**2).mean()) < 0.1 * np.abs(np.diff(X, axis=0)).mean()


def test_a_nearly_defective_transition_does_not_grow():
    rng = np.random.default_rng(0)
    for _ in range(500):
        block = 1.001 * np.eye(3) + np.diag([1.0, 1.0], 1) + 1e-12 * rng.standard_normal((3, 3))
        basis = np.linalg.qr(rng.standard_normal((3, 3)))[0]
        pulled = limit_eigenvalues(basis @ block @ basis.T, 0.9999)
        assert np.isfinite(stationary_covariance(pulled, np.eye(3))).all()


@pytest.mark.parametrize(("n", "p", "k"), [(120, 2, 12), (120, 6, 12), (500, 3, 7), (500, 3, 12), (500, 20, 7)])
def test_more_states_than_a_period_needs_predict_it(n, p, k):
    """Rounding was taken for correlated noise, with next to none in some direction: the filter's errors grew."""
    X = np.random.default_rng(400 + p).standard_normal((4, p))[np.arange(n) % 4]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FewerAnchorsWarning)
        model = dca.KalmanFilter(k).fit(X)
    assert np.abs(model.predict(X)[20:-1] - X[21:]).max() < 1e-2
    assert np.abs(model.forecast(X, 4)[0] - X[(n + np.arange(4)) % 4]).max() < 1e-2


def test_a_channel_that_is_next_to_nothing_beside_others():
    X = np.random.default_rng(0).standard_normal((200, 3)).cumsum(axis=0) * [1e-200, 1.0, 1e150]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FewerAnchorsWarning)
        model = dca.KalmanFilter(2).fit(X)
    near = model.predict(X)[20:-1, 1:] - X[21:, 1:]
    assert (np.abs(near).mean(axis=0) < 2.0 * np.abs(np.diff(X[20:, 1:], axis=0)).mean(axis=0)).all()
    assert np.isfinite(dca.KalmanFilter(2, init=model).fit(X).score(X))
    assert np.isfinite(model.partial_fit(X).score(X, lengths=[200]))
