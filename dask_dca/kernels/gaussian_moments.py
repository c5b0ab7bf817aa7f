"""Parameters of Gaussian components from sums over rows, for four forms of covariance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dask_dca.kernels.gaussian_forms import are_far, variances_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = ["GaussianMoments", "about_origins", "gaussian_moments", "mean_and_covariance", "moments_of_parts"]


@dataclass(frozen=True)
class GaussianMoments:
    """
    Sums over rows that decide means and covariances.

    Attributes
    ----------
    counts : ndarray of float64, shape (k,)
        Sum of the weights of each component.
    first : ndarray of float64, shape (k, p)
        Weighted sums of rows, less a centre and the component's origin.
    second : ndarray of float64
        Weighted sums of their products: "full" (k, p, p), "tied" (p, p) of all components together, "diag" (k, p)
        squares only, "spherical" and "tied-spherical" (k,) squared lengths only.
    origins : ndarray of float64, shape (k, p), or 0.0
        The origin of each component, less the centre: a point so near its rows that squares keep their digits.
    """

    counts: Floats
    first: Floats
    second: Floats
    origins: Floats | float = 0.0


def about_origins(
    near: GaussianMoments, far: Mapping[int, GaussianMoments], origins: Floats, covariance_type: str
) -> GaussianMoments:
    """
    Put the moments of components about origins of their own in their places.

    Parameters
    ----------
    near : GaussianMoments
        Of all k components about the centre; those of far ones are not used.
    far : mapping of int to GaussianMoments
        For each far component its own moments, as of a single component.
    origins : ndarray of float64, shape (k, p)
        Zero, and the origins of far components.
    covariance_type : {"full", "tied", "diag", "spherical", "tied-spherical"}
        Form of the covariances; the second moments of "tied" must be those of the near components alone.

    Returns
    -------
    GaussianMoments
        Of all components.
    """
    counts, first, second = near.counts.copy(), near.first.copy(), near.second.copy()
    for j, own in far.items():
        counts[j], first[j] = own.counts[0], own.first[0]
        if covariance_type == "tied":
            second += own.second
        else:
            second[j] = own.second[0]
    return GaussianMoments(counts, first, second, origins)


def gaussian_moments(
    weights: Floats, centred: Floats, covariance_type: str, origins: Floats | None = None
) -> GaussianMoments:
    """
    Sum weighted rows and their products, in memory.

    Parameters
    ----------
    weights : ndarray of float64, shape (n, k)
        How much of each row belongs to each component.
    centred : ndarray of float64, shape (n, p)
        Rows less a centre.
    covariance_type : {"full", "tied", "diag", "spherical", "tied-spherical"}
        Which products.
    origins : ndarray of float64, shape (k, p), optional
        Points that the moments of each component are taken about, less the centre; zero for those near it.

    Returns
    -------
    GaussianMoments
        The sums.

    Examples
    --------
    >>> gaussian_moments(np.ones((2, 1)), np.array([[1.0, 0.0], [3.0, 2.0]]), "diag").second
    array([[10.,  4.]])
    """
    if origins is not None and origins.any():
        there = np.flatnonzero(origins.any(axis=1)).tolist()
        far = {j: gaussian_moments(weights[:, [j]], centred - origins[j], covariance_type) for j in there}
        near = np.where(origins.any(axis=1), 0.0, weights)
        return about_origins(gaussian_moments(near, centred, covariance_type), far, origins, covariance_type)
    if covariance_type == "full":
        roots = np.sqrt(weights)
        second = np.stack([_gram(centred * root[:, None]) for root in roots.T])
    elif covariance_type == "tied":
        second = _gram(centred * np.sqrt(weights.sum(axis=1))[:, None])
    elif covariance_type == "diag":
        second = weights.T @ centred**2
    else:
        second = weights.T @ (centred**2).sum(axis=1)
    return GaussianMoments(weights.sum(axis=0), weights.T @ centred, second)


def _gram(rows: Floats) -> Floats:
    return rows.T @ rows


def moments_of_parts(weights: Floats, centred: Floats, covariance_type: str, least: Floats) -> GaussianMoments:
    """
    Sum weighted rows and their products, about the means themselves where these are far from the centre.

    Parameters
    ----------
    weights, centred, covariance_type : ndarray, ndarray and str
        As `gaussian_moments` takes them.
    least : ndarray of float64, shape (p,)
        Variances that nobody needs to be told from zero.

    Returns
    -------
    GaussianMoments
        The sums.

    Examples
    --------
    >>> rows = np.array([[1e9], [1e9 + 2.0]])
    >>> mean_and_covariance(moments_of_parts(np.ones((2, 1)), rows, "diag", np.zeros(1)), "diag", 0.0)[1]
    array([[1.]])
    """
    moments = gaussian_moments(weights, centred, covariance_type)
    means, covariances = mean_and_covariance(moments, covariance_type, 0.0)
    far = are_far(means, variances_of(covariances, covariance_type) + least)
    if not far.any():
        return moments
    return gaussian_moments(weights, centred, covariance_type, np.where(far[:, None], means, 0.0))


def mean_and_covariance(moments: GaussianMoments, covariance_type: str, reg_covar: float) -> tuple[Floats, Floats]:
    """
    Turn moments into the means and covariances of greatest likelihood: the M-step.

    Parameters
    ----------
    moments : GaussianMoments
        Sums over all rows, about one centre and perhaps origins.
    covariance_type : {"full", "tied", "diag", "spherical", "tied-spherical"}
        Form of the covariances.
    reg_covar : float
        Added to every variance.

    Returns
    -------
    means : ndarray of float64, shape (k, p)
        Means, less the same centre.
    covariances : ndarray of float64
        In the shape of their type. A component without weight has mean zero and covariance `reg_covar`.

    Examples
    --------
    >>> moments = gaussian_moments(np.ones((2, 1)), np.array([[1.0, 0.0], [3.0, 2.0]]), "diag")
    >>> mean_and_covariance(moments, "diag", 0.0)
    (array([[2., 1.]]), array([[1., 1.]]))
    """
    counts = np.where(moments.counts > 0.0, moments.counts, np.inf)  # sums without weight are what rounding left: none
    total = max(float(moments.counts.sum()), np.finfo(np.float64).tiny)
    means = moments.first / counts[:, None]
    p = means.shape[1]
    if covariance_type == "full":
        covariances = moments.second / counts[:, None, None] - means[:, :, None] * means[:, None, :]
        covariances[:, np.arange(p), np.arange(p)] += reg_covar
    elif covariance_type == "tied":
        covariances = (moments.second - moments.first.T @ means) / total
        covariances[np.arange(p), np.arange(p)] += reg_covar
    elif covariance_type == "diag":
        covariances = np.maximum(moments.second / counts[:, None] - means**2, 0.0) + reg_covar
    else:
        variances = np.maximum((moments.second / counts - (means**2).sum(axis=1)) / p, 0.0)
        pooled = covariance_type == "tied-spherical"
        covariances = (np.asarray(variances @ moments.counts / total) if pooled else variances) + reg_covar
    return means + moments.origins, covariances
