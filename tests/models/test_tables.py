"""DataFrames whose columns are numbers of any dtype, and the line of advice where they are none."""

import re

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import sklearn.feature_extraction.text
import xarray as xr

import dask_dca as dca
from dask_dca.errors import InvalidInputError, NotNumbersError
from tests.conftest import raise_if_dask_computes
from tests.models import small_fits

pytestmark = pytest.mark.filterwarnings("ignore::dask_dca.errors.MissingEntriesWarning")
RNG = np.random.default_rng(0)
X = np.rint(5 * np.abs(RNG.standard_normal((80, 4)))) + np.repeat([[9.0, 0, 0, 1], [0, 9, 1, 0]], 40, axis=0)
TABLE = pd.DataFrame(X, columns=list("abcd"))
LACKING = RNG.random(X.shape) < 0.08
FLAGS = pd.DataFrame(X > 4, columns=list("abcd"))
KINDS = {
    "Int64": lambda: TABLE.astype("Int64").mask(LACKING),
    "UInt8": lambda: TABLE.astype("UInt8").mask(LACKING),
    "Float64": lambda: TABLE.astype("Float64").mask(LACKING),
    "Float32": lambda: TABLE.astype("Float32").mask(LACKING),
    "double[pyarrow]": lambda: TABLE.astype("double[pyarrow]").mask(LACKING),
    "int64[pyarrow]": lambda: TABLE.astype("int64[pyarrow]").mask(LACKING),
    "several": lambda: TABLE.astype({"a": "Int64", "b": "float32", "c": "double[pyarrow]"}).mask(LACKING),
    "categories of numbers": lambda: TABLE.mask(LACKING).assign(a=pd.Categorical(TABLE["a"].mask(LACKING[:, 0]))),
}
BINARY = {
    "bool": lambda: TABLE.assign(b=FLAGS["b"]),
    "boolean": lambda: TABLE.assign(b=FLAGS["b"].astype("boolean").mask(LACKING[:, 1])),
    "bool[pyarrow]": lambda: TABLE.assign(b=FLAGS["b"].astype("bool[pyarrow]").mask(LACKING[:, 1])),
}
MODELS = {name: make for name, make in small_fits.MODELS.items() if name != "lda"}  # which counts words


def result(model, data):
    found = getattr(model.fit(data), model._per_row)(data)
    return np.asarray(found.compute() if hasattr(found, "compute") else found)


_plain = {}  # results of a model on float64 columns: most kinds of columns hold the same numbers


def of_plain(name, chunked, plain):
    key = name, chunked, plain.to_numpy().tobytes()
    if key not in _plain:
        _plain[key] = result(MODELS[name](), dd.from_pandas(plain, npartitions=3) if chunked else plain)
    return _plain[key]


@pytest.mark.filterwarnings("ignore::dask_dca.errors.FewEntriesWarning")
@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize(
    ("name", "kind"),
    [*(("hmm", kind) for kind in [*KINDS, *BINARY]), *((name, "Int64") for name in MODELS if name != "hmm")],
)
def test_columns_of_any_dtype_are_numbers_and_what_is_missing_is_a_hole(name, kind, chunked):
    table = (KINDS | BINARY)[kind]()
    plain = table.astype(np.float64)
    assert plain.isna().any(axis=None) == (kind != "bool")
    data = dd.from_pandas(table, npartitions=3) if chunked else table
    atol = 1e-5 if kind == "Float32" else 0.0  # whose results are of single precision
    np.testing.assert_allclose(result(MODELS[name](), data), of_plain(name, chunked, plain), rtol=atol, atol=atol)


def test_objects_may_be_pandas_missing_ones():
    objects = TABLE.astype(object).mask(LACKING, pd.NA)
    np.testing.assert_array_equal(
        result(MODELS["mixture"](), objects), result(MODELS["mixture"](), TABLE.mask(LACKING))
    )


def test_precision_of_nullable_columns_is_kept_and_nothing_is_computed():
    chunked = dd.from_pandas(TABLE.astype("Float32"), npartitions=3)
    model = dca.NMF(2).fit(chunked)
    assert model.components_.dtype == np.float32
    with raise_if_dask_computes(1):  # the lengths of the partitions
        found = model.transform(chunked)
    assert found.compute().dtypes.tolist() == [np.float32] * 2


def test_topics_say_which_count_is_missing():
    with pytest.raises(dca.errors.NotFiniteError, match=r"NaN: row \d+, column \d \('[a-d]'\)"):
        dca.LatentDirichletAllocation(2, min_df=1).fit(TABLE.astype("Int64").mask(LACKING))


WORDS = np.array(["dry", "wet"])[(X[:, 0] > 4).astype(int)]
ARROW = pd.array(WORDS, dtype="string[pyarrow]")
DATES = pd.date_range("2024-01-01", periods=80)
ADVISED = {  # columns, and what is to be evaluated of the message, of pandas and of Dask
    "categories": (lambda: TABLE.assign(k=pd.Categorical(WORDS)), r"(\S+get_dummies\(.*?\)) for", 6),
    "texts": (lambda: TABLE.assign(k=WORDS), r"(\S+get_dummies\(.*?\)) for", 6),
    "Arrow's texts": (
        lambda: TABLE.assign(k=ARROW),
        r"(\S+get_dummies\(.*?\)) for",
        6,
    ),
    "texts alone": (lambda: pd.DataFrame({"k": WORDS, "j": WORDS[::-1]}), r"(\S+get_dummies\(.*?\)) for", 4),
    "texts, left out": (lambda: TABLE.assign(k=WORDS), r"pass (X\.select_dtypes\(\['number', 'bool'\]\))", 4),
    "dates": (lambda: TABLE.assign(k=DATES), r"pass (X\.select_dtypes\(\['number', 'bool'\]\))", 4),
    "periods": (lambda: TABLE.assign(k=DATES.to_period("D")), r"pass (X\.select_dtypes\(\['number', 'bool'\]\))", 4),
    "flags stay": (lambda: TABLE.assign(f=FLAGS["a"], k=WORDS), r"pass (X\.select_dtypes\(\['number', 'bool'\]\))", 5),
    "dates alone": (lambda: pd.DataFrame({"k": DATES}), r"pass (\(X - X\.min\(\)\) / numpy\.timedelta64\(1, 's'\))", 1),
}
PANDAS = {
    "texts of numbers": (
        lambda: TABLE.assign(a=TABLE["a"].astype(str)),
        r"pass (X\.astype\(\{'a': float\}\))",
        4,
    ),
    "documents": (
        lambda: pd.DataFrame({"text": ["wet cat", "wet dog", "dry dog"] * 20}),
        r"pass (sklearn\.feature_extraction\.text\.CountVectorizer\(\)\.fit_transform\(X\['text'\]\))",
        4,
    ),
}


@pytest.mark.parametrize(
    ("kind", "chunked"), [*((kind, False) for kind in ADVISED | PANDAS), *((kind, True) for kind in ADVISED)]
)
def test_other_columns_are_told_a_line_that_works(kind, chunked):
    make, pattern, width = (ADVISED | PANDAS)[kind]
    data = dd.from_pandas(make(), npartitions=3) if chunked else make()
    with pytest.raises(NotNumbersError) as raised:
        dca.GaussianMixture(1, "diag").fit(data)
    found = re.search(pattern, str(raised.value))
    assert found, str(raised.value)
    changed = eval(found[1], {"X": data, "pandas": pd, "dask": dask, "numpy": np, "sklearn": sklearn})
    assert dca.GaussianMixture(1, "diag").fit(changed).n_features_in_ == width


@pytest.mark.parametrize(
    ("data", "pattern"),
    [
        (np.array(DATES)[:, None], r"pass (\(X - X\.min\(\)\) / numpy\.timedelta64\(1, 's'\)) for"),
        (np.diff(np.array(DATES))[:, None], r"pass (X / numpy\.timedelta64\(1, 's'\)) for"),
        (dask.array.from_array(X.astype(object), chunks=(20, 4)), r"pass (X\.astype\(float\))"),
        (dask.array.from_array(X.astype(str), chunks=(20, 4)), r"pass (X\.astype\(float\)) of numbers"),
    ],
)
def test_arrays_of_other_dtypes_are_told_a_line_that_works(data, pattern):
    with pytest.raises(NotNumbersError) as raised:
        dca.GaussianMixture(1, "diag").fit(data)
    found = re.search(pattern, str(raised.value))
    assert found, str(raised.value)
    dca.GaussianMixture(1, "diag").fit(eval(found[1], {"X": data, "numpy": np}))


class WithoutArrow(pd.DataFrame):
    """A table of a library that would need pyarrow to give its rows."""

    __module__ = "other.frame"

    def to_pandas(self):
        raise ModuleNotFoundError("pyarrow is required")


def test_a_table_that_another_package_has_to_turn_says_which():
    with pytest.raises(InvalidInputError, match="of other needs what is not there: pyarrow is required"):
        dca.NMF(2).fit(WithoutArrow(TABLE))


VECTORS = [row.tolist() for row in X]
SPANS = pd.to_timedelta(np.arange(80), "h")


@pytest.mark.parametrize("chunked", [False, True])
def test_spans_of_time_are_left_out(chunked):
    table = TABLE.assign(t=SPANS)
    data = dd.from_pandas(table, npartitions=3) if chunked else table
    with pytest.raises(NotNumbersError) as raised:
        dca.NMF(2).fit(data)
    line = re.search(r"pass (X\.select_dtypes\(.*\)) to leave", str(raised.value))[1]
    assert dca.NMF(2).fit(eval(line, {"X": data})).feature_names_in_.tolist() == list("abcd")


def test_decimal_numbers_of_arrow_are_numbers():
    table = TABLE.astype("int64[pyarrow]").astype({"a": pd.ArrowDtype(pa.decimal128(21, 2))})
    wanted = dca.GaussianMixture(2, "diag", max_iter=1).fit(TABLE).means_
    for data in (table, dd.from_pandas(table, npartitions=3)):
        found = dca.GaussianMixture(2, "diag", max_iter=1).fit(data)
        np.testing.assert_array_equal(found.means_, wanted)


@pytest.mark.parametrize("make", [list, np.array, tuple])
@pytest.mark.parametrize("others", [[], ["a", "b"]])
def test_a_column_of_vectors_is_told_to_be_stacked(others, make):
    table = TABLE[others].assign(v=[make(row) for row in VECTORS])
    with pytest.raises(NotNumbersError) as raised:
        dca.NMF(2).fit(table)
    line = re.search(r"(numpy\.stack\(X\['v'\]\)) for the vectors that 'v' holds", str(raised.value))[1]
    stacked = eval(line, {"X": table, "numpy": np})
    np.testing.assert_array_equal(dca.NMF(2).fit(stacked).components_, dca.NMF(2).fit(X).components_)


def test_a_column_of_dicts_is_told_to_be_a_table():
    table = pd.DataFrame({"s": [dict(zip("abcd", row, strict=True)) for row in VECTORS]})
    with pytest.raises(NotNumbersError) as raised:
        dca.NMF(2).fit(table)
    line = re.search(r"pass (pandas\.json_normalize\(X\['s'\]\)) for", str(raised.value))[1]
    found = dca.NMF(2).fit(eval(line, {"X": table, "pandas": pd}))
    np.testing.assert_array_equal(found.components_, dca.NMF(2).fit(TABLE).components_)


EMPTY = np.where(np.arange(4) == 2, np.nan, X)


FORMS = [
    np.asarray,
    lambda rows: da.from_array(rows, chunks=(30, 4)),
    lambda rows: pd.DataFrame(rows, columns=list("abcd")),
    lambda rows: dd.from_pandas(pd.DataFrame(rows, columns=list("abcd")), npartitions=3),
    lambda rows: xr.DataArray(rows, dims=("row", "band")),
    np.ma.masked_invalid,
    np.ndarray.tolist,
]


@pytest.mark.parametrize(
    ("name", "make"),
    [(name, make) for i, make in enumerate(FORMS) for name in ["mixture", "hmm", "kalman", "subspace"][i % 2 :: 2]],
)
@pytest.mark.filterwarnings("ignore:the rows of the blocks:dask_dca.errors.PerformanceWarning")
@pytest.mark.filterwarnings("ignore::dask_dca.errors.FewerAnchorsWarning")
def test_a_column_without_entries_is_told_the_line_that_leaves_it_out(name, make):
    names = {"X": make(EMPTY), "np": np}
    with pytest.raises(InvalidInputError, match=r"1 such columns.*leave it out, for example ") as raised:
        MODELS[name]().fit(names["X"])
    exec(str(raised.value).partition("for example ")[2], names)
    assert MODELS[name]().fit(names["X"]).n_features_in_ == 3
