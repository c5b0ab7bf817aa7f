"""Gaussian components: log densities of rows, for four forms of covariance.

Shapes of covariances, with k components and p features, are scikit-learn's: "full" (k, p, p), "tied" (p, p), "diag"
(k, p), "spherical" (k,); and "tied-spherical" (), one variance for all, which is the form of k-means. The densities
use matrix products and row-wise operations only: on tiles of one fixed height a row gets the same bits wherever it
stands.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from scipy.linalg import solve_triangular

from dask_dca.kernels.gaussian_forms import FAR, ROUND

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Floats = NDArray[np.float64]

__all__ = [
    "Gaussians",
    "gaussians_of_factors",
    "log_densities",
    "prepare_gaussians",
]


@dataclass(frozen=True)
class Gaussians:
    """
    Gaussian densities, prepared for many rows.

    Attributes
    ----------
    covariance_type : {"full", "tied", "diag", "spherical", "tied-spherical"}
        Form of the covariances.
    centre : ndarray of float64, shape (p,)
        What rows and means are taken relative to, so that data far from zero keep their digits.
    means : ndarray of float64, shape (k, p)
        Means less the centre.
    precisions_cholesky : ndarray of float64
        Factor P of each inverse covariance P P^T, of the covariances' shape; for "diag" and "spherical" the
        reciprocal standard deviations.
    log_determinants : ndarray of float64, shape (k,)
        Half the logarithm of the determinant of each inverse covariance.
    far : ndarray of bool, shape (k,)
        Components so far from the centre, for their own spread, that squares are taken about their means instead.
    """

    covariance_type: str
    centre: Floats
    means: Floats
    precisions_cholesky: Floats
    log_determinants: Floats
    far: NDArray[np.bool_]

    @property
    def origins(self) -> Floats:
        """
        Points that the moments of each component are best taken about.

        Returns
        -------
        ndarray of float64, shape (k, p)
            Less the centre: zero for a component that is near it, else the component's mean.
        """
        return np.where(self.far[:, None], self.means, 0.0)

    @property
    def deviations(self) -> Floats:
        """
        Standard deviations of the features in each component.

        Returns
        -------
        ndarray of float64, shape (k, p)
            Roots of the variances.
        """
        k, p = self.means.shape
        if self.covariance_type in ROUND:
            return np.broadcast_to(1.0 / self.precisions_cholesky.reshape(-1, 1), (k, p))
        if self.covariance_type == "diag":
            return 1.0 / self.precisions_cholesky
        roots = np.linalg.inv(self.precisions_cholesky)  # P^-1, whose columns have the deviations as their lengths
        return np.broadcast_to(np.sqrt((roots**2).sum(axis=-2)), (k, p))


def prepare_gaussians(
    means: ArrayLike, covariances: ArrayLike, covariance_type: str, centre: ArrayLike | None = None
) -> Gaussians:
    """
    Factor the covariances, once for all rows.

    Parameters
    ----------
    means : array_like, shape (k, p)
        Means.
    covariances : array_like
        Covariances, in the shape of their type.
    covariance_type : {"full", "tied", "diag", "spherical", "tied-spherical"}
        Their form.
    centre : array_like, shape (p,), optional
        A point amid the data; the mean of the means if None.

    Returns
    -------
    Gaussians
        The prepared densities.

    Raises
    ------
    numpy.linalg.LinAlgError
        A covariance is not positive definite.

    Examples
    --------
    >>> g = prepare_gaussians([[0.0, 0.0]], [4.0], "spherical")
    >>> g.precisions_cholesky, g.log_determinants.round(3)
    (array([0.5]), array([-1.386]))
    """
    means = np.asarray(means, dtype=np.float64)
    covariances = np.asarray(covariances, dtype=np.float64)
    if covariance_type == "diag" or covariance_type in ROUND:
        if not (covariances > 0.0).all():
            raise np.linalg.LinAlgError("a variance is not positive; raise reg_covar")
        factors = 1.0 / np.sqrt(covariances)
    else:
        p = means.shape[1]
        matrices = covariances.reshape(-1, p, p)
        factors = np.stack([_inverse_factor(matrix) for matrix in matrices]).reshape(covariances.shape)
    return gaussians_of_factors(means, factors, covariance_type, centre)


def gaussians_of_factors(
    means: Floats, factors: Floats, covariance_type: str, centre: ArrayLike | None = None
) -> Gaussians:
    """
    Prepare densities whose covariances are factored already.

    Parameters
    ----------
    means : ndarray of float64, shape (k, p)
        Means.
    factors : ndarray of float64
        As `Gaussians.precisions_cholesky`.
    covariance_type : {"full", "tied", "diag", "spherical", "tied-spherical"}
        Form of the covariances.
    centre : array_like, shape (p,), optional
        A point amid the data; the mean of the means if None.

    Returns
    -------
    Gaussians
        The prepared densities.

    Examples
    --------
    >>> gaussians_of_factors(np.zeros((1, 2)), np.array([0.5]), "spherical").log_determinants.round(3)
    array([-1.386])
    """
    k, p = means.shape
    if covariance_type == "diag":
        logs = np.log(factors).sum(axis=1)
    elif covariance_type in ROUND:
        logs = np.broadcast_to(p * np.log(factors), (k,)).copy()
    else:
        logs = np.broadcast_to(np.log(np.diagonal(factors, axis1=-2, axis2=-1)).sum(axis=-1), (k,)).copy()
    middle = means.mean(axis=0) if centre is None else np.asarray(centre, dtype=np.float64)
    centred = means - middle
    return Gaussians(covariance_type, middle, centred, factors, logs, _far(centred, factors, covariance_type))


def _far(means: Floats, factors: Floats, covariance_type: str) -> NDArray[np.bool_]:
    """Which means are many standard deviations from zero, in some feature or direction."""
    if covariance_type in ROUND:
        seen = means * factors.reshape(-1, 1)
    else:
        seen = means * factors if covariance_type == "diag" else np.matmul(means[:, None], factors)[:, 0]
    far: NDArray[np.bool_] = np.abs(seen).max(axis=1) > FAR
    return far


def _inverse_factor(covariance: Floats) -> Floats:
    """Upper triangular P with P P^T the inverse of a covariance."""
    lower = np.linalg.cholesky(covariance)
    inverse: Floats = solve_triangular(lower, np.eye(len(covariance)), lower=True).T
    return inverse


def log_densities(gaussians: Gaussians, rows: Floats) -> Floats:
    """
    Evaluate the logarithm of every density at every row.

    Parameters
    ----------
    gaussians : Gaussians
        The k prepared densities.
    rows : ndarray of float64, shape (n, p)
        Rows.

    Returns
    -------
    ndarray of float64, shape (n, k)
        Log densities.

    Examples
    --------
    >>> g = prepare_gaussians([[0.0], [2.0]], [[1.0], [1.0]], "diag")
    >>> log_densities(g, np.array([[0.0]])).round(4)
    array([[-0.9189, -2.9189]])
    """
    centred = rows - gaussians.centre
    distances = _DISTANCES[gaussians.covariance_type](gaussians, centred)
    if gaussians.covariance_type != "full":  # which are taken about the means anyway
        for j in np.flatnonzero(gaussians.far).tolist():
            distances[:, j] = _distances_of_one(gaussians, centred, j)
    distances += rows.shape[1] * np.log(2.0 * np.pi)
    distances *= -0.5
    distances += gaussians.log_determinants
    return distances


def _distances_of_one(gaussians: Gaussians, centred: Floats, j: int) -> Floats:
    """Squared distances from one component, about its own mean."""
    away, factors = centred - gaussians.means[j], gaussians.precisions_cholesky
    tied = gaussians.covariance_type == "tied"
    seen = away @ factors if tied else away * (factors[j] if factors.ndim else factors)
    found: Floats = (seen**2).sum(axis=1)
    return found


def _full_distances(gaussians: Gaussians, centred: Floats) -> Floats:
    found = np.empty((len(centred), len(gaussians.means)))
    for j, (mean, factor) in enumerate(zip(gaussians.means, gaussians.precisions_cholesky, strict=True)):
        found[:, j] = (((centred - mean) @ factor) ** 2).sum(axis=1)
    return found


def _tied_distances(gaussians: Gaussians, centred: Floats) -> Floats:
    factor = gaussians.precisions_cholesky
    return _squared_distances(centred @ factor, gaussians.means @ factor)


def _diag_distances(gaussians: Gaussians, centred: Floats) -> Floats:
    precisions = gaussians.precisions_cholesky**2
    found = (centred**2) @ precisions.T
    found -= 2.0 * (centred @ (gaussians.means * precisions).T)
    found += (gaussians.means**2 * precisions).sum(axis=1)
    return np.maximum(found, 0.0, out=found)


def _spherical_distances(gaussians: Gaussians, centred: Floats) -> Floats:
    return _squared_distances(centred, gaussians.means) * gaussians.precisions_cholesky**2


def _squared_distances(rows: Floats, points: Floats) -> Floats:
    found = -2.0 * (rows @ points.T)
    found += (rows**2).sum(axis=1)[:, None]
    found += (points**2).sum(axis=1)
    return np.maximum(found, 0.0, out=found)


_DISTANCES: Final = {
    "full": _full_distances,
    "tied": _tied_distances,
    "diag": _diag_distances,
    "spherical": _spherical_distances,
    "tied-spherical": _spherical_distances,
}
