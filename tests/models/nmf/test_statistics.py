"""
Statistical claims, over seeds, with margins that a broken method misses.

Rows are always shuffled: with the planted rows in front, ties and empty votes would 'find' them.
"""

import numpy as np
import pytest
from scipy import stats

import dask_dca as dca
from benchmarks.regimes import make, recall
from dask_dca.anchoring.parameters import evaluation_rows
from dask_dca.geometry.solvers import successive_projection

SEEDS = range(6)


def recalls(regime, n, p, k, noise, **options):
    found = []
    for seed in SEEDS:
        X, anchors = make(regime, n, p, k, noise, seed)
        found.append(recall(dca.find_anchors(X, k, **options).indices, anchors))
    return np.array(found)


@pytest.mark.parametrize(
    "regime", ["dirichlet1", "uniform", "ill", "sparse", "duplicates", "heteroscedastic", "rowscale"]
)
@pytest.mark.parametrize(("n", "p", "k"), [(500, 60, 5), (3000, 100, 8)])
def test_all_anchors_of_noiseless_data_are_found(regime, n, p, k):
    assert recalls(regime, n, p, k, 0.0).tolist() == [1.0] * len(SEEDS)


@pytest.mark.parametrize("method", ["robust", "paper"])
def test_a_cone_in_any_orthant_is_anchored_as_well(method):
    """Rotated data: the reference axis is their middle, and nothing needs a sign."""
    for seed in SEEDS:
        X, anchors = make("dirichlet1", 1000, 40, 5, 0.0, seed)
        turn = np.linalg.qr(np.random.default_rng(seed).standard_normal((40, 40)))[0]
        found = dca.find_anchors(X @ turn, 5, method=method, n_subproblems=500)
        assert recall(found.indices, anchors) == 1.0
        assert found.n_behind_rows == 0


def test_rows_that_are_all_but_pure_do_as_anchors():
    """Dirichlet(.1): some rows are a millionth away from a vertex, and either of the two may be chosen."""
    for seed in SEEDS:
        X, _ = make("dirichlet.1", 1000, 60, 5, 0.0, seed)
        assert dca.NMF(5).fit(X).reconstruction_err(X) < 1e-3 * np.linalg.norm(X)


@pytest.mark.parametrize(("n", "p", "k"), [(100, 400, 5), (60, 1500, 8)])
def test_all_anchors_of_noiseless_wide_data_are_found(n, p, k):
    assert recalls("dirichlet1", n, p, k, 0.0).tolist() == [1.0] * len(SEEDS)


@pytest.mark.parametrize(
    "regime",
    ["dirichlet1", "uniform", "ill", "sparse", "smooth", "duplicates", "near-duplicates", "heteroscedastic", "poisson"],
)
def test_noise_of_a_tenth_costs_next_to_nothing(regime):
    # two of the vertices of "ill" differ by less than the noise
    assert recalls(regime, 3000, 100, 8, 0.1).mean() >= (0.85 if regime == "ill" else 0.95)


def test_outlier_rows_cost_next_to_nothing_where_projection_loses():
    """1.5 % of the rows are foreign and three times as long: successive projection takes them for anchors."""
    ours = recalls("outliers", 3000, 100, 8, 0.1)
    assert ours.mean() >= 0.95
    for seed in SEEDS:
        X, anchors = make("outliers", 3000, 100, 8, 0.1, seed)
        assert recall(successive_projection(X, 8), anchors) < 0.5


def test_uneven_noise_of_features_costs_next_to_nothing():
    assert recalls("heteroscedastic", 3000, 100, 8, 0.3).mean() >= 0.9


def test_selection_among_candidates_survives_duplicates_that_split_votes():
    """Each anchor fifty times, in copies with noise of their own: votes spread over them, rays do not."""
    by_reach = recalls("near-duplicates", 3000, 100, 8, 0.1)
    by_votes = recalls("near-duplicates", 3000, 100, 8, 0.1, selection="votes")
    assert by_reach.mean() >= 0.95
    assert by_votes.mean() < by_reach.mean()


def test_more_noise_finds_fewer_anchors_and_says_so():
    low, high = (make("dirichlet1", 2000, 60, 8, noise, 0)[0] for noise in (0.0, 0.5))
    assert dca.find_anchors(low, 8).coverage > dca.find_anchors(high, 8).coverage


@pytest.mark.parametrize(("k", "s"), [(3, 300), (6, 800)])
def test_the_papers_method_finds_all_anchors_given_enough_planes(k, s):
    found = recalls("dirichlet1", 1000, 40, k, 0.0, method="paper", n_subproblems=s)
    assert found.tolist() == [1.0] * len(SEEDS)


@pytest.mark.parametrize("ensemble", ["gaussian", "sparse", "data"])
def test_the_papers_method_with_its_other_ensembles(ensemble):
    assert recalls("dirichlet1", 1000, 40, 4, 0.0, method="paper", ensemble=ensemble, n_subproblems=800).mean() >= 0.95


def test_the_papers_bound_on_sub_problems_keeps_its_promise():
    """s = (3 k / c) log(k / delta), with c from the flattest anchor: all are voted for in 1 - delta of the fits."""
    X, anchors = make("dirichlet1", 400, 10, 4, 0.0, 0)
    every = dca.find_anchors(X, 4, method="paper", n_subproblems=4000)
    assert recall(every.indices, anchors) == 1.0
    c = 4 * (every.vote_share.min() - 0.0) / 2  # no false votes on noiseless data
    s = dca.n_subproblems(4, delta=0.05, c=min(c, 1.0))
    hits = [
        recall(dca.find_anchors(X, 4, method="paper", n_subproblems=s, random_state=seed).indices, anchors) == 1.0
        for seed in range(60)
    ]
    assert np.mean(hits) >= 0.95


# --- votes and geometry --------------------------------------------------------------------------------------


def extreme_share(X, n_draws, seed=0):
    """The share of random planes in which each row is the one of least or greatest angle to the axis, drawn anew."""
    rng = np.random.default_rng(seed)
    count = np.zeros(len(X))
    for _ in range(n_draws):
        B = rng.standard_normal((X.shape[1], 2))
        Z = X @ B
        cosine = Z[:, 1] / np.linalg.norm(Z, axis=1)
        count[list({int(cosine.argmax()), int(cosine.argmin())})] += 1
    return count / n_draws


@pytest.mark.parametrize("p", [2, 3, 6])
def test_votes_of_the_papers_method_agree_with_the_geometry(p):
    X = np.random.default_rng(p).dirichlet(np.ones(p), 12) + 0.05
    s = 6000
    found = dca.find_anchors(X, 3, method="paper", n_subproblems=s, random_state=1)
    share = np.zeros(len(X))
    share[found.candidates] = found.candidate_votes / s
    expected = extreme_share(X, s)
    # two samples of the same shares: differences of 4.5 standard errors are not met by chance
    error = np.sqrt(2 * np.maximum(expected, 2 / s) * (1 - expected) / s)
    assert (np.abs(share - expected) < 4.5 * error).all()


def test_two_rows_share_all_votes():
    """One has the least angle to the axis and the other the greatest, whatever the plane."""
    found = dca.find_anchors(np.array([[1.0, 0.2], [0.3, 1.0]]), 2, method="paper", n_subproblems=500)
    assert found.votes.tolist() == [500, 500]
    assert found.n_pointed == 500  # two rays are always pointed


def test_the_share_of_pointed_planes_is_that_of_the_geometry():
    """The rows of an orthant are pointed on a random plane iff the projected axes leave half a turn free."""
    p = 5
    found = dca.find_anchors(np.eye(p), p, method="paper", n_subproblems=5000)
    # p directions that are uniform on the circle fit into half a turn with probability p / 2**(p - 1)
    expected = p / 2 ** (p - 1)
    assert stats.binomtest(found.n_pointed, 5000, expected).pvalue > 1e-4


def test_confidence_bounds_hold_the_share_of_other_planes():
    X, _ = make("dirichlet1", 300, 12, 4, 0.1, 0)
    truth = dca.find_anchors(X, 4, method="paper", n_subproblems=8000, random_state=99)
    share = dict(zip(truth.candidates.tolist(), truth.candidate_votes / 8000, strict=True))
    inside = []
    for seed in range(60):
        found = dca.find_anchors(X, 1, method="paper", n_subproblems=200, random_state=seed)
        row, votes = found.candidates[found.candidates == truth.indices[0]], 0
        if len(row):
            votes = found.candidate_votes[found.candidates == row[0]][0]
        exact = stats.binomtest(int(votes), 200).proportion_ci(method="wilson")
        inside.append(exact.low <= share[int(truth.indices[0])] <= exact.high)
    assert np.mean(inside) >= 0.85


def test_noisy_rows_of_uneven_mass_are_anchored_where_there_are_fewer_of_them_than_features():
    """Unscaled rows compare only where all have about the same mass; here pure rows are the lightest."""
    assert recalls("uniform", 300, 500, 10, 0.7).mean() >= 0.9


def test_very_noisy_rows_of_even_mass_are_anchored_where_there_are_fewer_of_them_than_features():
    """Below the edge of the noise no subspace helps: the rows themselves tell, unscaled."""
    assert recalls("dirichlet1", 300, 500, 20, 1.0).mean() >= 0.8


def test_what_is_explained_of_a_sample_is_near_what_is_explained_of_all_rows():
    """Few rows are bad, and they are most of what is left: a sample of 128 is off by .09, root mean square."""
    off = []
    for seed in range(12):
        rng = np.random.default_rng(100 + seed)
        X = rng.dirichlet(np.full(5, 0.3), 20_000) @ rng.random((5, 50))
        bad = rng.random(len(X)) < 0.02
        X[bad] = 2.0 * rng.random((int(bad.sum()), 50))
        model = dca.NMF(5).fit(X)
        whole = 1.0 - model.reconstruction_err(X) ** 2 / ((X - X.mean(axis=0)) ** 2).sum()
        off.append(model.explained_variance_ratio_ - whole)
    assert np.sqrt(np.mean(np.square(off))) < 0.04


def test_rows_that_a_model_is_judged_by_are_spread_over_the_sample_and_bounded():
    for n, p, n_judges in ((100, 10, 100), (5000, 10, 1667), (2048, 500, 2048), (2048, 1024, 1024), (2048, 9000, 128)):
        found = evaluation_rows(np.broadcast_to(np.arange(n)[:, None], (n, p)))[:, 0]
        assert len(found) == n_judges
        assert found[0] == 0
        assert n - found[-1] <= n / n_judges
    assert len(evaluation_rows(np.zeros((0, 4)))) == 0


def counted(k, noise, seed):
    """The number that "auto" finds, and the range that its rules tell."""
    rng = np.random.default_rng(seed)
    shares = np.vstack([np.repeat(np.eye(k), 5, axis=0), rng.dirichlet(np.full(k, 0.5), 3000 - 5 * k)])
    X = rng.permutation(shares) @ rng.random((k, 100)) + noise * rng.standard_normal((3000, 100))
    model = dca.NMF("auto").fit(np.abs(X))
    return model.n_components_, model.n_components_range_


@pytest.mark.parametrize("noise", [0.0, 0.05, 0.1])
@pytest.mark.parametrize("k", [3, 10, 20])
def test_the_range_of_auto_is_one_number_where_the_data_are_clear(k, noise):
    assert [counted(k, noise, seed) for seed in range(2)] == [(k, (k, k))] * 2


def test_the_range_of_auto_is_wide_where_noise_hides_the_number():
    ranges = [counted(20, 0.3, seed)[1] for seed in range(6)]
    assert np.median([most / least for least, most in ranges]) > 2.0
    least, most = dca.NMF("auto").fit(np.random.default_rng(0).random((3000, 100))).n_components_range_
    assert most > 1.5 * least
