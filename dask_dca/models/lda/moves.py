"""Splits and merges of topics, which EM can't make by itself, on documents in memory.

A topic is split on the documents that contain it, with all other topics fixed, so that the gain is exact; two topics
are merged where that costs least. Moves are kept if a few steps of EM with them reach a greater likelihood than as many
without.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import ndtri

from dask_dca.geometry.arrays import Floats, Numbers
from dask_dca.geometry.planes import child_seeds, uniforms
from dask_dca.models.lda.documents import COLD_START, mixtures_and_rates, with_data
from dask_dca.models.lda.topics import updated_topics

Singles = NDArray[np.float32]

_WARM_START: Final = (2.0, 1.0)  # powers of inference steps from the mixtures of the step before
_TOPIC_POWER: Final = 2.0  # power of EM's factor on topics
_FIRST_STEPS: Final = 5  # steps before the first round
_TRIAL_STEPS: Final = 4  # steps with and without moves
_MAX_ROUNDS: Final = 8  # maximum number of rounds of moves
_MIN_TOPIC_WORDS: Final = 2.0  # minimum number of a topic's words in a document that contains it
_SPLIT_ENTRIES: Final = 2**16  # entries of the documents that a split is tried on
_MERGE_ENTRIES: Final = 2**15  # entries of the documents that a merge is tried on
_MIN_DOCUMENTS: Final = 10  # minimum number of documents for a split
_DIRECTION_STEPS: Final = 5  # power iterations for the direction of a split
_SPLIT_STEPS: Final = 4  # EM steps for the two halves of a split
_MIN_EXPECTED: Final = 0.05  # entries with a smaller expected number of a topic's words are left out of its split
_SPLIT_PRIOR_WORDS: Final = 10.0  # pseudo-words of the whole topic in each half of a split
_MERGE_LOSS_FACTOR: Final = 0.65  # losses of merges are overestimated, as mixtures adapt further in later steps
_TOPICS_PER_MOVE: Final = 4  # at most one move for this many topics at once
_CORPUS_SHARE: Final = 0.01  # share of the corpus's word probabilities in topics after moves
_MIN_RATE: Final = 1e-9  # minimum rate, for logarithms and quotients
_SEED: Final = 2  # seed of the first direction of a split


@dataclass(frozen=True)
class Corpus:
    """Documents in memory, in random order.

    counts (n, V): word counts; probability (V,): of words; prior (V,): pseudo-words in each topic; doc_prior:
    pseudo-words of each topic in a document.
    """

    counts: sparse.csr_array
    probability: Floats
    prior: Floats
    doc_prior: float

    @cached_property
    def lengths(self) -> Floats:
        """Number of words of each document (n,)."""
        return np.asarray(self.counts.sum(axis=1)).ravel()

    @cached_property
    def inverse(self) -> Floats:
        """Inverse probabilities of words (V,); zero for those that are left out."""
        p = self.probability
        return np.where(p > 0.0, 1.0 / np.where(p > 0.0, p, 1.0), 0.0)

    def entries(self, documents: Numbers) -> tuple[Numbers, Numbers]:
        """Return the indices of the entries of some documents, and for each entry the index among these documents."""
        first = self.counts.indptr.astype(np.int64)
        sizes = first[documents + 1] - first[documents]
        own = np.repeat(np.arange(len(documents)), sizes)
        return np.arange(sizes.sum()) + (first[documents] - np.cumsum(sizes) + sizes)[own], own

    def documents_with(self, mass: Floats, max_entries: int) -> tuple[Numbers, float]:
        """Choose documents with at least two words of a topic, and the factor from sums over them to those over all.

        mass (n,): number of the topic's words in each document; max_entries: of the documents, but at least ten.
        """
        with_topic = np.flatnonzero(mass >= _MIN_TOPIC_WORDS)
        sizes = np.diff(self.counts.indptr)[with_topic].cumsum()
        some = with_topic[: max(_MIN_DOCUMENTS, int((sizes <= max_entries).sum()))]
        return some, float(mass[with_topic].sum() / mass[some].sum()) if len(some) else 1.0


class _State(NamedTuple):
    topics: Floats  # (V, k)
    mixtures: Singles  # (n, k)
    mixed: Floats  # (nnz,): rate of each entry
    likelihood: float  # log likelihood of all words, up to a constant


class Split(NamedTuple):
    """A split of a topic: the gain in log likelihood, the two topics (V, 2), and their shares (2,) of its words."""

    gain: float
    topics: Floats
    shares: Floats


class Merge(NamedTuple):
    """A merge of two topics: the loss in log likelihood, the merged topic (V,), and the two; the lighter one goes."""

    loss: float
    topic: Floats
    lighter: int
    heavier: int


class _Move(NamedTuple):
    predicted_gain: float
    topic: int
    split: Split
    merge: Merge


class MovedTopics(NamedTuple):
    """Topics (V, k) after moves, and the number of moves."""

    topics: Floats
    n_moves: int


def split_and_merge(
    corpus: Corpus, topics: Floats, score: Callable[[Floats], float], threshold: float, n_given: int = 0
) -> MovedTopics | None:
    """Improve topics by EM and by moves, as long as the score on held-out documents rises.

    topics (V, k); score: of topics, on held-out documents; threshold: what it must exceed; n_given: the first topics
    are not moved. Returns the topics of the best score; None if it does not exceed the threshold, as topics of few
    documents may overfit.
    """
    state = _em_steps(corpus, _infer(corpus, topics), _FIRST_STEPS)
    plain = _em_steps(corpus, state, _TRIAL_STEPS)
    top, best, n_moves = score(state.topics), MovedTopics(state.topics, 0), 0
    for _ in range(_MAX_ROUNDS):
        made, state = _round(corpus, state, plain, n_given)
        value = score(state.topics)
        if value <= top:
            break
        n_moves += made
        top, best = value, MovedTopics(state.topics, n_moves)
        if not made:
            break
        plain = _em_steps(corpus, state, _TRIAL_STEPS)
    return best if top > threshold else None


def _round(corpus: Corpus, state: _State, plain: _State, n_given: int) -> tuple[int, _State]:
    """Make the most promising moves, or the better half of them, and so on, until they beat steps without moves."""
    moves = _choose_moves(corpus, state, n_given)
    while moves:
        moved = _em_steps(corpus, _apply_moves(corpus, state, moves), _TRIAL_STEPS)
        if moved.likelihood > plain.likelihood:
            return len(moves), moved
        moves = moves[: len(moves) // 2]
    return 0, plain


def _infer(corpus: Corpus, topics: Floats, start: Singles | None = None) -> _State:
    """Infer the mixtures of all documents, and the likelihood."""
    rates = (topics * corpus.inverse[:, None]).astype(np.float32)
    powers = COLD_START if start is None else _WARM_START
    mixtures, mixed = mixtures_and_rates(corpus.counts, rates, corpus.doc_prior, powers, start)
    rate = np.maximum(mixed.astype(np.float64), _MIN_RATE)
    return _State(topics, mixtures, rate, float((corpus.counts.data * np.log(rate)).sum()))


def _em_steps(corpus: Corpus, state: _State, n_steps: int) -> _State:
    """Take steps of EM in which mixtures start from those of the step before."""
    for _ in range(n_steps):
        left = with_data(corpus.counts, corpus.counts.data / np.maximum(state.mixed, 2.0**-10))
        counts = (left.T @ state.mixtures.astype(np.float64)) * (state.topics * corpus.inverse[:, None])
        topics = updated_topics(state.topics, counts, corpus.prior, _TOPIC_POWER)[0]
        state = _infer(corpus, topics, state.mixtures)
    return state


def _choose_moves(corpus: Corpus, state: _State, n_given: int) -> list[_Move]:
    """Pair splits with merges, by decreasing predicted gain, so that no topic takes part twice."""
    k = state.topics.shape[1]
    merges = [merge_topics(corpus, state, *pair) for pair in _similar_pairs(corpus, state, n_given)]
    splits = {a: split for a in range(n_given, k) if (split := split_topic(corpus, state, a)) is not None}
    pairs = [
        _Move(split.gain - _MERGE_LOSS_FACTOR * merge.loss, a, split, merge)
        for a, split in splits.items()
        for merge in merges
        if a not in (merge.lighter, merge.heavier)
    ]
    moves: list[_Move] = []
    used: set[int] = set()
    for move in sorted(pairs, key=lambda one: -one.predicted_gain):
        own = {move.topic, move.merge.lighter, move.merge.heavier}
        if move.predicted_gain <= 0.0 or len(moves) == max(1, k // _TOPICS_PER_MOVE):
            break
        if not used & own:
            moves.append(move)
            used |= own
    return moves


def _similar_pairs(corpus: Corpus, state: _State, n_given: int) -> list[tuple[int, int]]:
    """Choose pairs of topics whose merge costs little: similar ones, of which the lighter has few words."""
    k = state.topics.shape[1]
    root = np.sqrt(state.topics)
    mass = corpus.lengths @ state.mixtures.astype(np.float64)
    first, second = np.triu_indices(k, 1)
    cost = np.minimum(mass[first], mass[second]) * (1.0 - (root.T @ root)[first, second])
    cost[first < n_given] = np.inf
    order = np.argsort(cost, kind="stable")[: 2 * k if k < 40 else k]
    pairs = [(int(first[at]), int(second[at])) for at in order if np.isfinite(cost[at])]
    return [(i, j) if mass[i] < mass[j] else (j, i) for i, j in pairs]


def merge_topics(corpus: Corpus, state: _State, lighter: int, heavier: int) -> Merge:
    """Compute the loss of merging two topics, on documents that contain them, whose mixtures are inferred again."""
    words = corpus.lengths[:, None] * state.mixtures[:, [lighter, heavier]]
    mass = words.sum(axis=0)
    topic = state.topics[:, [lighter, heavier]] @ (mass / mass.sum())
    documents, times = corpus.documents_with(words.sum(axis=1), _MERGE_ENTRIES)
    if not len(documents):
        return Merge(0.0, topic, lighter, heavier)
    topics, start = state.topics.copy(), state.mixtures[documents]
    topics[:, heavier] = topic
    start[:, heavier] += start[:, lighter]
    start = np.delete(start, lighter, axis=1) + np.float32(1e-3)
    start /= start.sum(axis=1, keepdims=True)
    rates = (np.delete(topics, lighter, axis=1) * corpus.inverse[:, None]).astype(np.float32)
    counts = corpus.counts[documents]
    _, mixed = mixtures_and_rates(counts, rates, corpus.doc_prior, _WARM_START, start)
    before = state.mixed[corpus.entries(documents)[0]]
    loss = float((counts.data * np.log(before / np.maximum(mixed.astype(np.float64), _MIN_RATE))).sum())
    return Merge(times * loss, topic, lighter, heavier)


@dataclass(frozen=True)
class _TopicEntries:
    """The entries, of documents that contain a topic, to which the topic contributes."""

    counts: Floats  # (m,)
    document: Numbers  # (m,): index among the d documents
    word: Numbers  # (m,): index among the W words
    words: Numbers  # (W,): columns of the words
    mixed: Floats  # (m,): rate of each entry
    own: Floats  # (m,): the topic's part of the rate
    shares: Floats  # (d,): share of the topic in each document

    @property
    def expected(self) -> Floats:
        """Expected number (m,) of the occurrences that belong to the topic."""
        return self.counts * self.own / self.mixed

    def matrix(self, values: Floats) -> sparse.csr_array:
        """Arrange values of the entries as a sparse matrix of documents x words."""
        shape = len(self.shares), len(self.words)
        return sparse.csr_array(sparse.coo_array((values, (self.document, self.word)), shape=shape))


def split_topic(corpus: Corpus, state: _State, topic: int) -> Split | None:
    """Split a topic along the leading direction in which the words of its documents differ.

    Returns None if fewer than ten documents contain it.
    """
    documents, times = corpus.documents_with(corpus.lengths * state.mixtures[:, topic], _SPLIT_ENTRIES)
    if len(documents) < _MIN_DOCUMENTS:
        return None
    local = _topic_entries(corpus, state, topic, documents)
    side = _direction(local) > 0.0
    whole = np.bincount(local.word, local.expected, len(local.words))
    prior = _SPLIT_PRIOR_WORDS * whole / whole.sum()
    parts = [np.bincount(local.word, local.expected * own[local.document], len(local.words)) for own in (side, ~side)]
    two = np.stack(parts, axis=1) + prior[:, None]
    shares = np.where(side[:, None], [0.8, 0.2], [0.2, 0.8]) * local.shares[:, None]
    inverse = corpus.inverse[local.words]
    gain, two, shares = _fit_two_topics(local, two / two.sum(axis=0), shares, inverse, prior, corpus.doc_prior / 2.0)
    found = np.zeros((len(corpus.probability), 2))
    found[local.words] = two
    return Split(times * gain, found, shares.sum(axis=0) / shares.sum())


def _topic_entries(corpus: Corpus, state: _State, topic: int, documents: Numbers) -> _TopicEntries:
    at, document = corpus.entries(documents)
    counts, columns, mixed = corpus.counts.data[at], corpus.counts.indices[at], state.mixed[at]
    shares = state.mixtures[documents, topic].astype(np.float64)
    own = np.minimum(shares[document] * (state.topics[:, topic] * corpus.inverse)[columns], mixed)
    kept = counts * own > _MIN_EXPECTED * mixed
    words, word = np.unique(columns[kept], return_inverse=True)
    return _TopicEntries(counts[kept], document[kept], word, words, mixed[kept], own[kept], shares)


def _direction(local: _TopicEntries) -> Floats:
    """Leading coordinate (d,) of the documents in a correspondence analysis of the topic's expected words."""
    n, m = len(local.shares), len(local.words)
    rows = np.sqrt(np.maximum(np.bincount(local.document, local.expected, n), _MIN_RATE))
    columns = np.bincount(local.word, local.expected, m)
    columns = np.sqrt(columns / columns.sum())
    # power iteration on the scaled matrix less its expectation, the outer product of rows and columns
    apart = local.matrix(local.expected / (rows[local.document] * columns[local.word]))
    along = ndtri(uniforms(child_seeds(_SEED, local.words), 1))[:, 0]
    for _ in range(_DIRECTION_STEPS):
        places = apart @ along - rows * (columns @ along)
        along = apart.T @ places - columns * (rows @ places)
        along /= np.sqrt((along**2).sum()) or 1.0
    return apart @ along - rows * (columns @ along)


def _fit_two_topics(
    local: _TopicEntries, topics: Floats, shares: Floats, inverse: Floats, prior: Floats, doc_prior: float
) -> tuple[float, Floats, Floats]:
    """Fit two topics by EM, all others fixed. Returns the gain, the topics (W, 2), and their shares (d, 2)."""
    rest, n, m = local.mixed - local.own, len(local.shares), len(local.words)

    def mixed_rates() -> Floats:
        own = (shares[local.document] * topics[local.word]).sum(axis=1) * inverse[local.word]
        return np.maximum(rest + own, _MIN_RATE)

    for _ in range(_SPLIT_STEPS):
        rates = (local.counts / mixed_rates() * inverse[local.word])[:, None] * topics[local.word]
        shares = shares * np.stack([np.bincount(local.document, part, n) for part in rates.T], axis=1) + doc_prior
        shares *= (local.shares / shares.sum(axis=1))[:, None]
        rates = (local.counts / mixed_rates() * inverse[local.word])[:, None] * shares[local.document]
        topics = topics * np.stack([np.bincount(local.word, part, m) for part in rates.T], axis=1) + prior[:, None]
        topics = topics / topics.sum(axis=0)
    return float((local.counts * np.log(mixed_rates() / local.mixed)).sum()), topics, shares


def _apply_moves(corpus: Corpus, state: _State, moves: Sequence[_Move]) -> _State:
    """Apply moves: the second half of a split takes the place of the lighter topic of a merge."""
    topics, mixtures = state.topics.copy(), state.mixtures.copy()
    for _, topic, split, merge in moves:
        topics[:, merge.heavier] = merge.topic
        mixtures[:, merge.heavier] += mixtures[:, merge.lighter]
        topics[:, [topic, merge.lighter]] = split.topics
        mixtures[:, [topic, merge.lighter]] = mixtures[:, [topic]] * split.shares.astype(np.float32)
    mixtures += np.float32(0.1 / topics.shape[1])
    mixtures /= mixtures.sum(axis=1, keepdims=True)
    return _infer(corpus, (1.0 - _CORPUS_SHARE) * topics + _CORPUS_SHARE * corpus.probability[:, None], mixtures)
