"""Weights of rows: a whole number is so many copies, whatever the chunks; a small cluster comes into the sample."""

import dask.array as da
import numpy as np
import pytest
from scipy import sparse

import dask_dca as dca
from dask_dca.errors import InvalidInputError, InvalidParameterError
from dask_dca.models.subspace import fit as recipe
from tests.contract.entries import fitted_bytes


def cones(n=400, k=3, p=24, seed=0, small=None):
    """Rows of k cones about one centre, and their cones; of the last one only so many."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(k, size=n)
    if small is not None:
        labels = np.where(np.arange(n) < small, k - 1, rng.integers(k - 1, size=n))
    centre = rng.standard_normal(p)
    rays = centre + 3.0 * rng.standard_normal((k, 4, p))
    X = np.einsum("ij,ijp->ip", rng.random((n, 4)), rays[labels]) + 0.1 * rng.standard_normal((n, p))
    order = rng.permutation(n)
    return X[order], labels[order], rng.integers(0, 4, n)


def fitted(X, weights=None, **options):
    return dca.SubspaceClustering(3, n_components=12, **options).fit(X, sample_weight=weights)


@pytest.mark.parametrize("options", [{}, {"max_iter": 0}, {"damping": 0.25}])
@pytest.mark.parametrize("sample", [None, 256])
def test_whole_weights_are_copies(options, sample, monkeypatch):
    if sample is not None:  # fewer rows than there are
        monkeypatch.setattr(recipe, "_MAX_SAMPLE_ROWS", sample)
    X, _, weights = cones()
    one, copied = fitted(X, weights, **options), fitted(np.repeat(X, weights, axis=0), **options)
    assert one.anchor_indices_.tolist() == np.repeat(np.arange(len(X)), weights)[copied.anchor_indices_].tolist()
    for name in ("anchor_clusters_", "votes_", "components_", "sketch_", "bases_", "spectrum_", "cluster_sizes_"):
        np.testing.assert_array_equal(getattr(one, name), getattr(copied, name), err_msg=name)
    np.testing.assert_array_equal(one.predict(X), copied.predict(X))
    np.testing.assert_array_equal(one.labels_, np.where(weights > 0, one.predict(X), -1))
    assert one.cluster_sizes_.sum() == weights.sum()
    assert one.n_zero_rows_ == 0
    assert abs(one.sketch_ - fitted(X, **options).sketch_).max() > 1e-3  # which weights do change


@pytest.mark.parametrize("scale", [1.0, 0.37])
def test_any_chunks_of_data_and_weights_give_the_same_bits(scale):
    X, _, weights = cones()
    expected = fitted_bytes(fitted(X, scale * weights))
    chunked = da.from_array(X, chunks=((7, 0, 300, 93), (20, 4)))
    for some in (scale * weights, da.from_array(scale * weights, chunks=110)):
        assert fitted_bytes(fitted(chunked, some)) == expected
    assert fitted_bytes(fitted(sparse.csr_array(X), scale * weights)) == expected


def test_labels_of_chunked_rows_are_those_of_rows_in_memory():
    X, _, weights = cones()
    model = dca.SubspaceClustering(3)
    lazy = model.fit_predict(da.from_array(X, chunks=(90, 24)), sample_weight=weights)
    np.testing.assert_array_equal(lazy.compute(), model.fit_predict(X, sample_weight=weights))


def test_rows_without_weight_may_hold_anything():
    X, _, weights = cones()
    broken = X.copy()
    broken[weights == 0] = np.nan
    broken[np.flatnonzero(weights == 0)[::2]] = np.inf
    assert fitted_bytes(fitted(broken, weights)) == fitted_bytes(fitted(X, weights))
    assert (fitted(broken, weights).labels_[weights == 0] == -1).all()


def test_a_small_cluster_that_counts_more_is_found(monkeypatch):
    """Of 12,000 rows 60 are of the third cone: too few of the sample, unless each counts for 30."""
    monkeypatch.setattr(recipe, "_MAX_SAMPLE_ROWS", 4096)
    X, labels, _ = cones(12_000, p=40, small=60, seed=3)
    wanted = labels == 2
    for weights in (None, np.where(wanted, 30.0, 1.0)):
        found = fitted(X, weights).predict(X)
        own = found == np.bincount(found[wanted]).argmax()
        assert own[wanted].mean() > 0.98
        assert (wanted[own].mean() > 0.98) == (weights is not None)


def test_what_takes_no_weights_says_so():
    X, _, weights = cones()
    with pytest.raises(InvalidParameterError, match="has no weights"):
        fitted(X, weights, method="paper")
    X[np.flatnonzero(weights)[0], 0] = np.nan
    with pytest.raises(InvalidInputError, match="take no sample_weight"):
        fitted(X, weights)
