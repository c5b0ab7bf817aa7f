"""Non-negative least squares for many rows at once or, where they are few, for one after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
from scipy.optimize import nnls

from dask_dca.geometry.cone import nonnegative_coefficients

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = ["few_coefficients", "residuals"]

_FEW: Final = 96  # rows up to which setting up a batch costs more than it saves


def residuals(rows: Floats, generators: Floats) -> Floats:
    """
    Subtract from each row its nearest point in a cone.

    Parameters
    ----------
    rows : ndarray of float64, shape (n, d)
        Finite rows.
    generators : ndarray of float64, shape (k, d)
        Rows that span the cone; none is the cone {0}.

    Returns
    -------
    ndarray of float64, shape (n, d)
        What is left of each row.

    Examples
    --------
    >>> residuals(np.array([[2.0, -1.0], [1.0, 3.0]]), np.array([[1.0, 0.0]]))
    array([[ 0., -1.],
           [ 0.,  3.]])
    """
    if not len(generators):
        return rows
    solve = few_coefficients if len(rows) <= _FEW else nonnegative_coefficients
    return rows - solve(rows, generators) @ generators


def few_coefficients(rows: Floats, generators: Floats) -> Floats:
    """
    Minimise |x_i - f_i G|^2 over f_i >= 0, one row after the other.

    Parameters
    ----------
    rows : ndarray of float64, shape (n, d)
        Finite rows.
    generators : ndarray of float64, shape (k, d)
        Rows that span the cone.

    Returns
    -------
    ndarray of float64, shape (n, k)
        Coefficients; a row's do not depend on the others.

    Examples
    --------
    >>> few_coefficients(np.array([[2.0, -1.0]]), np.array([[1.0, 0.0]]))
    array([[2.]])
    """
    found = np.zeros((len(rows), len(generators)))
    for i, row in enumerate(rows):
        try:
            found[i] = nnls(generators.T, row)[0]
        except RuntimeError:  # its limit of iterations
            found[i] = nonnegative_coefficients(row[None, :], generators)[0]
    return found
