"""A fit that was killed goes on: every pass over the data that was finished is read again, with the same bits."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import dask.array as da
import pytest
import zarr

import dask_dca as dca
from dask_dca.engine import passes
from dask_dca.errors import CheckpointError, InvalidParameterError
from tests.contract.entries import ENTRIES, example, fitted, fitted_bytes

CONES = example("NMF")


def blocks(name):
    return da.from_array(example(name), chunks=(40, -1))


def kept(name, place):
    return ENTRIES[name].make(checkpoint=str(place / "kept"))


def test_a_killed_fit_goes_on_with_the_same_bits(name, tmp_path, monkeypatch):
    X, model, names, real = blocks(name), kept(name, tmp_path), [], passes._run_graph

    def counted(rows, job, state, run, blocks):
        if run.checkpoint is not None and rows.source is run.checkpoint.source:
            names.append(job.name)
        return real(rows, job, state, run, blocks)

    monkeypatch.setattr(passes, "_run_graph", counted)
    assert fitted_bytes(model.fit(X)) == fitted_bytes(fitted(name))
    total = len(names)
    assert total >= 1
    for path in sorted((tmp_path / "kept").glob("*.npz"), key=lambda path: path.stat().st_mtime)[total // 2 :]:
        path.unlink()  # as if killed half way
    names.clear()
    assert fitted_bytes(model.fit(X)) == fitted_bytes(fitted(name))
    assert names[0] == "verify"  # the data are read once, and compared
    assert len(names) == 1 + total - total // 2
    names.clear()
    assert model.fit(X).n_passes_ == fitted(name).n_passes_
    assert names == ["verify"]


def test_rows_of_a_chunk_that_was_mended_are_named_and_the_old_fit_not_given_back(name, tmp_path):
    X = example(name)
    stored = zarr.create_array(tmp_path / "x.zarr", data=X, chunks=(20, X.shape[1]))
    (tmp_path / "x.zarr" / "c" / "3" / "0").unlink()  # zarr reads zeros; few rows spread over the data are not there
    model = kept(name, tmp_path).fit(str(tmp_path / "x.zarr"))
    stored[60:80] = X[60:80]
    with pytest.raises(CheckpointError, match=f"in rows 60 to 79 of {len(X)}"):
        model.fit(str(tmp_path / "x.zarr"))


def test_what_was_kept_is_for_the_same_data_and_parameters_alone(name, tmp_path):
    X, model = blocks(name), kept(name, tmp_path)
    model.fit(X)
    assert fitted_bytes(model.set_params(retries=1).fit(X.rechunk((33, -1)))) == fitted_bytes(fitted(name))
    with pytest.raises(CheckpointError, match="data"):
        model.fit(X[::-1])
    with pytest.raises(CheckpointError, match=r"parameters .*random_state"):
        model.set_params(random_state=5).fit(X)
    with pytest.raises(InvalidParameterError, match="integer random_state"):
        model.set_params(random_state=None).fit(X)
    with pytest.raises(InvalidParameterError, match="path or URL"):
        model.set_params(random_state=0, checkpoint=7).fit(X)


def test_fits_in_threads_share_a_new_checkpoint(tmp_path):
    X = da.from_array(CONES, chunks=(40, -1))
    with ThreadPoolExecutor(4) as pool:
        models = list(pool.map(lambda _: dca.NMF(3, checkpoint=str(tmp_path / "kept")).fit(X), range(4)))
    for model in models:
        assert fitted_bytes(model) == fitted_bytes(fitted("NMF"))
    assert sorted({path.suffix for path in (tmp_path / "kept").iterdir()}) == [".json", ".npz"]


TWO_PROCESSES = """
import os, sys, warnings
import dask, numpy as np, dask.array as da
import dask_dca as dca

warnings.simplefilter("error")
dask.config.set(scheduler="synchronous")
X = np.random.default_rng(0).dirichlet(np.ones(4), 600) @ np.random.default_rng(1).random((4, 20))
expected = dca.NMF(3).fit(X).components_
blocks = da.from_array(X, chunks=(60, -1))
child = os.fork()
for place in ("one", "two", "three"):
    found = dca.NMF(3, checkpoint=place).fit(blocks).components_
    assert (found == expected).all()
if not child:
    os._exit(0)
sys.exit(os.waitpid(child, 0)[1])
"""


def test_fits_in_processes_share_a_new_checkpoint(tmp_path):
    subprocess.run([sys.executable, "-c", TWO_PROCESSES], cwd=tmp_path, timeout=120, check=True)
    for name in ("one", "two", "three"):
        assert sorted({path.suffix for path in (tmp_path / name).iterdir()}) == [".json", ".npz"]
