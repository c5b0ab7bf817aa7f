"""Each kind of input is accepted by each model, with a plain array's results, or refused with a line that works."""

import re

import dask
import dask.array as da
import dask.bag as db
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import xarray as xr
import zarr
from scipy import sparse

import dask_dca as dca
from dask_dca.errors import DCAError
from tests.conftest import SOAK
from tests.models.small_fits import MODELS

ad = pytest.importorskip("anndata")  # not of the lowest versions
pl = pytest.importorskip("polars")  # likewise

RNG = np.random.default_rng(0)
X = np.rint(5 * np.abs(RNG.standard_normal((60, 4))))
CUBE = X.reshape(6, 10, 4)
WORDS = list("abcd")
TABLE = pd.DataFrame(X, columns=WORDS)
KINDS = pd.Categorical(["dry", "wet"] * 30)
CHUNKED = da.from_array(X, chunks=(20, 4))
HOLES = np.where(RNG.random(X.shape) < 0.05, np.nan, X)
UNCOUNTED = pytest.mark.filterwarnings("ignore:the rows of the blocks:dask_dca.errors.PerformanceWarning")
SEQUENCES = {  # what sequence models accept: (number of sequences, their name on the page)
    "NumPy array of three dimensions": (6, "sequences of one length"),
    "Dask array of three dimensions": (6, "sequences of one length"),
    "list of matrices": (2, "sequences"),
}
IN_TIME = ("hmm", "kalman")
ACCEPTED = {
    "Dask array": lambda: CHUNKED,
    "list of rows": lambda: X.tolist(),
    "NumPy array of float32": lambda: X.astype(np.float32),
    "NumPy array of integers": lambda: X.astype(np.int16),
    "numpy.matrix": lambda: np.matrix(X),
    "NumPy array in Fortran order": lambda: np.asfortranarray(X),
    "pandas DataFrame": lambda: TABLE,
    "pandas DataFrame of nullable integers": lambda: TABLE.astype("Int64"),
    "pyarrow.Table": lambda: pa.Table.from_pandas(TABLE),
    "polars DataFrame": lambda: pl.from_pandas(TABLE),
    "polars DataFrame of integers": lambda: pl.from_pandas(TABLE).cast(pl.Int16),
    "pandas DataFrame of Arrow dtypes": lambda: TABLE.astype("double[pyarrow]"),
    "Dask DataFrame": lambda: dd.from_pandas(TABLE, npartitions=3),
    "Dask DataFrame of nullable integers": lambda: dd.from_pandas(TABLE.astype("Int64"), npartitions=3),
    "Dask DataFrame of Arrow dtypes": lambda: dd.from_pandas(TABLE.astype("int64[pyarrow]"), npartitions=3),
    "Dask array of unknown chunk sizes": lambda: dd.from_pandas(TABLE, npartitions=3).to_dask_array(),
    "SciPy CSR matrix": lambda: sparse.csr_matrix(X),
    "SciPy COO array": lambda: sparse.coo_array(X),
    "SciPy CSC array": lambda: sparse.csc_array(X),
    "Dask array of sparse blocks": lambda: CHUNKED.map_blocks(sparse.csr_matrix),
    "Dask array chunked along columns too": lambda: CHUNKED.rechunk((33, 3)),
    "NumPy masked array": lambda: np.ma.masked_array(X, np.zeros(X.shape, dtype=bool)),
    "Dask array of masked blocks": lambda: da.ma.masked_array(CHUNKED, da.zeros(X.shape, bool, chunks=(20, 4))),
    "xarray.DataArray": lambda: xr.DataArray(X, dims=("time", "word")),
    "xarray.DataArray of chunks": lambda: xr.DataArray(CHUNKED, dims=("time", "word")),
    "AnnData": lambda: ad.AnnData(sparse.csr_matrix(X)),
    "zarr array": lambda: zarr.create_array({}, data=X, chunks=(20, 4)),
}
# kind: (data, the pattern of the expression in the message, which is evaluated)
ADVISED = {
    "NumPy array of three dimensions": (lambda: CUBE, r"pass (X\.reshape\(-1, 4\))"),
    "Dask array of three dimensions": (lambda: da.from_array(CUBE, chunks=(2, 10, 4)), r"pass (X\.reshape\(-1, 4\))"),
    "xarray.DataArray of three dimensions": (
        lambda: xr.DataArray(CUBE, dims=("lat", "lon", "word")),
        r"(dask_dca\.Cube\(X, features='word'\))",
    ),
    "list of matrices": (lambda: [X[:20], X[20:]], r"pass (numpy\.concatenate\(X\))"),
    "pandas DataFrame with categories": (lambda: TABLE.assign(kind=KINDS), r"(pandas\.get_dummies\(X\))"),
    "Dask DataFrame with categories": (
        lambda: dd.from_pandas(TABLE.assign(kind=KINDS), npartitions=3),
        r"(dask\.dataframe\.get_dummies\(X\.categorize\(\)\))",
    ),
    "polars DataFrame with categories": (
        lambda: pl.from_pandas(TABLE.assign(kind=KINDS)),
        r"(pandas\.get_dummies\(X\.to_pandas\(\)\))",
    ),
    "polars LazyFrame": (lambda: pl.from_pandas(TABLE).lazy(), r"pass (X\.collect\(\))"),
    "NumPy record array": (lambda: TABLE.to_records(index=False), r"pass (pandas\.DataFrame\(X\))"),
    "one-dimensional array": (lambda: X[:, 0], r"(X\.reshape\(-1, 1\)) for one feature"),
    "array of strings": (lambda: X.astype(str), r"X = (numpy\.asarray\(X, dtype=float\))"),
    "complex array": (lambda: X.astype(complex), r"(np\.abs\(X\))"),
    "dict of columns": (lambda: {word: X[:, j] for j, word in enumerate(WORDS)}, r"(pandas\.DataFrame\(X\))"),
    "generator of rows": (lambda: (row for row in X), r"pass (list\(X\))"),
    "Dask bag": (lambda: db.from_sequence(X.tolist()), r"pass (list\(X\))"),
    "dask.delayed": (lambda: dask.delayed(X), r"(dask\.array\.from_delayed\(X, shape=\(n, p\), dtype=float\))"),
    "xarray.Dataset of one variable": (lambda: xr.Dataset({"name": (("t", "word"), X)}), r"(X\['name'\])"),
    "xarray.Dataset of several variables": (
        lambda: xr.Dataset({word: (("y", "x"), CUBE[..., j]) for j, word in enumerate(WORDS)}),
        r"(dask_dca\.Cube\(X\))",
    ),
    "xarray.DataTree": (
        lambda: xr.DataTree(xr.Dataset({word: (("y", "x"), CUBE[..., j]) for j, word in enumerate(WORDS)})),
        r"(dask_dca\.Cube\(X\['/'\]\.to_dataset\(\)\))",
    ),
}
KNOWN = {"dask_dca": dca, "np": np, "numpy": np, "dask": dask, "pandas": pd, "n": 60, "p": 4}


EVERY = SOAK  # else each kind with every other model, in turn


def pairs(kinds):
    return [(kind, name) for i, kind in enumerate(kinds) for j, name in enumerate(MODELS) if EVERY or (i + j) % 2 == 0]


def plain(result):
    result = result[0] if isinstance(result, tuple) else result
    result = result.compute() if hasattr(result, "compute") else result
    return np.asarray(result)


@pytest.fixture(scope="module")
def whole():
    """What each model makes of a plain array."""
    return {name: plain(getattr(model := make().fit(X), model._per_row)(X)) for name, make in MODELS.items()}


@UNCOUNTED
@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
@pytest.mark.parametrize(("kind", "name"), pairs(ACCEPTED))
def test_accepted_inputs(whole, name, kind):
    data = ACCEPTED[kind]()
    model = MODELS[name]().fit(data)
    np.testing.assert_allclose(plain(getattr(model, model._per_row)(data)), whole[name], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("kind", "name"), pairs(ADVISED))
def test_other_inputs_are_refused_with_advice_that_works(name, kind):
    make, pattern = ADVISED[kind]
    if name in IN_TIME and kind in SEQUENCES:
        assert MODELS[name]().fit(make()).n_sequences_ == SEQUENCES[kind][0]
        return
    with pytest.raises(DCAError) as raised:
        MODELS[name]().fit(make())
    message = str(raised.value)
    assert "\n" not in message
    found = re.search(pattern, message)
    assert found, message
    changed = eval(found[1], {"X": make(), **KNOWN})
    model = MODELS[name]()
    if kind == "one-dimensional array":  # one feature
        model.set_params(**{model._count: 1})
    assert model.fit(changed).n_features_in_ in (1, 4, 6)


@pytest.mark.filterwarnings("ignore::dask_dca.errors.MissingEntriesWarning")
@UNCOUNTED
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("chunked", [False, True])
def test_missing_entries_are_taken_or_the_rows_dropped(name, chunked):
    data = da.from_array(HOLES, chunks=(20, 4)) if chunked else HOLES
    masked = da.ma.masked_invalid(data) if chunked else np.ma.masked_invalid(data)
    if name != "lda":
        np.testing.assert_array_equal(
            plain(getattr(MODELS[name]().fit(data), MODELS[name]()._per_row)(data)),
            plain(getattr(MODELS[name]().fit(masked), MODELS[name]()._per_row)(masked)),
        )
        return
    for given in (data, masked):
        with pytest.raises(DCAError, match=r"NaN: row \d+, column \d"):
            MODELS[name]().fit(given)
    MODELS[name]().fit(data[np.isfinite(data).all(axis=1)])


@pytest.mark.parametrize("name", MODELS)
def test_columns_of_one_name_are_refused(name):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(np.ones((30, 3)), columns=["a", "b", "a"])
    with pytest.raises(DCAError, match=r"2 columns of X are called 'a'.*X\.to_numpy\(\)"):
        MODELS[name]().fit(frame)
