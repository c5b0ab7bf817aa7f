"""The passes' own pieces: which rows are sampled, what is counted, and that parts add up."""

import pickle
from unittest.mock import patch

import dask
import dask.array as da
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dask_dca as dca
from dask_dca.anchoring import divide as engine_divide
from dask_dca.anchoring.parameters import check_settings
from dask_dca.anchoring.preprocess import _n_runs
from dask_dca.anchoring.robust import robust_anchors
from dask_dca.engine import tiles as engine_tiles
from dask_dca.engine.entry import align_arrays
from dask_dca.engine.passes import Run
from dask_dca.engine.rows import as_rows
from dask_dca.engine.sampling import fetch_rows, spread_rows
from dask_dca.engine.tiles import RowCounts, slabs, tiles
from tests.conftest import bits, planted
from tests.messages import dump, load
from tests.strategies import chunkings


@given(n=st.integers(1, 10**7), n_groups=st.integers(1, 60), group=st.integers(1, 80))
@settings(max_examples=100)
def test_sampled_rows_are_runs_one_in_each_stretch(n, n_groups, group):
    found = spread_rows(n, n_groups, group)
    if n <= n_groups * group:
        assert found is None
        return
    runs = found.reshape(n_groups, group)
    assert (np.diff(runs, axis=1) == 1).all()
    edges = np.arange(n_groups + 1) * n // n_groups
    assert (runs[:, 0] >= edges[:-1]).all()
    assert (runs[:, -1] < edges[1:]).all()
    np.testing.assert_array_equal(spread_rows(n, n_groups, group), found)


def test_sampled_runs_begin_anywhere_in_their_stretch():
    """Not always at its head: data with a period of the stretch's length would be seen at one phase alone."""
    starts = spread_rows(1_000_000, 1000, 10).reshape(1000, 10)[:, 0] % 1000
    assert starts.min() < 20
    assert starts.max() > 970
    assert 450 < starts.mean() < 530


@given(data=st.data(), n=st.integers(1, 40))
@settings(max_examples=80)
def test_rows_are_fetched_in_the_order_asked_for(data, n):
    X = np.arange(3.0 * n).reshape(n, 3)
    chunked = da.from_array(X, chunks=(data.draw(chunkings(n)), data.draw(chunkings(3, 3, empty=False))))
    wanted = np.array(data.draw(st.permutations(range(n))))[: data.draw(st.integers(1, n))]
    with dask.config.set(scheduler="synchronous"):
        np.testing.assert_array_equal(fetch_rows(as_rows(chunked), wanted, Run()), X[wanted])
        np.testing.assert_array_equal(fetch_rows(as_rows(chunked), None, Run()), X)


@given(data=st.data(), n=st.integers(1, 60), copy=st.booleans(), start=st.integers(0, 1000))
@settings(max_examples=80)
def test_tiles_hold_each_row_once_and_in_order(data, n, copy, start):
    X = np.random.default_rng(n).random((n, 7)).astype(data.draw(st.sampled_from([np.float32, np.float64])))
    columns = np.split(X, np.cumsum(data.draw(chunkings(7, 3, empty=False)))[:-1], axis=1)
    chosen = data.draw(st.one_of(st.none(), st.lists(st.integers(0, n - 1), unique=True).map(sorted)))
    only = None if chosen is None else np.array(chosen, dtype=np.int64) + start
    found = list(tiles(columns, start, only, copy=copy))
    rows = np.arange(n) if chosen is None else np.array(chosen, dtype=int)
    numbers = np.concatenate([[], *(part[0] for part in found)])
    assert numbers.tolist() == (rows + start).tolist()
    if len(rows):
        np.testing.assert_array_equal(np.concatenate([part[1] for part in found]), X[rows])
    for _, tile in found:
        assert tile.dtype == np.float64
        assert tile.flags.c_contiguous
        assert not copy or not np.shares_memory(tile, X)


def test_counts_add_up():
    assert RowCounts(1, 2, 3) + RowCounts(10, 20, 30) == RowCounts(11, 22, 33)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32])
@pytest.mark.parametrize("columns", [12, 7])
def test_anchors_that_come_along_are_the_rows_that_would_be_fetched(monkeypatch, dtype, columns):
    X, anchors = planted(600, 12, 4)
    X = (X * 1000.0).astype(dtype)
    if dtype != np.int32:
        X[anchors[0], 0] = -1e-7 * X[anchors[0]].max()  # rounding, which is clipped
    chunked = da.from_array(X, chunks=((0, 200, 1, 399), columns))
    models = []
    for bring in (True, False):
        monkeypatch.setattr(engine_divide, "_should_bring_rows", lambda rows, directions, bring=bring: bring)
        rows = as_rows(chunked)
        found = robust_anchors(rows, 4, check_settings("robust", "auto", "auto", "auto", 0), Run(), nonnegative=True)
        assert len(found.rows) == (4 if bring else 0)
        models.append(dca.NMF(4).fit(chunked))
    assert bits(models[0]) == bits(models[1])
    assert models[0].components_.dtype == models[1].components_.dtype
    np.testing.assert_array_equal(models[0].components_, np.maximum(X[models[0].anchor_indices_], 0))


def test_anchors_come_along_only_where_blocks_are_few_and_tall():
    directions = engine_divide.Directions("mixed", 0, 600, 128, 19, np.ones(19))
    few = as_rows(da.zeros((1_000_000, 500), chunks=(30_000, 500), dtype=np.float32))
    many = as_rows(da.zeros((1_000_000_000, 500), chunks=(100_000, 500), dtype=np.float32))
    wide = as_rows(da.zeros((1_000_000, 50_000), chunks=(30_000, 50_000), dtype=np.float32))
    flat = as_rows(da.zeros((40_000, 500), chunks=(1000, 500), dtype=np.float32))
    blocks = [engine_divide._Blocks.of(rows) for rows in (few, many, wide, flat)]
    assert [engine_divide._should_bring_rows(some, directions) for some in blocks] == [True, False, False, False]


@given(data=st.data(), n=st.integers(1, 60), start=st.integers(0, 1000))
@settings(max_examples=60)
def test_slabs_hold_each_row_once_and_unrounded(data, n, start):
    kind = data.draw(st.sampled_from([np.float32, np.float64, np.int64, ">f4"]))
    X = np.random.default_rng(n).integers(-(2**24), 2**24, (n, 7)).astype(kind)
    columns = np.split(X, np.cumsum(data.draw(chunkings(7, 3, empty=False)))[:-1], axis=1)
    with patch.object(engine_tiles, "_SLAB_ENTRIES", 200), patch.object(engine_tiles, "_TILE_ENTRIES", 50):
        found = list(slabs(columns, start))
    np.testing.assert_array_equal(np.concatenate([part[1] for part in found]), X)
    assert np.concatenate([part[0] for part in found]).tolist() == list(range(start, start + n))
    assert all(part[1].dtype in (np.float32, np.float64) and part[1].flags.c_contiguous for part in found)


def test_directions_are_made_once_and_never_sent():
    directions = engine_divide.Directions("mixed", 0, 600, 128, 19, np.ones(19))
    made = directions.regenerate()
    assert directions.regenerate() is made
    sent = pickle.dumps(directions)
    assert len(sent) < 2000
    np.testing.assert_array_equal(pickle.loads(sent).regenerate(), made)


@pytest.mark.parametrize(
    ("kept", "exactly", "rows"), [("seen_extremes", "_compare_exactly", 2), ("seen_outlying", "find_outlying_rows", 0)]
)
@pytest.mark.parametrize("seed", range(2))
def test_what_one_block_has_seen_spares_rows_of_the_next_and_changes_nothing(seed, kept, exactly, rows, monkeypatch):
    X, _ = planted(20_000, 60, 5, seed, noise=0.05)
    X[2000:2012, :20] += 2.0 * X.mean()  # a component that only few rows of one block contain
    chunked, found, looked = da.from_array(X, chunks=(2000, 60)), [], []
    exact = getattr(engine_divide, exactly)
    monkeypatch.setattr(engine_divide, exactly, lambda *a: looked.append(len(a[rows])) or exact(*a))
    for seen in (getattr(engine_divide._State, kept), property(lambda state: {})):
        monkeypatch.setattr(engine_divide._State, kept, seen)
        looked.clear()
        with dask.config.set(scheduler="synchronous"):
            found.append((bits(dca.find_anchors(chunked, 5)), sum(looked)))
    assert found[0][0] == found[1][0] == bits(dca.find_anchors(X, 5))
    assert found[0][1] < 0.5 * found[1][1]


def test_what_was_sent_is_aligned_once_and_keeps_its_caches():
    directions = engine_divide.Directions("mixed", 0, 600, 128, 19, np.ones(19))
    state = engine_divide._State(None, None, directions, bring=False, typical_height=0.0)
    sent = load(dump(state), 1)
    assert align_arrays(sent) is sent
    assert not load(dump(np.ones(3)), 1).flags.aligned


def test_extremes_of_earlier_blocks_are_never_sent():
    state = engine_divide._State(None, None, None, bring=False, typical_height=0.0)
    state.seen_extremes[0] = state.seen_outlying[np.dtype(float)] = np.zeros(1000)
    sent = pickle.loads(pickle.dumps(state))
    assert sent.seen_extremes == sent.seen_outlying == {}


@pytest.mark.parametrize(
    ("n", "p", "k", "places"),
    [(1000, 10, None, 32), (1000, 10, 40, 60), (2 * 10**6, 500, 20, 59), (10**9, 500, 20, 256), (10**6, 10, 1000, 256)],
)
def test_larger_data_and_more_anchors_are_sampled_in_more_runs(n, p, k, places):
    assert _n_runs(as_rows(da.zeros((n, p), chunks=(n // 10, p))), k) == places


@pytest.mark.filterwarnings("ignore::dask_dca.errors.NotPointedWarning")
@pytest.mark.parametrize("method", ["robust", "paper"])
def test_rows_of_zeros_are_told_from_rows_behind_the_axis_that_hold_a_zero(method):
    X = np.random.default_rng(0).dirichlet(np.ones(4), 600) @ np.random.default_rng(1).random((4, 12))
    X[[3, 200, 401]] = 0.0
    behind = np.arange(5, 600, 97)
    X[behind] *= -1.0
    X[behind, 2] = 0.0
    for data in (X, da.from_array(X, chunks=(250, -1))):
        found = dca.find_anchors(data, 4, method=method)
        assert found.n_zero_rows == 3
        assert found.n_behind_rows == (len(behind) if method == "robust" else 0)
