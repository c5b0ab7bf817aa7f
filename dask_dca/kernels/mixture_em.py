"""Expectation-maximisation of Gaussian mixtures, in memory: the steps, and runs of them on a sample."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from dask_dca.kernels.gaussian import Gaussians, log_densities, prepare_gaussians
from dask_dca.kernels.gaussian_moments import GaussianMoments, gaussian_moments, mean_and_covariance, moments_of_parts

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = [
    "Mixture",
    "Regularization",
    "expectation",
    "improve",
    "joint_log_densities",
    "maximization",
    "mixture_of_labels",
    "normalise",
    "regularization",
]

_NOTHING: Final = 10 * np.finfo(np.float64).eps  # a component of less weight than this many rows is empty
_SHAPE_ROWS: Final = 3.0  # the prior on the shape of a component weighs as much as so many rows
_FLOOR_OWN: Final = 1e-4  # least variance, as a share of the feature's
_FLOOR_WITHIN: Final = 1e-2  # and at most as a share of the feature's within the clusters of the start
_LOCAL: Final = 1e-10  # share of the feature's variance below which what is within clusters counts no further
_FLOOR_MEAN: Final = 1e-6  # and of the mean variance of the features


@dataclass(frozen=True)
class Mixture:
    """
    Parameters of a Gaussian mixture.

    Attributes
    ----------
    covariance_type : {"full", "tied", "diag", "spherical", "tied-spherical"}
        Form of the covariances.
    weights : ndarray of float64, shape (k,)
        Shares of the components.
    means : ndarray of float64, shape (k, p)
        Their means, less the centre of the data.
    covariances : ndarray of float64
        Their covariances, of scikit-learn's shapes.
    """

    covariance_type: str
    weights: Floats
    means: Floats
    covariances: Floats


@dataclass(frozen=True)
class Regularization:
    """
    What keeps covariances from collapsing.

    Attributes
    ----------
    floor : ndarray of float64, shape (p,)
        Added to the variances.
    shape_rows : float
        So many rows' worth of pull of each covariance to the shape of the mean covariance, at its own size; 0 is none.
    """

    floor: Floats
    shape_rows: float


def regularization(variances: Floats, reg_covar: float | None, within: Floats | None = None) -> Regularization:
    """
    Choose what keeps covariances from collapsing.

    Parameters
    ----------
    variances : ndarray of float64, shape (p,)
        Variances of the features.
    reg_covar : float or None
        Added to every variance, and nothing else; None for a floor in proportion to the variances and a weak prior
        on the components' shape.
    within : ndarray of float64, shape (p,), optional
        Their variances within the clusters of the start: where nearly all variance is between clusters that are far
        apart, or that of a few far rows, the floor is in proportion to these.

    Returns
    -------
    Regularization
        Floor and prior.

    Examples
    --------
    >>> regularization(np.array([1.0, 3.0]), None).floor
    array([0.0001, 0.0003])
    """
    if reg_covar is not None:
        return Regularization(np.full(len(variances), float(reg_covar)), 0.0)
    if within is not None:
        local = np.maximum(_FLOOR_WITHIN / _FLOOR_OWN * within, _LOCAL * variances)
        variances = np.minimum(variances, local)
    mean = float(variances.mean())
    floor = np.maximum(_FLOOR_OWN * variances, _FLOOR_MEAN * (mean if mean > 0.0 else 1.0))
    return Regularization(floor, _SHAPE_ROWS)


def joint_log_densities(mixture: Mixture, rows: Floats) -> Floats:
    """
    Evaluate the log of weight times density, for every row and component.

    Parameters
    ----------
    mixture : Mixture
        The mixture.
    rows : ndarray of float64, shape (n, p)
        Rows, less the centre.

    Returns
    -------
    ndarray of float64, shape (n, k)
        Joint log densities.
    """
    found = log_densities(_prepared(mixture), rows)
    found += np.log(mixture.weights)
    return found


def _prepared(mixture: Mixture) -> Gaussians:
    centre = np.zeros(mixture.means.shape[1])
    return prepare_gaussians(mixture.means, mixture.covariances, mixture.covariance_type, centre)


def normalise(joint: Floats) -> tuple[Floats, Floats]:
    """
    Turn joint log densities into responsibilities, row by row.

    Parameters
    ----------
    joint : ndarray of float64, shape (n, k)
        Joint log densities.

    Returns
    -------
    responsibilities : ndarray of float64, shape (n, k)
        Probability of each component, given the row.
    log_likelihoods : ndarray of float64, shape (n,)
        Log density of each row.

    Examples
    --------
    >>> normalise(np.log(np.array([[0.1, 0.3]])))[0].round(3)
    array([[0.25, 0.75]])
    """
    top = joint.max(axis=1, keepdims=True)
    shares = np.exp(joint - top)
    total = shares.sum(axis=1, keepdims=True)
    shares /= total
    return shares, (top + np.log(total))[:, 0]


def expectation(mixture: Mixture, rows: Floats) -> tuple[Floats, Floats]:
    """
    Find the responsibilities of the components for rows: the E-step.

    Parameters
    ----------
    mixture : Mixture
        The mixture.
    rows : ndarray of float64, shape (n, p)
        Rows, less the centre.

    Returns
    -------
    responsibilities : ndarray of float64, shape (n, k)
        Probability of each component, given the row.
    log_likelihoods : ndarray of float64, shape (n,)
        Log density of each row.
    """
    return normalise(joint_log_densities(mixture, rows))


def maximization(
    moments: GaussianMoments, covariance_type: str, regular: Regularization, fallback: Floats | None = None
) -> Mixture:
    """
    Turn moments into a mixture: the M-step.

    Parameters
    ----------
    moments : GaussianMoments
        Weighted sums over the rows, less the centre.
    covariance_type : {"full", "tied", "diag", "spherical", "tied-spherical"}
        Form of the covariances.
    regular : Regularization
        Floor and prior.
    fallback : ndarray of float64, shape (k, p), optional
        Means that components without rows keep.

    Returns
    -------
    Mixture
        Of greatest likelihood, but for the floor and the prior.
    """
    counts = np.maximum(moments.counts, _NOTHING)
    means, covariances = mean_and_covariance(replace(moments, counts=counts), covariance_type, 0.0)
    empty = moments.counts < _NOTHING
    if fallback is not None:
        means[empty] = fallback[empty]
    if regular.shape_rows and covariance_type in ("diag", "full"):
        covariances = _towards_mean_shape(covariances, counts, regular)
    return Mixture(covariance_type, counts / counts.sum(), means, _add_floor(covariances, covariance_type, regular))


def _towards_mean_shape(covariances: Floats, counts: Floats, regular: Regularization) -> Floats:
    """Pull each covariance to the mean one, scaled to its own size (for full ones, to the mean's diagonal too)."""
    shares = counts / counts.sum()
    mean = np.tensordot(shares, covariances, axes=1)
    full = covariances.ndim == 3
    own = np.diagonal(covariances, axis1=1, axis2=2) if full else covariances
    own = np.maximum(own, 0.0)  # a component of hardly any rows has variances of rounding errors
    common = np.diagonal(mean) if full else mean
    sizes = np.exp(np.mean(np.log((own + regular.floor) / (common + regular.floor)), axis=1))
    pull = regular.shape_rows * sizes
    lead = (slice(None),) + (None,) * (covariances.ndim - 1)
    total: Floats = (counts[lead] * covariances + pull[lead] * mean) / (counts + regular.shape_rows)[lead]
    return total


def _add_floor(covariances: Floats, covariance_type: str, regular: Regularization) -> Floats:
    if covariance_type in ("spherical", "tied-spherical"):
        return np.asarray(covariances + regular.floor.mean())
    if covariance_type == "diag":
        return covariances + regular.floor
    return covariances + np.diag(regular.floor)


def mixture_of_labels(
    rows: Floats, labels: NDArray[np.intp], n_components: int, covariance_type: str, regular: Regularization
) -> Mixture:
    """
    Fit a mixture to a partition.

    Parameters
    ----------
    rows : ndarray of float64, shape (n, p)
        Rows, less the centre.
    labels : ndarray of int, shape (n,)
        Component of each row.
    n_components : int
        Number of components.
    covariance_type : {"full", "tied", "diag", "spherical", "tied-spherical"}
        Form of the covariances.
    regular : Regularization
        Floor and prior.

    Returns
    -------
    Mixture
        One component for each label.
    """
    moments = moments_of_parts(np.eye(n_components)[labels], rows, covariance_type, regular.floor)
    return maximization(moments, covariance_type, regular)


def improve(rows: Floats, mixture: Mixture, regular: Regularization, passes: int) -> tuple[Mixture, float]:
    """
    Run passes of expectation-maximisation.

    Parameters
    ----------
    rows : ndarray of float64, shape (n, p)
        Rows, less the centre.
    mixture : Mixture
        Where to start.
    regular : Regularization
        Floor and prior.
    passes : int
        How many.

    Returns
    -------
    mixture : Mixture
        After the last pass.
    log_likelihood : float
        Mean log density of the rows under it.
    """
    form = mixture.covariance_type
    for _ in range(passes):
        responsibilities, _ = expectation(mixture, rows)
        moments = gaussian_moments(responsibilities, rows, form, _prepared(mixture).origins)
        mixture = maximization(moments, form, regular, mixture.means)
    return mixture, float(expectation(mixture, rows)[1].mean())
