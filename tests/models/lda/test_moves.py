"""Splits and merges of topics: what they promise, what they find, and that documents which take no part decide."""

import dask.array as da
import numpy as np
import pytest
from scipy import sparse

import dask_dca as dca
from dask_dca.models.lda import refine
from dask_dca.models.lda.documents import damped_counts, token_halves
from dask_dca.models.lda.moves import Corpus, _infer, merge_topics, split_and_merge, split_topic
from tests.conftest import bits
from tests.models.lda.data import LDA_FITTED, bursty, planted_documents, topic_error


def corpus_of(X):
    p = np.asarray(X.sum(axis=0)).ravel() / X.sum()
    return Corpus(X, p, 0.01 * (p > 0) + 20.0 * p, 0.2)


def twice_and_together(topics):
    """The planted topics as columns, with one of them twice, and two others as one."""
    found = np.column_stack([topics[0], topics[0], topics[1:3].mean(axis=0), *topics[3:]])
    return 0.99 * found + 0.01 * topics.mean(axis=0)[:, None]


def test_halves_of_occurrences_by_hand():
    counts = sparse.csr_array(np.array([[4.0, 0.0, 1.0, 3.0], [1.0, 1.0, 0.0, 0.0]]))
    seen, hidden = token_halves(counts)
    np.testing.assert_array_equal(seen.toarray(), [[2.0, 0.0, 1.0, 1.0], [0.0, 1.0, 0.0, 0.0]])
    np.testing.assert_array_equal((seen + hidden).toarray(), counts.toarray())


def test_roots_of_counts_by_hand():
    counts = sparse.csr_array(np.array([[4.0, 0.0, 1.0], [0.25, 9.0, 0.0]]))
    np.testing.assert_array_equal(damped_counts(counts).toarray(), [[2.0, 0.0, 1.0], [0.25, 3.0, 0.0]])


@pytest.mark.parametrize("seed", range(3))
def test_a_split_finds_the_two_topics_that_were_one(seed):
    X, topics = planted_documents(seed=seed)
    corpus = corpus_of(X)
    state = _infer(corpus, twice_and_together(topics))
    splits = [split_topic(corpus, state, a) for a in range(5)]
    assert np.argmax([split.gain for split in splits]) == 2
    assert topic_error(splits[2].topics.T, topics[1:3]) < 0.3  # as one they are 1 apart from either
    two = _infer(corpus, np.column_stack([state.topics[:, [0, 1, 3, 4]], splits[2].topics + 1e-6]))
    assert two.likelihood - state.likelihood > 0.7 * splits[2].gain > 0.0
    np.testing.assert_allclose(splits[2].shares.sum(), 1.0)


def test_a_merge_costs_nothing_where_a_topic_is_there_twice():
    X, topics = planted_documents()
    corpus = corpus_of(X)
    state = _infer(corpus, twice_and_together(topics))
    same, apart = merge_topics(corpus, state, 0, 1), merge_topics(corpus, state, 0, 3)
    assert same.loss < 0.01 * apart.loss  # it gains a little: mixtures find their way in two steps more
    np.testing.assert_allclose(same.topic, state.topics[:, 0])
    assert apart.topic.sum() == pytest.approx(1.0)


@pytest.mark.parametrize("seed", range(3))
def test_moves_put_right_what_steps_leave(seed):
    X, topics = planted_documents(800, seed=seed)
    own, others = corpus_of(X[:600]), corpus_of(X[600:])
    start = twice_and_together(topics)
    found = split_and_merge(own, start, lambda found: _infer(others, found).likelihood, -np.inf)
    assert found.n_moves >= 1
    assert topic_error(found.topics.T, topics) < 0.5 * topic_error(start.T, topics)
    given = split_and_merge(own, start, lambda found: _infer(others, found).likelihood, -np.inf, 5)
    assert given is None or given.n_moves == 0  # all topics are of words that were given


def test_what_lowers_the_score_is_not_kept():
    X, topics = planted_documents()
    start = twice_and_together(topics)
    falling = iter(range(100, 0, -1))
    assert split_and_merge(corpus_of(X), start, lambda found: float(next(falling)), -np.inf).n_moves == 0
    assert split_and_merge(corpus_of(X), start, lambda found: 1.0, 2.0) is None


def poor_start(monkeypatch, topics):
    monkeypatch.setattr(refine, "two_level_topics", lambda *_: twice_and_together(topics))


def test_a_search_is_worth_its_steps_where_the_start_is_poor(monkeypatch):
    """Steps alone leave a topic there twice, and two as one."""
    draws = [bursty(2900, seed) for seed in range(2)]
    found = []
    for X, topics in draws:
        poor_start(monkeypatch, topics)
        model = dca.LatentDirichletAllocation(12).fit(X[:2600])
        assert model.n_moves_ > 0
        assert model.n_iter_ == 3
        fewer = dca.LatentDirichletAllocation(12, max_iter=5).fit(X[:2600])  # too few for a search
        assert (fewer.n_moves_, fewer.n_iter_) == (0, 5)
        assert model.score(X[2600:]) > fewer.score(X[2600:])
        found.append([topic_error(one.components_, topics) for one in (model, fewer)])
    errors = np.mean(found, axis=0)
    assert errors[0] < 0.8 * errors[1]


def test_few_documents_are_not_searched(monkeypatch):
    X, topics = bursty(2400, 0)
    poor_start(monkeypatch, topics)
    model = dca.LatentDirichletAllocation(12).fit(X)
    assert model.burstiness_ > 1.25
    assert (model.n_moves_, model.n_iter_) == (0, 9)


def test_a_search_has_the_same_bits_for_any_chunking(monkeypatch):
    X, topics = bursty(2600, 0)
    poor_start(monkeypatch, topics)
    whole = dca.LatentDirichletAllocation(12).fit(X)
    assert whole.n_moves_ > 0
    chunked = dca.LatentDirichletAllocation(12).fit(da.from_array(X.toarray(), chunks=(430, 240)))
    assert bits(chunked, (*LDA_FITTED, "n_moves_")) == bits(whole, (*LDA_FITTED, "n_moves_"))
