"""A disk that is full: nothing half-written is left, and what was there before is there still."""

import contextlib
import json
import resource

import dask.array as da
import numpy as np
import pytest

import dask_dca as dca
from dask_dca.cli import jobs
from dask_dca.errors import CheckpointError, CheckpointWarning, ModelFileError
from dask_dca.store import load_model
from tests.conftest import planted

X, _ = planted(600, 40, 3)


@contextlib.contextmanager
def files_no_longer_than(size):
    """Files of this process can't grow beyond a size: as a full disk, except for the error's number."""
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, old[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)


def fitted(model):
    return {name: np.asarray(value).tobytes() for name, value in vars(model).items() if name.endswith("_")}


def test_a_fit_outlives_the_disk_of_its_checkpoint(tmp_path):
    data, place = da.from_array(X, chunks=(100, -1)), tmp_path / "kept"
    whole = fitted(dca.NMF(3).fit(X))
    dca.NMF(3, checkpoint=str(place)).fit(data)
    passes = sorted(place.glob("*.npz"), key=lambda path: path.stat().st_mtime_ns)
    for path in passes[1:]:
        path.unlink()
    first = passes[0].stat().st_mtime_ns
    with files_no_longer_than(1000), pytest.warns(CheckpointWarning, match="File too large"):
        assert fitted(dca.NMF(3, checkpoint=str(place)).fit(data)) == whole
    assert {path.name for path in place.iterdir()} == {"fit.json", passes[0].name}
    assert fitted(dca.NMF(3, checkpoint=str(place)).fit(data)) == whole
    assert passes[0].stat().st_mtime_ns == first
    assert len(list(place.glob("*.npz"))) == len(passes)


def test_a_checkpoint_that_cant_begin_says_so_and_leaves_nothing(tmp_path):
    data, place = da.from_array(X, chunks=(100, -1)), tmp_path / "kept"
    with files_no_longer_than(20), pytest.raises(CheckpointError, match=r"can.t be used: .*File too large"):
        dca.NMF(3, checkpoint=str(place)).fit(data)
    assert not list(place.iterdir())
    dca.NMF(3, checkpoint=str(place)).fit(data)
    assert json.loads((place / "fit.json").read_text())["model"] == "NMF"


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("size", [0, 500, 900])
def test_a_model_is_saved_whole_or_not_at_all(tmp_path, overwrite, size):
    model, place = dca.NMF(3).fit(X), tmp_path / "model.zarr"
    if overwrite:
        jobs.save_model(dca.NMF(2).fit(X), place)
    with files_no_longer_than(size), pytest.raises(ModelFileError, match="could not write"):
        jobs.save_model(model, place, overwrite=overwrite)
    assert [path.name for path in tmp_path.iterdir()] == (["model.zarr"] if overwrite else [])
    if overwrite:
        assert load_model(place).n_components_ == 2


def test_a_transform_is_written_whole_or_not_at_all(tmp_path):
    np.save(tmp_path / "x.npy", X)
    dca.NMF(3).fit(X).save(str(tmp_path / "model.zarr"))
    with files_no_longer_than(2000), pytest.raises(ModelFileError, match="could not write"):
        jobs.transform(str(tmp_path / "model.zarr"), str(tmp_path / "x.npy"), str(tmp_path / "out.zarr"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.zarr", "x.npy"]
