"""Forms of covariance: their variances and parameters, and which components' variances can be told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = ["COVARIANCE_TYPES", "FAR", "ROUND", "are_far", "covariance_parameters", "rests_on_floor", "variances_of"]

COVARIANCE_TYPES: Final = ("full", "tied", "diag", "spherical")
ROUND: Final = ("spherical", "tied-spherical")
FAR: Final = 256.0  # standard deviations from the centre: beyond, squares about it lose the digits that matter


def are_far(means: Floats, variances: Floats, deviations: float = FAR) -> NDArray[np.bool_]:
    """
    Find the components whose variances can't be told from squares about the centre.

    Parameters
    ----------
    means : ndarray of float64, shape (k, p)
        Means less the centre.
    variances : ndarray of float64, broadcast against (k, p)
        Their variances, which may be zero.
    deviations : float, default 256
        How many standard deviations are far.

    Returns
    -------
    ndarray of bool, shape (k,)
        True where a mean is further from the centre than so many standard deviations, in some feature.

    Examples
    --------
    >>> are_far(np.array([[3.0], [300.0]]), np.ones((2, 1)))
    array([False,  True])
    """
    return np.asarray((means**2 > deviations**2 * variances).any(axis=1))


def variances_of(covariances: Floats, covariance_type: str) -> Floats:
    """
    Take the features' variances from covariances of any form.

    Parameters
    ----------
    covariances : ndarray of float64
        Covariances, in the shape of their type.
    covariance_type : {"full", "tied", "diag", "spherical", "tied-spherical"}
        Their form.

    Returns
    -------
    ndarray of float64
        Variances that broadcast against (k, p).

    Examples
    --------
    >>> variances_of(np.array([1.0, 4.0]), "spherical")
    array([[1.],
           [4.]])
    """
    if covariance_type in ROUND:
        return covariances.reshape(-1, 1)
    return covariances if covariance_type == "diag" else np.diagonal(covariances, axis1=-2, axis2=-1)


def covariance_parameters(covariance_type: str, n_components: int, n_features: int) -> int:
    """
    Count the free parameters of covariances, for information criteria.

    Parameters
    ----------
    covariance_type : {"full", "tied", "diag", "spherical", "tied-spherical"}
        Their form.
    n_components, n_features : int
        Number of components k and of features p.

    Returns
    -------
    int
        Their number; the means have k p more.

    Examples
    --------
    >>> [covariance_parameters(form, 3, 4) for form in COVARIANCE_TYPES]
    [30, 10, 12, 3]
    """
    triangle = n_features * (n_features + 1) // 2
    counts = {
        "full": n_components * triangle,
        "tied": triangle,
        "diag": n_components * n_features,
        "spherical": n_components,
        "tied-spherical": 1,
    }
    return counts[covariance_type]


def rests_on_floor(own: Floats, floor: Floats, rounding: Floats) -> NDArray[np.bool_]:
    """
    Find the components whose shape the floor decides, rather than their rows.

    Parameters
    ----------
    own : ndarray of float64, shape (k, p)
        Variances of the components before the floor.
    floor : ndarray of float64, shape (p,)
        Least variances.
    rounding : ndarray of float64, shape (p,)
        Variances up to these are nothing but rounding.

    Returns
    -------
    ndarray of bool, shape (k,)
        True where more than half of the features that vary in a component do so by less than the floor.

    Examples
    --------
    >>> rests_on_floor(np.array([[1.0, 0.0], [30.0, 30.0]]), np.array([9.0, 9.0]), np.array([0.1, 0.1]))
    array([ True, False])
    """
    varies = own > rounding
    low = varies & (own < floor)
    return np.asarray(2 * low.sum(axis=1) > varies.sum(axis=1))
