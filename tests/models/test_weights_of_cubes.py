"""Weights as people have them: in the shape of a cube's rows, with names, as a Series, one for all."""

from functools import cache

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import xarray as xr
import zarr

import dask_dca as dca
from dask_dca.errors import InvalidInputError

RNG = np.random.default_rng(0)
X = np.rint(5 * np.abs(RNG.standard_normal((6, 10, 4))))
ROWS = X.reshape(-1, 4)
TABLE = pd.DataFrame(ROWS)
W = np.abs(RNG.standard_normal((6, 10))) + 0.1
IMAGE = xr.DataArray(X, dims=("y", "x", "band"))
NAMED = xr.DataArray(W, dims=("y", "x"))
MODELS = {
    "nmf": (lambda: dca.NMF(2), "components_"),
    "mixture": (lambda: dca.GaussianMixture(2, "diag", max_iter=1), "means_"),
    "lda": (lambda: dca.LatentDirichletAllocation(2, min_df=1, max_iter=1), "components_"),
}


@cache
def plain(name):
    """The model of plain rows and weights; not to be changed."""
    return MODELS[name][0]().fit(ROWS, sample_weight=W.ravel())


CUBE, LAZY = dca.Cube(IMAGE, "band"), dca.Cube(IMAGE.chunk({"y": 2}), "band")
STACKED = IMAGE.stack(pixel=("y", "x")).transpose("pixel", "band")
GIVEN = {
    "the shape of the rows": (CUBE, W),
    "named": (CUBE, NAMED),
    "named, in another order": (CUBE, NAMED.T),
    "chunked": (CUBE, da.from_array(W, chunks=2)),
    "of a chunked cube": (LAZY, W),
    "both chunked, in another order": (LAZY, NAMED.chunk({"x": 3}).T),
    "flat": (CUBE, W.ravel()),
    "stacked": (STACKED, NAMED.stack(pixel=("y", "x"))),
    "Series": (TABLE, pd.Series(W.ravel())),
    "nullable": (ROWS, pd.array(W.ravel(), dtype="Float64")),
    "Dask Series": (
        dd.from_pandas(TABLE, npartitions=2),
        dd.from_pandas(pd.Series(W.ravel()), npartitions=2),
    ),
    "nullable Dask Series": (ROWS, dd.from_pandas(pd.Series(W.ravel(), dtype="Float64"), npartitions=2)),
    "zarr": (ROWS, zarr.create_array({}, data=W.ravel())),
}


@pytest.mark.parametrize("kind", GIVEN)
@pytest.mark.parametrize("name", MODELS)
def test_weights_of_any_kind_count_as_plain_ones(name, kind):
    make, attribute = MODELS[name]
    data, weights = GIVEN[kind]
    found = make().fit(data, sample_weight=weights)
    np.testing.assert_array_equal(getattr(found, attribute), getattr(plain(name), attribute))


def test_one_weight_is_that_of_every_row():
    found = dca.GaussianMixture(2, max_iter=1).fit(ROWS, sample_weight=2)
    wanted = dca.GaussianMixture(2, max_iter=1).fit(ROWS, sample_weight=np.full(60, 2))
    np.testing.assert_array_equal(found.means_, wanted.means_)


@pytest.mark.parametrize(
    ("data", "weights", "message"),
    [
        (ROWS, W.reshape(-1, 1), r"shape \(60, 1\), dtype float64; pass numpy\.ravel\(sample_weight\)"),
        (CUBE, W.T, r"the rows are \('y', 'x'\) of sizes \(6, 10\), which weights may have too"),
        (ROWS, W, r"shape \(6, 10\)"),
        (ROWS, np.ma.masked_less(W.ravel(), 0.2), r"finite and not negative; received nan"),
        (ROWS, "balanced", "one number for each of the 60 rows"),
    ],
)
def test_other_weights_are_refused(data, weights, message):
    with pytest.raises(InvalidInputError, match=message):
        dca.NMF(2).fit(data, sample_weight=weights)
