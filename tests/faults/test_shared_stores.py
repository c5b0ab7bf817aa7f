"""Stores that a process doesn't see as the client does: an error that says who and where, never zeros."""

import os
import shutil
import subprocess
import sys
import warnings

import dask
import numpy as np
import pytest
import zarr
from distributed import Client, LocalCluster
from scipy import sparse
from zarr.storage import LocalStore, MemoryStore, WrapperStore

import dask_dca as dca
from dask_dca.cli import jobs
from dask_dca.engine.passes import Run
from dask_dca.engine.rows import as_rows
from dask_dca.engine.sampling import fetch_rows
from dask_dca.engine.stores import Packed
from dask_dca.errors import InvalidInputError, MissingChunksWarning
from dask_dca.inputs import open_data
from tests.cluster.workers import MARKS
from tests.conftest import planted

pytestmark = MARKS
X = np.random.default_rng(0).poisson(3.0, (96, 6)) + 4.0 * np.eye(6)[np.arange(96) % 6]
MODELS = {
    "NMF": (lambda: dca.NMF(2), ("transform", "reconstruction_err")),
    "GaussianMixture": (lambda: dca.GaussianMixture(2, max_iter=1), ("predict", "predict_proba", "score")),
    "GaussianHMM": (lambda: dca.GaussianHMM(2, max_iter=1), ("predict", "predict_proba", "score")),
    "KalmanFilter": (lambda: dca.KalmanFilter(2, max_iter=1), ("predict", "loglikelihood")),
    "LatentDirichletAllocation": (lambda: dca.LatentDirichletAllocation(2, max_iter=1), ("transform", "score")),
    "SubspaceClustering": (lambda: dca.SubspaceClustering(2), ("predict",)),
}


def write_csr(place, values):
    rows = sparse.csr_array(values)
    group = zarr.create_group(place)
    group.attrs.update({"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": list(rows.shape)})
    for part in ("data", "indices", "indptr"):
        group.create_array(part, data=getattr(rows, part), chunks=(50,))


def write_group(place, values):
    group = zarr.create_group(place)
    group.create_array("deep/x", data=values, chunks=(16, 6))


KINDS = {
    "array": lambda place: zarr.create_array(place, data=X, chunks=(16, 6)),
    "features": lambda place: zarr.create_array(place, data=X, chunks=(16, 3)),
    "shards": lambda place: zarr.create_array(place, data=X, chunks=(8, 3), shards=(16, 6)),
    "format 2": lambda place: zarr.create_array(place, data=X, chunks=(16, 6), zarr_format=2),
    "group": lambda place: write_group(place, X),
    "csr": lambda place: write_csr(place, X),
}
ENTRIES = {
    "path": str,
    "object": lambda path: zarr.open(path, mode="r"),
    "writable object": lambda path: zarr.open(path, mode="r+"),
}


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory):
    """A client whose two worker processes work in another folder."""
    with (
        dask.config.set({"distributed.comm.timeouts.connect": "20s"}),
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0", silence_logs=50) as cluster,
        Client(cluster) as client,
    ):
        client.wait_for_workers(2)
        client.run(os.chdir, str(tmp_path_factory.mktemp("elsewhere")))
        yield client


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def quietly(function, *args):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=dca.errors.FewerAnchorsWarning)
        warnings.filterwarnings("ignore", message=".*(stand out from noise|did not converge)")
        return function(*args)


@pytest.fixture(scope="module")
def in_memory():
    return {name: quietly(make().fit, X) for name, (make, _) in MODELS.items()}


def numbers(model):
    return {
        name: np.asarray(value).tobytes()
        for name, value in vars(model).items()
        if not name.startswith("_") and isinstance(value, np.ndarray | float | np.floating)
    }


@pytest.mark.parametrize("name", MODELS)
def test_workers_in_another_folder_read_the_clients_relative_path(elsewhere, here, name, in_memory):
    KINDS["array"]("x.zarr")
    make, methods = MODELS[name]
    model = quietly(make().fit, "x.zarr")
    assert numbers(model) == numbers(in_memory[name])
    for method in methods:
        found = np.asarray(getattr(model, method)("x.zarr"))
        np.testing.assert_allclose(found, getattr(model, method)(X), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_store_is_found_from_another_folder(elsewhere, here, kind, entry):
    KINDS[kind]("x.zarr")
    np.testing.assert_array_equal(fetch_rows(as_rows(ENTRIES[entry]("x.zarr")), None, Run()), X)


@pytest.mark.parametrize("name", MODELS)
def test_workers_that_see_nothing_at_a_path_are_an_error_of_every_model(elsewhere, here, name, in_memory):
    KINDS["array"]("x.zarr")
    make, methods = MODELS[name]
    rows = as_rows("x.zarr")
    os.rename("x.zarr", "away.zarr")
    match = rf"the array is at file://{here}/x\.zarr, but worker tcp://[\d.:]+ finds no array there .*all workers share"
    for call in (make().fit, *(getattr(in_memory[name], method) for method in methods)):
        with pytest.raises(InvalidInputError, match=match) as caught:
            np.asarray(call(rows))
        assert len(str(caught.value).splitlines()[0]) < 400


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_store_that_is_not_there_is_an_error(here, kind):
    KINDS[kind]("x.zarr")
    rows = as_rows("x.zarr")
    os.rename("x.zarr", "away.zarr")
    with (
        dask.config.set(scheduler="sync"),
        pytest.raises(InvalidInputError, match=r"but this process on \S+ finds no array there"),
    ):
        fetch_rows(rows, None, Run())


def other_shape(place):
    zarr.create_array(place, data=X[:50], chunks=(16, 6))


def other_dtype(place):
    zarr.create_array(place, data=X.astype("f4"), chunks=(16, 6))


def without_chunks(place):
    KINDS["array"](place)
    shutil.rmtree(place / "c")


@pytest.mark.parametrize(
    ("other", "match"),
    [
        (other_shape, r"finds another array there \(its shape is \[50, 6\], not \[96, 6\]\)"),
        (other_dtype, r"finds another array there \(its data_type is 'float32', not 'float64'\)"),
        (without_chunks, r"finds no chunk c/0/0 there"),
    ],
)
def test_another_array_at_the_same_path_is_an_error(elsewhere, here, other, match):
    """An absolute path that is another folder of each machine."""
    KINDS["array"](here / "x.zarr")
    rows = as_rows(str(here / "x.zarr"))
    shutil.rmtree("x.zarr")
    other(here / "x.zarr")
    with pytest.raises(InvalidInputError, match=match):
        quietly(dca.GaussianMixture(2).fit, rows)


def test_attributes_may_change_while_an_array_is_read(here):
    KINDS["array"]("x.zarr")
    rows = as_rows("x.zarr")
    zarr.open_array("x.zarr", mode="r+").attrs["note"] = "by somebody else"
    np.testing.assert_array_equal(fetch_rows(rows, None, Run()), X)


@pytest.mark.parametrize("kind", ["array", "features", "shards", "format 2", "csr"])
@pytest.mark.parametrize("name", ["NMF", "GaussianHMM"])
def test_a_store_that_goes_away_before_a_lazy_result_is_computed_is_an_error(here, kind, name, in_memory):
    KINDS[kind]("x.zarr")
    model = in_memory[name]
    result = getattr(model, MODELS[name][1][0])("x.zarr")
    with dask.config.set(scheduler="sync"):
        before = np.asarray(result.compute())
        os.rename("x.zarr", "away.zarr")
        with pytest.raises(InvalidInputError, match="finds no array there"):
            result.compute()  # though this process had found it
        os.rename("away.zarr", "x.zarr")
        np.testing.assert_array_equal(result.compute(), before)


def test_a_store_that_goes_away_in_the_middle_of_a_block_is_an_error(here):
    """The metadata may be the last to go: rows of zeros in one block would not be noticed."""
    zarr.create_array("x.zarr", data=X, chunks=(4, 6))
    rows = as_rows(zarr.open_array(Vanishing(LocalStore(here / "x.zarr"), here / "x.zarr"), mode="r"))
    with dask.config.set(scheduler="sync"), pytest.raises(InvalidInputError, match="finds no array there"):
        fetch_rows(rows, None, Run())


class Vanishing(WrapperStore):
    """A store that goes away after some of its chunks were read."""

    def __init__(self, store, place):
        super().__init__(store)
        self.place = place

    def with_read_only(self, read_only=False):
        return Vanishing(self._store.with_read_only(read_only), self.place)

    async def get(self, key, prototype, byte_range=None):
        if key.endswith("c/10/0") and self.place.exists():
            shutil.rmtree(self.place)
        return await super().get(key, prototype, byte_range)


@pytest.mark.skipif(sys.platform != "linux", reason="mount namespaces are Linux's")
def test_a_worker_on_a_machine_without_the_path_is_an_error(here):
    """A process for which another folder is mounted there, as on another machine."""
    (here / "data").mkdir()
    KINDS["array"](here / "data" / "x.zarr")
    (here / "empty").mkdir()
    program = (
        "import pickle, sys\n"
        "rows = pickle.load(sys.stdin.buffer)\n"
        "try:\n    print(rows.source[:16].sum())\n"
        "except ValueError as error:\n    print(error)\n"
    )
    command = f"mount --bind {here}/empty {here}/data && exec {sys.executable} -c '{program}'"
    import cloudpickle

    rows = cloudpickle.dumps(as_rows(str(here / "data" / "x.zarr")))
    done = subprocess.run(["unshare", "-rm", "sh", "-c", command], input=rows, capture_output=True, check=False)
    if b"unshare" in done.stderr or b"mount" in done.stderr:
        pytest.skip(f"no mount namespaces here: {done.stderr.decode()[:100]}")
    assert "finds no array there (zarr.json is missing); pass a path or URL that all workers share" in (
        done.stdout.decode()
    ), done.stderr.decode()


@pytest.mark.parametrize("kind", ["array", "shards", "format 2", "csr"])
def test_an_array_of_which_no_chunk_was_written_is_told(here, kind):
    match = r"no chunk of file://\S+x\.zarr\S* was ever written: all its entries are the fill value 0"
    KINDS[kind]("full.zarr")
    KINDS[kind]("x.zarr")
    place = "x.zarr/data" if kind == "csr" else "x.zarr"
    for chunk in os.listdir(place):
        if chunk not in ("zarr.json", ".zarray", ".zattrs"):
            (shutil.rmtree if os.path.isdir(f"{place}/{chunk}") else os.remove)(f"{place}/{chunk}")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        as_rows("full.zarr")
    with pytest.warns(MissingChunksWarning, match=match) as caught:
        as_rows("x.zarr")
    assert [warning.filename for warning in caught] == [__file__]
    zeros = np.zeros((40, 3))
    zarr.create_array("zeros.zarr", data=zeros, chunks=(10, 3))  # zarr writes no chunk of zeros
    with pytest.warns(MissingChunksWarning, match="check that the copy of the store is complete"):
        np.testing.assert_array_equal(fetch_rows(as_rows("zeros.zarr"), None, Run()), zeros)


@pytest.mark.parametrize("where", [0, 17, 500, 999])
@pytest.mark.parametrize("shards", [None, (10, 4)])
def test_counts_of_which_most_blocks_are_zero_are_not_told(here, where, shards):
    counts = np.zeros((1000, 4))
    counts[where, 1] = 5.0
    zarr.create_array("x.zarr", data=counts, chunks=(2, 4), shards=shards)
    np.testing.assert_array_equal(fetch_rows(as_rows("x.zarr"), None, Run()), counts)


def test_a_chunk_of_any_place_in_a_dense_array_is_found_without_listing(here, monkeypatch):
    KINDS["array"]("x.zarr")
    monkeypatch.setattr(LocalStore, "list_prefix", None)
    monkeypatch.setattr(LocalStore, "list_dir", None)
    as_rows("x.zarr")


def test_a_read_of_an_array_that_was_moved_with_its_folder_is_an_error_at_once(here):
    (here / "other").mkdir()
    KINDS["array"]("x.zarr")
    array = zarr.open_array("x.zarr", mode="r")
    os.chdir("other")
    with pytest.raises(InvalidInputError, match=r"can't be read as a zarr array"):
        as_rows(array)


def test_stores_in_memory_are_read_as_ever(elsewhere):
    array = zarr.create_array(MemoryStore(), data=X, chunks=(16, 6))
    np.testing.assert_array_equal(fetch_rows(as_rows(array), None, Run()), X)


# --- results, and files that are no stores ---------------------------------------------------------------------------


def test_a_result_is_written_where_the_client_reads_it(elsewhere, here, in_memory):
    KINDS["array"]("x.zarr")
    in_memory["NMF"].save("model.zarr")
    jobs.transform("model.zarr", "x.zarr", "out.zarr")
    np.testing.assert_allclose(zarr.open_array("out.zarr", mode="r")[:], in_memory["NMF"].transform(X))


def test_a_result_is_not_written_to_another_machines_disk(here):
    """Its chunks would be missing where it is read."""
    from dask_dca.engine.shared_stores import shared_array

    target = shared_array(zarr.create_array("out.zarr", shape=(4, 2), chunks=(2, 2), dtype="f8"), complain=False)
    os.rename("out.zarr", "away.zarr")
    with pytest.raises(InvalidInputError, match="finds no array there"):
        target[:2] = 1.0
    assert not os.path.exists("out.zarr")


def test_a_numpy_file_that_a_worker_does_not_see_is_an_error(elsewhere, here):
    np.save("x.npy", X)
    given = open_data("x.npy").matrix
    np.testing.assert_array_equal(given.compute(), X)
    os.rename("x.npy", "away.npy")
    with pytest.raises(InvalidInputError, match=r"x\.npy, but worker tcp://\S+ finds no file there; .*all workers"):
        given.compute()
    np.save("x.npy", X[:50])
    with pytest.raises(InvalidInputError, match=r"finds an array of shape \(50, 6\) and dtype float64 there"):
        given.compute()


# --- packed values ---------------------------------------------------------------------------------------------------

PACKED = {
    "scale, offset, fill": (("i2",), {"scale_factor": 0.01, "add_offset": 5.0, "_FillValue": -999}),
    "scale": (("i4",), {"scale_factor": 0.01}),
    "fill of floats": (("f4", "f8"), {"_FillValue": -999.0}),
    "two names of missing": (("f8",), {"_FillValue": -5.0, "missing_value": -5.0}),
    "unsigned": (("i1",), {"scale_factor": 0.05, "_Unsigned": "true", "_FillValue": -1}),
}


def write_packed(folder, dtype, encoding, version):
    xr = pytest.importorskip("xarray")
    values, _ = planted(40, 4, 2)
    if "_FillValue" in encoding:
        values[7, 2] = np.nan
    data = xr.Dataset({"x": (("row", "band"), values)})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of xarray's own
        data.to_zarr(folder, encoding={"x": {"dtype": dtype, "chunks": (10, 4)} | encoding}, zarr_format=version)
        return xr.open_zarr(folder)["x"]


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("name", PACKED)
def test_packed_values_are_decoded_as_xarray_does(here, name, version):
    dtypes, encoding = PACKED[name]
    for dtype in dtypes:
        expected = write_packed(f"{dtype}.zarr", dtype, encoding, version)
        for given in (f"{dtype}.zarr", f"{dtype}.zarr/x", zarr.open_group(f"{dtype}.zarr", mode="r")):
            rows = as_rows(given)
            assert isinstance(rows.source, Packed)
            assert rows.dtype == expected.dtype
            for block in (slice(0, 10), slice(5, 23)):
                np.testing.assert_array_equal(rows.source[block], expected[block].values)


def test_fits_and_results_are_of_the_decoded_values(here):
    expected = write_packed("x.zarr", "i2", {"scale_factor": 0.001, "add_offset": 0.5}, 3)
    model = dca.NMF(2).fit("x.zarr")
    assert numbers(model) == numbers(dca.NMF(2).fit(expected.values))
    np.testing.assert_allclose(model.transform("x.zarr").compute(), model.transform(expected.values))


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("dtype", ["f4", "f8", "i4"])
def test_values_that_are_not_packed_are_read_by_zarr_alone(here, monkeypatch, dtype, version):
    """Xarray writes NaN as the missing value of all floats, which it is anyway."""
    write_packed("x.zarr", dtype, {}, version)
    monkeypatch.setitem(sys.modules, "xarray", None)
    assert isinstance(as_rows("x.zarr").source, zarr.Array)
    zarr.create_array("plain.zarr", data=X, chunks=(16, 6), zarr_format=version)  # zeros are its fill value
    assert isinstance(as_rows("plain.zarr").source, zarr.Array)


def test_packed_values_are_refused_where_nothing_decodes_them(here, monkeypatch):
    write_packed("x.zarr", "i2", {"scale_factor": 0.001, "add_offset": 0.5}, 3)
    monkeypatch.setitem(sys.modules, "xarray", None)
    with pytest.raises(InvalidInputError, match=r"packed values \(scale_factor 0.001, add_offset 0.5\).*pip install"):
        dca.NMF(2).fit("x.zarr")
