"""Steps on a sample: plain and corrected ones; splits and mergers of states."""

import numpy as np
import pytest

from benchmarks.markov_data import chain
from dask_dca.engine.sequences import as_edges
from dask_dca.models.hmm.model import labelled_model
from dask_dca.models.hmm.split import (
    _merge_losses,
    _transition_savings,
    baum_welch,
    corrected_steps,
    e_step,
    split_and_merge,
    standard_frames,
)

KINDS = ("diag", "full", "tied", "spherical")


def frames_of(X, kind="diag", lengths=None):
    standard = (X - X.mean(axis=0)) / X.std()
    return standard_frames(standard, as_edges(lengths, len(X)), kind, np.full(X.shape[1], 1e-6))


def labelled(sample, labels, k):
    return labelled_model(sample.frames, sample.edges, labels, k, sample.kind, sample.floors)


@pytest.mark.parametrize("kind", KINDS)
def test_steps_raise_the_likelihood_and_end_where_it_rises_no_more(kind):
    data = chain(4, 3, 1.5, 1500, 0)
    sample = frames_of(data.frames, kind, [700, 1, 799])
    start = labelled(sample, np.random.default_rng(0).integers(4, size=1500), 4)
    model, heights = start, [e_step(start, sample).log_likelihood]
    for _ in range(30):
        model, seen = baum_welch(model, sample, 1)
        heights.append(seen.log_likelihood)
    rises = np.diff(heights)
    assert (rises > -0.02).all()  # covariances borrow from each other: not quite monotone
    assert baum_welch(start, sample, 30)[1].log_likelihood == heights[-1]
    tol = 1.01 * float(rises[9:].max())
    ends = 1 + int((rises < tol).argmax())
    assert (rises < tol).any()
    assert baum_welch(start, sample, 30, tol)[1].log_likelihood == heights[ends]


def test_posteriors_name_the_states_in_time():
    data = chain(3, 4, 6.0, 900, 1)
    sample = frames_of(data.frames, lengths=[100, 300, 500])
    seen = e_step(labelled(sample, data.states, 3), sample)
    assert (seen.labels == data.states).mean() > 0.95


@pytest.mark.parametrize("kind", ["diag", "full"])
def test_one_corrected_pass_is_worth_several(kind):
    """All frames, and a sample of a fifth of them: one pass and four steps come nearer than three plain passes."""
    data = chain(3, 3, 1.5, 10_000, 2)
    whole, some = frames_of(data.frames, kind), None
    some = standard_frames(whole.frames[:2000], as_edges(None, 2000), kind, whole.floors)
    own = baum_welch(labelled(some, data.states[:2000], 3), some, 200, 1e-3)[0]
    best = baum_welch(own, whole, 200, 1e-3)[1].log_likelihood
    seen = e_step(own, whole)
    found = corrected_steps(own, some, seen.expected, 5.0, 4)
    lost = best - e_step(found, whole).log_likelihood
    plain = [best - baum_welch(own, whole, steps)[1].log_likelihood for steps in (0, 3)]
    assert -0.1 < lost < plain[1] < plain[0]


def test_a_correction_that_leaves_a_state_nothing_is_not_taken():
    data = chain(3, 3, 2.0, 3000, 3)
    whole = frames_of(data.frames)
    some = standard_frames(whole.frames[:500], as_edges(None, 500), "diag", whole.floors)
    model = labelled(whole, data.states, 3)
    seen = e_step(model, whole)
    found = corrected_steps(model, some, seen.expected, 500.0, 4)  # the difference is negative
    np.testing.assert_array_equal(found.means, baum_welch(model, whole, 1)[0].means)


@pytest.mark.parametrize("kind", KINDS)
def test_two_states_in_one_and_one_in_two_are_put_right(kind):
    """Two near states on the left are one, and one on the right is two: steps of Baum-Welch do not get across."""
    rng = np.random.default_rng(0)
    states = np.repeat(rng.integers(4, size=200), 10)
    X = rng.standard_normal((2000, 2)) + np.array([[-24.0, 0.0], [-20.0, 0.0], [20.0, 0.0], [24.0, 0.0]])[states]
    sample = frames_of(X, kind)
    wrong = np.where(states == 1, 0, states)
    wrong[(states == 2) & (X[:, 1] > 0.0)] = 1
    best = baum_welch(labelled(sample, states, 4), sample, 20, 0.01)[1].log_likelihood
    stuck = baum_welch(labelled(sample, wrong, 4), sample, 40, 0.01)[1].log_likelihood
    found = split_and_merge(labelled(sample, wrong, 4), sample)
    assert stuck < best - 100.0
    assert baum_welch(found, sample, 20, 0.01)[1].log_likelihood > best - 0.1


def test_states_that_differ_in_how_long_they_last_are_split_by_time():
    """Two visits in turn of states at one place and of two spreads: no side by place tells them apart."""
    rng = np.random.default_rng(0)
    states = np.tile(np.repeat([0, 1, 2, 3], 40), 25)
    X = np.array([[0.0, 0.0], [8.0, 0.0], [0.0, 0.0], [0.0, 8.0]])[states] + rng.standard_normal((4000, 2))
    X[states == 2] *= 1.5
    sample = frames_of(X)
    best = baum_welch(labelled(sample, states, 4), sample, 10)[1].log_likelihood
    wrong = np.where(states == 2, 0, states)
    wrong[(states == 1) & (X[:, 1] > 0)] = 2
    found = split_and_merge(labelled(sample, wrong, 4), sample)
    assert baum_welch(found, sample, 20, 0.01)[1].log_likelihood > best - 0.1


def test_code_savings_are_those_of_joined_counts():
    """sum T log(T / row sums), of the counts of k states and of k - 1."""

    def code(T):
        return float((T * np.log(T / T.sum(axis=1, keepdims=True))).sum())

    T = np.random.default_rng(0).gamma(1.0, size=(5, 5))
    found = _transition_savings(T)
    for i, j in ((0, 1), (1, 4), (2, 3)):
        joined = T.copy()
        joined[i] += joined[j]
        joined[:, i] += joined[:, j]
        joined = np.delete(np.delete(joined, j, 0), j, 1)
        assert found[i, j] == pytest.approx(code(joined) - code(T))


@pytest.mark.parametrize("kind", KINDS)
def test_the_least_loss_is_that_of_twins(kind):
    data = chain(3, 4, 5.0, 2000, 0)
    sample = frames_of(data.frames, kind)
    twins = np.where((data.states == 2) & (np.arange(2000) % 2 == 0), 3, data.states)
    model = labelled(sample, twins, 4)
    losses = _merge_losses(model, e_step(model, sample))
    assert divmod(int(losses.argmin()), 4) == (2, 3)
    assert losses[2, 3] < 0.1 * losses[0, 1]
