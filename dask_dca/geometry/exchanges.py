"""Least squares over a cone for many points at once, from a good guess of which generators take part."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from dask_dca.geometry.active_set import rows_by_size
from dask_dca.geometry.pieces import times

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Mask = NDArray[np.bool_]

__all__ = ["exchange"]

_MANY: Final = 8  # exchanges of many generators at a time, which may be in a cycle then ...
_SINGLE: Final = 12  # ... and of one
_SLAB: Final = 2**20  # entries of the matrices that are solved together
_RIDGE: Final = 2.0**-44  # share of the diagonal, so that dependent columns have a solution too
_ROUNDING: Final = 2.0**-44  # slope, as a share of the point's length, up to which it counts as zero


def exchange(points: Floats, start: Floats, columns: Floats) -> Floats:
    """
    Minimise |x_i - f_i E|^2 over f_i >= 0, most often: from supports that are nearly right.

    Negative coefficients leave a support all at once; if there are none, the generators of steepest descent join, as
    many as there are dimensions left. Points whose supports have the same size are solved together.

    Parameters
    ----------
    points : ndarray of float64, shape (n, r)
        Points x.
    start : ndarray of float64, shape (n, k)
        Coefficients that are not negative: where they are positive, a generator takes part.
    columns : ndarray of float64, shape (k, r)
        Generators, as orthonormal columns.

    Returns
    -------
    ndarray of float64, shape (n, k)
        Coefficients that are not negative. Few of them are not optimal, and nothing tells which: judge by what they
        leave of the point. A point's have the same bits beside any others.

    Examples
    --------
    >>> exchange(np.array([[2.0, -1.0], [1.0, 3.0]]), np.ones((2, 2)), np.eye(2)).round(9)
    array([[2., 0.],
           [1., 3.]])
    """
    dimensions, gram = columns.shape[1], columns @ columns.T
    gram += _RIDGE * np.diag(gram.diagonal())
    products = times(points, columns.T)
    least = _ROUNDING * np.sqrt((points**2).sum(axis=1, keepdims=True))
    found, support = start.copy(), _largest(start, np.full(len(points), dimensions))
    left = np.arange(len(points))
    for step in range(_MANY + _SINGLE):
        room = dimensions - support[left].sum(axis=1)
        found[left] = trial = _solve(gram, products[left], support[left])
        leaving = trial < 0.0
        closed = support[left] | leaving.any(axis=1, keepdims=True)
        gains = np.where(closed, 0.0, products[left] - times(trial, gram))
        joining = _largest(np.where(gains > least[left], gains, 0.0), np.minimum(room, 1) if step >= _MANY else room)
        support[left] ^= leaving | joining
        left = left[(leaving | joining).any(axis=1)]
        if not len(left):
            break
    return np.maximum(found, 0.0)


def _largest(values: Floats, counts: NDArray[np.intp]) -> Mask:
    """Which entries are positive and among the largest of their row, as many as it may have, or more where they tie."""
    ordered = np.sort(values, axis=1)[:, ::-1]
    least = np.take_along_axis(ordered, np.clip(counts, 1, values.shape[1])[:, None] - 1, axis=1)
    return (values > 0.0) & (values >= least) & (counts[:, None] > 0)


def _solve(gram: Floats, products: Floats, support: Mask) -> Floats:
    """Coefficients on each point's support, whatever their signs."""
    found = np.zeros_like(products)
    for rows, columns in rows_by_size(support):
        step = max(1, _SLAB // max(columns.shape[1], 1) ** 2)
        for start in range(0, len(rows), step):
            at, own = rows[start : start + step, None], columns[start : start + step]
            matrices = gram[own[:, :, None], own[:, None, :]]
            found[at, own] = np.linalg.solve(matrices, products[at, own][..., None])[..., 0]
    return found
