"""Rows that a pass takes along: the same ones for any chunking, each block read once, and kept where they are."""

import dask
import dask.array as da
import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from dask_dca.engine.passes import Reads, Run
from dask_dca.engine.rows import as_rows
from dask_dca.models.lda import corpus as document_census
from dask_dca.models.lda import corpus as document_sample
from dask_dca.models.lda.corpus import Draw, take_census, take_census_and_draw
from tests.anchoring.test_groups import Counted
from tests.engine.test_sparse_rows import write
from tests.models.lda.data import planted_documents
from tests.strategies import chunkings

X, _ = planted_documents(300, 40)


def rows_of(drawn):
    """Rows in any order, as a sorted list."""
    whole = drawn.source
    if drawn.kind == "dask":
        blocks = [block for (block,) in dask.compute(*whole.to_delayed().tolist(), scheduler="synchronous")]
        assert [block.shape[0] for block in blocks] == np.diff(drawn.offsets).tolist()
        whole = sparse.vstack(blocks)
    return sorted(whole.toarray().tolist())


@given(st.data())
@settings(max_examples=15)
def test_the_documents_drawn_are_those_of_their_numbers_for_any_chunking(data):
    draw = Draw(data.draw(st.sampled_from([0.05, 0.4, 1.0])), data.draw(st.integers(0, 5)))
    most = data.draw(st.sampled_from([2**23, 900, 30]))
    blocks = da.from_array(X.toarray(), chunks=(data.draw(chunkings(300)), -1))
    n_threads, piece = data.draw(st.integers(1, 9)), data.draw(st.sampled_from([1, 40, 4096]))
    with pytest.MonkeyPatch.context() as patch, dask.config.set(scheduler="synchronous"):
        patch.setattr(document_sample.last_kept, "__defaults__", (most,))
        patch.setattr(document_sample.DocumentSample.trimmed, "__defaults__", (most,))
        patch.setattr(document_sample, "_MAX_SAMPLE_ENTRIES", most)
        patch.setattr(document_census, "_PIECE_DOCUMENTS", piece)
        patch.setattr("dask_dca.engine.sampling.task_threads", lambda: n_threads)
        run = Run(reads=Reads(blocks))
        census, drawn = take_census_and_draw(as_rows(blocks), run, draw)
        in_memory, expected = take_census_and_draw(as_rows(X), Run(), draw)
        assert run.n_passes == 1
        assert (drawn is None) == (expected is None)
        if drawn is not None:
            assert drawn.kind == "dask"
            assert drawn.n_blocks < 2 * n_threads
            assert rows_of(drawn) == rows_of(expected)
    for found in (in_memory, take_census(as_rows(X), Run())):
        assert census.words.tobytes() == found.words.tobytes()
        assert census.self_pairs.value().tobytes() == found.self_pairs.value().tobytes()
        assert (census.n_used, census.squares) == (found.n_used, found.squares)


@pytest.mark.parametrize("form", ["dask", "zarr"])
def test_one_large_block_fills_the_threads_and_is_read_once(form, monkeypatch, tmp_path):
    counted = Counted(X.toarray())
    data = da.from_array(counted, chunks=(300, -1), meta=np.zeros((0, 0)))
    if form == "zarr":
        data = write(zarr.open_group(tmp_path / "x.zarr", mode="w"), X, 10**6)
    monkeypatch.setattr(document_census, "_PIECE_DOCUMENTS", 10)
    monkeypatch.setattr("dask_dca.engine.sampling.task_threads", lambda: 4)
    with dask.config.set(scheduler="synchronous"):
        _, drawn = take_census_and_draw(as_rows(data), Run(), Draw(0.5))
    assert drawn.n_blocks == 4
    assert np.ptp(np.diff(drawn.offsets)) <= 1
    assert rows_of(drawn) == rows_of(take_census_and_draw(as_rows(X), Run(), Draw(0.5))[1])
    if form == "dask":
        assert counted.reads == 1


def test_an_error_in_a_block_is_told_with_its_row():
    wrong = X.toarray()
    wrong[123, 4] = -1
    with pytest.raises(ValueError, match="row 123, column 4"):
        take_census_and_draw(as_rows(da.from_array(wrong, chunks=(50, -1))), Run(), Draw(0.5))
