"""The list is whole: each model of the library has an entry, and nothing in it is of a model that is gone."""

from dask_dca._registry import MODELS
from tests.contract.entries import ENTRIES, example, fitted


def test_every_model_has_an_entry():
    assert set(ENTRIES) == set(MODELS)


def test_an_entry_makes_its_model(name):
    assert type(ENTRIES[name].make()).__name__ == name


def test_its_results_see_rows_or_all_of_them(name):
    for method in ENTRIES[name].results:
        found = getattr(fitted(name), method)(example(name))
        parts = found if isinstance(found, tuple) else (found,)
        assert all(part is not None for part in parts)
