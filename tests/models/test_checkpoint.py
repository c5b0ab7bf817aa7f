"""A fit that was killed goes on: every pass over the data that was finished is read again, with the same bits."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import dask.array as da
import numpy as np
import pytest
import zarr
from scipy import sparse

import dask_dca as dca
from dask_dca.engine import passes
from dask_dca.errors import CheckpointError, InvalidParameterError

rng = np.random.default_rng(0)
CENTRES = 4 * rng.standard_normal((3, 12))
CLOUDS = CENTRES[np.repeat(rng.integers(3, size=60), 10)] + rng.standard_normal((600, 12))
COUNTS = np.array(
    [rng.multinomial(60, p) for p in rng.dirichlet(np.full(3, 0.2), 300) @ rng.dirichlet(np.full(40, 0.1), 3)]
)
CONES = np.vstack([rng.dirichlet(np.ones(4), 200) @ rays for rays in rng.random((3, 4, 20))])
DOCUMENTS = da.from_array(COUNTS.astype(float), chunks=(80, -1)).map_blocks(sparse.csr_array)
MODELS = {
    "NMF": (dca.NMF(3), da.from_array(CONES, chunks=(130, -1))),
    "GaussianMixture": (dca.GaussianMixture(3, max_iter=2), da.from_array(CLOUDS, chunks=(170, -1))),
    "GaussianHMM": (dca.GaussianHMM(3, max_iter=2), da.from_array(CLOUDS, chunks=(170, -1))),
    "KalmanFilter": (dca.KalmanFilter(3, max_iter=1), da.from_array(CLOUDS, chunks=(170, -1))),
    "LatentDirichletAllocation": (dca.LatentDirichletAllocation(3, max_iter=2), DOCUMENTS),
    "SubspaceClustering": (dca.SubspaceClustering(3), da.from_array(CONES, chunks=(130, -1))),
}


def fitted(model: object) -> dict[str, object]:
    return {key: value for key, value in vars(model).items() if key.endswith("_")}


class Killed(BaseException):
    """As a signal ends a process."""


@pytest.mark.parametrize("name", MODELS)
def test_a_killed_fit_goes_on_with_the_same_bits(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, X = MODELS[name]
    expected = fitted(made.fit(X))
    model, names, real = type(made)(**made.get_params() | {"checkpoint": str(tmp_path / "kept")}), [], passes._run_graph

    def counted(rows, job, state, run, blocks):
        if run.checkpoint is not None and rows.source is run.checkpoint.source:
            names.append(job.name)
        return real(rows, job, state, run, blocks)

    monkeypatch.setattr(passes, "_run_graph", counted)
    model.fit(X)
    total = len(names)
    assert total >= 1
    for path in sorted((tmp_path / "kept").glob("*.npz"), key=lambda path: path.stat().st_mtime)[total // 2 :]:
        path.unlink()  # as if killed half way
    names.clear()
    found = fitted(model.fit(X))
    assert names[0] == "verify"  # the data are read once, and compared
    assert len(names) == 1 + total - total // 2
    for key, value in expected.items():
        np.testing.assert_array_equal(found[key], value, err_msg=key)
    names.clear()
    model.fit(X)
    assert names == ["verify"]


MATRICES = {"NMF": CONES, "LatentDirichletAllocation": COUNTS.astype(float), "SubspaceClustering": CONES}


@pytest.mark.parametrize("name", MODELS)
def test_rows_of_a_chunk_that_was_mended_are_named_and_the_old_fit_not_given_back(name: str, tmp_path: Path) -> None:
    X = MATRICES.get(name, CLOUDS)
    stored = zarr.create_array(tmp_path / "x.zarr", data=X, chunks=(20, X.shape[1]))
    (tmp_path / "x.zarr" / "c" / "3" / "0").unlink()  # zarr reads zeros; few rows spread over the data are not there
    model = type(MODELS[name][0])(**MODELS[name][0].get_params() | {"checkpoint": str(tmp_path / "kept")})
    model.fit(str(tmp_path / "x.zarr"))
    stored[60:80] = X[60:80]
    with pytest.raises(CheckpointError, match=f"in rows 60 to 79 of {len(X)}"):
        model.fit(str(tmp_path / "x.zarr"))


def test_fits_in_threads_share_a_new_checkpoint(tmp_path: Path) -> None:
    X = da.from_array(CONES, chunks=(130, -1))
    expected = fitted(dca.NMF(3).fit(X))
    with ThreadPoolExecutor(4) as pool:
        models = list(pool.map(lambda _: dca.NMF(3, checkpoint=str(tmp_path / "kept")).fit(X), range(4)))
    for model in models:
        for key, value in fitted(model).items():
            np.testing.assert_array_equal(expected[key], value, err_msg=key)
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


def test_fits_in_processes_share_a_new_checkpoint(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", TWO_PROCESSES], cwd=tmp_path, timeout=120, check=True)
    for name in ("one", "two", "three"):
        assert sorted({path.suffix for path in (tmp_path / name).iterdir()}) == [".json", ".npz"]


def test_other_data_or_parameters_are_refused(tmp_path: Path) -> None:
    X = da.from_array(CONES, chunks=(130, -1))
    place = str(tmp_path / "kept")
    dca.NMF(3, checkpoint=place).fit(X)
    dca.NMF(3, checkpoint=place, retries=1).fit(X.rechunk((90, -1)))  # cut otherwise, the same data
    with pytest.raises(CheckpointError, match=r"parameters .*n_components"):
        dca.NMF(4, checkpoint=place).fit(X)
    with pytest.raises(CheckpointError, match="data"):
        dca.NMF(3, checkpoint=place).fit(X + 1)
    with pytest.raises(CheckpointError, match=r"data .*dtype"):
        dca.NMF(3, checkpoint=place).fit(X.astype(np.float32))


def test_a_fit_that_draws_anew_cant_be_resumed(tmp_path: Path) -> None:
    X = da.from_array(CONES, chunks=(130, -1))
    with pytest.raises(InvalidParameterError, match="integer random_state"):
        dca.NMF(3, checkpoint=str(tmp_path / "kept"), random_state=None).fit(X)
    with pytest.raises(InvalidParameterError, match="path or URL"):
        dca.NMF(3, checkpoint=7).fit(X)
