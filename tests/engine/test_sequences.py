"""Sequences: pieces at fixed places, halos from any number of neighbours, no pair across an end."""

import dask
import dask.array as da
import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from dask_dca.engine import rows as engine_rows
from dask_dca.engine.passes import Pass, delayed_pass, map_frames, run_pass
from dask_dca.engine.rows import as_rows
from dask_dca.engine.sequences import as_edges, batches, cut_sequences, piece_numbers, run_edges
from dask_dca.engine.types import Halo, StackedRows, window_of
from dask_dca.errors import InvalidInputError, NotFiniteError
from tests.conftest import raise_if_dask_computes
from tests.strategies import chunkings

FEW = settings(max_examples=20)


@pytest.fixture(autouse=True)
def synchronous():
    with dask.config.set(scheduler="synchronous"):
        yield


def same(tile):
    return tile


def join(parts):
    return [one for part in parts for one in part]


def list_pieces(cut, window, *columns):
    """Everything a recursion could see of each piece."""
    found = []
    for batch in batches(cut, window, columns, same):
        frames = batch.values[batch.index]
        assert not frames[~batch.inside].any()
        found += [
            (int(begin), frames[:, m].tobytes(), batch.own[:, m].tobytes(), bool(batch.first[m]), bool(batch.last[m]))
            for m, begin in enumerate(batch.begins)
        ]
        assert not batch.inside[:, len(batch.begins) :].any()
    return found


def twice(cut, window, *columns):
    found = np.full((window.stop - window.start, 2), np.nan)
    for batch in batches(cut, window, columns, same, touching=True):
        batch.scatter(found, window, 2.0 * batch.values[batch.index][..., :2])
    return found


@st.composite
def sequences(draw, most=260):
    n = draw(st.integers(1, most))
    lengths = draw(chunkings(n, most=6))
    X = np.random.default_rng(draw(st.integers(0, 99))).standard_normal((n, 3))
    length = draw(st.integers(1, 70))
    edges = as_edges(lengths, n)
    return X, edges, cut_sequences(edges, length=length, burn_in=draw(st.integers(0, length)), width=3)


@given(st.data())
@FEW
def test_pieces_are_the_same_however_blocks_are_cut(data):
    X, edges, cut = data.draw(sequences())
    job = Pass("pieces", list_pieces, join, cut.halo)
    whole = run_pass(as_rows(X), job, cut)
    assert sum(np.frombuffer(piece[2], bool).sum() for piece in whole) == len(X)  # each frame is owned once
    assert sum(piece[3] for piece in whole) == sum(piece[4] for piece in whole) == len(edges) - 1
    np.testing.assert_array_equal(piece_numbers(cut, np.array([piece[0] for piece in whole])), np.arange(len(whole)))
    chunks = (data.draw(chunkings(len(X))), data.draw(chunkings(3, most=2, empty=False)))
    chunked = da.from_array(X, chunks=chunks)
    lazy = chunked.map_blocks(np.copy, dtype=float, meta=X[:0])
    for form in (
        chunked,
        lazy,
        lazy.persist(),
        zarr.create_array({}, data=X, chunks=(data.draw(st.integers(1, 99)), 3)),
    ):
        assert run_pass(as_rows(form), job, cut) == whole


@given(st.data())
@FEW
def test_results_a_frame_are_placed_whatever_the_blocks(data):
    X, _, cut = data.draw(sequences())
    for form in (X, da.from_array(X, chunks=(data.draw(chunkings(len(X))), 2))):
        found = map_frames(as_rows(form), twice, cut, 2, cut.halo_touching, np.dtype(np.float32))
        assert found.dtype == np.float32
        np.testing.assert_array_equal(np.asarray(found), (2.0 * X[:, :2]).astype(np.float32))


def test_results_of_chunked_frames_are_lazy_and_keep_their_chunks():
    X = np.ones((100, 3))
    cut = cut_sequences(as_edges(None, 100), length=8, burn_in=4, width=3)
    with raise_if_dask_computes():
        found = map_frames(as_rows(da.from_array(X, chunks=(30, 3))), twice, cut, 2, cut.halo_touching, X.dtype)
    assert found.chunks == ((30, 30, 30, 10), (2,))


def window_rows(state, window, *columns):
    return [(window, np.hstack([part[0 : part.shape[0]] for part in columns]).tobytes())]


@given(st.data())
@FEW
def test_a_halo_reaches_over_as_many_neighbours_as_it_needs(data):
    n, halo = data.draw(st.integers(1, 60)), Halo(data.draw(st.integers(0, 40)), data.draw(st.integers(0, 40)))
    X = np.arange(2.0 * n).reshape(n, 2)
    sizes = data.draw(chunkings(n, most=9))
    found = run_pass(as_rows(da.from_array(X, chunks=(sizes, 1))), Pass("rows", window_rows, join, halo), None)
    offsets = np.cumsum([0, *sizes])
    for i, (window, content) in enumerate(found):
        assert (window, offsets[i], offsets[i + 1]) == (window_of(offsets, i, halo)[0], window.start, window.stop)
        assert content == X[max(window.start - halo.before, 0) : window.stop + halo.after].tobytes()


def test_a_halo_loads_each_chunk_once_and_leaves_no_task_in_vain():
    loads = []

    def load(block):
        loads.append(block.shape)
        return block

    x = da.from_array(np.ones((60, 4)), chunks=(10, 4)).map_blocks(load, dtype=float, meta=np.ones((0, 0)))
    job = Pass("rows", window_rows, join, Halo(3, 12))
    for blocks in (None, np.array([2])):
        value = delayed_pass(as_rows(x), job, None, blocks=blocks)
        graph = dict(value.__dask_graph__())
        needed = set().union(*(task.dependencies for task in graph.values()))
        assert needed <= graph.keys()
        assert len(graph.keys() - needed) == 1
    delayed_pass(as_rows(x), job, None).compute()
    assert len(loads) == 6


def test_sparse_blocks_have_halos():
    X = sparse.random(50, 4, density=0.3, format="csr", random_state=0)
    chunked = da.from_array(X.toarray(), chunks=(9, 4)).map_blocks(sparse.csr_matrix, dtype=float, meta=X[:0])
    cut = cut_sequences(as_edges([20, 30], 50), length=8, burn_in=3, width=4)
    job = Pass("pieces", list_pieces, join, cut.halo)
    assert run_pass(as_rows(chunked), job, cut) == run_pass(as_rows(X.toarray()), job, cut)


def test_stacked_rows_are_read_like_one_array():
    X = np.arange(20.0).reshape(10, 2)
    stacked = StackedRows([X[:0], X[:3], X[3:4], X[4:]])
    for start in range(11):
        for stop in range(start, 11):
            np.testing.assert_array_equal(stacked[start:stop], X[start:stop])


def test_a_cut_depends_on_lengths_alone_and_short_sequences_are_not_padded():
    assert cut_sequences(as_edges([5] * 100, 500), length=64, burn_in=16, width=2).steps == 5
    assert cut_sequences(as_edges(None, 70), length=64, burn_in=16, width=2).steps == 70  # no cut at all
    long = cut_sequences(as_edges(None, 10**6), length=64, burn_in=16, width=20)
    assert (long.steps, long.chains % 64, long.halo) == (96, 0, Halo(16, 79))


@pytest.mark.parametrize(
    ("lengths", "words"),
    [
        ([3, 3], "add up to 6"),
        ([7, -1], "non-negative"),
        ([2.5, 3.5], r"integers, one per sequence; received \[2.5, 3.5\]$"),
        ([3.0, 4.0], r"pass lengths=numpy.asarray\(lengths, dtype=int\)"),
        ([[3, 3]], "one per sequence"),
    ],
)
def test_lengths_that_can_not_be(lengths, words):
    with pytest.raises(InvalidInputError, match=words):
        as_edges(lengths, 7)


def test_frames_that_are_not_finite_are_named_by_their_number():
    X = np.ones((40, 3))
    X[23, 1] = np.nan
    cut = cut_sequences(as_edges(None, 40), length=8, burn_in=2, width=3)
    with pytest.raises(NotFiniteError, match="row 23, column 1"):
        run_pass(as_rows(da.from_array(X, chunks=(7, 3))), Pass("pieces", list_pieces, join, cut.halo), cut)


def test_small_zarr_chunks_and_blocks_of_several(monkeypatch):
    X = np.random.default_rng(0).standard_normal((400, 3))
    stored = zarr.create_array({}, data=X, chunks=(7, 3))
    cut = cut_sequences(as_edges([150, 250], 400), length=16, burn_in=8, width=3)
    job = Pass("pieces", list_pieces, join, cut.halo)
    whole = run_pass(as_rows(X), job, cut)
    assert run_pass(as_rows(stored), job, cut) == whole
    monkeypatch.setattr(engine_rows, "_BLOCK_BYTES", 1)
    assert run_pass(as_rows(stored), job, cut) == whole


def test_runs_of_a_sample_end_at_gaps_and_where_sequences_do():
    edges = np.array([0, 3, 10])
    assert run_edges(None, edges) is edges
    assert run_edges(np.arange(10), edges).tolist() == [0, 3, 10]
    assert run_edges(np.array([1, 2, 3, 4, 7, 8]), edges).tolist() == [0, 2, 4, 6]
    assert run_edges(np.array([4, 5, 6]), edges).tolist() == [0, 3]
