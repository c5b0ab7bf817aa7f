"""The recipe of topics: the spectrum of the co-occurrence, anchor words, recovery, passes of EM; and its checks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dask_dca.anchoring.parameters import check_integer
from dask_dca.engine.numerics import one_blas_thread
from dask_dca.errors import FewerAnchorsWarning, InvalidInputError, InvalidParameterError, warn
from dask_dca.models.lda.inference import dirichlet_weights
from dask_dca.models.lda.passes import TopicModel, Words, leading_pairs, refine
from dask_dca.models.lda.topics import (
    direction_count,
    grouped_vertices,
    noise_edge,
    recover_topics,
    select_words,
    word_points,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dask_dca.engine.passes import Run
    from dask_dca.engine.rows import Rows
    from dask_dca.models.lda.corpus import Cooccurrence, DocumentCensus

    Floats = NDArray[np.float64]
    Numbers = NDArray[np.int64]

__all__ = [
    "FittedTopics",
    "Refinement",
    "WordSpectrum",
    "check_parameters",
    "check_topics",
    "known_words",
    "refine_topics",
    "robust_topics",
    "smoothed",
]

_TRANSPOSED: Final = 2.0  # lengths of documents that are this much more uneven than frequencies of words
_MOST_AUTO: Final = 64  # greatest number of topics that n_components="auto" considers
_EXTRA: Final = 10  # columns of a Krylov block beyond k
_SHARE_OF_CORPUS: Final = 0.01  # what topics are mixed with before likelihoods are taken
_POWERS: Final = (3.0, 3.0, 2.0, 1.0)  # of the steps of inference: as good as a dozen plain ones
_TOPIC_POWER: Final = 2.0  # of EM's own factor on topics, while the likelihood rises and further passes follow
_CORPUS_WORDS: Final = 20.0  # pseudo-words in each topic that are as frequent as in the corpus
_LEAST_COUNT: Final = 0.1  # of the prior's, below which no word may be thrown by a long step
_MIXTURE_UNIT: Final = 2.0**-16  # of mixtures, in sums of counts


def check_parameters(model: Any, n_words: int) -> None:
    """Check the parameters of a model.

    Raises InvalidParameterError: one is out of range.
    """
    check_integer("max_iter", model.max_iter, 0)
    if model.subsample is not None:
        check_integer("subsample", model.subsample, 1)
    share = isinstance(model.min_df, float) and 0.0 <= model.min_df <= 1.0
    if not share:
        check_integer("min_df", model.min_df, 0)
    for name in ("doc_topic_prior", "topic_word_prior"):
        value = getattr(model, name)
        if value is not None and not (isinstance(value, int | float | np.number) and 0.0 < value < np.inf):
            msg = f"{name} must be a positive number; received {value!r}"
            raise InvalidParameterError(msg)
    if model.n_components == "auto":
        if model.method == "paper":
            msg = "method='paper' needs the number of topics; pass n_components=20, or use method='robust'"
            raise InvalidParameterError(msg)
    elif check_integer("n_components", model.n_components, 1) > n_words:
        msg = f"n_components={model.n_components} exceeds the number of words, n_features = {n_words}"
        raise InvalidParameterError(msg)


def known_words(census: DocumentCensus, min_df: int | float) -> NDArray[np.bool_]:
    """Choose the words that take part, after checking that there are documents of words.

    min_df: documents that a word must be in: a number, or a share of the documents. Returns (V,): true for these.
    Raises InvalidInputError: no document has two words, or no word is in enough documents.
    """
    if census.n_used == 0:
        msg = (
            f"no document has two words: {census.n_empty} are empty, {census.n_short} have one; topics are learnt from "
            "pairs of words in a document, so pass documents as rows and words as columns"
        )
        raise InvalidInputError(msg)
    least = min_df if isinstance(min_df, int | np.integer) else np.ceil(min_df * census.n_used)
    known: NDArray[np.bool_] = census.documents >= max(1, least)
    if not known.any():
        msg = f"no word is in {int(least)} documents or more (min_df={min_df!r}); use a smaller min_df"
        raise InvalidInputError(msg)
    _warn_if_transposed(census)
    return known


def _warn_if_transposed(census: DocumentCensus) -> None:
    """Words' frequencies are far more uneven than documents' lengths; the other way round, rows are words."""
    words = census.words[census.words > 0]
    n, p = census.n_used, len(words)
    if min(n, p) < 100:
        return
    rows = np.sqrt(max(census.squares * n / words.sum() ** 2 - 1.0, 0.0))
    columns = float(words.std() / words.mean())
    if rows > max(1.0, _TRANSPOSED * columns):
        warn(
            "rows of X look like words and columns like documents: the sums of rows are "
            f"{rows / max(columns, 1e-9):.1f} times as uneven as those of columns; if so, pass X.T: documents are rows",
            UserWarning,
        )


def check_topics(n_topics: int | None, known: NDArray[np.bool_]) -> None:
    """Check that there are enough words for the topics.

    n_topics: number of topics asked for; known (V,): words that take part.
    Raises InvalidParameterError: there are fewer words.
    """
    if n_topics is not None and n_topics > known.sum():
        msg = (
            f"n_components={n_topics} exceeds the number of words that take part, {known.sum()} of n_features = "
            f"{len(known)}; use at most that many"
        )
        raise InvalidParameterError(msg)


@dataclass(frozen=True)
class WordSpectrum:
    """Leading eigenpairs of the scaled co-occurrence.

    values (m,): eigenvalues of diag(h) Q diag(h), the greatest first; vectors (V, min(m, k)): the first eigenvectors;
    edge: the greatest eigenvalue that words drawn independently of each other would make; floor: the soft floor tau in
    h = (p + tau)^(-1/2).
    """

    values: Floats
    vectors: Floats
    edge: float
    floor: float

    @property
    def n_above(self) -> int:
        """How many eigenvalues stand above the noise."""
        return max(1, int((self.values > self.edge).sum()))


@dataclass(frozen=True)
class FittedTopics:
    """Topics, and what they rest on.

    topics (V, k): columns on the simplex; weights, alpha (k,): share of the words in each topic, and the Dirichlet
    parameter; anchors, votes (k,): anchor words and their votes; candidates, candidate_votes (c,): all words with
    votes; spectrum (m,): eigenvalues, as far as they are known; edge: the noise's share of them.
    """

    topics: Floats
    weights: Floats
    alpha: Floats
    anchors: Numbers
    votes: Numbers
    candidates: Numbers
    candidate_votes: Numbers
    n_planes: int
    spectrum: Floats
    edge: float

    def with_topics(self, topics: Floats, weights: Floats) -> FittedTopics:
        """Return the same with other topics.

        topics, weights: the topics, in the same order.
        """
        return replace(self, topics=topics, weights=weights)

    def ordered(self) -> FittedTopics:
        """Return the same, the topic of most words first."""
        order = np.argsort(-self.weights, kind="stable")
        return replace(
            self,
            topics=self.topics[:, order],
            weights=self.weights[order],
            alpha=self.alpha[order],
            anchors=self.anchors[order],
            votes=self.votes[order],
        )


def robust_topics(
    operator: Cooccurrence, known: NDArray[np.bool_], n_topics: int | None, n_planes: int | None, seed: int
) -> FittedTopics:
    """Find topics: five passes over the documents for the spectrum, four over the words, few sums on the driver.

    known (V,): words that take part; n_topics: number of topics k; None takes it from the spectrum.
    Raises InvalidParameterError: there are fewer words than topics.
    """
    check_topics(n_topics, known)
    probability = np.where(known, operator.census.words, 0.0) / operator.total
    with one_blas_thread():
        spectrum = _spectrum(operator, known, probability, n_topics, seed)
        k = _checked_count(n_topics, spectrum)
        values, vectors = spectrum.values[:k], spectrum.vectors[:, :k]
        points = word_points(values, vectors, probability, spectrum.floor)
        words = Words(len(known), operator.run, operator.rows.kind == "memory")
        voted = words.votes(points, values, direction_count(k, n_planes), seed)
        anchors = select_words(points, voted.rows, k)
        vertices, coefficients = grouped_vertices(points, anchors, words.mixtures)
        topics, weights = recover_topics(points, vertices, coefficients, words.mixtures)
        alpha = dirichlet_weights(topics, probability, spectrum.floor, values, vectors)
    own = voted.votes[np.searchsorted(voted.rows, anchors)]
    certificate = (anchors, own, voted.rows, voted.votes, voted.n_subproblems, spectrum.values, spectrum.edge)
    return FittedTopics(topics, weights, alpha, *certificate)


def _spectrum(
    operator: Cooccurrence, known: NDArray[np.bool_], probability: Floats, n_topics: int | None, seed: int
) -> WordSpectrum:
    floor = operator.census.squares / operator.total**2  # one over the number of documents of equal length
    scale = np.where(known, 1.0 / np.sqrt(probability + floor), 0.0)
    most = n_topics or _MOST_AUTO
    values, vectors = leading_pairs(operator, scale, min(most + _EXTRA, int(known.sum())), most, seed)
    edge = noise_edge(probability, floor, operator.census.n_used / operator.total**2)
    return WordSpectrum(values, vectors, edge, floor)


def _checked_count(n_topics: int | None, spectrum: WordSpectrum) -> int:
    if n_topics is None:
        return min(spectrum.n_above, _MOST_AUTO)
    positive = int((spectrum.values > 1e-9 * spectrum.values[0]).sum())
    if spectrum.n_above < n_topics:
        warn(
            f"only {spectrum.n_above} directions of the words' co-occurrence stand out from noise, and "
            f"n_components={n_topics} topics were asked for; the last ones rest on noise: use n_components='auto' or "
            f"{spectrum.n_above}",
            FewerAnchorsWarning,
        )
    return max(1, min(n_topics, positive))


def smoothed(topics: Floats, probability: Floats) -> Floats:
    """Mix topics with a little of the corpus, so that no known word is impossible.

    topics (V, k): columns on the simplex; probability (V,): word probabilities, zero for words that take no part.
    Returns (V, k): 99 parts of the topics and one of the corpus.
    """
    whole = probability / probability.sum()
    return (1.0 - _SHARE_OF_CORPUS) * topics + _SHARE_OF_CORPUS * whole[:, None]


@dataclass(frozen=True)
class Refinement:
    """What stays the same in all passes of EM.

    probability (V,): word probabilities, zero for words that take no part; scales (V,): from `count_scales`; doc_prior,
    word_prior: pseudo-words of each topic in a document, and of each word in a topic; longest: documents beyond this
    length count for an eighth of it.
    """

    probability: Floats
    scales: Floats
    doc_prior: float
    word_prior: float
    longest: float = np.inf

    @property
    def inverse(self) -> Floats:
        """Inverse word probabilities.

        Returns (V,): zero for words that take no part.
        """
        known = self.probability > 0.0
        return np.where(known, 1.0 / np.where(known, self.probability, 1.0), 0.0)


def refine_topics(
    rows: Rows, found: FittedTopics, setting: Refinement, n_passes: int, run: Run
) -> tuple[FittedTopics, list[float]]:
    """Improve topics by passes of EM over documents.

    rows: the documents, or a sample of them; found: topics to start from, smoothed; setting: what stays the same in all
    passes. Returns likelihoods: log-likelihood per word before each pass.
    """
    topics, weights, likelihoods = found.topics, found.weights, []
    prior = setting.word_prior * (setting.probability > 0.0) + _CORPUS_WORDS * setting.probability
    for i in range(n_passes):
        rates = topics * setting.inverse[:, None]
        model = TopicModel(rates.astype(np.float32), setting.probability, setting.doc_prior, _POWERS, setting.longest)
        seen = refine(rows, model, setting.scales, run)
        counts = rates * seen.counts * (_MIXTURE_UNIT / setting.scales)[:, None]
        counts += prior[:, None]
        likelihoods.append(seen.mean)
        weights = counts.sum(axis=0)
        moved = counts / weights
        if i < n_passes - 1 and likelihoods[-1] >= max(likelihoods[:-1], default=-np.inf):
            moved = _further(topics, moved, np.outer(_LEAST_COUNT * prior, 1.0 / weights))
        topics = moved
    return found.with_topics(topics, weights / weights.sum()), likelihoods


def _further(topics: Floats, moved: Floats, least: Floats) -> Floats:
    """Move topics by a power of the factor that EM moves them by: fewer passes are needed."""
    known = topics > 0.0
    factor = np.divide(moved, topics, out=np.ones_like(moved), where=known)
    further = np.maximum(topics * factor**_TOPIC_POWER, least)
    return further / further.sum(axis=0)
