"""Every form of matrix that people have becomes the same rows."""

import asyncio
import subprocess
import sys
import tracemalloc

import dask
import dask.array as da
import dask.dataframe as dd
import fsspec
import numpy as np
import pandas as pd
import pytest
import xarray as xr
import zarr
from scipy import sparse

import dask_dca as dca
from dask_dca.engine.passes import Run
from dask_dca.engine.rows import as_rows
from dask_dca.engine.sampling import fetch_rows
from dask_dca.engine.stores import open_array
from dask_dca.errors import ClusterError, InvalidInputError, PerformanceWarning
from tests.conftest import bits, planted, raise_if_dask_computes

X, ANCHORS = planted(120, 6, 3)
NAMES = [f"band {j}" for j in range(6)]


def unknown(X, chunks=(25, 6)):
    """A Dask array whose chunk sizes are not known before it is computed."""
    x = da.from_array(X, chunks=chunks)
    return x[(x[:, 0] > -1.0)]


FORMS = {
    "numpy": lambda folder: X,
    "fortran order": lambda folder: np.asfortranarray(X),
    "strided": lambda folder: np.repeat(np.repeat(X, 2, axis=0), 2, axis=1)[::2, ::2],
    "read-only": lambda folder: np.frombuffer(X.tobytes()).reshape(X.shape),
    "lists": lambda folder: X.tolist(),
    "objects": lambda folder: X.astype(object),
    "masked without masks": lambda folder: np.ma.masked_invalid(X),
    "memmap": lambda folder: _memmap(folder),
    "csr_array": lambda folder: sparse.csr_array(X),
    "csr_matrix": lambda folder: sparse.csr_matrix(X),
    "csc_matrix": lambda folder: sparse.csc_matrix(X),
    "coo_array": lambda folder: sparse.coo_array(X),
    "lil_matrix": lambda folder: sparse.lil_matrix(X),
    "dask rows": lambda folder: da.from_array(X, chunks=(50, 6)),
    "dask features": lambda folder: da.from_array(X, chunks=(120, 2)),
    "dask both, empty": lambda folder: da.from_array(X, chunks=((0, 70, 0, 50), (1, 5))),
    "dask of sparse": lambda folder: da.from_array(X, chunks=(50, 4)).map_blocks(
        sparse.csr_array, dtype=X.dtype, meta=sparse.csr_array((0, 0))
    ),
    "zarr array": lambda folder: zarr.create_array(folder / "a.zarr", data=X, chunks=(32, 4)),
    "zarr path": lambda folder: _stored(folder) / "x",
    "zarr group": lambda folder: zarr.open_group(_stored(folder), mode="r"),
    "zarr group path": lambda folder: str(_stored(folder)),
    "zarr url": lambda folder: f"file://{_stored(folder)}/x",
    "zarr v2": lambda folder: zarr.create_array(folder / "b.zarr", data=X, chunks=(50, 6), zarr_format=2),
    "zarr in memory": lambda folder: zarr.create_array({}, data=X, chunks=(50, 6)),
    "pandas": lambda folder: pd.DataFrame(X, columns=NAMES),
    "dask dataframe": lambda folder: dd.from_pandas(pd.DataFrame(X, columns=NAMES), npartitions=4),
    "xarray": lambda folder: xr.DataArray(X, dims=("pixel", "band"), coords={"band": NAMES}),
    "xarray of dask": lambda folder: xr.DataArray(
        da.from_array(X, chunks=(50, 4)), dims=("pixel", "band"), coords={"band": NAMES}
    ),
}


def _memmap(folder):
    path = folder / "x.dat"
    path.write_bytes(X.tobytes())
    return np.memmap(path, dtype=X.dtype, shape=X.shape, mode="r")


def _stored(folder):
    """A group of one matrix and a vector, which is no candidate."""
    group = zarr.open_group(folder / "g.zarr", mode="w")
    group.create_array("x", data=X, chunks=(50, 6))
    group.create_array("wavelengths", data=np.arange(6.0))
    return folder / "g.zarr"


@pytest.mark.parametrize("form", FORMS)
def test_every_accepted_form_gives_the_same_rows_and_anchors(form, tmp_path):
    """Feature chunks, frames, sparse blocks (dask/dask-ml #731, dask/dask-ml #542)."""
    given = FORMS[form](tmp_path)
    rows = as_rows(given)
    assert (rows.n_rows, rows.n_features, rows.dtype) == (120, 6, np.float64)
    np.testing.assert_array_equal(fetch_rows(rows, None, Run()), X)
    np.testing.assert_array_equal(fetch_rows(rows, np.array([119, 3, 70]), Run()), X[[119, 3, 70]])
    assert bits(dca.find_anchors(given, 3)) == bits(dca.find_anchors(X, 3))


@pytest.mark.parametrize("form", FORMS)
def test_a_model_takes_every_accepted_form(form, tmp_path):
    given = FORMS[form](tmp_path)
    model = dca.NMF(3).fit(given)
    assert bits(model) == bits(dca.NMF(3).fit(X))
    assert model.n_features_in_ == 6
    named = form in ("pandas", "dask dataframe", "xarray", "xarray of dask")
    assert getattr(model, "feature_names_in_", np.array([])).tolist() == (NAMES if named else [])
    np.testing.assert_allclose(np.asarray(model.transform(given)) @ model.components_, X, atol=1e-9)
    assert model.reconstruction_err(given) < 1e-9


def test_taking_an_array_reads_nothing(tmp_path):
    with raise_if_dask_computes():
        for form in ("dask both, empty", "dask of sparse", "zarr group path", "xarray of dask"):
            as_rows(FORMS[form](tmp_path / form.replace(" ", "")))


@pytest.mark.parametrize("chunks", [(25, 6), (25, 2), (1, 6)])
def test_unknown_chunk_sizes_cost_a_pass_and_a_warning(chunks):
    """Ids need lengths, so they are counted once, and the warning has the line that avoids it."""
    given = unknown(X, chunks)
    with pytest.warns(PerformanceWarning, match=r"compute_chunk_sizes\(\)"):
        rows = as_rows(given)
    assert rows.n_rows == 120
    assert np.isnan(given.shape[0])  # the caller's array is not changed
    with pytest.warns(PerformanceWarning):
        found = dca.find_anchors(given, 3)
    assert bits(found) == bits(dca.find_anchors(X, 3))


def test_the_warning_of_unknown_chunk_sizes_points_at_the_callers_line():
    with pytest.warns(PerformanceWarning) as caught:
        dca.find_anchors(unknown(X), 3)
    with pytest.warns(PerformanceWarning) as again:
        dca.NMF(3).fit(unknown(X))
    assert [warning.filename for warning in [*caught, *again]] == [__file__] * 2


def test_blocks_of_wide_rows_are_found_with_no_number_a_row():
    """Of so many features that a block is a chunk: 480 MB were taken to say so."""
    wide = da.zeros((60_000_000, 300_000), chunks=(100_000, -1))
    tracemalloc.start()
    try:
        assert as_rows(wide).n_blocks == 600
        assert tracemalloc.get_traced_memory()[1] < 2**24
    finally:
        tracemalloc.stop()


def test_filtered_blocks_may_be_empty():
    x = da.from_array(X, chunks=(10, 6))
    keep = x[:, 0] > np.median(X[:, 0])
    with pytest.warns(PerformanceWarning):
        found = dca.find_anchors(x[keep & (da.arange(120, chunks=10) > 30)], 3)
    chosen = X[(X[:, 0] > np.median(X[:, 0])) & (np.arange(120) > 30)]
    assert bits(found) == bits(dca.find_anchors(chosen, 3))


@pytest.mark.parametrize(
    ("dtype", "out"),
    [
        ("float16", "float16"),
        ("float32", "float32"),
        ("float64", "float64"),
        (">f4", "float32"),
        ("longdouble", "float64"),
        ("uint8", "float64"),
        ("int16", "float64"),
        ("int64", "float64"),
        ("uint64", "float64"),
        ("bool", "float64"),
    ],
)
def test_dtypes_are_accepted_and_floating_ones_kept(dtype, out):
    """Results have the precision of the data (scikit-learn #11000, scikit-learn PR #16280)."""
    rng = np.random.default_rng(0)
    rays = np.eye(3, 6).repeat(2, axis=1)[:, :6] > 0
    mixed = rng.integers(1, 3, (50, 3)) @ rays.astype(int)
    Z = (
        np.vstack([3 * rays, mixed, np.zeros((1, 6))]) if dtype != "bool" else np.vstack([rays, rays.any(0)[None]] * 9)
    ).astype(dtype)
    for given in (Z, da.from_array(Z, chunks=(7, 4))):
        model = dca.NMF(3).fit(given)
        assert sorted(model.anchor_indices_) == [0, 1, 2]
        assert model.components_.dtype == np.dtype(out)
        assert model.components_.dtype.isnative
        assert np.asarray(model.transform(given)).dtype == np.promote_types(out, np.float32)


def test_names_are_kept_only_if_all_are_text():
    for names in (range(6), ["a", 1, 2, 3, 4, 5]):
        assert as_rows(pd.DataFrame(X, columns=list(names))).feature_names is None
    assert as_rows(xr.DataArray(X, dims=("row", "band"))).feature_names is None
    assert as_rows(xr.DataArray(X, dims=("row", "band"), coords={"band": np.arange(6.0)})).feature_names is None


def test_a_group_of_several_arrays_asks_which(tmp_path):
    group = zarr.open_group(tmp_path / "g.zarr", mode="w")
    with pytest.raises(InvalidInputError, match=r"no two-dimensional array in .*g.zarr.*no arrays"):
        as_rows(group)
    group.create_array("b", data=X)
    group.create_group("deep").create_array("a", data=X + 1.0)
    with pytest.raises(InvalidInputError, match=r"2 arrays in .*g.zarr.*b, deep/a.*--array b.*zarr.open_array"):
        as_rows(tmp_path / "g.zarr")
    with pytest.raises(InvalidInputError, match=r"no array 'c' in .*it holds b, deep/a"):
        as_rows(tmp_path / "g.zarr", array="c")
    np.testing.assert_array_equal(open_array(tmp_path / "g.zarr", "deep/a")[:], X + 1.0)
    np.testing.assert_array_equal(fetch_rows(as_rows(group, array="deep/a"), None, Run()), X + 1.0)


@pytest.mark.parametrize("name", ["missing.zarr", "missing/deep.zarr", "empty", "file.txt"])
def test_a_path_without_an_array_says_so(tmp_path, name):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file.txt").write_text("no array")
    with pytest.raises(
        InvalidInputError, match=rf"no zarr array or group at .*{name}.*(check the path|numpy.loadtxt)"
    ) as caught:
        as_rows(tmp_path / name)
    assert "\n" not in str(caught.value)


def test_numpy_data_import_neither_distributed_nor_pandas_nor_zarr():
    """The dask command loads this package on every call."""
    code = "import sys, numpy as np, dask_dca as dca; dca.find_anchors(np.eye(4), 4); print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=dca.__path__[0] + "/.."
    )
    loaded = set(done.stdout.split())
    assert not loaded & {"distributed", "pandas", "zarr", "xarray", "dask.dataframe", "matplotlib"}


def test_few_rows_are_read_from_the_smallest_chunks(tmp_path):
    """Blocks join small zarr chunks for the passes over all rows; a sample must not pay for that."""
    array = zarr.create_array(tmp_path / "x.zarr", shape=(1000, 3), chunks=(10, 3), dtype="f4")
    array[-1] = 1.0
    rows = as_rows(array)
    assert rows.n_blocks < 100
    assert rows.by_chunk().offsets.tolist() == list(range(0, 1001, 10))
    assert rows.by_chunk().n_rows == 1000
    dense = as_rows(np.ones((7, 2)))
    assert dense.by_chunk() is dense


def test_stores_are_data(tmp_path):
    X = np.random.default_rng(0).random((60, 6))
    memory, local, zipped = zarr.storage.MemoryStore(), zarr.storage.LocalStore(tmp_path / "x.zarr"), tmp_path / "x.zip"
    with zarr.storage.ZipStore(zipped, mode="w") as store:
        for target in (memory, local, store):
            zarr.create_array(target, data=X, chunks=(20, 6))
    expected = bits(dca.NMF(3).fit(X))
    mapper = fsspec.get_mapper(str(tmp_path / "x.zarr"))
    for given in (memory, local, mapper, zarr.storage.ZipStore(zipped, mode="r"), zipped, str(zipped)):
        assert bits(dca.NMF(3).fit(given)) == expected


def test_delayed_objects_and_futures_have_no_shape():

    for given in (dask.delayed(np.eye(3)), dask.delayed(np.eye)(3)):
        with pytest.raises(InvalidInputError, match=r"has no known shape; pass dask\.array\.from_delayed"):
            dca.NMF(2).fit(given)


def test_data_of_another_client_or_a_closed_one():
    from distributed import Client, LocalCluster

    options = {"n_workers": 1, "threads_per_worker": 1, "processes": False, "dashboard_address": ":0"}
    X = np.random.default_rng(0).random((60, 6))
    with LocalCluster(**options) as cluster, LocalCluster(**options) as other:
        with Client(cluster) as client:
            kept = client.persist(da.from_array(X, chunks=(20, 6)))
            assert bits(dca.NMF(3).fit(kept)) == bits(dca.NMF(3).fit(X))
            with pytest.raises(InvalidInputError, match="a Future has no known shape"):
                dca.NMF(3).fit(client.scatter(X))
            with Client(cluster):  # a second client of the same cluster
                assert bits(dca.NMF(3).fit(kept)) == bits(dca.NMF(3).fit(X))
            with Client(other), pytest.raises(InvalidInputError, match=r"persisted on the cluster of .*, and another"):
                dca.NMF(3).fit(kept)
            with dask.config.set(scheduler="sync"):
                with pytest.raises(InvalidInputError, match="another scheduler computes; compute there: with client"):
                    dca.NMF(3).fit(kept)
                with client.as_current():
                    assert bits(dca.NMF(3).fit(kept)) == bits(dca.NMF(3).fit(X))
        for function in (dca.NMF(3).fit, dca.NMF(3).fit(X).transform):
            with pytest.raises(InvalidInputError, match="persisted by a Dask client that is closed"):
                function(kept)


def test_a_coroutine_of_an_asynchronous_client_is_told_to_use_a_thread():
    from distributed import Client

    N, _ = planted(60, 6, 3)
    X = da.from_array(N, chunks=(20, 6))

    async def fits():
        async with Client(asynchronous=True, processes=False, n_workers=1, dashboard_address=":0"):
            with pytest.raises(ClusterError, match=r"asynchronous.*await asyncio\.to_thread\(model\.fit, X\)"):
                dca.NMF(3).fit(X)
            return await asyncio.to_thread(dca.NMF(3).fit, X)

    assert bits(asyncio.run(fits())) == bits(dca.NMF(3).fit(N))


class Compressed:
    """A matrix as the package sparse keeps one: it refuses to be made dense."""

    def __init__(self, values):
        self.values = np.asarray(values)
        self.shape, self.dtype, self.ndim = self.values.shape, self.values.dtype, 2

    def __array__(self, *args, **kwargs):
        msg = "Cannot convert a sparse array to dense automatically"
        raise RuntimeError(msg)

    def to_scipy_sparse(self):
        return sparse.coo_array(self.values)


@pytest.mark.parametrize("chunked", [False, True])
def test_arrays_of_the_package_sparse_are_sparse_rows(chunked):
    X, _ = planted(60, 5, 3)
    given = da.from_array(X, chunks=(20, 5)).map_blocks(Compressed, dtype=X.dtype) if chunked else Compressed(X)
    assert bits(dca.find_anchors(given, 3)) == bits(dca.find_anchors(sparse.csr_matrix(X), 3))
