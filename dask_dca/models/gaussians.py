"""Gaussian components: forms of covariance, log densities of rows, parameters from sums, and the floors of variances.

Shapes of covariances, with k components and p features, are scikit-learn's: "full" (k, p, p), "tied" (p, p), "diag"
(k, p), "spherical" (k,); and "tied-spherical" (), one variance for all, which is the form of k-means. The densities
use matrix products and row-wise operations only: on tiles of one fixed height a row gets the same bits wherever it
stands.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np
from scipy.linalg.lapack import dtrtri

from dask_dca.models.kmeans import squared_distances

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from dask_dca.geometry.arrays import Floats

COVARIANCE_TYPES: Final = ("full", "tied", "diag", "spherical")
ROUND: Final = ("spherical", "tied-spherical")
SUBSPACE: Final = "subspace"  # full covariances in a subspace, one variance across it
FAR: Final = 256.0  # standard deviations from the centre: beyond, squares about it lose the digits that matter


def are_far(means: Floats, variances: Floats, deviations: float = FAR) -> NDArray[np.bool_]:
    """Find the components whose variances can't be told from squares about the centre.

    means (k, p): means less the centre; variances: their variances, which may be zero; deviations: how many standard
    deviations are far. Returns (k,): true where a mean is further from the centre than these standard deviations, in
    some feature.
    """
    return np.asarray((means**2 > deviations**2 * variances).any(axis=1))


def variances_of(covariances: Floats, covariance_type: str) -> Floats:
    """Take the features' variances from covariances of any form.

    covariances: covariances, in the shape of their type. Returns variances that broadcast against (k, p).
    """
    if covariance_type in ROUND:
        return covariances.reshape(-1, 1)
    return covariances if covariance_type == "diag" else np.diagonal(covariances, axis1=-2, axis2=-1)


def covariance_in(
    axes: Floats, j: int, covariances: Floats, covariance_type: str, subspace: Floats | None = None, noise: float = 0.0
) -> Floats:
    """Project a component's covariance on directions.

    axes (p, d): directions; j: which component; subspace (q, p), noise: of covariances in a subspace, its orthonormal
    rows and the variance across it. Returns (d, d).
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
    """Take the standard deviation of each feature in each component from covariances of any form.

    shape: numbers of components k and features p; subspace (q, p), noise: as for `covariance_in`. Returns (k, p).
    """
    if subspace is not None:
        variances = np.einsum("qi,jqr,ri->ji", subspace, covariances, subspace, optimize=True)
        variances += noise * (1.0 - (subspace**2).sum(axis=0))
    else:
        variances = variances_of(covariances, covariance_type)
    return np.sqrt(np.maximum(np.broadcast_to(variances, shape), 0.0))


def covariance_parameters(covariance_type: str, n_components: int, n_features: int) -> int:
    """Count the free parameters of covariances, for information criteria.

    n_components, n_features: number of components k and of features p. Returns their number; the means have k p more.
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
    """Find the components whose shape the floor decides, rather than their rows.

    own (k, p): variances of the components before the floor; floor (p,): least variances; rounding (p,): variances up
    to these are nothing but rounding. Returns (k,): true where more than half of the features that vary in a component
    do so by less than the floor.
    """
    varies = own > rounding
    low = varies & (own < floor)
    return np.asarray(2 * low.sum(axis=1) > varies.sum(axis=1))


@dataclass(frozen=True)
class Gaussians:
    """Gaussian densities, prepared for many rows.

    centre (p,): what rows and means are taken relative to, so that data far from zero keep their digits; means (k, p):
    means less the centre; log_determinants (k,): half the logarithm of the determinant of each inverse covariance; far
    (k,): components so far from the centre, for their own spread, that squares are taken about their means instead;
    degrees: of freedom, where they are Student's t distributions with these covariances as scales.
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
        """Points that the moments of each component are best taken about.

        Returns (k, p), relative to the centre: zero for a component that is near it, else the component's mean.
        """
        return np.where(self.far[:, None], self.means, 0.0)

    @property
    def deviations(self) -> Floats:
        """Standard deviations of the features in each component.

        Returns (k, p): roots of the variances.
        """
        k, p = self.means.shape
        if self.covariance_type in ROUND:
            return np.broadcast_to(1.0 / self.precisions_cholesky.reshape(-1, 1), (k, p))
        if self.covariance_type == "diag":
            return 1.0 / self.precisions_cholesky
        roots = np.linalg.inv(self.precisions_cholesky)  # P^-1, whose columns have the deviations as their lengths
        return np.broadcast_to(np.sqrt((roots**2).sum(axis=-2)), (k, p))


def prepare_gaussians(
    means: ArrayLike,
    covariances: ArrayLike,
    covariance_type: str,
    centre: ArrayLike | None = None,
    degrees: float = math.inf,
) -> Gaussians:
    """Factor the covariances, once for all rows.

    means (k, p): means; covariances: covariances, in the shape of their type; centre (p,): a point amid the data; the
    mean of the means if None; degrees: of freedom.
    Raises numpy.linalg.LinAlgError: a covariance is not positive definite.
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
    return gaussians_of_factors(means, factors, covariance_type, centre, degrees)


def gaussians_of_factors(
    means: Floats,
    factors: Floats,
    covariance_type: str,
    centre: ArrayLike | None = None,
    degrees: float = math.inf,
) -> Gaussians:
    """Prepare densities whose covariances are factored already.

    means (k, p): means; centre (p,): a point amid the data; the mean of the means if None.
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
    return Gaussians(covariance_type, middle, centred, factors, logs, _far(centred, factors, covariance_type), degrees)


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
    inverse: Floats = np.asarray(dtrtri(np.linalg.cholesky(covariance), lower=1)[0]).T
    return inverse


def log_densities(gaussians: Gaussians, rows: Floats) -> Floats:
    """Evaluate the logarithm of every density at every row.

    rows (n, p): rows. Returns (n, k): log densities.
    """
    centred = rows - gaussians.centre
    distances = _DISTANCES[gaussians.covariance_type](gaussians, centred)
    if gaussians.covariance_type != "full":  # which are taken about the means anyway
        for j in np.flatnonzero(gaussians.far).tolist():
            distances[:, j] = _distances_of_one(gaussians, centred, j)
    return log_densities_at(distances, gaussians.log_determinants, rows.shape[1], gaussians.degrees)


def log_densities_at(distances: Floats, log_determinants: Floats, p: int, degrees: float = math.inf) -> Floats:
    """Evaluate log densities at squared distances, as covariances have them.

    distances: overwritten; log_determinants: half the logarithms of the determinants of the inverse covariances; p:
    features; degrees: of freedom of Student's t distribution.
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
    """Return the log density at the mean of a distribution with the identity as its covariance, or scale."""
    if math.isinf(degrees):
        return -0.5 * p * math.log(2.0 * math.pi)
    return math.lgamma(0.5 * (degrees + p)) - math.lgamma(0.5 * degrees) - 0.5 * p * math.log(math.pi * degrees)


def student_weights(gaussians: Gaussians, densities: Floats) -> Floats:
    """Find what rows count for in heavy tails: one at a component's mean, and less the further they are from it.

    densities (n, k): log densities of the rows. Returns (n, k): degrees / (degrees + squared distance).
    """
    p, degrees = gaussians.means.shape[1], gaussians.degrees
    heights = densities - (gaussians.log_determinants + log_peak(p, degrees))
    return np.asarray(np.exp(np.minimum(heights, 0.0) * (2.0 / (degrees + p))))


def rescale_student_moments(moments: GaussianMoments, gaussians: Gaussians) -> GaussianMoments:
    """Let damped moments count rows: each component's as often as its responsibilities add up to.

    moments: of responsibilities r times damping d, by these components; none that are "tied". Means and covariances
    stay as they are (Kent, Tyler and Vardi, Communications in Statistics 23, 1994). The sum of r is that of
    r d (1 + s / degrees), with s the squared distance, of which moments know the sum.
    """
    if math.isinf(gaussians.degrees):
        return moments
    factors, form = gaussians.precisions_cholesky, gaussians.covariance_type
    second = moved_moments(moments, gaussians.means, form).second
    if form == "full":
        squares = ((factors @ factors.transpose(0, 2, 1)) * second).sum(axis=(1, 2))
    else:
        squares = (factors**2 * second).sum(axis=1) if form == "diag" else factors**2 * second
    counted = np.maximum(moments.counts, np.finfo(np.float64).tiny)
    factor = 1.0 + np.maximum(squares, 0.0) / (gaussians.degrees * counted)
    first, lead = factor[:, None] * moments.first, (slice(None),) + (None,) * (moments.second.ndim - 1)
    return replace(moments, counts=factor * moments.counts, first=first, second=factor[lead] * moments.second)


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
    """Sums over rows that decide means and covariances.

    counts (k,): sum of the weights of each component; first (k, p): weighted sums of rows, less a centre and the
    component's origin; second: weighted sums of their products: "full" (k, p, p), "tied" (p, p) of all components
    together, "diag" (k, p) squares only, "spherical" and "tied-spherical" (k,) squared lengths only; origins (k, p):
    the origin of each component, less the centre: a point so near its rows that squares keep their digits.
    """

    counts: Floats
    first: Floats
    second: Floats
    origins: Floats | float = 0.0


def moved_moments(moments: GaussianMoments, origins: Floats | float, covariance_type: str) -> GaussianMoments:
    """Take moments about other points.

    origins (k, p): the points, less the same centre; zero for this. Returns the same sums, about these.
    """
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
    """Sum weighted rows and their products, in memory.

    weights (n, k): how much of each row belongs to each component; centred (n, p): rows less a centre; origins (k, p):
    points that the moments of each component are taken about, less the centre.
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


def combination(moments: GaussianMoments, other: GaussianMoments, factor: float) -> GaussianMoments:
    """Add moments about the centre and a multiple of others."""
    return GaussianMoments(
        moments.counts + factor * other.counts,
        moments.first + factor * other.first,
        moments.second + factor * other.second,
    )


def expected_log_density(gaussians: Gaussians, log_weights: Floats, moments: GaussianMoments) -> float:
    """Sum the logarithms of weight times density over rows that are shared out, from their moments about the centre.

    log_weights (k,): logarithms of the components' shares.
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


def moments_of_parts(weights: Floats, centred: Floats, covariance_type: str, least: Floats) -> GaussianMoments:
    """Sum weighted rows and their products, about the means themselves where these are far from the centre.

    least (p,): variances that nobody needs to be told from zero.
    """
    moments = gaussian_moments(weights, centred, covariance_type)
    means, covariances = mean_and_covariance(moments, covariance_type)
    far = are_far(means, variances_of(covariances, covariance_type) + least)
    if not far.any():
        return moments
    return gaussian_moments(weights, centred, covariance_type, np.where(far[:, None], means, 0.0))


def mean_and_covariance(moments: GaussianMoments, covariance_type: str) -> tuple[Floats, Floats]:
    """Turn moments into the means and covariances of greatest likelihood: the M-step.

    moments: sums over all rows, about one centre and perhaps origins. Returns means (k, p): means, less the same
    centre; covariances: in the shape of their type. A component without weight has mean and covariance zero.
    """
    counts = np.where(moments.counts > 0.0, moments.counts, np.inf)  # sums without weight are what rounding left: none
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
