"""Lazy results of models with large parameters: one copy of them in the graph, or none."""

import pickle
import warnings

import dask
import dask.array as da
import numpy as np
import pytest
from dask.callbacks import Callback
from distributed import Client, LocalCluster

import dask_dca as dca
from dask_dca.engine.passes import map_rows
from dask_dca.engine.rows import as_rows
from tests.cluster.workers import MARKS

pytestmark = MARKS
X = np.arange(400.0).reshape(100, 4)


def scaled(state, start, *columns):
    """Rows times the last number of the state, plus their own numbers."""
    whole = np.hstack(columns)
    return whole * state[-1] + start + np.arange(len(whole))[:, None]


def expected(state):
    return X * state[-1] + np.arange(100)[:, None]


def lazily(state, chunks):
    return map_rows(as_rows(da.from_array(X, chunks=chunks)), scaled, state, 4)


@pytest.mark.parametrize("chunks", [(2, 4), (2, 2)])
def test_a_state_is_in_the_graph_once(chunks):
    state = np.arange(500_000.0)  # 4 MB
    found = lazily(state, chunks)
    (optimized,) = dask.optimize(found)
    assert len(optimized.__dask_graph__()) == 50 * (4 // chunks[1] + 1) + 1  # chunks, blocks, the state
    assert len(pickle.dumps(dict(optimized.__dask_graph__()))) < 1.1 * state.nbytes
    np.testing.assert_array_equal(found.compute(scheduler="sync"), expected(state))


def test_a_second_pass_of_a_lazy_result_loads_the_blocks_again():
    """Rather than all of them staying in memory until the first pass ends."""
    rows, loaded, held = np.tile(X, (20, 1)), [], []

    def load(block_info=None):
        loaded.append(1)
        return rows[slice(*block_info[None]["array-location"][0])]

    def count(key, result, graph, state, worker):
        held.append(sum(getattr(value, "shape", ()) == (100, 4) for value in state["cache"].values()))

    chunked = da.map_blocks(load, chunks=((100,) * 20, (4,)), dtype=float, meta=X[:0])
    model = dca.GaussianHMM(2, max_iter=0).fit(X)
    with Callback(posttask=count), dask.config.set(scheduler="sync"):
        np.testing.assert_array_equal(model.predict(chunked).compute(), model.predict(rows))
    assert len(loaded) == 2 * 20
    assert max(held) < 8


def test_large_states_go_past_the_graph_on_a_cluster_and_stay_in_it_elsewhere():
    state = np.arange(2_000_000.0)  # 16 MB
    np.testing.assert_array_equal(lazily(state, (30, 2)).compute(scheduler="threads"), expected(state))
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0") as cluster,
        Client(cluster) as client,
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("error")
        client.wait_for_workers(1)
        found = lazily(state, (30, 2))
        assert len(pickle.dumps(dict(found.rechunk((100, 4)).__dask_graph__()))) < 10**5
        np.testing.assert_array_equal(found.compute(), expected(state))
        np.testing.assert_array_equal(found[40:50].compute(), expected(state)[40:50])  # again, and a part
        del found
