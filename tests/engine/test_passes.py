"""Graphs: lazy, small, fused, and open to inspection."""

import operator
import os
import pickle
import subprocess
import sys
import tracemalloc
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from types import SimpleNamespace

import cloudpickle
import dask
import dask.array as da
import numpy as np
import pytest
import zarr
from dask.delayed import Delayed
from distributed.scheduler import KilledWorker

import dask_dca as dca
from dask_dca.engine import passes
from dask_dca.engine import rows as engine_rows
from dask_dca.engine.computing import killed_worker_error
from dask_dca.engine.graphs import block_tasks
from dask_dca.engine.passes import Pass, delayed_pass, run_pass
from dask_dca.engine.rows import as_rows
from dask_dca.engine.types import Halo, Summed, add_parts
from dask_dca.geometry.exact import Total, plain_total
from tests.conftest import ROOT, bits, planted, raise_if_dask_computes


def block_sum(state, start, *columns):
    return sum(float(part.sum()) for part in columns) * state + start * 0


SUM = Pass("sum", block_sum, sum)


def block_places(state, start, *columns):
    return [(start, tuple(part.shape for part in columns))]


def join(parts):
    return [place for part in parts for place in part]


PLACES = Pass("places", block_places, join)


@pytest.fixture(scope="module")
def hundreds(tmp_path_factory):
    """300 blocks, as zarr and as a Dask array, of (600, 30) entries."""
    X, _ = planted(600, 30, 4, noise=0.1, dtype=np.float32)
    stored = zarr.create_array(tmp_path_factory.mktemp("hundreds") / "x.zarr", data=X, chunks=(2, 30))
    return X, stored


def forms(hundreds, monkeypatch):
    monkeypatch.setattr(engine_rows, "_BLOCK_BYTES", 1)
    monkeypatch.setattr(engine_rows, "_MIN_JOINED_BLOCKS", 80)
    return {"zarr": hundreds[1], "dask": da.from_zarr(hundreds[1]), "numpy": da.from_array(hundreds[0], (2, 30))}


@pytest.mark.parametrize("kind", ["zarr", "dask"])
def test_building_a_graph_computes_nothing(hundreds, monkeypatch, kind):
    with raise_if_dask_computes():
        value = delayed_pass(as_rows(forms(hundreds, monkeypatch)[kind]), SUM, 2.0)
        assert isinstance(value, Delayed)
        assert isinstance(value + 1, Delayed)
    assert value.compute(scheduler="synchronous") == pytest.approx(2.0 * hundreds[0].sum(), rel=1e-4)


def test_tasks_of_a_pass_have_the_annotations_around_it(hundreds, monkeypatch):
    asked = {"workers": ["tcp://10.0.0.7:4123"], "resources": {"GPU": 1}, "priority": 7}
    for X in forms(hundreds, monkeypatch).values():
        with dask.annotate(**asked):
            value = delayed_pass(as_rows(X), SUM, 2.0)
        assert [layer.annotations for layer in value.__dask_graph__().layers.values()] == [asked]


@pytest.mark.parametrize("job", [SUM, replace(SUM, halo=Halo(1, 1), block=lambda state, where, *_: float(where.start))])
def test_loads_keep_the_annotations_that_they_were_made_with(job):
    """Dask loses them where it fuses tasks; those of the pass may run anywhere."""
    with dask.annotate(resources={"GPU": 1}, retries=7):
        X = da.ones((8, 2), chunks=(2, 1)).map_blocks(operator.neg)
    plain = delayed_pass(as_rows(da.zeros((8, 2), chunks=(2, 1))), job, 2.0)
    value = delayed_pass(as_rows(X + 1), job, 2.0)
    last, *loads = [layer.annotations for layer in reversed(value.__dask_graph__().layers.values())]
    assert last is None
    assert loads == [{"resources": {"GPU": 1}, "retries": 7}]
    assert value.compute(scheduler="synchronous") == plain.compute(scheduler="synchronous")


@pytest.mark.parametrize("kind", ["zarr", "dask"])
def test_transform_of_chunked_data_computes_nothing(hundreds, monkeypatch, kind):
    """What has the size of the data stays lazy (dask/dask #11997)."""
    model = dca.NMF(4).fit(hundreds[0])
    with raise_if_dask_computes():
        found = model.transform(forms(hundreds, monkeypatch)[kind])
        back = model.inverse_transform(found)
    assert isinstance(found, da.Array)
    assert found.chunks == ((2,) * 300, (4,))
    assert (back.shape, back.dtype) == ((600, 30), np.dtype(np.float32))
    assert len(dask.optimize(found)[0].__dask_graph__()) == 300 + 2  # one task per block, the state, and the array
    assert len(cloudpickle.dumps(dict(found.__dask_graph__()))) < 300 * 2**10


@pytest.mark.parametrize(("kind", "method"), [("zarr", "robust"), ("dask", "paper")])
def test_a_fit_on_hundreds_of_blocks_sends_small_graphs(hundreds, monkeypatch, computes, kind, method):
    X, _ = hundreds
    monkeypatch.setattr("dask_dca.anchoring.preprocess._SAMPLE_RUNS", (32, 1))
    model = dca.NMF(4, method=method).fit(forms(hundreds, monkeypatch)[kind])
    assert bits(model) == bits(dca.NMF(4, method=method).fit(X))
    assert computes.passes == (
        ["fetch", "gram", "divide", "fetch"] if method == "robust" else ["fetch", "divide", "fetch"]
    )
    for name, graph in zip(computes.passes, computes.graphs, strict=True):
        n_blocks = sum(isinstance(key, tuple) and key[0].startswith(f"dca-{name}") for key in graph)
        assert n_blocks == (300 if kind == "zarr" else 86) or name == "fetch"  # of 3 or 4 chunks each
        # one task per block, and a tree of merges: loads are fused with the kernel
        assert len(graph) <= 1.2 * n_blocks + 6
        assert len(pickle.dumps(graph)) < 300 * 2**10


def test_a_graph_does_not_grow_with_the_data_or_the_planes(tmp_path, computes):
    """Neither rows nor planes are embedded (dask/dask #6833, dask/dask #11562)."""
    X, _ = planted(2000, 400, 4)
    stored = zarr.create_array(tmp_path / "x.zarr", data=X, chunks=(100, 400))
    dca.find_anchors(stored, 4, n_subproblems=5000)
    dca.find_anchors(da.from_zarr(stored), 4, n_subproblems=5000)
    assert max(len(cloudpickle.dumps(graph)) for graph in computes.graphs) < 2**20


def test_load_and_kernel_are_one_task_whatever_the_loading_took(computes):
    X, _ = planted(400, 10, 3)
    chunked = (da.from_array(X, chunks=(20, 10)) * 2.0 + 0.0)[:, ::-1].astype(np.float32)
    dca.find_anchors(chunked, 3)
    assert computes.passes[-2:] == ["divide", "fetch"]
    graph = computes.graphs[-2]
    large = [key for key in graph if not str(key[0] if isinstance(key, tuple) else key).startswith(("dca-", "array-"))]
    assert not large
    assert len(graph) <= 20 + 3 + 1 + 1 + 1 + 1 + 1  # blocks, merges 3 + 1, votes, conquer, state, the array


def test_a_chunk_that_two_blocks_need_is_loaded_once():
    loads = []

    def load(block):
        loads.append(block.shape)
        return block

    X, _ = planted(40, 6, 3)
    whole = da.from_array(X, chunks=(40, 6)).map_blocks(load, dtype=X.dtype, meta=X[:0])
    with dask.config.set(scheduler="synchronous"):
        places = run_pass(as_rows(whole.rechunk((10, 6))), PLACES, None)
    assert [start for start, _ in places] == [0, 10, 20, 30]
    assert loads == [(40, 6)]


@pytest.mark.parametrize("chunks", [((0, 3, 0, 1, 6), (6,)), ((10,), (2, 2, 2)), ((1,) * 10, (5, 1)), ((10, 0), (6,))])
def test_blocks_know_their_first_row_and_hold_all_column_chunks(chunks):
    X = np.arange(60.0).reshape(10, 6)
    with dask.config.set(scheduler="synchronous"):
        places = run_pass(as_rows(da.from_array(X, chunks=chunks)), PLACES, None)
    starts = np.cumsum([0, *chunks[0][:-1]])
    assert places == [(s, tuple((n, p) for p in chunks[1])) for s, n in zip(starts, chunks[0], strict=True)]


@pytest.mark.parametrize("n_blocks", [1, 2, 7, 8, 9, 64, 65, 200])
def test_the_merge_tree_keeps_the_order_and_every_block(n_blocks):
    X = np.ones((n_blocks, 2))
    value = delayed_pass(as_rows(da.from_array(X, chunks=(1, 2))), PLACES, None)
    graph = dict(value.__dask_graph__())
    assert [start for start, _ in value.compute(scheduler="synchronous")] == list(range(n_blocks))
    merges = [key for key in graph if str(key[0]).startswith("dca-merge")]
    assert len(merges) <= n_blocks // 7 + 4  # bounded fan-in (dask/dask #3584)


def test_only_the_blocks_asked_for_are_loaded():
    X = np.arange(40.0).reshape(20, 2)
    value = delayed_pass(as_rows(da.from_array(X, chunks=(2, 2))), PLACES, None, blocks=np.array([1, 7]))
    assert [start for start, _ in value.compute(scheduler="synchronous")] == [2, 14]


def test_passes_compose_with_other_delayed_objects():
    X, _ = planted(100, 5, 3)
    total = delayed_pass(as_rows(da.from_array(X, chunks=(9, 5))), SUM, 1.0)
    share = dask.delayed(operator.truediv)(total, da.from_array(X, chunks=(9, 5)).sum())
    assert share.compute(scheduler="synchronous") == pytest.approx(1.0)
    first, second = dask.compute(total, total * 2, scheduler="threads")
    assert second == 2 * first


def test_a_pass_on_data_in_memory_builds_no_graph(monkeypatch):
    monkeypatch.setattr(passes, "delayed_pass", None)
    X, _ = planted(100, 5, 3)
    with raise_if_dask_computes():
        dca.NMF(3).fit_transform(X)


def test_an_optimised_or_persisted_array_is_taken_as_it_is():
    X, _ = planted(200, 10, 3)
    whole = bits(dca.find_anchors(X, 3))
    chunked = da.from_array(X, chunks=(30, 4)) * 1.0
    with dask.config.set(scheduler="synchronous"):
        for form in (chunked.persist(), dask.optimize(chunked)[0], chunked[::-1].persist()[::-1]):
            assert bits(dca.find_anchors(form, 3)) == whole


def test_shards_are_blocks(tmp_path, monkeypatch):
    """da.from_zarr would take the inner chunks, thousands of tiny ones."""
    X, _ = planted(400, 20, 4)
    stored = zarr.create_array(tmp_path / "x.zarr", shape=X.shape, dtype=X.dtype, chunks=(10, 5), shards=(200, 20))
    stored[:] = X
    whole = bits(dca.find_anchors(X, 4))
    assert bits(dca.find_anchors(da.from_zarr(stored), 4)) == whole
    monkeypatch.setattr(engine_rows, "_BLOCK_BYTES", 1)
    assert as_rows(stored).offsets.tolist() == [0, 200, 400]
    assert bits(dca.find_anchors(stored, 4)) == whole


def test_small_zarr_chunks_are_read_several_at_a_time(tmp_path):
    """But so that a few workers all have something to do."""
    stored = zarr.create_array(tmp_path / "x.zarr", data=np.ones((1000, 8)), chunks=(5, 8))
    assert 16 <= as_rows(stored).n_blocks <= 20


def test_the_array_query_planner_gives_the_same_bits():
    """Dask's array expressions, which only a fresh process can switch on."""
    code = """
import sys
import dask, numpy as np
import dask.array as da
if not getattr(da, "array_expr_enabled", bool)():
    sys.exit(77)
import dask_dca as dca
from tests.conftest import bits
from tests.conftest import planted
X, _ = planted(300, 12, 4)
whole = bits(dca.NMF(4).fit(X))
with dask.config.set(scheduler="synchronous"):
    x = da.from_array(X, chunks=(70, 5))
    for x in (x, x * 1.0, x.persist(), da.from_array(X, chunks=(70, 12))):
        model = dca.NMF(4).fit(x)
        assert bits(model) == whole
        np.testing.assert_allclose(model.transform(x).compute(), model.transform(X), atol=1e-6)
    for x in (x.rechunk((50, 6)), x.map_blocks(abs, dtype=float)):
        weight = np.arange(300) % 3
        weighted = dca.NMF(4).fit(x, sample_weight=da.from_array(weight, chunks=90))
        assert bits(weighted) == bits(dca.NMF(4).fit(X, sample_weight=weight))
    chain = dca.GaussianHMM(2, max_iter=0).fit(X)
    np.testing.assert_array_equal(chain.predict(x).compute(), chain.predict(X))
"""
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    env = {**os.environ, "DASK_ARRAY__QUERY_PLANNING": "True", "PYTHONPATH": path}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    if done.returncode == 77:
        pytest.skip("this Dask has no array expressions")
    assert done.returncode == 0, done.stderr


def test_rows_that_are_used_twice_are_loaded_once():
    X, anchors = planted(60, 8, 3)
    x = da.from_array(X, chunks=(20, 8)).map_blocks(np.copy, dtype=X.dtype, meta=X[:0])
    with dask.config.set(scheduler="synchronous"):
        found = dca.find_anchors(da.concatenate([x, x]), 3)
        assert bits(found) == bits(dca.find_anchors(np.concatenate([X, X]), 3))
    assert sorted(found.indices) == anchors.tolist()


@pytest.mark.parametrize("blocks", [None, np.array([1])])
def test_a_graph_is_complete_and_holds_no_task_in_vain(blocks):
    x = da.from_array(np.ones((60, 8)), chunks=(20, 8)).map_blocks(np.copy, dtype=float, meta=np.ones((0, 0)))
    for form in (x, (x * 2.0 + 0.0)[:, ::-1], x.rechunk((13, 8)), da.concatenate([x, x])):
        graph = dict(delayed_pass(as_rows(form), SUM, 1.0, blocks=blocks).__dask_graph__())
        dependencies = set().union(*(task.dependencies for task in graph.values()))
        assert dependencies <= graph.keys()
        assert len(graph.keys() - dependencies) == 1  # the result


@dataclass(frozen=True)
class _Seen(Summed):
    counts: np.ndarray
    number: int
    missing: Total | None


def test_sums_of_many_parts_have_the_bits_of_one_after_another_and_leave_the_parts():
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((30, 4)) * 2.0 ** rng.integers(-20, 20) for _ in range(8)]
    kept = [part.copy() for part in arrays]
    whole = reduce(add, kept)
    assert add_parts(arrays).tobytes() == whole.tobytes()
    assert add_parts([(part, 1) for part in arrays])[0].tobytes() == whole.tobytes()
    seen = add_parts([_Seen(part, 1, None if i == 5 else plain_total(part, 1.0)) for i, part in enumerate(arrays)])
    assert (seen.counts.tobytes(), seen.number, seen.missing) == (whole.tobytes(), 8, None)
    assert all(part.tobytes() == before.tobytes() for part, before in zip(arrays, kept, strict=True))
    assert add_parts([np.float32(1.0) * np.ones(2, dtype=np.float32), *arrays[0][:2, :2]]).dtype == np.float64


def test_a_sum_of_many_arrays_takes_the_memory_of_one():
    parts = [np.ones(2**18) for _ in range(8)]
    tracemalloc.start()
    add_parts(parts)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1.2 * parts[0].nbytes


def test_workers_that_die_at_a_neighbours_rows_name_these(hundreds, monkeypatch):
    """Whose task is called by a chunk, of which a block has several."""
    monkeypatch.setattr(engine_rows, "_MIN_JOINED_BLOCKS", 80)
    rows = as_rows(da.from_array(hundreds[0], (2, 30)))
    job = Pass("places", block_places, join, Halo(1, 1))
    graph, *_ = block_tasks(rows, [job], None, None)
    halos = [key for key in graph if "halo" in key[0]]
    assert rows.n_blocks < 90
    assert len(halos) == 2 * (rows.n_blocks - 1)
    for key in halos:
        error = KilledWorker(key, SimpleNamespace(memory_limit=0, nthreads=1), 3)
        told = str(killed_worker_error(error, "dca-places-", rows))
        assert f"of the block of rows {2 * key[1]} to {2 * key[1] + 1}," in told
