"""Sub-problems as tasks: planes in groups, their histograms in the conquer tree, and the whole as a Delayed."""

import itertools
from functools import cache

import dask
import dask.array as da
import numpy as np
import pytest
import zarr
from dask.delayed import Delayed
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

import dask_dca as dca
from dask_dca.anchoring.divide import Directions, divide
from dask_dca.anchoring.parameters import Settings
from dask_dca.anchoring.robust import robust_votes
from dask_dca.engine import computing as watch
from dask_dca.engine.passes import Run
from dask_dca.engine.rows import as_rows
from dask_dca.errors import InvalidInputError, InvalidParameterError
from tests.conftest import CountingScheduler, bits, planted, raise_if_dask_computes
from tests.strategies import chunkings, matrices


class Counted:
    """An array in memory that counts how often its blocks are read."""

    def __init__(self, X):
        self.X, self.reads = X, 0
        self.shape, self.dtype, self.ndim = X.shape, X.dtype, X.ndim

    def __getitem__(self, where):
        self.reads += 1
        return self.X[where]


def histogram_bits(found):
    return [np.asarray(part).tobytes() for part in (found.rows, found.votes, found.places, found.heights)]


@given(data=st.data(), case=matrices(max_rows=300), n_groups=st.integers(2, 7), nonnegative=st.booleans())
@settings(max_examples=20)
def test_any_number_of_groups_is_one_group(data, case, n_groups, nonnegative):
    X, k = case.X, case.k
    if nonnegative:
        X = X.copy()
        X[np.flatnonzero(X.any(axis=1))[0], 0] = -1e-9 * np.abs(X).max()  # rounding, which is clipped and counted
    whole = robust_votes(as_rows(X), k, Settings(seed=1), Run(), nonnegative=nonnegative)
    chunked = da.from_array(X, chunks=(data.draw(chunkings(len(X))), data.draw(chunkings(X.shape[1], 3, empty=False))))
    with dask.config.set(scheduler="synchronous"):
        view, plan = whole.view, whole.plan
        found = divide(
            as_rows(chunked),
            view.reading,
            plan.frame,
            plan.planes,
            Run(),
            n_planes=plan.planes.count,
            n_groups=n_groups,
        )
    assert histogram_bits(found.votes) == histogram_bits(whole.found.votes)
    assert found.fresh.tobytes() == whole.found.fresh.tobytes()
    assert found.row_counts == whole.found.row_counts


@pytest.mark.parametrize("form", ["dask", "zarr"])
def test_few_blocks_are_divided_into_as_many_tasks_as_there_are_threads(form, monkeypatch, tmp_path):
    X, _ = planted(3000, 12, 6)
    counted = Counted(X)
    data = da.from_array(counted, chunks=(1500, -1), meta=X[:0])
    if form == "zarr":
        data = zarr.create_array(tmp_path / "x.zarr", data=X, chunks=(3000, 12))
    monkeypatch.setattr("dask_dca.engine.passes.task_threads", lambda: 8)
    scheduler = CountingScheduler()
    with dask.config.set(scheduler=scheduler):
        found = dca.find_anchors(data, 6, n_subproblems=2000)
    names = {str(key[0] if isinstance(key, tuple) else key) for graph in scheduler.graphs for key in graph}
    planes = sorted(
        (int(part[2]), int(part[3])) for part in (name.split("-") for name in names) if part[:2] == ["dca", "divide"]
    )
    groups = 4 if form == "dask" else 7  # two blocks; one block, and no group of less than 256 planes
    assert len(planes) == groups
    assert planes[0][0] == 0
    assert planes[-1][1] == 1999
    assert all(after[0] == before[1] + 1 for before, after in itertools.pairwise(planes))
    assert sum(name.startswith("dca-votes-") for name in names) == groups
    assert any(name.startswith("dca-conquer-") for name in names)
    assert bits(found) == bits(dca.find_anchors(X, 6, n_subproblems=2000))
    if form == "dask":
        before = counted.reads
        with dask.config.set(scheduler="synchronous"):
            data.sum().compute()
        per_pass = counted.reads - before
        assert before == 4 * per_pass  # sample, moments, the divide pass whose groups share blocks, anchors


@cache
def large():
    """Rows that fill three parts of a block, and their model in memory."""
    X = planted(64_000, 100, 6)[0].astype(np.float32)
    return X, dca.NMF(6, random_state=0).fit(X)


@pytest.mark.parametrize("form", ["dask", "zarr", "sparse", "features"])
def test_large_blocks_are_cut_into_as_many_parts_as_there_are_threads(form, monkeypatch, tmp_path):
    X, whole = large()
    if form == "sparse":
        X = X * (np.quantile(X, 0.7) <= X)
        whole = dca.NMF(6, random_state=0).fit(X)
        data = da.from_array(X, chunks=(-1, -1)).map_blocks(
            sparse.csr_matrix, dtype=X.dtype, meta=sparse.csr_matrix((0, 0))
        )
    elif form == "zarr":
        data = zarr.create_array(tmp_path / "x.zarr", data=X, chunks=X.shape)
    else:
        data = da.from_array(X, chunks=(-1, 37 if form == "features" else -1))
    monkeypatch.setattr("dask_dca.engine.passes.task_threads", lambda: 3)
    scheduler = CountingScheduler()
    with dask.config.set(scheduler=scheduler):
        found = dca.NMF(6, random_state=0).fit(data)
    names = [str(key[0] if isinstance(key, tuple) else key) for graph in scheduler.graphs for key in graph]
    assert sum("-1-of-3-" in name for name in names) >= 1
    assert len({name for name in names if name.startswith("dca-divide-") and "-of-3-" in name}) == 3
    assert found.n_passes_ == whole.n_passes_
    for name in ("components_", "votes_", "coverage_", "anchor_indices_"):
        assert np.asarray(getattr(found, name)).tobytes() == np.asarray(getattr(whole, name)).tobytes()


def test_only_the_merged_histogram_reaches_the_driver():
    X, _ = planted(4000, 9, 5)
    found = robust_votes(as_rows(da.from_array(X, chunks=(500, -1))), 5, Settings(), Run()).found
    votes = found.votes
    assert votes.votes.sum() == 2 * votes.n_subproblems
    assert (np.diff(votes.rows) > 0).all()
    assert votes.places.shape[0] == len(votes.rows)
    assert votes.heights.shape == (2, votes.n_subproblems)


def test_votes_are_those_of_find_anchors_and_reach_as_far_as_the_heights_say():
    X, anchors = planted(2000, 9, 5)
    votes, found = dca.anchor_votes(X, 5), dca.find_anchors(X, 5)
    assert set(anchors) <= set(votes.rows)
    np.testing.assert_array_equal(votes.rows, found.candidates)
    np.testing.assert_array_equal(votes.votes, found.candidate_votes)
    assert votes.n_subproblems == found.n_subproblems
    with pytest.raises(InvalidParameterError, match="pass an integer"):
        dca.anchor_votes(X, "auto")


def same_result(one, other):
    left = {name: bits(one)[name] for name in bits(one)}
    return left == bits(other) and np.array_equal(one.coverage, other.coverage, equal_nan=True)


@pytest.mark.parametrize(
    "options",
    [{}, {"solver": "spa", "dim": 4}, {"method": "paper"}, {"ensemble": "data"}, {"selection": "votes"}],
    ids=lambda options: "-".join(map(str, options.values())) or "default",
)
def test_a_delayed_fit_is_the_fit_and_nothing_computes_while_it_is_built(options):
    X, _ = planted(3000, 12, 4)
    chunked = da.from_array(X, chunks=((1000, 0, 1999, 1), (7, 5)))
    with raise_if_dask_computes():
        later = dca.find_anchors(chunked, 4, compute=False, **options)
    assert isinstance(later, Delayed)
    assert same_result(later.compute(scheduler="synchronous"), dca.find_anchors(X, 4, **options))


@pytest.mark.parametrize("shape", [(560, 540), (300, 540), (60_000, 8)], ids=["wide", "few", "sampled"])
def test_a_delayed_fit_takes_each_way_to_the_subspace(shape, monkeypatch):
    monkeypatch.setattr("dask_dca.anchoring.preprocess._MAX_MOMENT_FEATURES", 512)
    X, _ = planted(*shape, 4, dtype=np.float32)
    later = dca.find_anchors(da.from_array(X, chunks=(-(-len(X) // 3), -1)), 4, compute=False)
    assert same_result(later.compute(scheduler="threads"), dca.find_anchors(X, 4))


@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize("scheduler", ["synchronous", "threads"])
def test_graphs_of_one_array_share_the_loading_of_its_blocks(mapped, scheduler):
    X, _ = planted(30_000, 12, 6)
    counted = Counted(X)
    chunked = da.from_array(counted, chunks=(4000, 7), meta=X[:0])
    if mapped:
        chunked = chunked * 2.0
    few, many = (dca.find_anchors(chunked, k, compute=False) for k in (3, 6))
    votes, mean = dca.anchor_votes(chunked, 6, compute=False), chunked.mean(axis=0)
    assert counted.reads == 0
    found = dask.compute(few, many, votes, mean, scheduler=scheduler)
    assert counted.reads == chunked.npartitions
    X = X * 2.0 if mapped else X
    assert same_result(found[0], dca.find_anchors(X, 3))
    assert same_result(found[1], dca.find_anchors(X, 6))
    assert histogram_bits(found[2]) == histogram_bits(dca.anchor_votes(X, 6))
    np.testing.assert_allclose(found[3], X.mean(axis=0))


@pytest.mark.parametrize("form", ["memory", "zarr", "path"])
def test_a_delayed_fit_takes_all_forms(form, tmp_path):
    X, _ = planted(500, 12, 4)
    stored = zarr.create_array(tmp_path / "x.zarr", data=X, chunks=(100, 12))
    data = {"memory": X, "zarr": stored, "path": str(tmp_path / "x.zarr")}[form]
    later = dca.find_anchors(data, 4, compute=False)
    doubled = dask.delayed(lambda found: found.indices * 2)(later)
    np.testing.assert_array_equal(doubled.compute(scheduler="threads"), dca.find_anchors(X, 4).indices * 2)


def test_what_takes_several_graphs_in_turn_says_so():
    X, _ = planted(500, 12, 4)
    with pytest.raises(InvalidParameterError, match="use compute=True"):
        dca.find_anchors(X, "auto", compute=False)
    with pytest.raises(InvalidParameterError, match="use compute=True"):
        dca.find_anchors(X, 4, method="paper", views=[range(4), range(4, 8), range(8, 12)], compute=False)
    X[123, 4] = np.nan
    with pytest.raises(InvalidInputError, match="row 123, column 4"):
        dca.find_anchors(da.from_array(X, chunks=(100, -1)), 4, compute=False).compute(scheduler="synchronous")


def test_threads_of_the_configured_scheduler_are_counted():
    with dask.config.set(scheduler="synchronous"):
        assert watch.task_threads() == 1
    with dask.config.set(scheduler="threads", num_workers=5):
        assert watch.task_threads() == 5
    assert Directions("mixed", 0, 4, 2, 1, np.ones(1)).regenerate().shape == (6, 1)
