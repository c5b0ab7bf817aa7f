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

from dask_dca.geometry.exact import power_of_two
from dask_dca.geometry.extremes import integer_directions
from dask_dca.geometry.planes import child_seeds, uniforms
from dask_dca.geometry.solvers import successive_projection
from dask_dca.kernels.simplex import simplex_descent

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Numbers = NDArray[np.int64]
    Descent = Callable[[Floats, Floats, Floats | None, int], Floats]

__all__ = [
    "WordPoints",
    "direction_count",
    "grouped_vertices",
    "noise_edge",
    "recover_topics",
    "select_words",
    "word_directions",
    "word_places",
    "word_points",
]

_PLANES_PER_TOPIC: Final = 5.0  # s = 5 k ln k
_FURTHEST: Final = 2.0**31  # products with integer directions stay below 2**53
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


def direction_count(n_topics: int, n_planes: int | None) -> int:
    """
    Return the number of directions s.

    Parameters
    ----------
    n_topics : int
        Number of topics k.
    n_planes : int or None
        What was asked for, if anything.

    Returns
    -------
    int
        That, else ceil(5 k ln k).

    Examples
    --------
    >>> direction_count(20, None), direction_count(20, 7)
    (300, 7)
    """
    return n_planes or max(2, math.ceil(_PLANES_PER_TOPIC * n_topics * math.log(max(n_topics, 2))))


def word_places(points: WordPoints) -> Floats:
    """
    Round the points that vote to integers, so that heights along integer directions are exact.

    Parameters
    ----------
    points : WordPoints
        Words as points.

    Returns
    -------
    ndarray of float64, shape (V, k)
        Integers; no word is further than 2**31 from the origin.

    Examples
    --------
    >>> T = np.array([[0.75, 0.0], [0.0, -1.0]])
    >>> (word_places(WordPoints(np.full(2, 0.5), T, T)) * 2.0**-31).tolist()
    [[0.75, 0.0], [0.0, -1.0]]
    """
    T = points.voting
    furthest = np.sqrt((T**2).sum(axis=1).max(initial=0.0))
    return np.rint(T * (_FURTHEST / power_of_two(furthest)))


def word_directions(seed: int, numbers: Numbers, values: Floats) -> Floats:
    """
    Draw directions along which extreme words vote, by their numbers.

    Words are spread along a coordinate by its eigenvalue. Topics that are rare, or that come together with others,
    stand out along the last coordinates only, and directions that are drawn evenly hardly ever see their words, hence
    these are drawn evenly after division by the eigenvalues.

    Parameters
    ----------
    seed : int
        Seed of the directions.
    numbers : ndarray of int64, shape (s,)
        Which ones.
    values : ndarray of float64, shape (k,)
        The eigenvalues, as for `word_points`.

    Returns
    -------
    ndarray of float64, shape (s, k)
        Integers, of a length of about 2**20.

    Examples
    --------
    >>> whole, part = (word_directions(0, numbers, np.ones(2)) for numbers in (np.arange(3), np.arange(1, 3)))
    >>> whole[1:].tolist() == part.tolist()
    True
    """
    drawn = ndtri(uniforms(child_seeds(seed, numbers), len(values))) / np.where(values > 0.0, values, 1.0)
    return integer_directions(drawn / np.sqrt((drawn**2).sum(axis=1))[:, None])


def select_words(points: WordPoints, candidates: Numbers, n_topics: int) -> Numbers:
    """
    Select anchor words among those with a vote, by successive projection.

    Parameters
    ----------
    points : WordPoints
        Words as points.
    candidates : ndarray of int64, shape (c,)
        Words with a vote.
    n_topics : int
        Number of topics k.

    Returns
    -------
    ndarray of int64, shape (m,)
        Words, in the order of choice; fewer than k where they span fewer dimensions.

    Examples
    --------
    >>> T = np.array([[1.0, 0.0], [-1.0, 1.0], [-1.0, -1.0], [0.0, 0.0]])
    >>> select_words(WordPoints(np.full(4, 0.25), T, T), np.arange(4), 3).tolist()
    [1, 2, 0]
    """
    T = points.voting[candidates]
    height = float(np.sqrt((T**2).sum(axis=1).mean())) or 1.0
    return candidates[successive_projection(np.column_stack([np.full(len(T), height), T]), n_topics)]


def grouped_vertices(points: WordPoints, anchors: Numbers, descend: Descent = simplex_descent) -> tuple[Floats, Floats]:
    """
    Replace each anchor word by the mean of the words that are nearly as pure, twice.

    A single word's co-occurrences are noisy; those of a group, weighted by frequency, much less.

    Parameters
    ----------
    points : WordPoints
        Words as points.
    anchors : ndarray of int64, shape (k,)
        Anchor words.
    descend : callable, optional
        As `simplex_descent`: (targets, vertices, start, n_steps) -> coefficients.

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
        B = descend(R, vertices, B, _STEPS)
        B[p <= 0.0] = 1.0 / len(anchors)
        inside = np.where(p[:, None] > 0.0, B, 0.0)
        weights = p[:, None] * (inside >= _NEAR * inside.max(axis=0))
        vertices = (weights.T @ R) / weights.sum(axis=0)[:, None]
    return vertices, np.asarray(B)


def recover_topics(
    points: WordPoints, vertices: Floats, start: Floats | None = None, descend: Descent = simplex_descent
) -> tuple[Floats, Floats]:
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
    descend : callable, optional
        As `simplex_descent`: (targets, vertices, start, n_steps) -> coefficients.

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
    B = descend(points.recovery, vertices, start, 2 * _STEPS)
    joint = points.probability[:, None] * B
    weights = joint.sum(axis=0)
    topics = joint / np.where(weights > 0.0, weights, 1.0)
    topics[:, weights <= 0.0] = (points.probability / points.probability.sum())[:, None]
    return topics, weights / weights.sum()
