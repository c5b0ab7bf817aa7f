"""Gaussian components: forms of covariance, log densities of rows, and parameters from moments.

Shapes of covariances, with k components and p features, are scikit-learn's: "full" (k, p, p), "tied" (p, p), "diag"
(k, p), "spherical" (k,); and "tied-spherical" (), one variance for all, which is the form of k-means. Densities use
matrix products and row-wise operations only, so that in tiles of one height a row gets the same bits at any position.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg.lapack import dtrtri

from dask_dca.errors import InvalidParameterError
from dask_dca.geometry.arrays import Floats, Labels
from dask_dca.models.kmeans import squared_distances

COVARIANCE_TYPES: Final = ("full", "tied", "diag", "spherical")
SPHERICAL_TYPES: Final = ("spherical", "tied-spherical")
SUBSPACE: Final = "subspace"  # full covariances in a subspace, one variance across it
_MAX_DEVIATIONS: Final = 256.0  # distance from the centre beyond which variances from squares about it lose accuracy
_SINGULAR: Final = (
    "the covariances of some components became singular: rows repeat, features depend on each other, or a component "
    "has too few rows; pass reg_covar='auto', a larger number, or fewer components"
)


def _are_far(means: Floats, variances: Floats) -> NDArray[np.bool_]:
    """Find components (k,) too far from the centre to compute their variances from squares about it.

    means (k, p): less the centre; variances: perhaps zero. A component is far if its mean is more than 256 standard
    deviations from the centre in some feature.
    """
    return np.asarray((means**2 > _MAX_DEVIATIONS**2 * variances).any(axis=1))


def variances_of(covariances: Floats, covariance_type: str) -> Floats:
    """Return the features' variances from covariances of any form, in a shape that broadcasts against (k, p)."""
    if covariance_type in SPHERICAL_TYPES:
        return covariances.reshape(-1, 1)
    return covariances if covariance_type == "diag" else np.diagonal(covariances, axis1=-2, axis2=-1)


def project_covariance(
    axes: Floats, j: int, covariances: Floats, covariance_type: str, subspace: Floats | None = None, noise: float = 0.0
) -> Floats:
    """Project the covariance of component j on directions (p, d): returns (d, d).

    subspace (q, p), noise: for covariances in a subspace, its orthonormal rows and the variance across it.
    """
    if subspace is not None:
        within = subspace @ axes
        return np.asarray(within.T @ covariances[j] @ within + noise * (axes.T @ axes - within.T @ within))
    own = covariances if covariance_type in ("tied", "tied-spherical") else covariances[j]
    return np.asarray(axes.T @ own @ axes if np.ndim(own) == 2 else (axes.T * own) @ axes)


def deviations_of(
    covariances: Floats,
    covariance_type: str,
    shape: tuple[int, int],
    subspace: Floats | None = None,
    noise: float = 0.0,
) -> Floats:
    """Return the standard deviation of each feature in each component, of `shape` (k, p), for any form of covariances.

    subspace (q, p), noise: as for `project_covariance`.
    """
    if subspace is not None:
        variances = np.einsum("qi,jqr,ri->ji", subspace, covariances, subspace, optimize=True)
        variances += noise * (1.0 - (subspace**2).sum(axis=0))
    else:
        variances = variances_of(covariances, covariance_type)
    return np.sqrt(np.maximum(np.broadcast_to(variances, shape), 0.0))


def equal_covariances(variances: Floats | float, covariance_type: str, k: int, p: int) -> Floats:
    """Give k components the same variances (p,), or a single one of all p features, in the shape of their form."""
    if covariance_type in ("full", "tied"):
        whole = np.diag(np.broadcast_to(variances, p))
        return np.repeat(whole[None], k, axis=0) if covariance_type == "full" else whole
    shape = {"diag": (k, p), "spherical": (k,), "tied-spherical": ()}[covariance_type]
    return np.broadcast_to(variances if covariance_type == "diag" else np.mean(variances), shape).copy()


def correlate(noise: Floats, labels: Labels, covariances: Floats, covariance_type: str) -> Floats:
    """Give standard normal rows (n, p) the covariances of their components, by labels (n,)."""
    if covariance_type not in ("full", "tied"):
        deviations = np.sqrt(variances_of(covariances, covariance_type))
        return noise * (deviations[labels] if len(deviations) > 1 else deviations)
    found, roots = np.empty_like(noise), np.linalg.cholesky(covariances)
    for j in np.unique(labels).tolist():
        found[labels == j] = noise[labels == j] @ (roots if covariance_type == "tied" else roots[j]).T
    return found


def covariance_parameters(covariance_type: str, n_components: int, n_features: int) -> int:
    """Count the free parameters of covariances, for information criteria."""
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
    """Find components (k,) whose variances are determined by the floor rather than by their rows.

    own (k, p): variances without the floor; floor (p,); rounding (p,): variances up to this are rounding errors. A
    component counts if more than half of its features with variance have less than the floor.
    """
    varies = own > rounding
    low = varies & (own < floor)
    return np.asarray(2 * low.sum(axis=1) > varies.sum(axis=1))


@dataclass(frozen=True)
class Gaussians:
    """Gaussian (or Student's t) densities, prepared for evaluation on many rows.

    centre (p,): subtracted from rows, so that data far from zero keep their accuracy; means (k, p): less the centre;
    log_determinants (k,): half the log determinant of each inverse covariance; far (k,): components too far from the
    centre for squares about it, which are taken about their means; degrees: degrees of freedom of Student's t
    distributions, whose scale matrices the covariances are then.
    """

    covariance_type: str
    centre: Floats
    means: Floats
    precisions_cholesky: Floats
    log_determinants: Floats
    far: NDArray[np.bool_]
    degrees: float = math.inf

    @property
    def origins(self) -> Floats:
        """Origins (k, p) of the components' moments, less the centre: the mean of a far component, else zero."""
        return np.where(self.far[:, None], self.means, 0.0)

    @property
    def deviations(self) -> Floats:
        """Standard deviations (k, p) of the features in each component."""
        k, p = self.means.shape
        if self.covariance_type in SPHERICAL_TYPES:
            return np.broadcast_to(1.0 / self.precisions_cholesky.reshape(-1, 1), (k, p))
        if self.covariance_type == "diag":
            return 1.0 / self.precisions_cholesky
        roots = np.linalg.inv(self.precisions_cholesky)  # P^-1: the norms of its columns are the deviations
        return np.broadcast_to(np.sqrt((roots**2).sum(axis=-2)), (k, p))


def prepare_gaussians(
    means: ArrayLike,
    covariances: ArrayLike,
    covariance_type: str,
    centre: ArrayLike | None = None,
    degrees: float = math.inf,
) -> Gaussians:
    """Factor the covariances of components, once for all rows.

    centre (p,): a point near the middle of the data; the mean of the means if None.
    Raises InvalidParameterError: a covariance is not positive definite.
    """
    means = np.asarray(means, dtype=np.float64)
    covariances = np.asarray(covariances, dtype=np.float64)
    if covariance_type == "diag" or covariance_type in SPHERICAL_TYPES:
        with np.errstate(divide="ignore", invalid="ignore"):
            factors = 1.0 / np.sqrt(covariances)
    else:
        p = means.shape[1]
        matrices = covariances.reshape(-1, p, p)
        factors = np.stack([_inverse_factor(matrix) for matrix in matrices]).reshape(covariances.shape)
    if not np.isfinite(factors).all():
        raise InvalidParameterError(_SINGULAR)
    return gaussians_of_factors(means, factors, covariance_type, centre, degrees)


def gaussians_of_factors(
    means: Floats,
    factors: Floats,
    covariance_type: str,
    centre: ArrayLike | None = None,
    degrees: float = math.inf,
) -> Gaussians:
    """Prepare densities from Cholesky factors of precisions; `centre` as for `prepare_gaussians`."""
    k, p = means.shape
    if covariance_type == "diag":
        logs = np.log(factors).sum(axis=1)
    elif covariance_type in SPHERICAL_TYPES:
        logs = np.broadcast_to(p * np.log(factors), (k,)).copy()
    else:
        logs = np.broadcast_to(np.log(np.diagonal(factors, axis1=-2, axis2=-1)).sum(axis=-1), (k,)).copy()
    middle = means.mean(axis=0) if centre is None else np.asarray(centre, dtype=np.float64)
    centred = means - middle
    return Gaussians(
        covariance_type, middle, centred, factors, logs, _far_from_centre(centred, factors, covariance_type), degrees
    )


def _far_from_centre(means: Floats, factors: Floats, covariance_type: str) -> NDArray[np.bool_]:
    """Which means are more than 256 standard deviations from zero, in some feature or direction."""
    if covariance_type in SPHERICAL_TYPES:
        seen = means * factors.reshape(-1, 1)
    else:
        seen = means * factors if covariance_type == "diag" else np.matmul(means[:, None], factors)[:, 0]
    return np.abs(seen).max(axis=1) > _MAX_DEVIATIONS


def _inverse_factor(covariance: Floats) -> Floats:
    """Upper triangular P with P P^T = inverse of a covariance; NaN if this is not positive definite."""
    try:
        inverse: Floats = np.asarray(dtrtri(np.linalg.cholesky(covariance), lower=1)[0]).T
    except np.linalg.LinAlgError:
        return np.full_like(covariance, np.nan)
    return inverse


def log_densities(gaussians: Gaussians, rows: Floats) -> Floats:
    """Evaluate the log density (n, k) of every row (n, p) under every component."""
    centred = rows - gaussians.centre
    distances = _DISTANCES[gaussians.covariance_type](gaussians, centred)
    if gaussians.covariance_type != "full":  # whose distances are computed from the means anyway
        for j in np.flatnonzero(gaussians.far).tolist():
            distances[:, j] = _distances_of_one(gaussians, centred, j)
    return log_densities_at(distances, gaussians.log_determinants, rows.shape[1], gaussians.degrees)


def log_densities_at(distances: Floats, log_determinants: Floats, p: int, degrees: float = math.inf) -> Floats:
    """Convert squared Mahalanobis distances to log densities, in place.

    log_determinants: half the log determinants of the inverse covariances; p: number of features; degrees: degrees of
    freedom.
    """
    if math.isinf(degrees):
        distances += p * np.log(2.0 * np.pi)
        distances *= -0.5
    else:
        distances /= degrees
        np.log1p(distances, out=distances)
        distances *= -0.5 * (degrees + p)
        distances += log_peak(p, degrees)
    distances += log_determinants
    return distances


def log_peak(p: int, degrees: float) -> float:
    """Return the log density at the mean, for the identity as covariance or scale matrix."""
    if math.isinf(degrees):
        return -0.5 * p * math.log(2.0 * math.pi)
    return math.lgamma(0.5 * (degrees + p)) - math.lgamma(0.5 * degrees) - 0.5 * p * math.log(math.pi * degrees)


def student_weights(gaussians: Gaussians, densities: Floats) -> Floats:
    """Compute Student's t weights (n, k) of rows, degrees / (degrees + squared distance), from log densities (n, k)."""
    p, degrees = gaussians.means.shape[1], gaussians.degrees
    heights = densities - (gaussians.log_determinants + log_peak(p, degrees))
    return np.asarray(np.exp(np.minimum(heights, 0.0) * (2.0 / (degrees + p))))


def rescale_student_moments(moments: GaussianMoments, gaussians: Gaussians) -> GaussianMoments:
    """Rescale moments with Student's t weights so that each component's counts are its sum of responsibilities.

    moments: with weights r d, of responsibilities r and Student's t weights d; not "tied". The sum of r is that of
    r d (1 + s / degrees) for squared distances s, which the moments determine. Means and covariances don't change
    (Kent, Tyler and Vardi, Communications in Statistics 23, 1994).
    """
    if math.isinf(gaussians.degrees):
        return moments
    factors, form = gaussians.precisions_cholesky, gaussians.covariance_type
    second = shifted_moments(moments, gaussians.means, form).second
    if form == "full":
        squares = ((factors @ factors.transpose(0, 2, 1)) * second).sum(axis=(1, 2))
    else:
        squares = (factors**2 * second).sum(axis=1) if form == "diag" else factors**2 * second
    counted = np.maximum(moments.counts, np.finfo(np.float64).tiny)
    factor = 1.0 + np.maximum(squares, 0.0) / (gaussians.degrees * counted)
    first, lead = factor[:, None] * moments.first, (slice(None),) + (None,) * (moments.second.ndim - 1)
    return replace(moments, counts=factor * moments.counts, first=first, second=factor[lead] * moments.second)


def _distances_of_one(gaussians: Gaussians, centred: Floats, j: int) -> Floats:
    """Squared Mahalanobis distances from one component, computed about its mean."""
    away, factors = centred - gaussians.means[j], gaussians.precisions_cholesky
    tied = gaussians.covariance_type == "tied"
    seen = away @ factors if tied else away * (factors[j] if factors.ndim else factors)
    return (seen**2).sum(axis=1)


def _full_distances(gaussians: Gaussians, centred: Floats) -> Floats:
    found = np.empty((len(centred), len(gaussians.means)))
    for j, (mean, factor) in enumerate(zip(gaussians.means, gaussians.precisions_cholesky, strict=True)):
        found[:, j] = (((centred - mean) @ factor) ** 2).sum(axis=1)
    return found


def _tied_distances(gaussians: Gaussians, centred: Floats) -> Floats:
    factor = gaussians.precisions_cholesky
    return squared_distances(centred @ factor, gaussians.means @ factor)


def _diag_distances(gaussians: Gaussians, centred: Floats) -> Floats:
    precisions = gaussians.precisions_cholesky**2
    found = (centred**2) @ precisions.T
    found -= 2.0 * (centred @ (gaussians.means * precisions).T)
    found += (gaussians.means**2 * precisions).sum(axis=1)
    return np.maximum(found, 0.0, out=found)


def _spherical_distances(gaussians: Gaussians, centred: Floats) -> Floats:
    return squared_distances(centred, gaussians.means) * gaussians.precisions_cholesky**2


_DISTANCES: Final = {
    "full": _full_distances,
    "tied": _tied_distances,
    "diag": _diag_distances,
    "spherical": _spherical_distances,
    "tied-spherical": _spherical_distances,
}


@dataclass(frozen=True)
class GaussianMoments:
    """Weighted sums over rows from which means and covariances are computed.

    counts (k,): sums of weights; first (k, p): sums of rows less a centre and the component's origin; second: sums of
    their products: "full" (k, p, p), "tied" (p, p) over all components, "diag" (k, p) of squares, "spherical" and
    "tied-spherical" (k,) of squared lengths; origins (k, p): less the centre: points near enough to the components'
    rows for accurate squares.
    """

    counts: Floats
    first: Floats
    second: Floats
    origins: Floats | float = 0.0


def shifted_moments(moments: GaussianMoments, origins: Floats | float, covariance_type: str) -> GaussianMoments:
    """Convert moments to other origins (k, p), less the same centre; zero for the centre itself."""
    counts, first = moments.counts, moments.first
    away = np.broadcast_to(moments.origins - origins, first.shape)
    if covariance_type in ("full", "tied"):
        crossed = first[:, :, None] * away[:, None, :]
        added = crossed + crossed.swapaxes(1, 2) + counts[:, None, None] * away[:, :, None] * away[:, None, :]
        added = added.sum(axis=0) if covariance_type == "tied" else added
    else:
        added = 2.0 * first * away + counts[:, None] * away**2
        added = added if covariance_type == "diag" else added.sum(axis=1)
    return GaussianMoments(counts, first + counts[:, None] * away, moments.second + added, origins)


def gaussian_moments(
    weights: Floats, centred: Floats, covariance_type: str, origins: Floats | None = None
) -> GaussianMoments:
    """Sum weighted rows and their products in memory.

    weights (n, k); centred (n, p): rows less a centre; origins (k, p): origin of each component's moments, less it.
    """
    if origins is not None and origins.any():
        parts = [gaussian_moments(weights[:, [j]], centred - own, covariance_type) for j, own in enumerate(origins)]
        counts, first = (np.concatenate(sums) for sums in zip(*((one.counts, one.first) for one in parts), strict=True))
        own = [one.second for one in parts]
        return GaussianMoments(
            counts, first, np.sum(own, axis=0) if covariance_type == "tied" else np.concatenate(own), origins
        )
    if covariance_type == "full":
        roots = np.sqrt(weights)
        second = np.stack([rows.T @ rows for rows in (centred * root[:, None] for root in roots.T)])
    elif covariance_type == "tied":
        rows = centred * np.sqrt(weights.sum(axis=1))[:, None]
        second = rows.T @ rows
    elif covariance_type == "diag":
        second = weights.T @ centred**2
    else:
        second = weights.T @ (centred**2).sum(axis=1)
    return GaussianMoments(weights.sum(axis=0), weights.T @ centred, second)


def add_multiple(moments: GaussianMoments, other: GaussianMoments, factor: float) -> GaussianMoments:
    """Add a multiple of other moments to moments, both about the centre."""
    return GaussianMoments(
        moments.counts + factor * other.counts,
        moments.first + factor * other.first,
        moments.second + factor * other.second,
    )


def expected_log_density(gaussians: Gaussians, log_weights: Floats, moments: GaussianMoments) -> float:
    """Compute the expected complete-data log likelihood of rows from their moments about the centre.

    log_weights (k,): logarithms of the components' weights.
    """
    means, factors, form = gaussians.means, gaussians.precisions_cholesky, gaussians.covariance_type
    constant = log_weights + gaussians.log_determinants - 0.5 * means.shape[1] * np.log(2.0 * np.pi)
    if form in ("full", "tied"):
        precisions = factors @ np.swapaxes(factors, -1, -2)
        seen = means @ precisions if form == "tied" else (means[:, None] @ precisions)[:, 0]
        squares = float((precisions * moments.second).sum())
    else:
        precisions = np.broadcast_to(factors.reshape(len(factors), -1) if factors.ndim else factors, means.shape) ** 2
        seen = means * precisions
        squares = float(((precisions if form == "diag" else precisions[:, 0]) * moments.second).sum())
    inner = float((seen * (moments.counts[:, None] * means - 2.0 * moments.first)).sum())
    return float(constant @ moments.counts) - 0.5 * (squares + inner)


def moments_of_partition(weights: Floats, centred: Floats, covariance_type: str, negligible: Floats) -> GaussianMoments:
    """Sum weighted rows and their products, about the means of components that are far from the centre.

    negligible (p,): variances up to this need not be distinguished from zero.
    """
    moments = gaussian_moments(weights, centred, covariance_type)
    means, covariances = mean_and_covariance(moments, covariance_type)
    far = _are_far(means, variances_of(covariances, covariance_type) + negligible)
    if not far.any():
        return moments
    return gaussian_moments(weights, centred, covariance_type, np.where(far[:, None], means, 0.0))


def mean_and_covariance(moments: GaussianMoments, covariance_type: str) -> tuple[Floats, Floats]:
    """Compute the means (k, p), less the centre, and covariances of greatest likelihood from moments: the M-step.

    A component without weight has mean and covariance zero.
    """
    counts = np.where(moments.counts > 0.0, moments.counts, np.inf)  # without weight sums are rounding errors
    total = max(float(moments.counts.sum()), np.finfo(np.float64).tiny)
    means = moments.first / counts[:, None]
    if covariance_type == "full":
        covariances = moments.second / counts[:, None, None] - means[:, :, None] * means[:, None, :]
    elif covariance_type == "tied":
        covariances = (moments.second - moments.first.T @ means) / total
    elif covariance_type == "diag":
        covariances = np.maximum(moments.second / counts[:, None] - means**2, 0.0)
    else:
        variances = np.maximum((moments.second / counts - (means**2).sum(axis=1)) / means.shape[1], 0.0)
        pooled = covariance_type == "tied-spherical"
        covariances = np.asarray(variances @ moments.counts / total) if pooled else variances
    return means + moments.origins, covariances
