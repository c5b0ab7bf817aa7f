"""Fitting on a sample: sums by doubling, moments of windows, noises, and accelerated EM."""

import itertools
from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import solve_discrete_are

import dask_dca as dca
from dask_dca.engine.passes import Run
from dask_dca.engine.rows import as_rows
from dask_dca.models.kalman import fit as kalman_fit
from dask_dca.models.kalman.em import accelerated_em, corrected_e_step, corrected_sums, expected_log_density, m_step
from dask_dca.models.kalman.passes import e_step_pass
from dask_dca.models.kalman.pieces import prepare
from dask_dca.models.kalman.scan import e_step, frame_ages, scan
from dask_dca.models.kalman.start import InnovationsForm, independent_noises, start_from_frames, window_moments
from tests.models.kalman.data import draw, hidden_oscillation, make_system
from tests.strategies import chunkings


@given(st.data())
@settings(max_examples=20)
def test_doubling_is_the_recursion(data):
    lengths = [n for n in data.draw(chunkings(60, most=5)) if n]
    edges = np.cumsum([0, *lengths])
    rng = np.random.default_rng(0)
    step, values, ages = 0.5 * rng.standard_normal((2, 2)), rng.standard_normal((60, 2)), frame_ages(edges)
    wanted = values.copy()
    for t in range(60):
        if ages[t]:
            wanted[t] += step @ wanted[t - 1]
    np.testing.assert_allclose(scan(step, values, ages), wanted, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("lengths", [[400], [1, 5, 40, 2, 90, 7, 7], [12] * 20])
def test_sums_on_a_sample_are_those_of_a_pass(lengths, full):
    system = replace(make_system(3, 5, 1, correlated=full), initial_mean=np.array([1.0, -2.0, 0.5]))
    if not full:
        system = replace(system, observation_covariance=np.diagonal(system.observation_covariance).copy())
    frames, edges = np.concatenate([draw(system, n, n) for n in lengths]), np.cumsum([0, *lengths])
    plan = prepare(system, edges, np.zeros(5), np.ones(5), tolerance=1e-12, n_frames=256, width=60)
    wanted = e_step_pass(as_rows(frames), plan, Run(), missing=False, full=full, second=None)
    second = frames.T @ frames if full else (frames**2).sum(axis=0)
    sums, likelihood = e_step(system, frames, edges, second)
    assert likelihood == pytest.approx(wanted.log_likelihood, abs=1e-3)
    for field in fields(sums):
        one, other = getattr(sums, field.name), getattr(wanted.sums, field.name)
        if other is not None:
            np.testing.assert_allclose(one, other, atol=1e-4 * np.abs(other).max(), err_msg=field.name)


@pytest.mark.parametrize("lengths", [[50], [20, 3, 9, 18]])
def test_moments_of_windows_are_those_of_the_windows(lengths):
    rng, edges, depth = np.random.default_rng(0), np.cumsum([0, *lengths]), 3
    frames, z = rng.standard_normal((50, 4)), rng.standard_normal((50, 2))
    begins = [t for a, b in itertools.pairwise(edges) for t in range(a, b - 2 * depth + 1)]
    windows = np.stack([z[t : t + 2 * depth].ravel() for t in begins])
    now = frames[np.add(begins, depth)]
    found = window_moments(frames, z, edges, depth, diagonal=False)
    assert found.n == len(begins)
    np.testing.assert_allclose(found.moment, windows.T @ windows / len(begins), atol=1e-8)
    np.testing.assert_allclose(found.cross, now.T @ windows[:, : (depth + 1) * 2] / len(begins), atol=1e-12)
    np.testing.assert_allclose(found.covariance, now.T @ now / len(begins), atol=1e-12)
    moment, cross = found.centre(2)
    np.testing.assert_array_equal(moment, found.moment[2:10, 2:10])
    np.testing.assert_array_equal(cross, found.cross[:, 2:])


@pytest.mark.parametrize("diagonal", [False, True])
def test_noises_are_those_of_the_steady_filter_where_a_frame_shows_the_state(diagonal):
    system = make_system(2, 6, 3)
    T, O, R = system.transition, 0.7 * system.observation, system.observation_covariance
    P = solve_discrete_are(T.T, O.T, np.eye(2), R)
    V = O @ P @ O.T + R
    form = InnovationsForm(T, O, T @ P @ O.T, V)
    Q, found = independent_noises(form)
    np.testing.assert_allclose(Q, np.eye(2), atol=1e-6)
    np.testing.assert_allclose(found, R, atol=1e-6)
    if diagonal:
        assert independent_noises(replace(form, covariance=np.diagonal(V).copy()))[1].shape == (6,)


def test_the_m_step_is_at_the_top_of_its_objective():
    system = make_system(2, 4, 2)
    frames, edges = draw(system, 200), np.array([0, 120, 200])
    sums = e_step(replace(system, observation_covariance=np.ones(4)), frames, edges, (frames**2).sum(axis=0))[0]
    best = m_step(sums)
    top = expected_log_density(best, sums)
    rng = np.random.default_rng(0)
    for name in ("transition", "observation", "transition_covariance", "observation_covariance", "offset"):
        value = getattr(best, name)
        for _ in range(5):
            moved = 1e-2 * np.abs(value).max() * rng.standard_normal(value.shape)
            moved = moved + moved.T if name == "transition_covariance" else moved
            assert expected_log_density(replace(best, **{name: value + moved}), sums) < top


def started(seed=0, n=1000):
    frames = draw(hidden_oscillation(), n, seed)
    frames = (frames - frames.mean(axis=0)) / frames.std(axis=0)
    edges, second = np.array([0, n]), (frames**2).sum(axis=0)
    return start_from_frames(frames, edges, 2, diagonal=True).system, frames, edges, second


def test_accelerated_em_is_faster_than_its_steps():
    """Ten looks, and ten steps of EM, from noises that are far off: EM moves them slowly."""
    system, *data = started()
    system = replace(system, transition_covariance=20.0 * system.transition_covariance)

    def look(now):
        return e_step(now, *data)

    plain = system
    for _ in range(10):
        plain = m_step(look(plain)[0])
    first, climbed = look(system)[1], look(accelerated_em(system, look, 10))[1]
    assert look(plain)[1] > first + 1.0
    assert climbed > look(plain)[1] + 1.0
    one, step = accelerated_em(system, look, 1), m_step(look(system)[0])
    np.testing.assert_array_equal(one.transition, step.transition)


def test_a_corrected_sample_has_the_fixed_point_of_all_frames():
    system, frames, edges, second = started(n=3000)

    def look(now):
        return e_step(now, frames, edges, second)

    def glance(now):
        return e_step(now, frames[:1000], np.array([0, 1000]), (frames[:1000] ** 2).sum(axis=0))

    best = accelerated_em(accelerated_em(system, look, 60), look, 60)
    alone = accelerated_em(accelerated_em(system, glance, 30), glance, 30)
    lost = [look(best)[1] - look(alone)[1]]
    for _ in range(2):
        alone = accelerated_em(alone, corrected_e_step(glance, look(alone)[0], alone), 30)
        lost.append(look(best)[1] - look(alone)[1])
    assert lost[0] > 1.0
    assert lost[1] < 0.3 * lost[0]
    assert lost[2] < 0.1
    whole, part = look(system)[0], glance(system)[0]
    np.testing.assert_array_equal(corrected_sums(whole, part, part).every, whole.every)


def test_few_corrected_passes_reach_what_all_frames_say(monkeypatch):
    """From less than a third of the frames: as good as a fit that has them all for a sample."""
    X = draw(hidden_oscillation(), 20_000, 1)
    whole = dca.KalmanFilter(2, covariance_type="diag").fit(X)
    monkeypatch.setattr(kalman_fit, "_MAX_SAMPLE_FRAMES", 6000)
    few = dca.KalmanFilter(2, covariance_type="diag").fit(X)
    assert 20_000 * (whole.log_likelihoods_[-1] - few.log_likelihoods_[0]) > 5.0
    assert 20_000 * (whole.log_likelihoods_[-1] - few.log_likelihoods_[-1]) < 0.3
