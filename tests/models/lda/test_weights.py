"""Weights of documents: a whole number is so many copies, whatever the chunks."""

import dask.array as da
import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone

import dask_dca as dca
from dask_dca.errors import InvalidInputError
from dask_dca.models.lda.corpus import Draw
from tests.contract.entries import fitted_bytes


def corpus(n=300, seed=0):
    rng = np.random.default_rng(seed)
    topics = rng.dirichlet(np.full(40, 0.1), 4)
    X = rng.poisson(40.0 * rng.dirichlet(np.full(4, 0.3), n) @ topics).astype(np.float64)
    X[:3], X[3:6] = 0.0, np.eye(40)[:3]  # empty documents, and documents of a single word
    return X, rng.integers(0, 4, n)


def fitted(X, weights=None, **options):
    return dca.LatentDirichletAllocation(4, **options).fit(X, sample_weight=weights)


@pytest.mark.parametrize("bursty", [False, True])
def test_whole_weights_are_copies(bursty):
    X, weights = corpus()
    X = np.rint(X * np.random.default_rng(1).gamma(0.2, 5.0, X.shape)) if bursty else X
    one, copied = fitted(X, weights), fitted(np.repeat(X, weights, axis=0))
    assert (one.burstiness_ > 1.25) == bursty
    found, expected = (fitted_bytes(model) for model in (one, copied))
    rows = {"n_samples_seen_", "first_tallies_"}  # which count rows as they came
    assert {name: found[name] for name in found.keys() - rows} == {
        name: expected[name] for name in expected.keys() - rows
    }
    assert one.n_documents_ + one.n_short_documents_ + one.n_empty_documents_ == weights.sum()
    plain = fitted(X)
    assert abs(plain.components_ - copied.components_).max() > 1e-3  # which weights do change


@pytest.mark.parametrize("scale", [1.0, 0.37])
def test_any_chunks_of_documents_and_weights_give_the_same_bits(scale):
    X, weights = corpus()
    expected = fitted_bytes(fitted(X, scale * weights))
    assert fitted_bytes(fitted(sparse.csr_array(X), scale * weights)) == expected
    chunked = da.from_array(X, chunks=((7, 0, 200, 93), (30, 10)))
    for some in (scale * weights, da.from_array(scale * weights, chunks=110)):
        assert fitted_bytes(fitted(chunked, some)) == expected


def test_samples_hold_documents_by_weight():
    X, weights = corpus(4000)
    drawn = Draw(0.25, 3).take(sparse.csr_array(X), 0, weights.astype(float))
    assert np.bincount(drawn.numbers, minlength=4000)[weights == 0].sum() == 0
    for often in (1, 2, 3):
        found = np.isin(np.arange(4000), drawn.numbers)[weights == often].mean()
        assert abs(found - 0.25 * often) < 0.05
    whole = Draw(1.0, 3).take(sparse.csr_array(X), 0, weights.astype(float))
    assert np.array_equal(np.bincount(whole.numbers, minlength=4000), weights)


@pytest.mark.parametrize("chunked", [False, True])
def test_a_sample_of_weighted_documents_is_learnt_from(chunked):
    X, _ = corpus(2000)
    heavy = np.where(np.arange(2000) < 1000, 3.0, 0.0)
    data = da.from_array(X, chunks=(300, 40)) if chunked else X
    found = fitted(data, heavy, subsample=1500)
    assert fitted_bytes(found) == fitted_bytes(fitted(X, heavy, subsample=1500))
    assert abs(found.score(X[:1000]) - fitted(X[:1000]).score(X[:1000])) < 0.05


def test_the_papers_recipe_takes_weights_too():
    X, weights = corpus()
    one, copied = fitted(X, weights, method="paper"), fitted(np.repeat(X, weights, axis=0), method="paper")
    assert fitted_bytes(one) == fitted_bytes(copied)


@pytest.mark.parametrize("scale", [1e-300, 1e-9, 1e-4, 1e20, 1e300])
def test_weights_that_count_for_no_row_or_too_many_are_refused(scale):
    """Topics came out as NaN."""
    rng = np.random.default_rng(0)
    counts, weights = rng.poisson(3.0, (60, 12)), rng.random(60) / 60.0 * scale
    model = dca.LatentDirichletAllocation(1, min_df=1, max_iter=1)
    with pytest.raises(InvalidInputError, match=r"sample_weight sums to .*; pass numpy\.divide") as raised:
        model.fit(counts, sample_weight=weights)
    line = str(raised.value).rpartition("pass ")[2]
    found = model.fit(counts, sample_weight=eval(line, {"numpy": np, "sample_weight": weights}))
    assert np.isfinite(found.components_).all()


def test_weights_in_chunks_of_unknown_sizes_and_of_objects():
    counts = np.random.default_rng(0).poisson(3.0, (60, 12))
    unknown = da.ones(60, chunks=7)[da.ones(60, chunks=7) > 0]
    model = dca.LatentDirichletAllocation(1, min_df=1, max_iter=1)
    np.testing.assert_array_equal(
        model.fit(counts, sample_weight=unknown).components_, clone(model).fit(counts).components_
    )
    with pytest.raises(InvalidInputError, match=r"pass numpy\.asarray\(sample_weight, dtype=float\)"):
        model.fit(counts, sample_weight=np.ones(60, dtype=object))
