"""One family of shrunk covariances, with every form of covariance as a limit, and full covariances in a subspace.

Each component's covariance is shrunk towards a target:

    covariance_j = (n_j * (scatter_j + floor) + pull * target_j) / (n_j + pull)

n_j is the number of distinct rows; `pull` is the weight of the target, as a number of rows. target_j is a shape common
to all components, scaled to each component's size or to one size, or the component's own diagonal. The common shape
itself is shrunk towards a rounder one, with the weight `common_pull`. Without pulls these are the forms "diag" and
"full"; infinite pulls give "spherical", "tied" and "tied-spherical".
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from dask_dca.geometry.arrays import Floats
from dask_dca.models.gaussians import GaussianMoments, mean_and_covariance

_EMPTY_WEIGHT: Final = 10 * np.finfo(np.float64).eps  # a component that weighs less, in rows, is empty
_SHAPE_ITERATIONS: Final = 3  # alternating updates of the common shape and of the components' sizes
_DIAGONAL_PULL: Final = 4.0  # rows' worth of shrinkage of a component's own diagonal towards the common one
_TINY: Final = float(np.finfo(np.float64).tiny)  # avoids division by zero, and logarithms of it
_MIN_SIZE: Final = 1e-150  # of a component, so that one without spread can be divided by


@dataclass(frozen=True)
class Mixture:
    """Parameters of a mixture.

    weights (k,); means (k, p): less the centre of the data; covariances: in scikit-learn's shapes; degrees: degrees of
    freedom of Student's t components, whose scale matrices the covariances are then; infinite for normal ones.
    """

    covariance_type: str
    weights: Floats
    means: Floats
    covariances: Floats
    degrees: float = math.inf


@dataclass(frozen=True)
class Shrinkage:
    """A member of the family: how covariances are regularised.

    floor (p,): added to every variance; pull, common_pull: weight, in rows, of each covariance's target, and of the
    rounder shape for the common one (equal variances for "diag", the diagonal for "full"); target: the common shape
    "scaled" to each component, "common" to all, or the component's own "diagonal"; plain: as in scikit-learn, sizes are
    not shrunk either; shape: the common shape, None to estimate it; degrees: of freedom, as in `Mixture`.
    """

    floor: Floats
    pull: float
    common_pull: float
    target: str = "scaled"
    plain: bool = False
    shape: Floats | None = None
    degrees: float = math.inf


@dataclass(frozen=True)
class Estimate:
    """An M-step's mixture of form "diag" or "full", with what its covariances were made of.

    scatter, targets (k, p) or (k, p, p): covariances of greatest likelihood, and the targets they were shrunk to;
    shape (p,) or (p, p): the common shape.
    """

    mixture: Mixture
    scatter: Floats
    targets: Floats
    shape: Floats


def maximization(
    moments: GaussianMoments, form: str, shrinkage: Shrinkage, evidence: Floats, previous_means: Floats
) -> Mixture:
    """Run the M-step: the mixture of greatest likelihood, except for floor and shrinkage.

    moments: weighted sums over the rows, less the centre; evidence (k,): number of distinct rows behind the weight of
    each component; previous_means (k, p): means that components without rows keep.
    """
    if form in ("diag", "full"):
        return estimate(moments, form, shrinkage, evidence, previous_means).mixture
    weights, means, covariances = _max_likelihood(moments, form, previous_means)
    if form == "tied":
        covariances = _shrink_shape(
            covariances + np.diag(shrinkage.floor), float(evidence.sum()), shrinkage.common_pull
        )
    else:
        covariances = np.asarray(covariances + shrinkage.floor.mean())
    if form == "spherical" and not shrinkage.plain:
        covariances = _shrink_sizes(covariances, evidence, means.shape[1])
    return Mixture(form, weights, means, covariances, shrinkage.degrees)


def estimate(
    moments: GaussianMoments, form: str, shrinkage: Shrinkage, evidence: Floats, previous_means: Floats | None = None
) -> Estimate:
    """Run the M-step for the form "diag" or "full"; arguments as for `maximization`."""
    weights, means, scatter = _max_likelihood(moments, form, previous_means)
    full = form == "full"
    if not full:
        scatter = np.maximum(scatter, 0.0)
    floor = np.diag(shrinkage.floor) if full else shrinkage.floor
    variances = np.maximum(np.diagonal(scatter, axis1=1, axis2=2), 0.0) if full else scatter
    shape, sizes = _shape_and_sizes(variances + shrinkage.floor, evidence, shrinkage)
    if full and shrinkage.shape is None:
        pooled = np.tensordot(evidence / sizes, scatter + floor, 1) / max(float(evidence.sum()), _TINY)
        shape = _shrink_shape(pooled, float(evidence.sum()), shrinkage.common_pull)
    elif full:
        shape = np.asarray(shrinkage.shape)
    per_component = (slice(None),) + (None,) * shape.ndim
    targets = sizes[per_component] * shape
    if full and shrinkage.target == "diagonal":
        targets = _diagonal_targets(variances + shrinkage.floor, targets, evidence)
    share = evidence / np.maximum(evidence + shrinkage.pull, _TINY)
    covariances = (1.0 - share[per_component]) * targets + share[per_component] * (scatter + floor)
    return Estimate(Mixture(form, weights, means, covariances, shrinkage.degrees), scatter, targets, shape)


def _max_likelihood(
    moments: GaussianMoments, form: str, previous_means: Floats | None
) -> tuple[Floats, Floats, Floats]:
    """Weights, means and covariances of greatest likelihood; empty components keep their previous means."""
    counts = np.maximum(moments.counts, _EMPTY_WEIGHT)
    means, covariances = mean_and_covariance(replace(moments, counts=counts), form)
    if previous_means is not None:
        means = np.where((moments.counts < _EMPTY_WEIGHT)[:, None], previous_means, means)
    return counts / counts.sum(), means, covariances


def _shrink_shape(shape: Floats, rows: float, pull: float) -> Floats:
    """Shrink variances (p,) towards their mean, or a matrix (p, p) towards its diagonal, `pull` rows against `rows`."""
    target = np.full_like(shape, shape.mean()) if shape.ndim == 1 else np.diag(np.diagonal(shape))
    share = rows / max(rows + pull, _TINY)
    return np.asarray((1.0 - share) * target + share * shape)


def _shape_and_sizes(variances: Floats, evidence: Floats, shrinkage: Shrinkage) -> tuple[Floats, Floats]:
    """The common shape (p,) and the size (k,) of each component, such that variances are about size times shape."""
    k, p = variances.shape
    sizes, rows = np.ones(k), max(float(evidence.sum()), _TINY)
    given, diag = shrinkage.shape, shrinkage.shape is None or shrinkage.shape.ndim == 1
    for _ in range(_SHAPE_ITERATIONS if given is None else 1):
        if given is not None:
            shape = given if diag else np.diagonal(given)
        else:
            shape = (evidence[:, None] * variances / sizes[:, None]).sum(axis=0) / rows
            shape = _shrink_shape(shape, rows, shrinkage.common_pull)
        if shrinkage.target == "common":
            break
        sizes = np.maximum((variances / np.maximum(shape, _TINY)).mean(axis=1), _MIN_SIZE)
        if not shrinkage.plain:
            sizes = _shrink_sizes(sizes, evidence, p)
    return shape, sizes


def _shrink_sizes(sizes: Floats, evidence: Floats, p: int) -> Floats:
    """Shrink log sizes towards their mean by empirical Bayes: by their spread beyond their sampling noise."""
    logs, noise = np.log(sizes), 2.0 / np.maximum(p * np.maximum(evidence - 1.0, 0.0), 1e-9)
    known = evidence > 2.0
    if not known.any():
        return np.full_like(sizes, np.exp(logs.mean()))
    mean = np.average(logs[known], weights=evidence[known])
    spread = 1.0
    if known.sum() > 1:
        spread = max(float(np.average((logs[known] - mean) ** 2 - noise[known], weights=evidence[known])), 0.0)
    share = spread / (spread + noise)
    return np.exp(mean + share * (logs - mean))


def _diagonal_targets(variances: Floats, targets: Floats, evidence: Floats) -> Floats:
    """Diagonal matrices (k, p, p) of each component's own variances, shrunk a little towards the target's."""
    common, rows = np.diagonal(targets, axis1=1, axis2=2), evidence[:, None]
    own = (rows * variances + _DIAGONAL_PULL * common) / (rows + _DIAGONAL_PULL)
    return own[:, :, None] * np.eye(own.shape[1])


def simplest_form(mixture: Mixture, shrinkage: Shrinkage) -> Mixture:
    """Express a mixture of form "diag" or "full" in the form with the fewest parameters that contains it.

    Infinite pulls leave nothing of a component's own shape: with them it is "tied", "spherical" or "tied-spherical".
    """
    shared, round_ = np.isinf(shrinkage.pull), np.isinf(shrinkage.common_pull)
    one_size, found = shrinkage.target == "common", mixture.covariances
    if mixture.covariance_type == "full":
        # Student's t components stay apart: sums over all of them can't be rescaled by component
        tied = shared and one_size and math.isinf(mixture.degrees)
        return replace(mixture, covariance_type="tied", covariances=found[0]) if tied else mixture
    if not (shared and round_):
        return mixture
    if one_size:
        return replace(mixture, covariance_type="tied-spherical", covariances=np.asarray(found[0, 0]))
    return replace(mixture, covariance_type="spherical", covariances=found[:, 0].copy())


def as_full(mixture: Mixture) -> Mixture:
    """Express a mixture of form "diag" or "tied" with a full covariance matrix for each component."""
    (k, p), own = mixture.means.shape, mixture.covariances
    whole = own[:, :, None] * np.eye(p) if mixture.covariance_type == "diag" else np.tile(own, (k, 1, 1))
    return replace(mixture, covariance_type="full", covariances=whole)


_MAX_EIGH_SIZE: Final = 1024  # rows or features up to which a full eigendecomposition is computed
_POWER_ITERATIONS: Final = 7  # of the randomised SVD beyond that size
_SPLIT_ROWS: Final = 4096  # rows that are projected into a subspace at once
_MIN_EIGENVALUE: Final = 1e-12  # relative to the greatest eigenvalue: smaller ones are rounding errors


@dataclass(frozen=True)
class CovarianceSubspace:
    """An affine subspace that holds full covariances of data with too many features for them.

    A component's covariance is axes C axes^T + noise (I - axes axes^T), with C its (q, q) covariance in the subspace.
    origin (p,): a point of the subspace; axes (p, q): orthonormal columns; noise: variance across it.
    """

    origin: Floats
    axes: Floats
    noise: float

    def split(self, rows: Floats) -> tuple[Floats, Floats]:
        """Find the coordinates (n, q) of rows (n, p), and the log density (n,) of their orthogonal residuals.

        The residuals have the same density under every component.
        """
        coordinates, squares = np.empty((len(rows), self.axes.shape[1])), np.empty(len(rows))
        for start in range(0, len(rows), _SPLIT_ROWS):  # a sample is too large to be copied
            some = slice(start, start + _SPLIT_ROWS)
            centred = rows[some] - self.origin
            coordinates[some] = centred @ self.axes
            squares[some] = np.maximum((centred**2).sum(axis=1) - (coordinates[some] ** 2).sum(axis=1), 0.0)
        n_orthogonal = len(self.axes) - self.axes.shape[1]
        return coordinates, -0.5 * (squares / self.noise + n_orthogonal * np.log(2.0 * np.pi * self.noise))

    def shifted(self, centre: Floats) -> CovarianceSubspace:
        """Return the same subspace for rows from which the centre (p,) is not subtracted."""
        return replace(self, origin=self.origin + centre)

    def to_features(self, coordinates: Floats) -> Floats:
        """Map coordinates (k, q) to points of feature space (k, p)."""
        return self.origin + coordinates @ self.axes.T


def split_rows(rows: Floats, space: CovarianceSubspace | None) -> tuple[Floats, Floats]:
    """Split rows (n, p) as `CovarianceSubspace.split` does; all features and log densities of zero without one."""
    return (rows, np.zeros(len(rows))) if space is None else space.split(rows)


def leading_subspace(rows: Floats, dimensions: int) -> CovarianceSubspace:
    """Fit the subspace of leading principal directions to rows (n, p), with more features than dimensions."""
    origin = rows.mean(axis=0)
    centred = rows - origin
    axes = leading_directions(centred, dimensions)
    total = float((centred**2).sum())
    residual = total - float(((centred @ axes) ** 2).sum())
    floor = np.finfo(np.float64).eps * total if total > 0.0 else 1.0
    return CovarianceSubspace(origin, axes, max(residual, floor) / (len(rows) * (rows.shape[1] - axes.shape[1])))


def leading_directions(rows: Floats, width: int) -> Floats:
    """Find leading right singular vectors (p, width) of rows (n, p); fewer where the rows span fewer dimensions."""
    n, p = rows.shape
    if min(n, p) > _MAX_EIGH_SIZE:
        from sklearn.utils.extmath import randomized_svd  # takes a second to import

        return np.ascontiguousarray(randomized_svd(rows, width, n_iter=_POWER_ITERATIONS, random_state=0)[2].T)
    if p <= n:
        return np.ascontiguousarray(np.linalg.eigh(rows.T @ rows / n)[1][:, ::-1][:, :width])
    values, vectors = np.linalg.eigh(rows @ rows.T / n)
    rank = max(1, int((values[::-1][:width] > _MIN_EIGENVALUE * values[-1]).sum()))
    found: Floats = rows.T @ vectors[:, ::-1][:, :rank]
    return np.ascontiguousarray(found / np.maximum(np.sqrt((found**2).sum(axis=0)), 1e-300))
