"""What an error advises, done as it says: the fit works then."""

import functools
import re
import warnings

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import sklearn.feature_extraction.text
import xarray as xr
import zarr
from scipy import sparse
from sklearn.base import clone

import dask_dca as dca
from dask_dca.errors import DCAError, InvalidInputError, NotFiniteError, NotNumbersError
from tests.conftest import bits, planted

ad = pytest.importorskip("anndata")  # not of the lowest versions

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
    model = dca.NMF(3).fit(found)
    assert bits(model) == bits(dca.NMF(3).fit(X))
    kept = advised(model.transform, cube.where(cube > 0.1, -1.0), r"for example X = (X\.clip\(0\))$")
    assert model.transform(kept).dims == ("y", "x", "component")


@pytest.mark.parametrize(
    ("data", "pattern"),
    [(X - 0.5, r"X = (X\.clip\(0\))"), (sparse.csr_array(X - 0.5), r"X = (X\.maximum\(0\))$")],
)
def test_negative_entries_are_cut(data, pattern):
    dca.NMF(3).fit(advised(dca.NMF(3).fit, data, pattern))


def test_negative_counts_are_cut():
    counts = sparse.csr_array(np.random.default_rng(0).poisson(1.0, (60, 12)) - 1.0)
    lda = dca.LatentDirichletAllocation(2, max_iter=1)
    lda.fit(advised(lda.fit, counts, r"X = (X\.maximum\(0\))$"))


@pytest.mark.parametrize("texts", [["a cat", "a dog"], np.array([["a", "b"]], dtype=object)])
def test_texts_are_counted_first(texts):
    with pytest.raises(
        InvalidInputError, match=r"texts such as .a.*CountVectorizer\((analyzer=list)?\)\.fit_transform"
    ):
        dca.NMF(2).fit(texts)


def test_files_by_name_are_read_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.csv").mkdir()
    for path in ("missing.csv", "folder.csv"):
        with pytest.raises(NotNumbersError, match=rf"pandas\.read_csv\('{path}'\)"):
            dca.NMF(2).fit([path, path])


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
    found = advised(
        dca.NMF(3).fit, data, r"columns 'kind' of X are no numbers.*pass (X\.select_dtypes\(\['number', 'bool'\]\))"
    )
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
    frame = pd.DataFrame(X.copy(), columns=["red", "green", "blue", "near\xa0ir", "swir", "ndvi"])
    frame.loc[7, "near\xa0ir"] = np.nan
    with pytest.raises(NotFiniteError, match=r"row 7, column 3 \('near\\xa0ir'\); drop"):
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


@pytest.mark.parametrize("make", [np.asarray, lambda X: pd.DataFrame(X), lambda X: da.from_array(X, chunks=(50, 12))])
def test_negative_counts_of_any_kind_are_clipped(make):
    lda = dca.LatentDirichletAllocation(2, max_iter=1)
    counts = advised(lda.fit, make(np.random.default_rng(0).poisson(1.0, (60, 12)) - 1.0), r"X = (X\.clip\(0\))")
    assert lda.fit(counts).components_.shape == (2, 12)


WORDS = [["wet", "cat"], ["wet", "dog", "dog"], ["dry", "dog"]] * 20
DOCUMENTS = {
    "lists of words": (WORDS, r"pass (sklearn\S+CountVectorizer\(analyzer=list\)\.fit_transform\(X\))"),
    "pairs of words": (WORDS[::3], r"X = (sklearn\S+CountVectorizer\(analyzer=list\)\.fit_transform\(X\))"),
    "texts": ([" ".join(words) for words in WORDS], r"X = (sklearn\S+CountVectorizer\(\)\.fit_transform\(X\))"),
    "dicts": ([dict.fromkeys(words, 1) for words in WORDS], r"pass (sklearn\S+DictVectorizer\(\)\.fit_transform\(X\))"),
    "dict of lists of words": ({"a": WORDS, "b": WORDS[1:]}, r"pass (list\(X\.values\(\)\)), its parts"),
    "gensim's corpus": ([[(0, 1), (1, 2)], [(1, 1)]], r"pass (gensim\.matutils\.corpus2csc\(X\)\.T)"),
}


@pytest.mark.parametrize("kind", DOCUMENTS)
def test_documents_as_people_have_them_become_counts(kind):
    data, pattern = DOCUMENTS[kind]
    with pytest.raises(InvalidInputError) as raised:
        dca.LatentDirichletAllocation(2, min_df=1).fit(data)
    found = re.search(pattern, str(raised.value))
    assert found, str(raised.value)
    if "gensim" not in kind:
        given = eval(found[1], {"X": data, "sklearn": sklearn})
        assert (len(given) if isinstance(given, list) else given.shape[0]) == len(data)


LABELLED = {
    "table": lambda names: pd.DataFrame(X, columns=names),
    "Dask table": lambda names: dd.from_pandas(pd.DataFrame(X, columns=names), npartitions=2),
    "DataArray": lambda names: xr.DataArray(X, dims=("row", "band"), coords={"band": names}),
    "Cube": lambda names: dca.Cube(xr.DataArray(CUBE, dims=("y", "x", "band"), coords={"band": names}), "band"),
    "AnnData": lambda names: ad.AnnData(X, var=pd.DataFrame(index=names)),
}


@pytest.mark.filterwarnings("ignore:Variable names are not unique")
@pytest.mark.parametrize("kind", LABELLED)
def test_columns_of_one_name_become_plain(kind):
    found = advised(
        dca.NMF(3).fit, LABELLED[kind](list("abcdea")), r"columns of X are called 'a'; rename them, or pass (.*)$"
    )
    assert bits(dca.NMF(3).fit(found)) == bits(dca.NMF(3).fit(X))


@pytest.mark.parametrize("kind", ["Dask table", "DataArray", "Cube", "AnnData"])
def test_columns_in_another_order_are_selected(kind):
    model = dca.NMF(3).fit(LABELLED["table"](list("abcdef")))
    given = LABELLED[kind](list("fedcba"))
    with pytest.raises(InvalidInputError) as raised:
        model.transform(given)
    line = r"order: (X\.sel\(.*?\))" if kind in ("DataArray", "Cube") else r"(X\[model\.\S+\]) of a table"
    line = r"(X\[:, model\.\S+\]) of an AnnData" if kind == "AnnData" else line
    found = re.search(line, str(raised.value))
    assert found, str(raised.value)
    if kind == "Cube":  # its DataArray
        given = xr.DataArray(CUBE, dims=("y", "x", "band"), coords={"band": list("fedcba")})
        model = dca.NMF(3).fit(LABELLED["Cube"](list("abcdef")))
    changed = eval(found[1], {"X": given, "model": model})
    wanted = model.transform(X[:, ::-1])
    np.testing.assert_array_equal(np.asarray(model.transform(changed)).reshape(wanted.shape), wanted)


test_columns_in_another_order_are_selected = pytest.mark.filterwarnings("ignore:X does not have valid feature names")(
    test_columns_in_another_order_are_selected
)


ROWS = {
    "table": pd.DataFrame,
    "Dask table": lambda rows: dd.from_pandas(pd.DataFrame(rows), npartitions=1),
    "DataArray": lambda rows: xr.DataArray(rows, dims=("row", "band")),
    "Cube": lambda rows: dca.Cube(xr.DataArray(rows[:, None], dims=("y", "x", "band")), "band"),
    "AnnData": ad.AnnData,
    "sparse": sparse.csr_array,
    "chunked": da.from_array,
    "list": np.ndarray.tolist,
}


@pytest.mark.parametrize("kind", ROWS)
def test_known_anchors_may_be_rows_of_any_kind(kind):
    rows = X[dca.find_anchors(X, 3).indices[:2]]
    found = dca.NMF(3, known=ROWS[kind](rows)).fit(X)
    np.testing.assert_array_equal(found.components_, dca.NMF(3, known=rows).fit(X).components_)


def test_known_anchors_that_are_neither_are_told():
    with pytest.raises(ValueError, match="known must be row numbers, or rows of shape"):
        dca.NMF(3, known=xr.Dataset({"a": ("x", [1.0])})).fit(X)


def test_sequences_by_a_column_of_an_anndata():
    cells = ad.AnnData(X, obs=pd.DataFrame({"run": np.repeat(["a", "b", "c"], 40)}, index=list(map(str, range(120)))))
    model = dca.GaussianHMM(2, max_iter=1).fit(cells, groups="run")
    wanted = dca.GaussianHMM(2, max_iter=1).fit(X, lengths=[40] * 3)
    np.testing.assert_array_equal(model.means_, wanted.means_)


def test_a_filter_of_one_state_may_be_made_of_numbers():
    found = dca.KalmanFilter.from_parameters(0.9, 1.0, 1.0, 2.0, 0.5, 3.0, 0.1)
    wanted = dca.KalmanFilter.from_parameters([[0.9]], [[1.0]], [[1.0]], [[2.0]], [0.5], [[3.0]], [0.1])
    np.testing.assert_array_equal(found.filter(X[:, :1])[0], wanted.filter(X[:, :1])[0])


@pytest.mark.parametrize("chunked", [False, True])
def test_generators_and_libraries_have_the_columns_of_the_data(chunked):
    table = pd.DataFrame(X, columns=list("abcdef"))
    data, table = dd.from_pandas(table, npartitions=2) if chunked else table, table.head(12)
    other = table[list("fedcba")]
    for function in (lambda rows: dca.in_cone(data, rows), lambda rows: dca.find_anchors(data, 3, Y=rows).indices):
        with pytest.raises(InvalidInputError) as raised:
            function(other)
        found = re.search(r"order: \w+(\[list\(X\.columns\)\]) of a table", str(raised.value))
        assert found, str(raised.value)
        changed = eval(f"other{found[1]}", {"other": other, "X": data})
        wanted = function(table)
        np.testing.assert_array_equal(np.asarray(function(changed)), np.asarray(wanted))


def chunked(rows):
    return da.from_array(rows, chunks=(40, 6))


FORMS = {
    "array": np.asarray,
    "matrix": np.matrix,
    "list": np.ndarray.tolist,
    "masked": lambda rows: np.ma.masked_array(rows, np.eye(120, 6, -50, dtype=bool)),
    "sparse": sparse.csr_array,
    "coo": sparse.coo_array,
    "chunked": chunked,
    "chunked, sparse": lambda rows: chunked(rows).map_blocks(sparse.csr_array),
    "chunked, masked": lambda rows: da.ma.masked_array(chunked(rows), np.eye(120, 6, -50, dtype=bool)),
    "table": lambda rows: pd.DataFrame(rows, columns=list("abcdef")),
    "nullable table": lambda rows: pd.DataFrame(rows, columns=list("abcdef")).astype("Float64"),
    "Dask table": lambda rows: dd.from_pandas(pd.DataFrame(rows, columns=list("abcdef")), npartitions=2),
    "DataArray": lambda rows: xr.DataArray(rows, dims=("row", "band")),
    "DataArray, chunked": lambda rows: xr.DataArray(chunked(rows), dims=("row", "band")),
    "Cube": lambda rows: dca.Cube(xr.DataArray(rows.reshape(10, 12, 6), dims=("y", "x", "band")), "band"),
    "AnnData": ad.AnnData,
    "AnnData, sparse": lambda rows: ad.AnnData(sparse.csr_matrix(rows)),
    "zarr": lambda rows: zarr.create_array({}, data=rows),
}
SEQUENCES = {
    "sequences": lambda rows: [rows[:50], rows[50:]],
    "sequences, sparse": lambda rows: [sparse.csr_array(rows[:50]), sparse.csr_array(rows[50:])],
    "sequences, tables": lambda rows: [pd.DataFrame(rows[:50]), pd.DataFrame(rows[50:])],
    "sequences, chunked": lambda rows: [da.from_array(rows[:50]), da.from_array(rows[50:])],
    "sequences of one length": lambda rows: rows.reshape(3, 40, 6),
}
LINE = re.compile(r"(?:for example|as NaN:) ((?:X|for part|sample_weight|good).*)$")
TOOLS = {"dask_dca": dca, "dask": dask, "np": np}


def done_as_told(function, data, most=4, **beside):
    """The result of the function, and how many lines of errors were followed before it came."""
    try:
        return [part.compute() if hasattr(part, "compute") else part for part in function(data, **beside)], 0
    except InvalidInputError as error:
        told = str(error)
    line = LINE.search(told)
    assert line, told
    assert most, told
    names = {**TOOLS, "X": data, **beside}
    for statement in line[1].split("; "):
        exec(statement, names)
    found, followed = done_as_told(function, names["X"], most - 1, **{name: names[name] for name in beside})
    return found, followed + 1


def with_entry(value):
    rows = X.copy()
    rows[47, 2] = value
    return rows


VALUES = [-3.0, np.inf, np.nan, 1e300]


@functools.cache
def functions(*, of_sequences):
    """By model: its fit, and a result that may be computed later, somewhere else; and what has no model."""
    if of_sequences:
        hmm, kalman = dca.GaussianHMM(2, max_iter=0), dca.KalmanFilter(1, max_iter=0)
        return [[clone(hmm).fit, hmm.fit(X).predict], [clone(kalman).fit, kalman.fit(X).smooth]]
    models = [
        dca.GaussianMixture(2, "diag", max_iter=1),
        dca.NMF(2, method="paper"),
        dca.LatentDirichletAllocation(2, min_df=1, max_iter=1),
    ]
    found = [[model.fit, getattr(model.fit(X), model._per_row)] for model in models]
    return [*found, [lambda data: dca.find_anchors(data, 2, method="paper").rows]]


def listed(found):
    return found if isinstance(found, tuple) else [found]


@pytest.mark.filterwarnings("ignore::dask_dca.errors.MissingEntriesWarning")
@pytest.mark.filterwarnings("ignore:the rows of the blocks:dask_dca.errors.PerformanceWarning")
@pytest.mark.filterwarnings("ignore:Transforming to str index")
@pytest.mark.filterwarnings("ignore:the matrix subclass")
@pytest.mark.filterwarnings("ignore:X has feature names")
@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("kind", {**FORMS, **SEQUENCES})
def test_lines_of_errors_are_of_the_kind_of_data_that_was_passed(kind, value):
    """Two models for each form and value, by turns, and a result of one; for negative values those that refuse them."""
    make, models = {**FORMS, **SEQUENCES}[kind], functions(of_sequences=True)
    turn = [*FORMS, *SEQUENCES].index(kind) + VALUES.index(value)
    if kind in FORMS:
        models = models + functions(of_sequences=False)
        models = models[3:5] if value < 0.0 else models[turn % 3 :: 3]
    results = [result for _, *own in models for result in own]
    every = [fit for fit, *_ in models] + [results[turn // 3 % len(results)]]
    turns = [done_as_told(lambda data, f=f: listed(f(data)), make(with_entry(value)))[1] for f in every]
    assert max(turns) >= (kind not in SEQUENCES or value > 0.0)  # sequences take negative and missing entries


WEIGHTED = [
    lambda data, **given: [dca.NMF(2).fit(data, **given).votes_],
    lambda data, **given: [dca.GaussianMixture(2, "diag", max_iter=1).fit(data, **given).votes_],
    lambda data, **given: [dca.LatentDirichletAllocation(2, min_df=1, max_iter=1).fit(data, **given).components_],
    lambda data, **given: [dca.SubspaceClustering(1).fit(data, **given).votes_],
    lambda data, **given: [dca.find_anchors(data, 2, **given).indices],
]


@pytest.mark.filterwarnings("ignore:the rows of the blocks:dask_dca.errors.PerformanceWarning")
@pytest.mark.filterwarnings("ignore:the matrix subclass")
@pytest.mark.parametrize("i", range(len(FORMS)), ids=list(FORMS))
def test_weights_of_rows_that_are_left_out_are_told_too(i):
    kind, fit, value = list(FORMS)[i], WEIGHTED[i % len(WEIGHTED)], (np.inf, np.nan)[i % 2]
    weights = 1 + np.arange(120) % 3
    wanted = weights * (np.arange(120) != 47)
    if "masked" in kind:
        wanted[50:56] = 0  # the masked entries
    found, followed = done_as_told(fit, FORMS[kind](with_entry(value)), sample_weight=weights)
    assert followed
    np.testing.assert_array_equal(found[0], fit(X, sample_weight=wanted)[0])


@pytest.mark.parametrize("chunks", [120, 20])
def test_the_row_of_an_entry_is_that_of_the_whole_where_others_are_missing(chunks):
    rows = with_entry(np.inf)
    rows[3, 1] = np.nan
    with pytest.raises(InvalidInputError, match="row 47, column 2"):
        dca.NMF(2).fit(da.from_array(rows, chunks=(chunks, 6)))


@pytest.mark.parametrize("scale", [1e-300, 1e300])
def test_scales_whose_squares_are_no_numbers_are_told_where_entries_are_missing(scale):
    rows = X * scale
    rows[3, 1] = np.nan
    found, followed = done_as_told(lambda data: [dca.NMF(2).fit(data).components_], rows)
    assert followed == 1
    assert np.isfinite(found).all()


@pytest.mark.parametrize("names", ["fedcba", "abcdefg"])
def test_columns_of_a_table_in_another_order_are_selected(names):
    model = dca.NMF(3).fit(pd.DataFrame(X, columns=list("abcdef")))
    table = pd.DataFrame(np.hstack([X, X])[:, : len(names)], columns=list(names))
    with pytest.raises(InvalidInputError, match="feature names should match") as raised:
        model.transform(table)
    found = eval(str(raised.value).rpartition("same order: ")[2], {"X": table, "model": model})
    np.testing.assert_array_equal(model.transform(found), model.transform(table[list("abcdef")]))


def test_names_of_two_types_become_texts():
    table = pd.DataFrame(X, columns=["a", "b", 3, 4, 5, 6])
    found = advised(dca.NMF(3).fit, table, r"called by str and int, and names are texts; pass (.*)$")
    assert dca.NMF(3).fit(found).feature_names_in_.tolist() == ["a", "b", "3", "4", "5", "6"]


@pytest.mark.parametrize("make", [np.asarray, sparse.csr_array, pd.DataFrame, da.from_array])
def test_another_number_of_features_is_an_error_of_this_library_for_every_kind(make):
    model = dca.NMF(3).fit(make(X))
    with pytest.raises(InvalidInputError, match="X has 5 features, but NMF is expecting 6 features as input"):
        model.transform(make(X[:, :5]))


def test_numbers_among_texts():
    data = [["1", "2"], ["3", "x"]]
    with pytest.raises(NotNumbersError, match=r"such as 'x'; X = (.*) makes NaN of them") as raised:
        dca.GaussianMixture(1).fit(data)
    line = re.search(r"X = (.*) makes", str(raised.value))
    assert eval(line[1], {"X": data, "pandas": pd}).isna().to_numpy().sum() == 1


def with_infinity(rows):
    return np.vstack([rows, np.full((1, rows.shape[1]), np.inf)])


@pytest.mark.parametrize("make", [np.asarray, np.ndarray.tolist, pd.DataFrame, sparse.csr_array, da.from_array])
@pytest.mark.parametrize("name", ["Y", "known"])
@pytest.mark.filterwarnings("ignore:the rows of the blocks:dask_dca.errors.PerformanceWarning")
def test_lines_are_of_the_argument_that_is_wrong(name, make):
    rows = X[dca.find_anchors(X, 3).indices]
    given = make(with_infinity(rows))
    with pytest.raises(InvalidInputError, match=f"Input {name} contains infinity: row 3, column 0") as raised:
        dca.find_anchors(X, 5 if name == "known" else 3, **{name: given})
    names = {**TOOLS, name: given}
    for statement in str(raised.value).partition("for example ")[2].split("; "):
        exec(statement, names)
    found = dca.find_anchors(X, 3, **{name: names[name]})
    wanted = dca.find_anchors(X, 3, **{name: rows})
    np.testing.assert_array_equal(found.indices, wanted.indices)


def test_a_library_of_very_large_rows_is_one_of_rays():
    rows = X[dca.find_anchors(X, 3).indices]
    for scale in (1e-300, 1e300):
        np.testing.assert_array_equal(
            dca.find_anchors(X, 3, Y=rows * scale).indices, dca.find_anchors(X, 3, Y=rows).indices
        )


@pytest.mark.parametrize("path", [None, 3])
def test_paths_that_are_none(path):
    with pytest.raises(DCAError, match=f"a path is a text, .*; received {path}"):
        dca.NMF(3).fit(X).save(path)


def test_values_that_are_no_numbers():
    model = dca.GaussianHMM(2, max_iter=0).fit(X)
    with pytest.raises(InvalidInputError, match="2 numbers; received 'x'"):
        model.filter_update("x")
    with pytest.raises(DCAError, match=r"tolerance must be .*; received 'x'"):
        dca.in_cone(X, X[:2], tolerance="x")
