"""EM steps that improve topics, a search for moves of topics on some documents, and steps of `partial_fit`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from scipy import sparse

from dask_dca.engine.passes import Run
from dask_dca.engine.process import one_blas_thread
from dask_dca.engine.rows import Rows, as_rows
from dask_dca.geometry.arrays import Floats
from dask_dca.models.lda.corpus import Cooccurrence, DocumentCensus, cooccurrence_of, fetch_documents
from dask_dca.models.lda.documents import COLD_START, TrainingCounts, count_scales, damped_counts, token_halves
from dask_dca.models.lda.fit import FittedTopics, words_of_enough
from dask_dca.models.lda.moves import Corpus, MovedTopics, split_and_merge
from dask_dca.models.lda.passes import TopicCounts, TopicModel, burstiness, held_out_sums, refine
from dask_dca.models.lda.topics import smooth_topics, two_level_topics, updated_topics

Sums = dict[str, Floats]


_SEARCH_DOCUMENTS: Final = 5000  # maximum number of documents for the search, and for the measure of bursts
_SEARCH_ENTRIES: Final = 2**21  # maximum number of entries of the documents for the search
_SEARCH_PARTS: Final = 5  # one in this many documents of the search is held out to score topics
_MIN_SEARCH_DOCUMENTS: Final = 2500  # minimum number of documents: moves found on fewer don't generalise


@dataclass(frozen=True)
class _SearchDocuments:
    """Documents in memory that topics are fitted to, held-out ones that score them, and the settings of EM."""

    training: sparse.csr_array
    held_out: sparse.csr_array
    setting: Refinement

    def step(self, topics: Floats, power: float, words: Floats | None = None) -> tuple[Floats, Floats]:
        """Take a step of EM, in which mixtures start from equal shares."""
        model = self.setting.model(topics, np.inf, words=words)
        seen = refine(as_rows(self.training), model, self.setting.scales, Run(), ["counts"])
        return self.setting.m_step(topics, seen, power)

    def score(self, topics: Floats) -> float:
        """Score topics on the held-out documents, after a final plain step with undamped counts."""
        last = replace(self, setting=replace(self.setting, damped=False))
        model = last.setting.model(last.step(topics, 1.0)[0], np.inf)
        likelihood, n_words = held_out_sums(self.held_out, model, token_halves)
        return likelihood / max(n_words, 1)


def search_topics(
    sample: Cooccurrence, topics: Floats, setting: Refinement, n_steps: int, power: float, n_given: int
) -> MovedTopics | None:
    """Search for better topics by splits and merges.

    topics (V, k): the start; n_steps, power: the steps that are taken without moves; n_given: the first topics are not
    moved. Returns None if steps alone score better on held-out documents, or if there are few documents.
    """
    documents = fetch_documents(sample, _SEARCH_DOCUMENTS, _SEARCH_ENTRIES)
    if documents.shape[0] < _MIN_SEARCH_DOCUMENTS:
        return None
    n_held_out = documents.shape[0] // _SEARCH_PARTS
    with one_blas_thread():
        search = _SearchDocuments(documents[n_held_out:], documents[:n_held_out], setting)
        plain, words = topics, None
        for _ in range(n_steps):
            plain, words = search.step(plain, power, words)
        corpus = Corpus(damped_counts(search.training), setting.probability, setting.prior, setting.doc_prior)
        return split_and_merge(corpus, topics, search.score, search.score(plain), n_given)


_MIN_BURSTINESS: Final = 1.25  # burstiness from which documents count by roots, and EM starts from two-level topics
_BURSTY_STEPS: Final = 9  # maximum number of steps for bursty documents
_DOCUMENTS_PER_TOPIC: Final = 8  # minimum number of documents per topic to leave a document's own part out of topics
_STEPS_AFTER_SEARCH: Final = 3  # number of steps after a search that found better topics
_HELD_OUT_SHARE: Final = 0.1  # share of the documents that are held out, to decide when steps end
_MAX_HELD_OUT_LOSS: Final = 0.025  # maximum loss of their log likelihood per word, beyond which steps are undone
_LAST_POWERS: Final = (3.0, 1.0)  # powers of inference steps in a last pass over more documents than the sample
_TOPIC_POWER: Final = 2.0  # power of EM's factor on topics in over-relaxed steps; plain ones correct their overshoot
_CORPUS_PRIOR_WORDS: Final = 20.0  # pseudo-words in each topic, as frequent as in the corpus
_MIXTURE_UNIT: Final = 2.0**-16  # unit of mixtures in expected counts


@dataclass(frozen=True)
class Refinement:
    """Settings that all passes of EM share.

    probability (V,): word probabilities, zero for words that are left out; scales (V,): from `count_scales`; doc_prior,
    word_prior: pseudo-words of each topic in a document, and of each word in a topic; damped: for bursty words:
    documents count by the roots of their counts, and their own part in topics is left out.
    """

    probability: Floats
    scales: Floats
    doc_prior: float
    word_prior: float
    damped: bool = False

    @property
    def prior(self) -> Floats:
        """Pseudo-words (V,) in each topic."""
        return self.word_prior * (self.probability > 0.0) + _CORPUS_PRIOR_WORDS * self.probability

    def model(
        self, topics: Floats, max_length: float, held_out: float = 0.0, words: Floats | None = None
    ) -> TopicModel:
        """Prepare a pass over documents, of which those beyond `max_length` count less, and a share is held out.

        words (k,): number of words in each topic, if topics were fitted to the same documents.
        """
        known = self.probability > 0.0
        rates = topics / np.where(known, self.probability, 1.0)[:, None] * known[:, None]
        single = np.float32
        training = None
        if self.damped and words is not None:
            training = TrainingCounts(self.probability.astype(single), words.astype(single))
        return TopicModel(
            rates.astype(single),
            self.probability,
            self.doc_prior,
            COLD_START,
            max_length,
            held_out,
            self.damped,
            training,
        )

    def m_step(self, topics: Floats, seen: TopicCounts, power: float = 1.0) -> tuple[Floats, Floats]:
        """Run the M-step, over-relaxed if `power` is greater than one: topics, and the number of words in each."""
        return updated_topics(topics, self.expected(topics, seen), self.prior, power)

    def expected(self, topics: Floats, seen: TopicCounts) -> Floats:
        """Return the expected number of occurrences (V, k) of each word in each topic."""
        known = self.probability > 0.0
        rates = topics / np.where(known, self.probability, 1.0)[:, None]
        return rates * seen.counts * (_MIXTURE_UNIT / self.scales)[:, None]

    def topics_of(self, counts: Floats) -> tuple[Floats, Floats]:
        """Convert counts (V, k) to topics, and their shares of the corpus."""
        topics, words = updated_topics(counts, counts, self.prior)
        return topics, words / words.sum()


@dataclass(frozen=True)
class RefinedTopics:
    """Topics after passes of EM.

    log_likelihoods: per word of the sample's documents that are not held out, before each step and at the end;
    converged: whether steps ended before their maximum number; burstiness: under the anchors' topics; n_moves: number
    of splits, each with a merge.
    """

    found: FittedTopics
    log_likelihoods: list[float]
    converged: bool
    burstiness: float
    n_moves: int


def refine_topics(
    sample: Cooccurrence, whole: Cooccurrence, found: FittedTopics, setting: Refinement, max_iter: int, tol: float
) -> RefinedTopics:
    """Improve topics by EM: steps over a sample of the documents, and a last one over all.

    For bursty documents there are nine steps from two-level topics, or three from topics that a search by splits and
    merges found, and documents count by the roots of their counts: they are not drawn from the model, so no likelihood
    decides when to stop. For others a tenth of the documents is held out, and decides when steps end.
    """
    topics = smooth_topics(found.topics, setting.probability)
    share = _SEARCH_DOCUMENTS / sample.census.n_used
    bursts = burstiness(sample.rows, setting.model(topics, sample.max_length), topics, share, sample.run)
    held_out, n_moves = _HELD_OUT_SHARE, 0
    if bursts > _MIN_BURSTINESS and max_iter:
        topics = two_level_topics(found.topics, found.weights, setting.probability, found.n_given)
        setting = replace(setting, damped=True)
        max_iter, held_out = min(max_iter, _BURSTY_STEPS), 0.0
        if max_iter == _BURSTY_STEPS:
            moved = search_topics(sample, topics, setting, max_iter - 1, _TOPIC_POWER, found.n_given)
            if moved is not None:
                topics, max_iter, n_moves = moved.topics, _STEPS_AFTER_SEARCH, moved.n_moves
    stepped = _step_on_sample(sample, topics, setting, max(max_iter - 1, 0), held_out, tol)
    history = stepped.log_likelihoods
    if not max_iter:
        return RefinedTopics(found.with_topics(topics, found.weights), history, False, bursts, 0)
    setting = replace(setting, damped=False)
    model = setting.model(stepped.topics, whole.max_length)
    if whole is not sample:
        model = replace(model, powers=_LAST_POWERS)
    seen = refine(whole.rows, model, setting.scales, whole.run, ["counts"])
    counts = setting.expected(stepped.topics, seen)
    found = found.with_topics(*setting.topics_of(counts), counts)
    model = setting.model(found.topics, sample.max_length, held_out)
    end = refine(sample.rows, model, setting.scales, sample.run, ["likelihood"])
    return RefinedTopics(found, [*history, end.mean], stepped.converged, bursts, n_moves)


@dataclass(frozen=True)
class _SampleSteps:
    """Topics after steps over a sample; log likelihoods before each of them and at the end; whether they converged."""

    topics: Floats
    log_likelihoods: list[float]
    converged: bool


def _step_on_sample(
    sample: Cooccurrence, topics: Floats, setting: Refinement, max_iter: int, held_out: float, tol: float
) -> _SampleSteps:
    """Take over-relaxed steps; with held-out documents every second one is plain, until two steps gain less than tol.

    Topics are compared after plain steps only, as over-relaxed ones make them too sharp. The likelihood of held-out
    documents falls a little long before topics are at their best; if it falls by much, as with short documents, the
    last two steps are undone.
    """
    history: list[float] = []
    kept, before, top, words = topics, -np.inf, -np.inf, None
    enough = sample.census.n_used >= _DOCUMENTS_PER_TOPIC * topics.shape[1]
    for i in range(max_iter + 1):
        compared = bool(held_out) and i > 0 and i % 2 == 0
        model = setting.model(topics, sample.max_length, held_out, words if enough else None)
        wanted = ["likelihood", *(["counts"] if i < max_iter else []), *(["completion"] if compared else [])]
        seen = refine(sample.rows, model, setting.scales, sample.run, wanted)
        history.append(seen.mean)
        if compared:
            if seen.held_out < top - _MAX_HELD_OUT_LOSS:
                return _SampleSteps(kept, history[: i - 1], True)
            if seen.mean < before + tol:
                return _SampleSteps(topics, history, True)
            kept, before, top = topics, seen.mean, max(top, seen.held_out)
        if i < max_iter:
            topics, words = setting.m_step(topics, seen, 1.0 if held_out and i % 2 else _TOPIC_POWER)
    return _SampleSteps(topics, history, False)


def begin_topics(found: FittedTopics, census: DocumentCensus) -> Sums:
    """Return the sums of a fit for `partial_fit`: words by topic, occurrences of words, and of documents."""
    counts = found.counts
    if counts is None:  # no pass over all documents was made: from the anchors' topics
        counts = found.topics * (found.weights * float(census.words.sum()))
    return {"counts": np.ascontiguousarray(counts.T), **_census_sums(census)}


def _census_sums(census: DocumentCensus) -> Sums:
    """Occurrences of words, documents that contain them, and documents with a pair of words."""
    return {"words": census.words, "documents": census.documents, "used": np.array([census.n_used])}


def see_documents(model: Any, rows: Rows, run: Run, so_far: Sums) -> tuple[Sums, float, DocumentCensus]:
    """Run two passes over a batch, the census and an E-step; return the sums, the log likelihood per word, the census.

    so_far: sums of earlier documents. New words are in all topics as frequent as in the corpus.
    """
    operator = cooccurrence_of(rows, run)
    census = operator.census
    own = _census_sums(census)
    probability = _probability(model, {name: so_far[name] + value for name, value in own.items()})
    topics = np.where(model.word_probabilities_ > 0.0, model.components_, probability) * (probability > 0.0)
    topics = np.ascontiguousarray((topics / topics.sum(axis=1, keepdims=True)).T)
    setting = _setting(model, probability, count_scales(census.words + census.n_short + 1.0))
    seen = refine(rows, setting.model(topics, operator.max_length), setting.scales, run)
    counts = np.ascontiguousarray(setting.expected(topics, seen).T)
    return {"counts": counts, **own}, seen.mean, census


def step_topics(model: Any, sums: Sums) -> None:
    """Run the M-step on the sums of a stream: set the topics, and the probabilities of words."""
    probability = _probability(model, sums)
    setting = _setting(model, probability, np.ones(len(probability)))
    topics, model.topic_weights_ = setting.topics_of(sums["counts"].T * (probability > 0.0)[:, None])
    model.components_ = np.ascontiguousarray(topics.T)
    model.word_probabilities_, model.n_words_ = probability, int((probability > 0.0).sum())


def _probability(model: Any, sums: Sums) -> Floats:
    known = words_of_enough(sums["documents"], float(sums["used"][0]), model.min_df) & (sums["words"] > 0.0)
    found = np.where(known, sums["words"], 0.0)
    return found / found.sum()


def _setting(model: Any, probability: Floats, scales: Floats) -> Refinement:
    return Refinement(probability, scales, model._prior(model.n_components_), float(model.topic_word_prior))
