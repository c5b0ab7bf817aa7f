"""Rows outside the subspace: exact scores, bounds on them, and a sum in any order."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_dca.geometry import moments, outlying
from dask_dca.geometry import moments as sketch
from dask_dca.geometry.moments import ratios, subspace_frame
from dask_dca.geometry.outlying import (
    MAX_OUTLYING_ROWS,
    Outlying,
    common_direction,
    find_outlying_rows,
    residual_weights,
)
from dask_dca.geometry.screening import approximate_positions, prepare_screen


def rows(seed=0, n=600, p=12, dtype=np.float64):
    """Mixtures of three rays at many heights, some far out, and the frame of the subspace that holds them."""
    rng = np.random.default_rng(seed)
    X = rng.dirichlet(np.ones(3), n) @ rng.random((3, p)) + 0.01 * rng.random((n, p))
    scaled, _ = ratios(X)
    mean, energy = moments.robust_center(scaled)
    sub = sketch.subspace(moments.moments(scaled, mean, energy, n), mean, energy, 3)
    X[::7] += rng.random((len(X[::7]), p))
    X[::50] *= 1e-3
    X[1::50] = 40.0 * rng.random((len(X[1::50]), p)) ** 4
    X[2] = 0.0
    X *= np.exp(rng.standard_normal((n, 1)))
    return X.astype(dtype), sub, subspace_frame(sub, None, energy)


def test_scores_are_weighted_residuals_without_their_greatest_entry():
    X, sub, where = rows()
    found = find_outlying_rows(X, np.arange(len(X)), where, 1.0, np.float64)
    z = where.gain * ratios(X)[0] - where.offset
    centre = where.offset - sub.basis @ (sub.basis.T @ where.offset)
    known = np.hstack([sub.basis, centre[:, None] / np.linalg.norm(centre)])
    squares = (z - z @ known @ known.T) ** 2
    expected = (squares.sum(axis=1) - squares.max(axis=1)) * residual_weights(X.sum(axis=1), (z**2).sum(axis=1), 1.0)
    expected[2] = 0.0
    best = np.argsort(-expected)[:MAX_OUTLYING_ROWS]
    assert len(set(best) & set(found.numbers)) >= MAX_OUTLYING_ROWS - 1
    np.testing.assert_allclose(found.scores, expected[found.numbers], rtol=1e-4)
    np.testing.assert_array_equal(found.rows, X[found.numbers])


def test_low_rows_and_outliers_count_little():
    unit = 2.0**44
    weights = residual_weights(np.array([1.0, 2.0, 0.1, 1.0, -1.0]), unit * np.array([0.5, 1.0, 1.0, 100.0, 1.0]), 1.0)
    np.testing.assert_allclose(weights, [1.0, 1.0, 0.01, 1e-4, 0.0])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("unit", [1.0, 1e-9, 1e9])
def test_bounds_hold_for_every_row(dtype, unit):
    X, _, where = rows(1, dtype=dtype)
    X = (X * unit).astype(dtype)
    bounds = approximate_positions(X, prepare_screen(where), unit)[2]
    for number in range(len(X)):
        found = find_outlying_rows(X[[number]], np.array([number]), where, unit, np.float64)
        assert found.scores.sum() <= bounds[number]
    near = np.isfinite(bounds)
    assert near.mean() > 0.9
    exact = find_outlying_rows(X, np.arange(len(X)), where, unit, np.float64)
    assert (bounds[near] > 2.0 * exact.scores[0] + 1e9).mean() < 0.05  # they rule most rows out


def low_noise(noise, signed=False):
    """Mixtures of five rays, and bounds and exact scores of each row, in the frame that holds them."""
    rng = np.random.default_rng(2)
    X = rng.dirichlet(np.ones(5), 1000) @ (rng.random((5, 100)) - 0.3 * signed) + noise * rng.random((1000, 100))
    axis = X.mean(axis=0) if signed else None
    scaled, _ = ratios(X, axis)
    mean, energy = moments.robust_center(scaled)
    where = subspace_frame(sketch.subspace(moments.moments(scaled, mean, energy, 1000), mean, energy, 5), axis, energy)
    exact = np.array(
        [find_outlying_rows(X[[i]], np.arange(1), where, 1.0, np.float64).scores.sum() for i in range(1000)]
    )
    return exact, {
        dtype: approximate_positions(X, prepare_screen(where, dtype), 1.0)[2] for dtype in (np.float32, np.float64)
    }


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("noise", [1e-2, 1e-3, 1e-4])
def test_bounds_in_double_are_near_where_noise_is_small(noise, signed):
    exact, bounds = low_noise(noise, signed)
    assert (bounds[np.float64] >= exact).all()
    assert (bounds[np.float64] <= 1.3 * exact).all()
    assert (bounds[np.float32] >= exact).all()
    assert np.median(bounds[np.float32] / exact) > 1.5  # which is why both precisions are tested


def test_residuals_of_rounding_errors_have_no_score():
    exact, bounds = low_noise(1e-9)
    assert not exact.any()
    assert not bounds[np.float64].any()


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(0, 399), max_size=5).map(sorted), st.randoms())
def test_any_parts_in_any_order_give_the_same_rows(cuts, random):
    rng = np.random.default_rng(0)
    scores, numbers, held = rng.integers(1, 50, 400).astype(float), np.arange(400), rng.random((400, 3))
    parts = [Outlying.empty(3) + Outlying(scores[part], numbers[part], held[part]) for part in np.split(numbers, cuts)]
    random.shuffle(parts)
    found = sum(parts, Outlying.empty(3))
    expected = np.lexsort((numbers, -scores))[:MAX_OUTLYING_ROWS]
    np.testing.assert_array_equal(found.numbers, expected)
    np.testing.assert_array_equal(found.rows, held[expected])
    assert found.threshold == scores[expected[-1]]


@pytest.mark.parametrize(("features", "agrees"), [(1, False), (2, False), (12, True)])
def test_only_a_direction_of_several_features_counts(features, agrees):
    X, _, where = rows()
    rng = np.random.default_rng(3)
    added = np.zeros(12)
    added[:features] = 1.0 + rng.random(features)
    usual = X[[3, 4, 5, 6, 8, 9, 10, 11]]
    new = usual / usual.sum(axis=1, keepdims=True) + 0.1 * added / added.sum()
    found = find_outlying_rows(new, np.arange(8), where, 1.0, np.float64)
    assert len(found.numbers) == 8
    assert (common_direction(found, where) is not None) == agrees
    noise = find_outlying_rows(X[:8] + X[:8].mean() * rng.random((8, 12)), np.arange(8), where, 1.0, np.float64)
    assert common_direction(noise.without(noise.numbers[:4]), where) is None


@pytest.mark.parametrize("seed", range(5))
def test_a_third_of_the_rows_is_enough_if_the_others_have_no_common_direction(seed, monkeypatch):
    X, _, where = rows(seed, p=60)
    rng = np.random.default_rng(seed)
    usual = X[np.arange(600) % 7 > 2][:64]
    usual = usual / usual.sum(axis=1, keepdims=True)
    usual += 0.02 * rng.standard_normal(usual.shape) / 60
    away = rng.standard_normal(60)
    for few, agrees in ((0, False), (22, True)):
        new = usual.copy()
        new[:few] += 0.25 / 60 * away / np.linalg.norm(away)
        found = find_outlying_rows(new, np.arange(64), where, 1.0, np.float64)
        assert (common_direction(found, where) is not None) == agrees
    monkeypatch.setattr(outlying, "_MIN_EIGENVALUE_RATIO", np.inf)
    assert common_direction(found, where) is None
