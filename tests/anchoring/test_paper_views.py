"""The paper's general problem on moments of three views, against moments and outer products formed explicitly."""

from unittest.mock import patch

import dask
import dask.array as da
import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.optimize import nnls

import dask_dca as dca
from dask_dca.anchoring import views as paper_views
from dask_dca.anchoring import views as view_moments
from dask_dca.anchoring.parameters import check_settings
from dask_dca.anchoring.views import (
    ColumnViews,
    Planes,
    check_views,
    moment_coordinates,
    paper_anchors_of_views,
    paper_mixture,
    rows_outside,
    split_views,
)
from dask_dca.engine import rows as engine_rows
from dask_dca.engine import tiles
from dask_dca.engine.passes import Run
from dask_dca.engine.rows import as_rows
from dask_dca.errors import FewerAnchorsWarning, InvalidInputError, InvalidParameterError, NotFiniteError
from dask_dca.geometry import planes as angles
from dask_dca.geometry import planes as rank_one
from dask_dca.geometry.separation import planar_hull, pointed_extent
from tests.conftest import bits
from tests.strategies import chunkings

ENSEMBLES = ["gaussian", "unit", "sparse", "data", "pairs"]
VIEWS = [slice(0, 4), slice(4, 9), slice(9, 12)]
GROUPS = ColumnViews(check_views(VIEWS, 12))

pytestmark = pytest.mark.filterwarnings("ignore::dask_dca.errors.FewerAnchorsWarning")


def mixture(n=200, seed=0, noise=0.5, k=3, p=12, planted=True):
    """Rows of a mixture, shuffled, the means among them; and those rows, the labels, the weights."""
    rng = np.random.default_rng(seed)
    means = 2.0 * rng.standard_normal((k, p)) + 1.0
    weights = rng.dirichlet(np.full(k, 5.0))
    labels = rng.choice(k, n, p=weights)
    X = means[labels] + noise * rng.standard_normal((n, p))
    where = rng.choice(n, k, replace=False)
    if planted:
        X[where], labels[where] = means, np.arange(k)
    return X, where, labels, means


def dense(axes, width):
    """Axes as vectors, shape (2, s, width)."""
    if sparse.issparse(axes):
        return axes.toarray().reshape(2, -1, width)
    return axes if axes.ndim == 3 else np.eye(width)[axes]


def explicit(X, planes):
    """Moments (q, p1 p2) and outer products (n, p1 p2) as the paper writes them, and Phi (s, p1 p2, 2)."""
    first, second, third = (X[:, group] for group in GROUPS.groups)
    Y = np.einsum("ni,nj->nij", first, second).reshape(len(X), -1)
    etas = planes.etas()[0]
    etas = etas / np.linalg.norm(etas, axis=1, keepdims=True)
    moments = np.vstack([first.T @ second, *(first.T @ np.diag(third @ eta) @ second for eta in etas)])
    axes = planes.axes()
    if planes.ensemble == "pairs":
        Phi = np.zeros((planes.count, first.shape[1], second.shape[1], 2))
        Phi[:, axes.first, axes.second] = axes.axes.transpose(1, 2, 0)
    else:
        a, b = (dense(own, view.shape[1]) for own, view in zip(axes, (first, second), strict=True))
        Phi = np.einsum("lsi,lsj->sijl", a, b)
    Phi = Phi.reshape(planes.count, -1, 2)
    return moments.reshape(planes.n_weights, -1) / len(X), Y, Phi


def planes_of(X, ensemble, seed=0, count=40, n_weights=4):
    sample = tuple(X[:50, group] for group in GROUPS.groups)
    return Planes(ensemble, seed, count, n_weights, sample, n_pairs=13 if ensemble == "pairs" else 0)


def passes(X, planes):
    rows = as_rows(X)
    moments = moment_coordinates(rows, GROUPS, planes, Run())
    keys = angles.cosine_keys(moments)
    inner = (keys.min(axis=0), keys.max(axis=0))
    return moments, rows_outside(rows, GROUPS, planes, inner, Run())


@pytest.mark.parametrize("ensemble", ENSEMBLES)
@pytest.mark.parametrize("seed", range(5))
def test_every_plane_votes_as_with_moments_and_outer_products_formed(ensemble, seed):
    X, *_ = mixture(seed=seed)
    planes = planes_of(X, ensemble, seed)
    moments, (low, high) = passes(X, planes)
    M, Y, Phi = explicit(X, planes)
    expected = [planar_hull(M @ plane, Y @ plane) for plane in Phi]
    assert list(zip(low.tolist(), high.tolist(), strict=True)) == expected
    assert len({row for pair in expected for row in pair}) > 10
    pointed = [pointed_extent(M @ plane)[2] for plane in Phi]
    assert rank_one.pointed_planes(moments).tolist() == pointed


@pytest.mark.parametrize("ensemble", ENSEMBLES)
def test_moments_are_those_formed_up_to_one_factor_each(ensemble):
    X, *_ = mixture(seed=7)
    planes = planes_of(X, ensemble)
    found, _ = passes(X, planes)
    M, _, Phi = explicit(X, planes)
    expected = np.einsum("qj,sjl->qls", M, Phi)
    for one, other in zip(found, expected, strict=True):
        factor = np.vdot(one, other) / np.vdot(one, one)
        assert factor > 0
        np.testing.assert_allclose(factor * one, other, atol=1e-6 * np.abs(other).max())


def test_the_result_counts_the_planes_votes():
    X, *_ = mixture(seed=3)
    found = dca.find_anchors(X, 3, views=VIEWS, method="paper", n_subproblems=60, random_state=5)
    seed = check_settings("paper", 60, "gaussian", "auto", 5).seed
    planes = Planes("gaussian", seed, 60, 4, tuple(X[:, group] for group in GROUPS.groups))
    M, Y, Phi = explicit(X, planes)
    votes = np.zeros(len(X), dtype=int)
    for plane in Phi:
        for row in {row for row in planar_hull(M @ plane, Y @ plane) if row >= 0}:
            votes[row] += 1
    assert found.candidates.tolist() == np.flatnonzero(votes).tolist()
    assert found.candidate_votes.tolist() == votes[votes > 0].tolist()
    assert found.indices.tolist() == np.lexsort((np.arange(len(votes)), -votes))[:3].tolist()
    assert found.n_subproblems == 60
    assert 0 < found.n_pointed < 60


def test_unit_planes_see_a_random_set_of_feature_pairs():
    first, second = rank_one.draw_axes("unit", 3, 500, (4, 5))
    pairs = set(zip(first.ravel().tolist(), second.ravel().tolist(), strict=True))
    assert pairs == {(i, j) for i in range(4) for j in range(5)}  # all of them, if there are enough planes
    few, others = rank_one.draw_axes("unit", 3, 4, (1000, 1000))
    assert len(set(few.ravel().tolist())) == len(set(others.ravel().tolist())) == 8
    assert not np.array_equal(few, others)
    again, _ = rank_one.draw_axes("unit", 3, 9, (1000, 1000))
    np.testing.assert_array_equal(again[:, :4], few)  # plane t depends on the seed and t alone


@pytest.mark.parametrize("widths", [(4, 5), (40, 300), (1000, 1000)])
@pytest.mark.parametrize("k", [1, 3])
def test_omega_is_a_random_set_of_as_many_pairs_as_matrix_completion_needs(widths, k):
    m = rank_one.n_pairs(widths, k)
    asked = max(widths) * k * np.log(sum(widths)) ** 2
    assert m == min(np.ceil(asked), widths[0] * widths[1])
    omega = rank_one.draw_pair_axes(3, 1, widths, m)
    pairs = omega.first * widths[1] + omega.second
    assert len(np.unique(pairs)) == m
    assert omega.axes.shape == (2, 1, m)
    for places, width in ((omega.first, widths[0]), (omega.second, widths[1])):
        assert 0 <= places.min() <= places.max() < width
        assert abs(places.mean() / (width - 1) - 0.5) < 0.05
    again = rank_one.draw_pair_axes(3, 2, widths, m)
    np.testing.assert_array_equal(again.axes[:, 0], omega.axes[:, 0])
    np.testing.assert_array_equal(again.first, omega.first)
    assert m == widths[0] * widths[1] or (rank_one.draw_pair_axes(4, 1, widths, m).first != omega.first).any()


def test_planes_among_pairs_see_no_other_pair():
    X, *_ = mixture(n=100)
    planes = Planes("pairs", 1, 5, 2, tuple(X[:50, group] for group in GROUPS.groups), n_pairs=2)
    omega = planes.axes()
    blind = X.copy()
    blind[:, np.setdiff1d(np.arange(9), [*omega.first, *(4 + omega.second)])] = 7.0
    for one, other in zip(passes(X, planes)[1], passes(blind, planes)[1], strict=True):
        np.testing.assert_array_equal(one, other)


def test_planes_among_pairs_need_views_and_room():
    X, *_ = mixture()
    for wrong in (
        lambda: dca.find_anchors(X, 3, method="paper", ensemble="pairs"),
        lambda: dca.NMF(3, method="paper", ensemble="pairs").fit(np.abs(X)),
        lambda: dca.GaussianMixture(3, ensemble="pairs").fit(X),
    ):
        with pytest.raises(InvalidParameterError, match="needs views and method='paper'"):
            wrong()
    wide = np.ones((10, 6000))
    with pytest.raises(InvalidParameterError, match="use ensemble='unit'"):
        dca.GaussianMixture(5, method="paper", ensemble="pairs").fit(wide + np.eye(10, 6000))
    model = dca.GaussianMixture(3, method="paper", ensemble="pairs", views=VIEWS).fit(X)
    np.testing.assert_allclose(model.means_, X[model.anchor_indices_], atol=1e-12)


def test_unit_planes_depend_on_their_features_only():
    X, *_ = mixture(n=100)
    planes = planes_of(X, "unit", count=3)
    first, second = planes.axes()
    blind = X.copy()
    unseen = [i for i in range(4) if i not in first] + [4 + j for j in range(5) if j not in second]
    blind[:, unseen] = 0.0
    assert unseen
    for one, other in zip(passes(X, planes)[1], passes(blind, planes)[1], strict=True):
        np.testing.assert_array_equal(one, other)


def test_data_planes_are_outer_products_of_rows():
    X, *_ = mixture(n=50)
    planes = planes_of(X, "data", count=5)
    a, b = planes.axes()
    X1, X2 = X[:, :4], X[:, 4:9]
    for own in range(5):
        for level in range(2):
            nearest = [np.argmax(Z @ w[level, own] / np.linalg.norm(Z, axis=1)) for Z, w in ((X1, a), (X2, b))]
            assert nearest[0] == nearest[1]


def test_planted_means_are_found_by_votes_not_by_place():
    """Means planted as the first rows are "found" by any stable sort of no votes: so rows are shuffled."""
    recalls, at_front = [], []
    for seed in range(30):
        X, where, *_ = mixture(n=120, seed=seed, noise=1.5)
        found = dca.find_anchors(X, 3, views=VIEWS, method="paper", random_state=seed)
        recalls.append(len(np.intersect1d(found.indices, where)) / 3)
        order = np.concatenate([where, np.setdiff1d(np.arange(120), where)])
        moved = dca.find_anchors(X[order], 3, views=VIEWS, method="paper", random_state=seed)
        at_front.append(np.mean(moved.indices < 3))
        # the same planes elect the same rows, wherever they are, except for ties of votes and rounding
        assert len(np.intersect1d(order[moved.candidates], found.candidates)) >= 0.9 * len(found.candidates)
    assert np.mean(recalls) < 0.5  # the literal method does not find them: DESIGN, fact 4
    assert np.mean(at_front) < np.mean(recalls) + 0.35


def test_anchors_of_noiseless_data_span_the_moments():
    """Where all rows are means the only candidates are the k means, up to their duplicates."""
    X, _, labels, _ = mixture(n=90, noise=0.0)
    found = dca.find_anchors(X, 3, views=VIEWS, method="paper", n_subproblems=200)
    assert set(labels[found.candidates].tolist()) == {0, 1, 2}
    assert len(found.candidates) == 3  # ties go to the lower row


def test_weights_solve_the_first_moment():
    X, *_ = mixture(n=400, seed=1, noise=0.05)
    settings_ = check_settings("paper", 300, "gaussian", "auto", 0)
    for seed in range(4):
        rng = np.random.default_rng(seed)
        model = paper_mixture(as_rows(X), GROUPS, 3, settings_, Run())
        O1, O2, _ = model.means
        M = X[:, :4].T @ X[:, 4:9] / len(X)
        design = np.stack([np.outer(a, b).ravel() for a, b in zip(O1, O2, strict=True)], axis=1)
        expected, _ = nnls(design / np.abs(design).max(), M.ravel())
        np.testing.assert_allclose(model.weights, expected / expected.sum(), atol=1e-5)
        X = X[rng.permutation(len(X))]


def test_given_axes_are_whole_numbers():
    axes = rank_one.integer_axes(np.random.default_rng(0).standard_normal((5, 7)) * 1e-9)
    np.testing.assert_array_equal(axes, np.rint(axes))
    np.testing.assert_allclose(np.linalg.norm(axes, axis=2), 2.0**26, rtol=1e-5)


def test_true_means_get_the_true_weights():
    X, _, labels, means = mixture(n=5000, seed=2, noise=0.3, planted=False)
    three = tuple(means[:, group] for group in GROUPS.groups)
    found = paper_views._solve_weights(as_rows(X), GROUPS, three, Run())
    np.testing.assert_allclose(found, np.bincount(labels) / len(X), atol=0.01)


def test_means_are_rows():
    X, *_ = mixture()
    model = paper_mixture(as_rows(X), GROUPS, 3, check_settings("paper", "auto", "auto", "auto", 0), Run())
    np.testing.assert_array_equal(np.hstack(model.means), X[model.anchors.indices])
    assert model.weights.sum() == pytest.approx(1.0)


def test_a_rows_products_do_not_depend_on_the_other_rows():
    rng = np.random.default_rng(0)
    view = rng.standard_normal((64, 700)) * 10.0 ** rng.uniform(-8, 8, (64, 1))
    axes, _ = rank_one.draw_axes("gaussian", 0, 30, (700, 2))
    together, units = angles.inner_products(view, axes)
    for cut in (1, 3, 64):
        apart = [angles.inner_products(view[i : i + cut], axes) for i in range(0, 64, cut)]
        np.testing.assert_array_equal(np.concatenate([products for products, _ in apart]), together)
        np.testing.assert_array_equal(np.concatenate([unit for _, unit in apart]), units)
    exact = np.einsum("np,lsp->nls", view, axes / np.linalg.norm(axes, axis=2, keepdims=True))
    lengths = np.linalg.norm(view, axis=1)[:, None, None]
    np.testing.assert_allclose(np.ldexp(together, units[:, None, None]) / lengths, exact / lengths, atol=2e-6)


@given(st.data())
@settings(max_examples=25)
def test_any_chunking_gives_the_same_bits(data):
    n = data.draw(st.integers(20, 120))
    X, *_ = mixture(n=n, seed=data.draw(st.integers(0, 10**6)))
    X = X.astype(data.draw(st.sampled_from([np.float32, np.float64])))
    rng = np.random.default_rng(0)
    if data.draw(st.booleans()):
        X[rng.integers(n, size=n // 3)] = X[rng.integers(n, size=n // 3)]
    if data.draw(st.booleans()):
        X[rng.integers(n, size=n // 8)] = 0.0
    chunked = da.from_array(X, chunks=(data.draw(chunkings(n)), data.draw(chunkings(12, most=3, empty=False))))
    ensemble = data.draw(st.sampled_from(ENSEMBLES))
    options = check_settings("paper", 20, ensemble, "auto", data.draw(st.integers(0, 99)), views=True)
    sample = data.draw(st.sampled_from([(32, 8), (4, 2)]))
    with (
        patch.object(paper_views, "_SAMPLE_RUNS", sample),
        patch.object(tiles, "_MAX_TILE_ROWS", data.draw(st.sampled_from([1024, 5]))),
        patch.object(view_moments, "_CUT_ENTRIES", data.draw(st.sampled_from([2**17, 1]))),
        dask.config.set(scheduler="synchronous"),
    ):
        parts = paper_mixture(as_rows(chunked), GROUPS, 3, options, Run())
    with patch.object(paper_views, "_SAMPLE_RUNS", sample):
        whole = paper_mixture(as_rows(X), GROUPS, 3, options, Run())
    assert bits(parts.anchors) == bits(whole.anchors)
    assert parts.weights.tobytes() == whole.weights.tobytes()
    assert np.hstack(parts.means).tobytes() == np.hstack(whole.means).tobytes()


@pytest.mark.parametrize("ensemble", ENSEMBLES)
def test_containers_and_schedulers_agree(tmp_path, monkeypatch, ensemble):
    monkeypatch.setattr(engine_rows, "_BLOCK_BYTES", 2**12)
    X, *_ = mixture(n=900)
    X[np.random.default_rng(0).random(X.shape) < 0.3] = 0.0
    stored = zarr.create_array(tmp_path / "x.zarr", data=X, chunks=(64, 7))
    options = {"views": VIEWS, "method": "paper", "ensemble": ensemble}
    whole = dca.find_anchors(X, 3, **options)
    for form in (stored, da.from_zarr(stored), sparse.csr_array(X)):
        for scheduler in ("synchronous", "threads"):
            with dask.config.set(scheduler=scheduler):
                assert bits(dca.find_anchors(form, 3, **options)) == bits(whole)


@pytest.mark.parametrize("scale", [1e-150, 1e-12, 1e12, 1e150])
def test_scaling_views_changes_no_vote(scale):
    X, *_ = mixture()
    scaled = X * np.repeat([2.0**40, scale, 3.0], [4, 5, 3])
    options = {"views": VIEWS, "method": "paper", "n_subproblems": 50}
    before, after = dca.find_anchors(X, 3, **options), dca.find_anchors(scaled, 3, **options)
    common = np.intersect1d(before.candidates, after.candidates)
    assert len(common) >= 0.95 * len(before.candidates)


def test_views_may_be_masks_and_leave_columns_out():
    X, *_ = mixture()
    wide = np.hstack([X[:, 9:], 1e3 * X[:, :3], X[:, :9]])
    masks = [np.isin(np.arange(15), group) for group in ([6, 7, 8, 9], [10, 11, 12, 13, 14], [0, 1, 2])]
    one = dca.find_anchors(wide, 3, views=masks, method="paper")
    other = dca.find_anchors(X, 3, views=VIEWS, method="paper")
    assert bits(one, ("indices", "votes", "candidates")) == bits(other, ("indices", "votes", "candidates"))


@pytest.mark.parametrize(
    ("views", "text"),
    [
        ([[0], [1]], "received 2 of them"),
        (3, "received 3"),
        ("abc", "three disjoint groups"),
        ([[0], [1], []], "no column"),
        ([[0], [1], [1, 2]], "column 1 is in more than one"),
        ([[0], [1], [12]], "out of bounds"),
        ([[0], [1], [0.5]], "three disjoint groups"),
        ([[0], [1], [[2, 3]]], "no list of columns"),
    ],
)
def test_unusable_views_are_refused_with_the_line_that_fixes_them(views, text):
    with pytest.raises(InvalidParameterError, match="views=") as caught:
        dca.find_anchors(np.ones((20, 12)), 2, views=views, method="paper")
    assert text in str(caught.value)


def test_views_need_the_papers_method_and_no_other_rows():
    X, *_ = mixture()
    for options in ({"method": "robust"}, {"method": "paper", "Y": X}):
        with pytest.raises(InvalidParameterError, match="method='paper'"):
            dca.find_anchors(X, 3, views=VIEWS, **options)


def test_useless_data_are_refused():
    X, *_ = mixture()
    X[:, :4] = 0.0
    with pytest.raises(InvalidInputError, match="all rows of a view zero"):
        dca.find_anchors(X, 3, views=VIEWS, method="paper")
    X[7, 10] = np.nan
    with pytest.raises(NotFiniteError, match="row 7, column 10"):
        dca.find_anchors(da.from_array(X, chunks=(50, 12)), 3, views=VIEWS, method="paper")


@pytest.mark.filterwarnings("default")
def test_fewer_rows_with_votes_than_anchors_are_said():
    X, *_ = mixture(n=60)
    with pytest.warns(FewerAnchorsWarning, match="raise n_subproblems"):
        found = paper_anchors_of_views(as_rows(X), GROUPS, 50, check_settings("paper", 3, "gaussian", "auto", 0), Run())
    assert len(found.indices) <= 6


def test_random_views_hold_all_columns_and_depend_on_the_seed():
    views = split_views(20, 1)
    assert sorted(np.concatenate(views).tolist()) == list(range(20))
    assert [len(view) for view in views] == [7, 7, 6]
    assert views[0].tolist() != split_views(20, 2)[0].tolist()


class Successive:
    """Views of a sequence: the observation before, the one at, and the one after; for blocks that are whole."""

    def tiles(self, columns, start):
        X = np.hstack([np.asarray(part) for part in columns])
        yield np.arange(start + 1, start + len(X) - 1), (X[:-2], X[1:-1], X[2:])


def test_views_may_be_successive_observations():
    X = np.random.default_rng(0).standard_normal((100, 5)) + 1.0
    triples = np.hstack([X[:-2], X[1:-1], X[2:]])
    settings_ = check_settings("paper", "auto", "gaussian", "auto", 0)
    groups = ColumnViews(check_views([slice(0, 5), slice(5, 10), slice(10, 15)], 15))
    one = paper_mixture(as_rows(X), Successive(), 3, settings_, Run())
    other = paper_mixture(as_rows(triples), groups, 3, settings_, Run())
    assert one.anchors.indices.tolist() == (other.anchors.indices + 1).tolist()
    np.testing.assert_array_equal(np.hstack(one.means), np.hstack(other.means))
    np.testing.assert_array_equal(one.weights, other.weights)
