"""KalmanFilter with given parameters: equal to 150 digits whatever their scales, and whatever is missing where."""

from dataclasses import replace

import dask.array as da
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dask_dca as dca
from dask_dca.errors import InvalidInputError
from dask_dca.models.kalman import pieces as kalman_pieces
from dask_dca.models.kalman.filter import memory_length, start_gains, steady_gains
from dask_dca.models.kalman.system import (
    LinearSystem,
    change_basis,
    prepare_observer,
    regularised,
    sample_system,
)
from tests.models.kalman.data import make_system, model_of
from tests.models.kalman.decimal_filter import Reference


def check(system, X, rtol=1e-6):
    """To a share of each state's greatest mean and of its standard deviation; covariances by the deviations alone."""
    model, wanted = model_of(system), Reference(system, X)
    vague = 1e-13 * np.sqrt(np.diagonal(system.initial_covariance))  # rounding of what a first frame takes back
    for (means, covariances), (M, C) in ((model.filter(X), wanted.filtered), (model.smooth(X), wanted.smoothed)):
        size, spread = np.abs(M).max(axis=0), np.sqrt(np.diagonal(C, axis1=1, axis2=2))
        assert (np.abs(means - M) <= rtol * (size + spread) + vague).all()
        near = spread + 1e-13 * size  # some are known to rounding
        assert (np.abs(covariances - C) <= rtol * near[:, :, None] * near[:, None, :]).all()
        assert (np.diagonal(covariances, axis1=1, axis2=2) >= 0.0).all()
    assert model.loglikelihood(X) == pytest.approx(wanted.log_likelihood, rel=rtol, abs=1e-6)


def scales(rng, k, low, high):
    return 2.0 ** np.rint(np.log2(10.0) * 0.5 * rng.uniform(low, high, k))


def covariance(rng, size, rank=None):
    """Of numbers that are exact in binary, so that low rank is no matter of rounding."""
    factor = rng.integers(-3, 4, (len(size), len(size) if rank is None else rank)).astype(np.float64)
    return (factor @ factor.T + (np.eye(len(size)) if rank is None else 0.0)) * np.multiply.outer(size, size)


@st.composite
def problems(draw):
    """Variances from 1e-12 to 1e12, singular Q and P0, any R; frames near the system's or far from it; gaps."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    k, p, n = draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.integers(1, 6))
    T = rng.standard_normal((k, k))
    T *= rng.uniform(0.5, 1.1) / max(np.abs(np.linalg.eigvals(T)).max(), 0.5)
    rank = st.one_of(st.none(), st.integers(0, k))
    Q = covariance(rng, scales(rng, k, -9, 2), draw(rank))
    P0 = covariance(rng, scales(rng, k, -6, 12), draw(rank))
    R = scales(rng, p, -12, 2)
    R = covariance(rng, R) if draw(st.booleans()) else R**2
    system = LinearSystem(T, rng.standard_normal((p, k)), Q, R, rng.standard_normal(k), P0, rng.standard_normal(p))
    X = sample_system(replace(system, initial_covariance=np.eye(k)), n, rng)[1]
    if draw(st.booleans()):
        X = 10.0 ** rng.uniform(-3, 3) * rng.standard_normal((n, p))
    if draw(st.booleans()):
        X[rng.random(X.shape) < 0.3] = np.nan
    return system, X


@given(problems())
@settings(max_examples=30)
def test_all_scales_agree_with_150_digits(problem):
    check(*problem)


def test_a_beginning_a_million_times_vaguer_than_the_states():
    """Found by random examples: a gain near one takes back a mean of that uncertainty, and leaves its rounding."""
    system = LinearSystem(
        np.array([[0.4171, -0.3755, -1.1291], [-1.1578, -0.214, -0.4337], [0.6285, 0.1966, 1.0094]]),
        np.array([[0.2293, -1.7818, 0.706], [-1.3958, 0.609, -0.0615], [-1.3933, -2.0719, 0.7616]]),
        np.diag([5.4e-07, 3e-07, 5.0]),
        np.full(3, 2.0**-36),
        np.array([-0.9726, 2.9827, -0.8673]),
        np.array([[1.25 * 2.0**43, 24576.0, 9 * 2.0**26], [24576.0, 7 * 2.0**-13, 3.0], [9 * 2.0**26, 3.0, 40960.0]]),
        np.array([-0.4684, 0.0141, -0.1027]),
    )
    check(system, np.array([[0.0019, -0.3843, 0.5986], [-0.2566, -0.0606, 0.1647]]))


@pytest.mark.parametrize("gap", [False, True])
@pytest.mark.parametrize("seed", [0, 2, 3, 4])
def test_one_noise_a_million_times_that_of_the_frames(seed, gap):
    """Surprises are a million deviations of the frames long; products with their inverse covariance would cancel."""
    rng, way = np.random.default_rng(seed), np.array([0.03125, 0.5, 24.0])
    T, H = rng.standard_normal((3, 3)) / 3.0, rng.standard_normal((3, 3))
    noise, mean = np.full(3, 2.0**-36), rng.standard_normal(3)
    system = LinearSystem(T, H, np.outer(way, way), noise, mean, np.eye(3), np.zeros(3))
    X = sample_system(system, 6, rng)[1]
    X[2, 1] = np.nan if gap else X[2, 1]
    check(system, X)


def scalar(T, Q, R, P0, mean=0.0):
    one = np.eye(1)
    return LinearSystem(T * one, one, Q * one, R * one, np.full(1, mean), P0 * one, np.zeros(1))


def test_small_noise_beside_a_vague_beginning():
    model, X = model_of(scalar(1.0, 1e-9, 1e-8, 1e6)), np.array([[1e-4], [2e-4]])
    variance = 1.1e-8 * 1e-8 / 2.1e-8  # 1e-8 after the first frame, 1.1e-8 before the second
    assert model.filter(X)[1][1, 0, 0] == pytest.approx(variance, rel=1e-9)
    surprises = np.array([1e-4**2 / 1e6, 1e-4**2 / 2.1e-8])
    wanted = -0.5 * (np.log(2 * np.pi * np.array([1e6, 2.1e-8])) + surprises).sum()
    assert model.loglikelihood(X) == pytest.approx(wanted, rel=1e-9)
    assert model.loglikelihood(X) == pytest.approx(-0.144, abs=5e-4)
    far = model_of(scalar(1.0, 0.1, 0.3, 1e12))
    assert far.loglikelihood(np.arange(1.0, 9.0)[:, None]) == pytest.approx(-41.49, abs=0.005)


@pytest.mark.parametrize(("vague", "noise"), [(1.0, 1e-8), (1e8, 1.0), (1e12, 1.0), (1e12, 1e-8)])
def test_trend_and_season(vague, noise):
    T = np.zeros((5, 5))
    T[0, :2] = T[1, 1] = T[3, 2] = T[4, 3] = 1.0
    T[2, 2:] = -1.0
    kicks = np.diag([0.01, 0.001, 0.01, 0.0, 0.0])
    O = np.array([[1.0, 0.0, 1.0, 0.0, 0.0]])
    system = LinearSystem(T, O, kicks, np.full(1, noise), np.zeros(5), vague * np.eye(5), np.zeros(1))
    X = np.random.default_rng(0).standard_normal((16, 1)).cumsum(axis=0)
    check(system, X)
    X[3:5] = np.nan
    check(system, X)


def test_a_state_that_is_never_seen_changes_nothing():
    """Its variance of 1e14 hid from the table of gains that the other state's still changed."""
    system = scalar(1.0, 1e-3, 1.0, 1.0)
    both = LinearSystem(
        np.eye(2),
        np.array([[1.0, 0.0]]),
        np.diag([1e-3, 0.0]),
        np.ones(1),
        np.zeros(2),
        np.diag([1.0, 1e14]),
        np.zeros(1),
    )
    X = np.random.default_rng(0).standard_normal((200, 1)).cumsum(axis=0)
    for found, wanted in zip((*model_of(both).filter(X),), model_of(system).filter(X), strict=True):
        np.testing.assert_allclose(found[:, 0].reshape(200, -1)[:, 0], wanted.ravel(), rtol=1e-9)


def test_a_filter_that_never_forgets_is_exact_for_all_frames(monkeypatch):
    """A table of gains that ends while they still change is not that of later frames."""
    monkeypatch.setattr(kalman_pieces, "MAX_MEMORY_FRAMES", 100)
    Y, count = np.random.default_rng(0).standard_normal((700, 1)) + 5.0, np.arange(1, 701)[:, None] + 1e-6
    means, covariances = model_of(scalar(1.0, 0.0, 1.0, 1e6)).filter(Y)
    np.testing.assert_allclose(means, Y.cumsum(axis=0) / count, rtol=1e-9)
    np.testing.assert_allclose(covariances[:, 0], 1.0 / count, rtol=1e-9)


def test_a_known_state_stays_known():
    """What is known without noise is never learnt from frames, though the Riccati equation has another solution."""
    Y = np.random.default_rng(0).standard_normal((600, 1))
    means, covariances = model_of(scalar(1.02, 0.0, 1.0, 0.0, mean=1e-3)).filter(Y)
    np.testing.assert_allclose(means[:, 0], 1e-3 * 1.02 ** np.arange(600), rtol=1e-9)
    assert not covariances.any()


def test_units_of_states_do_not_change_what_is_remembered():
    system = make_system(3, 4, 2)
    frames = []
    for basis in (np.eye(3), np.diag([2.0**30, 1.0, 2.0**-30])):
        changed = regularised(change_basis(system, basis))
        frames.append(memory_length(steady_gains(start_gains(changed, prepare_observer(changed).factor)), 1e-12))
    assert frames[0] == frames[1]


GAP = scalar(0.999, 1.0, 0.01, 500.0)


def with_gap(length):
    X = model_of(GAP).sample(600, random_state=1)[1]
    X[300 - length : 300] = np.nan
    return X


def test_states_after_a_gap_know_what_was_before_it(monkeypatch):
    """The filter forgets in 8 frames, but not in those that are missing: pieces of 256 frames began amid the gap."""
    X, model = with_gap(150), model_of(GAP)

    def results():
        return (*model.filter(X), *model.smooth(X), model.predict(X), model.loglikelihood(X))

    found = results()
    monkeypatch.setattr(kalman_pieces, "_PIECE_FRAMES", 600)
    for one, whole in zip(found, results(), strict=True):
        np.testing.assert_allclose(one, whole, rtol=1e-9, atol=1e-12)


def test_a_gap_too_long_for_chunks_is_an_error_that_says_what_to_do():
    model, X = model_of(GAP), da.from_array(with_gap(150), chunks=(400, 1))
    for result in (lambda: model.filter(X)[0].compute(), lambda: model.loglikelihood(X), model.predict(X).compute):
        with pytest.raises(InvalidInputError, match=r"so many entries of frames 256 .* are missing .* X\.compute\(\)"):
            result()
    short = da.from_array(with_gap(30), chunks=(400, 1))
    assert model.loglikelihood(short) == model.loglikelihood(with_gap(30))
    forgets = model_of(scalar(0.5, 1.0, 0.01, 500.0))
    assert forgets.loglikelihood(X) == forgets.loglikelihood(with_gap(150))


def test_singular_noise_is_met_and_other_noise_is_kept():
    """Noise of a billionth beside a beginning of 1e12 was raised to 1."""
    full = np.array([[1.0, 0.5], [0.5, 1.0]])
    for noise in (np.array([1e-9, 2.0]), 1e-9 * full, np.diag([1e-9, 1e9]) @ full @ np.diag([1e-9, 1e9])):
        system = LinearSystem(np.eye(1), np.ones((2, 1)), np.eye(1), noise, np.zeros(1), 1e12 * np.eye(1), np.zeros(2))
        np.testing.assert_array_equal(regularised(system).observation_covariance, noise)
    model = dca.KalmanFilter.from_parameters([[0.5]], [[1.0]], [[1.0]], [0.0], [0.0], [[1e12]])
    X = np.array([[3.0], [1.0], [2.0]])
    np.testing.assert_allclose(model.filter(X)[0], X, rtol=1e-9)
    wanted = -0.5 * (3 * np.log(2 * np.pi) + np.log(1e12) + 9e-12 + (1 - 1.5) ** 2 + (2 - 0.5) ** 2)
    assert model.loglikelihood(X) == pytest.approx(wanted, rel=1e-9)
