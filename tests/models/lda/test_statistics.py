"""What each step of the topic model is worth: margins that fail when the step is left out."""

import numpy as np
import pytest

import dask_dca as dca
from dask_dca.models.lda import fit as lda_fit
from dask_dca.models.lda import refine as lda_refine
from tests.models.lda.data import planted_documents, topic_error, zipf_documents

SEEDS = range(3)
pytestmark = pytest.mark.filterwarnings("ignore::dask_dca.errors.FewerAnchorsWarning")


def errors(draws, **options):
    """L1 errors of the topics, one for each draw."""
    fits = [dca.LatentDirichletAllocation(len(topics), **options).fit(X).components_ for X, topics in draws]
    return np.array([topic_error(fit, topics) for fit, (_, topics) in zip(fits, draws, strict=True)])


@pytest.fixture(scope="module")
def together():
    return [zipf_documents(seed=seed, correlated=True) for seed in SEEDS]


@pytest.fixture(scope="module")
def apart():
    return [zipf_documents(length=60, seed=seed) for seed in SEEDS]


def test_topics_that_come_together_have_starts_of_their_own(together):
    """Directions that are drawn evenly miss the words of such topics; single words are noisier than their groups."""
    found = errors(together, max_iter=0)
    assert found.max() < 0.27
    assert found.mean() < 0.24


def test_hardly_any_word_that_stands_out_lacks_votes(monkeypatch):
    """Successive projection on all words chooses the same anchors; of 5 k ln k directions two of thirty lack votes."""
    missed, select = [], lda_fit.select_words

    def _compared(points, candidates, n_topics, given):
        chosen = select(points, candidates, n_topics, given)
        missed.append(n_topics - np.isin(select(points, np.arange(len(points.voting)), n_topics), chosen).sum())
        return chosen

    monkeypatch.setattr(lda_fit, "select_words", _compared)
    for seed in (1, 2):
        X, _ = zipf_documents(1000, 1000, 30, 200, seed, correlated=True)
        dca.LatentDirichletAllocation(30, max_iter=0).fit(X)
    assert sum(missed) <= 1


def test_independent_topics_without_anchor_words_are_found(apart):
    found = errors(apart, max_iter=0)
    assert found.max() < 0.2
    assert found.mean() < 0.18


def test_passes_of_em_improve_topics(together, apart):
    for draws, share in ((together, 0.95), (apart, 0.96)):
        assert errors(draws).mean() < share * errors(draws, max_iter=0).mean()


def test_rare_words_do_not_become_anchors():
    """Most of 1,500 words are in a few of the 600 documents: noise without the soft floor."""
    draws = [zipf_documents(600, 1500, 8, 60, seed) for seed in SEEDS]
    assert errors(draws, max_iter=0).max() < 0.35
    for X, _ in draws:
        model = dca.LatentDirichletAllocation(8, max_iter=0).fit(X)
        assert (np.asarray((X > 0).sum(axis=0))[model.anchor_words_] >= 10).all()


@pytest.mark.parametrize("seed", SEEDS)
def test_alpha_is_that_of_the_documents_topic_by_topic(seed):
    rng = np.random.default_rng(seed)
    _, topics = planted_documents(10, 60, 4, seed=seed)
    alpha = np.array([0.15, 0.3, 0.45, 0.9])
    counts = np.array([rng.multinomial(100, h @ topics) for h in rng.dirichlet(alpha, 3000)])
    model = dca.LatentDirichletAllocation(4).fit(counts)
    apart = np.abs(model.components_[:, None] - topics[None]).sum(axis=2)
    np.testing.assert_allclose(model.alpha_, alpha[apart.argmin(axis=1)], rtol=0.3)


def test_long_steps_of_inference_see_the_topics_of_long_documents(monkeypatch):
    """Even mixtures are where inference begins: plain steps, as many, leave them too even."""
    draws = [zipf_documents(600, length=400, seed=seed, correlated=True) for seed in SEEDS]
    found = errors(draws).mean()
    monkeypatch.setattr(lda_refine, "COLD_START", (1.0,) * 4)
    assert found < 0.125
    assert found < 0.92 * errors(draws).mean()  # which take more steps of EM


def test_more_steps_and_long_ones_pay_where_documents_tell_much(monkeypatch):
    """Topics come together; of as many steps without long ones EM is further from the truth."""
    draws = [zipf_documents(1000, 800, 20, 300, seed, correlated=True) for seed in SEEDS[:2]]
    five, found = errors(draws, max_iter=5).mean(), errors(draws).mean()
    monkeypatch.setattr(lda_refine, "_TOPIC_POWER", 1.0)
    assert found < 0.97 * five
    assert five < 0.98 * errors(draws, max_iter=5).mean()


def test_steps_go_on_where_documents_tell_enough(monkeypatch):
    """Documents that take no part lose a little by sharper topics long before these are as near as they can be."""
    draws = [zipf_documents(1000, 800, 20, 120, seed) for seed in SEEDS]
    found = errors(draws)
    monkeypatch.setattr(lda_refine, "_MAX_HELD_OUT_LOSS", 0.0)
    assert (found < 0.99 * errors(draws)).all()


def test_steps_end_where_documents_are_short(monkeypatch):
    draws = [zipf_documents(1000, 800, 20, 40, seed) for seed in SEEDS]
    found = errors(draws).mean()
    monkeypatch.setattr(lda_refine, "_MAX_HELD_OUT_LOSS", np.inf)
    assert found < 0.98 * errors(draws).mean()


def test_a_step_that_cost_too_much_is_taken_back(monkeypatch):
    """And the long step before it: topics are those after a plain one, to the bit those of a fit of so many steps."""
    monkeypatch.setattr(lda_refine, "_MAX_HELD_OUT_LOSS", 0.0)
    for seed in SEEDS:
        X, _ = zipf_documents(1000, 800, 20, 40, seed)
        model = dca.LatentDirichletAllocation(20).fit(X)
        assert model.converged_
        assert model.n_iter_ == 3  # of five; the last one sees all documents
        same = dca.LatentDirichletAllocation(20, max_iter=3).fit(X)
        np.testing.assert_array_equal(model.components_, same.components_)
        np.testing.assert_array_equal(model.log_likelihoods_, same.log_likelihoods_)
