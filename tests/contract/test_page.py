"""The tables of docs/api.md that say what each model has, against the models."""

import inspect
import re

import numpy as np
import pytest

import dask_dca as dca
from dask_dca import errors
from tests.conftest import ROOT
from tests.contract.entries import ENTRIES, NAMES, example, fitted

PAGE = (ROOT / "docs" / "api.md").read_text()
ROWS = [re.split(r" \| ", line.strip("| ")) for line in PAGE.splitlines() if line.startswith("| `")]
HAS = {row[0].strip("`"): row[1:] for row in ROWS if len(row) == 6}
SIGNATURES = {row[0].strip("`"): row[1:] for row in ROWS if len(row) == 4}
TIMES = {"total": 2.0, "norm of all rows": np.sqrt(2.0), "mean per row": 1.0, "mean per word": 1.0}  # of twice the rows


def without_annotations(method):
    of = inspect.signature(method).parameters.values()
    return str(inspect.Signature([one.replace(annotation=one.empty) for one in of if one.name != "self"]))


def test_all_models_are_in_both_tables():
    assert set(HAS) == set(SIGNATURES) == set(NAMES)


def test_signatures(name):
    model = getattr(dca, name)
    said = re.findall(r"`(\w+)(\([^`]*\))`", " ".join(SIGNATURES[name]))
    assert len(said) >= 2
    assert said == [(method, without_annotations(getattr(model, method))) for method, _ in said]
    methods = {method for method, _ in said}
    for method in ("partial_fit", "sample", "score", "predict", "transform"):
        assert (method in methods) == hasattr(model, method), method


def test_the_unit_of_a_score(name):
    model, X = fitted(name), example(name)
    unit = HAS[name][0].rpartition(": ")[2]
    assert (unit == "-") == (not hasattr(model, "score"))
    if unit != "-":
        apart = {"lengths": [len(X), len(X)]} if ENTRIES[name].sequences else {}
        once, twice = model.score(X), model.score(np.vstack([X, X]), **apart)
        assert twice == pytest.approx(TIMES[unit] * once, rel=1e-6)


def test_results_and_attributes_have_their_shapes(name):
    model, X = fitted(name), example(name)
    k = next(getattr(model, of) for of in ("n_clusters_", "n_dim_state_", "n_components_") if hasattr(model, of))
    sizes = {"n": len(X), "p": X.shape[1], "k": k, "v": getattr(model, "n_symbols_", None)}
    found = re.findall(r"`(\w+)` \(([nkpv, ]+)\)", " ".join(HAS[name][1:3]))
    assert len(found) >= 2
    for what, letters in found:
        value = getattr(model, what)
        value = value(X) if callable(value) else value
        shape = (len(value),) if isinstance(value, list) else np.shape(value)
        assert shape == tuple(sizes[letter] for letter in re.findall(r"\w", letters)), what


@pytest.mark.filterwarnings("ignore::dask_dca.errors.MissingEntriesWarning")
def test_weights_and_missing_entries(name):
    assert (HAS[name][3] == "yes") == ("sample_weight" in inspect.signature(getattr(dca, name).fit).parameters)
    X = example(name).astype(float)
    X[7, 0] = np.nan
    if HAS[name][4] == "accepted":
        ENTRIES[name].make().fit(X)
    else:
        with pytest.raises(errors.DCAError):
            ENTRIES[name].make().fit(X)
