"""The first look at the data: the sample's rows are those of its numbers, whatever can't be used."""

import dask
import dask.array as da
import numpy as np
import pytest

from dask_dca.anchoring import preprocess as view
from dask_dca.engine.passes import Run
from dask_dca.engine.rows import as_rows
from tests.conftest import planted


@pytest.mark.parametrize("sampled", [False, True])
@pytest.mark.parametrize("chunks", [None, 37])
def test_row_numbers_of_the_sample_are_those_of_its_usable_rows(monkeypatch, sampled, chunks):
    X, _ = planted(400, 6, 3)
    X[::3] = 0.0  # no place on the axis
    if sampled:
        monkeypatch.setattr(view, "_SAMPLE_RUNS", (8, 6))
        monkeypatch.setattr(view, "_MOMENT_ROWS", (60, 1, 120))
        monkeypatch.setattr(view, "_MIN_MOMENT_RUNS", 8)
    rows = as_rows(X if chunks is None else da.from_array(X, chunks=(chunks, 4)))
    with dask.config.set(scheduler="synchronous"):
        found = view.prepare_subspaces(rows, Run(), nonnegative=True).view
    assert len(found.numbers) == len(found.raw) == len(found.scaled)
    np.testing.assert_array_equal(X[found.numbers], found.raw)
    assert (len(found.numbers) < 200) == sampled
