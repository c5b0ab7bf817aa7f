"""A saved, pickled or cloned model is the model."""

import json
import pickle
import re

import numpy as np
import pytest
import zarr
from click.testing import CliRunner
from sklearn.base import clone

import dask_dca as dca
from dask_dca._registry import MODELS
from dask_dca.cli.main import main
from dask_dca.errors import DCAError
from tests.contract.entries import ENTRIES, as_bytes, example, example_results, fitted, fitted_bytes, result_bytes


def test_a_saved_model_comes_back_as_it_was(name, tmp_path):
    model, X = fitted(name), example(name)
    model.save(str(tmp_path / "model.zarr"))
    again = dca.load_model(tmp_path / "model.zarr")
    assert type(again) is type(model)
    assert again.get_params() == model.get_params()
    assert fitted_bytes(again) == fitted_bytes(model)
    assert result_bytes(name, again, X) == example_results(name)
    with pytest.raises(DCAError, match="exists"):
        again.save(str(tmp_path / "model.zarr"))
    assert fitted_bytes(again.fit(X)) == fitted_bytes(model)


def test_a_pickle_is_small_and_plain(name):
    model = fitted(name)
    state = pickle.dumps(model)
    assert b"dask.array" not in state
    assert b"distributed" not in state
    assert fitted_bytes(pickle.loads(state)) == fitted_bytes(model)


def test_a_clone_has_the_parameters_and_nothing_of_the_fit(name):
    copy = clone(fitted(name))
    assert copy.get_params() == fitted(name).get_params()
    assert not fitted_bytes(copy)


def test_every_fitted_attribute_is_told_in_the_docstring(name):
    missing = [key for key in fitted_bytes(fitted(name)) if not re.search(rf"\b{key}\b", type(fitted(name)).__doc__)]
    common = {"n_features_in_", "n_passes_", "feature_names_in_"}
    assert not set(missing) - common, missing


@pytest.mark.usefixtures("unlaid")
def test_a_page_of_each_model(name):
    page = dca.report(fitted(name))
    assert page.lower().startswith("<!doctype html>")
    assert MODELS[name].title in page


def test_the_command_line_fits_tells_and_transforms_alike(name, tmp_path, monkeypatch):
    entry, X = ENTRIES[name], example(name)
    if not entry.command:
        pytest.skip("no command of the table of fits")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DASK_SCHEDULER_ADDRESS", raising=False)
    zarr.create_array("X.zarr", data=np.asarray(X), chunks=(50, X.shape[1]))

    def run(*words):
        done = CliRunner().invoke(main, [str(word) for word in words])
        assert done.exit_code == 0, done.output
        return done.stdout

    command, *options = entry.command.split()
    lengths = [len(X) - 50, 50] if entry.sequences else None
    sequences = ["--lengths", ",".join(map(str, lengths))] if lengths else []
    described = run("fit", command, "X.zarr", "-k", 3, "-o", "model.zarr", *options, *sequences)
    assert "Saved as model.zarr" in described
    model = dca.load_model("model.zarr")
    facts = json.loads(run("info", "model.zarr", "--json"))
    assert (facts["model"], facts["n_features"]) == (name, X.shape[1])
    assert run("info", "model.zarr") in described
    parameters = model.get_params()
    assert fitted_bytes(type(model)(**parameters).fit(X, **entry.given(lengths))) == fitted_bytes(model)
    written = run("transform", "model.zarr", "X.zarr", "-o", "out.zarr", *sequences)
    expected = np.asarray(getattr(model, model._per_row)(X, **entry.given(lengths))).reshape(len(X), -1)
    assert f"{len(X)} rows of {expected.shape[1]} numbers" in written
    np.testing.assert_allclose(zarr.open_array("out.zarr")[...], expected, atol=1e-9)


def test_results_of_float32_and_integers_are_finite(name):
    X, model = example(name), fitted(name)
    rounded = np.rint(X).astype(np.int32) if ENTRIES[name].kind != "cones" else np.rint(20 * X).astype(np.int32)
    for given in (X.astype(np.float32), rounded):
        for method in ENTRIES[name].results:
            found = getattr(model, method)(given)
            for part in found if isinstance(found, tuple) else (found,):
                assert np.isfinite(np.asarray(part)).all(), (method, given.dtype)


def test_as_bytes_tells_results_apart(name):
    """What all contracts rest on."""
    assert as_bytes(np.array([0.0])) != as_bytes(np.array([-0.0]))
    changed = example(name)[::-1]
    assert result_bytes(name, fitted(name), changed) != example_results(name)
