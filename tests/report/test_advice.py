"""What a page advises: not to leave the right number of anchors for a worse one."""

import numpy as np
import pytest

import dask_dca as dca
from dask_dca.reporting.nmf import _warnings


def planted(seed):
    """3,000 rows of 12 features, mixed from four profiles, with noise: pure rows are among them."""
    rng = np.random.default_rng(seed)
    shares = np.vstack([np.eye(4), rng.dirichlet(np.full(4, 0.4), 2_996)])
    X = shares @ rng.random((4, 12)) * 10 + 0.2 * rng.standard_normal((3_000, 12))
    return np.abs(rng.permutation(X))


@pytest.mark.parametrize("seed", range(3))
def test_the_right_number_of_anchors_is_not_advised_away(seed):
    model = dca.NMF(4).fit(planted(seed))
    assert not [line for line in _warnings(model) if "compare fits with more" in line]
    assert model.explained_variance_ratio_ > 0.95


@pytest.mark.parametrize("seed", range(3))
def test_too_many_anchors_are_not_advised_to_be_more(seed):
    X = planted(seed)
    right, many = dca.NMF(4).fit(X), dca.NMF(6).fit(X)
    assert many.coverage_ < right.coverage_
    assert [line for line in _warnings(many) if "more anchors than the data have" in line]
    assert not [line for line in _warnings(many) if "compare fits with more" in line]


@pytest.mark.parametrize("seed", range(3))
def test_too_few_anchors_are_advised_to_be_more(seed):
    assert [line for line in _warnings(dca.NMF(3).fit(planted(seed))) if "compare fits with more" in line]
