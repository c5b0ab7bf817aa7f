"""Sequence ids in the place of lengths: arrays, columns, index levels and coordinates."""

import warnings

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import sklearn
import xarray as xr
from sklearn.model_selection import GroupKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import dask_dca as dca
from dask_dca.errors import InvalidInputError
from tests.contract.entries import as_bytes, fitted_bytes

RNG = np.random.default_rng(0)
LENGTHS = [50, 30, 100, 20]
IDS = np.repeat(["run b", "run a", "run d", "run c"], LENGTHS)
X = np.array([[0.0, 0.0], [3.0, 3.0]])[np.repeat(RNG.integers(2, size=40), 5)] + RNG.standard_normal((200, 2))
TABLE = pd.DataFrame(X, columns=["u", "v"])
CUBE = xr.DataArray(X, dims=("time", "channel"), coords={"run": ("time", IDS)})
FORMS = {
    "array": (X, IDS),
    "numbers": (X, pd.factorize(IDS)[0]),
    "list": (X, IDS.tolist()),
    "dask": (da.from_array(X, chunks=70), da.from_array(pd.factorize(IDS)[0], chunks=33)),
    "column": (TABLE.assign(run=IDS), "run"),
    "series": (TABLE, TABLE.assign(run=IDS)["run"]),
    "index": (TABLE.set_index(pd.Index(IDS, name="run")), "run"),
    "level": (TABLE.set_index(pd.MultiIndex.from_arrays([IDS, np.arange(200)], names=["run", "t"])), "run"),
    "dask column": (dd.from_pandas(TABLE.assign(run=IDS), npartitions=3), "run"),
    "coordinate": (CUBE, "run"),
}
MAKE = {"hmm": lambda: dca.GaussianHMM(2, max_iter=1), "kalman": lambda: dca.KalmanFilter(1, max_iter=1)}
METHODS = {
    "hmm": ("predict", "predict_proba", "filter", "forecast", "decode", "score", "score_samples", "aic", "bic"),
    "kalman": ("filter", "smooth", "predict", "forecast", "score", "loglikelihood"),
}


@pytest.mark.parametrize("name", MAKE)
@pytest.mark.parametrize("form", FORMS)
def test_ids_are_lengths(name, form):
    given, groups = FORMS[form]
    whole, model = MAKE[name]().fit(X, lengths=LENGTHS), MAKE[name]().fit(given, groups=groups)
    own, other = fitted_bytes(whole), fitted_bytes(model)
    assert {key: other[key] for key in own} == own
    assert model.n_sequences_ == 4
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = model.predict(given, groups=groups)
    np.testing.assert_array_equal(np.asarray(found), np.asarray(whole.predict(X, lengths=LENGTHS)))


@pytest.mark.parametrize("name", MAKE)
def test_every_method_takes_them(name):
    model = MAKE[name]().fit(X, groups=IDS)
    for method in METHODS[name]:
        by_ids, by_lengths = getattr(model, method)(X, groups=IDS), getattr(model, method)(X, lengths=LENGTHS)
        assert as_bytes(by_ids) == as_bytes(by_lengths), method


def test_symbols_too():
    symbols = (X[:, [0]] > 1.5).astype(int)
    model = dca.CategoricalHMM(2, max_iter=1).fit(symbols, groups=IDS)
    assert model.n_sequences_ == 4
    assert model.score(symbols, groups=IDS) == model.score(symbols, lengths=LENGTHS)


@pytest.mark.parametrize(
    ("given", "groups", "message"),
    [
        (X, np.roll(IDS, 10), "run c begins again at frame 190; sort by it"),
        (X, IDS[:-1], "groups has 199 ids for 200 frames"),
        (X, "run", "groups='run' is not a column, index level or coordinate of X, a ndarray"),
        (TABLE, "run", "of X, a DataFrame; pass the ids themselves"),
        (X, IDS.reshape(2, 100), r"one id per frame; received an array of shape \(2, 100\)"),
        (X, np.where(IDS == "run d", None, IDS.astype(object)), "groups has no id for frame 80"),
        (X, np.where(IDS == "run d", np.nan, 1.0), "groups has no id for frame 80"),
    ],
    ids=range(7),
)
def test_ids_that_are_none_are_refused(given, groups, message):
    with pytest.raises(InvalidInputError, match=message):
        dca.GaussianHMM(2).fit(given, groups=groups)


def test_the_advice_helps():
    shuffled = np.roll(IDS, 10)
    order = np.argsort(shuffled, kind="stable")
    model = dca.GaussianHMM(2, max_iter=0).fit(X[order], groups=shuffled[order])
    assert model.n_sequences_ == 4
    model.fit(TABLE)
    for ids, words in ((IDS, "pass its name as groups="), (FORMS["numbers"][1], "or pass groups='run', if it holds")):
        for table in (TABLE.assign(run=ids), dd.from_pandas(TABLE.assign(run=ids), npartitions=2)):
            with pytest.raises(InvalidInputError, match=words):
                model.predict(table)


def test_both_are_refused():
    with pytest.raises(InvalidInputError, match="pass one of them"):
        dca.GaussianHMM(2).fit(X, lengths=LENGTHS, groups=IDS)


def test_metadata_are_routed_through_pipelines_and_searches():
    with sklearn.config_context(enable_metadata_routing=True):
        hmm = dca.GaussianHMM(2, max_iter=0).set_fit_request(lengths=True, groups=True)
        hmm.set_score_request(lengths=True, groups=True)
        pipeline = make_pipeline(StandardScaler(), hmm).fit(X, lengths=LENGTHS)
        assert pipeline[-1].n_sequences_ == 4
        assert make_pipeline(StandardScaler(), hmm).fit(X, groups=IDS)[-1].n_sequences_ == 4
        scores = cross_val_score(hmm, X, cv=GroupKFold(2), params={"groups": IDS})
        assert np.isfinite(scores).all()
        kalman = dca.KalmanFilter(1, max_iter=0).set_fit_request(lengths=True)
        assert make_pipeline(StandardScaler(), kalman).fit(X, lengths=LENGTHS)[-1].n_sequences_ == 4
