"""How good topics are: coherence of their top words, how distinct they are, and how much they say."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Numbers = NDArray[np.int64]

__all__ = ["distances_to_corpus", "distinctness", "leading_words", "mutual_information"]


def leading_words(components: Floats, n_words: int, first: Numbers | None = None) -> Numbers:
    """
    Choose each topic's most probable words.

    Parameters
    ----------
    components : ndarray of float64, shape (k, V)
        Topics as rows.
    n_words : int
        How many of each, at most V.
    first : ndarray of int64, shape (k,), optional
        A word of each topic that is put first whatever its probability.

    Returns
    -------
    ndarray of int64, shape (k, n_words)
        Words, most probable first; ties go to the lower number.

    Examples
    --------
    >>> leading_words(np.array([[0.2, 0.5, 0.3]]), 2)
    array([[1, 2]])
    """
    ranks = components.copy()
    if first is not None:
        ranks[np.arange(len(ranks)), first] = np.inf
    return np.argsort(-ranks, axis=1, kind="stable")[:, :n_words]


def mutual_information(meetings: Floats, n_documents: int) -> Floats:
    """
    Normalised pointwise mutual information of pairs of words.

    Bouma, Normalized (pointwise) mutual information in collocation extraction, GSCL 2009.

    Parameters
    ----------
    meetings : ndarray of float64, shape (t, t)
        Documents with both words; on the diagonal, with the word.
    n_documents : int
        Documents in all.

    Returns
    -------
    ndarray of float64, shape (t, t)
        In [-1, 1]: -1 for words that never meet, 1 for words that are never apart; NaN where one of them is in no
        document, and on the diagonal.

    Examples
    --------
    >>> mutual_information(np.array([[2.0, 2.0], [2.0, 2.0]]), 4)[0, 1].round(6)
    np.float64(1.0)
    """
    own = meetings.diagonal()
    n = max(n_documents, 1)
    joint = meetings / n
    with np.errstate(divide="ignore", invalid="ignore"):
        pointwise = np.log(joint * n * n / np.outer(own, own))
        scale = -np.log(joint)
        found = np.where(scale > 0.0, pointwise / scale, 1.0)  # a pair in all documents is never apart
    found = np.where(meetings > 0.0, found, -1.0)
    absent = own <= 0.0
    found[absent[:, None] | absent[None, :]] = np.nan
    np.fill_diagonal(found, np.nan)
    return found


def distances_to_corpus(components: Floats, probability: Floats) -> Floats:
    """
    Measure how far topics are from the corpus's own word probabilities.

    Parameters
    ----------
    components : ndarray of float64, shape (k, V)
        Topics as rows.
    probability : ndarray of float64, shape (V,)
        Word probabilities.

    Returns
    -------
    ndarray of float64, shape (k,)
        Total variation: 0 for the corpus average, 1 for words of their own.

    Examples
    --------
    >>> distances_to_corpus(np.array([[0.5, 0.5], [1.0, 0.0]]), np.array([0.5, 0.5]))
    array([0. , 0.5])
    """
    return 0.5 * np.abs(components - probability).sum(axis=1)


def distinctness(components: Floats) -> Floats:
    """
    Measure how far each topic is from the topic most like it.

    Parameters
    ----------
    components : ndarray of float64, shape (k, V)
        Topics as rows.

    Returns
    -------
    ndarray of float64, shape (k,)
        Total variation: 0 for a topic that is there twice, 1 for one that shares no word.

    Examples
    --------
    >>> distinctness(np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]))
    array([1., 0., 0.])
    """
    nearest = np.ones(len(components))
    for i in range(len(components) - 1):
        apart = 0.5 * np.abs(components[i + 1 :] - components[i]).sum(axis=1)
        nearest[i] = min(nearest[i], apart.min())
        nearest[i + 1 :] = np.minimum(nearest[i + 1 :], apart)
    return nearest
