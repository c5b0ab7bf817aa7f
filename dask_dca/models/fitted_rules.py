"""What some fitted attributes must be besides finite numbers in a range: each rule says what is wrong, or nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Dims = tuple[str, ...]

__all__ = ["definite", "distribution", "factor", "of_some_size", "positive_sum", "semidefinite"]

_ROUNDING: Final = 1e-6
_LEAST: Final = 1e-150


def distribution(values: NDArray[Any], dims: Dims) -> str:
    """
    Require probabilities.

    Parameters
    ----------
    values : ndarray
        Not negative.
    dims : tuple of str
        Dimensions.

    Returns
    -------
    str
        What is wrong; nothing if the last axis sums to one.
    """
    del dims
    good = np.abs(values.sum(axis=-1) - 1.0).max(initial=0.0) <= _ROUNDING
    return "" if good else "does not sum to one"


def definite(values: NDArray[Any], dims: Dims) -> str:
    """
    Require covariances that have an inverse.

    Parameters
    ----------
    values : ndarray
        Variances, or matrices along the last two dimensions where these are the same.
    dims : tuple of str
        Dimensions.

    Returns
    -------
    str
        What is wrong; nothing for symmetric positive definite matrices, or positive variances.
    """
    if not _square(dims):
        return "" if (values > 0.0).all() else "is not positive"
    if not np.allclose(values, values.swapaxes(-1, -2)):
        return "is not symmetric"
    try:
        np.linalg.cholesky(values)
    except np.linalg.LinAlgError:
        return "is not positive definite"
    return ""


def of_some_size(values: NDArray[Any], dims: Dims) -> str:
    """
    Require rows whose squares are numbers too.

    Parameters
    ----------
    values : ndarray
        Rows.
    dims : tuple of str
        Dimensions.

    Returns
    -------
    str
        What is wrong; nothing if all are zero, or the greatest is above 1e-150.
    """
    del dims
    greatest = float(np.abs(values).max(initial=0.0))
    return "is too small to be squared" if 0.0 < greatest < _LEAST else ""


def positive_sum(values: NDArray[Any], dims: Dims) -> str:
    """
    Require amounts that have shares.

    Parameters
    ----------
    values : ndarray
        Not negative.
    dims : tuple of str
        Dimensions.

    Returns
    -------
    str
        What is wrong; nothing if they are not all zero.
    """
    del dims
    return "" if float(values.sum()) > 1e-100 else "is zero throughout"


def semidefinite(values: NDArray[Any], dims: Dims) -> str:
    """
    Require covariances, which may be singular.

    Parameters
    ----------
    values : ndarray
        Variances, or a matrix where both dimensions are the same.
    dims : tuple of str
        Dimensions.

    Returns
    -------
    str
        What is wrong; nothing for a symmetric matrix, or variances, without negative eigenvalues.
    """
    slack = 1e-8 * float(np.abs(values).max(initial=0.0))
    if not _square(dims):
        return "" if values.min(initial=0.0) >= -slack else "is negative"
    if np.abs(values - values.T).max(initial=0.0) > slack:
        return "is not symmetric"
    return "" if np.linalg.eigvalsh(values).min(initial=0.0) >= -slack else "is not positive semidefinite"


def factor(values: NDArray[Any], dims: Dims) -> str:
    """
    Require factors of inverse covariances.

    Parameters
    ----------
    values : ndarray
        Square roots of inverse variances, or triangular matrices.
    dims : tuple of str
        Dimensions.

    Returns
    -------
    str
        What is wrong; nothing if what determinants are made of is positive.
    """
    found = np.diagonal(values, axis1=-2, axis2=-1) if _square(dims) else values
    return "" if (found > 0.0).all() else "has a diagonal that is not positive" if _square(dims) else "is not positive"


def _square(dims: Dims) -> bool:
    return len(dims) > 1 and dims[-1] == dims[-2]
