"""What docs/developing/index.md says that a fit calls, in this order, is what it calls."""

import re
import sys
from pathlib import Path

import dask.array as da

import dask_dca
from tests.conftest import ROOT
from tests.contract.entries import ENTRIES, NAMES, example

PACKAGE = Path(dask_dca.__file__).parent
PAGE = (ROOT / "docs" / "developing" / "index.md").read_text()
SAID = {
    model: re.findall(r"^\d+\. `([^`:]+):([^`]+)`", lines, re.MULTILINE)
    for model, lines in re.findall(r"^### (\w+)\n\n((?:\d+\. .*\n)+)", PAGE, re.MULTILINE)
}


def called(name):
    """Functions of the package in the order of their first calls, while a model is fitted to chunked data."""
    order = {}

    def note(frame, event, _):
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(f"{PACKAGE}/"):
            order.setdefault((code.co_filename.removeprefix(f"{PACKAGE}/"), code.co_qualname))

    X = da.from_array(example(name), chunks=(40, -1))
    sys.setprofile(note)
    try:
        ENTRIES[name].make().fit(X)
    finally:
        sys.setprofile(None)
    return list(order)


def test_every_model_has_its_calls():
    assert set(SAID) == set(NAMES)
    assert all(6 <= len(calls) <= 12 for calls in SAID.values())


def test_a_fit_calls_these_in_this_order(name):
    order = called(name)
    assert not [call for call in SAID[name] if call not in order]
    places = [order.index(call) for call in SAID[name]]
    assert places == sorted(places), [SAID[name][i] for i in range(1, len(places)) if places[i] < places[i - 1]]
