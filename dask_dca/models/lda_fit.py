"""Fitting topics: the spectrum of the co-occurrence, anchor words, recovery, refinement."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from dask_dca.engine.threads import one_blas_thread
from dask_dca.engine.word_passes import Words
from dask_dca.engine.word_spectrum import leading_pairs
from dask_dca.errors import FewerAnchorsWarning, warn
from dask_dca.kernels.dirichlet import dirichlet_weights
from dask_dca.kernels.topics import (
    direction_count,
    grouped_vertices,
    noise_edge,
    recover_topics,
    select_words,
    word_points,
)
from dask_dca.models.lda_checks import check_topics

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dask_dca.engine.cooccurrence import Cooccurrence

    Floats = NDArray[np.float64]
    Numbers = NDArray[np.int64]

__all__ = ["Found", "Spectrum", "robust_topics", "smoothed"]

_MOST_AUTO: Final = 64  # greatest number of topics that n_components="auto" considers
_EXTRA: Final = 10  # columns of a Krylov block beyond k
_SHARE_OF_CORPUS: Final = 0.01  # what topics are mixed with before likelihoods are taken


@dataclass(frozen=True)
class Spectrum:
    """
    Leading eigenpairs of the scaled co-occurrence.

    Attributes
    ----------
    values : ndarray of float64, shape (m,)
        Eigenvalues of diag(h) Q diag(h), the greatest first.
    vectors : ndarray of float64, shape (V, min(m, k))
        The first eigenvectors.
    edge : float
        The greatest eigenvalue that words drawn independently of each other would make.
    floor : float
        The soft floor tau in h = (p + tau)^(-1/2).
    """

    values: Floats
    vectors: Floats
    edge: float
    floor: float

    @property
    def n_above(self) -> int:
        """
        How many eigenvalues stand above the noise.

        Returns
        -------
        int
            At least one.
        """
        return max(1, int((self.values > self.edge).sum()))


@dataclass(frozen=True)
class Found:
    """
    Topics, and what they rest on.

    Attributes
    ----------
    topics : ndarray of float64, shape (V, k)
        Columns on the simplex.
    weights, alpha : ndarray of float64, shape (k,)
        Share of the words in each topic, and the Dirichlet parameter.
    anchors, votes : ndarray of int64, shape (k,)
        Anchor words and their votes.
    candidates, candidate_votes : ndarray of int64, shape (c,)
        All words with votes.
    n_planes : int
        Number of directions.
    spectrum : ndarray of float64, shape (m,)
        Eigenvalues, as far as they are known.
    edge : float
        The noise's share of them.
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

    def with_topics(self, topics: Floats, weights: Floats) -> Found:
        """
        Return the same with other topics.

        Parameters
        ----------
        topics, weights : ndarray of float64, shapes (V, k) and (k,)
            The topics, in the same order.

        Returns
        -------
        Found
            A copy.
        """
        return replace(self, topics=topics, weights=weights)

    def ordered(self) -> Found:
        """
        Return the same, the topic of most words first.

        Returns
        -------
        Found
            A copy.
        """
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
) -> Found:
    """
    Find topics: five passes over the documents for the spectrum, four over the words, few sums on the driver.

    Parameters
    ----------
    operator : Cooccurrence
        The co-occurrence.
    known : ndarray of bool, shape (V,)
        Words that take part.
    n_topics : int or None
        Number of topics k; None takes it from the spectrum.
    n_planes : int or None
        Number of directions s.
    seed : int
        Seed of all draws.

    Returns
    -------
    Found
        The topics.

    Raises
    ------
    InvalidParameterError
        There are fewer words than topics.
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
    return Found(topics, weights, alpha, *certificate)


def _spectrum(
    operator: Cooccurrence, known: NDArray[np.bool_], probability: Floats, n_topics: int | None, seed: int
) -> Spectrum:
    floor = operator.census.squares / operator.total**2  # one over the number of documents of equal length
    scale = np.where(known, 1.0 / np.sqrt(probability + floor), 0.0)
    most = n_topics or _MOST_AUTO
    values, vectors = leading_pairs(operator, scale, min(most + _EXTRA, int(known.sum())), most, seed)
    edge = noise_edge(probability, floor, operator.census.n_used / operator.total**2)
    return Spectrum(values, vectors, edge, floor)


def _checked_count(n_topics: int | None, spectrum: Spectrum) -> int:
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
    """
    Mix topics with a little of the corpus, so that no known word is impossible.

    Parameters
    ----------
    topics : ndarray of float64, shape (V, k)
        Columns on the simplex.
    probability : ndarray of float64, shape (V,)
        Word probabilities, zero for words that take no part.

    Returns
    -------
    ndarray of float64, shape (V, k)
        99 parts of the topics and one of the corpus.

    Examples
    --------
    >>> smoothed(np.array([[1.0], [0.0]]), np.array([0.5, 0.5])).ravel()
    array([0.995, 0.005])
    """
    whole = probability / probability.sum()
    return (1.0 - _SHARE_OF_CORPUS) * topics + _SHARE_OF_CORPUS * whole[:, None]
