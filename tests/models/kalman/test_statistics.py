"""
Statistical claims about KalmanFilter, over seeds, with margins that a broken method misses.

Excess is the squared error of one-step prediction on fresh frames over that of the true system, less one.
"""

import numpy as np
import pytest

import dask_dca as dca
from tests.models.kalman.data import (
    autoregression,
    draw,
    eigenvalue_error,
    excess_error,
    hidden_oscillation,
    make_system,
    one_noise,
)

SEEDS = range(4)


def figures(k, p, n, correlated=False, seeds=SEEDS, change=None, **options):
    found = []
    for seed in seeds:
        truth = make_system(k, p, seed, correlated=correlated)
        X = draw(truth, n, 100 + seed)
        model = dca.KalmanFilter(k, **options).fit(X if change is None else change(X, seed))
        fresh = draw(truth, 4000, 200 + seed)
        found.append(
            (excess_error(model, truth, fresh), eigenvalue_error(model.transition_matrices_, truth.transition))
        )
    return np.median(found, axis=0)


@pytest.mark.parametrize(
    ("correlated", "covariance_type", "excess", "eigenvalues"),
    [(False, "auto", 0.0062, 0.027), (False, "diag", 0.0062, 0.027), (True, "auto", 0.010, 0.030)],
)
def test_short_sequences(correlated, covariance_type, excess, eigenvalues):
    """Without the EM passes .0068 (diagonal), .011 (correlated); diagonal noise where it is correlated: .12."""
    found = figures(4, 20, 1000, correlated, covariance_type=covariance_type)
    assert found[0] < excess
    assert found[1] < eigenvalues


def test_the_start_is_near_where_frames_show_the_state():
    """Moments inverted twice, at one depth, gave .0068."""
    assert figures(4, 20, 1000, max_iter=0, covariance_type="diag")[0] < 0.0056


@pytest.mark.parametrize(("system", "n", "excess"), [(hidden_oscillation, 1000, 0.015), (autoregression, 1000, 0.02)])
def test_states_that_no_frame_shows(system, n, excess):
    """With a state that is taken to be known from its past: .17 and 1.3."""
    found, truth = [], system()
    for seed in SEEDS:
        model = dca.KalmanFilter(truth.n_dim_state).fit(draw(truth, n, 100 + seed))
        found.append(excess_error(model, truth, draw(truth, 4000, 200 + seed)))
    assert np.median(found) < excess


@pytest.mark.parametrize("correlated", [False, True])
def test_noises_that_depend_on_each_other_are_named(correlated):
    """One noise moves states and frames, or two."""
    for seed in range(2):
        rng = np.random.default_rng(seed)
        turn = 0.95 * np.array([[np.cos(0.5), -np.sin(0.5)], [np.sin(0.5), np.cos(0.5)]])
        noise, states, frames = rng.standard_normal((3000, 2)), np.zeros(2), []
        other = noise if correlated else rng.standard_normal((3000, 2))
        for one, two in zip(noise, other, strict=True):
            frames.append(states + two)
            states = turn @ states - 0.8 * one
        model = dca.KalmanFilter(2).fit(np.array(frames))
        assert (model.correlated_noise_ > 8.0) == correlated
        assert any("try n_dim_state=4" in line for line in model._describe()) == correlated


@pytest.mark.parametrize(("seed", "covariance_type"), [(0, "diag"), (1, "auto")])
def test_as_many_states_as_the_certificate_says_hold_one_noise(seed, covariance_type):
    """Of four states .25 to .36; of seven that start from canonical variates alone .17 to .33."""
    truth = one_noise(seed)
    X, fresh = draw(truth, 2000, 100 + seed), draw(truth, 4000, 200 + seed)
    few, more = (dca.KalmanFilter(k, covariance_type=covariance_type).fit(X) for k in (4, 7))
    assert any("try n_dim_state=7" in line for line in few._describe())
    assert excess_error(few, truth, fresh) > 0.2
    assert excess_error(more, truth, fresh) < 0.04
    assert not any("try n_dim_state" in line for line in more._describe())


def test_what_can_not_be_told_of_walks_is_not_a_number(tmp_path):
    """No innovations form of them forgets its beginning; it was minus infinity, which no model is saved with."""
    walks = np.random.default_rng(2).standard_normal((3000, 4)).cumsum(axis=0)
    model = dca.KalmanFilter(1).fit(walks)
    assert np.isnan(model.correlated_noise_)
    model.save(tmp_path / "m.zarr")
    assert np.isnan(dca.load_model(tmp_path / "m.zarr").correlated_noise_)


def test_diagonal_noise_is_wrong_where_noise_is_correlated():
    few = {"correlated": True, "seeds": range(3)}
    assert figures(4, 20, 1000, covariance_type="diag", **few)[0] > 5 * figures(4, 20, 1000, **few)[0]


def test_long_sequences():
    found = figures(4, 20, 30_000, seeds=range(3), max_iter=3)
    assert found[0] < 0.0004
    assert found[1] < 0.006


@pytest.mark.parametrize("correlated", [False, True])
def test_missing_frames(correlated):
    """With a diagonal R .14 where noise is correlated; with zeros of missing frames as noise .012 where it is not."""

    def gaps(X, seed):
        return np.where(np.random.default_rng(seed).random((len(X), 1)) < 0.3, np.nan, X)

    assert figures(4, 20, 1000, correlated, seeds=range(2), change=gaps)[0] < 0.0108


def test_incomplete_frames():
    def holes(X, seed):
        return np.where(np.random.default_rng(seed).random(X.shape) < 0.2, np.nan, X)

    found = figures(3, 10, 1000, seeds=range(2), change=holes, max_iter=2)
    assert found[0] < 0.012
    assert found[1] < 0.04


def test_the_papers_method_loses_most_of_what_can_be_predicted():
    """Third moments of Gaussian noise vanish, and single frames carry all their noise: here for comparison only."""
    for seed in range(2):
        truth = make_system(3, 10, seed)
        model = dca.KalmanFilter(3, method="paper").fit(draw(truth, 3000, seed))
        assert excess_error(model, truth, draw(truth, 2000, 50 + seed)) > 0.1
