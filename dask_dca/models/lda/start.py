"""Where passes of EM start from: anchors' topics, or two levels of them where words come in bursts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
from scipy.cluster import hierarchy

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from scipy import sparse

    Floats = NDArray[np.float64]
    Reals = NDArray[np.floating]

__all__ = ["affinities", "burstiness_sums", "smoothed", "two_levels"]

_SHARE_OF_CORPUS: Final = 0.01  # what topics are mixed with before likelihoods are taken
_TOPICS_PER_GENERAL: Final = 16
_SHARPNESS: Final = 2.5  # power of a word's probability over that in the corpus
_LEAST: Final = 1e-15
_MIXTURE_BITS, _AFFINITY_BITS, _BITS = 16, 24, 10


def smoothed(topics: Floats, probability: Floats) -> Floats:
    """Mix topics with a little of the corpus, so that no known word is impossible.

    topics (V, k): columns on the simplex; probability (V,): word probabilities, zero for words that take no part.
    Returns (V, k): 99 parts of the topics and one of the corpus.
    """
    whole = probability / probability.sum()
    return (1.0 - _SHARE_OF_CORPUS) * topics + _SHARE_OF_CORPUS * whole[:, None]


def affinities(topics: Floats) -> Floats:
    """Tell how often two words of two topics are the same, in whole numbers.

    topics (V, k): columns on the simplex. Returns (k, k): multiplied by 2**24, rounded.
    """
    return np.rint(np.ldexp(topics.T @ topics, _AFFINITY_BITS))


def burstiness_sums(counts: sparse.csr_array, lengths: Floats, theta: Reals, same: Floats) -> tuple[Floats, Floats]:
    """Count pairs of a word with itself in documents, and how many their mixtures make expect.

    counts (n, V): whole numbers; lengths (n,): of the documents; theta (n, k): mixtures; same (k, k): from
    `affinities`. Returns seen, expected (n,): per word of the document, times 2**10 and rounded; they do not depend on
    other documents. The ratio of their sums is one where documents are drawn from the model.
    """
    squares = counts.copy()
    squares.data = squares.data * (squares.data - 1.0)
    seen = (squares @ np.ones(counts.shape[1])) / np.maximum(lengths - 1.0, 1.0)
    shares = np.rint(np.ldexp(theta.astype(np.float64), _MIXTURE_BITS))
    inner = np.rint(np.ldexp(shares @ same, -_MIXTURE_BITS))  # sums of whole numbers below 2**53, as the next ones
    chance = np.ldexp((inner * shares).sum(axis=1), -_MIXTURE_BITS - _AFFINITY_BITS)
    expected = np.where(lengths > 1.0, lengths * chance, 0.0)
    return np.rint(np.ldexp(seen, _BITS)), np.rint(np.ldexp(expected, _BITS))


def two_levels(topics: Floats, weights: Floats, probability: Floats, n_given: int = 0) -> Floats:
    """Gather general words in a few topics, and sharpen the others.

    One topic in sixteen, the lightest ones, become the means of as many groups of all topics (Ward's, by the square
    roots of words' probabilities); in the others a word counts by the power 2.5 of what it has more than in the corpus.
    topics (V, k): columns on the simplex; weights (k,): shares of the corpus; probability (V,): word probabilities;
    n_given: so many topics at the front are of anchor words that were given, and keep their place. Returns (V, k):
    topics, smoothed.
    """
    k = topics.shape[1]
    light = n_given + np.argsort(weights[n_given:], kind="stable")[: max(1, round(k / _TOPICS_PER_GENERAL))]
    found = _sharpened(topics, probability)
    for place, group in zip(light, _groups(topics, max(1, len(light))), strict=False):
        mean = topics[:, group] @ weights[group]
        found[:, place] = mean / mean.sum()
    return smoothed(found, probability)


def _groups(topics: Floats, count: int) -> list[NDArray[np.intp]]:
    if topics.shape[1] == 1:
        return [np.zeros(1, dtype=np.intp)]
    group = hierarchy.fcluster(hierarchy.linkage(np.sqrt(topics.T), "ward"), count, "maxclust")
    return [np.flatnonzero(group == number) for number in np.unique(group)]


def _sharpened(topics: Floats, probability: Floats) -> Floats:
    known = probability > 0.0
    p = np.where(known, probability, 1.0)[:, None]
    found = np.where(known[:, None], p * (np.maximum(topics, _LEAST) / p) ** _SHARPNESS, 0.0)
    sharp: Floats = found / found.sum(axis=0)
    return sharp
