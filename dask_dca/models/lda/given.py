"""Topics from anchor words that are given, and topics that go on with more documents and words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dask_dca.errors import InvalidParameterError
from dask_dca.models.lda.corpus import cooccurrence_of
from dask_dca.models.lda.fit import words_of_enough
from dask_dca.models.lda.inference import count_scales
from dask_dca.models.lda.passes import refine
from dask_dca.models.lda.refine import Refinement, batch_setting

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dask_dca.engine.passes import Run
    from dask_dca.engine.rows import Rows
    from dask_dca.geometry.arrays import Floats, Numbers
    from dask_dca.models.lda.corpus import DocumentCensus
    from dask_dca.models.lda.fit import FittedTopics

    Sums = dict[str, Floats]


def given_words(given: Any, names: NDArray[Any] | None, n_words: int) -> Numbers:
    """Take anchor words as numbers of columns.

    given: numbers or names, None for none; names (V,): of the columns, if they have any. Returns (r,): distinct ones.
    Raises InvalidParameterError: neither of these, repeated, or not among the words.
    """
    if given is None:
        return np.zeros(0, dtype=np.int64)
    words = np.asarray(given)
    if words.ndim != 1 or words.dtype.kind not in "iuUO":
        msg = f"anchor_words must be column numbers from 0, or names of words; received {given!r}"
        raise InvalidParameterError(msg)
    words = words if words.dtype.kind in "iu" else _numbers(words.tolist(), names)
    if len(np.unique(words)) < len(words) or words.min() < 0 or words.max() >= n_words:
        msg = f"anchor_words must be distinct columns, from 0 to {n_words - 1}; received {given!r}"
        raise InvalidParameterError(msg)
    return words.astype(np.int64)


def _numbers(words: list[Any], names: NDArray[Any] | None) -> Numbers:
    if names is None:
        msg = (
            f"anchor_words names words ({words[0]!r}), and the columns of X have no names; pass their numbers, such as "
            "vectorizer.vocabulary_[word], or a table with named columns"
        )
        raise InvalidParameterError(msg)
    places = {name: place for place, name in enumerate(names)}
    absent = [word for word in words if word not in places]
    if absent:
        msg = f"anchor_words holds {absent[0]!r}, which is no column of X; words are spelt as in feature_names_in_"
        raise InvalidParameterError(msg)
    return np.array([places[word] for word in words])


def check_given(given: Numbers, known: NDArray[np.bool_], n_topics: int | None) -> None:
    """Check that words that are given can all be anchor words.

    given (r,): from `given_words`; known (V,): words that take part; n_topics: how many there are to be, if that is
    said.
    Raises InvalidParameterError: there are more of them than topics, or one takes no part.
    """
    if n_topics is not None and len(given) > n_topics:
        r = len(given)
        msg = f"anchor_words holds {r} words where n_components={n_topics}; ask for at least {r} topics"
        raise InvalidParameterError(msg)
    unknown = given[~known[given]]
    if len(unknown):
        msg = f"anchor_words holds column {unknown[0]}, which is in too few documents to take part; leave it out"
        raise InvalidParameterError(msg)


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
    priors = (model._prior(model.n_components_), float(model.topic_word_prior))
    return batch_setting(probability, scales, priors, float(model.burstiness_))
