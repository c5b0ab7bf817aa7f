"""Where passes start from: burstiness against its definition, two levels of topics, documents that take no part."""

import numpy as np
import pytest
from scipy import sparse

import dask_dca as dca
from dask_dca.models.lda import refine
from dask_dca.models.lda.documents import document_keys
from dask_dca.models.lda.topics import burstiness_sums, smooth_topics, topic_products, two_level_topics
from tests.models.lda.data import bursty, planted_documents, topic_error


def bursty_documents(n, seed=0, again=0.8):
    """Documents from planted topics, in which a word that was used is used again with probability `again`."""
    rng = np.random.default_rng(seed)
    topics = rng.dirichlet(np.full(150, 0.1), 6)
    rows = []
    for h in rng.dirichlet(np.full(6, 0.3), n):
        first = rng.choice(150, 10, p=h @ topics)
        words = list(first)
        while len(words) < 80:
            words.append(words[rng.integers(len(words))] if rng.random() < again else rng.choice(150, p=h @ topics))
        rows.append(np.bincount(words, minlength=150))
    return sparse.csr_array(np.array(rows, dtype=float)), topics


def test_burstiness_by_hand():
    topics = np.array([[0.5, 0.0], [0.5, 0.25], [0.0, 0.75]])
    theta = np.array([[0.25, 0.75], [1.0, 0.0]], dtype=np.float32)
    counts = sparse.csr_array(np.array([[3.0, 1.0, 2.0], [0.0, 1.0, 0.0]]))
    seen, expected = burstiness_sums(counts, np.array([6.0, 1.0]), theta, topic_products(topics))
    p = topics @ theta[0]
    assert (seen / 2.0**10).tolist() == pytest.approx([(6 + 0 + 2) / 5, 0.0], abs=1e-3)
    assert (expected / 2.0**10).tolist() == pytest.approx([6 * (p**2).sum(), 0.0], abs=1e-3)


def test_burstiness_is_one_where_the_model_holds_and_more_where_words_come_again():
    plain, _ = planted_documents(600, 150, 6, 80)
    assert dca.LatentDirichletAllocation(6).fit(plain).burstiness_ == pytest.approx(1.0, abs=0.05)
    bursty, _ = bursty_documents(600)
    model = dca.LatentDirichletAllocation(6).fit(bursty)
    assert model.burstiness_ > 1.25
    assert model.n_iter_ == 9


def documents_with_names(n, seed):
    """Documents in which words come again, each with six words that no other has."""
    X, topics = bursty(n, seed)
    often = 1.0 + np.random.default_rng(seed).poisson(5.0, 6 * n)
    names = sparse.csr_array((often, (np.repeat(np.arange(n), 6), np.arange(6 * n))), shape=(n, 6 * n))
    return sparse.csr_array(sparse.hstack([X, names], format="csr")), topics


def test_names_of_single_documents_do_not_decide_where_these_belong(monkeypatch):
    """Without what topics have of a document itself, its mixture does not rest on what it has told them."""
    errors = []
    for training in (refine.TrainingCounts, lambda *_: None):
        monkeypatch.setattr(refine, "TrainingCounts", training)
        for seed in range(3):
            X, topics = documents_with_names(600, seed)
            found = dca.LatentDirichletAllocation(12).fit(X).components_[:, : topics.shape[1]]
            errors.append(topic_error(found / found.sum(axis=1, keepdims=True), topics))
    assert np.mean(errors[:3]) < 0.95 * np.mean(errors[3:])


def test_two_levels_by_hand():
    p = np.array([0.4, 0.3, 0.2, 0.1])
    topics = np.array([[0.4, 0.5, 0.2], [0.3, 0.4, 0.1], [0.2, 0.05, 0.6], [0.1, 0.05, 0.1]])
    topics /= topics.sum(axis=0)
    weights = np.array([0.2, 0.3, 0.5])
    found = two_level_topics(topics, weights, p)
    general = topics @ weights
    sharp = p * (topics[:, 1] / p) ** 2.5
    np.testing.assert_allclose(found[:, 0], smooth_topics(general[:, None] / general.sum(), p)[:, 0])
    np.testing.assert_allclose(found[:, 1], smooth_topics(sharp[:, None] / sharp.sum(), p)[:, 0])
    np.testing.assert_allclose(found.sum(axis=0), 1.0)
    assert two_level_topics(topics[:, :1], weights[:1], p).shape == (4, 1)


def test_keys_of_documents_are_those_of_their_words():
    rows, _ = planted_documents(200, 60, 3, 30)
    keys = document_keys(sparse.csr_array(rows))
    assert 0.05 < (keys < 0.1).mean() < 0.2
    order = np.random.default_rng(0).permutation(200)
    np.testing.assert_array_equal(document_keys(sparse.csr_array(rows[order])), keys[order])
    assert len(set(keys)) == 200
    twice = document_keys(sparse.csr_array(sparse.vstack([rows[:3], rows[:3]], format="csr")))
    np.testing.assert_array_equal(twice[:3], twice[3:])


def test_steps_are_reported_under_one_meaning():
    rows, _ = planted_documents(400, 60, 4, 60)
    for max_iter in (0, 1, 3, 20):
        model = dca.LatentDirichletAllocation(4, max_iter=max_iter).fit(rows)
        assert len(model.log_likelihoods_) == model.n_iter_ + 1
        assert model.n_iter_ <= max_iter
        assert model.converged_ == (model.n_iter_ < max_iter)


@pytest.mark.parametrize("tol", [-1.0, None, np.inf])
def test_bad_tolerance(tol):
    with pytest.raises(ValueError, match="tol must be a finite number of at least 0"):
        dca.LatentDirichletAllocation(2, tol=tol).fit(np.ones((4, 3)))


@pytest.mark.parametrize(("n", "left_out"), [(90, False), (110, True)])
def test_what_a_document_brought_is_left_out_where_a_topic_has_eight(monkeypatch, n, left_out):
    """Of fewer, others say too little: streams that begin with few documents would lose by it."""
    models, passes = [], refine.refine
    monkeypatch.setattr(refine, "refine", lambda rows, model, *rest: models.append(model) or passes(rows, model, *rest))
    dca.LatentDirichletAllocation(12).fit(bursty(n, 0)[0])
    assert any(model.training is not None for model in models) == left_out
