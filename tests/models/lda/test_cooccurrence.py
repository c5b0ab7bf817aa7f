"""The operator against its matrix, written out."""

import dask.array as da
import numpy as np
import pytest

from dask_dca.engine.passes import Run
from dask_dca.engine.rows import as_rows
from dask_dca.models.lda.corpus import Cooccurrence, take_census


@pytest.mark.parametrize("by_length", [True, False])
def test_products_are_those_of_the_matrix(by_length):
    rng = np.random.default_rng(0)
    X = rng.poisson(0.7, (80, 12)).astype(float)
    X[3], X[5], X[:, 7] = 0, np.eye(12)[2], 0
    used = X[X.sum(axis=1) >= 2]
    m = used.sum(axis=1)[:, None]
    weights = (m if by_length else np.ones_like(m)) / (m * (m - 1))
    Q = (used.T @ (weights * used) - np.diag((weights * used).sum(axis=0))) / (m.sum() if by_length else len(used))
    rows = as_rows(da.from_array(X, chunks=(13, 5)))
    census = take_census(rows, Run())
    operator = Cooccurrence(rows, Run(), census, by_length)
    B = rng.standard_normal((12, 3))
    np.testing.assert_allclose(operator @ B, Q @ B, atol=1e-8)
    np.testing.assert_allclose((operator @ np.eye(12)).sum(), 1.0)
    assert (census.n_used, census.n_empty) == (len(used), int((X.sum(axis=1) == 0).sum()))
    np.testing.assert_array_equal(census.documents, (used > 0).sum(axis=0))
