"""The Dirichlet parameter of mixtures from their second moment, the paper's alpha."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = ["dirichlet_of_moment", "dirichlet_weights"]


def dirichlet_weights(topics: Floats, probability: Floats, floor: float, values: Floats, vectors: Floats) -> Floats:
    """
    Recover the Dirichlet parameter from E[h h^T], the paper's equation for the second moment.

    Q = O E[h h^T] O^T is solved with Q = diag(1/h) U lambda U^T diag(1/h), the part that the topics were found from.

    Parameters
    ----------
    topics : ndarray of float64, shape (V, k)
        In the paper O.
    probability : ndarray of float64, shape (V,)
        In the paper p.
    floor : float
        The soft floor tau.
    values, vectors : ndarray of float64, shapes (k,) and (V, k)
        Eigenpairs of diag(h) Q diag(h).

    Returns
    -------
    ndarray of float64, shape (k,)
        In the paper alpha. Its total says how mixed documents are: good where the model holds, too small on real
        text, in which words come in bursts.

    Examples
    --------
    >>> O = np.eye(2)
    >>> p, D = np.array([0.5, 0.5]), np.array([[1 / 3, 1 / 6], [1 / 6, 1 / 3]])  # E[h h^T] of Dirichlet(1, 1)
    >>> values, vectors = np.linalg.eigh(2.0 * D)
    >>> dirichlet_weights(O, p, 0.0, values, vectors).round(6)
    array([1., 1.])
    """
    present = probability > 0.0
    inverse = np.where(present, 1.0 / np.where(present, probability, 1.0), 0.0)
    P = np.linalg.pinv((topics.T * inverse) @ topics) @ (topics.T * inverse)
    seen = (P * np.sqrt(probability + floor)) @ vectors
    return dirichlet_of_moment((seen * values) @ seen.T)


def dirichlet_of_moment(moment: Floats) -> Floats:
    """
    Match a Dirichlet distribution to its second moment.

    Parameters
    ----------
    moment : ndarray of float64, shape (k, k)
        In the paper E[h h^T], up to scale.

    Returns
    -------
    ndarray of float64, shape (k,)
        In the paper alpha: means from the rows' sums, the total from the least-squares fit of the covariance.

    Examples
    --------
    >>> dirichlet_of_moment(np.array([[2.0, 1.0], [1.0, 2.0]])).round(6)
    array([1., 1.])
    """
    E = moment
    w = np.maximum(E.sum(axis=1), 1e-9)
    E, w = E / w.sum(), w / w.sum()
    apart = np.diag(w) - np.outer(w, w)
    size = float((apart**2).sum())
    rho = float((apart * (E - np.outer(w, w))).sum()) / size if size > 0.0 else 0.5
    total = 1.0 / min(max(rho, 1e-4), 1.0 - 1e-4) - 1.0
    return total * w
