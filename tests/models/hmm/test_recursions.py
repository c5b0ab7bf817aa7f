"""Forward-backward, Viterbi and scans against the textbook recursions, also where scaled arithmetic would underflow."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import logsumexp

from dask_dca.geometry.exact import Workspace
from dask_dca.models.hmm.recursions import (
    Chains,
    Markov,
    best_paths,
    forward_backward,
    join_messages,
    join_paths,
    log_domain_transfers,
    log_transfer_matrices,
    safe_log,
    smoothed_chain,
    stationary_distribution,
)

FEW = settings(max_examples=60)


def textbook(markov, logs):
    """Log likelihood, posteriors and expected transitions of one sequence (n, k)."""
    transitions = safe_log(markov.transmat)
    alpha, beta = np.empty_like(logs), np.zeros_like(logs)
    alpha[0] = safe_log(markov.startprob) + logs[0]
    for t in range(1, len(logs)):
        alpha[t] = logs[t] + logsumexp(alpha[t - 1][:, None] + transitions, axis=0)
    for t in range(len(logs) - 2, -1, -1):
        beta[t] = logsumexp(transitions + logs[t + 1] + beta[t + 1], axis=1)
    total = logsumexp(alpha[-1])
    pairs = [np.exp(alpha[t][:, None] + transitions + logs[t + 1] + beta[t + 1] - total) for t in range(len(logs) - 1)]
    return total, np.exp(alpha + beta - total), sum(pairs, np.zeros_like(transitions))


def path_score(markov, logs, path):
    steps = safe_log(markov.transmat)[path[:-1], path[1:]].sum()
    return safe_log(markov.startprob)[path[0]] + steps + logs[np.arange(len(path)), path].sum()


KINDS = ("mixing", "sticky", "cycle", "frozen", "left to right")


def chain(kind, k, rng):
    transmat = {
        "mixing": rng.dirichlet(np.ones(k), k),
        "sticky": np.eye(k) * (1 - 1e-7) + 1e-7 / k,
        "cycle": np.roll(np.eye(k), 1, axis=1),
        "frozen": np.eye(k),
        "left to right": np.triu(rng.random((k, k))),
    }[kind]
    return Markov(rng.dirichlet(np.ones(k)), transmat / transmat.sum(axis=1, keepdims=True))


@st.composite
def problems(draw):
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    k = draw(st.integers(1, 7))
    scale = draw(st.sampled_from([0.0, 1.0, 30.0, 1000.0]))
    return chain(draw(st.sampled_from(KINDS)), k, rng), scale * rng.standard_normal((draw(st.integers(1, 90)), k)), rng


def alone(markov, logs, m=64, at=0):
    """One sequence as one chain among m."""
    k = logs.shape[1]
    whole = np.zeros((len(logs), k, m))
    whole[:, :, at] = logs
    ends = np.full((k, m), -np.log(k))
    return Chains(whole, ends, np.zeros((k, m)), np.ones(m, dtype=bool), 0)


@given(problems())
@FEW
def test_messages_are_the_textbooks_to_1e_8_a_frame(problem):
    markov, logs, _ = problem
    found = forward_backward(markov, alone(markov, logs))
    total, posteriors, _ = textbook(markov, logs)
    scale = max(1.0, np.abs(logs).max())
    assert abs(found.log_likelihoods[:, 0].sum() - total) <= 1e-8 * len(logs) * scale
    np.testing.assert_allclose(found.posteriors[:, :, 0], posteriors, atol=1e-8)


def test_what_scaled_arithmetic_would_lose_is_found_in_logarithms():
    """A state that is out of range for long, yet cannot be entered again, comes back."""
    logs = np.zeros((40, 2))
    logs[:20, 1], logs[20:, 0] = -100.0, -120.0
    markov = Markov(np.array([0.5, 0.5]), np.eye(2))
    found = forward_backward(markov, alone(markov, logs))
    assert found.log_likelihoods[:, 0].sum() == pytest.approx(textbook(markov, logs)[0], rel=1e-12)
    np.testing.assert_allclose(found.posteriors[:, 1, 0], 1.0)


def test_a_frame_that_no_state_explains_makes_no_nan():
    markov = Markov(np.array([1.0, 0.0]), np.array([[0.0, 1.0], [0.0, 1.0]]))
    found = forward_backward(markov, alone(markov, np.array([[0.0, 0.0], [-1e5, -1e5], [0.0, -1e6]])))
    assert np.isfinite(found.posteriors).all()
    assert np.isfinite(found.log_likelihoods).all()


@pytest.mark.parametrize("k", [1, 2, 3, 5, 8, 13, 20])
def test_a_chains_bits_do_not_depend_on_the_others(k):
    rng = np.random.default_rng(k)
    markov, logs = chain("mixing", k, rng), 3.0 * rng.standard_normal((30, k, 128))
    ends = np.full((k, 128), -np.log(k))
    found = forward_backward(markov, Chains(logs, ends, ends, np.zeros(128, dtype=bool), 0))
    order = rng.permutation(128)
    moved = np.ascontiguousarray(logs[:, :, order])
    again = forward_backward(markov, Chains(moved, ends, ends, np.zeros(128, dtype=bool), 0), Workspace())
    for name in ("posteriors", "log_likelihoods"):
        np.testing.assert_array_equal(getattr(again, name), getattr(found, name)[..., order])


def cut_up(logs, ends, length):
    """Pieces of `length` frames of sequences that end at `ends`, as chains; where each begins, which are first."""
    edges = [0, *ends]
    begins = [t for a, b in itertools.pairwise(edges) for t in range(a, b, length)]
    stop = np.array([min(e for e in ends if e > t) for t in begins])
    k, number = logs.shape[1], np.array(begins) + np.arange(length)[:, None]
    pieces = np.where((number < stop)[:, None], logs[np.minimum(number, len(logs) - 1)].transpose(0, 2, 1), 0.0)
    assert pieces.shape == (length, k, len(begins))
    return pieces, number + 1 < stop, np.array(begins), np.isin(begins, edges)


@given(problems(), st.integers(1, 20), st.integers(1, 60))
@FEW
def test_a_scan_over_pieces_is_exact(problem, length, split):
    markov, logs, _ = problem
    ends = sorted({min(split, len(logs)), len(logs)})
    pieces, onward, begins, first = cut_up(logs, ends, length)
    entry, leave, total = join_messages(
        markov.startprob, markov.transmat, log_transfer_matrices(markov.transmat, pieces), first
    )
    parts = [textbook(markov, logs[a:b]) for a, b in zip([0, *ends], ends, strict=False) if b > a]
    scale = max(1.0, np.abs(logs).max()) * len(logs)
    assert abs(total - sum(part[0] for part in parts)) <= 1e-8 * scale
    nowhere = np.zeros(len(begins), dtype=bool)
    found = forward_backward(markov, Chains(pieces, entry.T, leave.T, nowhere, 0))
    posteriors = np.concatenate([part[1] for part in parts])
    for m, begin in enumerate(begins):
        count = int(onward[:, m].sum()) + 1 if not onward[-1, m] else length
        np.testing.assert_allclose(found.posteriors[:count, :, m], posteriors[begin : begin + count], atol=1e-7)


def test_a_state_that_is_none_at_the_end_of_a_piece_comes_back_in_the_next():
    """It cannot be entered again, and the last frame of its piece leaves it 2,000 nats behind."""
    markov = Markov(np.array([0.5, 0.5]), np.array([[0.5, 0.5], [0.0, 1.0]]))
    logs = np.array([[0.0, -10.0], [-2000.0, 0.0], [0.0, -5000.0], [0.0, -5000.0]])
    pieces, _, _, first = cut_up(logs, [4], 2)
    entry, _, total = join_messages(
        markov.startprob, markov.transmat, log_transfer_matrices(markov.transmat, pieces), first
    )
    assert total == pytest.approx(textbook(markov, logs)[0], rel=1e-12)
    assert entry[1, 0] > -2100.0


@given(problems(), st.integers(1, 20), st.integers(1, 60))
@FEW
def test_viterbi_over_pieces_finds_a_best_path(problem, length, split):
    markov, logs, _ = problem
    logs = logs + 1e-3 * np.random.default_rng(0).standard_normal(logs.shape)
    ends = sorted({min(split, len(logs)), len(logs)})
    pieces, onward, begins, first = cut_up(logs, ends, length)
    steps = safe_log(markov.transmat)
    states, total = join_paths(safe_log(markov.startprob), log_domain_transfers(steps, pieces, onward), first)
    following = np.append(states[1:], 0)
    leave = np.where(np.append(first[1:], True), 0.0, steps[:, following])
    entry = np.where(np.arange(logs.shape[1])[:, None] == states, 0.0, -np.inf)
    paths, _ = best_paths(steps, pieces, onward, entry, leave)
    whole = np.concatenate([paths[: min(length, end - b), m] for m, b, end in zip(*_stops(begins, ends), strict=True)])
    best = 0.0
    for a, b in zip([0, *ends], ends, strict=False):
        if b > a:
            alone_path, _ = best_paths(
                steps,
                logs[a:b, :, None],
                (np.arange(b - a) < b - a - 1)[:, None],
                safe_log(markov.startprob)[:, None],
                np.zeros((logs.shape[1], 1)),
            )
            best += path_score(markov, logs[a:b], alone_path[:, 0])
            assert path_score(markov, logs[a:b], whole[a:b]) == pytest.approx(
                path_score(markov, logs[a:b], alone_path[:, 0]), rel=1e-9, abs=1e-9
            )
    assert total == pytest.approx(best, rel=1e-9, abs=1e-9)


def _stops(begins, ends):
    return range(len(begins)), begins, [min(e for e in ends if e > t) for t in begins]


def test_viterbi_is_the_best_of_all_paths():
    rng = np.random.default_rng(1)
    markov, logs = chain("mixing", 3, rng), rng.standard_normal((6, 3))
    every = np.array(np.meshgrid(*[range(3)] * 6)).reshape(6, -1).T
    best = max(path_score(markov, logs, path) for path in every)
    onward = (np.arange(6) < 5)[:, None]
    _, scores = best_paths(
        safe_log(markov.transmat), logs[:, :, None], onward, safe_log(markov.startprob)[:, None], np.zeros((3, 1))
    )
    assert scores[0] == pytest.approx(best)


@pytest.mark.parametrize("kind", KINDS)
def test_stationary_distributions_are_kept_by_the_chain(kind):
    transmat = chain(kind, 5, np.random.default_rng(0)).transmat
    found = stationary_distribution(transmat)
    np.testing.assert_allclose(found @ transmat, found, atol=1e-7)
    assert found.sum() == pytest.approx(1.0)


def test_every_row_of_a_chain_sums_to_one_also_of_unused_states():
    """A row of the transition matrix becomes zero (hmmlearn #137, hmmlearn #169)."""
    markov = smoothed_chain(np.zeros(3), np.diag([5.0, 0.0, 0.0]))
    np.testing.assert_allclose(markov.transmat.sum(axis=1), 1.0)
    assert (markov.transmat > 0.0).all()
    assert markov.startprob.sum() == pytest.approx(1.0)
