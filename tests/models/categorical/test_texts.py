"""Symbols that are texts, or other values: one line numbers them."""

import re
from functools import cache

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import sklearn.preprocessing
import xarray as xr

import dask_dca as dca
from dask_dca.errors import InvalidInputError

TEXTS = list("abcaab") * 12
NUMBERS = np.array([["abc".index(text)] for text in TEXTS])
KINDS = {
    "array": lambda: np.array(TEXTS),
    "column": lambda: np.array(TEXTS)[:, None],
    "list": lambda: TEXTS,
    "objects": lambda: np.array(TEXTS, dtype=object)[:, None],
    "table": lambda: pd.DataFrame({"symbol": TEXTS}),
    "categories": lambda: pd.DataFrame({"symbol": pd.Categorical(TEXTS)}),
    "Dask table": lambda: dd.from_pandas(pd.DataFrame({"symbol": TEXTS}), npartitions=3),
    "Dask array": lambda: da.from_array(np.array(TEXTS)[:, None], chunks=(20, 1)),
    "DataArray": lambda: xr.DataArray(np.array(TEXTS)[:, None], dims=("time", "symbol")),
    "sequences": lambda: [np.array(TEXTS[:30])[:, None], np.array(TEXTS[30:])[:, None]],
    "negative": lambda: NUMBERS - 1,
    "fractions": lambda: NUMBERS / 2,
    "far apart": lambda: NUMBERS * 10_000,
}


@cache
def of_numbers(*, sequences):
    return dca.CategoricalHMM(2, max_iter=1).fit(NUMBERS, lengths=[30, 42] if sequences else None)


@pytest.mark.parametrize("kind", KINDS)
def test_texts_are_numbered_by_the_line_that_is_told(kind):
    with pytest.raises(InvalidInputError) as raised:
        dca.CategoricalHMM(2, max_iter=1).fit(KINDS[kind]())
    line = r"pass (sklearn\.preprocessing\.OrdinalEncoder\(\)\.fit_transform\(.*?\(-1, 1\)\)\))"
    found = re.search(line, str(raised.value))
    assert found, str(raised.value)
    known = {"X": KINDS[kind](), "numpy": np, "sklearn": sklearn}
    lengths = re.search(r"and lengths=(\[.*\])", str(raised.value))
    model = dca.CategoricalHMM(2, max_iter=1)
    model.fit(eval(found[1], known), lengths=eval(lengths[1], known) if lengths else None)
    assert (lengths is not None) == (kind == "sequences")
    np.testing.assert_array_equal(model.emissionprob_, of_numbers(sequences=bool(lengths)).emissionprob_)
