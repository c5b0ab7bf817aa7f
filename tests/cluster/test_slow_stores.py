"""Stores that answer slowly: chunks on their way together, reading beside computing, and the same bits as ever."""

import itertools

import numpy as np
import pytest
import zarr
from zarr.storage import LocalStore

import dask_dca as dca
from benchmarks.slow_store import SlowStore
from dask_dca.engine.passes import Pass, Run, run_pass
from dask_dca.engine.rows import as_rows
from dask_dca.engine.sampling import fetch_rows, sample_rows
from dask_dca.errors import NotFiniteError
from tests.cluster.slow_store import DeadlyStore, compute, take
from tests.cluster.workers import MARKS
from tests.conftest import bits, planted

pytestmark = MARKS


def slow(place, X, **options):
    zarr.create_array(place, data=X, **options)
    return zarr.open_array(SlowStore(LocalStore(place, read_only=True), 0.02, 1e9), mode="r")


def logs(client):
    every = client.run(take).values()
    sizes = {key: size for requested, _, _ in every for key, size in requested.items()}
    return sizes, [(reading, computing) for _, reading, computing in every]


def most_at_once(spans):
    edges = sorted([(begin, 1) for begin, _ in spans] + [(end, -1) for _, end in spans])
    return max(itertools.accumulate(step for _, step in edges), default=0)


def test_a_block_is_read_while_another_is_worked_on(client, tmp_path):
    X = np.arange(2400.0).reshape(240, 10)
    rows = as_rows(slow(tmp_path / "x.zarr", X, chunks=(10, 10)))
    logs(client)
    assert run_pass(rows, Pass("sum", compute, sum), None) == X.sum()
    for reading, computing in logs(client)[1]:
        beside = sum(any(r[0] < c[1] and c[0] < r[1] for r in reading) for c in computing)
        assert beside > len(computing) // 4  # none otherwise: a worker of one thread
        assert most_at_once(computing) == 1  # of a worker of one thread
        ends = sorted(end for _, end in reading)
        for i, (begin, _) in enumerate(sorted(computing)):  # in hand: what was read and is not worked on yet
            assert sum(end <= begin for end in ends) - i <= 2


def test_a_folder_is_read_as_ever(client, tmp_path):
    stored = zarr.create_array(tmp_path / "x.zarr", data=np.ones((240, 10)), chunks=(10, 10))
    assert run_pass(as_rows(stored), Pass("sum", compute, sum), None) == 2400
    assert all(most_at_once(computing) == 1 for _, computing in logs(client)[1])


@pytest.mark.parametrize("take_some", [fetch_rows, sample_rows])
def test_chunks_with_rows_of_a_sample_are_on_their_way_together(client, tmp_path, take_some):
    X = np.random.default_rng(0).random((960, 10))
    rows = as_rows(slow(tmp_path / "x.zarr", X, chunks=(10, 10)))
    numbers = np.arange(0, 960, 7)
    logs(client)
    found = take_some(rows, numbers, Run())
    found = found if isinstance(found, np.ndarray) else found.source.compute()
    np.testing.assert_array_equal(found, X[numbers])
    assert all(2 <= most_at_once(reading) <= 8 for reading, _ in logs(client)[1])


def test_of_a_shard_only_the_chunks_with_wanted_rows_are_asked_for(client, tmp_path):
    X = np.random.default_rng(0).random((3200, 10))
    stored = slow(tmp_path / "x.zarr", X, chunks=(100, 10), shards=(1600, 10), compressors=None)
    logs(client)
    numbers = np.array([5, 6, 1750])
    np.testing.assert_array_equal(fetch_rows(as_rows(stored), numbers, Run()), X[numbers])
    assert sum(logs(client)[0].values()) < X.nbytes / 8


@pytest.mark.parametrize("options", [{"chunks": (40, 12)}, {"chunks": (10, 5), "shards": (80, 15)}])
def test_fits_have_the_same_bits_as_in_memory(client, tmp_path, options):
    X, _ = planted(1200, 12, 4, noise=0.01)
    assert bits(dca.NMF(4).fit(slow(tmp_path / "x.zarr", X, **options))) == bits(dca.NMF(4).fit(X))


def test_a_worker_killed_while_others_read_and_compute_changes_no_bit(client, tmp_path):
    X, _ = planted(1200, 12, 4, noise=0.01)
    zarr.create_array(tmp_path / "x.zarr", data=X, chunks=(40, 12))
    marker = tmp_path / "alive"
    store = DeadlyStore(LocalStore(tmp_path / "x.zarr", read_only=True), key="c/17/0", marker=str(marker))
    stored = zarr.open_array(store, mode="r")
    whole = bits(dca.NMF(4).fit(X))
    marker.touch()
    assert bits(dca.NMF(4).fit(stored)) == whole
    assert not marker.exists()


def test_an_error_of_a_block_is_told_as_ever(client, tmp_path):
    X, _ = planted(1200, 12, 4)
    X[777, 3] = np.inf
    with pytest.raises(NotFiniteError, match="777"):
        dca.NMF(4).fit(slow(tmp_path / "x.zarr", X, chunks=(40, 12)))
