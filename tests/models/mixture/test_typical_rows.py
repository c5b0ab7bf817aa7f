"""The row that is most typical of a component: the first one among equals, wherever blocks are cut."""

import dask
import dask.array as da
import numpy as np
import pytest

import dask_dca as dca
from dask_dca.engine.passes import Run
from dask_dca.engine.rows import as_rows
from dask_dca.models.gaussians import log_densities, prepare_gaussians
from dask_dca.models.mixture.densities import Densities
from dask_dca.models.mixture.passes import e_step_pass

RNG = np.random.default_rng(0)
CENTRES = np.array([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0]])
X = CENTRES[RNG.permutation(np.repeat(np.arange(3), 40))] + RNG.standard_normal((120, 2))
COPIES = np.tile(X, (4, 1))


@pytest.fixture(autouse=True)
def synchronous():
    with dask.config.set(scheduler="synchronous"):
        yield


@pytest.mark.parametrize("chunk", [480, 120, 37])
def test_the_first_of_equal_rows_is_nearest(chunk):
    weights = np.array([0.98, 0.01, 0.01])  # they play no part: a row is typical by its density
    gaussians = prepare_gaussians(CENTRES, np.ones((3, 2)), "diag")
    rows = as_rows(da.from_array(COPIES, chunks=(chunk, -1)))
    found = e_step_pass(rows, Densities(gaussians, np.log(weights), 64), np.full(2, 4.0), Run()).nearest
    np.testing.assert_array_equal(found, log_densities(gaussians, X).argmax(axis=0))


@pytest.mark.parametrize("chunk", [480, 120, 37])
def test_anchors_are_the_first_of_equal_rows(chunk):
    found = dca.GaussianMixture(3).fit(da.from_array(COPIES, chunks=(chunk, -1))).anchor_indices_
    assert (found < len(X)).all()
