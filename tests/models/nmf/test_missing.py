"""Missing entries: anchors, coefficients, what is filled in, and what is refused."""

import dask
import dask.array as da
import numpy as np
import pandas as pd
import pytest
import xarray as xr
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.optimize import nnls

import dask_dca as dca
from benchmarks.regimes import recall
from dask_dca.engine.sampling import spread_rows
from dask_dca.errors import (
    FewEntriesWarning,
    InvalidInputError,
    InvalidParameterError,
    MissingEntriesError,
    MissingEntriesWarning,
    NotFiniteError,
)
from dask_dca.geometry.low_rank import fit_low_rank, posterior_means
from tests.conftest import bits
from tests.contract.entries import fitted_bytes
from tests.messages import by_messages
from tests.strategies import chunkings


def planted(seed, n=600, p=40, k=4, noise=0.0):
    """Rows, the numbers of the pure ones, and a generator to make holes with."""
    rng = np.random.default_rng(seed)
    shares = np.vstack([np.eye(k), rng.dirichlet(np.full(k, 0.5), n - k)])[rng.permutation(n)]
    X = shares @ rng.random((k, p)) ** 2
    X *= rng.lognormal(sigma=0.3, size=(n, 1))
    X += noise * X.mean() * rng.random(X.shape)
    return X, [np.flatnonzero(shares[:, j] == 1.0) for j in range(k)], rng


def with_random_holes(X, share, rng):
    return np.where(rng.random(X.shape) < share, np.nan, X)


@pytest.mark.parametrize("share", [0.01, 0.3, 0.6])
def test_anchors_are_found_and_holes_filled_where_entries_are_missing_at_random(share):
    for seed in range(3):
        X, anchors, rng = planted(seed)
        holes = with_random_holes(X, share, rng)
        model = dca.NMF(4).fit(holes)
        assert recall(model.anchor_indices_, anchors) == 1.0
        hidden = np.isnan(holes)
        assert np.linalg.norm((model.impute(holes) - X)[hidden]) < 1e-3 * np.linalg.norm(X[hidden])
        assert (model.impute(holes)[~hidden] == X[~hidden]).all()
        pure = X[model.anchor_indices_]
        assert np.linalg.norm(model.components_ - pure) < 1e-3 * np.linalg.norm(pure)
        assert model.coverage_ > 0.99
        assert model.explained_variance_ratio_ > 0.99


@pytest.mark.parametrize("even", [True, False])
@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_the_number_of_anchors_is_chosen_by_entries_that_are_held_out(even, noise):
    """Rows of one height lie in an affine space, whose mean is a direction of its own; others do not."""
    for seed in range(2):
        X, _, rng = planted(seed, k=3 + seed, noise=noise)
        X = X / X.sum(axis=1, keepdims=True) if even else X
        assert dca.NMF().fit(with_random_holes(X, 0.3, rng)).n_components_ == 3 + seed


def test_rows_that_were_hardly_observed_are_no_false_anchors():
    """A twentieth of the rows has three entries left; their mean places shrink, in noise too."""
    for seed in range(3):
        X, anchors, rng = planted(seed, noise=0.02)
        holes = with_random_holes(X, 0.2, rng)
        pure = np.concatenate(anchors)
        few = np.setdiff1d(rng.choice(len(X), 30, replace=False), pure)
        for i in few:
            holes[i, rng.permutation(40)[3:]] = np.nan
        found = dca.find_anchors(holes, 4)
        assert not np.isin(found.indices, few).any()
        assert recall(found.indices, anchors) >= 0.75


def test_holes_in_blocks_are_told_from_holes_at_random():
    """Sensors of ten features each drop out together; the same share at random needs fewer entries."""
    X, anchors, rng = planted(0, n=60, p=40)
    drop = np.repeat(rng.random((60, 4)) < 0.4, 10, axis=1)
    with pytest.warns(FewEntriesWarning, match="missing in blocks fewer than 5"):
        dca.find_anchors(np.where(drop, np.nan, X), 4)
    X, anchors, rng = planted(0)
    drop = np.repeat(rng.random((600, 4)) < 0.3, 10, axis=1)
    assert recall(dca.find_anchors(np.where(drop, np.nan, X), 4).indices, anchors) == 1.0


def test_the_warning_counts_entries_of_the_model():
    X, _, rng = planted(0, n=30, p=20)
    holes = with_random_holes(X, 0.6, rng)
    n_observed = int((~np.isnan(holes)).sum())
    with pytest.warns(FewEntriesWarning, match=f"{n_observed} entries were observed, {n_observed / (5 * 45):.2g} for"):
        dca.find_anchors(holes, 5)


@pytest.mark.filterwarnings("ignore::dask_dca.errors.FewerAnchorsWarning")
@given(st.data())
@settings(max_examples=3)
def test_any_chunking_gives_the_same_bits(data):
    X, _, rng = planted(data.draw(st.integers(0, 9)), n=120, p=12, k=3)
    holes = with_random_holes(X, data.draw(st.sampled_from([0.02, 0.3])), rng)
    holes = holes.astype(data.draw(st.sampled_from([np.float32, np.float64])))
    holes[5], holes[6] = np.nan, 0.0
    chunks = (data.draw(chunkings(120)), data.draw(chunkings(12, most=3, empty=False)))
    chunked, whole = da.from_array(holes, chunks=chunks), dca.NMF(3).fit(holes)
    parts = dca.NMF(3).fit(chunked)
    assert bits(parts) == bits(whole)
    assert (whole.n_unobserved_rows_, whole.n_zero_rows_) == (1, 1)
    for method in ("transform", "impute"):
        lazy = getattr(parts, method)(chunked)
        assert isinstance(lazy, da.Array)
        assert lazy.compute().tobytes() == getattr(whole, method)(holes).tobytes()
    assert parts.reconstruction_err(chunked) == whole.reconstruction_err(holes)


def test_coefficients_are_those_of_the_observed_entries():
    X, _, rng = planted(1)
    model = dca.NMF(4).fit(X)
    holes = with_random_holes(X[:50] + 0.1 * rng.random((50, 40)), 0.4, rng)
    holes[7], holes[9] = np.nan, X[9]
    found = model.transform(holes)
    for i in np.setdiff1d(range(50), [7]):
        seen = ~np.isnan(holes[i])
        expected = nnls(model.components_[:, seen].T, holes[i, seen])[0]
        np.testing.assert_allclose(found[i], expected, atol=1e-10 * X.max())
    assert np.isnan(found[7]).all()
    assert found[9].tobytes() == model.transform(X[9:10]).tobytes()
    left = np.nan_to_num(holes - np.nan_to_num(found) @ model.components_)
    assert model.reconstruction_err(holes) == pytest.approx(np.linalg.norm(left[np.arange(50) != 7]), rel=1e-9)


def test_a_model_of_complete_rows_fills_by_mixtures_of_its_components():
    X, _, rng = planted(2)
    model = dca.NMF(4).fit(X)
    holes = with_random_holes(X, 0.5, rng)
    holes[3] = np.nan
    filled = model.impute(holes)
    assert np.isnan(filled[3]).all()
    np.testing.assert_allclose(np.delete(filled, 3, axis=0), np.delete(X, 3, axis=0), atol=1e-8)


def marks(holes, tmp_path):
    """The same holes, said in other ways."""
    mask = np.isnan(holes)
    number = np.where(mask, -9.0, holes)
    array = zarr.create_array(str(tmp_path / "x.zarr"), data=number, chunks=(100, 30))
    stored = sparse.coo_array((holes[~mask], np.nonzero(~mask)), shape=holes.shape)
    return {
        "masked": (np.ma.masked_array(number, mask), None),
        "masked blocks": (da.from_array(np.ma.masked_array(number, mask), chunks=(170, 30)), None),
        "number": (number, -9),
        "number in blocks": (da.from_array(number, chunks=(170, 25)), -9.0),
        "number in zarr": (array, -9.0),
        "xarray": (xr.DataArray(holes, dims=("row", "band")), None),
        "implicit": (stored.tocsr(), "implicit"),
    }


def test_every_way_to_mark_a_hole_is_the_same(tmp_path):
    X, _, rng = planted(3, n=240, p=30)
    holes = with_random_holes(X, 0.3, rng)
    expected = dca.NMF(4).fit(holes)
    for name, (given_, missing) in marks(holes, tmp_path).items():
        model = dca.NMF(4, missing=missing).fit(given_)
        assert bits(model) == bits(expected), name
        filled = np.asarray(model.impute(given_))
        assert filled.tobytes() == expected.impute(holes).tobytes(), name
        assert dca.find_anchors(given_, 4, missing=missing).indices.tolist() == expected.anchor_indices_.tolist()


def test_named_dimensions_are_kept_by_impute():
    X, _, rng = planted(3)
    holes = xr.DataArray(with_random_holes(X, 0.3, rng), dims=("row", "band"), coords={"row": np.arange(600) * 2})
    filled = dca.NMF(4).fit(holes).impute(holes)
    assert filled.dims == ("row", "band")
    assert filled.row.values[3] == 6


def test_a_saved_model_fills_alike(tmp_path):
    X, _, rng = planted(4)
    holes = with_random_holes(X, 0.3, rng)
    model = dca.NMF(4, missing=-1.0).fit(holes)
    model.save(str(tmp_path / "m.zarr"))
    again = dca.load_model(str(tmp_path / "m.zarr"))
    assert fitted_bytes(again) == fitted_bytes(model)
    assert again.impute(holes).tobytes() == model.impute(holes).tobytes()


def test_rows_of_any_sign_may_have_holes():
    for seed in range(3):
        X, anchors, rng = planted(seed)
        turn = np.linalg.qr(rng.standard_normal((40, 40)))[0]
        assert recall(dca.find_anchors(with_random_holes(X @ turn, 0.3, rng), 4).indices, anchors) == 1.0


def test_a_hole_beyond_the_sample_is_found_too():
    """Many rows: the sample sees none of it, the pass over all rows does."""
    X, anchors, _ = planted(5, n=40_000, p=12)
    row = next(i for i in range(20_000, 40_000) if all(i not in rows for rows in anchors))
    X[row, 3] = np.nan
    found = dca.find_anchors(da.from_array(X, chunks=(10_000, 12)), 4)
    assert recall(found.indices, anchors) == 1.0
    assert found.completion is not None


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda X: X.__setitem__((9, 2), np.inf), NotFiniteError, "infinity: row 9, column 2"),
        (lambda X: X.__setitem__((9, 2), -1.0), InvalidInputError, "row 9, column 2 is -1"),
    ],
)
def test_what_is_wrong_beside_holes_is_named(make, error, message):
    X, _, rng = planted(0)
    holes = with_random_holes(X, 0.3, rng)
    make(holes)
    for given_ in (holes, da.from_array(holes, chunks=(200, 40))):
        with pytest.raises(error, match=message):
            dca.NMF(4).fit(given_)


def test_what_holes_can_not_have_is_refused():
    X, _, rng = planted(0)
    holes = with_random_holes(X, 0.3, rng)
    with pytest.raises(InvalidParameterError, match="can't be drawn from 'sparse'"):
        dca.NMF(4, ensemble="sparse").fit(holes)
    with pytest.raises(InvalidParameterError, match="'implicit' is for sparse rows"):
        dca.NMF(4, missing="implicit").fit(X)
    with pytest.raises(InvalidParameterError, match="received 'none'"):
        dca.NMF(4, missing="none").fit(X)
    with pytest.raises(InvalidInputError, match="no row of the sample has an observed entry"):
        dca.NMF(4).fit(np.where(X > 0, np.nan, X))
    with pytest.raises(MissingEntriesError, match="NaN: row"):
        dca.NMF(4, method="paper").fit(holes)


def test_a_column_that_was_never_observed_is_told():
    X, _, rng = planted(0)
    holes = with_random_holes(X, 0.1, rng)
    holes[:, 3] = np.nan
    with pytest.warns(MissingEntriesWarning, match=r"column 3 of X has no observed entry .*\(1 such columns\)") as told:
        model = dca.NMF(4).fit(holes)
    assert "X = X[:, ~np.isin(np.arange(X.shape[1]), [3])] leaves it out" in str(told[0].message)
    with pytest.warns(MissingEntriesWarning, match=r"X.drop\(columns=X.columns\[\[3\]\]\) leaves it out"):
        dca.find_anchors(pd.DataFrame(holes), 4)
    assert not model.components_[:, 3].any()


def test_rows_without_holes_have_the_bits_they_had():
    X, _, _ = planted(6)
    plain, marked = dca.NMF(4).fit(X), dca.NMF(4, missing=-1.0).fit(X)
    assert fitted_bytes(plain) == fitted_bytes(marked)
    assert not hasattr(plain, "completion_mean_")


@pytest.mark.filterwarnings("ignore::dask_dca.errors.NotPointedWarning")
def test_rows_behind_the_axis_are_counted_and_are_no_anchors():
    rng = np.random.default_rng(0)
    X = rng.dirichlet(np.ones(4), 600) @ rng.random((4, 12))
    behind = np.arange(5, 600, 97)
    X[behind] *= -1.0
    found = dca.find_anchors(with_random_holes(X, 0.1, rng), 4)
    assert found.n_behind_rows == len(behind)
    assert not np.intersect1d(found.indices, behind).size


def test_rows_without_an_entry_are_counted_in_every_block():
    rng = np.random.default_rng(0)
    X = with_random_holes(rng.dirichlet(np.ones(4), 600) @ rng.random((4, 12)), 0.1, rng)
    X[[3, 199, 450]] = np.nan
    assert dca.NMF(4).fit(da.from_array(X, chunks=(200, -1))).n_unobserved_rows_ == 3


@pytest.mark.parametrize("seed", range(3))
def test_incomplete_rows_of_hardly_any_height_are_brought_near(seed):
    """Of two rows that no sample holds, one a hundred times as far out, neither hides the other nor the rest."""
    rng, n, p = np.random.default_rng(seed), 60_000, 12
    X = rng.dirichlet(np.ones(4), n) @ (3.0 + rng.standard_normal((4, p)))
    centre = X.mean(axis=0)
    directions = np.linalg.svd(X[::50] - centre, full_matrices=False)[2][:2]
    outside = np.setdiff1d(np.arange(n), spread_rows(n, 64, 313))
    far = outside[[len(outside) // 3, 2 * len(outside) // 3]]
    for row, height, direction in zip(far, (1e-4, 1e-6), directions, strict=True):
        X[row] = centre - direction * (1.0 - height) * centre.sum() / direction.sum()
    holes = with_random_holes(X, 0.1, rng)
    holes[far] = X[far]
    found = dca.find_anchors(holes, 3)
    assert np.isin(far, found.indices).all()
    assert found.votes[np.isin(found.indices, far)].max() < found.n_subproblems
    assert found.coverage > 0.95


def test_clipped_entries_of_every_tile_are_counted():
    X, _, rng = planted(0, n=3000, p=12)
    holes = with_random_holes(X, 0.1, rng)
    holes[[5, 1500, 2900], 3] = -1e-12
    for given_ in (holes, da.from_array(holes, chunks=(1400, 12))):
        assert dca.NMF(4).fit(given_).n_clipped_entries_ == 3


def test_rows_of_single_precision_are_sampled_in_it():
    """The sample is what the driver has to hold; entries are the same."""
    X, _, rng = planted(1, p=30)
    holes = with_random_holes(X, 0.3, rng).astype(np.float32)
    single, double = dca.NMF(4).fit(holes), dca.NMF(4).fit(holes.astype(np.float64))
    assert single.completion_loadings_.tobytes() == double.completion_loadings_.tobytes()
    assert single.anchor_indices_.tolist() == double.anchor_indices_.tolist()


@pytest.mark.parametrize("n_patterns", [1, 3, 600])
def test_rows_of_few_patterns_are_placed_as_others(n_patterns):
    """Posterior means from the definition, in any order of the rows, and whatever stands beside them."""
    X, _, rng = planted(2, n=600, p=20)
    patterns = rng.random((n_patterns, 20)) > 0.3
    holes = np.where(patterns[rng.integers(n_patterns, size=600)], X, np.nan)
    model = fit_low_rank(holes, 3)
    found = posterior_means(model, holes)
    second = model.loadings[:, :, None] * model.loadings[:, None, :] + model.spread
    for i in (0, 299, 599):
        seen = ~np.isnan(holes[i])
        precision = second[seen].sum(axis=0) + model.noise * np.eye(3)
        expected = np.linalg.solve(precision, model.loadings[seen].T @ (holes[i] - model.mean)[seen])
        assert np.abs(found[i] - expected).max() < 1e-8 * np.abs(expected).max()
    order = rng.permutation(600)
    assert posterior_means(model, holes[order]).tobytes() == found[order].tobytes()
    assert posterior_means(model, holes[7:50]).tobytes() == found[7:50].tobytes()


def angles(components, rays):
    """Degrees from each ray to the nearest component."""
    units = [rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (rays, components)]
    return np.degrees(np.arccos(np.clip((units[0] @ units[1].T).max(axis=1), -1.0, 1.0)))


def mixed(seed, n=800, p=40, k=4):
    """Rows of which none is pure, and the rays that they are mixtures of."""
    rng = np.random.default_rng(seed)
    shares, rays = rng.dirichlet(np.full(k, 0.7), n), rng.random((k, p))
    shares = shares[shares.max(axis=1) < 0.85]
    X = np.maximum(shares @ rays * (1.0 + 0.01 * rng.standard_normal((len(shares), p))), 0.0)
    holes = with_random_holes(X, 0.3, rng)
    holes[7] = np.nan
    return X, holes, rays


@pytest.mark.parametrize(("basis", "most"), [("rays", 0.5), ("auto", 0.5), ("free", 2.5)])
def test_other_bases_are_found_where_entries_are_missing_as_where_none_is(basis, most):
    for seed in range(2):
        X, holes, rays = mixed(seed)
        model, complete = dca.NMF(4, basis=basis).fit(holes), dca.NMF(4, basis=basis).fit(X)
        assert angles(model.components_, rays).mean() < most  # anchors: 5
        assert model.n_unobserved_rows_ == 1
        shares = model.transform(holes)
        seen = ~np.isnan(shares).any(axis=1)
        assert np.flatnonzero(~seen).tolist() == [7]
        left = np.linalg.norm((shares @ model.components_ - X)[seen])
        assert left < 1.1 * np.linalg.norm(complete.transform(X) @ complete.components_ - X)
        for i in (0, 99):
            there = ~np.isnan(holes[i])
            wanted = nnls(model.components_[:, there].T, holes[i, there])[0]
            np.testing.assert_allclose(shares[i], wanted, atol=1e-6)


@pytest.mark.parametrize("basis", ["rays", "free"])
def test_other_bases_of_rows_with_holes_have_the_same_bits_for_any_chunking(basis):
    _, holes, _ = mixed(0)
    whole = dca.NMF(4, basis=basis).fit(holes)
    chunked = da.from_array(holes, chunks=(130, 17))
    parts = dca.NMF(4, basis=basis).fit(chunked)
    assert bits(parts) == bits(whole)
    with dask.config.set(scheduler=by_messages(0)):
        assert bits(dca.NMF(4, basis=basis).fit(chunked)) == bits(whole)
    np.testing.assert_array_equal(parts.transform(chunked).compute(), whole.transform(holes))


@pytest.mark.parametrize("options", [{"beta_loss": "kullback-leibler"}, {"alpha_W": 1e-5}])
def test_penalties_and_counts_are_fitted_to_filled_rows_and_take_complete_ones(options):
    X, holes, rays = mixed(0)
    model = dca.NMF(4, basis="free", **options).fit(holes)
    assert angles(model.components_, rays).mean() < 5.0
    seen = ~np.isnan(holes).all(axis=1)
    for one in (model, dca.NMF(4, basis="free", **options).fit(X[:200])):  # which has no low-rank model to fill from
        found = one.transform(holes)
        np.testing.assert_array_equal(found[seen], one.transform(one.impute(holes[seen])))
        assert np.isnan(found[~seen]).all()
        np.testing.assert_array_equal(one.transform(da.from_array(holes, chunks=(130, 17))).compute(), found)
    assert np.isfinite(model.transform(X)).all()
