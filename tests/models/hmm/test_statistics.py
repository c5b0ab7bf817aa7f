"""What hidden Markov models find: the best of many basins, states of several kinds, hmmlearn's likelihood and more."""

import numpy as np
import pytest
from hmmlearn import hmm as hmmlearn
from sklearn.metrics import adjusted_rand_score

import dask_dca as dca
from benchmarks.markov_data import chain, one_dimensional
from dask_dca.models.hmm.shrinkage import prior_variances

pytestmark = pytest.mark.filterwarnings("ignore::dask_dca.errors.FewerAnchorsWarning")


def truth(data):
    model = dca.GaussianHMM(len(data.means))
    model.startprob_, model.transmat_, model.means_ = data.startprob, data.transmat, data.means
    model.covars_ = data.deviations**2
    return model


def excess(model, data):
    """Held-out log likelihood per frame above that of the truth."""
    return (model.score(data.fresh) - truth(data).score(data.fresh)) / len(data.fresh)


def agreement(model, data):
    """Share of the frames in the right state, states matched by majority."""
    found = model.predict(data.frames)
    k = len(data.means)
    table = np.array([np.bincount(data.states[found == j], minlength=k) for j in range(k)])
    return table.max(axis=1).sum() / len(found)


def from_random(X, seed, **options):
    """Baum-Welch from random means and transitions."""
    rng = np.random.default_rng(seed)
    model = hmmlearn.GaussianHMM(4, "diag", init_params="", **options)
    model.startprob_, model.transmat_ = np.full(4, 0.25), rng.dirichlet(np.ones(4), 4)
    model.means_, model.covars_ = rng.standard_normal((4, 1)) + X.mean(), np.full((4, 1), X.var())
    return model.fit(X)


def test_the_best_basin_with_every_seed():
    """Random starts of Baum-Welch miss the best basin of four states on a line."""
    X = one_dimensional(0)
    truths = hmmlearn.GaussianHMM(4, "diag", n_iter=100, tol=1e-2, init_params="")
    truths.startprob_, truths.transmat_ = np.full(4, 0.25), np.full((4, 4), 0.02) + 0.92 * np.eye(4)
    truths.means_, truths.covars_ = np.array([[-3.0], [-1.0], [1.0], [3.0]]), np.full((4, 1), 0.36)
    best = truths.fit(X).score(X)
    ours = [dca.GaussianHMM(4, n_iter=60, random_state=seed).fit(X).score(X) for seed in range(5)]
    assert min(ours) > best - 2.0
    theirs = [from_random(X, seed, n_iter=60).score(X) for seed in range(4)]
    assert min(theirs) < best - 100.0  # there are other basins


@pytest.mark.parametrize("seed", range(2))
def test_far_states_do_not_hide_that_near_ones_differ(seed):
    """Two pairs of states 8 standard deviations apart, 20,000 from each other: a millionth of the variance is 100."""
    rng = np.random.default_rng(seed)
    states = np.repeat(rng.integers(4, size=80), 10)
    frames = np.array([0.0, 8.0, 20_000.0, 20_008.0])[states] + rng.standard_normal(800)
    model = dca.GaussianHMM(4).fit(frames[:, None])
    np.testing.assert_allclose(np.sort(model.means_.ravel()), [0, 8, 20_000, 20_008], atol=1.0)


@pytest.mark.parametrize("seed", range(2))
def test_held_out_likelihood_is_near_the_truths_and_above_hmmlearns(seed):
    data = chain(6, 20, 2.5, 5000, seed)
    ours = excess(dca.GaussianHMM(6).fit(data.frames), data)
    theirs = excess(hmmlearn.GaussianHMM(6, "diag", random_state=seed).fit(data.frames), data)
    assert ours > -0.04
    assert ours > theirs


@pytest.mark.parametrize("seed", range(4))
def test_few_frames_of_close_states_miss_none(seed):
    data = chain(6, 20, 2.5, 1000, seed)
    assert excess(dca.GaussianHMM(6).fit(data.frames), data) > -0.21  # a state that is missed costs .15 more


@pytest.mark.parametrize("seed", range(2))
def test_states_of_equal_means_are_told_apart_by_their_variances(seed):
    data = chain(4, 6, 0.0, 4000, seed, "variances")
    for kind in ("diag", "full"):
        model = dca.GaussianHMM(4, kind).fit(data.frames)
        assert agreement(model, data) > agreement(truth(data), data) - 0.05


def test_a_transition_matrix_of_low_rank():
    data = chain(6, 20, 4.0, 5000, 0, "low rank")
    assert excess(dca.GaussianHMM(6).fit(data.frames), data) > -0.05


@pytest.mark.parametrize("seed", [2, 3])
def test_states_that_differ_in_correlations_only_are_told_apart(seed):
    """Eight states of equal means and variances in twenty features: these draws fail without lifted features."""
    rng = np.random.default_rng(seed)
    states, factors = np.repeat(rng.integers(8, size=200), 15), rng.standard_normal((8, 20, 2))
    covariances = factors @ factors.transpose(0, 2, 1) + 0.3 * np.eye(20)
    deviations = np.sqrt(covariances.diagonal(axis1=1, axis2=2))
    roots = np.linalg.cholesky(covariances / (deviations[:, :, None] * deviations[:, None, :]))
    frames = np.einsum("nij,nj->ni", roots[states], rng.standard_normal((3000, 20)))
    found = dca.GaussianHMM(8, covariance_type="full").fit(frames).predict(frames)
    assert adjusted_rand_score(states, found) > 0.99


def test_correlated_noise_is_seen_and_modelled():
    data = chain(6, 12, 3.0, 4000, 0, "correlated")
    chosen = dca.GaussianHMM(6, "auto").fit(data.frames)
    assert chosen.covariance_type_ == "tied"
    assert chosen.score(data.fresh) > dca.GaussianHMM(6).fit(data.frames).score(data.fresh) + 100.0
    plain = chain(6, 12, 3.0, 4000, 0)
    assert dca.GaussianHMM(6, "auto").fit(plain.frames).covariance_type_ == "diag"


def test_more_states_than_features():
    data = chain(6, 2, 5.0, 4000, 3)
    best = max(
        hmmlearn.GaussianHMM(6, "diag", random_state=s, n_iter=50).fit(data.frames).score(data.fresh) for s in range(2)
    )
    assert dca.GaussianHMM(6, max_iter=30).fit(data.frames).score(data.fresh) > best - 0.01 * len(data.fresh)


def test_wide_frames_are_sketched():
    data = chain(4, 600, 6.0, 1500, 0)
    model = dca.GaussianHMM(4).fit(data.frames)
    assert agreement(model, data) > 0.99


@pytest.mark.parametrize("k", [1, 5])
def test_the_number_of_states_is_found(k):
    data = chain(k, 6, 4.0, 2000, 1) if k > 1 else None
    X = data.frames if data else np.random.default_rng(0).standard_normal((2000, 6))
    model = dca.GaussianHMM().fit(X)
    assert model.n_components_ == k
    assert model.n_components_range_[0] <= k <= model.n_components_range_[1]


def test_sequences_are_not_joined():
    """Half of the sequences begin where no sequence ends: joined, that would be a transition."""
    rng = np.random.default_rng(0)
    states = np.tile(np.repeat([0, 1], 10), 60)
    X = np.array([[-3.0], [3.0]])[states] + rng.standard_normal((1200, 1))
    model = dca.GaussianHMM(2).fit(X, lengths=[20] * 60)
    upper = int(model.means_[:, 0].argmax())
    assert model.transmat_[upper, upper] > 0.99
    assert model.startprob_[upper] < 0.05
    assert dca.GaussianHMM(2).fit(X).transmat_[upper, upper] < 0.95


def sized(deviations, n, seed):
    """Frames of states that stay ten frames and whose noises have these deviations, and the model they are of."""
    rng, k = np.random.default_rng(seed), len(deviations)
    states = np.zeros(n, dtype=int)
    for t in range(1, n):
        states[t] = states[t - 1] if rng.random() < 0.9 else (states[t - 1] + rng.integers(1, k)) % k
    truth = hmmlearn.GaussianHMM(k)
    truth.startprob_, truth.transmat_ = (
        np.full(k, 1 / k),
        np.full((k, k), 0.1 / (k - 1)) + np.eye(k) * (0.9 - 0.1 / (k - 1)),
    )
    truth.means_ = rng.standard_normal((k, 6))
    truth.covars_ = np.repeat(np.square(deviations)[:, None], 6, axis=1)
    return truth.means_[states] + np.take(deviations, states)[:, None] * rng.standard_normal((n, 6)), truth


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("kind", ["diag", "full", "spherical"])
@pytest.mark.parametrize("deviations", [(1.0, 0.1), (1.0, 0.01), (1.0, 0.3, 0.03)])
def test_a_quiet_state_keeps_its_own_scale(deviations, kind, seed):
    """Frames that it borrows from louder states, as they are, would be louder than it: 0.8 to 8 nats of a frame."""
    X, truth = sized(deviations, 1000, seed)
    model = dca.GaussianHMM(len(deviations), covariance_type=kind).fit(X[:500])
    assert model.score(X[500:]) > truth.score(X[500:]) - 500 * (0.25 if kind == "full" else 0.1)


def test_the_distribution_of_variances_is_that_they_were_drawn_from():
    rng = np.random.default_rng(0)
    variances = 3.0 * 5.0 / rng.chisquare(5.0, (60, 80))
    scale, freedom = prior_variances(variances, np.full((60, 1), 100.0), np.full((60, 1), 1e9), 50.0)
    np.testing.assert_allclose(freedom, 5.0, rtol=0.1)
    np.testing.assert_allclose(scale.mean(), 3.0, rtol=0.05)
    alike = np.full((60, 80), 2.0)
    scale, freedom = prior_variances(alike, np.full((60, 1), 100.0), np.full((60, 1), 30.0), 10.0)
    assert freedom == 10.0
    np.testing.assert_allclose(scale, 2.0, rtol=1e-2)


def test_what_few_stretches_of_a_state_differ_by_is_chance():
    """Frames of a stretch are alike: variances that two numbers each tell of say nothing of how states differ."""
    variances = np.random.default_rng(0).chisquare(2.0, (60, 80)) / 2.0
    counts, visits = np.full((60, 1), 100.0), np.full((60, 1), 2.0)
    assert prior_variances(variances, counts, visits, 10.0)[1] == 10.0
    assert prior_variances(variances, counts, 1e9 * visits, 10.0)[1] < 4.0
