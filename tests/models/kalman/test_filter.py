"""Kernels of the Kalman filter against the joint Gaussian of all states and frames."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_dca.models.kalman import em as lds_em
from dask_dca.models.kalman.filter import (
    filter_pieces,
    filter_states,
    filtered_covariances,
    in_state_units,
    memory_length,
    smooth_by_kind,
    smooth_pieces,
    smoothed_complete,
    start_gains,
    steady_gains,
)
from dask_dca.models.kalman.scan import smoothed_sums
from dask_dca.models.kalman.system import (
    LinearSystem,
    change_basis,
    forecast,
    limit_eigenvalues,
    prepare_observer,
    reduce_frames,
    reduce_incomplete,
    regularised,
    split_reduced,
)
from tests.models.kalman.data import Dense, draw, make_system

ONE = np.array([True])


def prepared(system):
    system = regularised(system)
    observer = prepare_observer(system)
    start = start_gains(system, observer.factor)
    return system, observer, (start, steady_gains(start))


@st.composite
def systems(draw_):
    k, p = draw_(st.integers(1, 4)), draw_(st.integers(1, 5))
    rng = np.random.default_rng(draw_(st.integers(0, 2**32 - 1)))
    system = make_system(k, p, int(rng.integers(1000)), correlated=draw_(st.booleans()))
    if draw_(st.booleans()):
        system = replace(system, observation_covariance=np.diagonal(system.observation_covariance).copy())
    if draw_(st.booleans()):  # a state without noise, and a first state that is known
        kicks = system.transition_covariance.copy()
        kicks[0] = kicks[:, 0] = 0.0
        system = replace(system, transition_covariance=kicks, initial_covariance=np.zeros((k, k)))
    return replace(system, initial_mean=rng.standard_normal(k))


@given(systems(), st.integers(1, 9), st.integers(0, 1000))
@settings(max_examples=60)
def test_complete_frames_agree_with_the_joint_gaussian(system, n, seed):
    X, dense = draw(system, n, seed), Dense(system, n)
    system, observer, gains = prepared(system)
    numbers = reduce_frames(observer, X)
    y, inside = numbers[:, None, :-1], np.ones((n, 1), dtype=bool)
    filtered = filter_pieces(system, observer.factor, gains, y, inside, ONE, 0)
    means, covariances = dense.filtered(X)
    np.testing.assert_allclose(filtered.means[:, 0], means, atol=1e-8)
    np.testing.assert_allclose(filtered_covariances(gains, ONE, 0, n)[:, 0], covariances, atol=1e-8)
    means, covariances, lag = dense.states(X)
    np.testing.assert_allclose(smooth_pieces(system, gains, filtered, ONE, 0)[:, 0], means, atol=1e-8)
    found = smoothed_complete(system, observer.factor, gains, filtered, ONE, np.array([n]), 0)
    np.testing.assert_allclose(found[0][:, 0], means, atol=1e-8)
    np.testing.assert_allclose(found[1][:, 0], covariances, atol=1e-8)
    sums = smoothed_sums(system, observer.factor, gains[0], 4096, np.array([n]), np.array([3]))
    np.testing.assert_allclose(sums.every, 3 * covariances.sum(axis=0), atol=1e-7)
    np.testing.assert_allclose(sums.pairs, 3 * lag.sum(axis=0), atol=1e-7)
    np.testing.assert_allclose(sums.first, 3 * covariances[0], atol=1e-7)
    np.testing.assert_allclose(sums.last, 3 * covariances[-1], atol=1e-7)
    likelihood = filtered.log_density.sum() + numbers[:, -1].sum()
    assert likelihood == pytest.approx(dense.log_likelihood(X), rel=1e-8, abs=1e-7)


@given(systems(), st.integers(1, 9), st.integers(0, 1000))
@settings(max_examples=60)
def test_missing_entries_and_frames_agree_with_the_joint_gaussian(system, n, seed):
    """Reported as pykalman #58 and probml/dynamax #399."""
    X, dense = draw(system, n, seed), Dense(system, n)
    rng = np.random.default_rng(seed)
    X[rng.random(X.shape) < 0.3] = np.nan
    X[rng.random(n) < 0.2] = np.nan
    if np.isnan(X).all():
        return
    system, observer, gains = prepared(system)
    y, rest, factors = split_reduced(reduce_incomplete(observer, X)[:, None], system.n_dim_state)
    filtered = filter_states(system, y, factors, ONE, 0, gains[1].root[0])
    smoothed = smooth_by_kind(system, filtered, filtered.roots, factors, slice(None))
    for found, wanted in zip((filtered.means, filtered.covariances), dense.filtered(X), strict=True):
        np.testing.assert_allclose(found[:, 0], wanted, atol=1e-8)
    means, covariances, lag = dense.states(X)
    np.testing.assert_allclose(smoothed.means[:, 0], means, atol=1e-8)
    np.testing.assert_allclose(smoothed.covariances[:, 0], covariances, atol=1e-8)
    np.testing.assert_allclose(smoothed.lag_one[1:, 0], lag, atol=1e-8)
    likelihood = filtered.log_density.sum() + rest.sum()
    assert likelihood == pytest.approx(dense.log_likelihood(X), rel=1e-8, abs=1e-7)


def test_complete_frames_have_the_same_numbers_beside_incomplete_ones():
    _, observer, _ = prepared(make_system(3, 6, 1, correlated=True))
    X = draw(make_system(3, 6, 1, correlated=True), 64)
    whole = reduce_frames(observer, X)
    X[::3, 2] = np.nan
    found = reduce_incomplete(observer, X)
    assert found[1::3, :4].tobytes() == whole[1::3].tobytes()


def test_sums_of_long_sequences_are_those_frame_by_frame():
    system, observer, gains = prepared(make_system(3, 5, 2))
    memory = int(memory_length(gains[1], 1e-13))
    for n in (1, 2, 7, len(gains[0]) + memory, 900):
        got = smoothed_sums(system, observer.factor, gains[0], memory, np.array([n]), np.array([1]))
        y, inside = np.zeros((n, 1, 3)), np.ones((n, 1), dtype=bool)
        filtered = filter_pieces(system, observer.factor, gains, y, inside, ONE, 0)
        every = smoothed_complete(system, observer.factor, gains, filtered, ONE, np.array([n]), 0)[1][:, 0]
        np.testing.assert_allclose(got.every, every.sum(axis=0), rtol=1e-9)
        np.testing.assert_allclose(got.first, every[0], rtol=1e-9)
        np.testing.assert_allclose(got.last, every[-1], rtol=1e-9)
        whole = smoothed_sums(system, observer.factor, gains[0], 10**6, np.array([n]), np.array([1]))
        np.testing.assert_allclose(got.pairs, whole.pairs, rtol=1e-9, atol=1e-12)


def test_the_filter_forgets_in_as_many_frames_as_said():
    gains = prepared(make_system(4, 3, 3))[2]
    frames = int(memory_length(gains[1], 1e-6))
    closed = in_state_units(gains[1].closed_loop[0], gains[1].root[0])
    scale = max(1.0, np.linalg.norm(closed, 2))
    assert np.linalg.norm(np.linalg.matrix_power(closed, frames), 2) <= 1e-6 * scale
    assert np.linalg.norm(np.linalg.matrix_power(closed, frames - 1), 2) > 1e-6 * scale
    constant = LinearSystem(np.eye(1), np.eye(1), 0 * np.eye(1), np.ones(1), np.zeros(1), np.eye(1), np.zeros(1))
    assert memory_length(prepared(constant)[2][1], 1e-6) > 4096


def test_another_basis_observes_the_same():
    system = make_system(3, 6, 4)
    X = draw(system, 8)
    turned = change_basis(system, np.random.default_rng(0).standard_normal((3, 3)))
    assert Dense(turned, 8).log_likelihood(X) == pytest.approx(Dense(system, 8).log_likelihood(X), rel=1e-9)


def test_forecasts_are_conditional_moments_of_later_frames():
    system = make_system(2, 3, 5)
    X, dense = draw(system, 6), Dense(system, 9)
    later = np.full((9, 3), np.nan)
    later[:6] = X
    means, covariances, _ = dense.states(later)
    found, variances = forecast(system, means[5], covariances[5], 3)
    np.testing.assert_allclose(found, system.offset + means[6:] @ system.observation.T, atol=1e-9)
    own = np.einsum("ij,tjk,ik->ti", system.observation, covariances[6:], system.observation)
    np.testing.assert_allclose(variances, own + np.diagonal(system.observation_covariance), atol=1e-9)


def test_transitions_are_pulled_back_to_the_disc():
    assert np.abs(np.linalg.eigvals(limit_eigenvalues(np.array([[1.2, 0.7], [-0.7, 1.2]])))).max() == pytest.approx(1.0)
    assert np.abs(np.linalg.eigvals(limit_eigenvalues(np.array([[2.0, 1.0], [0.0, 2.0]])))).max() <= 1.0 + 1e-6
    same = np.array([[0.5, 0.1], [0.0, 0.3]])
    assert limit_eigenvalues(same) is same


def test_correlations_by_chance_vanish_and_real_ones_stay():
    rng = np.random.default_rng(0)
    chance = np.corrcoef(rng.standard_normal((400, 20)).T)
    off = ~np.eye(20, dtype=bool)
    assert np.abs(lds_em.shrink_correlations(chance, 400)[off]).max() < 0.04
    common = rng.standard_normal((400, 1))
    real = np.corrcoef((common + rng.standard_normal((400, 20))).T)
    assert np.abs(lds_em.shrink_correlations(real, 400) - real).max() < 0.02


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize(("k", "p"), [(2, 6), (3, 20)])
def test_numbers_of_a_frame_have_the_same_bits_in_any_company(k, p, full):
    """Memory was laid out otherwise for a lone frame and for several that lack the same entries."""
    system = make_system(k, p, 1, correlated=True)
    if not full:
        system = replace(system, observation_covariance=np.diagonal(system.observation_covariance).copy())
    X = draw(system, 300, 2)
    X[np.tile(np.random.default_rng(3).random((30, p)) < 0.3, (10, 1))] = np.nan  # thirty patterns, ten times each
    observer, lacking = prepare_observer(regularised(system)), np.isnan(X).any(axis=1)
    whole = reduce_incomplete(observer, X)
    for rows in np.split(np.flatnonzero(lacking)[:60], [1, 3, 20]):
        np.testing.assert_array_equal(reduce_incomplete(observer, X[rows]), whole[rows])
