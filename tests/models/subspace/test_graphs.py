"""Ranks of neighbours, codes that fade by them, and which of the graphs is kept."""

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

import dask_dca as dca
from dask_dca.errors import FewerAnchorsWarning
from dask_dca.models.subspace import fit as subspace_fit
from dask_dca.models.subspace.clusters import fit_bases, held_out_residual, partition_loss, residuals
from dask_dca.models.subspace.landmarks import (
    RowCoefficients,
    neighbour_ranks,
    quantise,
    solve_coefficients,
    sparse_codes,
)


def unit(rows):
    return quantise(rows / np.linalg.norm(rows, axis=1, keepdims=True))


def curves(seed, k=8, n=50, p=60, waves=8, alike=0.4):
    """Closed curves, as of objects seen from all sides, in subspaces that overlap: near rows tell more than others."""
    rng = np.random.default_rng(seed)
    shared, parts = rng.standard_normal((2 * waves, p)), []
    for _ in range(k):
        angles = rng.random(n) * 2 * np.pi
        turns = [wave(j * angles) / j**0.7 for j in range(1, waves + 1) for wave in (np.cos, np.sin)]
        axes = alike * shared + (1 - alike) * rng.standard_normal((2 * waves, p))
        middle = 0.3 * (1 - alike) * rng.standard_normal(p)
        parts.append(np.transpose(turns) @ axes + middle + 0.02 * rng.standard_normal((n, p)))
    order = rng.permutation(k * n)
    return np.vstack(parts)[order], np.repeat(np.arange(k), n)[order]


def test_ranks_are_the_greater_of_both_numbers():
    rng = np.random.default_rng(0)
    rows = unit(rng.random((90, 6)))
    marks = rows[:40]
    found = solve_coefficients(rows, marks, 0.1)
    ranks = neighbour_ranks(found, marks)
    across = marks @ marks.T
    for i in (0, 7, 39, 40, 89):
        products = marks @ rows[i]
        if i < 40:
            products[i] = -1.0
        for j, rank in zip(found.landmarks[i], ranks[i], strict=True):
            near_j = np.delete(across[j], j)
            assert rank == max((products > products[j]).sum(), (near_j > products[j]).sum())


def test_codes_fade_by_hand():
    found = RowCoefficients(np.array([[2, 0, 1]]), np.array([[0.4, 0.2, 0.0]]), np.array([[0.9, 0.8, 0.1]]))
    np.testing.assert_allclose(sparse_codes(found).weights, [[0.8, 0.2, 0.0]])
    faded = sparse_codes(found, np.array([[np.log(4.0), 0.0, 0.0]])).weights  # .16 / 4 and .04
    np.testing.assert_allclose(faded, [[0.5, 0.5, 0.0]])
    far = sparse_codes(found, np.array([[1e6, 1e6 + np.log(2.0), 0.0]])).weights  # none is lost where all are far
    np.testing.assert_allclose(far, [[8 / 9, 1 / 9, 0.0]])


def test_rows_are_measured_against_subspaces_without_them():
    rng = np.random.default_rng(1)
    rows = unit(rng.standard_normal((50, 9)))
    labels = rng.integers(0, 2, 50)
    total = 0.0
    for cluster in (0, 1):
        own = rows[labels == cluster]
        for fold in range(4):
            out = np.arange(len(own)) % 4 == fold
            basis = fit_bases(own[~out], np.zeros((~out).sum(), dtype=int), 1, 3)
            total += residuals(own[out], basis).sum()
    assert held_out_residual(rows, labels, 2, 3) == pytest.approx(total)
    assert held_out_residual(rows, labels, 2, 3) > residuals(rows, fit_bases(rows, labels, 2, 3)).min(axis=1).sum()


def test_the_loss_counts_how_near_the_second_subspace_is():
    rng = np.random.default_rng(2)
    rows = unit(rng.standard_normal((60, 9)))
    labels = rng.integers(0, 3, 60)
    left = residuals(rows, fit_bases(rows, labels, 3, 3))
    nearest, second = np.sort(left, axis=1)[:, :2].T
    shares = left[np.arange(60), labels].mean(), held_out_residual(rows, labels, 3, 3), (nearest / second).mean()
    assert partition_loss(rows, labels, 3, 3) == pytest.approx(np.prod(shares))
    one = np.zeros(60, dtype=int)  # no second one
    own = residuals(rows, fit_bases(rows, one, 1, 3)).mean()
    assert partition_loss(rows, one, 1, 3) == pytest.approx(own * held_out_residual(rows, one, 1, 3))


def test_partitions_whose_subspaces_contain_all_rows_have_one_loss():
    rng = np.random.default_rng(3)
    rows = unit(rng.standard_normal((60, 3)) @ rng.standard_normal((3, 9)))
    assert len({partition_loss(rows, rng.integers(0, 2, 60), 2, 3) for _ in range(5)}) == 1


def information(X, labels):
    model = dca.SubspaceClustering(len(set(labels))).fit(X)
    return normalized_mutual_info_score(labels, model.labels_)


def test_near_rows_decide_where_clusters_are_curves(monkeypatch):
    """By the plain codes alone a quarter of the information is lost."""
    data = [curves(seed) for seed in range(2)]
    found = np.mean([information(*one) for one in data])
    monkeypatch.setattr(subspace_fit, "_RANK_DECAYS", ())
    plain = np.mean([information(*one) for one in data])
    assert found > plain + 0.1


def test_a_graph_with_clear_parts_is_cut_once(monkeypatch):
    """Where clusters are no curves, far neighbours are as good as near ones, and other cuts would only harm."""
    cuts = []
    original = subspace_fit._cut_graph
    monkeypatch.setattr(subspace_fit, "_cut_graph", lambda *args: cuts.append(args) or original(*args))
    rng = np.random.default_rng(0)
    X = np.vstack([rng.random((100, 4)) @ rng.standard_normal((4, 30)) for _ in range(3)])
    dca.SubspaceClustering(3).fit(X)
    assert len(cuts) == 1
    cuts.clear()
    dca.SubspaceClustering(3).fit(rng.standard_normal((300, 30)))  # no parts at all
    assert len(cuts) == 4


@pytest.mark.parametrize("emptied", [0, 1, 4, 16])
def test_sweeps_go_on_to_the_next_cut_and_to_half_the_dimension_until_no_cluster_is_empty(monkeypatch, emptied):
    """Sweeps don't decide which cut is kept, except where one subspace comes to hold the rows of others."""
    losses, swept, ranks = [], [], []

    def sweeps(rows, labels, k, rank, most):
        swept.append(partition_loss(rows, labels, k, 12))
        ranks.append(rank)
        held = np.minimum(labels, 1) if len(swept) <= emptied else labels
        return fit_bases(rows, held, k, rank), 1

    def measured(*args):
        losses.append(partition_loss(*args))
        return losses[-1]

    monkeypatch.setattr(subspace_fit, "k_subspaces", sweeps)
    monkeypatch.setattr(subspace_fit, "partition_loss", measured)
    X, _ = curves(0)
    if emptied < 16:
        assert dca.SubspaceClustering(8).fit(X).n_clusters_ == 8
    else:
        with pytest.warns(FewerAnchorsWarning, match="only 2 of the"):
            dca.SubspaceClustering(8).fit(X)
    assert len(losses) == 4
    assert swept == (sorted(losses) * 4)[: emptied + 1]
    assert ranks == np.repeat([12, 6, 3, 1], 4).tolist()[: emptied + 1]


@pytest.mark.parametrize("seed", range(2))
def test_subspaces_of_all_dimensions_do_not_take_the_rows_of_other_clusters(seed):
    """Twenty noisy subspaces of three dimensions in twenty: of full dimension, one or two clusters held all rows."""
    rng = np.random.default_rng(seed)
    X = np.vstack([rng.standard_normal((40, 3)) @ rng.standard_normal((3, 20)) for _ in range(20)])
    X += 0.3 * X.std() * rng.standard_normal(X.shape)
    model = dca.SubspaceClustering(20, subspace_dim=20).fit(X)
    assert model.n_clusters_ == 20
    assert model.subspace_dim_ < 20
    assert adjusted_rand_score(np.repeat(np.arange(20), 40), model.labels_) > 0.7


def noisy_cones(seed, k=4, n=250, p=150, near=0.95, noise=0.8, rays=8):
    """Cones whose centres are near each other, in noise almost as strong as the rows themselves."""
    rng = np.random.default_rng(seed)
    shared, *own = np.linalg.qr(rng.standard_normal((p, k + 1)))[0].T
    parts = []
    for one in own:
        centre = near * shared + np.sqrt(1 - near**2) * one
        sides = rng.standard_normal((rays, p))
        sides -= np.outer(sides @ centre, centre)
        sides -= sides.mean(axis=0)
        parts.append(rng.random((n, rays)) @ (centre + 0.6 * unit(sides)))
    X = np.vstack(parts)
    X += noise / np.sqrt(p) * np.linalg.norm(X, axis=1, keepdims=True) * rng.standard_normal(X.shape)
    order = rng.permutation(k * n)
    return X[order], np.repeat(np.arange(k), n)[order]


def test_subspaces_that_fit_the_noise_of_a_wrong_cut_are_not_kept():
    """By residuals after the sweeps two of these are .53 and .55."""
    assert min(information(*noisy_cones(seed)) for seed in range(3)) > 0.8


@pytest.mark.parametrize("noise", [0.0, 0.05])
@pytest.mark.parametrize("copied", [False, True])
def test_few_rows_of_planted_cones_are_told_apart(noise, copied):
    """Where subspaces of the default rank hold all rows, residuals tell nothing, and the plain graph decides."""
    for seed in range(6, 10):
        rng = np.random.default_rng(seed)
        bases, labels = rng.standard_normal((2, 2, 9)), rng.integers(2, size=120)
        X = np.einsum("nd,ndp->np", rng.random((120, 2)) + 0.1, bases[labels])
        X += noise * rng.standard_normal(X.shape)
        X = np.hstack([X, X[:, :1]]) if copied else X
        assert adjusted_rand_score(labels, dca.SubspaceClustering(2).fit(X).labels_) > 0.9


@pytest.mark.parametrize("options", [{"subspace_dim": 20}, {"n_landmarks": 1}, {}])
def test_subspaces_that_hold_all_rows_are_told_apart_by_their_energies(options):
    """A few wrong rows make such a subspace, which took the rows of all others."""
    for seed in range(4):
        rng = np.random.default_rng(seed)
        X = np.vstack([rng.random((100, 3)) @ rng.standard_normal((3, 20)) for _ in range(3)])
        X = X if options else np.hstack([X, np.full((300, 1), 1e5)])
        labels = dca.SubspaceClustering(3, **options).fit(X).labels_
        assert adjusted_rand_score(np.repeat([0, 1, 2], 100), labels) > 0.9


def test_clusters_of_two_rows_are_as_many_as_asked_for():
    rng = np.random.default_rng(0)
    assert dca.SubspaceClustering(20).fit(rng.random((40, 3)) @ rng.standard_normal((3, 20))).n_clusters_ == 20
