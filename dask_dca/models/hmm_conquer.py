"""The conquer step of hidden Markov models: which tails are anchors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dask_dca.geometry.solvers import successive_projection

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dask_dca.engine.lagged import Tails

    Floats = NDArray[np.float64]
    Labels = NDArray[np.intp]

__all__ = ["anchor_means", "select_anchors"]


def select_anchors(points: Floats, k: int, rule: str) -> Labels:
    """
    Choose the tails that are anchors: the conquer step.

    Parameters
    ----------
    points : ndarray of float64, shape (c, q)
        Where the tails lie.
    k : int
        How many to choose.
    rule : {"simplex", "farthest"}
        Successive projection on a simplex, or the farthest point again and again.

    Returns
    -------
    ndarray of intp, shape (k,)
        Their numbers; some twice where there are fewer than k.

    Examples
    --------
    >>> select_anchors(np.array([[0.0, 0.0], [4.0, 0.0], [0.0, 3.0], [1.0, 1.0]]), 3, "farthest").tolist()
    [1, 2, 0]
    """
    centred = points - points.mean(axis=0)
    squares = (centred**2).sum(axis=1)
    if rule == "simplex":
        height = max(float(np.sqrt(squares.mean())), 1e-300)
        chosen = successive_projection(np.column_stack([np.full(len(points), height), centred]), k)
        return np.resize(chosen, k).astype(np.intp)
    found = [int(squares.argmax())]
    distances = ((centred - centred[found[0]]) ** 2).sum(axis=1)
    while len(found) < k:
        found.append(int(distances.argmax()))
        distances = np.minimum(distances, ((centred - centred[found[-1]]) ** 2).sum(axis=1))
    return np.array(found, dtype=np.intp)


def anchor_means(found: Tails, what: str, rule: str, k: int) -> Floats:
    """
    Average the frames of the tails that are anchors.

    Parameters
    ----------
    found : Tails
        All tails.
    what : {"present", "context", "both"}
        What of them is compared.
    rule : {"simplex", "farthest"}
        As `select_anchors` takes it.
    k : int
        How many to choose.

    Returns
    -------
    ndarray of float64, shape (k, d)
        Mean coordinates.
    """
    points = {"present": found.present, "context": found.context, "both": np.hstack([found.present, found.context])}
    anchors: Floats = found.present[select_anchors(points[what], k, rule)]
    return anchors
