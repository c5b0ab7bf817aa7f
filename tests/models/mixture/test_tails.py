"""Tails along directions, both ways: what plain NumPy finds, for any chunking."""

import dask.array as da
import numpy as np
import pytest

from dask_dca.engine.passes import Run
from dask_dca.engine.rows import as_rows
from dask_dca.models.mixture.passes import Scaling, tail_means

RNG = np.random.default_rng(0)
X = RNG.integers(-50, 51, size=(2500, 3)).astype(np.float64)  # whole numbers: heights tie, sums are exact
X[[7, 900]] = X[[1700, 1700]] = [60.0, 60.0, 60.0]  # furthest along the first direction, three times
AXES = np.array([[1.0, 1.0, 1.0], [1.0, 0.0, -2.0], [0.0, 1.0, 0.0]])
LOW, HIGH = np.array([-90.0, -80.0, -1000.0]), np.array([100.0, 75.0, 45.0])  # no row is below the last threshold
PLAIN = Scaling(np.zeros(3), np.ones(3), np.ones(3))


@pytest.fixture(scope="module", params=[2500, (3, 0, 1697, 800), 100], ids=["whole", "irregular", "even"])
def tails(request):
    rows = as_rows(da.from_array(X, chunks=(request.param, 3)))
    return tail_means(rows, PLAIN, np.eye(3), np.zeros(3), np.full(3, 30.0), AXES, LOW, HIGH, Run())


def test_the_furthest_rows_are_found_both_ways_the_first_among_equals(tails):
    heights = X @ AXES.T
    np.testing.assert_array_equal(tails.extremes.keys, [*heights.max(axis=0), *-heights.min(axis=0)])
    np.testing.assert_array_equal(tails.extremes.rows, [*heights.argmax(axis=0), *heights.argmin(axis=0)])
    assert tails.extremes.rows[0] == 7
    np.testing.assert_array_equal(tails.extremes.values, X[tails.extremes.rows])


def test_rows_from_the_thresholds_on_are_averaged(tails):
    heights = X @ AXES.T
    within = [*(heights >= HIGH).T, *(heights <= LOW).T]
    np.testing.assert_array_equal(tails.sums.value()[:, -1], [some.sum() for some in within])
    means = [X[some].mean(axis=0) for some in within[:-1]]
    np.testing.assert_allclose(tails.means()[:-1], means, rtol=1e-12)
    assert (heights == HIGH).any()  # rows on a threshold belong to the tail
    np.testing.assert_array_equal(tails.means()[-1], X[heights[:, 2].argmin()])  # nobody is beyond: the furthest itself
