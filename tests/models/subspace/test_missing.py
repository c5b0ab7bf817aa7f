"""Clusters of rows with missing entries."""

import dask.array as da
import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

import dask_dca as dca
from dask_dca.errors import FewEntriesWarning, InvalidInputError
from tests.contract.entries import fitted_bytes


def planted(seed, n=360, p=30, k=3, share=0.3, noise=0.01):
    """Rows of cones of three rays each, the same with holes, and the cones that they are of."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(k), n // k)
    rays = rng.random((k, 3, p))
    X = np.einsum("ni,nip->np", rng.random((n, 3)) + 0.1, rays[labels]) + noise * rng.standard_normal((n, p))
    order = rng.permutation(n)
    X, labels = X[order], labels[order]
    return X, np.where(rng.random(X.shape) < share, np.nan, X), labels


def test_clusters_are_found_and_new_rows_labelled_by_what_was_observed():
    for seed in range(2):
        X, holes, labels = planted(seed)
        model = dca.SubspaceClustering(3, n_components=9).fit(holes)
        assert adjusted_rand_score(labels, model.labels_) > 0.95
        assert (model.predict(holes) == model.labels_).all()
        complete = dca.SubspaceClustering(3, n_components=9).fit(X)
        assert adjusted_rand_score(labels, complete.predict(holes)) > 0.9
        given = holes[model.anchor_indices_]
        assert (model.components_[~np.isnan(given)] == given[~np.isnan(given)]).all()


def test_any_chunking_gives_the_same_bits_and_rows_without_entries_have_no_label():
    _, holes, _ = planted(0)
    holes[5] = np.nan
    whole = dca.SubspaceClustering(3, n_components=9).fit(holes)
    assert whole.labels_[5] == -1
    assert whole.n_unobserved_rows_ == 1
    chunked = da.from_array(holes, chunks=((100, 37, 223), 11))
    parts = dca.SubspaceClustering(3, n_components=9).fit(chunked)
    assert fitted_bytes(parts) == fitted_bytes(whole)
    assert (parts.predict(chunked).compute() == whole.labels_).all()


def test_a_saved_model_labels_rows_with_holes(tmp_path):
    _, holes, _ = planted(1)
    model = dca.SubspaceClustering(3, n_components=9).fit(holes)
    model.save(str(tmp_path / "model.zarr"))
    assert (dca.load_model(str(tmp_path / "model.zarr")).predict(holes) == model.labels_).all()


def test_a_column_without_an_entry_is_refused_and_few_entries_are_warned_of():
    _, unseen, _ = planted(0)
    unseen[:, 4] = np.nan
    with pytest.raises(InvalidInputError, match="column 4 of X has no observed entry"):
        dca.SubspaceClustering(3).fit(unseen)
    with pytest.warns(FewEntriesWarning, match="entries were observed"):
        dca.SubspaceClustering(3).fit(planted(0, n=60, share=0.6)[1])
