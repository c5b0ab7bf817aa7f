"""A fit that fails or is interrupted leaves the model as it was."""

import threading
from copy import deepcopy

import dask.array as da
import numpy as np
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

import dask_dca as dca
from tests.contract.entries import ENTRIES, as_bytes, data, example, example_results, fitted, fitted_bytes, result_bytes


def broken(name):
    """Other columns, and something that is no number in the last block: all checks at the entrance pass."""
    if ENTRIES[name].kind == "symbols":
        other = data("symbols", 160, 9, np.random.default_rng(1)).astype(float)
    else:
        other = np.hstack([example(name), example(name)[:, :2]])
    other[-1, 0] = np.inf
    return da.from_array(other, chunks=(len(other) // 2, -1))


def interrupted(name):
    """Data of the same kind, whose reading is interrupted."""
    X, seen = example(name), []

    def read(block):
        if block.size:
            seen.append(len(block))
        if len(seen) > 1:  # the second block
            raise KeyboardInterrupt
        return block

    return da.from_array(X[::-1], chunks=(len(X) // 2, -1)).map_blocks(read, dtype=X.dtype, meta=np.empty((0, 0)))


@pytest.mark.parametrize("fault", [broken, interrupted])
def test_a_refit_that_fails_leaves_the_model_as_it_was(name, fault, tmp_path):
    model, X = deepcopy(fitted(name)), example(name)
    model.save(str(tmp_path / "model.zarr"))
    with pytest.raises((dca.errors.DCAError, KeyboardInterrupt)):
        model.fit(fault(name))
    assert fitted_bytes(model) == fitted_bytes(fitted(name))
    assert result_bytes(name, model, X) == example_results(name)
    model.save(str(tmp_path / "model.zarr"), overwrite=True)
    assert result_bytes(name, dca.load_model(str(tmp_path / "model.zarr")), X) == example_results(name)


@pytest.mark.parametrize("fault", [broken, interrupted])
def test_a_first_fit_that_fails_leaves_nothing(name, fault, tmp_path):
    model = ENTRIES[name].make()
    empty = dict(vars(model))
    with pytest.raises((dca.errors.DCAError, KeyboardInterrupt)):
        model.fit(fault(name))
    assert vars(model) == empty
    with pytest.raises(NotFittedError):
        check_is_fitted(model)
    with pytest.raises(NotFittedError):
        model.save(str(tmp_path / "model.zarr"))
    with pytest.raises(NotFittedError):
        result_bytes(name, model, example(name))


def test_while_a_refit_runs_other_threads_are_answered_by_the_earlier_fit(name):
    X, method = example(name), ENTRIES[name].results[0]
    model = ENTRIES[name].make().fit(X)
    answer, seen = as_bytes(getattr(model, method)(X)), []

    def look(block):
        if block.size:
            other = threading.Thread(target=lambda: seen.append(as_bytes(getattr(model, method)(X))))
            other.start()
            other.join()
        return block

    other = X[: 3 * len(X) // 4]
    model.fit(da.from_array(other, chunks=(len(X) // 2, -1)).map_blocks(look, dtype=X.dtype, meta=np.empty((0, 0))))
    assert seen
    assert set(seen) == {answer}
    assert fitted_bytes(model) == fitted_bytes(ENTRIES[name].make().fit(other)) != fitted_bytes(fitted(name))


def test_a_refit_keeps_nothing_of_the_earlier_fit(tmp_path):
    X = example("KalmanFilter")
    first = dca.KalmanFilter(2, max_iter=1).fit(X)
    assert hasattr(first, "log_likelihoods_")
    first.save(str(tmp_path / "model.zarr"))
    for model in (first, dca.load_model(str(tmp_path / "model.zarr"))):
        model.set_params(method="paper").fit(X)
        assert fitted_bytes(model) == fitted_bytes(dca.KalmanFilter(2, max_iter=1, method="paper").fit(X))


def test_what_a_subclass_sets_is_kept():
    class Noted(dca.NMF):
        def fit(self, X, y=None):
            self.n_rows_ = len(X)
            return super().fit(X, y)

    X = example("NMF")
    model = Noted(3).fit(X).fit(X[:50])
    assert model.n_rows_ == 50
