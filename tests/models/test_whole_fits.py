"""A fit that fails or is interrupted leaves the model as it was; all six models."""

import threading

import dask.array as da
import numpy as np
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

import dask_dca as dca
from tests.models.every_model import MODELS, as_bytes, fitted_bytes


def broken(X):
    """Other columns, and an infinity in the last block: all checks at the entrance pass."""
    other = np.hstack([X, X[:, :2]])
    other[-1, 0] = np.inf
    return da.from_array(other, chunks=(len(X) // 2, -1))


def interrupted(X):
    """Data of the same kind, whose reading is interrupted."""
    seen = []

    def read(block):
        if block.size:
            seen.append(len(block))
        if len(seen) > 1:  # the second block
            raise KeyboardInterrupt
        return block

    return da.from_array(X * 2.0, chunks=(len(X) // 2, -1)).map_blocks(read, dtype=X.dtype, meta=np.empty((0, 0)))


@pytest.fixture(params=MODELS)
def case(request):
    make, data, methods = MODELS[request.param]
    return make, data(), methods


@pytest.fixture(autouse=True)
def _one_thread():
    import dask

    with dask.config.set(scheduler="synchronous"):
        yield


@pytest.mark.parametrize("fault", [broken, interrupted])
def test_a_refit_that_fails_leaves_the_model_as_it_was(case, fault, tmp_path):
    make, X, methods = case
    model = make().fit(X)
    before, answers = fitted_bytes(model), [as_bytes(getattr(model, name)(X)) for name in methods]
    model.save(str(tmp_path / "model.zarr"))
    with pytest.raises((dca.errors.DCAError, KeyboardInterrupt)):
        model.fit(fault(X))
    assert fitted_bytes(model) == before
    assert [as_bytes(getattr(model, name)(X)) for name in methods] == answers
    model.save(str(tmp_path / "model.zarr"), overwrite=True)
    again = dca.load_model(str(tmp_path / "model.zarr"))
    assert [as_bytes(getattr(again, name)(X)) for name in methods] == answers


@pytest.mark.parametrize("fault", [broken, interrupted])
def test_a_first_fit_that_fails_leaves_nothing(case, fault, tmp_path):
    make, X, _ = case
    model = make()
    empty = dict(vars(model))
    with pytest.raises((dca.errors.DCAError, KeyboardInterrupt)):
        model.fit(fault(X))
    assert vars(model) == empty
    with pytest.raises(NotFittedError):
        check_is_fitted(model)
    with pytest.raises(NotFittedError):
        model.save(str(tmp_path / "model.zarr"))


def test_while_a_refit_runs_other_threads_are_answered_by_the_earlier_fit(case):
    make, X, methods = case
    model = make().fit(X)
    answer, seen = as_bytes(getattr(model, methods[0])(X)), []

    def look(block):
        if block.size:
            other = threading.Thread(target=lambda: seen.append(as_bytes(getattr(model, methods[0])(X))))
            other.start()
            other.join()
        return block

    wide = np.hstack([X, X[:, :1]])
    model.fit(da.from_array(wide, chunks=(len(X) // 2, -1)).map_blocks(look, dtype=X.dtype, meta=np.empty((0, 0))))
    assert seen
    assert set(seen) == {answer}
    assert model.n_features_in_ == X.shape[1] + 1


def test_a_refit_keeps_nothing_of_the_earlier_fit(tmp_path):
    X = MODELS["kalman"][1]()
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

    X = MODELS["nmf"][1]()
    model = Noted(3).fit(X).fit(X[:50])
    assert model.n_rows_ == 50
