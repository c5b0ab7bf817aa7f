"""Sparse zarr groups: the layout that anndata writes, blocks read through indptr, nothing dense."""

import pickle

import dask.array as da
import numpy as np
import pytest
import zarr
from dask.sizeof import sizeof
from scipy import sparse

import dask_dca as dca
from dask_dca.engine import rows as engine_rows
from dask_dca.engine.passes import Run
from dask_dca.engine.rows import as_rows
from dask_dca.engine.sampling import fetch_rows
from dask_dca.engine.stores import CsrGroup
from dask_dca.engine.tiles import counts_of_block
from dask_dca.errors import InvalidInputError
from tests.conftest import bits, planted, raise_if_dask_computes

X = sparse.csr_array(np.where(np.random.default_rng(1).random((300, 20)) < 0.3, planted(300, 20, 4)[0], 0.0))


def write(group, matrix, chunk=100, **attributes):
    """The layout of anndata's sparse datasets."""
    kind = "csr_matrix" if matrix.format == "csr" else "csc_matrix"
    group.attrs.update({"encoding-type": kind, "encoding-version": "0.1.0", "shape": list(matrix.shape)} | attributes)
    for name in ("data", "indices", "indptr"):
        group.create_array(name, data=getattr(matrix, name), chunks=(chunk,))
    return group


def store(folder, matrix=X, names=None, zarr_format=3):
    root = zarr.open_group(folder / "cells.zarr", mode="w", zarr_format=zarr_format)
    root.attrs["encoding-type"] = "anndata"
    write(root.create_group("X"), matrix)
    root.create_group("obsm").create_array("X_pca", data=np.ones((matrix.shape[0], 2)))
    if names is not None:
        var = root.create_group("var")
        var.attrs["_index"] = "gene"
        var.create_array("gene", shape=(len(names),), dtype=str)[:] = np.array(names, dtype=object)
    return folder / "cells.zarr"


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("form", [str, lambda path: zarr.open_group(path, mode="r"), lambda path: str(path) + "/X"])
def test_a_store_of_anndata_is_read_by_row_ranges(tmp_path, form, zarr_format):
    path = store(tmp_path, zarr_format=zarr_format)
    with raise_if_dask_computes():
        rows = as_rows(form(path))
    assert (rows.n_rows, rows.n_features, rows.dtype) == (300, 20, np.float64)
    assert rows.n_blocks >= 16
    np.testing.assert_array_equal(fetch_rows(rows, None, Run()), X.toarray())
    np.testing.assert_array_equal(fetch_rows(rows, np.array([299, 4]), Run()), X[[299, 4]].toarray())


def test_names_layers_and_other_members(tmp_path):
    path = store(tmp_path, names=[f"gene {j}" for j in range(20)])
    write(zarr.open_group(path, mode="a").create_group("layers/raw"), X * 2.0)
    assert as_rows(path).feature_names[3] == "gene 3"
    assert as_rows(path, array="layers/raw").feature_names[19] == "gene 19"
    doubled = fetch_rows(as_rows(path, array="layers/raw"), None, Run())
    np.testing.assert_array_equal(doubled, 2 * X.toarray())
    assert as_rows(path, array="obsm/X_pca").n_features == 2
    with pytest.raises(InvalidInputError, match=r"no array 'b' in .*it holds X, layers/raw, obsm/X_pca, var/gene"):
        as_rows(path, array="b")


@pytest.mark.parametrize("rows_a_chunk", [None, 1])
def test_models_see_the_same_in_a_sparse_store(tmp_path, monkeypatch, rows_a_chunk):
    path = store(tmp_path)
    if rows_a_chunk:
        monkeypatch.setattr(engine_rows, "_MIN_BLOCKS", 300)
    whole, model = dca.NMF(4).fit(X), dca.NMF(4).fit(str(path))
    assert bits(model) == bits(whole)
    with raise_if_dask_computes():
        lazy = model.transform(str(path))
    np.testing.assert_allclose(lazy.compute(), whole.transform(X), atol=1e-6)
    assert model.reconstruction_err(str(path)) == pytest.approx(whole.reconstruction_err(X))


def test_empty_rows_and_blocks(tmp_path):
    sparse_rows = sparse.csr_array((50, 6))
    group = CsrGroup(
        write(
            zarr.open_group(tmp_path / "e.zarr", mode="w"),
            sparse_rows + sparse.csr_array((np.ones(2), ([3, 49], [0, 5])), shape=(50, 6)),
        )
    )
    assert group[10:10].shape == (0, 6)
    assert group[0:3].nnz == 0
    assert group[-2:].toarray()[1, 5] == 1
    assert group[0:50:7].shape == (8, 6)
    assert group[0:4, 0:2].toarray()[3, 0] == 1
    copy = pickle.loads(pickle.dumps(group))
    assert copy.shape == group.shape
    assert len(pickle.dumps(group)) < 20_000


def test_blocks_are_as_large_as_their_float64_values(tmp_path, monkeypatch):
    """Counts of one byte are read to eight; blocks by the size on the disk would take three times the memory."""
    path = store(tmp_path, (X > 0).astype(np.uint8))
    entry_bytes = 8 + zarr.open_group(path)["X/indices"].dtype.itemsize
    monkeypatch.setattr(engine_rows, "_MIN_BLOCKS", 1)
    monkeypatch.setattr(engine_rows, "_BLOCK_BYTES", entry_bytes * X.nnz // 4)
    assert len(as_rows(str(path)).offsets) - 1 in (4, 5)


def test_damaged_stores_are_refused(tmp_path):
    with pytest.raises(InvalidInputError, match=r"by columns .csc_matrix.*adata.X.tocsr"):
        as_rows(store(tmp_path, X.tocsc()))
    group = write(zarr.open_group(tmp_path / "a.zarr", mode="w"), X, shape=[299, 20])
    with pytest.raises(InvalidInputError, match=r"damaged: its shape is \(299, 20\), its indptr has 301"):
        as_rows(group)
    group = write(zarr.open_group(tmp_path / "b.zarr", mode="w"), X)
    group["indices"][70] = 20
    with pytest.raises(InvalidInputError, match=r"rows \d+ to \d+ of .*b.zarr.*damaged"):
        fetch_rows(as_rows(group), None, Run())


def test_dask_knows_the_size_of_sparse_arrays():
    big = sparse.random_array((1000, 1000), density=0.1, format="csr", rng=0)
    assert sizeof(big) >= big.data.nbytes + big.indices.nbytes
    assert sizeof(sparse.csr_matrix(big)) >= big.data.nbytes


def test_blocks_of_counts_are_canonical_and_the_input_is_kept():
    raw = sparse.csr_array((np.array([1, 0, 2, 3]), np.array([2, 1, 0, 2]), np.array([0, 3, 4])), shape=(2, 3))
    found = counts_of_block([raw, np.array([[0, 1], [5, 0]], dtype=np.uint8)], 0)
    np.testing.assert_array_equal(found.toarray(), [[2, 0, 1, 0, 1], [0, 0, 3, 5, 0]])
    assert found.has_canonical_format
    assert raw.nnz == 4


@pytest.mark.filterwarnings("ignore::dask_dca.errors.FewerAnchorsWarning")
def test_nothing_is_densified(monkeypatch):
    """A block of documents x words must never become dense (scikit-learn #13138)."""
    wide = sparse.random_array((400, 5000), density=0.01, format="csr", rng=0)
    wide.data = np.ceil(wide.data * 3)
    blocks = (
        da.from_array(wide.toarray(), chunks=(100, -1))
        .map_blocks(sparse.csr_array, dtype=float, meta=sparse.csr_array((0, 0)))
        .persist(scheduler="synchronous")
    )

    def refuse(self, *args, **kwargs):
        raise AssertionError(f"a sparse array of shape {self.shape} was made dense")

    for kind in (sparse.csr_array, sparse.csc_array, sparse.coo_array):
        monkeypatch.setattr(kind, "toarray", lambda self, *a, **k: refuse(self) if max(self.shape) > 1000 else None)
    model = dca.LatentDirichletAllocation(3, max_iter=1).fit(blocks)
    model.transform(blocks).compute(scheduler="synchronous")
    assert np.isfinite(model.score(blocks))
