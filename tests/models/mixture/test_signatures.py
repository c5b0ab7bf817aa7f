"""Signatures: the features themselves, or the sample's leading principal directions."""

import dask.array as da
import numpy as np
import pytest

from dask_dca.engine.passes import Run
from dask_dca.engine.rows import as_rows
from dask_dca.models.mixture.signatures import find_signatures
from dask_dca.models.mixture.start import take_sample

SCALES = np.array([9.0, 4.0, 1.0] + 60 * [0.1])


def signatures(X, k, **options):
    rows = as_rows(X)
    return find_signatures(take_sample(rows, k, Run()), k, run=Run(), **options)


def test_few_features_are_their_own_signatures():
    X = np.random.default_rng(0).standard_normal((400, 8)) + 5.0
    found = signatures(X, 2, scaled=False)
    np.testing.assert_allclose(found.of(X), X - X.mean(axis=0), atol=1e-12)


@pytest.mark.parametrize("chunks", [(2000, 63), ((3, 0, 1997), (20, 43))])
def test_of_many_features_the_leading_principal_directions_are_taken(chunks):
    X = np.random.default_rng(0).standard_normal((2000, 63)) * SCALES + 7.0
    found = signatures(da.from_array(X, chunks=chunks), 1, scaled=False)
    assert found.coordinates.shape == (63, 12)
    U = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)[2]
    np.testing.assert_allclose(np.abs(found.coordinates[:, :3].T @ U[:3].T), np.eye(3), atol=1e-6)
    np.testing.assert_allclose(found.of(X).mean(axis=0), 0.0, atol=1e-9)


def test_scaling_brings_features_nearer_to_each_other_and_leaves_those_that_hardly_vary_small():
    X = np.random.default_rng(0).standard_normal((2000, 3)) * np.array([100.0, 1.0, 1e-6])
    spread = signatures(X, 1, scaled=True).of(X).std(axis=0)
    assert 0.5 < spread[0] < 1.0
    assert spread[0] > spread[1] > 1e-3
    assert spread[2] < 1e-6
