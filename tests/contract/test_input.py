"""Input that no model takes: one line that says what was wrong; and what all models take."""

import inspect

import dask.array as da
import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.exceptions import NotFittedError

import dask_dca as dca
from dask_dca.errors import DCAError, InvalidInputError, NotFiniteError
from tests.contract.entries import ENTRIES, example, fitted, fitted_bytes, result_bytes


def refused(error, match, function, *args, **options):
    with pytest.raises(error, match=match) as caught:
        found = function(*args, **options)
        np.asarray(found[0] if isinstance(found, tuple) else found)
    message = str(caught.value)
    assert isinstance(caught.value, ValueError)
    assert "\n" not in message
    assert len(message) < 300


NO_MATRIX = {
    "one dimension": (lambda X: X[:, 0], "Expected 2D array, got 1-D array instead"),
    "three dimensions": (lambda X: X[None], "Expected 2D array, got 3-D array"),
    "blocks of one dimension": (lambda X: da.from_array(X[:, 0], chunks=20), "Expected 2D array, got 1-D array"),
    "a scalar": (lambda X: np.float64(3.0), "Expected 2D array, got scalar"),
    "complex": (lambda X: X.astype(complex), "Complex data not supported"),
    "complex blocks": (lambda X: da.from_array(X.astype(complex), chunks=50), "Complex data not supported"),
    "text": (lambda X: X.astype(str), "real numbers; received dtype <U|symbols are integers"),
    "dates": (lambda X: X.astype("i8").astype("M8[s]"), "real numbers; received dtype datetime64|symbols are integers"),
    "no rows": (lambda X: X[:0], r"Found array with 0 sample\(s\)"),
    "no features": (lambda X: X[:, :0], r"Found array with 0 feature\(s\)"),
    "sparse, no rows": (lambda X: sparse.csr_array(X[:0]), r"Found array with 0 sample\(s\)"),
}


@pytest.mark.parametrize("given", NO_MATRIX)
def test_what_is_no_matrix_of_numbers(name, given):
    spoil, match = NO_MATRIX[given]
    if given == "three dimensions" and ENTRIES[name].sequences:  # sequences of one length
        assert fitted_bytes(ENTRIES[name].make().fit(spoil(example(name)))) == fitted_bytes(fitted(name))
        return
    refused(InvalidInputError, match, ENTRIES[name].make().fit, spoil(example(name)))


@pytest.mark.parametrize("chunked", [False, True])
def test_an_infinity_is_named_by_row_and_column(name, chunked):
    X = example(name).astype(float)
    X[77, -1] = np.inf
    given = da.from_array(X, chunks=(13, 4)) if chunked else X
    match = f"row 77, column {X.shape[1] - 1}" if X.shape[1] > 1 else "row 77"
    refused((NotFiniteError, InvalidInputError), match, ENTRIES[name].make().fit, given)
    refused((NotFiniteError, InvalidInputError), match, getattr(fitted(name), ENTRIES[name].results[0]), given)


def test_other_features_than_those_of_the_fit(name):
    X = example(name)
    other = np.hstack([X, X[:, :1]])
    for given in (other, da.from_array(other, chunks=(50, -1))):
        refused(ValueError, f"{X.shape[1] + 1} features", getattr(fitted(name), ENTRIES[name].results[0]), given)


def test_results_before_a_fit(name):
    for method in ENTRIES[name].results:
        with pytest.raises(NotFittedError, match="not fitted"):
            getattr(ENTRIES[name].make(), method)(example(name))


@pytest.mark.parametrize("bad", [{"random_state": -1}, {"random_state": "seed"}, {"retries": -1}, {"retries": 0.5}])
def test_parameters_that_are_none(name, bad):
    refused(DCAError, next(iter(bad)), ENTRIES[name].make(**bad).fit, example(name))


@pytest.mark.parametrize("bad", [np.array([1.0, 2.0]), np.ones((40, 5)), object(), b"x", 1j])
def test_no_parameter_of_another_kind_is_anything_but_one_short_line(name, bad):
    X = example(name)
    for parameter in ENTRIES[name].make().get_params():
        if parameter in ("verbose", "checkpoint"):  # any value is one
            continue
        try:
            ENTRIES[name].make().set_params(**{parameter: bad}).fit(X)
            said = ""
        except DCAError as error:
            said = str(error)
        assert "\n" not in said, parameter
        assert len(said) < 1300, parameter


RAGGED = [[[1, 2], [3]], [np.ones((3, 2)), np.ones((2, 3))], [None, [1]]]


@pytest.mark.parametrize("given", RAGGED)
def test_what_is_said_of_rows_is_an_array(name, given):
    for argument in inspect.signature(ENTRIES[name].make().fit).parameters.keys() & {
        "lengths",
        "groups",
        "sample_weight",
    }:
        refused(InvalidInputError, argument, ENTRIES[name].make().fit, example(name), **{argument: given})


def test_blocks_that_are_not_as_declared_are_named(name):
    X = example(name)
    given = da.from_array(X, chunks=(20, -1))
    spoilt = given.map_blocks(
        lambda block, block_id: block[:-1] if block_id[0] == 2 else block, dtype=X.dtype, meta=X[:0]
    )
    refused(InvalidInputError, "the block of rows 40 to 59", ENTRIES[name].make().fit, spoilt)
    refused(InvalidInputError, "the block of rows 40 to 59", getattr(fitted(name), ENTRIES[name].results[0]), spoilt)


def test_lazy_data_have_lazy_results_and_nothing_is_computed_before(name):
    from tests.conftest import raise_if_dask_computes

    lazy = da.from_array(example(name), chunks=(40, -1))
    if ENTRIES[name].results[0] == "predict" and ENTRIES[name].sequences and name != "KalmanFilter":
        pytest.skip("paths need the last frame first")
    with raise_if_dask_computes():
        found = getattr(fitted(name), ENTRIES[name].results[0])(lazy)
    assert isinstance(found[0] if isinstance(found, tuple) else found, da.Array)


def test_names_of_features_are_kept_and_compared(name):
    X = example(name)
    table = pd.DataFrame(X, columns=[f"feature {j}" for j in range(X.shape[1])])
    model = ENTRIES[name].make().fit(table)
    assert model.feature_names_in_.tolist() == list(table)
    named = fitted_bytes(model)
    named.pop("feature_names_in_")
    assert named == fitted_bytes(fitted(name))
    assert result_bytes(name, model, table).keys() == result_bytes(name, fitted(name), X).keys()
    with pytest.raises(ValueError, match=r"(?s)feature names.*x"):  # scikit-learn's own lines
        getattr(model, ENTRIES[name].results[0])(table.rename(columns={"feature 0": "x"}))


def test_the_data_are_not_written_to(name):
    X = example(name).copy()
    before = X.tobytes()
    model = ENTRIES[name].make().fit(X)
    result_bytes(name, model, X)
    assert X.tobytes() == before
    assert isinstance(model, getattr(dca, name))
