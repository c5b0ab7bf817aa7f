"""The same topics, bit for bit, of documents in any order, and of a sample of them however it is put together."""

import dask
import dask.array as da
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

import dask_dca as dca
from dask_dca.models.lda.corpus import Draw, last_kept, sample_of
from tests.conftest import bits
from tests.models.lda.data import LDA_FITTED, planted_documents
from tests.strategies import chunkings

pytestmark = [
    pytest.mark.filterwarnings("ignore::dask_dca.errors.FewerAnchorsWarning"),
    pytest.mark.filterwarnings("ignore:.*outweigh all others"),  # as drawn documents may
]
X, _ = planted_documents()


def sparse_blocks(matrix, chunks, form=sparse.csr_array):
    """A Dask array of sparse blocks."""
    dense = da.from_array(matrix.toarray(), chunks=chunks)
    return dense.map_blocks(form, dtype=dense.dtype, meta=form((0, 0), dtype=dense.dtype))


def test_order_of_documents_does_not_matter():
    shuffled = X[np.random.default_rng(0).permutation(X.shape[0])]
    first = bits(dca.LatentDirichletAllocation(5).fit(X), LDA_FITTED)
    assert bits(dca.LatentDirichletAllocation(5).fit(shuffled), LDA_FITTED) == first


def test_blocks_of_thousands_of_documents_are_exact_too():
    """Many documents make sums long: their bits must not depend on where blocks end."""
    many, _ = planted_documents(20_000, 30, 3, 20)
    whole = bits(dca.LatentDirichletAllocation(3, max_iter=1).fit(many), LDA_FITTED)
    for chunk in (977, 20_000):
        blocks = sparse_blocks(many, (chunk, -1))
        with dask.config.set(scheduler="threads"):
            assert bits(dca.LatentDirichletAllocation(3, max_iter=1).fit(blocks), LDA_FITTED) == whole


@given(st.data())
@settings(max_examples=6)
def test_a_sample_of_the_documents_is_the_same_for_any_chunking(data):
    chunks = (data.draw(chunkings(X.shape[0])), (X.shape[1],))
    seed = data.draw(st.integers(0, 3))
    model = dca.LatentDirichletAllocation(5, max_iter=3, subsample=150, random_state=seed)
    whole = bits(model.fit(X), LDA_FITTED)
    with dask.config.set(scheduler="synchronous"):
        assert bits(model.fit(sparse_blocks(X, chunks)), LDA_FITTED) == whole
    assert model.n_passes_ == 2  # the census, and the last pass of EM


def test_a_sample_that_is_cut_for_its_size_is_the_same_however_it_is_merged():
    parts = [(0, 130), (130, 131), (131, 131), (131, 400)]
    draw = Draw(0.7, 5)
    whole = draw.take(X, 0).trimmed(2000)
    samples = [draw.take(X[a:b], a).trimmed(2000, beyond=True) for a, b in parts]
    first, second, third, fourth = samples
    for merged in (first + (second + third) + fourth, (fourth + second) + (third + first)):
        found = merged.trimmed(2000)
        assert found.numbers.tolist() == whole.numbers.tolist()
        assert (found.counts != whole.counts).nnz == 0
    assert 0 < whole.counts.nnz <= 2000


def test_a_document_that_does_not_fit_keeps_its_place_in_a_part():
    counts = sparse.csr_array(np.tril(np.ones((8, 8)))[[4, 4, 7, 0]])  # documents of 5, 5, 8 and 1 different words
    sample = sample_of(np.arange(4) / 4, np.arange(4), counts)
    large, small = (sample_of(sample.keys[at], at, counts[at]) for at in (np.arange(3), np.array([3])))
    for most in range(20):
        parts = [part.trimmed(most, beyond=True) for part in (small, large)]
        found = (parts[0] + parts[1]).trimmed(most)
        assert found.numbers.tolist() == sample.trimmed(most).numbers.tolist()
        last = last_kept([part.sizes() for part in parts], most)
        assert sum(part.up_to(last).shape[0] for part in parts) == len(found.numbers)


def test_a_fit_of_a_sample_that_goes_on_from_a_checkpoint_has_the_same_bits(tmp_path):
    whole = bits(dca.LatentDirichletAllocation(5, max_iter=3, subsample=150).fit(X), LDA_FITTED)
    model = dca.LatentDirichletAllocation(5, max_iter=3, subsample=150, checkpoint=str(tmp_path / "kept"))
    for _ in range(2):  # the second takes both passes over all documents, and the sample, from the first
        with dask.config.set(scheduler="synchronous"):
            assert bits(model.fit(sparse_blocks(X, (90, -1))), LDA_FITTED) == whole
        assert model.n_passes_ == 2
    assert sorted(path.name.partition("-")[0] for path in (tmp_path / "kept").glob("*.npz")) == ["census", "refine"]
