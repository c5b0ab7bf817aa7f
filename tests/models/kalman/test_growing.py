"""Starts and parameters of systems that grow: what channels show is tracked, what they don't is told."""

import re

import numpy as np
import pytest

import dask_dca as dca
from dask_dca.errors import InvalidParameterError

TURN = 0.98 * np.array([[np.cos(0.3), -np.sin(0.3)], [np.sin(0.3), np.cos(0.3)]])
TRUTH = dca.KalmanFilter.from_parameters(TURN, np.eye(4, 2), 0.1 * np.eye(2), 0.2 * np.eye(4))
X = TRUTH.sample(600, random_state=0)[1]
FIRST = np.array([[1.0, 0.0]] * 4)  # shows the first of two states


def started(T, O=FIRST, data=X, **more):
    start = {"transition_matrices": T, "observation_matrices": O}
    return dca.KalmanFilter(init=start, max_iter=3, **more).fit(data)


@pytest.mark.parametrize("size", [1.05, 1.5, 10.0])
def test_a_start_that_grows_and_is_seen_leads_to_the_system(size):
    model = started(size * np.eye(2), np.eye(4, 2))
    assert np.isfinite(model.log_likelihoods_).all()
    assert (np.diff(model.log_likelihoods_) > 0).all()
    assert np.abs(np.linalg.eigvals(model.transition_matrices_)).max() <= 1.0


@pytest.mark.parametrize(
    ("T", "holes"),
    [(np.diag([0.9, 0.5]), False), (np.diag([0.9, 1.0]), True), ([[1.0, 1.0], [0.0, 1.0]], False),
     ([[1.0, 1.0], [0.0, 1.0]], True)],
)  # fmt: skip
def test_a_state_that_no_channel_shows_does_no_harm_where_it_does_not_grow(T, holes):
    data = np.where(np.random.default_rng(1).random(X.shape) < 0.1, np.nan, X) if holes else X
    model = started(T, data=data)
    assert np.isfinite(model.log_likelihoods_).all()
    assert np.isfinite(model.smooth(data)[0]).all()


@pytest.mark.parametrize(
    ("T", "O", "holes"),
    [(np.diag([0.9, 1.4]), FIRST, False), (np.diag([0.9, 1.4]), FIRST, True),
     (1.4 * np.eye(2), np.zeros((4, 2)), True), (1.3 * np.eye(8), np.eye(4, 8), False)],
)  # fmt: skip
def test_a_state_that_grows_unseen_is_told_and_the_advice_works(T, O, holes):
    data = np.where(np.random.default_rng(1).random(X.shape) < 0.1, np.nan, X) if holes else X
    with pytest.raises(InvalidParameterError) as raised:
        started(T, O, data)
    found = re.search(r"pass (transition_matrices / [\d.]+),", str(raised.value))
    assert found, str(raised.value)
    model = started(eval(found[1], {"transition_matrices": T}), O, data)
    assert np.isfinite(model.log_likelihoods_).all()
    k = len(T)
    unseen = dca.KalmanFilter.from_parameters(T, O, np.eye(k), np.eye(4))
    for method in (unseen.filter, unseen.smooth, unseen.loglikelihood, unseen.predict):
        with pytest.raises(InvalidParameterError, match="a growing state is not observed"):
            method(data)
    short = data[:100]
    assert np.isfinite(unseen.smooth(short)[0]).all()


def test_a_long_gap_in_a_system_that_grows():
    data = X.copy()
    data[100:500] = np.nan
    model = dca.KalmanFilter.from_parameters(1.5 * np.eye(2), np.eye(4, 2), np.eye(2), np.eye(4))
    means, covariances = model.smooth(data)
    assert np.isfinite(means).all()
    assert np.isfinite(covariances).all()
    assert np.isfinite(model.loglikelihood(data))
    whole = model.smooth(X)[0]
    np.testing.assert_allclose(means[:60], whole[:60], atol=1e-6)
    np.testing.assert_allclose(means[550:], whole[550:], atol=1e-6)


@pytest.mark.parametrize("transition", [[[1.05]], [[1.05, 0.3], [0.0, 0.5]], [[0.0, -1.2], [1.2, 0.0]]])
def test_steps_beyond_the_range_of_numbers_are_told_with_how_many_are_within(transition):
    one = np.eye(len(transition))
    model = dca.KalmanFilter.from_parameters(transition, one, 0.1 * one, 0.1 * one, one[0], one)
    X = np.ones((30, len(transition)))
    for ask in (lambda n: model.forecast(X, n), lambda n: (model.predict(X, n_steps=n),), model.sample):
        with pytest.raises(InvalidParameterError, match="ask for at most") as raised:
            ask(40_000)
        most = int(str(raised.value).rpartition("at most ")[2])
        assert most > 1_000
        assert all(np.isfinite(found).all() for found in ask(most))
