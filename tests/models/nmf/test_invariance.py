"""The same bits for any chunking, scheduler and container, and what must not change the anchors."""

from contextlib import ExitStack, contextmanager
from unittest.mock import patch

import dask
import dask.array as da
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

import dask_dca as dca
from dask_dca.anchoring import literal as paper
from dask_dca.anchoring import preprocess as view
from dask_dca.engine import tiles
from tests.conftest import bits, planted
from tests.strategies import chunkings, matrices

pytestmark = [
    pytest.mark.filterwarnings("ignore::dask_dca.errors.FewerAnchorsWarning"),
    pytest.mark.filterwarnings("ignore::dask_dca.errors.NotPointedWarning"),
]
INLINE, SAMPLED, WIDE = "all rows", "sampled rows", "power steps"


@contextmanager
def path(kind, tile_rows=None):
    """Send small data down the road of large ones: samples of rows, power steps, many tiles a block."""
    with ExitStack() as stack:
        if kind != INLINE:
            stack.enter_context(patch.object(view, "_SAMPLE_RUNS", (4, 4)))
            stack.enter_context(patch.object(view, "_MIN_MOMENT_RUNS", 4))
            stack.enter_context(patch.object(view, "_MOMENT_ROWS", (40, 1, 60)))
            stack.enter_context(patch.object(paper, "_SAMPLE_RUNS", (4, 2)))
        if kind == WIDE:
            stack.enter_context(patch.object(view, "_MAX_MOMENT_FEATURES", 1))
        if tile_rows:
            stack.enter_context(patch.object(tiles, "_MAX_TILE_ROWS", tile_rows))
        stack.enter_context(dask.config.set(scheduler="synchronous"))
        yield


def assert_same_for_a_chunking(data, dtype, method="robust"):
    matrix = data.draw(matrices(dtypes=(dtype,)))
    X, k = matrix.X, matrix.k
    kind = data.draw(st.sampled_from([INLINE, SAMPLED, WIDE]))
    chunks = (data.draw(chunkings(X.shape[0])), data.draw(chunkings(X.shape[1], most=3, empty=False)))
    chunked = da.from_array(X, chunks=chunks)
    if not X.any():
        return
    with path(kind):
        whole = dca.NMF(k, method=method).fit(X)
        coefficients = whole.transform(X)
    with path(kind, data.draw(st.sampled_from([None, 5]))):
        parts = dca.NMF(k, method=method).fit(chunked)
        assert bits(parts) == bits(whole)
        assert parts.components_.dtype == dtype
        found = parts.transform(chunked).compute()
    assert found.dtype == dtype
    if method == "robust":  # the paper's anchors may be duplicates, whose coefficients are not unique
        np.testing.assert_allclose(found, coefficients, rtol=1e-6, atol=1e-6 * max(1.0, coefficients.max()))


@given(st.data())
@settings(max_examples=15)
def test_any_chunking_gives_the_same_bits_in_float64(data):
    assert_same_for_a_chunking(data, np.float64)


@given(st.data())
@settings(max_examples=8)
def test_any_chunking_gives_the_same_bits_in_float32(data):
    assert_same_for_a_chunking(data, np.float32)


@given(st.data())
@settings(max_examples=6)
def test_any_chunking_gives_the_same_bits_with_the_papers_method(data):
    assert_same_for_a_chunking(data, data.draw(st.sampled_from([np.float32, np.float64])), "paper")


@given(st.data())
@settings(max_examples=6)
def test_any_chunking_gives_the_same_bits_for_data_of_any_sign(data):
    matrix = data.draw(matrices())
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    shift = data.draw(st.sampled_from([0.0, 1.0, 3.0]))
    X = (matrix.X + shift * rng.standard_normal(matrix.X.shape[1])).astype(matrix.X.dtype)
    chunked = da.from_array(X, chunks=(data.draw(chunkings(X.shape[0])), -1))
    kind = data.draw(st.sampled_from([INLINE, SAMPLED, WIDE]))
    if not X.any():
        return
    with path(kind):
        assert bits(dca.find_anchors(chunked, matrix.k)) == bits(dca.find_anchors(X, matrix.k))


@pytest.mark.parametrize("ensemble", ["mixed", "row-space", "whitened", "gaussian", "sparse", "unit", "data"])
@pytest.mark.parametrize("selection", ["candidates", "votes"])
def test_every_ensemble_and_selection_gives_the_same_bits(ensemble, selection):
    X, _ = planted(300, 12, 4, noise=0.05)
    X[50:100] = X[:50]
    chunked = da.from_array(X, chunks=((7, 0, 1, 142, 150), (5, 7)))
    for kind in (INLINE, SAMPLED, WIDE):
        with path(kind):
            whole = dca.find_anchors(X, 4, ensemble=ensemble, selection=selection)
            assert bits(dca.find_anchors(chunked, 4, ensemble=ensemble, selection=selection)) == bits(whole)


@pytest.mark.parametrize("method", ["robust", "paper"])
@pytest.mark.parametrize("form", [sparse.csr_array, sparse.csr_matrix, sparse.csc_array])
@pytest.mark.parametrize("chunks", [(70, 16), ((0, 200, 1, 299), (9, 7))])
def test_dask_arrays_of_sparse_blocks_agree_with_dense(method, form, chunks):
    X, _ = planted(500, 16, 4)
    X[np.random.default_rng(1).random(X.shape) < 0.5] = 0.0
    blocks = da.from_array(X, chunks=chunks).map_blocks(form, dtype=X.dtype, meta=form((0, 0), dtype=X.dtype))
    whole = dca.NMF(4, method=method).fit(X)
    model = dca.NMF(4, method=method).fit(blocks)
    assert bits(model) == bits(whole)
    found = model.transform(blocks).compute()
    assert isinstance(found, np.ndarray)
    np.testing.assert_allclose(found, whole.transform(X), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("n", "p"), [(60, 200), (300, 1000)])
def test_wide_data_give_the_same_bits_and_their_anchors(n, p):
    X, anchors = planted(n, p, 5, dtype=np.float32)
    chunked = da.from_array(X, chunks=(n // 3 + 1, p // 2 + 3))
    whole = dca.find_anchors(X, 5)
    assert sorted(whole.indices) == anchors.tolist()
    assert bits(dca.find_anchors(chunked, 5)) == bits(whole)


def test_samples_that_hold_no_usable_row_do_not_change_the_bits():
    X, anchors = planted(400, 10, 3)
    X = np.vstack([np.zeros((300, 10)), X, np.zeros((300, 10))])
    with path(SAMPLED):
        whole = dca.find_anchors(X, 3)
        assert sorted(whole.indices) == (anchors + 300).tolist()
        assert bits(dca.find_anchors(da.from_array(X, chunks=(90, 4)), 3)) == bits(whole)


# --- what must not change the anchors -------------------------------------------------------------------------


@given(seed=st.integers(0, 10**6), k=st.integers(2, 6), noise=st.sampled_from([0.0, 0.02]))
@settings(max_examples=6)
def test_permuting_rows_permutes_the_anchors(seed, k, noise):
    X, _ = planted(200, 15, k, seed, noise=noise)
    order = np.random.default_rng(seed).permutation(len(X))
    before, after = dca.find_anchors(X, k), dca.find_anchors(X[order], k)
    if noise == 0.0:
        assert sorted(order[after.indices]) == sorted(before.indices)
    else:  # the sample's mean is rounded in another order: at most a near-tie may turn
        assert len(np.intersect1d(order[after.indices], before.indices)) >= k - 1


@given(matrix=matrices(), seed=st.integers(0, 10**6), most=st.sampled_from([3, 60]))
@settings(max_examples=6)
def test_scaling_rows_by_powers_of_two_changes_nothing(matrix, seed, most):
    powers = np.random.default_rng(seed).integers(-most, most + 1, len(matrix.X))
    X = matrix.X[matrix.X.any(axis=1)]
    if len(X) < matrix.k:
        return
    scaled = np.ldexp(X, powers[: len(X), None]).astype(X.dtype)
    for method in ("robust", "paper"):
        before, after = (dca.find_anchors(Z, matrix.k, method=method) for Z in (X, scaled))
        if method == "robust":
            assert bits(after) == bits(before)
        else:  # rows count by their rays alone
            assert bits(after, ("indices", "votes", "candidates")) == bits(before, ("indices", "votes", "candidates"))


@given(seed=st.integers(0, 10**6), scale=st.sampled_from([1e-12, 1e12, 1e-100, 1e100, 1e-290, 1e290]))
@settings(max_examples=8)
def test_scaling_all_data_changes_no_anchor(seed, scale):
    """Thresholds are relative, so amperes or picoamperes are the same (ziatdinovmax/SciLink #381 via PR #387)."""
    X, _ = planted(150, 10, 4, seed)
    for method in ("robust", "paper"):
        before = dca.NMF(4, method=method).fit(X)
        after = dca.NMF(4, method=method).fit(X * scale)
        assert sorted(after.anchor_indices_) == sorted(before.anchor_indices_)
        np.testing.assert_allclose(after.components_, before.components_ * scale)
    np.testing.assert_allclose(after.transform(X * scale), before.transform(X), atol=1e-9)
    error = before.reconstruction_err(X)
    assert after.reconstruction_err(X * scale) / scale == pytest.approx(error, rel=1e-6, abs=1e-9)


@given(seed=st.integers(0, 10**6), method=st.sampled_from(["robust", "paper"]))
@settings(max_examples=8)
def test_duplicating_all_rows_keeps_the_first_of_each_anchor(seed, method):
    X, anchors = planted(100, 10, 4, seed)
    found = dca.find_anchors(np.vstack([X, X, 4.0 * X]), 4, method=method, n_subproblems=200)
    assert sorted(found.indices) == anchors.tolist()


@given(seed=st.integers(0, 10**6), n_zero=st.integers(1, 40))
@settings(max_examples=8)
def test_all_zero_rows_are_left_out_and_counted(seed, n_zero):
    X, anchors = planted(100, 10, 4, seed)
    where = np.sort(np.random.default_rng(seed).integers(0, len(X) + 1, n_zero))
    numbers = np.insert(np.arange(len(X)), where, -1)
    for method in ("robust", "paper"):
        found = dca.find_anchors(np.insert(X, where, 0.0, axis=0), 4, method=method, n_subproblems=200)
        assert sorted(numbers[found.indices]) == anchors.tolist()
        assert found.n_zero_rows == n_zero


@given(seed=st.integers(0, 10**6), n_zero=st.integers(1, 20))
@settings(max_examples=8)
def test_all_zero_columns_keep_the_anchors(seed, n_zero):
    X, anchors = planted(100, 10, 4, seed)
    where = np.random.default_rng(seed).integers(0, X.shape[1] + 1, n_zero)
    for method in ("robust", "paper"):
        found = dca.find_anchors(np.insert(X, where, 0.0, axis=1), 4, method=method, n_subproblems=200)
        assert sorted(found.indices) == anchors.tolist()


@pytest.mark.parametrize("method", ["robust", "paper"])
def test_the_seed_and_nothing_else_decides_the_planes(method):
    X, _ = planted(500, 12, 6, noise=0.2)
    state = np.random.get_state()[1].copy()  # noqa: NPY002 - the global one, which must not move
    first, again = (dca.find_anchors(X, 6, method=method, random_state=1) for _ in range(2))
    assert bits(first) == bits(again)
    assert bits(first) != bits(dca.find_anchors(X, 6, method=method, random_state=2))
    assert np.array_equal(state, np.random.get_state()[1])  # noqa: NPY002
