"""The passes' own pieces: which rows are sampled, what is counted, and that parts add up."""

import dask
import dask.array as da
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_dca.engine.checks import Census
from dask_dca.engine.passes import Run
from dask_dca.engine.rows import as_rows
from dask_dca.engine.sampling import fetch_rows, spread_rows
from dask_dca.engine.tiles import tiles
from tests.strategies import chunkings


@given(n=st.integers(1, 10**7), n_groups=st.integers(1, 60), group=st.integers(1, 80))
@settings(max_examples=200)
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
    assert Census(1, 2, 3) + Census(10, 20, 30) == Census(11, 22, 33)
