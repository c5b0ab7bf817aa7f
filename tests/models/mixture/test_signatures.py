"""Moments of the rows' signatures: what plain NumPy finds, about the mean, for any chunking."""

import dask
import dask.array as da
import numpy as np
import pytest

from dask_dca.engine.passes import Run
from dask_dca.engine.rows import as_rows
from dask_dca.models.mixture.passes import Scaling
from dask_dca.models.mixture.signatures import signature_moments


@pytest.mark.parametrize("chunks", [(400, 5), ((3, 0, 297, 100), (2, 3))])
def test_signatures_have_numpys_mean_and_covariance(chunks):
    rng = np.random.default_rng(0)
    X, bases, spreads = 7.0 + rng.standard_normal((400, 5)), rng.standard_normal((5, 3)), np.array([1.0, 3.0, 0.5])
    plain = Scaling(np.zeros(5), np.ones(5), np.ones(5))
    with dask.config.set(scheduler="synchronous"):
        mean, covariance = signature_moments(as_rows(da.from_array(X, chunks=chunks)), plain, bases, spreads, Run())
    np.testing.assert_allclose(mean, (X @ bases).mean(axis=0), rtol=1e-6)
    np.testing.assert_allclose(covariance, np.cov((X @ bases).T, bias=True), atol=1e-3)
