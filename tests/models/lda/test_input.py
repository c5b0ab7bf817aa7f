"""Unusual and unusable documents."""

import dask.array as da
import numpy as np
import pytest
from scipy import sparse

import dask_dca as dca
from dask_dca.errors import DCAError, InvalidInputError, InvalidParameterError, NotFiniteError
from tests.conftest import bits
from tests.models.lda.data import LDA_FITTED, planted_documents, topic_error

X, TOPICS = planted_documents()


def lda(k=5, **options):
    return dca.LatentDirichletAllocation(k, **options)


def test_empty_and_one_word_documents_tell_nothing_and_change_nothing():
    """All-zero documents are counted, and have an even mixture (stephenslab/fastTopics #15)."""
    empty = sparse.csr_array((3, X.shape[1]))
    single = sparse.csr_array(([1.0, 1.0], ([0, 1], [3, 9])), shape=(2, X.shape[1]))
    more = sparse.vstack([empty[:1], X[:50], single, empty[1:], X[50:]], format="csr")
    whole, model = lda(max_iter=0).fit(X), lda(max_iter=0).fit(more)
    assert (model.n_empty_documents_, model.n_short_documents_, model.n_documents_) == (3, 2, 400)
    assert model.components_.tobytes() == whole.components_.tobytes()
    np.testing.assert_allclose(model.transform(more)[0], 0.2)


def test_words_in_no_document_have_no_probability_and_change_nothing():
    wide = sparse.hstack([X[:, :50], sparse.csr_array((X.shape[0], 2)), X[:, 50:]], format="csr")
    model = lda().fit(wide)
    assert (model.components_[:, 50:52] == 0).all()
    assert model.n_words_ == (X.sum(axis=0) > 0).sum()
    assert topic_error(np.delete(model.components_, [50, 51], axis=1), TOPICS) < 0.25
    seen = sparse.lil_array(wide)
    seen[0, 50] = 9.0
    assert np.isfinite(model.score(seen.tocsr()))  # words that the model doesn't know are not scored
    assert np.isfinite(model.transform(seen.tocsr())).all()


@pytest.mark.parametrize("dtype", ["int8", "uint16", "int64", "float16", "float32", "float64", ">f4", "bool"])
def test_counts_of_any_dtype_are_counts(dtype):
    given = X.sign() if dtype == "bool" else X
    model = lda(max_iter=1).fit(given.toarray().astype(dtype) if dtype in (">f4", "float16") else given.astype(dtype))
    assert bits(model, LDA_FITTED) == bits(lda(max_iter=1).fit(given), LDA_FITTED)


def test_weights_that_are_no_counts_are_taken_as_shares():
    shares = X.multiply(1.0 / X.sum(axis=1)[:, None]).tocsr()
    model = lda().fit(shares)
    assert topic_error(model.components_, TOPICS) < 0.35
    again = lda().fit(shares * 7.3)
    np.testing.assert_allclose(again.components_, model.components_, atol=1e-3)  # whatever their unit
    assert np.isfinite(model.score(shares))


def test_stored_zeros_duplicates_and_unsorted_entries_are_read_as_they_mean():
    canonical = lda(max_iter=1).fit(X)
    rows, columns = X.nonzero()
    order = np.random.default_rng(0).permutation(len(rows))
    half = X.data[order] - 1
    ends = X.indptr
    unsorted = sparse.csr_array((X.data.copy(), X.indices.copy(), ends), shape=X.shape)
    for i in range(X.shape[0]):
        part = slice(ends[i], ends[i + 1])
        unsorted.data[part], unsorted.indices[part] = X.data[part][::-1], X.indices[part][::-1]
    unsorted.has_sorted_indices = False
    coo = sparse.coo_array(
        (
            np.concatenate([half, np.ones(len(rows)), np.zeros(5)]),
            (
                np.concatenate([rows[order], rows, np.zeros(5, int)]),
                np.concatenate([columns[order], columns, np.arange(5)]),
            ),
        ),
        shape=X.shape,
    )
    for given in (unsorted, coo, X.tocsc(), sparse.csr_matrix(X), X.toarray()):
        kept = given.copy()
        assert bits(lda(max_iter=1).fit(given), LDA_FITTED) == bits(canonical, LDA_FITTED)
        if sparse.issparse(given) and given.format == "csr":
            assert np.array_equal(given.indices, kept.indices)  # the input is never written to


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (-1.0, InvalidInputError, r"Negative values in data: row 130, column 17 is -1.*X\.(maximum|clip)\(0\)"),
        (np.nan, NotFiniteError, r"Input X contains NaN: row 130, column 17"),
        (np.inf, NotFiniteError, r"Input X contains infinity: row 130, column 17"),
        (1e12, InvalidInputError, r"too large .*row 130, column 17"),
    ],
)
def test_impossible_counts_are_named(value, error, text):
    bad = X.toarray()
    bad[130, 17] = value
    for given in (bad, sparse.csr_array(bad), da.from_array(bad, chunks=(60, 50))):
        model = lda()
        with pytest.raises(error, match=text):
            model.fit(given)
        assert not hasattr(model, "components_")
    model = lda(max_iter=0).fit(X)
    with pytest.raises(error, match=text):
        model.transform(bad)


@pytest.mark.filterwarnings("ignore::dask_dca.errors.FewerAnchorsWarning", "ignore:.*outweigh all others")
def test_a_transposed_matrix_is_noticed():
    """Reported as forest-snow/anchor-topic #1."""
    rng = np.random.default_rng(0)
    frequencies = 1.0 / np.arange(1, 801)
    counts = np.array([rng.multinomial(100, frequencies / frequencies.sum()) for _ in range(300)])
    with pytest.warns(UserWarning, match=r"rows of X look like words .* pass X\.T"):
        lda(2, max_iter=0).fit(sparse.csr_array(counts.T.astype(float)))
    lda(1, max_iter=0).fit(sparse.csr_array(counts.astype(float)))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"k": 121}, r"n_components=121 exceeds the number of words, n_features = 120"),
        ({"k": 0}, "n_components must be"),
        ({"k": "many"}, "n_components must be"),
        ({"max_iter": -1}, "max_iter must be"),
        ({"min_df": -1}, "min_df must be"),
        ({"min_df": 1.5}, "min_df must be"),
        ({"doc_topic_prior": 0.0}, "doc_topic_prior must be a positive number"),
        ({"topic_word_prior": "a"}, "topic_word_prior must be a positive number"),
        ({"method": "gibbs"}, "unknown method 'gibbs'"),
        ({"k": "auto", "method": "paper"}, "method='paper' needs the number of topics"),
    ],
)
def test_unusable_parameters_are_refused(options, text):
    with pytest.raises(InvalidParameterError, match=text):
        lda(**options).fit(X)


def test_documents_without_pairs_are_refused():
    with pytest.raises(InvalidInputError, match=r"no document has two words: 1 are empty, 5 have one"):
        lda(2).fit(np.vstack([np.eye(5), np.zeros(5)]))
    with pytest.raises(InvalidInputError, match=r"no word is in 500 documents or more"):
        lda(2, min_df=500).fit(X)
    with pytest.raises(InvalidParameterError, match=r"exceeds the number of words in enough documents"):
        lda(5, min_df=int(np.sort(X.sign().sum(axis=0))[-3])).fit(X)
    with pytest.raises(InvalidInputError, match="nothing to score"):
        lda(2).fit(X).score(np.eye(120))


@pytest.mark.filterwarnings("ignore::dask_dca.errors.FewerAnchorsWarning")
@pytest.mark.parametrize(("k", "n_documents", "n_words"), [(1, 5, 5), (2, 5, 5), (5, 5, 5), (2, 1, 2)])
def test_few_words_and_documents_are_enough(k, n_documents, n_words):
    tiny = np.array([[63, 39, 0, 0, 1], [0, 3, 1, 0, 0], [1, 0, 0, 2, 2], [0, 0, 1, 1, 0], [4, 0, 0, 0, 1]])
    tiny = tiny[:n_documents, :n_words]
    model = lda(k).fit(tiny)
    assert 1 <= model.n_components_ <= k
    np.testing.assert_allclose(model.components_.sum(axis=1), 1.0)
    assert np.isfinite(model.transform(tiny)).all()
    assert np.isfinite(model.score(tiny))


def test_errors_are_of_one_family():
    with pytest.raises(DCAError):
        lda().fit(np.ones((3, 2, 2)))


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize(("times", "count"), [(1, 1e9), (1, 2e3), (3, 1e9)])
def test_a_document_of_one_word_over_and_over_does_not_ruin_the_others(times, count, chunked):
    rng = np.random.default_rng(0)
    topics = np.kron(np.eye(3), np.full(10, 0.1))
    documents = np.array([rng.multinomial(60, h @ topics) for h in rng.dirichlet([0.3] * 3, 200)])
    odd = np.zeros((times, 30))
    odd[:, 4], odd[:, 7] = count, 1
    data = np.vstack([documents[:100], odd, documents[100:]])
    data = da.from_array(data, chunks=(70, -1)) if chunked else data
    with pytest.warns(
        UserWarning, match=f"{times} of the documents outweigh all others, and count for (32|64) w"
    ) as told:
        model = lda(3).fit(data)
    assert (data.sum(axis=1) >= float(str(told[0].message).split()[-1])).sum() == times
    plain = lda(3).fit(documents)
    assert topic_error(plain.components_, topics) < 0.08
    assert topic_error(model.components_, topics) < 0.1
    assert np.abs(model.transform(documents) - plain.transform(documents)).mean() < 0.03


def test_documents_that_outweigh_the_others_give_the_same_bits_in_any_chunks():
    odd = np.zeros((1, X.shape[1]))
    odd[0, 4] = 1e8
    data = np.vstack([X.toarray()[:30], odd, X.toarray()[30:]])
    with pytest.warns(UserWarning, match="outweigh"):
        whole = bits(lda().fit(data), LDA_FITTED)
    for rows in (31, 150):
        with pytest.warns(UserWarning, match="outweigh"):
            assert bits(lda().fit(da.from_array(data, chunks=(rows, -1))), LDA_FITTED) == whole


def test_likelihoods_of_more_words_than_an_integer_counts_do_not_wrap():
    """3e12 words: their log-likelihood in steps of 2**-20 is beyond 2**63."""
    rng = np.random.default_rng(0)
    topics = np.kron(np.eye(2), np.full(10, 0.1))
    few = np.array([rng.multinomial(90, h @ topics) for h in rng.dirichlet([0.3] * 2, 600)])
    many = few * 2.0**26
    assert many.sum() > 3e12
    small, large = lda(2).fit(few), lda(2).fit(many)
    assert (large.log_likelihoods_ < 0.0).all()
    np.testing.assert_allclose(large.log_likelihoods_[-1], small.log_likelihoods_[-1], rtol=0.05)
    assert large.score(many) == pytest.approx(large.score(few), abs=0.1)
