"""Steps of EM that improve topics, and the search on some documents that says whether moves of topics pay.

Topics also go on with more documents and words, a step for each batch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dask_dca.engine.numerics import one_blas_thread
from dask_dca.engine.passes import Run
from dask_dca.engine.rows import as_rows
from dask_dca.models.lda.corpus import cooccurrence_of, documents_at_hand
from dask_dca.models.lda.documents import COLD, LearntFrom, count_scales, damped_counts, token_halves
from dask_dca.models.lda.fit import words_of_enough
from dask_dca.models.lda.moves import Corpus, split_and_merge
from dask_dca.models.lda.passes import EVERYTHING, TopicModel, burstiness, held_out_sums, refine
from dask_dca.models.lda.topics import smoothed, two_levels, updated_topics

if TYPE_CHECKING:
    from scipy import sparse

    from dask_dca.engine.rows import Rows
    from dask_dca.geometry.arrays import Floats
    from dask_dca.models.lda.corpus import Cooccurrence, DocumentCensus
    from dask_dca.models.lda.fit import FittedTopics
    from dask_dca.models.lda.moves import Moved
    from dask_dca.models.lda.passes import TopicCounts

    Sums = dict[str, Floats]


_DOCUMENTS: Final = 5000  # that tell of bursts, and that the search is made on and judged by,
_ENTRIES: Final = 2**21  # and different words in all of them
_PARTS: Final = 5  # of which one judges
_LEAST: Final = 2500  # documents: of fewer a search finds nothing that others confirm


@dataclass(frozen=True)
class _Judge:
    """Documents that topics may learn from, others by which they are judged, and how steps are taken."""

    own: sparse.csr_array
    others: sparse.csr_array
    setting: Refinement

    def step(self, topics: Floats, power: float, words: Floats | None = None) -> tuple[Floats, Floats]:
        """Take a step from even mixtures."""
        model = self.setting.model(topics, np.inf, words=words)
        seen = refine(as_rows(self.own), model, self.setting.scales, Run(), ["counts"])
        return self.setting.m_step(topics, seen, power)

    def score(self, topics: Floats) -> float:
        """Score topics as they are after a last, plain step with counts as they are."""
        last = replace(self, setting=replace(self.setting, damped=False))
        model = last.setting.model(last.step(topics, 1.0)[0], np.inf)
        likelihood, n_words = held_out_sums(self.others, model, token_halves)
        return likelihood / max(n_words, 1)


def searched_topics(
    sample: Cooccurrence, topics: Floats, setting: Refinement, n_steps: int, power: float, n_given: int
) -> Moved | None:
    """Search for better topics by splits and merges.

    sample: the documents; topics (V, k): where steps start from; n_steps, power: the steps that would be taken without
    moves; n_given: topics at the front that stay. Returns topics to go on from; none where steps alone explain
    documents that take no part better, or where documents are few.
    """
    documents = documents_at_hand(sample, _DOCUMENTS, _ENTRIES)
    if documents.shape[0] < _LEAST:
        return None
    n_others = documents.shape[0] // _PARTS
    with one_blas_thread():
        judge = _Judge(documents[n_others:], documents[:n_others], setting)
        plain, words = topics, None
        for _ in range(n_steps):
            plain, words = judge.step(plain, power, words)
        corpus = Corpus(damped_counts(judge.own), setting.probability, setting.prior, setting.doc_prior)
        return split_and_merge(corpus, topics, judge.score, judge.score(plain), n_given)


_BURSTY: Final = 1.25  # pairs of a word with itself, over what the model expects, from which passes start otherwise
_BURSTY_STEPS: Final = 9
_DOCUMENTS_PER_TOPIC: Final = 8  # of fewer, others say too little of a document
_STEPS_AFTER: Final = 3  # after a search that found better topics
_HELD: Final = 0.1  # of the documents, that only tell when passes have done their work
_LOSS: Final = 0.025  # of log likelihood per word of these, from which steps are taken back
_TOPIC_POWER: Final = 2.0  # of EM's own factor on topics, in long steps; a plain one takes back what went too far
_CORPUS_WORDS: Final = 20.0  # pseudo-words in each topic that are as frequent as in the corpus
_MIXTURE_UNIT: Final = 2.0**-16  # of mixtures, in sums of counts


@dataclass(frozen=True)
class Refinement:
    """What stays the same in all passes of EM.

    probability (V,): word probabilities, zero for words that take no part; scales (V,): from `count_scales`; doc_prior,
    word_prior: pseudo-words of each topic in a document, and of each word in a topic; damped: whether words come in
    bursts: then documents count by the roots of their counts, and what topics have of a document itself is left out.
    """

    probability: Floats
    scales: Floats
    doc_prior: float
    word_prior: float
    damped: bool = False

    @property
    def prior(self) -> Floats:
        """Pseudo-words in each topic, by word (V,)."""
        return self.word_prior * (self.probability > 0.0) + _CORPUS_WORDS * self.probability

    def model(self, topics: Floats, longest: float, held: float = 0.0, words: Floats | None = None) -> TopicModel:
        """Prepare a pass over documents, of which those beyond a length count less, and a share takes no part.

        words (k,): in each topic, where it was learnt from the same documents.
        """
        known = self.probability > 0.0
        rates = topics / np.where(known, self.probability, 1.0)[:, None] * known[:, None]
        single = np.float32
        learnt = None
        if self.damped and words is not None:
            learnt = LearntFrom(self.probability.astype(single), words.astype(single))
        return TopicModel(
            rates.astype(single), self.probability, self.doc_prior, COLD, longest, held, self.damped, learnt
        )

    def m_step(self, topics: Floats, seen: TopicCounts, power: float = 1.0) -> tuple[Floats, Floats]:
        """Count words by topic.

        power: of the factor that topics are moved by; with more than one fewer passes are needed. Returns topics, and
        the words in each.
        """
        return updated_topics(topics, self.expected(topics, seen), self.prior, power)

    def expected(self, topics: Floats, seen: TopicCounts) -> Floats:
        """Return how many occurrences of each word belong to each topic, (V, k)."""
        known = self.probability > 0.0
        rates = topics / np.where(known, self.probability, 1.0)[:, None]
        return rates * seen.counts * (_MIXTURE_UNIT / self.scales)[:, None]

    def topics_of(self, counts: Floats) -> tuple[Floats, Floats]:
        """Turn counts (V, k) into topics and their shares of the corpus."""
        topics, words = updated_topics(counts, counts, self.prior)
        return topics, words / words.sum()


@dataclass(frozen=True)
class RefinedTopics:
    """Topics after passes of EM.

    log_likelihoods: per word of the sample's documents that take part, before each step and at the end; converged:
    whether more steps were allowed, but gained no more; burstiness: of words in documents, under the topics of the
    anchors; n_moves: how many topics were split, and pairs merged.
    """

    found: FittedTopics
    log_likelihoods: list[float]
    converged: bool
    burstiness: float
    n_moves: int


def refine_topics(
    sample: Cooccurrence, whole: Cooccurrence, found: FittedTopics, setting: Refinement, max_iter: int, tol: float
) -> RefinedTopics:
    """Improve topics by passes of EM over documents: steps over a sample, and a last one over all.

    Where words come in bursts, steps start from two levels of topics, nine of them, or from what a search among splits
    and merges finds, and documents count by the roots of their counts; no likelihood tells how many are enough, as
    documents are not what the model says. Elsewhere a tenth of the documents takes no part, and tells when they end.
    sample, whole: the documents; found: topics to start from; max_iter: steps at most.
    """
    topics = smoothed(found.topics, setting.probability)
    share = _DOCUMENTS / sample.census.n_used
    bursts = burstiness(sample.rows, setting.model(topics, sample.longest), topics, share, sample.run)
    held, n_moves = _HELD, 0
    if bursts > _BURSTY and max_iter:
        topics = two_levels(found.topics, found.weights, setting.probability, found.n_given)
        setting = replace(setting, damped=True)
        max_iter, held = min(max_iter, _BURSTY_STEPS), 0.0
        if max_iter == _BURSTY_STEPS:
            moved = searched_topics(sample, topics, setting, max_iter - 1, _TOPIC_POWER, found.n_given)
            if moved is not None:
                topics, max_iter, n_moves = moved.topics, _STEPS_AFTER, moved.n_moves
    taught = _taught(sample, topics, setting, max(max_iter - 1, 0), held, tol)
    history = taught.log_likelihoods
    if not max_iter:
        return RefinedTopics(found.with_topics(topics, found.weights), history, False, bursts, 0)
    setting = replace(setting, damped=False)
    seen = refine(whole.rows, setting.model(taught.topics, whole.longest), setting.scales, whole.run, ["counts"])
    counts = setting.expected(taught.topics, seen)
    found = found.with_topics(*setting.topics_of(counts), counts)
    model = setting.model(found.topics, sample.longest, held)
    end = refine(sample.rows, model, setting.scales, sample.run, ["likelihood"])
    return RefinedTopics(found, [*history, end.mean], taught.converged, bursts, n_moves)


@dataclass(frozen=True)
class _Taught:
    """Topics after steps over a sample, likelihoods before each of them and at the end, and whether they converged."""

    topics: Floats
    log_likelihoods: list[float]
    converged: bool


def _taught(
    sample: Cooccurrence, topics: Floats, setting: Refinement, max_iter: int, held: float, tol: float
) -> _Taught:
    """Take long steps; where documents are held back, every second one is plain, until the others gain less than tol.

    Long steps make topics too sharp to compare. Sharper ones cost documents that are held back a little long before
    they are as near as they get; where that is much, as of short documents, the last two steps are taken back.
    """
    history: list[float] = []
    kept, before, most, words = topics, -np.inf, -np.inf, None
    enough = sample.census.n_used >= _DOCUMENTS_PER_TOPIC * topics.shape[1]
    for i in range(max_iter + 1):
        compared = bool(held) and i > 0 and i % 2 == 0
        model = setting.model(topics, sample.longest, held, words if enough else None)
        seen = refine(sample.rows, model, setting.scales, sample.run, EVERYTHING if compared else EVERYTHING[:2])
        history.append(seen.mean)
        if compared:
            if seen.held_out < most - _LOSS:
                return _Taught(kept, history[: i - 1], True)
            if seen.mean < before + tol:
                return _Taught(topics, history, True)
            kept, before, most = topics, seen.mean, max(most, seen.held_out)
        if i < max_iter:
            topics, words = setting.m_step(topics, seen, 1.0 if held and i % 2 else _TOPIC_POWER)
    return _Taught(topics, history, False)


def begin_topics(found: FittedTopics, census: DocumentCensus) -> Sums:
    """Return the sums that a fit ended with: words by topic, words and documents that hold them."""
    counts = found.counts
    if counts is None:  # no pass over all documents: what the anchors' topics say
        counts = found.topics * (found.weights * float(census.words.sum()))
    return {"counts": np.ascontiguousarray(counts.T), "words": census.words, "documents": census.documents}


def see_documents(model: Any, rows: Rows, run: Run, so_far: Sums) -> tuple[Sums, float, DocumentCensus]:
    """Run two passes over a batch: a census, and one of EM.

    so_far: sums of the documents before. Words that are met for the first time are as frequent in all topics as in the
    corpus. Returns the sums, the log likelihood per word, and the census.
    """
    operator = cooccurrence_of(rows, run)
    census = operator.census
    words, documents = so_far["words"] + census.words, so_far["documents"] + census.documents
    probability = _probability(model, words, documents, model.n_documents_ + census.n_used)
    topics = np.where(model.word_probabilities_ > 0.0, model.components_, probability) * (probability > 0.0)
    topics = np.ascontiguousarray((topics / topics.sum(axis=1, keepdims=True)).T)
    setting = _setting(model, probability, count_scales(census.words + census.n_short + 1.0))
    seen = refine(rows, setting.model(topics, operator.longest), setting.scales, run)
    counts = np.ascontiguousarray(setting.expected(topics, seen).T)
    return {"counts": counts, "words": census.words, "documents": census.documents}, seen.mean, census


def step_topics(model: Any, sums: Sums) -> None:
    """Run the M-step: set the topics, and the probabilities of words."""
    probability = _probability(model, sums["words"], sums["documents"], model.n_documents_)
    setting = _setting(model, probability, np.ones(len(probability)))
    topics, model.topic_weights_ = setting.topics_of(sums["counts"].T * (probability > 0.0)[:, None])
    model.components_ = np.ascontiguousarray(topics.T)
    model.word_probabilities_, model.n_words_ = probability, int((probability > 0.0).sum())


def _probability(model: Any, words: Floats, documents: Floats, n_used: float) -> Floats:
    known = words_of_enough(documents, n_used, model.min_df)[0] & (words > 0.0)
    found = np.where(known, words, 0.0)
    probability: Floats = found / found.sum()
    return probability


def _setting(model: Any, probability: Floats, scales: Floats) -> Refinement:
    return Refinement(probability, scales, model._prior(model.n_components_), float(model.topic_word_prior))
