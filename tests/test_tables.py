"""Tables in .csv files: header or none, missing cells, and messages that name the place."""

import warnings

import numpy as np
import pytest

from dask_dca.errors import InvalidInputError
from dask_dca.inputs import read_table


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


@pytest.mark.parametrize("text", ["1,,3\n4,5,6\n", "a,b,c\n1,,3\n4,5, \n", "1,nan,3\n4,5,6\n"])
def test_an_empty_cell_is_a_missing_number(tmp_path, text):
    values, _ = read_table(table(tmp_path, text))
    assert values.shape == (2, 3)
    assert np.isnan(values[0, 1])
    assert values[0, 2] == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("s1,s2\n1,2\n3,red\n", r"line 3 of .*, column 's2', is no number: 'red'; .*select_dtypes"),
        ("1,2\n3,red\n", r"line 2 of .*, column 2, is no number: 'red'"),
        ("a;b\n1;2\n", r"separated by ';'.*sep=';'"),
        ("1;2\n3;4\n", r"separated by ';'"),
        ("1,2\n3\n", r"line 2 of .* has 1 cells, those before it 2"),
        ("a,b\n1,2,3\n", r"has 2 names|line 2 of .* has 3 cells"),
        ("a,b\n", "no rows of numbers"),
        ("", "no rows of numbers"),
        (",a,b\n0,5,6\n1,7,8\n", "index=False"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, text, message):
    with warnings.catch_warnings(), pytest.raises(InvalidInputError, match=message):
        read_table(table(tmp_path, text))
