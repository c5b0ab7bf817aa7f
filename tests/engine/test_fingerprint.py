"""Fingerprints of data: every entry of every row counts, and nothing else."""

import struct

import dask.array as da
import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from dask_dca.engine import passes
from dask_dca.engine.checkpoint import open_checkpoint
from dask_dca.engine.fingerprint import Fingerprint, changed_rows, fingerprint_pass, n_ranges, with_fingerprint
from dask_dca.engine.passes import Pass, Run, run_pass
from dask_dca.engine.rows import as_rows
from dask_dca.engine.types import Halo, stack_parts
from dask_dca.errors import CheckpointError
from dask_dca.geometry.planes import child_seeds

random = np.random.default_rng(0)
X = random.poisson(1.0, (60, 7)).astype(np.float64)
X[3, 2], X[4, 1] = np.nan, -1.5


def taken(matrix):
    rows = as_rows(matrix)
    return run_pass(rows, fingerprint_pass(rows.n_rows), None)


def same(one, other):
    return one.first == other.first and np.array_equal(one.sums, other.sums)


def mixed(bits):
    """In Python's own integers."""
    bits = (bits ^ (bits >> 32)) * 0xD6E8FEB86659FD93 % 2**64
    return bits ^ (bits >> 29)


def test_the_hash_of_a_row_is_the_formula():
    keys = [int(key) | 1 for key in child_seeds(0, np.arange(7))]
    expected = []
    for i, row in enumerate(X):
        bits = [struct.unpack("<Q", struct.pack("<d", value))[0] for value in row]
        total = sum(mixed(part) * key for part, key in zip(bits, keys, strict=True))
        expected.append(mixed(mixed((total + int(child_seeds(1, i))) % 2**64)))
    assert taken(X).sums.tolist() == expected


@given(st.lists(st.integers(1, 59), max_size=6, unique=True), st.integers(1, 7))
def test_no_cut_changes_it(cuts, width):
    heights = np.diff([0, *sorted(cuts), 60]).tolist()
    assert same(taken(da.from_array(X, chunks=(tuple(heights), width))), taken(X))


def test_all_forms_of_the_same_values_have_one(tmp_path):
    whole, clean = taken(X), np.nan_to_num(X)
    negative = np.where(clean == 0, -0.0, clean)
    masked = np.ma.array(clean, mask=np.isnan(X))
    quiet = X.copy()
    quiet.view(np.uint64)[3, 2] = 0xFFF8_0000_0000_0123  # another NaN
    twice = sparse.csr_array((np.array([1.0, 1.5]), np.array([2, 2]), np.array([0, 2])), shape=(1, 5))
    stored = zarr.create_array(tmp_path / "x.zarr", data=X, chunks=(9, 3))
    for form in (stored, quiet, da.from_array(masked, chunks=(11, 7)), np.asfortranarray(X), X.astype(">f8")):
        assert same(taken(form), whole)
    for kind in (sparse.csr_array, sparse.csc_matrix, sparse.coo_array):
        assert same(taken(kind(X)), whole)
    assert same(taken(da.from_array(X, chunks=(11, 3)).map_blocks(sparse.csr_array)), whole)
    for form in (negative, clean.astype(np.float32), clean.astype(np.float16), da.from_array(clean, chunks=7)):
        assert same(taken(form), taken(clean))
    assert same(taken(twice), taken(np.array([[0, 0, 2.5, 0, 0]])))
    assert same(taken(X > 0), taken((X > 0).astype(np.int8)))


@pytest.mark.parametrize(
    ("first", "last", "change"),
    [
        (17, 17, lambda A: A.__setitem__((17, 3), np.nextafter(A[17, 3], 9))),
        (0, 0, lambda A: A.__setitem__((0, 0), A[0, 0] + 1)),
        (59, 59, lambda A: A.__setitem__((59, 6), np.nan)),
        (5, 5, lambda A: A.__setitem__(5, A[5, ::-1])),
        (4, 4, lambda A: A.__setitem__(4, -A[4])),
        (20, 21, lambda A: A.__setitem__([20, 21], A[[21, 20]])),
        (30, 39, lambda A: A.__setitem__(slice(30, 40), 0.0)),
    ],
)
def test_any_change_is_seen_and_named(first, last, change):
    changed = X + 0.0
    change(changed)
    assert changed_rows(taken(X), taken(changed), 60) == [(first, last + 1)]


def test_a_count_that_moves_to_another_word_is_seen():
    words = np.eye(2000)
    assert len(np.unique([taken(word[None]).sums[0] for word in words])) == 2000
    signs = np.ones((1, 60)) * np.where(np.isin(np.arange(60), [3, 50]), -1.0, 1.0)
    assert not same(taken(signs), taken(np.ones((1, 60))))


@pytest.mark.parametrize(("n_rows", "ranges"), [(1, 1), (4096, 4096), (4097, 2049), (10**9, 4096)])
def test_there_are_few_ranges_of_one_length(n_rows, ranges):
    assert n_ranges(n_rows) == ranges


def test_ranges_of_several_rows_are_cut_by_number_alone():
    tall = random.standard_normal((20_000, 2))  # five rows a range
    whole, changed = taken(tall), tall.copy()
    assert len(whole.sums) == 4000
    for height in (1999, 7003, 19_999):
        assert same(taken(da.from_array(tall, chunks=(height, -1))), whole)
    changed[[12, 14, 19_998]] += 1.0
    assert changed_rows(whole, taken(changed), 20_000) == [(10, 15), (19_995, 20_000)]


def sums(state, where, *columns):
    return np.array([state]), np.array([where.start, where.stop])[None]


@pytest.mark.parametrize("chunks", [60, 17, 4, (20, 3)])
def test_a_pass_takes_it_along_with_its_own_rows_only(chunks):
    job = Pass("sums", sums, stack_parts, Halo(2, 5))
    rows = as_rows(da.from_array(X, chunks=chunks))
    content, (states, edges) = run_pass(rows, with_fingerprint(job, 60), 7)
    assert same(content, taken(X))
    assert states.tolist() == [7] * rows.n_blocks
    assert edges[:, 1].tolist() == rows.offsets[1:].tolist()


def test_parts_add_up_in_any_order():
    whole = taken(X)
    parts = [Fingerprint(a, whole.sums[a:b]) for a, b in ((40, 60), (0, 0), (0, 17), (17, 40))]
    assert same(sum(parts[1:], parts[0]), whole)


def heights(state, start, *columns):
    return np.array([columns[0].sum() * state])


def kept_sum(matrix, place, state=1.0, blocks=None):
    rows = as_rows(matrix)
    data = {"rows": rows.n_rows, "features": rows.n_features, "dtype": rows.dtype.str}
    run = Run(checkpoint=open_checkpoint(str(place), {"data": data}, rows.source))
    return float(run_pass(rows, Pass("sum", heights, stack_parts), state, run, blocks=blocks).sum())


def test_nothing_is_kept_before_all_rows_were_read(tmp_path):
    one, other = da.ones((40, 2), chunks=(10, 2)), da.full((40, 2), 2.0, chunks=(10, 2))
    first = np.array([0])
    assert kept_sum(one, tmp_path, blocks=first) == 20
    assert kept_sum(other, tmp_path, blocks=first) == 40
    assert [path.name for path in tmp_path.iterdir()] == ["fit.json"]
    assert kept_sum(other, tmp_path) == 160
    with pytest.raises(CheckpointError, match="in rows 0 to 39 of 40"):
        kept_sum(one, tmp_path, blocks=first)


def test_rows_that_a_pass_did_not_visit_count_as_well(tmp_path):
    held = np.ones((40, 2))
    assert kept_sum(da.from_array(held.copy(), chunks=(10, 2)), tmp_path) == 80
    assert kept_sum(da.from_array(held.copy(), chunks=(10, 2)), tmp_path, blocks=np.array([0])) == 20
    held[25] = 7.0
    for blocks in (None, np.array([0])):
        with pytest.raises(CheckpointError, match="in rows 25 of 40; what it holds is of the old data"):
            kept_sum(da.from_array(held, chunks=(10, 2)), tmp_path, blocks=blocks)


def test_the_data_are_compared_once_a_fit(tmp_path, monkeypatch):
    names, real = [], passes._run_graph
    monkeypatch.setattr(passes, "_run_graph", lambda *args: names.append(args[1].name) or real(*args))
    one = da.ones((40, 2), chunks=(10, 2))
    rows = as_rows(one)
    for expected in (["sum", "sum"], ["verify"]):
        run = Run(checkpoint=open_checkpoint(str(tmp_path), {"data": {"rows": 40}}, rows.source))
        names.clear()
        for state in (1.0, 2.0):
            run_pass(rows, Pass("sum", heights, stack_parts), state, run)
        assert names == expected


def test_values_of_other_data_have_other_keys(tmp_path):
    one = da.ones((40, 2), chunks=(10, 2))
    assert kept_sum(one, tmp_path) == 80
    (tmp_path / "fit.json").unlink()
    kept = {path: path.read_bytes() for path in tmp_path.glob("*.npz")}
    for path in kept:
        path.unlink()
    open_checkpoint(str(tmp_path), {"data": {"rows": 40, "features": 2, "dtype": "<f8"}})
    for path, content in kept.items():  # of a fit whose head was lost
        path.write_bytes(content)
    assert kept_sum(2 * one, tmp_path) == 160
    assert len(list(tmp_path.glob("*.npz"))) == 2
