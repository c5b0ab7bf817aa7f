"""A component in few rows of one region that the sample misses is found; noise and outliers are not taken for one."""

import dask.array as da
import numpy as np
import pytest
from scipy.ndimage import gaussian_filter1d

import dask_dca as dca
from dask_dca.anchoring import divide, robust
from dask_dca.engine.sampling import spread_rows
from dask_dca.geometry import outlying
from tests.conftest import bits

N, P, K = 40_000, 30, 5


def unseen(length):
    """First of some rows in a row that no sample of so many rows has."""
    seen = spread_rows(N, 32, 512)
    return int(next(row for row in range(N) if not np.isin(np.arange(row, row + length), seen).any()))


def mixtures(seed, noise=0.05, rare=0):
    """Mixtures of four components with pure rows; `rare` rows in one region contain a fifth, five of them purely."""
    rng = np.random.default_rng(seed)
    rays, shares = rng.random((K, P)), np.zeros((N, K))
    shares[:, :-1] = rng.dirichlet(np.full(K - 1, 0.4), N)
    shares[rng.choice(N, 20, replace=False)] = np.repeat(np.eye(K)[:-1], 5, axis=0)
    if rare:
        place = unseen(rare) + np.arange(rare)
        held = rng.random((rare, 1))
        held[rng.choice(rare, 5, replace=False)] = 1.0
        shares[place] = (1.0 - held) * shares[place] + held * np.eye(K)[-1]
    X = shares @ rays
    return X + noise * X.std() * rng.standard_normal(X.shape), rays


def degrees(found, ray):
    rows = found.rows / np.linalg.norm(found.rows, axis=1, keepdims=True)
    return float(np.degrees(np.arccos(min(1.0, (rows @ ray).max() / np.linalg.norm(ray)))))


@pytest.mark.parametrize("noise", [0.01, 0.2])
def test_a_rare_material_in_one_place_is_found(noise):
    for seed in range(2):
        X, rays = mixtures(seed, noise, rare=40)
        found = dca.find_anchors(X, K)
        assert degrees(found, rays[-1]) < 5.0
        assert np.isin(np.arange(unseen(40), unseen(40) + 40), found.rare_rows).mean() > 0.5
        assert len(found.rare_rows) == 64


def test_without_a_second_divide_step_it_is_lost(monkeypatch):
    monkeypatch.setattr(robust, "_MAX_EXTRA_ROUNDS", 0)
    for seed in (1, 2):
        X, rays = mixtures(seed, 0.2, rare=40)
        found = dca.find_anchors(X, K)
        assert degrees(found, rays[-1]) > 10.0
        assert len(found.rare_rows) == 0


@pytest.mark.parametrize("noise", [1e-6, 1e-3, 0.01, 0.2])
def test_few_rows_are_looked_at_exactly_and_they_are_the_furthest(noise, monkeypatch):
    looked, kept, exactly = [], [], divide.find_outlying_rows

    def counted(rows, numbers, *where):
        looked.append((len(rows), where))
        return exactly(rows, numbers, *where)

    monkeypatch.setattr(divide, "find_outlying_rows", counted)
    monkeypatch.setattr(robust.outlying, "common_direction", lambda found, _: kept.append(found))
    X, _ = mixtures(0, noise)
    dca.find_anchors(X, K)
    counts, (where, *_) = zip(*looked, strict=True)
    assert sum(counts) < 0.1 * N
    np.testing.assert_array_equal(kept[0].numbers, exactly(X, np.arange(N), *where).numbers)


def test_models_and_auto_find_it_too():
    X, rays = mixtures(0, 0.01, rare=40)
    model = dca.NMF(K).fit(np.abs(X))
    assert model.n_passes_ == 2  # the divide step, and once more
    found = dca.find_anchors(X, "auto")
    assert len(found.indices) == K
    assert degrees(found, rays[-1]) < 5.0


def test_its_bits_do_not_depend_on_chunks():
    X, _ = mixtures(1, 0.1, rare=40)
    whole = dca.find_anchors(X, K)
    assert len(whole.rare_rows)
    for chunks in ((7_000, -1), ((30_000, 0, 9_999, 1), (11, 19))):
        assert bits(dca.find_anchors(da.from_array(X, chunks=chunks), K)) == bits(whole)


def spoilt(kind, rare=0):
    X, rays = mixtures(0, rare=rare)
    rng = np.random.default_rng(1)
    some, place = rng.choice(np.arange(1000, N), 400, replace=False), unseen(300) + 200 + np.arange(60)
    if kind == "outliers":
        X[some] = 5.0 * rng.random((400, P)) ** 8
    elif kind == "tiny rows":
        X[some] = 0.02 * X[some] + 0.05 * X.std() * rng.standard_normal((400, P))
    elif kind == "brightness":
        X *= np.exp(0.7 * rng.standard_normal((N, 1)))
    elif kind == "a dead sensor":
        X[place, 7] = 0.0
    elif kind == "a sensor that is stuck":
        X[place, 7] = 4.0
    elif kind == "two dead sensors":
        X[place, 7:9] = 0.0
    elif kind == "zero rows":
        X[::3] = 0.0
    elif kind == "heavy tails":
        X += 0.05 * X.std() * rng.standard_t(3, X.shape)
    return X, rays


@pytest.mark.parametrize(
    "kind",
    ["nothing", "outliers", "tiny rows", "brightness", "a dead sensor", "a sensor that is stuck", "two dead sensors",
     "zero rows", "heavy tails"],
)  # fmt: skip
def test_what_is_no_material_is_not_taken_for_one(kind, monkeypatch):
    X, _ = spoilt(kind)
    found = dca.find_anchors(X, K - 1)
    assert len(found.rare_rows) == 0
    monkeypatch.setattr(robust, "_MAX_EXTRA_ROUNDS", 0)
    assert bits(found) == bits(dca.find_anchors(X, K - 1))


@pytest.mark.parametrize("kind", ["few features", "noise that is smooth"])
def test_noise_that_leads_in_some_direction_points_both_ways(kind, monkeypatch):
    for seed in range(3):
        rng = np.random.default_rng(seed)
        p = 12 if kind == "few features" else P
        X, noise = rng.dirichlet(np.full(K, 0.4), N) @ rng.random((K, p)), rng.standard_normal((N, p))
        if kind == "noise that is smooth":
            noise = gaussian_filter1d(noise, 3.0, axis=1)
            noise /= noise.std()
        X += 0.3 * X.std() * noise
        assert len(dca.find_anchors(X, K).rare_rows) == 0
    monkeypatch.setattr(outlying, "_ONE_SIDED_DEVIATIONS", -np.inf)
    monkeypatch.setattr(robust, "_MIN_OVERLAP", 0.0)
    assert len(dca.find_anchors(X, K).rare_rows) > 0


def test_a_direction_that_planes_would_not_see_costs_no_pass(monkeypatch):
    """Fewer anchors than materials: all directions are taken by those that more rows hold."""
    for seed in range(2):
        X, _ = mixtures(seed, 0.01, rare=40)
        found, passes = dca.find_anchors(X, K - 2), dca.NMF(K - 2).fit(np.abs(X)).n_passes_
        assert (len(found.rare_rows), passes) == (0, 1)
        monkeypatch.setattr(robust, "_MIN_OVERLAP", 0.0)
        again, passes = dca.find_anchors(X, K - 2), dca.NMF(K - 2).fit(np.abs(X)).n_passes_
        assert len(again.rare_rows) > 0
        assert passes > 1
        np.testing.assert_allclose(again.rows, found.rows, rtol=0.2)
        monkeypatch.undo()


def test_auto_tells_the_rows_that_joined():
    X, _ = mixtures(0, 0.01, rare=40)
    assert np.isin(np.arange(unseen(40), unseen(40) + 40), dca.find_anchors(X, "auto").rare_rows).mean() > 0.5


@pytest.mark.parametrize("kind", ["outliers", "tiny rows"])
def test_what_is_no_material_does_not_hide_one(kind):
    X, rays = spoilt(kind, rare=60)
    found = dca.find_anchors(X, K)
    assert degrees(found, rays[-1]) < 5.0
    assert len(found.rare_rows)


@pytest.mark.parametrize("background", [0.0, 0.5])
def test_a_scene_in_a_background_of_one_value(background):
    """All places of the usual sample miss it; there are more where rows are fewer than anchors."""
    rng = np.random.default_rng(0)
    shares = rng.dirichlet(np.full(4, 0.3), 4000)
    shares[:4] = np.eye(4)
    X = np.vstack([shares @ rng.random((4, 12)), np.full((100_000, 12), background)])
    model, order = dca.NMF(4).fit(X), rng.permutation(len(X))
    assert len(model.anchor_indices_) == 4
    assert abs(model.coverage_ - dca.NMF(4).fit(X[order]).coverage_) < 0.1  # rows of the sample differ
    assert background or set(model.anchor_indices_.tolist()) == {0, 1, 2, 3}
    assert (dca.NMF(4).fit(da.from_array(X, chunks=(35_001, 5))).anchor_indices_ == model.anchor_indices_).all()


def test_a_weight_far_greater_than_the_others_hides_no_row():
    X = np.random.default_rng(0).random((400, 5))
    found = dca.find_anchors(X, 4, sample_weight=np.r_[1e5, np.ones(399)])
    assert len(found.indices) == 4
