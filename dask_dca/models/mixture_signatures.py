"""Signatures of rows: the few coordinates in which the means of a mixture differ, found from products between views."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from dask_dca.engine.held import call
from dask_dca.engine.multiview import cross_moments, label_moments, power_moments, signature_moments
from dask_dca.engine.scaling import Scaling
from dask_dca.kernels.lloyd import lloyd, spread_centres
from dask_dca.models.mixture_sample import spreads_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dask_dca.engine.passes import Run
    from dask_dca.engine.rows import Rows
    from dask_dca.models.mixture_sample import Sample, Sampled

    Floats = NDArray[np.float64]
    Numbers = NDArray[np.int64]

__all__ = ["Signatures", "find_signatures"]

_SPARE: Final = 10  # columns beyond twice the number of components
_RESUBSTITUTIONS: Final = 2


@dataclass(frozen=True)
class Signatures:
    """
    A linear map from rows to signatures.

    Attributes
    ----------
    scaling : Scaling
        How rows are centred and scaled first.
    coordinates, offset : ndarray of float64, shapes (p, d) and (d,)
        A scaled row y has the signature y @ coordinates - offset.
    """

    scaling: Scaling
    coordinates: Floats
    offset: Floats

    def places(self, sample: Sample) -> Floats:
        """
        Find the signatures of a sample.

        Parameters
        ----------
        sample : Sample
            Some rows.

        Returns
        -------
        ndarray of float64, shape (n, d)
            Their signatures.
        """
        return (sample.rows * self.scaling.factor) @ self.coordinates - self.offset

    def of(self, rows: Floats) -> Floats:
        """
        Find the signatures of rows.

        Parameters
        ----------
        rows : ndarray of float64, shape (n, p)
            Rows.

        Returns
        -------
        ndarray of float64, shape (n, d)
            Their signatures.
        """
        return self.scaling.apply(rows) @ self.coordinates - self.offset

    def leading_axes(self) -> Floats:
        """
        Find the first two coordinates as directions in features.

        Returns
        -------
        ndarray of float64, shape (2, p)
            Rows times these are signatures, but for a constant; the second is zero where there is one coordinate.
        """
        axes = np.zeros((2, len(self.scaling.factor)))
        found = (self.coordinates[:, :2] * self.scaling.factor[:, None]).T
        axes[: len(found)] = found
        return axes


def find_signatures(
    rows: Rows,
    sample: Sampled,
    views: tuple[Numbers, ...] | None,
    n_components: int,
    *,
    given: bool,
    scaled: bool,
    seed: int,
    run: Run,
) -> Signatures:
    """
    Find the coordinates in which the means differ.

    Parameters
    ----------
    rows : Rows
        The data.
    sample : Sampled
        Some of its rows.
    views : tuple of ndarray of int64, or None
        Features of each view; None where they are too few for views.
    n_components : int
        Number of components k.
    given : bool
        Whether the user gave the views, so that they are independent given the component.
    scaled : bool
        Whether features are brought to similar variances.
    seed : int
        Root seed.
    run : Run
        How passes are run.

    Returns
    -------
    Signatures
        The map.
    """
    scaling = _scaling(sample, scaled=scaled)
    if views is None:
        return call(run, "axes", _principal, sample.held, scaling, n_components)
    p, m = rows.n_features, min(2 * n_components + _SPARE, *(len(view) for view in views))

    def _spreads(along: Floats) -> Floats:
        return call(run, "spreads", _spreads_along, sample.held, scaling, along)

    weights = _random_weights(p, views, m, seed)
    products = cross_moments(rows, scaling, views, weights, _spreads(weights), run)
    bases = _leading(products, views, p, m)
    products = power_moments(rows, scaling, views, bases, _spreads(bases), run)
    width = m
    bases = _leading(products, views, p, min(n_components, m) if given else m)
    if given:
        width = max(1, n_components - 1)
        for _ in range(_RESUBSTITUTIONS):
            soft = call(run, "labels", _soft_labels, sample.held, scaling, len(views), bases, n_components, seed)
            bases = _resubstituted(rows, scaling, views, bases, soft, run)
    mean, covariance = signature_moments(rows, scaling, bases, _spreads(bases), run)
    axes = _cross_view_axes(covariance, len(views), width)
    return Signatures(scaling, bases @ axes, mean @ axes)


def _spreads_along(sample: Sample, scaling: Scaling, along: Floats) -> Floats:
    """Root mean squares of combinations of the scaled features."""
    return spreads_of((sample.rows * scaling.factor) @ along)


def _scaling(sample: Sampled, *, scaled: bool) -> Scaling:
    mean = float(sample.variances.mean())
    factor = np.ones(len(sample.centre))
    if scaled and mean > 0.0:
        factor = 1.0 / np.sqrt(sample.variances + mean)
    return Scaling(sample.centre, factor, sample.deviations * factor)


def _principal(sample: Sample, scaling: Scaling, n_components: int) -> Signatures:
    """The scaled features themselves, or their leading principal directions."""
    y = sample.rows * scaling.factor
    n, p = y.shape
    if p <= 2 * n_components + _SPARE:
        return Signatures(scaling, np.eye(p), np.zeros(p))
    vectors = np.linalg.eigh(y.T @ y / n)[1][:, ::-1][:, : 2 * n_components + _SPARE]
    return Signatures(scaling, np.ascontiguousarray(vectors), np.zeros(vectors.shape[1]))


def _random_weights(n_features: int, views: tuple[Numbers, ...], m: int, seed: int) -> Floats:
    """For each view, m random combinations of the features of the others."""
    normals = np.random.default_rng(seed).standard_normal((n_features, len(views), m))
    used = np.concatenate(views)
    weights = np.zeros_like(normals)
    weights[used] = normals[used]
    for i, view in enumerate(views):
        weights[view, i] = 0.0
    return weights.reshape(n_features, -1)


def _leading(products: list[Floats], views: tuple[Numbers, ...], n_features: int, m: int) -> Floats:
    """Leading left singular vectors of each view's products, side by side."""
    bases = np.zeros((n_features, len(views), m))
    for i, (view, product) in enumerate(zip(views, products, strict=True)):
        vectors = np.linalg.svd(product, full_matrices=False)[0][:, :m]
        bases[view, i, : vectors.shape[1]] = vectors
    return bases.reshape(n_features, -1)


def _cross_view_axes(covariance: Floats, n_views: int, width: int) -> Floats:
    """Leading directions of what views have in common: noise is in the blocks within views, which count for nothing."""
    m = len(covariance) // n_views
    view = np.repeat(np.arange(n_views), m)
    between = np.where(view[:, None] == view, 0.0, covariance)
    return np.linalg.eigh(between)[1][:, ::-1][:, :width]


@dataclass(frozen=True)
class _SoftLabels:
    """Clusters that bases show: their centres (k, c) in these, sizes (k,), and the mean square within them."""

    centres: Floats
    counts: Floats
    within: float


def _soft_labels(
    sample: Sample, scaling: Scaling, n_views: int, bases: Floats, n_components: int, seed: int
) -> _SoftLabels:
    y = sample.rows * scaling.factor
    seen = y @ bases
    seen -= seen.mean(axis=0)
    places = seen @ _cross_view_axes(seen.T @ seen / len(seen), n_views, max(1, n_components - 1))
    labels = lloyd(places, spread_centres(places, n_components, np.random.default_rng(seed))).labels
    seen = y @ bases
    members = np.eye(n_components)[labels]
    counts = np.maximum(members.sum(axis=0), 1.0)
    centres = (members.T @ seen) / counts[:, None]
    return _SoftLabels(centres, counts, float(((seen - centres[labels]) ** 2).mean()))


def _resubstituted(
    rows: Rows, scaling: Scaling, views: tuple[Numbers, ...], bases: Floats, soft: _SoftLabels, run: Run
) -> Floats:
    """Bases from the clusters that the present bases show: each view by the assignments that the others make."""
    owner = np.repeat(np.arange(len(views)), bases.shape[1] // len(views))
    others = (owner != np.arange(len(views))[:, None]).astype(np.float64)
    precision = 1.0 / soft.within if soft.within > 0.0 else 0.0
    products = label_moments(rows, scaling, views, bases, soft.centres, others, precision, run)
    shares = soft.counts / soft.counts.sum()
    scale = np.sqrt(np.sqrt(np.maximum(shares * (1.0 - shares), 1e-12)))
    products = [(product - product.sum(axis=1, keepdims=True) * shares) / scale for product in products]
    width = max(1, len(shares) - 1)
    return _leading(products, views, len(bases), min(width, *(len(view) for view in views)))
