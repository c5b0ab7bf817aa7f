"""Tables in .csv files: header or none, missing cells, and messages that name the place."""

import gzip
import pathlib
import warnings

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

from dask_dca.errors import InvalidInputError
from dask_dca.inputs import open_data, read_named_rows, read_table


def table(tmp_path, text):
    path = tmp_path / "x.csv"
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("1,2\n3,4\n", None),
        ("a,b\n1,2\n3,4\n", ["a", "b"]),
        ("0,1\n1,2\n3,4\n", ["0", "1"]),  # what pandas writes for columns without names
        ("400,500\n3,4\n", None),  # nobody can tell
        ("year,1990\n1,2\n3,4\n", ["year", "1990"]),
        ('"a, b","c"\r\n1,2\r\n3,4\r\n', ["a, b", "c"]),
        ("\ufeffa,b\n1,2\n\n3,4", ["a", "b"]),
    ],
)
def test_a_header_is_told_from_numbers(tmp_path, text, names):
    values, found = read_table(table(tmp_path, text))
    assert found == names
    assert values[-2:].tolist() == [[1, 2], [3, 4]] if names else values[-1].tolist() == [3, 4]
    assert len(values) == 2


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("a;b\n1,5;2\n3;4\n", [[1.5, 2], [3, 4]]),  # where commas are decimal
        ("1;2\n3;4\n", [[1, 2], [3, 4]]),
        ("a;b\nTrue;2\nFalse;4\n", [[1, 2], [0, 4]]),
        ("a\tb\n1.5\t2\n", [[1.5, 2]]),
        ("1,2,\n3,4,\n", [[1, 2], [3, 4]]),
        ("a,b,\n1,2,\n", [[1, 2]]),
        ("5\n6\n", [[5], [6]]),
        ('"width; cm",height\n1,2\n', [[1, 2]]),  # a mark inside quotes separates nothing
    ],
)
def test_what_separates_cells_is_seen(tmp_path, text, values):
    assert read_table(table(tmp_path, text))[0].tolist() == values


def test_a_compressed_table_is_read(tmp_path):
    path = tmp_path / "x.tsv.gz"
    with gzip.open(path, "wt") as lines:
        lines.write("a\tb\n1\t2\n")
    assert open_data(str(path)).matrix.tolist() == [[1, 2]]


def test_parquet_is_read_in_parts(tmp_path):
    frame = pd.DataFrame(np.arange(24.0).reshape(12, 2), columns=["a", "b"])
    dd.from_pandas(frame, npartitions=3).to_parquet(tmp_path / "x.parquet")
    found = open_data(str(tmp_path / "x.parquet"))
    assert found.names == ["a", "b"]
    assert len(found.matrix.chunks[0]) == 3
    np.testing.assert_array_equal(found.matrix.compute(), frame)
    frame.to_parquet(tmp_path / "one.parquet")
    np.testing.assert_array_equal(open_data(str(tmp_path / "one.parquet")).matrix.compute(), frame)


def test_columns_of_parquet_that_are_no_numbers_are_named(tmp_path):
    pd.DataFrame({"a": [1.0], "kind": ["x"]}).to_parquet(tmp_path / "x.parquet")
    with pytest.raises(InvalidInputError, match=r"'kind'.*select_dtypes\(\['number', 'bool'\]\)"):
        open_data(str(tmp_path / "x.parquet"))


@pytest.mark.parametrize(("ending", "advice"), [("h5", "numpy.save"), ("mtx", "dask dca convert"), ("xlsx", "to_csv")])
def test_files_of_other_formats_are_told_how_to_come_in(tmp_path, ending, advice):
    path = tmp_path / f"x.{ending}"
    path.write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(60))
    with pytest.raises(InvalidInputError, match=advice):
        open_data(str(path))


@pytest.mark.parametrize("text", ["1,,3\n4,5,6\n", "a,b,c\n1,,3\n4,5, \n", "1,nan,3\n4,5,6\n", "1,nan,3\n4,5\n"])
def test_an_empty_cell_is_a_missing_number(tmp_path, text):
    values, _ = read_table(table(tmp_path, text))
    assert values.shape == (2, 3)
    assert np.isnan(values[0, 1])
    assert values[0, 2] == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("s1,s2\n1,2\n3,red\n", r"row 1 of .*, column 's2', is no number: 'red'; .*select_dtypes"),
        ("1,2\n3,red\n", r"row 1 of .*, column 1, is no number: 'red'"),
        ("1,2\n3,4,5\n", "Expected 2 fields in line 2, saw 3"),
        ("a,b\n1,2,3\n", r"has 2 names .* and 3 numbers"),
        ("a,b\n", "no rows of numbers"),
        ("", "no rows of numbers"),
        (",a,b\n0,5,6\n1,7,8\n", "index=False"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, text, message):
    with warnings.catch_warnings(), pytest.raises(InvalidInputError, match=message):
        read_table(table(tmp_path, text))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("x.csv", "id,a,b\nA,1.5,2\nB,?,3\nC,4,5\n"),
        ("x.csv", "id;a;b\nA;1,5;2\nB;n.a.;3\nC;4;5\n"),
        ("x.tsv", "id\ta\tb\nA\t1.5\t2\nB\t-\t3\nC\t4\t5\n"),
        ("x.csv", "1.5,2\n?,3\n4,5\n"),
    ],
)
def test_the_line_that_is_told_keeps_the_columns_of_numbers(tmp_path, monkeypatch, name, text):
    """Read by its own separator and decimal sign, with NaN for marks of missing numbers."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_text(text)
    with pytest.raises(InvalidInputError, match="with NaN for what is missing") as said:
        open_data(str(tmp_path / name))
    eval(str(said.value).partition("missing: ")[2], {"pandas": pd})
    values, _ = read_table("numbers.csv")
    np.testing.assert_array_equal(values, [[1.5, 2.0], [np.nan, 3.0], [4.0, 5.0]])


def test_a_mark_of_missing_numbers_in_every_column_makes_no_column_one_of_texts(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.csv").write_text("a,b\n1.5,2\n?,3\n4,5\n6,-\n")
    with pytest.raises(InvalidInputError, match="with NaN for what is missing") as said:
        open_data("x.csv")
    eval(str(said.value).partition("missing: ")[2], {"pandas": pd})
    np.testing.assert_array_equal(read_table("numbers.csv")[0], [[1.5, 2.0], [np.nan, 3.0], [4.0, 5.0], [6.0, np.nan]])


def test_a_table_in_another_code_is_written_in_utf8(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.csv").write_text("Höhe,b\n1,2\n3,4\n", encoding="latin-1")
    with pytest.raises(InvalidInputError, match="is no text in UTF-8") as said:
        open_data("x.csv")
    eval(str(said.value).partition("write it in UTF-8: ")[2], {"pathlib": pathlib})
    assert open_data("utf8.csv").names == ["Höhe", "b"]


def test_a_table_at_a_url_becomes_parquet(tmp_path, monkeypatch):
    monkeypatch.setattr("fsspec.implementations.memory.MemoryFileSystem.store", {})
    pd.DataFrame({"a": [1.0, 2.0], "b": [3.0, 4.0]}).to_csv("memory://bucket/x.csv", index=False)
    with pytest.raises(InvalidInputError, match=r"\.csv files are read from local paths, not from") as said:
        open_data("memory://bucket/x.csv")
    eval(str(said.value).partition("Parquet there: ")[2], {"pandas": pd})
    assert open_data("memory://bucket/x.parquet").names == ["a", "b"]
    np.save(tmp_path / "x.npy", np.ones((3, 2)))
    with pytest.raises(InvalidInputError, match="holds one array; leave out --array a"):
        open_data(str(tmp_path / "x.npy"), "a")


@pytest.mark.parametrize("header", ["", "name,red,green\n", ",0,1\n"])
def test_rows_with_names_are_read_whole_with_a_header_or_without(tmp_path, header):
    (tmp_path / "rows.csv").write_text(f"{header}quartz,1,2\n calcite ,3,4.5\n")
    rows, names = read_named_rows(str(tmp_path / "rows.csv"))
    values = rows.matrix
    assert (values.tolist(), names) == ([[1.0, 2.0], [3.0, 4.5]], ["quartz", "calcite"])


def test_a_file_of_numbers_that_was_replaced_is_not_read(tmp_path):
    np.save(tmp_path / "x.npy", np.ones((30, 3)))
    matrix = open_data(str(tmp_path / "x.npy")).matrix
    np.save(tmp_path / "x.npy", np.ones((30, 3), dtype=np.float32))
    with pytest.raises(InvalidInputError, match=r"finds an array of shape \(30, 3\) and dtype float32"):
        matrix.compute(scheduler="sync")
