"""The rows furthest out along directions, both ways: what plain NumPy finds, for any chunking."""

import dask.array as da
import numpy as np
import pytest

from dask_dca.engine.passes import Run
from dask_dca.engine.rows import as_rows
from dask_dca.models.gaussians import prepare_gaussians
from dask_dca.models.mixture.densities import Densities
from dask_dca.models.mixture.furthest import FurthestRows, TailDirections
from dask_dca.models.mixture.passes import e_step_pass

RNG = np.random.default_rng(0)
X = RNG.integers(-50, 51, size=(2500, 3)).astype(np.float64)  # whole numbers: heights tie, sums are exact
X[[7, 900]] = X[[1700, 1700]] = [60.0, 60.0, 60.0]  # furthest along the first direction, three times
AXES = np.array([[1.0, 1.0, 1.0], [1.0, 0.0, -2.0], [0.0, 1.0, 0.0]])


def furthest_rows(rows, centre, axes, spread=40.0):
    gaussians = prepare_gaussians(np.zeros((1, 3)) + spread / 40.0, np.full((1, 3), 900.0), "diag", np.zeros(3))
    densities = Densities(gaussians, np.zeros(1), 64)
    return e_step_pass(
        rows, densities, np.full(3, spread), Run(), directions=TailDirections(centre, np.eye(3), axes)
    ).furthest


@pytest.mark.parametrize("chunk", [2500, (3, 0, 1697, 800), 100], ids=["whole", "irregular", "even"])
def test_the_furthest_rows_are_found_both_ways_the_first_among_equals(chunk):
    rows, centre = as_rows(da.from_array(X, chunks=(chunk, 3))), np.array([1.0, -2.0, 3.0])
    found, heights = furthest_rows(rows, centre, AXES), (X - centre) @ AXES.T
    np.testing.assert_array_equal(found.keys, [*heights.max(axis=0), *-heights.min(axis=0)])
    np.testing.assert_array_equal(found.rows, [*heights.argmax(axis=0), *heights.argmin(axis=0)])
    assert found.rows[0] == 7
    np.testing.assert_array_equal(found.values, X[found.rows] - centre)


@pytest.mark.parametrize("size", [1e-100, 1e-3, 1.0, 1e100])
def test_no_row_is_missed_for_the_single_precision_of_the_screening(size):
    rng = np.random.default_rng(1)
    rows = rng.standard_normal((640, 5))
    rows = size * rows / np.sqrt((rows**2).sum(axis=1, keepdims=True))  # all of one length: many are nearly highest
    rows[100:] = rows[:540] * (1.0 + 1e-12 * rng.standard_normal((540, 1)))
    axes = np.vstack([rng.standard_normal((20, 5)), rows[:20] / size])
    found = FurthestRows(TailDirections(np.zeros(5), np.eye(5), axes))
    for begin in range(0, 640, 64):
        found.add(rows[begin : begin + 64], np.arange(begin, begin + 64))
    heights, best = rows @ axes.T, found.total()
    np.testing.assert_allclose(best.keys, [*heights.max(axis=0), *-heights.min(axis=0)], rtol=1e-14)
    np.testing.assert_array_equal(best.values, rows[best.rows])


def test_components_far_from_the_centre_leave_the_furthest_rows_alone():
    rows = as_rows(X)
    near, far = (furthest_rows(rows, np.zeros(3), AXES, spread) for spread in (40.0, 1e7))
    np.testing.assert_array_equal(near.rows, far.rows)
    np.testing.assert_array_equal(near.keys, far.keys)
