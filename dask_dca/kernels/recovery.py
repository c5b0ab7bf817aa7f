"""Topics from given anchor words in the paper's two equal forms: the cone's coefficients, and Bayes' rule.

The paper's theorem says that both are the same on exact moments. Zhou, Bilmes and Guestrin, NIPS 2014, section on
latent Dirichlet allocation; the second form is that of Arora et al., A practical algorithm for topic modeling with
provable guarantees, ICML 2013.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dask_dca.geometry.cone import nonnegative_from_gram, simplex_from_gram

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Numbers = NDArray[np.int64]

__all__ = ["bayes_topics", "conical_topics"]


def conical_topics(products: Floats, anchors: Numbers) -> Floats:
    """
    Solve Q = F Q_A with F_A = I, F >= 0, and normalise the columns of F.

    Parameters
    ----------
    products : ndarray of float64, shape (V, k)
        Q Q_A^T: all rows of the co-occurrence times those of the anchor words.
    anchors : ndarray of int64, shape (k,)
        Anchor words A.

    Returns
    -------
    ndarray of float64, shape (V, k)
        In the paper O: topics as columns.

    Examples
    --------
    >>> Q = np.array([[0.3, 0.0, 0.1], [0.0, 0.3, 0.1], [0.1, 0.1, 0.2 / 3]])
    >>> conical_topics(Q @ Q[:2].T, np.array([0, 1])).round(6)
    array([[0.75, 0.  ],
           [0.  , 0.75],
           [0.25, 0.25]])
    """
    F = nonnegative_from_gram(products[anchors], products)
    F[anchors] = np.eye(len(anchors))
    return F / F.sum(axis=0)


def bayes_topics(products: Floats, probability: Floats, anchors: Numbers) -> Floats:
    """
    Solve for p(topic | word) on rows of sum one, and turn it round by Bayes' rule.

    Parameters
    ----------
    products : ndarray of float64, shape (V, k)
        Q Q_A^T.
    probability : ndarray of float64, shape (V,)
        In the paper p = Q 1.
    anchors : ndarray of int64, shape (k,)
        Anchor words A.

    Returns
    -------
    ndarray of float64, shape (V, k)
        Topics as columns.

    Examples
    --------
    >>> Q = np.array([[0.3, 0.0, 0.1], [0.0, 0.3, 0.1], [0.1, 0.1, 0.2 / 3]])
    >>> bayes_topics(Q @ Q[:2].T, Q.sum(axis=1), np.array([0, 1])).round(6)
    array([[0.75, 0.  ],
           [0.  , 0.75],
           [0.25, 0.25]])
    """
    present = probability > 0.0
    inverse = np.where(present, 1.0 / np.where(present, probability, 1.0), 0.0)
    scaled = products * inverse[:, None] * inverse[anchors]
    C = simplex_from_gram(scaled[anchors], scaled)
    joint = C * probability[:, None]
    return joint / joint.sum(axis=0)
