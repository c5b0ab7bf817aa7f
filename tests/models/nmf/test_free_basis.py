"""A basis that is free to move: peers, properties, any chunking."""

import dask.array as da
import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import nnls
from sklearn import decomposition
from sklearn.datasets import load_digits

import dask_dca as dca
from dask_dca.errors import InvalidParameterError
from dask_dca.models.nmf import fit as recipe
from dask_dca.models.nmf import free
from dask_dca.models.nmf.free import GramProblem, Penalty, extrapolated_hals, sweeps

FITTED = ("components_", "anchor_indices_", "reconstruction_err_", "n_iter_", "converged_", "votes_")


def blends(n=800, p=40, k=6, seed=0, noise=0.01):
    """Rows none of which is pure."""
    rng = np.random.default_rng(seed)
    shares = rng.dirichlet(np.full(k, 2.0), n)
    return np.abs(shares @ rng.random((k, p)) + noise * rng.standard_normal((n, p)))


def share_left(model, X):
    return model.reconstruction_err(X) ** 2 / (X**2).sum()


@pytest.fixture
def sampled(monkeypatch):
    """Small data go down the road of large ones: a sample, and passes over all rows."""
    monkeypatch.setattr(recipe, "_MAX_WHOLE_ENTRIES", 1)
    monkeypatch.setattr(recipe, "_SAMPLE_RUNS", 8)
    monkeypatch.setattr(recipe, "_SAMPLE_ROWS", 300)
    monkeypatch.setattr(recipe, "_SAMPLE_ROWS_PER_COMPONENT", 8)


def bits(model):
    return {name: np.asarray(getattr(model, name)).tobytes() for name in FITTED}


def test_sweeps_minimise_over_one_component_after_the_other():
    gram, products = np.array([[2.0, 1.0], [1.0, 2.0]]), np.array([[4.0, -1.0], [5.0, 3.0]])
    # first component: 4 / 2 and max(-1 / 2, 0); second: (5 - 2) / 2 and 3 / 2
    np.testing.assert_allclose(sweeps(np.zeros((2, 2)), gram, products, 1), [[2.0, 0.0], [1.5, 1.5]])
    # with l1 = 1 and l2 = 2: 3 / 4 and 0; (5 - 1 - .75) / 4 and (3 - 1) / 4
    found = sweeps(np.zeros((2, 2)), gram, products, 1, Penalty(1.0, 2.0))
    np.testing.assert_allclose(found, [[0.75, 0.0], [0.8125, 0.5]])


@pytest.mark.parametrize("k", [1, 3, 12])
@pytest.mark.parametrize("zeros", ["few", "some", "most"])
def test_coefficients_are_those_of_nnls(k, zeros):
    rng = np.random.default_rng(k)
    H, alpha = rng.random((k, 15)), {"few": 5.0, "some": 0.5, "most": 0.02}[zeros]
    X = rng.dirichlet(np.full(k, alpha), 400) @ H + {"few": 0.01, "some": 0.3, "most": 0.1}[zeros] * rng.random(15)
    found = GramProblem.of(H @ H.T).solve(X @ H.T)
    np.testing.assert_allclose(found, [nnls(H.T, row)[0] for row in X], atol=1e-10)
    alone = np.concatenate([GramProblem.of(H @ H.T).solve((X @ H.T)[i : i + 7]) for i in range(0, 400, 7)])
    np.testing.assert_array_equal(alone, found)


@pytest.mark.parametrize("seed", range(3))
def test_which_coefficients_are_zero_is_mostly_guessed(seed, monkeypatch):
    rng, solved = np.random.default_rng(seed), []
    rays = rng.random((20, 200))
    X = rng.dirichlet(np.ones(20), 3000) @ rays + 0.01 * rng.standard_normal((3000, 200))
    H = (0.4 * np.eye(20) + 0.6 * rng.dirichlet(np.full(20, 0.5), 20)) @ rays  # half are zero
    whole = free.solve_on_support
    monkeypatch.setattr(free, "solve_on_support", lambda *a: solved.append(len(a[1])) or whole(*a))
    found = GramProblem.of(H @ H.T).solve(X @ H.T)
    assert 0.3 < (found == 0.0).mean() < 0.7
    assert sum(solved) < 1.5 * len(X)  # without the guess each row is solved two to three times


def test_coefficients_of_dependent_components():
    rng = np.random.default_rng(0)
    H = rng.random((3, 15))[[0, 1, 2, 1]]
    X = rng.random((50, 15))
    found = GramProblem.of(H @ H.T).solve(X @ H.T) @ H
    np.testing.assert_allclose(found, [nnls(H.T, row)[0] @ H for row in X], atol=1e-8)


def test_extrapolation_ends_lower_than_the_same_number_of_plain_steps():
    X, ratios = blends(600), []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        W, H = rng.random((6, len(X))), rng.random((6, X.shape[1]))
        found = extrapolated_hals(X, W, H, max_iter=40, tol=0.0)
        assert np.diff(found.losses).max() <= 0.0
        left = 0.5 * ((X - found.W.T @ found.H) ** 2).sum()
        np.testing.assert_allclose(found.losses[-1], left)
        for _ in range(40):
            W = sweeps(W, H @ H.T, H @ X.T, 4)
            H = sweeps(H, W @ W.T, W @ X, 4)
        ratios.append(left / (0.5 * ((X - W.T @ H) ** 2).sum()))
    assert np.mean(ratios) < 0.95


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("seed", range(3))
def test_blends_are_fitted_where_anchors_are_not(seed):
    X = blends(seed=seed)
    truth = blends(seed=seed, noise=0.0)
    noise = ((X - truth) ** 2).sum() / (X**2).sum()
    free = dca.NMF(6, basis="free").fit(X)
    assert share_left(free, X) < 1.02 * noise < 0.5 * share_left(dca.NMF(6).fit(X), X)
    np.testing.assert_allclose(free.reconstruction_err_, free.reconstruction_err(X), rtol=1e-3)
    assert free.reconstruction_err_ <= 1.001 * min(
        decomposition.NMF(6, init="random", random_state=i).fit(X).reconstruction_err_ for i in range(3)
    )


@pytest.mark.parametrize("noise", [0.0, 1e-9, 1e-6, 1e-4])
def test_the_error_of_data_of_exactly_low_rank_is_no_difference_of_large_sums(noise):
    rng = np.random.default_rng(3)
    X = rng.dirichlet(np.ones(4), 300) @ rng.random((4, 20)) * (1.0 + noise * rng.standard_normal((300, 20)))
    model = dca.NMF(4, basis="free").fit(X)
    left = float(np.linalg.norm(X - model.transform(X) @ model.components_))
    np.testing.assert_allclose(model.reconstruction_err_, left, rtol=1e-4)
    assert 0.0 < model.reconstruction_err_ < 1e-6 * np.linalg.norm(X) + 1.1 * noise * np.linalg.norm(X)
    assert model.n_iter_ == 1  # as scikit-learn's checks expect


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_digits_are_fitted_as_well_as_by_a_peer():
    X = load_digits().data
    peers = [decomposition.NMF(16, init="random", random_state=i).fit(X).reconstruction_err_ for i in range(3)]
    assert dca.NMF(16, basis="free").fit(X).reconstruction_err_ <= np.median(peers)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_digits_are_fitted_as_well_as_by_the_best_of_five_starts_of_a_peer():
    X = load_digits().data
    starts = [{"init": "random" if i else None, "random_state": i} for i in range(5)]
    best = min(decomposition.NMF(20, **start).fit(X).reconstruction_err_ for start in starts)
    errors = [dca.NMF(20, basis="free", random_state=i).fit(X).reconstruction_err_ for i in range(3)]
    assert max(errors) ** 2 < 1.002 * best**2  # 1.005 if components are added before others are taken away
    assert np.mean(np.square(errors)) < best**2


def test_of_two_components_alike_one_goes_and_the_other_takes_its_share():
    rng = np.random.default_rng(0)
    H, W = rng.random((3, 15))[[0, 1, 2, 1]], rng.random((4, 50))
    fewer, others = free._remove_least_useful(W, H)
    assert len(fewer) == len(others) == 3
    np.testing.assert_allclose(fewer.T @ others, W.T @ H, rtol=1e-6)


def test_a_sample_and_a_pass_are_as_good_as_all_rows(sampled):
    X = blends(4000)
    one = dca.NMF(6, basis="free").fit(X)
    none = dca.NMF(6, basis="free", max_iter=0).fit(X)
    three = dca.NMF(6, basis="free", max_iter=3).fit(X)
    noise = ((X - blends(4000, noise=0.0)) ** 2).sum() / (X**2).sum()
    assert share_left(three, X) < share_left(one, X) < share_left(none, X) < 1.1 * noise
    assert share_left(one, X) < 1.02 * noise
    assert (none.n_iter_, one.n_iter_) == (0, 1)


def test_the_nearest_rows_are_named():
    X = blends()
    model = dca.NMF(6, basis="free").fit(X)
    cosines = X @ model.components_.T / np.linalg.norm(X, axis=1)[:, None]
    np.testing.assert_array_equal(model.anchor_indices_, cosines.argmax(axis=0))
    counted = dict(zip(model.candidates_.tolist(), model.candidate_votes_.tolist(), strict=True))
    assert model.votes_.tolist() == [counted.get(row, 0) for row in model.anchor_indices_.tolist()]


@pytest.mark.parametrize("chunks", [(300, -1), ((1, 0, 399, 400), (13, 27))])
def test_any_chunking_gives_the_same_bits(chunks, sampled):
    X = blends()
    model = dca.NMF(6, basis="free", max_iter=2, alpha_W=1e-4, l1_ratio=0.5)
    expected = bits(model.fit(X))
    F = model.transform(X)
    assert bits(model.fit(da.from_array(X, chunks=chunks))) == expected
    np.testing.assert_array_equal(model.transform(da.from_array(X, chunks=chunks)).compute(), F)
    assert bits(model.fit(sparse.csr_array(X))) == expected


def test_units_of_the_data_do_not_matter():
    X = blends(300)
    plain = dca.NMF(6, basis="free").fit(X)
    for power in (-300, 10, 300):
        scaled = dca.NMF(6, basis="free").fit(np.ldexp(X, power))
        np.testing.assert_allclose(np.ldexp(scaled.components_, -power), plain.components_, rtol=1e-6, atol=1e-8)
        np.testing.assert_allclose(scaled.transform(np.ldexp(X, power)), plain.transform(X), rtol=1e-4, atol=1e-6)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("l1_ratio", [0.0, 1.0, 0.3])
def test_penalties_are_scikit_learns(l1_ratio):
    """At the peer's end the same function is minimal, from there and from here."""
    X = blends(300, p=12, k=3, noise=0.05)
    given = {"alpha_W": 2e-3, "alpha_H": 1e-3, "l1_ratio": l1_ratio}
    model = dca.NMF(3, basis="free", max_iter=50, **given).fit(X)
    peers = [
        decomposition.NMF(3, init="random", random_state=i, tol=1e-7, max_iter=1000, **given).fit(X) for i in range(2)
    ]

    def cost(W, H):
        n, p = X.shape
        parts = [(given["alpha_W"] * p, W), (given["alpha_H"] * n, H)]
        return 0.5 * ((X - W @ H) ** 2).sum() + sum(
            a * (l1_ratio * F.sum() + 0.5 * (1 - l1_ratio) * (F**2).sum()) for a, F in parts
        )

    best = min(cost(peer.transform(X), peer.components_) for peer in peers)
    assert cost(model.transform(X), model.components_) <= 1.01 * best
    free = dca.NMF(3, basis="free").fit(X)
    assert cost(free.transform(X), free.components_) > 1.011 * best


def test_components_beyond_the_rank_and_the_number_of_rays(sampled):
    rng = np.random.default_rng(0)
    X = np.abs(rng.random((2, 9))[rng.integers(2, size=700)] * rng.random((700, 1)) + 0.2 * rng.random((700, 9)))
    model = dca.NMF(8, basis="free").fit(X)
    assert model.components_.shape == (8, 9)
    assert share_left(model, X) < share_left(dca.NMF(4, basis="free").fit(X), X)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"basis": "pure"}, "unknown basis 'pure'"),
        ({"basis": "free", "max_iter": -1}, "max_iter must be"),
        ({"basis": "free", "alpha_W": -1.0}, "alpha_W must be a finite number of at least 0"),
        ({"basis": "free", "alpha_H": "W"}, "alpha_H must be a finite number of at least 0"),
        ({"basis": "free", "l1_ratio": 2.0}, "l1_ratio must be a number from 0 to 1"),
        ({"beta_loss": "kullback-leibler"}, "use basis='free'"),
        ({"alpha_W": 1.0}, "alpha_W=1.0 is for a basis that is free to move, and basis='rows' is not: use basis"),
        ({"alpha_H": 1.0}, "use basis='free'"),
        ({"max_iter": 400}, "max_iter=400 is for a basis that is free"),
        ({"basis": "rays", "max_iter": 0}, "use basis='free'"),
        ({"basis": "auto", "l1_ratio": 0.5}, "l1_ratio=0.5 is for a basis that is free"),
        ({"basis": "free", "method": "paper"}, "use basis='rows'"),
    ],
)
def test_unusable_parameters_say_what_to_do(given, message):
    with pytest.raises(InvalidParameterError, match=message):
        dca.NMF(3, **given).fit(blends(50))


def test_saved_and_loaded(tmp_path):
    X = blends(200)
    model = dca.NMF(4, basis="free", alpha_W=1e-4).fit(X)
    model.save(str(tmp_path / "m.zarr"))
    again = dca.load_model(str(tmp_path / "m.zarr"))
    assert bits(again) == bits(model)
    np.testing.assert_array_equal(again.transform(X), model.transform(X))


@pytest.mark.parametrize(
    "given",
    [
        {"basis": "free", "max_iter": 2},
        {"basis": "rays"},
        {"basis": "free", "max_iter": 2, "beta_loss": "kullback-leibler"},
    ],
)
def test_a_killed_fit_goes_on_with_the_same_bits(given, tmp_path, sampled):
    X = da.from_array(blends(400), chunks=(150, -1))
    expected = bits(dca.NMF(5, **given).fit(X))
    model = dca.NMF(5, checkpoint=str(tmp_path / "kept"), **given)
    assert bits(model.fit(X)) == expected
    kept = sorted((tmp_path / "kept").glob("*.npz"), key=lambda path: path.stat().st_mtime)
    kept[-1].unlink()  # as if killed in the last pass
    assert bits(model.fit(X)) == expected


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("basis", ["free", "rays"])
def test_components_above_the_range_of_the_rows_are_no_infinity(basis, dtype):
    """Where no row is pure components are longer than any row, and rows may be near the end of their dtype."""
    rng = np.random.default_rng(11)
    X = rng.dirichlet(np.full(3, 6.0), 200) @ rng.random((3, 5))
    X = (X / X.max() * 0.99 * np.finfo(dtype).max).astype(dtype)
    model = dca.NMF(3, basis=basis).fit(X)
    assert np.finfo(dtype).max < model.components_.max() < np.inf
    chunked = dca.NMF(3, basis=basis).fit(da.from_array(X, chunks=(30, 4)))
    np.testing.assert_array_equal(chunked.components_, model.components_)


def test_rows_at_the_end_of_the_range_are_explained():
    X = np.full((50, 3), np.finfo(np.float64).max)
    X[::2, 0] /= 2.0
    assert dca.NMF(2).fit(X).explained_variance_ratio_ == 1.0
