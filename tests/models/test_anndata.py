"""Stores that anndata itself wrote are read, and what the example writes is a store that anndata reads."""

import runpy
import warnings

import numpy as np
import pytest
import zarr
from scipy import sparse

import dask_dca as dca
from tests.conftest import ROOT, planted

EXAMPLE = ROOT / "examples" / "cells_of_an_anndata_store.py"


@pytest.fixture(scope="module")
def anndata():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its own imports
        return pytest.importorskip("anndata")


def counts():
    rng = np.random.default_rng(0)
    X, _ = planted(240, 12, 3)
    return sparse.csr_matrix(rng.poisson(8 * X).astype(np.float32))


@pytest.mark.parametrize("form", ["sparse", "dense"])
@pytest.mark.parametrize("zarr_format", [2, 3])
def test_what_anndata_writes_is_read_with_its_names(anndata, tmp_path, form, zarr_format):
    X = counts() if form == "sparse" else counts().toarray()
    cells = anndata.AnnData(X)
    cells.var_names = [f"gene {j}" for j in range(12)]
    cells.layers["doubled"] = X * 2
    path = tmp_path / "cells.zarr"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # which format of zarr will be its default
        with anndata.settings.override(zarr_write_format=zarr_format):
            cells.write_zarr(path)
    model = dca.LatentDirichletAllocation(3, max_iter=1).fit(str(path))
    plain = dca.LatentDirichletAllocation(3, max_iter=1).fit(counts())
    np.testing.assert_array_equal(model.components_, plain.components_)
    if form == "sparse":
        assert model.feature_names_in_.tolist() == list(cells.var_names)
        assert model.to_xarray().word.values.tolist() == list(cells.var_names)
        assert set(model.get_anchor_words()) <= set(cells.var_names)


def test_the_store_of_the_example_is_one_of_anndata(anndata, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    example = runpy.run_path(str(EXAMPLE))
    X, names, _ = example["made_up_cells"](300)
    example["write_store"]("cells.zarr", X, names)
    store = zarr.open_group("cells.zarr", mode="a")
    target = store.require_group("obsm").create_array("X_programmes", data=np.ones((300, 4)))
    target.attrs.update({"encoding-type": "array", "encoding-version": "0.2.0"})
    store["obsm"].attrs.update({"encoding-type": "dict", "encoding-version": "0.1.0"})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cells = anndata.read_zarr("cells.zarr")
    assert cells.shape == X.shape
    assert cells.var_names.tolist() == names
    assert cells.obs_names[7] == "cell7"
    assert (sparse.csr_matrix(X) != cells.X).nnz == 0
    assert cells.obsm["X_programmes"].shape == (300, 4)
