"""The rows furthest out along directions, both ways: what plain NumPy finds, for any chunking."""

import dask.array as da
import numpy as np
import pytest

from dask_dca.engine.passes import Run
from dask_dca.engine.rows import as_rows
from dask_dca.models.mixture.passes import furthest_rows

RNG = np.random.default_rng(0)
X = RNG.integers(-50, 51, size=(2500, 3)).astype(np.float64)  # whole numbers: heights tie, sums are exact
X[[7, 900]] = X[[1700, 1700]] = [60.0, 60.0, 60.0]  # furthest along the first direction, three times
AXES = np.array([[1.0, 1.0, 1.0], [1.0, 0.0, -2.0], [0.0, 1.0, 0.0]])


@pytest.mark.parametrize("chunk", [2500, (3, 0, 1697, 800), 100], ids=["whole", "irregular", "even"])
def test_the_furthest_rows_are_found_both_ways_the_first_among_equals(chunk):
    rows, centre = as_rows(da.from_array(X, chunks=(chunk, 3))), np.array([1.0, -2.0, 3.0])
    found, heights = furthest_rows(rows, centre, np.eye(3), AXES, Run()), (X - centre) @ AXES.T
    np.testing.assert_array_equal(found.keys, [*heights.max(axis=0), *-heights.min(axis=0)])
    np.testing.assert_array_equal(found.rows, [*heights.argmax(axis=0), *heights.argmin(axis=0)])
    assert found.rows[0] == 7
    np.testing.assert_array_equal(found.values, X[found.rows] - centre)
