"""Dask DataFrames in, Dask DataFrames and Series out, with the index of the rows."""

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

import dask_dca as dca
from tests.conftest import raise_if_dask_computes

RNG = np.random.default_rng(0)
X = np.abs(RNG.standard_normal((60, 3))) + np.repeat([[5.0, 0, 0], [0, 0, 5.0]], 30, axis=0)
TABLE = pd.DataFrame(X, columns=list("abc"), index=pd.Index([f"row{i:02d}" for i in range(60)], name="key"))
MODELS = {
    "nmf": (dca.NMF(2), {"transform": "component"}),
    "mixture": (dca.GaussianMixture(2, "diag"), {"predict": None, "predict_proba": "component", "score_samples": None}),
    "hmm": (dca.GaussianHMM(2, max_iter=1), {"predict": None, "predict_proba": "state", "filter": "state"}),
    "kalman": (dca.KalmanFilter(1, max_iter=0), {"predict": "abc", "filter": "state"}),
    "lda": (dca.LatentDirichletAllocation(2, min_df=1, max_iter=0), {"transform": "topic"}),
    "subspace": (dca.SubspaceClustering(2), {"predict": None}),
}


def chunked(table=TABLE):
    return dd.from_pandas(table, npartitions=4, sort=False)


@pytest.mark.parametrize(("name", "method"), [(name, method) for name in MODELS for method in MODELS[name][1]])
def test_lazy_results_have_the_index_of_the_table(name, method):
    model, kinds = MODELS[name]
    table = TABLE.round() if name == "lda" else TABLE
    model.fit(table)
    plain = getattr(model, method)(table)
    data = chunked(table)
    with raise_if_dask_computes(1):  # the lengths of the partitions
        found = getattr(model, method)(data)
    if isinstance(found, tuple):
        assert isinstance(found[1], da.Array)  # matrices
        found, plain = found[0], plain[0]
    columns = kinds[method]
    assert isinstance(found, dd.Series if columns is None else dd.DataFrame)
    computed = found.compute()
    assert (computed.index.name, computed.index.tolist()) == ("key", TABLE.index.tolist())
    np.testing.assert_array_equal(computed.to_numpy(), np.asarray(plain))
    if columns is not None:
        width = computed.shape[1]
        names = list(columns) if columns == "abc" else [f"{columns}_{j}" for j in range(width)]
        assert found.columns.tolist() == names


def test_results_join_the_table_by_its_index():
    data = chunked()
    data["group"] = dca.GaussianMixture(2, "diag").fit_predict(data)
    found = data.compute()
    assert found.index.tolist() == TABLE.index.tolist()
    assert sorted(found.groupby("group").size()) == [30, 30]


def test_a_partition_is_loaded_once_for_values_and_index():
    loaded = []

    def load(part):
        loaded.append(1)
        return TABLE[15 * part : 15 * part + 15]

    data = dd.from_map(load, range(4), meta=TABLE[:0])
    kalman = dca.KalmanFilter(1).fit(TABLE)
    for result in (dca.NMF(2).fit(TABLE).transform, kalman.predict, lambda X: kalman.smooth(X)[0]):
        found = result(data)
        loaded.clear()
        assert found.compute(scheduler="sync").index.tolist() == TABLE.index.tolist()
        assert len(loaded) == 4


def test_divisions_and_empty_partitions_stay():
    data = dd.from_pandas(TABLE.reset_index(drop=True), npartitions=4)
    few = data[data["a"] >= 5.0]
    model = dca.GaussianMixture(2, "diag").fit(few)
    found = model.predict(few)
    assert found.divisions == few.divisions
    assert found.compute().index.tolist() == list(range(30))


def test_what_is_transformed_goes_back_to_named_columns():
    data = chunked()
    model = dca.NMF(2).fit(data)
    shares = model.transform(data)
    back = model.inverse_transform(shares)
    assert back.columns.tolist() == ["a", "b", "c"]
    assert back.compute().index.tolist() == TABLE.index.tolist()
    filled = model.impute(dd.from_pandas(TABLE.mask(TABLE < 0.1), npartitions=3, sort=False))
    assert filled.columns.tolist() == ["a", "b", "c"]
    assert not filled.compute().isna().any(axis=None)
    bare = dca.NMF(2).fit(X)
    assert bare.inverse_transform(shares).columns.tolist() == ["feature_0", "feature_1", "feature_2"]


def test_in_cone_and_pandas_tables():
    inside = dca.in_cone(chunked(), np.eye(3))
    assert isinstance(inside, dd.Series)
    assert inside.dtype == bool
    assert inside.compute().all()
    assert isinstance(dca.NMF(2).fit(TABLE).transform(TABLE), np.ndarray)  # as scikit-learn's
