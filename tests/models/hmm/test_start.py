"""Starts: moments at lags by hand, anchors of tails, states that only their covariances tell apart."""

import numpy as np
import pytest

from dask_dca.engine.sequences import as_edges
from dask_dca.models.hmm.start import (
    anchored_starts,
    count_signals,
    lifted_features,
    moving_average,
    principal_coordinates,
    tail_means,
)
from dask_dca.models.neighbours import discriminant_coordinates, lag_moments

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("lengths", [[500], [200, 1, 299], [4] * 125])
def test_moments_at_lags_are_means_over_pairs_within_sequences(lengths):
    X, edges = np.random.default_rng(0).standard_normal((500, 3)).cumsum(axis=0) / 10, as_edges(lengths, 500)
    found, c = lag_moments(X, edges), X - X.mean(axis=0)
    which = np.repeat(np.arange(len(lengths)), lengths)
    for lag, moment in enumerate(found.lagged, 1):
        pairs = [(t, t + lag) for t in range(500 - lag) if which[t] == which[t + lag]]
        np.testing.assert_allclose(
            moment, sum(np.outer(c[a], c[b]) for a, b in pairs) / len(pairs), rtol=1e-9, atol=1e-12
        )
    np.testing.assert_allclose(found.covariance, np.cov(X.T, bias=True))


def test_discriminant_directions_are_those_of_the_means_however_large_the_noise():
    states = np.repeat(RNG.integers(2, size=1500), 4)
    X = RNG.standard_normal((6000, 5)) * [1.0, 1.0, 30.0, 1.0, 1.0]
    X[:, 0] += 3.0 * states
    moments = lag_moments(X, as_edges(None, 6000))
    axis = discriminant_coordinates(moments, 1)[0][:, 0] * X.std(axis=0)
    assert abs(axis[0]) > 0.95 * np.linalg.norm(axis)
    assert count_signals(moments) == 1
    assert count_signals(lag_moments(RNG.permutation(X), as_edges(None, 6000))) == 0


def test_principal_coordinates_of_wide_frames_are_those_of_narrow_ones():
    X = RNG.standard_normal((300, 4)) @ np.diag([9.0, 5.0, 3.0, 1.0]) @ RNG.standard_normal((4, 400)) / 20
    X += 1e-3 * RNG.standard_normal(X.shape)
    wide = principal_coordinates(X, 2)
    U = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)[0][:, :2] * np.sqrt(300)
    np.testing.assert_allclose(np.abs(wide.T @ U) / 300, np.eye(2), atol=1e-3)


def test_tails_are_means_of_the_rows_furthest_out():
    line = np.arange(100.0)[:, None]
    np.testing.assert_allclose(tail_means(line, line, 5, 0, None), [[94.5], [4.5]])  # half of a fifth


@pytest.mark.parametrize("seed", range(3))
def test_anchors_are_in_different_states(seed):
    """Each anchor's frames are those of one state: the first start alone names nearly all frames."""
    rng = np.random.default_rng(seed)
    states = np.repeat(rng.permutation(np.arange(400) % 4), 5)
    X = 7.0 * rng.standard_normal((4, 6))[states] + rng.standard_normal((2000, 6))
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    starts, _, found = anchored_starts(X, as_edges(None, 2000), 4, "diag", np.full(6, 1e-6), seed, None)
    means = np.array([X[states == j].mean(axis=0) for j in range(4)])
    nearest = ((means[:, None] - starts[0].means) ** 2).sum(axis=2)
    assert sorted(nearest.argmin(axis=1).tolist()) == [0, 1, 2, 3]
    assert nearest.min(axis=1).max() < 0.1
    assert found.shape == (2 * int(np.ceil(24 * np.log(5))), 6)


@pytest.mark.parametrize("seed", range(3))
def test_lifted_features_start_from_states_of_equal_means(seed):
    rng = np.random.default_rng(seed)
    states = np.repeat(rng.permutation(np.arange(300) % 2), 20)
    X = rng.standard_normal((6000, 3)) * np.array([[0.5, 1.0, 1.6], [1.6, 1.0, 0.5]])[states]
    starts, *_ = anchored_starts(X, as_edges(None, 6000), 2, "diag", np.full(3, 1e-6), 0, None)
    assert len(starts) == 2
    ratios = [np.abs(np.log(start.covariances[0] / start.covariances[1]))[0] for start in starts]
    assert ratios[1] > 1.5
    assert ratios[1] > ratios[0]


def test_lifted_features_are_standard():
    for products in (True, False):
        found = lifted_features(RNG.standard_normal((500, 3)), products=products)
        assert found.shape[1] == 3 + (6 if products else 3) + 1
        np.testing.assert_allclose(found.mean(axis=0), 0.0, atol=1e-12)
        np.testing.assert_allclose(found.std(axis=0), 1.0)


def test_moving_averages_do_not_cross_the_ends_of_sequences():
    values = np.array([[1.0], [1.0], [5.0], [5.0]])
    np.testing.assert_array_equal(moving_average(values, np.array([0, 2, 4]), 3), values)
