"""Blocks that can't be read: tried again, then one error that says where; the model is as if it was never fitted."""

import time
import weakref
from functools import partial

import dask
import dask.array as da
import numpy as np
import pytest
import zarr
from distributed import Client, LocalCluster
from scipy import sparse
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted
from zarr.storage import LocalStore, WrapperStore

import dask_dca as dca
from dask_dca.engine.passes import Pass, run_pass
from dask_dca.engine.rows import as_rows
from dask_dca.engine.types import Halo
from dask_dca.errors import InvalidInputError
from tests.cluster.workers import MARKS
from tests.conftest import bits, planted

pytestmark = MARKS
X, _ = planted(600, 8, 3)


def refuse_to_be_used(model):
    with pytest.raises(NotFittedError):
        check_is_fitted(model)


@pytest.mark.parametrize("compressors", ["auto", None])
@pytest.mark.parametrize("length", [0, 20])
@pytest.mark.parametrize("name", ["NMF", "GaussianMixture", "GaussianHMM", "KalmanFilter", "SubspaceClustering"])
def test_a_chunk_that_is_cut_short_is_named(tmp_path, compressors, length, name):
    zarr.create_array(tmp_path / "x.zarr", data=X, chunks=(100, 8), compressors=compressors)
    chunk = tmp_path / "x.zarr" / "c" / "3" / "0"
    chunk.write_bytes(chunk.read_bytes()[:length])
    model = getattr(dca, name)(2)
    with pytest.raises(InvalidInputError, match=r"rows 300 to 399 of .*x\.zarr can't be read"):
        model.fit(str(tmp_path / "x.zarr"))
    refuse_to_be_used(model)


@pytest.mark.parametrize("name", ["data", "indices", "indptr"])
def test_a_sparse_store_that_is_cut_short_is_named(tmp_path, name):
    counts = sparse.csr_array(np.random.default_rng(0).poisson(1.0, (200, 30)).astype(np.float64))
    group = zarr.create_group(tmp_path / "d.zarr")
    group.attrs.update({"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": list(counts.shape)})
    for part in ("data", "indices", "indptr"):
        group.create_array(part, data=getattr(counts, part), chunks=(50,))
    chunk = tmp_path / "d.zarr" / name / "c" / "2"
    chunk.write_bytes(chunk.read_bytes()[:20])
    model = dca.LatentDirichletAllocation(3)
    with pytest.raises(InvalidInputError, match=r"can't be read|damaged"):
        model.fit(str(tmp_path / "d.zarr"))
    refuse_to_be_used(model)


class StoreError(Exception):
    """Not of a kind that anybody foresaw."""


class FailingStore(WrapperStore):
    """A store whose third chunk nobody can read, as a server that answers with an error of its own."""

    async def get(self, key, prototype, byte_range=None):
        if key.endswith("c/3/0"):
            raise StoreError("quota exceeded")
        return await super().get(key, prototype, byte_range)


def test_a_store_that_raises_what_it_likes_is_named(tmp_path):
    zarr.create_array(tmp_path / "x.zarr", data=X, chunks=(100, 8))
    model = dca.NMF(3)
    with pytest.raises(InvalidInputError, match=r"rows 300 to 399 of .* can't be read \(quota exceeded\)"):
        model.fit(zarr.open_array(FailingStore(LocalStore(tmp_path / "x.zarr")), mode="r"))
    refuse_to_be_used(model)


class Counting:
    """Rows of which those from 300 on can't be read `failures` times; every attempt is a line of a file."""

    shape, dtype, ndim = X.shape, X.dtype, 2

    def __init__(self, path, failures):
        self.path, self.failures = path, failures

    def __getitem__(self, where):
        if where[0].start == 300:
            with open(self.path, "a+") as held:
                held.write("x\n")
                held.seek(0)
                attempts = len(held.readlines())
            if attempts <= self.failures:
                raise StoreError(f"attempt {attempts}")
        return X[where]


def counting(path, failures, columns):
    source = Counting(path, failures)
    return da.from_array(source, chunks=(100, columns), asarray=False, name=False, meta=X[:0])


@pytest.mark.parametrize("columns", [8, 3])
def test_a_block_of_a_dask_array_is_named_beside_its_own_error(tmp_path, columns):
    model = dca.NMF(3)
    with dask.config.set(scheduler="sync"), pytest.raises(StoreError, match="attempt 1") as caught:
        model.fit(counting(tmp_path / "attempts", 9, columns))
    assert caught.value.__notes__ == ["in the block of rows that begins with row 300"]
    refuse_to_be_used(model)


def test_a_block_is_tried_again_as_often_as_told(tmp_path):
    whole = bits(dca.NMF(3).fit(X))
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0") as cluster,
        Client(cluster),
    ):
        assert bits(dca.NMF(3, retries=2).fit(counting(tmp_path / "two", 2, 8))) == whole
        with pytest.raises(StoreError, match="attempt 3") as caught:
            dca.NMF(3, retries=2).fit(counting(tmp_path / "more", 9, 8))
    assert "in the block of rows that begins with row 300" in caught.value.__notes__
    assert len((tmp_path / "more").read_text().splitlines()) == 3


LOADED = []


def loaded(block):
    LOADED.append(len(block))
    return block


def test_blocks_with_holes_are_read_as_often_as_the_fit_needs_them_on_a_cluster_too():
    rng = np.random.default_rng(0)
    cones = np.einsum("ni,nip->np", rng.random((8000, 3)), rng.random((2, 3, 16))[rng.integers(2, size=8000)])
    holes = da.from_array(np.where(rng.random(cones.shape) < 0.1, np.nan, cones), chunks=(200, 16))
    blocks = holes.map_blocks(loaded, dtype=float, meta=np.empty((0, 0)))
    LOADED.clear()
    model = dca.SubspaceClustering(2, n_components=6)
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0") as cluster,
        Client(cluster),
    ):
        model.fit(blocks)
    held = len(np.unique(model.anchor_indices_ // 200))
    needed = 40 * 3 + held  # what was observed, a sample of all blocks, the divide pass; and the anchors themselves
    assert needed <= len(LOADED) < needed + 40  # the first attempt ends where it meets a hole, and isn't repeated


def window_sum(state, window, *columns):
    return sum(float(column[0 : column.shape[0]].sum()) for column in columns)


@pytest.mark.parametrize("columns", [8, 3])
def test_a_chunk_that_several_blocks_share_is_named(tmp_path, columns):
    rows = as_rows(counting(tmp_path / "attempts", 99, columns))
    with dask.config.set(scheduler="sync"), pytest.raises(StoreError) as caught:
        run_pass(rows, Pass("sum", window_sum, sum, Halo(5, 5)), None)
    assert caught.value.__notes__ == ["in the block of rows that begins with row 300"]


def refused(kept, _, *columns):
    kept.extend(weakref.ref(column) for column in columns)
    raise InvalidInputError("no such rows")


def test_an_error_holds_no_block():
    """The cluster keeps errors, and with them what their frames hold."""
    kept = []
    rows = as_rows(da.from_array(X, chunks=(100, 8)) + 1.0)
    with dask.config.set(scheduler="sync"), pytest.raises(InvalidInputError, match="no such rows") as caught:
        run_pass(rows, Pass("refuse", lambda _, *args: refused(kept, *args), sum), None)
    assert caught.value.__traceback__ is not None
    assert len(kept) == 1
    assert kept[0]() is None


def read_slowly(path, block):
    time.sleep(0.05)
    with open(path, "a") as file:
        file.write(f"{len(block)}\n")
    return block.copy()


def test_what_was_begun_for_complete_rows_is_given_up(tmp_path):
    """A sample for complete rows is kept on the cluster; tasks that put it together fail, block by block."""
    holes, (n, p) = np.random.default_rng(0).random((80_000, 8)), (80_000, 8)
    holes[:, 0][np.random.default_rng(1).random(n) < 0.3] = np.nan
    blocks = da.from_array(holes, chunks=(2000, p), inline_array=True)
    blocks = blocks.map_blocks(partial(read_slowly, str(tmp_path / "reads")), dtype=float, meta=np.zeros((0, 0)))
    with LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0") as cluster, Client(cluster):
        dca.find_anchors(blocks, 3)
    n_reads = len((tmp_path / "reads").read_text().splitlines())
    assert n_reads < 130  # 40 for the sample, 40 for all rows, 3 for anchors; few that fail, each four times
