"""What an error advises, done as it says: the fit works then."""

import re
import warnings

import anndata as ad
import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import xarray as xr
import zarr
from scipy import sparse

import dask_dca as dca
from dask_dca.errors import InvalidInputError, NotFiniteError, NotNumbersError
from tests.conftest import bits, planted

X, _ = planted(120, 6, 3)
CUBE = X.reshape(10, 12, 6)


def advised(fit, data, pattern):
    """The line of the message that the pattern finds, evaluated."""
    with pytest.raises(InvalidInputError) as raised:
        fit(data)
    found = re.search(pattern, str(raised.value))
    assert found, str(raised.value)
    return eval(found[1], {"X": data, "dask_dca": dca, "xr": xr, "dask": dask, "np": np})


def test_an_image_becomes_rows_of_pixels():
    found = advised(dca.NMF(3).fit, CUBE, r"pass (X\.reshape\(-1, 6\))")
    assert bits(dca.NMF(3).fit(found)) == bits(dca.NMF(3).fit(X))


def test_a_stored_image_becomes_rows_of_pixels():
    found = advised(
        dca.NMF(3).fit, zarr.create_array({}, data=CUBE), r"(dask\.array\.from_zarr\(X\)\.reshape\(-1, 6\))"
    )
    assert isinstance(found, da.Array)
    assert bits(dca.NMF(3).fit(found)) == bits(dca.NMF(3).fit(X))


def test_sequences_of_one_length_are_taken_as_they_are():
    sequences = np.random.default_rng(0).normal(size=(4, 50, 2))
    with pytest.raises(InvalidInputError, match=r"of 4 sequences of 50 frames pass lengths=\[50\] \* 4 too"):
        dca.NMF(2).fit(sequences)
    model = dca.GaussianHMM(2, max_iter=1).fit(sequences)
    flat = dca.GaussianHMM(2, max_iter=1).fit(sequences.reshape(-1, 2), lengths=[50] * 4)
    np.testing.assert_array_equal(model.means_, flat.means_)


def test_named_dimensions_are_those_of_a_cube():
    cube = xr.DataArray(CUBE, dims=("y", "x", "band"))
    found = advised(dca.NMF(3).fit, cube, r"pass (dask_dca\.Cube\(.*?\))")
    assert bits(dca.NMF(3).fit(found)) == bits(dca.NMF(3).fit(X))


@pytest.mark.parametrize(
    ("data", "pattern"),
    [(X - 0.5, r"X = (X\.clip\(0\))"), (sparse.csr_array(X - 0.5), r"or (X\.maximum\(0\)) of a sparse")],
)
def test_negative_entries_are_cut(data, pattern):
    dca.NMF(3).fit(advised(dca.NMF(3).fit, data, pattern))


def test_negative_counts_are_cut():
    counts = sparse.csr_array(np.random.default_rng(0).poisson(1.0, (60, 12)) - 1.0)
    lda = dca.LatentDirichletAllocation(2, max_iter=1)
    lda.fit(advised(lda.fit, counts, r"X = (X\.maximum\(0\))"))


@pytest.mark.parametrize("texts", [["a cat", "a dog"], np.array([["a", "b"]], dtype=object)])
def test_texts_are_counted_first(texts):
    with pytest.raises(InvalidInputError, match=r"texts such as .a.*CountVectorizer\(\)\.fit_transform"):
        dca.NMF(2).fit(texts)


def test_numbers_that_are_texts_become_numbers():
    found = np.asarray(X.astype(str), dtype=float)
    with pytest.raises(InvalidInputError, match=r"X = numpy\.asarray\(X, dtype=float\)"):
        dca.NMF(3).fit(X.astype(str))
    assert bits(dca.NMF(3).fit(found)) == bits(dca.NMF(3).fit(X))


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("column", ["x", pd.Timestamp("2024-01-01")])
def test_columns_that_are_no_numbers_are_left_out(chunked, column):
    frame = pd.DataFrame(X, columns=list("abcdef")).assign(kind=column)
    data = dd.from_pandas(frame, npartitions=2) if chunked else frame
    found = advised(dca.NMF(3).fit, data, r"columns 'kind' of X are no numbers.*pass (X\.select_dtypes\('number'\))")
    assert bits(dca.NMF(3).fit(found)) == bits(dca.NMF(3).fit(X))


@pytest.mark.parametrize("separator", [",", ";"])
def test_a_table_read_by_other_signs_is_read_again(tmp_path, separator):
    path = tmp_path / "x.csv"
    path.write_text("id;a;b\nA;1,5;n.a.\nB;2,5;3\nC;0;1\n")
    frame = pd.read_csv(path, sep=separator)
    with pytest.raises(NotNumbersError, match="no column of X is of numbers alone") as said:
        dca.NMF(1).fit(frame)
    again = eval(str(said.value).partition("for example ")[2], {"pandas": pd, "path": path})
    assert again.select_dtypes("number").columns.tolist() == ["a", "b"]


@pytest.mark.parametrize("chunked", [False, True])
def test_a_column_becomes_a_table(chunked):
    column = pd.Series(X[:, 0], name="a")
    data = dd.from_pandas(column, npartitions=2) if chunked else column
    found = advised(dca.GaussianMixture(1).fit, data, r"(X\.to_frame\(\)) for one feature")
    assert dca.GaussianMixture(1).fit(found).feature_names_in_.tolist() == ["a"]


@pytest.mark.parametrize("chunked", [False, True])
def test_the_column_of_a_missing_number_is_named(chunked):
    frame = pd.DataFrame(X.copy(), columns=["red", "green", "blue", "nir", "swir", "ndvi"])
    frame.loc[7, "nir"] = np.nan
    with pytest.raises(NotFiniteError, match=r"row 7, column 3 \('nir'\); drop"):
        dca.GaussianMixture(2, method="paper").fit(dd.from_pandas(frame, npartitions=3) if chunked else frame)


def test_cells_that_stay_in_a_file_or_in_layers_are_told_how_to_come_in(tmp_path):
    ad.AnnData(sparse.csr_matrix(X)).write_h5ad(tmp_path / "cells.h5ad")
    backed = ad.read_h5ad(tmp_path / "cells.h5ad", backed="r")
    found = advised(dca.NMF(3).fit, backed, r"pass (X\.to_memory\(\)), or")
    assert bits(dca.NMF(3).fit(found)) == bits(dca.NMF(3).fit(sparse.csr_matrix(X)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # which format of zarr will be its default
        backed.write_zarr(tmp_path / "cells.zarr")
    assert bits(dca.NMF(3).fit(str(tmp_path / "cells.zarr"))) == bits(dca.NMF(3).fit(found))
    layered = ad.AnnData(layers={"counts": X})
    assert advised(dca.NMF(3).fit, layered, r"(X\.layers\['counts'\])").shape == X.shape


def test_cells_of_anndata_are_rows():
    cells = ad.AnnData(sparse.csr_matrix(X), var=pd.DataFrame(index=[f"gene{j}" for j in range(6)]))
    model = dca.NMF(3).fit(cells)
    assert bits(model) == bits(dca.NMF(3).fit(sparse.csr_matrix(X)))
    assert model.feature_names_in_[2] == "gene2"
