"""Chains and filters that look back only: states up to each frame, one frame at a time, and the frames that follow."""

import functools

import dask.array as da
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import log_softmax, logsumexp

import dask_dca as dca
from dask_dca.errors import InvalidInputError, InvalidParameterError
from dask_dca.models.hmm.recursions import Chains, Markov, forward_backward, safe_log
from tests.conftest import raise_if_dask_computes
from tests.contract.entries import as_bytes
from tests.strategies import chunkings

LENGTHS = [150, 1, 249]
RNG = np.random.default_rng(0)
STATES = np.repeat(RNG.integers(3, size=40), 10)
X = np.array([[0.0, 0.0], [3.0, 0.0], [0.0, 3.0]])[STATES] + RNG.standard_normal((400, 2))
SYMBOLS = (2 * STATES + RNG.integers(2, size=400))[:, None]
WITH_HOLES = np.where(RNG.random(X.shape) < 0.1, np.nan, X)
WITH_HOLES[20] = np.nan
MASKED = np.ma.masked_array(np.nan_to_num(WITH_HOLES, nan=7.0), np.isnan(WITH_HOLES))  # values that count for nothing


def left_to_right():
    """A chain that can't go back, with parameters set by hand."""
    model = dca.GaussianHMM(3, "diag")
    model.startprob_, model.transmat_ = [1.0, 0, 0], [[0.9, 0.1, 0], [0, 0.9, 0.1], [0, 0, 1.0]]
    model.means_, model.covars_ = [[0.0, 0], [3, 0], [0, 3]], np.ones((3, 2))
    return model


CHAINS = {
    "gaussian": (lambda: dca.GaussianHMM(3).fit(X, lengths=LENGTHS), X),
    "left to right": (left_to_right, X),
    "symbols": (lambda: dca.CategoricalHMM(3, max_iter=3).fit(SYMBOLS, lengths=LENGTHS), SYMBOLS),
}


@functools.cache  # not made while tests are collected, which each process does
def chain(name):
    make, frames = CHAINS[name]
    return make(), frames


EACH_CHAIN = pytest.mark.parametrize("name", CHAINS)


@EACH_CHAIN
def test_states_up_to_a_frame_are_those_of_a_sequence_that_ends_there(name):
    """The last frame of a sequence has no future: there the smoothed state is the filtered one."""
    model, frames = chain(name)
    found = model.filter(frames, lengths=LENGTHS)
    np.testing.assert_allclose(found.sum(axis=1), 1.0)
    for begin, end in ((0, 1), (0, 70), (0, 150), (150, 151), (151, 152), (151, 400)):
        cut = model.predict_proba(frames[begin:end], lengths=[end - begin])
        np.testing.assert_allclose(found[end - 1], cut[-1], atol=1e-12)


@EACH_CHAIN
def test_later_frames_change_nothing(name):
    model, frames = chain(name)
    other = frames.copy()
    other[100:150] = other[99::-1][:50]
    before, after = model.filter(frames, lengths=LENGTHS), model.filter(other, lengths=LENGTHS)
    np.testing.assert_array_equal(before[:100], after[:100])
    np.testing.assert_array_equal(before[150:], after[150:])
    assert np.abs(before[100:150] - after[100:150]).max() > 0.1


@EACH_CHAIN
def test_frame_by_frame_is_the_same(name):
    model, complete = chain(name)
    for frames in [complete] if name == "symbols" else [complete, MASKED]:
        found, state = model.filter(frames, lengths=LENGTHS), None
        for t, frame in enumerate(frames):
            state = model.filter_update(None if t in (150, 151) else state, frame)
            np.testing.assert_allclose(state, found[t], atol=1e-12)
    np.testing.assert_allclose(model.filter_update(state), state @ model.transmat_)  # a frame that is missing


@EACH_CHAIN
@given(data=st.data())
@settings(max_examples=8)
def test_any_chunking_gives_the_bits_of_memory(name, data):
    model, frames = chain(name)
    cut = da.from_array(frames, chunks=(data.draw(chunkings(len(frames))), -1))
    for recursion in ("auto", "segments") if name == "gaussian" else ("auto",):
        model.set_params(recursion=recursion)
        assert as_bytes(model.filter(frames, lengths=LENGTHS)) == as_bytes(model.filter(cut, lengths=LENGTHS))
        assert as_bytes(model.forecast(frames, 3, lengths=LENGTHS)) == as_bytes(model.forecast(cut, 3, lengths=LENGTHS))
    model.set_params(recursion="auto")


def test_segments_are_the_scan_to_what_is_forgotten():
    model, frames = chain("gaussian")
    assert model.burn_in_
    exact = model.filter(frames, lengths=LENGTHS)
    near = model.set_params(recursion="segments").filter(frames, lengths=LENGTHS)
    model.set_params(recursion="auto")
    np.testing.assert_allclose(near, exact, atol=1e-9)


def test_nothing_is_read_until_results_are_asked_for():
    model, frames = chain("gaussian")
    with raise_if_dask_computes():
        lazy = model.filter(da.from_array(frames, chunks=(90, 2)), lengths=LENGTHS)
    assert lazy.chunks == ((90, 90, 90, 90, 40), (3,))


def test_a_forecast_by_hand():
    """Two states that alternate for certain, and differ by 4: one frame ahead is known, of a mixture half is spread."""
    model = dca.GaussianHMM(2, "spherical")
    model.startprob_, model.transmat_ = [0.5, 0.5], [[0.0, 1.0], [1.0, 0.0]]
    model.means_, model.covars_ = [[0.0], [4.0]], [1.0, 9.0]
    states, means, covariances = model.forecast([[4.0], [0.0]], 2)
    np.testing.assert_allclose(states, [[0, 1], [1, 0]], atol=1e-3)
    np.testing.assert_allclose(means, [[4.0], [0.0]], atol=4e-3)
    np.testing.assert_allclose(covariances[:, 0, 0], [9.0, 1.0], atol=2e-2)
    model.transmat_ = [[0.5, 0.5], [0.5, 0.5]]
    states, means, covariances = model.forecast([[4.0]], 1)
    np.testing.assert_allclose((states[0, 0], means[0, 0], covariances[0, 0, 0]), (0.5, 2.0, 0.5 * (1 + 9) + 4.0))


def test_forecasts_are_what_samples_do():
    model = chain("gaussian")[0]
    states, means, covariances = model.forecast(X, 2, lengths=LENGTHS)
    last = model.filter(X, lengths=LENGTHS)[-1]
    np.testing.assert_allclose(states, [last @ model.transmat_, last @ model.transmat_ @ model.transmat_])
    rng = np.random.default_rng(1)
    drawn = [
        model.sample(3, random_state=rng, currstate=int(j))[0][2] for j in rng.choice(3, size=3000, p=last / last.sum())
    ]
    error = np.sqrt(np.diagonal(covariances[1]) / 3000)
    assert (np.abs(np.mean(drawn, axis=0) - means[1]) < 4.5 * error).all()
    np.testing.assert_allclose(np.cov(np.transpose(drawn)), covariances[1], rtol=0.15, atol=0.15)


def test_symbols_that_follow():
    model = chain("symbols")[0]
    states, symbols = model.forecast(SYMBOLS, 4, lengths=LENGTHS)
    assert states.shape == (4, 3)
    np.testing.assert_allclose(symbols, states @ model.emissionprob_)
    np.testing.assert_allclose(symbols.sum(axis=1), 1.0)


@given(st.integers(0, 10**6), st.sampled_from([1.0, 30.0, 1000.0]))
@settings(max_examples=30)
def test_the_recursion_against_the_textbooks_where_densities_leave_the_range(seed, scale):
    rng = np.random.default_rng(seed)
    k, steps = int(rng.integers(1, 6)), int(rng.integers(1, 60))
    transmat = np.triu(rng.random((k, k)))
    markov = Markov(rng.dirichlet(np.ones(k)), transmat / transmat.sum(axis=1, keepdims=True))
    logs = scale * rng.standard_normal((steps, k, 1))
    ends = np.full((k, 1), -np.log(k))
    found = forward_backward(markov, Chains(logs, ends, 0 * ends, np.ones(1, dtype=bool), 0)).filtered
    now, transitions = safe_log(markov.startprob), safe_log(markov.transmat)
    for t in range(steps):
        now = log_softmax(now + logs[t, :, 0])
        np.testing.assert_allclose(found[t, :, 0], np.exp(now), atol=1e-8)
        now = logsumexp(now[:, None] + transitions, axis=0)


@pytest.mark.parametrize("frames", [X, np.ma.masked_invalid(WITH_HOLES)], ids=["complete", "with holes"])
@pytest.mark.parametrize("form", ["full", "diag"])
def test_a_kalman_filter_frame_by_frame(frames, form):
    O, R = np.array([[1.0, 0.2], [0.3, 1.0]]), np.array([[1.0, 0.4], [0.4, 2.0]])
    noise = R if form == "full" else np.diagonal(R)
    model = dca.KalmanFilter.from_parameters([[0.9, 0.1], [0.0, 0.8]], O, np.eye(2), noise, [1.0, 0.0], 2 * np.eye(2))
    means, covariances = model.filter(frames, lengths=LENGTHS)
    state = (None, None)
    for t, frame in enumerate(frames):
        state = model.filter_update(*((None, None) if t in (150, 151) else state), frame)
        np.testing.assert_allclose(state[0], means[t], atol=1e-9)
        np.testing.assert_allclose(state[1], covariances[t], atol=1e-9)
    gone, spread = model.filter_update(*state)
    np.testing.assert_allclose(gone, model.transition_matrices_ @ state[0])
    assert (np.diagonal(spread) > np.diagonal(state[1])).all()


def test_pykalmans_update():
    pykalman = pytest.importorskip("pykalman")
    O, R = np.array([[1.0, 0.2], [0.3, 1.0]]), np.array([[1.0, 0.4], [0.4, 2.0]])
    own = dca.KalmanFilter.from_parameters([[0.9, 0.1], [0.0, 0.8]], O, np.eye(2), R)
    other = pykalman.KalmanFilter([[0.9, 0.1], [0.0, 0.8]], O, np.eye(2), R)
    state = np.zeros(2), np.eye(2)
    for got, wanted in zip(own.filter_update(*state, X[0]), other.filter_update(*state, observation=X[0]), strict=True):
        np.testing.assert_allclose(got, np.asarray(wanted), atol=1e-12)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: left_to_right().filter_update(None, [1.0]), "observation must have 2 entries; received 1"),
        (lambda: left_to_right().filter_update([1.0], [1.0, 2.0]), "filtered_state must have 3 entries; received 1"),
        (lambda: left_to_right().filter_update(None, [np.inf, 0]), "observation must be finite; received inf"),
        (lambda: chain("symbols")[0].filter_update(None, [np.nan]), "observation must be finite; received nan"),
        (lambda: left_to_right().forecast(X, 0), "n_steps"),
    ],
)
def test_bad_input_is_refused(call, message):
    with pytest.raises((InvalidInputError, InvalidParameterError), match=message):
        call()


def test_covariances_of_too_many_features_are_refused():
    model = dca.GaussianHMM(1, "spherical")
    model.startprob_, model.transmat_, model.means_, model.covars_ = [1.0], [[1.0]], np.zeros((1, 2001)), [1.0]
    with pytest.raises(InvalidInputError, match=r"ahead @ model.means_"):
        model.forecast(np.zeros((2, 2001)))
