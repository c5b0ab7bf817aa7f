"""Latent Dirichlet allocation: what it finds, scikit-learn's conventions, scores."""

import inspect

import dask.array as da
import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from scipy.optimize import nnls
from sklearn.base import clone
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import check_estimator

import dask_dca as dca
from dask_dca.anchoring.parameters import check_settings
from dask_dca.errors import FewerAnchorsWarning, InvalidParameterError
from dask_dca.geometry.planes import plane_pairs
from dask_dca.models.lda import refine
from dask_dca.models.lda.documents import COLD_START
from tests.conftest import bits, raise_if_dask_computes
from tests.models.lda.data import LDA_FITTED, planted_documents, topic_error

X, TOPICS = planted_documents()
METHODS = pytest.mark.parametrize("method", ["robust", "paper"])
TEXTS = ["cat dog cat bird", "dog cat fish", "bond stock bond price", "price stock market", "cat fish dog bird"] * 8


RUNS_NO_EM = {"check_transformer_n_iter": "wants at least one iteration of every model with max_iter"}


def lda(k=5, **options):
    return dca.LatentDirichletAllocation(k, **options)


@pytest.mark.filterwarnings("ignore::dask_dca.errors.FewerAnchorsWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@pytest.mark.parametrize("model", [lda(2, method="paper"), lda("auto")])
def test_scikit_learns_own_checks_pass(model):
    expected = {} if model.method == "robust" else RUNS_NO_EM
    results = check_estimator(model, expected_failed_checks=expected, on_fail=None)
    failed = {r["check_name"]: repr(r["exception"]) for r in results if r["status"] == "failed"}
    assert not failed
    assert sum(r["status"] == "passed" for r in results) > 35


def test_the_planted_topics_are_found():
    model = lda().fit(X)
    assert topic_error(model.components_, TOPICS) < 0.25
    assert topic_error(lda(max_iter=0).fit(X).components_, TOPICS) < 0.3
    np.testing.assert_allclose(model.components_.sum(axis=1), 1.0)
    assert (model.components_ >= 0).all()
    own = TOPICS[:, model.anchor_words_]
    assert (own.max(axis=0) > 0.7 * own.sum(axis=0)).all()  # anchor words are words of one topic
    assert len(set(own.argmax(axis=0))) == 5
    assert (np.diff(model.topic_weights_) <= 0).all()
    assert model.topic_weights_.sum() == pytest.approx(1.0)


@pytest.mark.parametrize("seed", range(3))
def test_a_sample_anchors_and_all_documents_finish(seed, monkeypatch):
    """A tenth of the documents gives the anchors; the last pass makes topics of all, also of words that are rare."""
    many, topics = planted_documents(4000, 400, 5, 60, seed=seed)
    sampled = topic_error(lda(max_iter=3, subsample=400, random_state=seed).fit(many).components_, topics)
    few = many[np.random.default_rng(seed).permutation(4000)[:400]]
    alone = topic_error(lda(max_iter=3).fit(few).components_, topics)
    whole = topic_error(lda(max_iter=3).fit(many).components_, topics)
    assert sampled < 0.75 * alone
    assert sampled < 1.6 * whole
    assert lda(max_iter=0, subsample=400).fit(many).n_passes_ == 1
    monkeypatch.setattr(refine, "_LAST_POWERS", COLD_START)  # twice as many steps of inference, for no better topics
    assert sampled < topic_error(lda(max_iter=3, subsample=400, random_state=seed).fit(many).components_, topics)


def test_a_sample_must_be_of_documents():
    with pytest.raises(InvalidParameterError, match="subsample"):
        lda(subsample=0).fit(X)
    assert bits(lda(subsample=None).fit(X), LDA_FITTED) == bits(lda().fit(X), LDA_FITTED)


def test_the_papers_method_finds_topics_without_noise():
    rng = np.random.default_rng(0)
    topics = np.hstack([0.3 * np.eye(3), 0.7 * rng.dirichlet(np.ones(12), 3)])
    many = np.array([rng.multinomial(400, h @ topics) for h in rng.dirichlet([0.3] * 3, 3000)])
    model = lda(3, method="paper").fit(many)
    assert topic_error(model.components_, topics) < 0.3
    assert len(model.log_likelihoods_) == 0
    assert np.isnan(model.noise_edge_)


def test_the_number_of_topics_is_found_and_too_many_are_warned_of():
    many, _ = planted_documents(1500, 200, 6, 150)
    assert lda("auto").fit(many).n_components_ == 6
    with pytest.warns(FewerAnchorsWarning, match=r"n_components=12 topics asked for only 6 stand out"):
        lda(12).fit(many)


def test_alpha_has_the_planted_total():
    many, _ = planted_documents(3000, 60, 4, 100, alpha=0.5)
    assert lda(4).fit(many).alpha_.sum() == pytest.approx(2.0, rel=0.3)


def test_mixtures_are_on_the_simplex_and_lazy():
    model = lda().fit(X)
    H = model.transform(X)
    np.testing.assert_allclose(H.sum(axis=1), 1.0)
    with raise_if_dask_computes():
        lazy = model.transform(da.from_array(X.toarray(), chunks=(77, 50)))
    assert lazy.compute().tobytes() == H.tobytes()
    np.testing.assert_allclose(model.transform(sparse.csr_array((2, 120))), 0.2)


def test_fit_transform_is_fit_then_transform():
    assert lda().fit_transform(X).tobytes() == lda().fit(X).transform(X).tobytes()


def test_likelihood_rises_and_more_passes_explain_more():
    model = lda(max_iter=8).fit(X)
    rise = model.log_likelihoods_[-1] - model.log_likelihoods_[0]
    assert rise > 0.003
    assert np.diff(model.log_likelihoods_).min() > -0.25 * rise  # what priors, and the last step over all, may cost
    held_out, _ = planted_documents(200, seed=0)
    assert model.perplexity(held_out) < lda(2).fit(X).perplexity(held_out) < 120


def test_perplexity_is_a_held_out_one_and_chooses_the_number_of_topics():
    """It must not fall with every topic more, nor depend on how many documents are scored (scikit-learn #6777)."""
    train, test = X[:300], X[300:]
    scores = {k: lda(k, max_iter=10).fit(train).perplexity(test) for k in (2, 5)}
    assert scores[5] < scores[2]
    model = lda().fit(train)
    double = sparse.vstack([test, test], format="csr")
    assert model.perplexity(double) == pytest.approx(model.perplexity(test), rel=1e-12)
    assert model.perplexity(test) == pytest.approx(np.exp(-model.score(test)))
    best = np.exp(-(_truth_score(test)))
    assert best < model.perplexity(test) < 1.3 * best


def _truth_score(documents):
    model = lda().fit(X)
    model.components_ = 0.999 * TOPICS + 0.001 * model.word_probabilities_
    return model.score(documents)


def test_coherence_is_npmi_and_absent_words_are_left_out_with_a_warning():
    """Reported as gregversteeg/corex_topic #23."""
    model = lda().fit(X)
    found = model.coherence(X, 5)
    present = (X.toarray() > 0).astype(float)
    top = model.top_words(5)[0]
    expected = []
    for i in range(5):
        for j in range(i):
            both = (present[:, top[i]] * present[:, top[j]]).mean()
            ratio = both / (present[:, top[i]].mean() * present[:, top[j]].mean()) if both else None
            expected.append(np.log(ratio) / -np.log(both) if both else -1.0)
    assert found[0] == pytest.approx(np.mean(expected))
    assert ((found >= -1) & (found <= 1)).all()
    without = X.toarray()
    without[:, top[0]] = 0
    with pytest.warns(UserWarning, match=r"1 of the .* top words are in no document"):
        assert np.isfinite(model.coherence(without, 5)).all()


def test_words_have_names_where_there_are_any():
    vectorizer = CountVectorizer()
    counts = vectorizer.fit_transform(TEXTS)
    names = vectorizer.get_feature_names_out()
    model = lda(2).fit(counts)
    assert model.top_words(3).dtype == np.int64
    words = model.top_words(4, names)
    for same in (dict(enumerate(names)), vectorizer, vectorizer.vocabulary_):
        assert model.top_words(4, same).tolist() == words.tolist()
    animals = {"cat", "dog", "bird", "fish"}
    assert {bool(set(row) & animals) for row in words} == {True, False}
    frame = pd.DataFrame(counts.toarray(), columns=names)
    named = lda(2).fit(frame)
    assert named.get_anchor_words().tolist() == names[named.anchor_words_].tolist()
    assert named.components_.tobytes() == model.components_.tobytes()
    with pytest.raises(InvalidParameterError, match="3 names for"):
        model.top_words(2, ["a", "b", "c"])


def test_pipelines_take_it():
    H = make_pipeline(CountVectorizer(), lda(2)).fit_transform(TEXTS)
    assert H.shape == (len(TEXTS), 2)
    labels = H.argmax(axis=1).reshape(8, 5)
    assert (labels == labels[0]).all()
    assert labels[0, 0] == labels[0, 1] == labels[0, 4] != labels[0, 2] == labels[0, 3]


def test_clones_have_the_parameters_and_not_the_fit():
    model = lda(3, min_df=2, max_iter=1, doc_topic_prior=0.2, topic_word_prior=0.1, random_state=4).fit(X)
    copy = clone(model)
    assert copy.get_params() == model.get_params()
    assert not hasattr(copy, "components_")
    assert set(model.get_params()) == set(inspect.signature(dca.LatentDirichletAllocation).parameters)


def test_an_integer_seed_gives_the_same_topics_every_time():
    """Reported as gensim #113 and gensim #3218."""
    assert bits(lda().fit(X), LDA_FITTED) == bits(lda().fit(X), LDA_FITTED)
    other = lda(random_state=1).fit(X)
    assert topic_error(other.components_, lda().fit(X).components_) < 0.2


def test_rare_words_can_be_left_out():
    counts = sparse.lil_array(X)
    counts[:, 7] = 0
    counts[3, 7] = 5
    counts = counts.tocsr()
    for min_df in (2, 0.01):
        model = lda(min_df=min_df).fit(counts)
        assert (model.components_[:, 7] == 0).all()
        assert 7 not in model.anchor_words_
        assert model.word_probabilities_[7] == 0
        np.testing.assert_allclose(model.components_.sum(axis=1), 1.0)
        assert np.isfinite(model.score(counts))


@METHODS
def test_saved_models_say_the_same(tmp_path, method):
    model = lda(method=method).fit(X)
    model.save(tmp_path / "model.zarr")
    loaded = dca.load_model(tmp_path / "model.zarr")
    assert loaded.transform(X).tobytes() == model.transform(X).tobytes()
    assert loaded.score(X) == model.score(X)
    assert loaded._facts() == model._facts()
    assert loaded._describe() == model._describe()
    assert any(f"topics of {model.n_words_} words" in line for line in loaded._describe())


def test_diagnostics_know_doubled_and_average_topics():
    model = lda().fit(X)
    assert (model.topic_distances_ > 0.3).all()
    assert len(model.average_topics()) == 0
    single = lda(1).fit(X)
    assert single.average_topics().tolist() == [0]
    assert any("without a subject of their own: topic 0" in line for line in single._describe())


@pytest.mark.parametrize("seed", range(4))
def test_topics_beat_random_words_as_anchors_and_the_papers_weights(seed):
    """Documents of very unequal lengths, over seeds: what the default does better must stay better."""
    rng = np.random.default_rng(seed)
    _, topics = planted_documents(10, 300, 8, seed=seed)
    lengths = np.where(rng.random(1200) < 0.5, 4, 120)
    counts = [rng.multinomial(m, h @ topics) for m, h in zip(lengths, rng.dirichlet([0.2] * 8, 1200), strict=True)]
    documents = sparse.csr_array(np.array(counts, dtype=float))
    assert topic_error(lda(8, max_iter=0).fit(documents).components_, topics) < 0.3
    assert topic_error(lda(8, max_iter=0, method="paper").fit(documents).components_, topics) > 0.6


PAPER_ENSEMBLES = ["gaussian", "sparse", "unit", "data"]


@pytest.mark.parametrize("ensemble", PAPER_ENSEMBLES)
def test_the_papers_topics_are_the_cones_coefficients_and_nothing_else(ensemble):
    """Q, planes, votes and F written out, on documents in which some words take no part; the corpus is in no topic."""
    many, _ = planted_documents(300, 40, 3, 50)
    model = lda(3, method="paper", ensemble=ensemble, min_df=40, n_subproblems=30).fit(many)
    counts = np.asarray(many.todense())
    m = counts.sum(axis=1, keepdims=True)
    Q = (counts / (m * (m - 1))).T @ counts - np.diag((counts / (m * (m - 1))).sum(axis=0))
    known = np.flatnonzero((counts > 0).sum(axis=0) >= 40)
    assert 10 < len(known) < 40
    Q = Q[np.ix_(known, known)]
    seed = check_settings("paper", 30, ensemble, "auto", 0).seed
    width = 40 if ensemble == "gaussian" else len(known)
    pairs = plane_pairs("unit" if ensemble == "data" else ensemble, seed, np.arange(30), width)
    if ensemble == "gaussian":
        pairs = pairs[:, :, known]
    elif ensemble in ("unit", "data"):
        pairs = np.eye(len(known))[pairs]
        pairs = pairs @ Q if ensemble == "data" else pairs
    elif ensemble == "sparse":
        pairs = pairs.toarray().reshape(2, 30, -1)
    across, along = Q @ pairs[0].T, Q @ pairs[1].T
    angles = np.where((across != 0) | (along != 0), np.arctan2(np.abs(across), along), np.nan)
    votes = np.bincount(np.concatenate([np.nanargmin(angles, axis=0), np.nanargmax(angles, axis=0)]))
    np.testing.assert_array_equal(model.candidates_, known[votes > 0])
    order = np.lexsort((np.arange(len(known)), -votes))[:3]
    assert sorted(known[order].tolist()) == sorted(model.anchor_words_.tolist())
    chosen = np.searchsorted(known, model.anchor_words_)
    F = np.array([nnls(Q[chosen].T, row)[0] for row in Q])
    F[chosen] = np.eye(3)
    expected = np.zeros((3, 40))
    expected[:, known] = (F / F.sum(axis=0)).T
    np.testing.assert_allclose(model.components_, expected, atol=1e-6)
    assert (model.components_[:, model.anchor_words_] > 0).sum() == 3  # an anchor word is in one topic alone
    assert np.isfinite(model.score(many))


@pytest.mark.parametrize("model", [dca.LatentDirichletAllocation, dca.GaussianHMM, dca.KalmanFilter])
def test_ensembles_are_for_the_papers_method_where_the_default_has_directions_of_its_own(model):
    with pytest.raises(InvalidParameterError, match="for method='paper'"):
        model(2, ensemble="sparse").fit(np.ones((20, 5)))
    with pytest.raises(InvalidParameterError, match="unknown ensemble 'x'"):
        model(2, method="paper", ensemble="x").fit(np.ones((20, 5)))
