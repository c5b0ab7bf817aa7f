"""Sequences as lists of whatever people have: the same as their frames one after the other, with lengths."""

import re
from functools import cache

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
from dask_dca.errors import DCAError, SequenceWarning

ad = pytest.importorskip("anndata")  # not of the lowest versions

RNG = np.random.default_rng(0)
X = np.rint(5 * np.abs(RNG.standard_normal((60, 4)))) + np.repeat([[9.0, 0, 0, 1], [0, 9, 1, 0]], 30, axis=0)
TABLE = pd.DataFrame(X, columns=list("abcd"))
HOLES = np.where(X == 5.0, np.nan, X)
MODELS = {"hmm": lambda: dca.GaussianHMM(2, max_iter=1), "kalman": lambda: dca.KalmanFilter(1, max_iter=1)}


def parts(make, data=X):
    return lambda: [make(data[:20]), make(data[20:])]


WHOLE = {
    "arrays": parts(np.array),
    "sparse": parts(sparse.csr_array),
    "zarr": parts(lambda part: zarr.create_array({}, data=part)),
    "Dask arrays": parts(lambda part: da.from_array(part, chunks=(7, 4))),
    "Dask and NumPy": lambda: [da.from_array(X[:20]), X[20:]],
    "DataFrames": parts(pd.DataFrame, TABLE),
    "Dask DataFrames": parts(lambda part: dd.from_pandas(part, npartitions=2), TABLE),
    "DataArrays": parts(lambda part: xr.DataArray(part, dims=("time", "channel"))),
    "chunked DataArrays": parts(lambda part: xr.DataArray(part, dims=("time", "channel")).chunk({"time": 6})),
    "AnnData": parts(ad.AnnData),
    "an empty one": lambda: [X[:20], X[:0], X[20:]],
}
LACKING = {
    "masked": parts(lambda part: np.ma.masked_invalid(part), HOLES),
    "nullable": parts(lambda part: pd.DataFrame(part).astype("Int64"), HOLES),
    "chunked masked": parts(lambda part: da.ma.masked_invalid(da.from_array(part, chunks=(7, 4))), HOLES),
}


def results(model, data, **lengths):
    found = model.fit(data, **lengths).predict(data, **lengths)
    return model.n_sequences_, np.asarray(found.compute() if hasattr(found, "compute") else found)


@cache
def of_frames(name, missing):
    return results(MODELS[name](), HOLES if missing else X, lengths=[20, 40])[1]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("kind", [*WHOLE, *LACKING])
def test_sequences_of_any_kind(name, kind):
    given = (WHOLE | LACKING)[kind]
    n, found = results(MODELS[name](), given())
    assert n == 2
    np.testing.assert_allclose(found, of_frames(name, missing=kind in LACKING), atol=1e-9)


def test_chunked_sequences_stay_chunked_and_names_are_kept():
    model = MODELS["hmm"]().fit(WHOLE["DataFrames"]())
    assert model.feature_names_in_.tolist() == list("abcd")
    assert isinstance(MODELS["hmm"]().fit(X).predict(WHOLE["chunked DataArrays"]()), da.Array)
    with pytest.raises(DCAError, match="feature names should match those of the fit"):
        model.predict([TABLE[["b", "a", "c", "d"]]])


SWAPPED = [TABLE[:20], TABLE[20:][["b", "a", "c", "d"]]]
KNOWN = {"numpy": np, "pandas": pd, "dask": dask, "xarray": xr, "anndata": ad, "scipy": __import__("scipy.sparse")}
ADVISED = {  # of chains
    "other columns": (
        lambda: SWAPPED,
        r"(\[part\[X\[0\]\.columns\] for .*\])",
        2,
    ),
    "promises": (lambda: [dask.delayed(X[:20]), dask.delayed(X[20:])], r"pass (dask\.compute\(\*X\))", 2),
    "one channel": (lambda: [X[:20, 0], X[20:, 0]], r"pass (\[numpy\.reshape\(part, \(-1, 1\)\) for part in X\])", 2),
    "Series": (lambda: [TABLE.a[:20], TABLE.a[20:]], r"pass (\[numpy\.reshape\(part, \(-1, 1\)\) for part in X\])", 2),
    "lists": (lambda: [X[:20].tolist(), X[20:].tolist()], r"pass (\[numpy\.asarray\(part\) for part in X\])", 2),
    "lists of one length": (lambda: X.reshape(3, 20, 4).tolist(), r"pass (numpy\.reshape\(X, \(-1, 4\)\))", 1),
    "dict": (lambda: {"a": X[:20], "b": X[20:]}, r"pass (list\(X\.values\(\)\))", 2),
    "generator": (lambda: iter([X[:20], X[20:]]), r"pass (list\(X\))", 2),
    "objects": (lambda: np.array([X[:20], X[20:]], dtype=object), r"pass (list\(X\))", 2),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("kind", ADVISED)
def test_others_are_told_a_line_that_works(name, kind):
    make, pattern, n = ADVISED[kind]
    with pytest.raises(DCAError) as raised:
        MODELS[name]().fit(make())
    found = re.search(pattern, str(raised.value))
    assert found, str(raised.value)
    assert MODELS[name]().fit(eval(found[1], {"X": make(), **KNOWN})).n_sequences_ == n


ROWS = {  # matrices in a list, where a model takes single rows
    "arrays": r"pass (numpy\.concatenate\(X\))",
    "sparse": r"pass (scipy\.sparse\.vstack\(X\))",
    "Dask arrays": r"pass (dask\.array\.concatenate\(X\))",
    "DataFrames": r"pass (pandas\.concat\(X\))",
    "Dask DataFrames": r"pass (dask\.dataframe\.concat\(X\))",
    "DataArrays": r"pass (xarray\.concat\(X, 'time'\))",
    "AnnData": r"pass (anndata\.concat\(X\))",
}


@pytest.mark.filterwarnings("ignore:Observation names are not unique")
@pytest.mark.parametrize("kind", ROWS)
def test_matrices_in_a_list_are_told_what_joins_them(kind):
    with pytest.raises(DCAError) as raised:
        dca.NMF(2).fit(WHOLE[kind]())
    found = re.search(ROWS[kind], str(raised.value))
    assert found, str(raised.value)
    model = dca.NMF(2).fit(eval(found[1], {"X": WHOLE[kind](), **KNOWN}))
    np.testing.assert_allclose(model.components_, dca.NMF(2).fit(X).components_)


FRAMES = RNG.standard_normal((4, 40, 3)) + np.repeat([0.0, 9.0], 20)[:, None]
RUNS = xr.DataArray(FRAMES, dims=("run", "time", "channel"))


@pytest.mark.parametrize("name", MODELS)
def test_one_sequence_of_those_of_a_fit_is_no_reason_to_warn(name):
    model = MODELS[name]().fit(dca.Cube(RUNS, "channel"))
    found = model.predict(RUNS[0])  # a warning would be an error
    assert found.dims[0] == "time"
    np.testing.assert_array_equal(found, model.predict(RUNS)[0])
    assert model.score(RUNS[1]) == model.score(RUNS[1:2])
    with pytest.warns(SequenceWarning, match="4 sequences"):
        model.predict(RUNS.values[0])


@pytest.mark.parametrize("name", MODELS)
def test_rows_that_were_several_sequences_are_no_single_one(name):
    rows = RUNS.stack(frame=("run", "time")).transpose("frame", "channel")
    model = MODELS[name]().fit(rows, lengths=[40] * 4)
    assert not hasattr(model, "time_dim_in_")
    with pytest.warns(SequenceWarning, match="4 sequences"):
        model.predict(rows)
