"""Splits and merges of topics: moves that no step of EM makes, on documents at hand.

A topic is split on the documents that hold it, all other topics held as they are, so that what it gains is exact; two
topics are merged where that costs least. Moves are kept where a few steps of EM with them end above as many without.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
from scipy import sparse
from scipy.special import ndtri

from dask_dca.geometry.planes import child_seeds, uniforms
from dask_dca.models.lda.documents import COLD, mixtures_and_rates, with_data
from dask_dca.models.lda.topics import updated_topics

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from dask_dca.geometry.arrays import Floats, Numbers

    Singles = NDArray[np.float32]

_WARM: Final = (2.0, 1.0)  # steps of inference from the mixtures of the step before
_POWER: Final = 2.0  # of EM's factor on topics
_FIRST, _TRIES, _ROUNDS = 5, 4, 8  # steps before the first round, steps with and without moves, rounds
_LEAST: Final = 2.0  # words of a topic in a document that holds it
_SPLIT_ON, _MERGED_ON = 2**16, 2**15  # different words in the documents that tell what a move is worth
_TOO_FEW: Final = 10  # documents
_DIRECTION_STEPS, _SPLIT_STEPS = 5, 4
_FAINT: Final = 0.05  # words of a topic among the occurrences of a word in a document, up to which it has none there
_PSEUDO: Final = 10.0  # words of the topic in each half
_TOO_DEAR: Final = 0.65  # losses of merges come out up to twice too great: mixtures find their way in time
_SHARE: Final = 4  # one topic in so many moves at once
_CORPUS: Final = 0.01  # of the corpus in topics that moved
_NOTHING: Final = 1e-9
_SEED: Final = 2


@dataclass(frozen=True)
class Corpus:
    """Documents at hand, in an order that says nothing.

    counts (n, V): word counts; probability (V,): of words; prior (V,): pseudo-words in each topic; doc_prior: of each
    topic in a document.
    """

    counts: sparse.csr_array
    probability: Floats
    prior: Floats
    doc_prior: float

    @cached_property
    def lengths(self) -> Floats:
        """Words of each document (n,)."""
        return np.asarray(self.counts.sum(axis=1)).ravel()

    @cached_property
    def inverse(self) -> Floats:
        """One over the words' probabilities (V,); zero for those that take no part."""
        p = self.probability
        return np.where(p > 0.0, 1.0 / np.where(p > 0.0, p, 1.0), 0.0)

    def entries(self, documents: Numbers) -> tuple[Numbers, Numbers]:
        """Tell where the entries of some documents are, and to which of these each belongs."""
        first = self.counts.indptr.astype(np.int64)
        sizes = first[documents + 1] - first[documents]
        own = np.repeat(np.arange(len(documents)), sizes)
        return np.arange(sizes.sum()) + (first[documents] - np.cumsum(sizes) + sizes)[own], own

    def holding(self, mass: Floats, most: int) -> tuple[Numbers, float]:
        """Take documents with two words of a topic or more, and what sums over them are multiplied by.

        mass (n,): words of the topic in each document; most: how many different words in all of them are enough.
        """
        there = np.flatnonzero(mass >= _LEAST)
        sizes = np.diff(self.counts.indptr)[there].cumsum()
        some = there[: max(_TOO_FEW, int((sizes <= most).sum()))]
        return some, float(mass[there].sum() / mass[some].sum()) if len(some) else 1.0


class _State(NamedTuple):
    topics: Floats  # (V, k)
    mixtures: Singles  # (n, k)
    mixed: Floats  # (nnz,) rate of each entry
    likelihood: float  # of all words, but for what is the same for all topics


class Split(NamedTuple):
    """Two topics for one: what that gains, the topics (V, 2), and their shares (2,) of it."""

    gain: float
    topics: Floats
    shares: Floats


class Merge(NamedTuple):
    """One topic for two: what that loses, the topic (V,), and which two: the lighter one goes."""

    loss: float
    topic: Floats
    lighter: int
    heavier: int


class _Move(NamedTuple):
    promise: float
    topic: int
    split: Split
    merge: Merge


class Moved(NamedTuple):
    """Topics (V, k) after moves, and how many these were."""

    topics: Floats
    n_moves: int


def split_and_merge(
    corpus: Corpus, topics: Floats, score: Callable[[Floats], float], least: float, n_given: int = 0
) -> Moved | None:
    """Improve topics by steps of EM and by moves, as long as documents that take no part are explained better.

    topics (V, k); score: of topics, on documents that take no part; least: what it must exceed; n_given: so many topics
    at the front stay as they are. Returns the best topics by the score; none where it does not rise above the least: of
    few documents, to whose words topics fit too well.
    """
    state = _after(corpus, _explained(corpus, topics), _FIRST)
    plain = _after(corpus, state, _TRIES)
    most, best, n_moves = score(state.topics), Moved(state.topics, 0), 0
    for _ in range(_ROUNDS):
        made, state = _round(corpus, state, plain, n_given)
        value = score(state.topics)
        if value <= most:
            break
        n_moves += made
        most, best = value, Moved(state.topics, n_moves)
        if not made:
            break
        plain = _after(corpus, state, _TRIES)
    return best if most > least else None


def _round(corpus: Corpus, state: _State, plain: _State, n_given: int) -> tuple[int, _State]:
    """Make the moves that promise most, or half of them, ...; none where steps without moves end higher."""
    moves = _chosen(corpus, state, n_given)
    while moves:
        moved = _after(corpus, _applied(corpus, state, moves), _TRIES)
        if moved.likelihood > plain.likelihood:
            return len(moves), moved
        moves = moves[: len(moves) // 2]
    return 0, plain


def _explained(corpus: Corpus, topics: Floats, start: Singles | None = None) -> _State:
    rates = (topics * corpus.inverse[:, None]).astype(np.float32)
    powers = COLD if start is None else _WARM
    mixtures, mixed = mixtures_and_rates(corpus.counts, rates, corpus.doc_prior, powers, start)
    rate = np.maximum(mixed.astype(np.float64), _NOTHING)
    return _State(topics, mixtures, rate, float((corpus.counts.data * np.log(rate)).sum()))


def _after(corpus: Corpus, state: _State, n_steps: int) -> _State:
    """Take steps of EM in which mixtures go on from those of the step before."""
    for _ in range(n_steps):
        left = with_data(corpus.counts, corpus.counts.data / np.maximum(state.mixed, 2.0**-10))
        counts = (left.T @ state.mixtures.astype(np.float64)) * (state.topics * corpus.inverse[:, None])
        topics = updated_topics(state.topics, counts, corpus.prior, _POWER)[0]
        state = _explained(corpus, topics, state.mixtures)
    return state


def _chosen(corpus: Corpus, state: _State, n_given: int) -> list[_Move]:
    """Pair splits with merges so that no topic takes part twice, those that promise most first."""
    k = state.topics.shape[1]
    merges = [merge_topics(corpus, state, *pair) for pair in _alike(corpus, state, n_given)]
    splits = {a: split for a in range(n_given, k) if (split := split_topic(corpus, state, a)) is not None}
    pairs = [
        _Move(split.gain - _TOO_DEAR * merge.loss, a, split, merge)
        for a, split in splits.items()
        for merge in merges
        if a not in (merge.lighter, merge.heavier)
    ]
    moves: list[_Move] = []
    used: set[int] = set()
    for move in sorted(pairs, key=lambda one: -one.promise):
        own = {move.topic, move.merge.lighter, move.merge.heavier}
        if move.promise <= 0.0 or len(moves) == max(1, k // _SHARE):
            break
        if not used & own:
            moves.append(move)
            used |= own
    return moves


def _alike(corpus: Corpus, state: _State, n_given: int) -> list[tuple[int, int]]:
    """Choose pairs of topics whose merge costs little, by their words and by what the lighter one holds."""
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
    """Let documents that hold two topics find their mixtures anew, with one topic in the place of the two."""
    words = corpus.lengths[:, None] * state.mixtures[:, [lighter, heavier]]
    mass = words.sum(axis=0)
    topic = state.topics[:, [lighter, heavier]] @ (mass / mass.sum())
    documents, times = corpus.holding(words.sum(axis=1), _MERGED_ON)
    if not len(documents):
        return Merge(0.0, topic, lighter, heavier)
    topics, start = state.topics.copy(), state.mixtures[documents]
    topics[:, heavier] = topic
    start[:, heavier] += start[:, lighter]
    start = np.delete(start, lighter, axis=1) + np.float32(1e-3)
    start /= start.sum(axis=1, keepdims=True)
    rates = (np.delete(topics, lighter, axis=1) * corpus.inverse[:, None]).astype(np.float32)
    counts = corpus.counts[documents]
    _, mixed = mixtures_and_rates(counts, rates, corpus.doc_prior, _WARM, start)
    before = state.mixed[corpus.entries(documents)[0]]
    loss = float((counts.data * np.log(before / np.maximum(mixed.astype(np.float64), _NOTHING))).sum())
    return Merge(times * loss, topic, lighter, heavier)


@dataclass(frozen=True)
class _Local:
    """The documents that hold a topic: entries of words of which it has a part."""

    counts: Floats  # (m,)
    document: Numbers  # (m,), among those that hold it
    word: Numbers  # (m,), among those that it has
    words: Numbers  # (W,) columns of these
    mixed: Floats  # (m,) rate of each entry,
    own: Floats  # (m,) of which the topic's own part
    held: Floats  # (d,) share of the topic in each document

    @property
    def expected(self) -> Floats:
        """How many of the occurrences are the topic's (m,)."""
        return self.counts * self.own / self.mixed

    def matrix(self, values: Floats) -> sparse.csr_array:
        """Lay values of the entries out as documents x words."""
        shape = len(self.held), len(self.words)
        return sparse.csr_array(sparse.coo_array((values, (self.document, self.word)), shape=shape))


def split_topic(corpus: Corpus, state: _State, topic: int) -> Split | None:
    """Split a topic on the documents that hold it, along the direction in which their words differ most.

    Returns None where ten documents do not hold it.
    """
    documents, times = corpus.holding(corpus.lengths * state.mixtures[:, topic], _SPLIT_ON)
    if len(documents) < _TOO_FEW:
        return None
    local = _local(corpus, state, topic, documents)
    side = _direction(local) > 0.0
    whole = np.bincount(local.word, local.expected, len(local.words))
    prior = _PSEUDO * whole / whole.sum()
    parts = [np.bincount(local.word, local.expected * own[local.document], len(local.words)) for own in (side, ~side)]
    two = np.stack(parts, axis=1) + prior[:, None]
    held = np.where(side[:, None], [0.8, 0.2], [0.2, 0.8]) * local.held[:, None]
    inverse = corpus.inverse[local.words]
    gain, two, held = _two_topics(local, two / two.sum(axis=0), held, inverse, prior, corpus.doc_prior / 2.0)
    found = np.zeros((len(corpus.probability), 2))
    found[local.words] = two
    return Split(times * gain, found, held.sum(axis=0) / held.sum())


def _local(corpus: Corpus, state: _State, topic: int, documents: Numbers) -> _Local:
    at, document = corpus.entries(documents)
    counts, columns, mixed = corpus.counts.data[at], corpus.counts.indices[at], state.mixed[at]
    held = state.mixtures[documents, topic].astype(np.float64)
    own = np.minimum(held[document] * (state.topics[:, topic] * corpus.inverse)[columns], mixed)
    kept = counts * own > _FAINT * mixed
    words, word = np.unique(columns[kept], return_inverse=True)
    return _Local(counts[kept], document[kept], word, words, mixed[kept], own[kept], held)


def _direction(local: _Local) -> Floats:
    """Place documents along the leading direction of what their words have more or less than the topic expects."""
    n, m = len(local.held), len(local.words)
    rows = np.sqrt(np.maximum(np.bincount(local.document, local.expected, n), _NOTHING))
    columns = np.bincount(local.word, local.expected, m)
    columns = np.sqrt(columns / columns.sum())
    apart = local.matrix(local.expected / (rows[local.document] * columns[local.word]))
    along = ndtri(uniforms(child_seeds(_SEED, local.words), 1))[:, 0]
    for _ in range(_DIRECTION_STEPS):
        places = apart @ along - rows * (columns @ along)
        along = apart.T @ places - columns * (rows @ places)
        along /= np.sqrt((along**2).sum()) or 1.0
    return apart @ along - rows * (columns @ along)


def _two_topics(
    local: _Local, topics: Floats, held: Floats, inverse: Floats, prior: Floats, doc_prior: float
) -> tuple[float, Floats, Floats]:
    """Take steps of EM on two topics, all others held. Returns what is gained, the topics, and their shares."""
    rest, n, m = local.mixed - local.own, len(local.held), len(local.words)

    def explained() -> Floats:
        own = (held[local.document] * topics[local.word]).sum(axis=1) * inverse[local.word]
        return np.maximum(rest + own, _NOTHING)

    for _ in range(_SPLIT_STEPS):
        rates = (local.counts / explained() * inverse[local.word])[:, None] * topics[local.word]
        held = held * np.stack([np.bincount(local.document, part, n) for part in rates.T], axis=1) + doc_prior
        held *= (local.held / held.sum(axis=1))[:, None]
        rates = (local.counts / explained() * inverse[local.word])[:, None] * held[local.document]
        topics = topics * np.stack([np.bincount(local.word, part, m) for part in rates.T], axis=1) + prior[:, None]
        topics = topics / topics.sum(axis=0)
    return float((local.counts * np.log(explained() / local.mixed)).sum()), topics, held


def _applied(corpus: Corpus, state: _State, moves: Sequence[_Move]) -> _State:
    """Make moves: the second half of a split topic takes the place of the lighter one of a merged pair."""
    topics, mixtures = state.topics.copy(), state.mixtures.copy()
    for _, topic, split, merge in moves:
        topics[:, merge.heavier] = merge.topic
        mixtures[:, merge.heavier] += mixtures[:, merge.lighter]
        topics[:, [topic, merge.lighter]] = split.topics
        mixtures[:, [topic, merge.lighter]] = mixtures[:, [topic]] * split.shares.astype(np.float32)
    mixtures += np.float32(0.1 / topics.shape[1])
    mixtures /= mixtures.sum(axis=1, keepdims=True)
    return _explained(corpus, (1.0 - _CORPUS) * topics + _CORPUS * corpus.probability[:, None], mixtures)
