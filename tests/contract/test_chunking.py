"""Fitted attributes and results have the bits of memory for any chunking, container and scheduler."""

from inspect import signature

import dask
import dask.array as da
import numpy as np
import pytest
import zarr
from dask import is_dask_collection
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from benchmarks.chunking_cases import sizes
from dask_dca.engine.rows import as_rows
from dask_dca.errors import DCAError
from tests.contract.entries import ENTRIES, as_bytes, data, example, example_results, fitted, fitted_bytes, result_bytes
from tests.messages import by_messages
from tests.strategies import chunkings

pytestmark = pytest.mark.filterwarnings("ignore")  # so little data, of any kind
DTYPES = {"symbols": (np.int64, np.uint8)}


@st.composite
def fits(draw, name):
    """Rows with duplicates, how they are cut, lengths of sequences, and a model with drawn parameters."""
    entry = ENTRIES[name]
    n, p = draw(st.integers(40, 150)), draw(st.integers(3, 6))
    X = data(entry.kind, n, p, np.random.default_rng(draw(st.integers(0, 10**6))))
    if entry.kind in ("clouds", "cones"):
        X = X + draw(st.sampled_from([0.0, 100.0]))
    X = X.astype(draw(st.sampled_from(DTYPES.get(entry.kind, (np.float32, np.float64)))))
    if draw(st.booleans()):
        X[n // 2 :] = X[: n - n // 2]
    lengths = [int(size) for size in draw(chunkings(n, most=4))] if entry.sequences and draw(st.booleans()) else None
    parameters = {key: draw(st.sampled_from(values)) for key, values in entry.options.items()}
    chunks = (draw(chunkings(n)), draw(chunkings(X.shape[1], most=3, empty=False)))
    return X, chunks, lengths, parameters


def outcome(name, X, lengths, parameters, results=True):
    """All bits of a fit and its results, or the error."""
    try:
        model = ENTRIES[name].make(**parameters).fit(X, **ENTRIES[name].given(lengths))
        return fitted_bytes(model), result_bytes(name, model, X, lengths) if results else {}
    except DCAError as error:
        return type(error), str(error)


@given(case=st.data())
@settings(max_examples=4)
def test_any_chunking(name, case):
    X, chunks, lengths, parameters = case.draw(fits(name))
    assert outcome(name, da.from_array(X, chunks=chunks), lengths, parameters) == outcome(name, X, lengths, parameters)


def test_rows_that_no_sample_holds(name, monkeypatch):
    """Of more rows than a sample takes: this road is not taken by few."""
    entry, rng = ENTRIES[name], np.random.default_rng(1)
    if entry.sample:
        where, value = entry.sample
        monkeypatch.setattr(f"dask_dca.models.{where}", value)
    X = data(entry.kind, entry.many, 4, rng)
    lengths = [entry.many // 3, 0, 1, entry.many - entry.many // 3 - 1] if entry.sequences else None
    chunked = da.from_array(X, chunks=(sizes(entry.many, rng), -1))
    found, whole = (outcome(name, given, lengths, {}, results=False) for given in (chunked, X))
    assert found == whole
    assert isinstance(whole[0], dict)


def test_many_small_chunks_are_read_together(name, monkeypatch):
    """Chunks of no, one or two rows: there are fewer blocks, of several chunks each, and results have the chunks."""
    monkeypatch.setattr("dask_dca.engine.rows._MIN_JOINED_BLOCKS", 5)
    X = example(name)[:36]
    heights = [0, *np.resize([1, 0, 2, 0, 0, 1, 1], 2 * len(X)).tolist()]
    heights = heights[: int(np.searchsorted(np.cumsum(heights), len(X) - 1)) + 1]
    chunked = da.from_array(X, chunks=((*heights, len(X) - sum(heights), 0), 3))
    rows = as_rows(chunked)
    assert 4 < rows.n_blocks < 12 < 50 < chunked.numblocks[0]
    assert outcome(name, chunked, None, {}) == outcome(name, X, None, {})
    weighted = np.arange(len(X)) % 3
    if "sample_weight" in signature(fitted(name).fit).parameters:
        one, other = (ENTRIES[name].make().fit(given, sample_weight=weighted) for given in (chunked, X))
        assert fitted_bytes(one) == fitted_bytes(other)
    of_rows = [getattr(fitted(name), method)(chunked) for method in ENTRIES[name].results]
    assert all(found.chunks[0] == chunked.chunks[0] for found in of_rows if is_dask_collection(found))


FORMS = {
    "path": lambda X, folder: zarr.create_array(folder / "x.zarr", data=X, chunks=(40, 3)) and str(folder / "x.zarr"),
    "order F": lambda X, folder: np.asfortranarray(X),
    "csr": lambda X, folder: sparse.csr_array(X),
    "csc blocks": lambda X, folder: da.from_array(X, chunks=((0, 33, 1, len(X) - 34), 4)).map_blocks(
        sparse.csc_array, dtype=X.dtype, meta=sparse.csc_array((0, 0), dtype=X.dtype)
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_any_container(name, form, tmp_path):
    held = FORMS[form](example(name), tmp_path)
    assert fitted_bytes(ENTRIES[name].make().fit(held)) == fitted_bytes(fitted(name))
    assert result_bytes(name, fitted(name), held) == example_results(name)


def test_threads(name):
    X = example(name)
    with dask.config.set(scheduler="threads"):
        model = ENTRIES[name].make().fit(da.from_array(X, chunks=(13, 3)))
    assert fitted_bytes(model) == fitted_bytes(fitted(name))


def test_arrays_that_begin_anywhere_in_a_message(name):
    """NumPy adds entries of arrays that are not aligned in another order; in wide rows that is seen."""
    X = data(ENTRIES[name].kind, 150, 24, np.random.default_rng(5))
    whole = outcome(name, X, None, {})
    for first in (0, 1):
        with dask.config.set(scheduler=by_messages(first)):
            assert outcome(name, da.from_array(X, chunks=(60, -1)), None, {}) == whole
    assert isinstance(whole[0], dict)


def test_a_refit_has_the_same_bits_and_random_state_decides(name):
    X = example(name)
    model = ENTRIES[name].make().fit(X)
    assert fitted_bytes(model.fit(X)) == fitted_bytes(fitted(name))
    state = np.random.get_state()[1].copy()  # noqa: NPY002 - the global one, which must not move
    one, other = (ENTRIES[name].make(random_state=np.random.default_rng(7)).fit(X) for _ in range(2))
    assert fitted_bytes(one) == fitted_bytes(other)
    assert np.array_equal(state, np.random.get_state()[1])  # noqa: NPY002


def test_rows_of_any_part_have_the_bits_of_the_whole(name):
    """A row's result does not depend on the rows beside it; frames of a sequence depend on each other."""
    if ENTRIES[name].sequences:
        pytest.skip("frames see their neighbours")
    X, model = example(name), fitted(name)
    for method in ENTRIES[name].results:
        whole = getattr(model, method)(X)
        if np.ndim(whole):
            assert as_bytes(getattr(model, method)(X[31:64])) == as_bytes(whole[31:64]), method
