"""One family of covariances, of which every form is a limit: each is drawn to a target that all components share.

    covariance_j = (n_j * (scatter_j + floor) + pull * target_j) / (n_j + pull)

n_j counts rows that differ; target_j is a common shape, at the component's own size or at one size, or the component's
own diagonal; the common shape itself is drawn to a rounder one. With no pull these are the forms "diag" and "full",
with endless pulls "spherical", "tied" and "tied-spherical".
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from dask_dca.models.gaussians import mean_and_covariance

if TYPE_CHECKING:
    from dask_dca.geometry.arrays import Floats
    from dask_dca.models.gaussians import GaussianMoments


_NOTHING: Final = 10 * np.finfo(np.float64).eps  # a component of less weight than this many rows is empty
_SIZE_ROUNDS: Final = 3  # of common shape and sizes in turn
_OWN_ROWS: Final = 4.0  # of a component's own diagonal, pulled to the common one by that many rows
_TINY: Final = float(np.finfo(np.float64).tiny)


@dataclass(frozen=True)
class Mixture:
    """Parameters of a Gaussian mixture.

    weights (k,): shares of the components; means (k, p): their means, less the centre of the data; covariances: their
    covariances, of scikit-learn's shapes; degrees: of freedom, where tails are heavy: covariances are then scales.
    """

    covariance_type: str
    weights: Floats
    means: Floats
    covariances: Floats
    degrees: float = math.inf


@dataclass(frozen=True)
class Shrinkage:
    """Where in the family a mixture is.

    floor (p,): added to every variance; pull, common_pull: rows' worth of pull of each covariance to its target, and of
    the common shape to a rounder one (for diagonal covariances one variance, for full ones the diagonal); target: the
    common shape at each component's size ("scaled") or at one size ("common"), or the component's own diagonal
    ("diagonal"); plain: sizes are not drawn to each other; shape: the common shape, where it is given; degrees: of
    freedom of Student's t distributions, infinite where they are normal ones.
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
    """What moments say of a mixture of form "diag" or "full".

    scatter: covariances of the rows themselves; targets: what they are drawn to, both (k, p) or (k, p, p); shape: the
    common shape, (p,) or (p, p).
    """

    mixture: Mixture
    scatter: Floats
    targets: Floats
    shape: Floats


def maximization(moments: GaussianMoments, form: str, shrinkage: Shrinkage, evidence: Floats, kept: Floats) -> Mixture:
    """Turn moments into a mixture: the M-step.

    moments: weighted sums over the rows, less the centre, of any form; evidence (k,): for how many rows that differ the
    weight of each component stands; kept (k, p): means that components without rows keep. Returns of greatest
    likelihood, except for floor and pulls.
    """
    if form in ("diag", "full"):
        return estimate(moments, form, shrinkage, evidence, kept).mixture
    weights, means, covariances = _raw(moments, form, kept)
    if form == "tied":
        covariances = _rounder(covariances + np.diag(shrinkage.floor), float(evidence.sum()), shrinkage.common_pull)
    else:
        covariances = np.asarray(covariances + shrinkage.floor.mean())
    if form == "spherical" and not shrinkage.plain:
        covariances = _drawn_together(covariances, evidence, means.shape[1])
    return Mixture(form, weights, means, covariances, shrinkage.degrees)


def estimate(
    moments: GaussianMoments, form: str, shrinkage: Shrinkage, evidence: Floats, kept: Floats | None = None
) -> Estimate:
    """Find where moments put a mixture of form "diag" or "full", and what its covariances are drawn to."""
    weights, means, scatter = _raw(moments, form, kept)
    full = form == "full"
    if not full:
        scatter = np.maximum(scatter, 0.0)
    floor = np.diag(shrinkage.floor) if full else shrinkage.floor
    variances = np.maximum(np.diagonal(scatter, axis1=1, axis2=2), 0.0) if full else scatter
    shape, sizes = _shape_and_sizes(variances + shrinkage.floor, evidence, shrinkage)
    if full and shrinkage.shape is None:
        pooled = np.tensordot(evidence / sizes, scatter + floor, 1) / max(float(evidence.sum()), _TINY)
        shape = _rounder(pooled, float(evidence.sum()), shrinkage.common_pull)
    elif full:
        shape = np.asarray(shrinkage.shape)
    lead = (slice(None),) + (None,) * shape.ndim
    targets = sizes[lead] * shape
    if full and shrinkage.target == "diagonal":
        targets = _own_diagonals(variances + shrinkage.floor, targets, evidence)
    share = evidence / np.maximum(evidence + shrinkage.pull, _TINY)
    covariances = (1.0 - share[lead]) * targets + share[lead] * (scatter + floor)
    return Estimate(Mixture(form, weights, means, covariances, shrinkage.degrees), scatter, targets, shape)


def _raw(moments: GaussianMoments, form: str, kept: Floats | None) -> tuple[Floats, Floats, Floats]:
    """Weights, means and covariances of greatest likelihood; components without rows keep their means."""
    counts = np.maximum(moments.counts, _NOTHING)
    means, covariances = mean_and_covariance(replace(moments, counts=counts), form)
    if kept is not None:
        means = np.where((moments.counts < _NOTHING)[:, None], kept, means)
    return counts / counts.sum(), means, covariances


def _rounder(shape: Floats, rows: float, pull: float) -> Floats:
    """Draw variances (p,) to their mean, or a matrix (p, p) to its diagonal."""
    round_ = np.full_like(shape, shape.mean()) if shape.ndim == 1 else np.diag(np.diagonal(shape))
    share = rows / max(rows + pull, _TINY)
    return np.asarray((1.0 - share) * round_ + share * shape)  # both may be tiny beside each other


def _shape_and_sizes(variances: Floats, evidence: Floats, shrinkage: Shrinkage) -> tuple[Floats, Floats]:
    """A common shape (p,) and the size (k,) of each component: variances are about size times shape."""
    k, p = variances.shape
    sizes, rows = np.ones(k), max(float(evidence.sum()), _TINY)
    given, diag = shrinkage.shape, shrinkage.shape is None or shrinkage.shape.ndim == 1
    for _ in range(_SIZE_ROUNDS if given is None else 1):
        if given is not None:
            shape = given if diag else np.diagonal(given)
        else:
            shape = (evidence[:, None] * variances / sizes[:, None]).sum(axis=0) / rows
            shape = _rounder(shape, rows, shrinkage.common_pull)
        if shrinkage.target == "common":
            break
        sizes = (variances / shape).mean(axis=1)
        if not shrinkage.plain:
            sizes = _drawn_together(sizes, evidence, p)
    return shape, sizes


def _drawn_together(sizes: Floats, evidence: Floats, p: int) -> Floats:
    """Draw logarithms of sizes to their mean, by how far apart they are beyond their own noise: empirical Bayes."""
    logs, noise = np.log(sizes), 2.0 / np.maximum(p * np.maximum(evidence - 1.0, 0.0), 1e-9)
    sure = evidence > 2.0
    if not sure.any():
        return np.full_like(sizes, np.exp(logs.mean()))
    mean = np.average(logs[sure], weights=evidence[sure])
    spread = 1.0
    if sure.sum() > 1:
        spread = max(float(np.average((logs[sure] - mean) ** 2 - noise[sure], weights=evidence[sure])), 0.0)
    share = spread / (spread + noise)
    drawn: Floats = np.exp(mean + share * (logs - mean))
    return drawn


def _own_diagonals(variances: Floats, targets: Floats, evidence: Floats) -> Floats:
    """Each component's own variances, drawn a little to the target's, as diagonal matrices."""
    common, rows = np.diagonal(targets, axis1=1, axis2=2), evidence[:, None]
    own = (rows * variances + _OWN_ROWS * common) / (rows + _OWN_ROWS)
    return own[:, :, None] * np.eye(own.shape[1])


def simplest_form(mixture: Mixture, shrinkage: Shrinkage) -> Mixture:
    """Say a mixture of form "diag" or "full" in the form with the fewest numbers that holds it.

    Endless pulls leave nothing of a component's own shape: with them it is "tied", "spherical" or "tied-spherical".
    """
    endless, round_ = np.isinf(shrinkage.pull), np.isinf(shrinkage.common_pull)
    one, found = shrinkage.target == "common", mixture.covariances
    if mixture.covariance_type == "full":
        tied = endless and one and math.isinf(mixture.degrees)  # sums together don't tell what damping took from each
        return replace(mixture, covariance_type="tied", covariances=found[0]) if tied else mixture
    if not (endless and round_):
        return mixture
    if one:
        return replace(mixture, covariance_type="tied-spherical", covariances=np.asarray(found[0, 0]))
    return replace(mixture, covariance_type="spherical", covariances=found[:, 0].copy())


def as_full(mixture: Mixture) -> Mixture:
    """Say a mixture of form "diag" or "tied" with a whole covariance matrix for each component."""
    (k, p), own = mixture.means.shape, mixture.covariances
    whole = own[:, :, None] * np.eye(p) if mixture.covariance_type == "diag" else np.tile(own, (k, 1, 1))
    return replace(mixture, covariance_type="full", covariances=whole)


_SMALL: Final = 1024  # features, or rows, up to which all vectors are found at once
_POWERS: Final = 7  # steps of the randomized decomposition beyond that
_FLAT: Final = 1e-12  # of the greatest eigenvalue: directions of less are rounding


@dataclass(frozen=True)
class CovarianceSubspace:
    """Where full covariances are kept of data with too many features for them.

    A component's covariance is axes C axes^T + noise (I - axes axes^T), with C its covariance in the subspace.
    origin (p,): a point of it; axes (p, q): orthonormal columns; noise: the variance across it.
    """

    origin: Floats
    axes: Floats
    noise: float

    def split(self, rows: Floats) -> tuple[Floats, Floats]:
        """Find rows' coordinates in the subspace, and the log density of what lies across it.

        rows (n, p): rows. Returns coordinates (n, q); across (n,): the same for every component.
        """
        away = rows - self.origin
        within = away @ self.axes
        squares = np.maximum((away**2).sum(axis=1) - (within**2).sum(axis=1), 0.0)
        rest = len(self.axes) - self.axes.shape[1]
        return within, -0.5 * (squares / self.noise + rest * np.log(2.0 * np.pi * self.noise))

    def moved(self, centre: Floats) -> CovarianceSubspace:
        """Return the subspace of rows that are not yet less a centre (p,)."""
        return replace(self, origin=self.origin + centre)

    def points(self, places: Floats) -> Floats:
        """Find the points (k, p) at coordinates (k, q)."""
        return self.origin + places @ self.axes.T


def leading_subspace(rows: Floats, dimensions: int) -> CovarianceSubspace:
    """Take the leading principal directions.

    rows (n, p): rows, more features than dimensions.
    """
    origin = rows.mean(axis=0)
    away = rows - origin
    axes = leading_directions(away, dimensions)
    total = float((away**2).sum())
    across = total - float(((away @ axes) ** 2).sum())
    least = np.finfo(np.float64).eps * total if total > 0.0 else 1.0
    return CovarianceSubspace(origin, axes, max(across, least) / (len(rows) * (rows.shape[1] - axes.shape[1])))


def leading_directions(rows: Floats, width: int) -> Floats:
    """Find leading right singular vectors.

    rows (n, p): rows. Returns (p, width): fewer where the rows span less.
    """
    n, p = rows.shape
    if min(n, p) > _SMALL:
        from sklearn.utils.extmath import randomized_svd  # takes a second to import

        return np.ascontiguousarray(randomized_svd(rows, width, n_iter=_POWERS, random_state=0)[2].T)
    if p <= n:
        return np.ascontiguousarray(np.linalg.eigh(rows.T @ rows / n)[1][:, ::-1][:, :width])
    values, vectors = np.linalg.eigh(rows @ rows.T / n)
    there = max(1, int((values[::-1][:width] > _FLAT * values[-1]).sum()))
    kept = vectors[:, ::-1][:, :there]
    found: Floats = rows.T @ kept
    return np.ascontiguousarray(found / np.maximum(np.sqrt((found**2).sum(axis=0)), 1e-300))
