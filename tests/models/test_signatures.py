"""Keywords that callers of scikit-learn, hmmlearn and pykalman pass, by position too: alike in all models."""

import inspect
import pickle
import re

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from sklearn.base import clone

import dask_dca as dca
from dask_dca.errors import InvalidParameterError, MissingEntriesError, NotFiniteError
from tests.contract.entries import ENTRIES, example

SEQUENCES = [name for name, entry in ENTRIES.items() if entry.sequences]


def keywords(method):
    return {name for name, own in inspect.signature(method).parameters.items() if own.kind is own.KEYWORD_ONLY}


@pytest.mark.parametrize("name", ENTRIES)
def test_constructors_keep_what_they_are_given_in_its_order(name):
    given = {parameter: object() for parameter in inspect.signature(getattr(dca, name)).parameters}
    assert list(vars(getattr(dca, name)(**given)).items()) == list(given.items())


@pytest.mark.parametrize("name", ENTRIES)
def test_what_fits_and_answers_takes_the_keywords_of_fit(name):
    model, X = ENTRIES[name].make(), example(name)
    given = {
        "sample_weight": np.arange(len(X)) % 3 + 1.0,
        "lengths": [len(X) // 2, len(X) - len(X) // 2],
        "groups": np.arange(len(X)) // (len(X) // 2 + 1),
    }
    for method, after in (("fit_predict", "predict"), ("fit_transform", "transform")):
        if not hasattr(model, method):
            continue
        for keyword in keywords(model.fit) & given.keys():
            found = getattr(clone(model), method)(X, **{keyword: given[keyword]})
            model.fit(X, **{keyword: given[keyword]})
            np.testing.assert_array_equal(found, getattr(model, after)(X))
        with pytest.raises(TypeError, match="sample_weights"):
            getattr(model, method)(X, sample_weights=given["sample_weight"])


@pytest.mark.parametrize("name", SEQUENCES)
def test_streams_take_groups_as_fits_do(name):
    X = example(name)
    ids = np.repeat(["a", "b"], [30, len(X) - 30])
    model, other = ENTRIES[name].make().fit(X), ENTRIES[name].make().fit(X)
    model.partial_fit(X, groups=ids)
    other.partial_fit(X, lengths=[30, len(X) - 30])
    assert model.n_sequences_ == other.n_sequences_ == 3
    assert model.score(X, groups=ids) == other.score(X, lengths=[30, len(X) - 30])
    first = ENTRIES[name].make().partial_fit(X, groups=ids)  # which is a fit
    assert first.n_sequences_ == 2


@pytest.mark.parametrize("name", [name for name in ENTRIES if hasattr(ENTRIES[name].make(), "sample")])
def test_samples_take_a_number_and_a_seed_by_position(name):
    model = ENTRIES[name].make(random_state=3).fit(example(name))
    own, drawn, again = model.sample(20), model.sample(20, 1), model.sample(20, random_state=1)
    for one, two, three in zip(own, drawn, again, strict=True):
        assert len(one) == 20
        assert (two == three).all()
    assert (own[0] != drawn[0]).any()
    assert (model.sample(20, 3)[0] == own[0]).all()
    assert len(model.sample()[0]) == 1


def test_lengths_in_the_place_of_steps_are_told_their_name():
    X = example("KalmanFilter")
    lengths = [30, len(X) - 30]
    kalman, chain = dca.KalmanFilter(2).fit(X, lengths=lengths), dca.GaussianHMM(2).fit(X, lengths=lengths)
    for call in (kalman.predict, kalman.forecast, chain.forecast):
        for given in (lengths, np.array(lengths)):
            with pytest.raises(InvalidParameterError, match=r"n_steps comes before lengths: pass lengths=.*30.* by"):
                call(X, given)
    with pytest.raises(InvalidParameterError, match="n_steps must be an integer of at least 1; received 0"):
        kalman.predict(X, 0, lengths)


@pytest.mark.parametrize("make", [dca.GaussianHMM, dca.CategoricalHMM])
def test_two_names_of_one_parameter_say_one_thing(make):
    X = example("CategoricalHMM" if make is dca.CategoricalHMM else "GaussianHMM")
    for n_iter, max_iter in ((0, 7), (3, 2)):
        with pytest.raises(InvalidParameterError, match=f"n_iter={n_iter} and max_iter={max_iter} are one parameter"):
            make(2, n_iter=n_iter, max_iter=max_iter).fit(X)
    assert clone(make(2, n_iter=0)).fit(X).n_iter_ == 0  # beside the default of max_iter
    assert make(2, n_iter=0, max_iter=0).fit(X).n_iter_ == 0


SYMBOLS = np.random.default_rng(0).integers(3, size=(600, 1)).astype(float)
SYMBOLS[[5, 400]] = np.nan
KINDS = {
    "array": lambda: SYMBOLS.copy(),
    "list": lambda: [SYMBOLS[:300].copy(), np.zeros((1, 1)), SYMBOLS[300:].copy()],
    "Dask array": lambda: da.from_array(SYMBOLS, chunks=(100, 1)),
    "DataFrame": lambda: pd.DataFrame(SYMBOLS, columns=["state"]),
    "DataArray": lambda: xr.DataArray(SYMBOLS, dims=("time", "what")),
    "masked": lambda: np.ma.masked_invalid(SYMBOLS),
}


@pytest.mark.parametrize("kind", KINDS)
def test_missing_symbols_are_told_the_line_that_makes_them_symbols(kind):
    """Rows that are left out of a sequence make neighbours of what were none, and its length is another one."""
    with pytest.raises(MissingEntriesError, match=r"row (5|400), column 0.*; give it a symbol of its own: ") as raised:
        dca.CategoricalHMM(2).fit(KINDS[kind]())
    names = {"X": KINDS[kind](), "np": np}
    exec(str(raised.value).partition("of its own: ")[2].partition("\n")[0], names)
    model = dca.CategoricalHMM(2).fit(names["X"])
    assert model.n_symbols_ == 4
    assert model.n_sequences_ == (3 if kind == "list" else 1)
    with pytest.raises(MissingEntriesError, match="symbol of its own"):
        np.asarray(model.predict(KINDS[kind]()))


@pytest.mark.parametrize("make", [dca.GaussianHMM, dca.KalmanFilter])
@pytest.mark.parametrize("several", [False, True])
def test_no_frame_of_a_sequence_is_left_out(make, several):
    X = np.random.default_rng(0).standard_normal((200, 3)).cumsum(axis=0)
    X[7, 2] = np.nan
    given = {"lengths": [80, 120]} if several else {}
    with pytest.raises(MissingEntriesError, match=r"row 7, column 2; method='robust' takes missing entries$"):
        make(2, method="paper").fit(X, **given)
    make(2).fit(X, **given)
    X[7, 2] = np.inf
    with pytest.raises(NotFiniteError, match=r"; mark them as NaN for method='robust': X = np\.where\(.*np\.nan\)$"):
        make(2, method="paper").fit(X, **given)
    with pytest.raises(NotFiniteError, match=r"; mark them as NaN: "):
        make(2).fit(X, **given)


def test_batches_of_frames_with_missing_entries_are_told_what_takes_them():
    X = np.random.default_rng(0).standard_normal((200, 3))
    model = dca.GaussianHMM(2).fit(X)
    X[7, 2] = np.nan
    with pytest.raises(
        MissingEntriesError, match=r"; leave out sequences that have any; fit\(X\) without init takes them$"
    ):
        model.partial_fit(X)


def test_labels_stay_in_a_pickle_and_a_saved_model_tells_where_they_are(tmp_path):
    X = example("SubspaceClustering")
    model = dca.SubspaceClustering(2).fit(X)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).labels_, model.labels_)
    model.save(tmp_path / "model.zarr")
    with pytest.raises(AttributeError, match=re.escape("use predict(X)")):
        _ = dca.load_model(tmp_path / "model.zarr").labels_
