"""The recipe of topics by anchor words: spectrum of the co-occurrence, anchors, recovery; and checks of parameters."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dask_dca.anchoring.parameters import check_integer, check_number, is_auto
from dask_dca.engine.process import one_blas_thread
from dask_dca.errors import FewerAnchorsWarning, InvalidInputError, InvalidParameterError, warn
from dask_dca.geometry.arrays import Floats, Numbers
from dask_dca.models.lda.corpus import Cooccurrence, DocumentCensus
from dask_dca.models.lda.passes import WordBlocks, leading_pairs
from dask_dca.models.lda.topics import (
    direction_count,
    dirichlet_weights,
    grouped_vertices,
    noise_edge,
    recover_topics,
    select_words,
    word_points,
)

_TRANSPOSED_RATIO: Final = 2.0  # row sums vary this much more than column sums if rows seem to be words
_MAX_AUTO_TOPICS: Final = 64  # maximum number of topics with n_components="auto"
_EXTRA_COLUMNS: Final = 10  # columns of a Krylov block beyond the number of topics


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
        if value is not None or name == "topic_word_prior":
            check_number(name, value, positive=True)
    check_number("tol", model.tol)
    if model.anchor_words is not None and model.method == "paper":
        msg = "anchor words that are given need method='robust'; the paper's method takes those of most votes"
        raise InvalidParameterError(msg)
    if is_auto(model.n_components):
        if model.method == "paper":
            msg = "method='paper' needs the number of topics; pass n_components=20, or use method='robust'"
            raise InvalidParameterError(msg)
    elif check_integer("n_components", model.n_components, 1, auto=True) > n_words:
        msg = f"n_components={model.n_components} exceeds the number of words, n_features = {n_words}"
        raise InvalidParameterError(msg)


def given_words(given: Any, names: NDArray[Any] | None, n_words: int) -> Numbers:
    """Convert given anchor words, column numbers or names (None for none), to column numbers (r,).

    names (V,): names of the columns, if they have any.
    Raises InvalidParameterError: neither numbers nor names, repeated, or not among the words.
    """
    if given is None:
        return np.zeros(0, dtype=np.int64)
    words = np.asarray(given)
    if words.ndim != 1 or words.dtype.kind not in "iuUO":
        msg = f"anchor_words must be column numbers from 0, or names of words; received {given!r}"
        raise InvalidParameterError(msg)
    words = words if words.dtype.kind in "iu" else _column_numbers(words.tolist(), names)
    if len(np.unique(words)) < len(words) or words.min() < 0 or words.max() >= n_words:
        msg = f"anchor_words must be distinct columns, from 0 to {n_words - 1}; received {given!r}"
        raise InvalidParameterError(msg)
    return words.astype(np.int64)


def _column_numbers(words: list[Any], names: NDArray[Any] | None) -> Numbers:
    if names is None:
        msg = (
            f"anchor_words names words ({words[0]!r}), and the columns of X have no names; pass their numbers, such as "
            "vectorizer.vocabulary_[word], or a table with named columns"
        )
        raise InvalidParameterError(msg)
    places = {name: place for place, name in enumerate(names)}
    absent = [word for word in words if word not in places]
    if absent:
        msg = f"anchor_words holds {absent[0]!r}, which is not a column of X; words are spelt as in feature_names_in_"
        raise InvalidParameterError(msg)
    return np.array([places[word] for word in words])


def check_given(given: Numbers, known: NDArray[np.bool_], n_topics: int | None) -> None:
    """Check that given anchor words (r,) can be used; known (V,): words that are not left out.

    Raises InvalidParameterError: there are more of them than topics, or one is left out.
    """
    if n_topics is not None and len(given) > n_topics:
        r = len(given)
        msg = f"anchor_words holds {r} words where n_components={n_topics}; ask for at least {r} topics"
        raise InvalidParameterError(msg)
    unknown = given[~known[given]]
    if len(unknown):
        msg = f"anchor_words holds column {unknown[0]}, which is in too few documents (see min_df); leave it out"
        raise InvalidParameterError(msg)


def known_words(census: DocumentCensus, min_df: int | float) -> NDArray[np.bool_]:
    """Choose the words (V,) that are in at least `min_df` documents, a number or a share; others are left out.

    Raises InvalidInputError: no document has two words, or no word is in enough documents.
    """
    if census.n_used == 0:
        msg = (
            f"no document has two words: {census.n_empty:g} are empty, {census.n_short:g} have one; topics are fitted "
            "to pairs of words in a document, so pass documents as rows and words as columns"
        )
        raise InvalidInputError(msg)
    known = words_of_enough(census.documents, census.n_used, min_df)
    _warn_if_transposed(census)
    return known


def words_of_enough(documents: Floats, n_used: float, min_df: int | float) -> NDArray[np.bool_]:
    """Choose words by the number of documents (V,) that contain them.

    Raises InvalidInputError: no word is in enough documents.
    """
    minimum = float(min_df if isinstance(min_df, int | np.integer) else np.ceil(min_df * n_used))
    known = documents >= minimum if minimum > 1.0 else documents > 0.0
    if not known.any():
        msg = f"no word is in {int(minimum)} documents or more (min_df={min_df!r}); use a smaller min_df"
        raise InvalidInputError(msg)
    return known


def _warn_if_transposed(census: DocumentCensus) -> None:
    """Warn if sums of rows vary more than sums of columns: word frequencies vary far more than document lengths."""
    words = census.words[census.words > 0]
    n, p = census.n_used, len(words)
    if min(n, p) < 100:
        return
    rows = np.sqrt(max(census.squares * n / words.sum() ** 2 - 1.0, 0.0))
    columns = float(words.std() / words.mean())
    if rows > max(1.0, _TRANSPOSED_RATIO * columns):
        warn(
            "rows of X look like words and columns like documents: the sums of rows are "
            f"{rows / max(columns, 1e-9):.1f} times as uneven as those of columns; if so, pass X.T: documents are rows",
            UserWarning,
        )


def check_topics(n_topics: int | None, known: NDArray[np.bool_]) -> None:
    """Check that there are enough words for the topics; known (V,): words that are not left out.

    Raises InvalidParameterError: there are fewer words than topics.
    """
    if n_topics is not None and n_topics > known.sum():
        msg = (
            f"n_components={n_topics} exceeds the number of words in enough documents, {known.sum()} of n_features = "
            f"{len(known)}; use at most that many"
        )
        raise InvalidParameterError(msg)


@dataclass(frozen=True)
class WordSpectrum:
    """Leading eigenpairs of the scaled co-occurrence diag(h) Q diag(h), with h = (p + tau)^(-1/2).

    values (m,): the greatest first; vectors (V, min(m, k)): the first eigenvectors; edge: greatest eigenvalue expected
    of independent words; floor: the soft floor tau.
    """

    values: Floats
    vectors: Floats
    edge: float
    floor: float

    @property
    def n_above(self) -> int:
        """Number of eigenvalues above the noise edge, at least one."""
        return max(1, int((self.values > self.edge).sum()))


@dataclass(frozen=True)
class FittedTopics:
    """Topics, and their anchors and votes.

    topics (V, k): columns on the simplex; weights, alpha (k,): share of the corpus's words, and Dirichlet parameter;
    counts (V, k): expected words by topic in the last pass over all documents, if there was one; anchors, votes (k,);
    candidates, candidate_votes (c,): all words with votes; spectrum (m,): eigenvalues, if computed; edge: of the noise;
    n_given: number of given anchor words, which come first until topics are ordered.
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
    counts: Floats | None = None
    n_given: int = 0

    def with_topics(self, topics: Floats, weights: Floats, counts: Floats | None = None) -> FittedTopics:
        """Return the same with other topics, weights and counts, in the same order."""
        return replace(self, topics=topics, weights=weights, counts=counts)

    def ordered(self) -> FittedTopics:
        """Return the same with topics sorted by decreasing weight."""
        order = np.argsort(-self.weights, kind="stable")
        return replace(
            self,
            topics=self.topics[:, order],
            weights=self.weights[order],
            alpha=self.alpha[order],
            anchors=self.anchors[order],
            votes=self.votes[order],
            counts=None if self.counts is None else self.counts[:, order],
        )


def robust_topics(
    operator: Cooccurrence,
    known: NDArray[np.bool_],
    n_topics: int | None,
    n_planes: int | None,
    seed: int,
    given: Numbers,
) -> FittedTopics:
    """Find topics by five passes over the documents for the spectrum, and four over the words.

    known (V,): words that are not left out; n_topics: None to take it from the spectrum; given (r,): words that must be
    anchor words.
    Raises InvalidParameterError: there are fewer words than topics.
    """
    check_topics(n_topics, known)
    probability = np.where(known, operator.census.words, 0.0) / operator.total
    with one_blas_thread():
        spectrum = _spectrum(operator, known, probability, n_topics, seed)
        k = max(_check_count(n_topics, spectrum), len(given))
        values, vectors = spectrum.values[:k], spectrum.vectors[:, :k]
        points = word_points(values, vectors, probability, spectrum.floor)
        blocks = WordBlocks(len(known), operator.run, operator.rows.kind == "memory")
        voted = blocks.votes(points, values, direction_count(k, n_planes), seed)
        anchors = select_words(points, voted.rows, k, given)
        vertices, coefficients = grouped_vertices(points, anchors, blocks.mixtures)
        topics, weights = recover_topics(points, vertices, coefficients, blocks.mixtures)
        alpha = dirichlet_weights(topics, probability, spectrum.floor, values, vectors)
    own = np.array([int(voted.votes[voted.rows == anchor].sum()) for anchor in anchors])
    certificate = (anchors, own, voted.rows, voted.votes, voted.n_subproblems, spectrum.values, spectrum.edge)
    return FittedTopics(topics, weights, alpha, *certificate, n_given=len(given))


def _spectrum(
    operator: Cooccurrence, known: NDArray[np.bool_], probability: Floats, n_topics: int | None, seed: int
) -> WordSpectrum:
    floor = operator.census.squares / operator.total**2  # 1 / n for n documents of equal length
    scale = np.where(known, 1.0 / np.sqrt(probability + floor), 0.0)
    k = n_topics or _MAX_AUTO_TOPICS
    values, vectors = leading_pairs(operator, scale, min(k + _EXTRA_COLUMNS, int(known.sum())), k, seed)
    edge = noise_edge(probability, floor, operator.census.n_used / operator.total**2)
    return WordSpectrum(values, vectors, edge, floor)


def _check_count(n_topics: int | None, spectrum: WordSpectrum) -> int:
    if n_topics is None:
        return min(spectrum.n_above, _MAX_AUTO_TOPICS)
    positive = int((spectrum.values > 1e-9 * spectrum.values[0]).sum())
    if spectrum.n_above < n_topics:
        warn(
            f"of n_components={n_topics} topics asked for only {spectrum.n_above} stand out from noise in the words' "
            "co-occurrence; the last ones rest on noise: use n_components='auto' or "
            f"{spectrum.n_above}",
            FewerAnchorsWarning,
        )
    return max(1, min(n_topics, positive))
