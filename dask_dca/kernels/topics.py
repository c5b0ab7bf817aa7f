"""From the leading eigenvectors of the words' co-occurrence to anchor words and topics.

Symbols are the paper's: Q (V, V) is the probability of a pair of words, p = Q 1 that of a word, O (V, k) the topics as
columns. Every word is a point R_i in k dimensions, a mixture of the topics' points; anchor words are vertices.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from scipy.special import ndtri

from dask_dca.geometry.planes import child_seeds, uniforms
from dask_dca.geometry.solvers import successive_projection
from dask_dca.geometry.votes import count_votes
from dask_dca.kernels.simplex import simplex_descent

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Numbers = NDArray[np.int64]

__all__ = [
    "AnchorWords",
    "WordPoints",
    "anchor_words",
    "grouped_vertices",
    "noise_edge",
    "recover_topics",
    "word_points",
]

_PLANES_PER_TOPIC: Final = 5.0  # s = 5 k ln k
_NEAR: Final = 0.8  # words with this share of a vertex's greatest coefficient belong to its group
_GROUPINGS: Final = 2
_STEPS: Final = 50
_EDGE: Final = 1.35  # words of one topic vary together, which spreads the noise


@dataclass(frozen=True)
class WordPoints:
    """
    Words as points in the space of the leading eigenvectors.

    Attributes
    ----------
    probability : ndarray of float64, shape (V,)
        In the paper p(w = i); zero for words that take no part.
    recovery : ndarray of float64, shape (V, k)
        R: rows of Q over p, in k coordinates.
    voting : ndarray of float64, shape (V, k)
        The same shrunk to their mean by the soft floor, less the mean: rare words lie near zero.
    """

    probability: Floats
    recovery: Floats
    voting: Floats


@dataclass(frozen=True)
class AnchorWords:
    """
    Anchor words and the votes that they rest on.

    Attributes
    ----------
    indices : ndarray of int64, shape (m,)
        Words, in the order of choice; m <= k.
    candidates, votes : ndarray of int64, shape (c,)
        All words with a vote.
    n_planes : int
        Number of directions s.
    """

    indices: Numbers
    candidates: Numbers
    votes: Numbers
    n_planes: int


def word_points(values: Floats, vectors: Floats, probability: Floats, floor: float) -> WordPoints:
    """
    Give words their coordinates.

    Parameters
    ----------
    values : ndarray of float64, shape (k,)
        Eigenvalues of diag(h) Q diag(h), h = (p + floor)^(-1/2).
    vectors : ndarray of float64, shape (V, k)
        Its eigenvectors.
    probability : ndarray of float64, shape (V,)
        In the paper p; zero for words that take no part.
    floor : float
        The soft floor tau.

    Returns
    -------
    WordPoints
        R_i = U_i lambda (p_i + tau)^(1/2) / p_i, and its shrunk form.

    Examples
    --------
    >>> points = word_points(np.ones(1), np.ones((2, 1)), np.array([0.5, 0.0]), 0.5)
    >>> points.recovery.tolist(), points.voting.tolist()
    ([[2.0], [0.0]], [[0.5], [0.0]])
    """
    present = probability > 0.0
    masses = vectors * values * np.sqrt(probability + floor)[:, None] * present[:, None]  # p_i R_i
    recovery = masses / np.where(present, probability, 1.0)[:, None]
    mean = masses.sum(axis=0)
    voting = (masses + floor * mean) / (probability + floor)[:, None] - mean
    return WordPoints(probability, recovery, np.where(present[:, None], voting, 0.0))


def noise_edge(probability: Floats, floor: float, variance: float) -> float:
    """
    Greatest eigenvalue of the scaled co-occurrence that sampling alone makes: Wigner's edge for uneven variances.

    Parameters
    ----------
    probability : ndarray of float64, shape (V,)
        In the paper p; zero for words that take no part.
    floor : float
        The soft floor tau.
    variance : float
        Number of documents over the square of the number of words: variance of Q_ij / (p_i p_j)^(1/2) for words that
        know nothing of each other.

    Returns
    -------
    float
        The edge, with a third to spare.

    Examples
    --------
    >>> round(noise_edge(np.full(100, 0.01), 0.0, 1e-4), 6)
    0.27
    """
    share = probability / (probability + floor)
    return float(_EDGE * 2.0 * np.sqrt(variance * (share**2).sum()))


def anchor_words(
    points: WordPoints, values: Floats, n_topics: int, seed: int, n_planes: int | None = None
) -> AnchorWords:
    """
    Find anchor words: extremes along random directions vote, successive projection chooses among them.

    Words are spread along a coordinate by its eigenvalue. Topics that are rare, or that come together with others,
    stand out along the last coordinates only, and directions that are drawn evenly hardly ever see their words, hence
    these are drawn evenly after division by the eigenvalues.

    Parameters
    ----------
    points : WordPoints
        Words as points.
    values : ndarray of float64, shape (k,)
        The eigenvalues, as for `word_points`.
    n_topics : int
        Number of topics k.
    seed : int
        Seed of the directions.
    n_planes : int, optional
        Number of directions s; 5 k ln k by default.

    Returns
    -------
    AnchorWords
        Fewer than k where the words span fewer dimensions.

    Examples
    --------
    >>> T = np.array([[1.0, 0.0], [-1.0, 1.0], [-1.0, -1.0], [0.0, 0.0]])
    >>> found = anchor_words(WordPoints(np.full(4, 0.25), T, T), np.ones(2), 3, 0)
    >>> sorted(found.indices.tolist())
    [0, 1, 2]
    """
    T = points.voting
    s = n_planes or max(2, math.ceil(_PLANES_PER_TOPIC * n_topics * math.log(max(n_topics, 2))))
    directions = ndtri(uniforms(child_seeds(seed, np.arange(s)), T.shape[1])) / np.where(values > 0.0, values, 1.0)
    low, high = np.empty(s, dtype=np.int64), np.empty(s, dtype=np.int64)
    for begin in range(0, s, 256):
        part = slice(begin, begin + 256)
        ratios = directions[part] @ T.T
        low[part], high[part] = ratios.argmin(axis=1), ratios.argmax(axis=1)
    candidates, votes = count_votes(low, high)
    height = float(np.sqrt((T[candidates] ** 2).sum(axis=1).mean())) or 1.0
    lifted = np.column_stack([np.full(len(candidates), height), T[candidates]])
    return AnchorWords(candidates[successive_projection(lifted, n_topics)], candidates, votes, s)


def grouped_vertices(points: WordPoints, anchors: Numbers) -> tuple[Floats, Floats]:
    """
    Replace each anchor word by the mean of the words that are nearly as pure, twice.

    A single word's co-occurrences are noisy; those of a group, weighted by frequency, much less.

    Parameters
    ----------
    points : WordPoints
        Words as points.
    anchors : ndarray of int64, shape (k,)
        Anchor words.

    Returns
    -------
    vertices : ndarray of float64, shape (k, k)
        Points of the topics.
    coefficients : ndarray of float64, shape (V, k)
        Words in terms of the vertices of the round before.

    Examples
    --------
    >>> T = np.array([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]])
    >>> grouped_vertices(WordPoints(np.full(3, 1 / 3), T, T), np.array([0, 1]))[0].round(6)
    array([[1., 0.],
           [0., 1.]])
    """
    R, p = points.recovery, points.probability
    vertices, B = R[anchors], None
    for _ in range(_GROUPINGS):
        B = simplex_descent(R, vertices, start=B, n_steps=_STEPS)
        B[p <= 0.0] = 1.0 / len(anchors)
        inside = np.where(p[:, None] > 0.0, B, 0.0)
        weights = p[:, None] * (inside >= _NEAR * inside.max(axis=0))
        vertices = (weights.T @ R) / weights.sum(axis=0)[:, None]
    return vertices, np.asarray(B)


def recover_topics(points: WordPoints, vertices: Floats, start: Floats | None = None) -> tuple[Floats, Floats]:
    """
    Recover topics: words as mixtures of the vertices, turned round by Bayes' rule.

    Parameters
    ----------
    points : WordPoints
        Words as points.
    vertices : ndarray of float64, shape (k, k)
        Points of the topics.
    start : ndarray of float64, shape (V, k), optional
        Coefficients to start from.

    Returns
    -------
    topics : ndarray of float64, shape (V, k)
        In the paper O: columns are the topics' word probabilities.
    weights : ndarray of float64, shape (k,)
        Share of the corpus's words in each topic.

    Examples
    --------
    >>> T = np.array([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]])
    >>> recover_topics(WordPoints(np.full(3, 1 / 3), T, T), T[:2])[0].round(6)
    array([[0.666667, 0.      ],
           [0.      , 0.666667],
           [0.333333, 0.333333]])
    """
    B = simplex_descent(points.recovery, vertices, start=start, n_steps=2 * _STEPS)
    joint = points.probability[:, None] * B
    weights = joint.sum(axis=0)
    topics = joint / np.where(weights > 0.0, weights, 1.0)
    topics[:, weights <= 0.0] = (points.probability / points.probability.sum())[:, None]
    return topics, weights / weights.sum()
