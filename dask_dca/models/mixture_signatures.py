"""Signatures of rows: the few coordinates in which the means of a mixture differ, found from products between views."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from dask_dca.engine.checks import require_size, require_squares
from dask_dca.engine.multiview import cross_moments, label_moments, power_moments, signature_moments
from dask_dca.engine.sampling import fetch_rows, spread_rows
from dask_dca.engine.scaling import Scaling
from dask_dca.kernels.lloyd import lloyd, spread_centres

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dask_dca.engine.passes import Run
    from dask_dca.engine.rows import Rows

    Floats = NDArray[np.float64]
    Numbers = NDArray[np.int64]

__all__ = ["Sample", "Signatures", "find_signatures", "take_sample"]

_SAMPLE_ROWS: Final = 20_000
_SAMPLE_ENTRIES: Final = 2 * 10**7
_RUN_ROWS: Final = 20  # the sample is taken in runs of so many rows
_SPARE: Final = 10  # columns beyond twice the number of components
_LEAST_SPREAD: Final = 1e-3  # of the root mean square: units of exact sums are not finer for features that hardly vary
_RESUBSTITUTIONS: Final = 2


@dataclass(frozen=True)
class Sample:
    """
    Some rows on the driver, or all if they are few.

    Attributes
    ----------
    numbers : ndarray of int64, shape (n,)
        Their row numbers.
    rows : ndarray of float64, shape (n, p)
        The rows less the centre.
    centre, variances : ndarray of float64, shape (p,)
        Mean and variance of each feature.
    """

    numbers: Numbers
    rows: Floats
    centre: Floats
    variances: Floats

    @property
    def deviations(self) -> Floats:
        """
        Take roots of the variances, none of them zero.

        Returns
        -------
        ndarray of float64, shape (p,)
            Standard deviations.
        """
        return _spreads(self.rows)


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
    places : ndarray of float64, shape (n, d)
        Signatures of the sample.
    """

    scaling: Scaling
    coordinates: Floats
    offset: Floats
    places: Floats

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


def take_sample(rows: Rows, n_components: int, run: Run) -> Sample:
    """
    Bring some rows to the driver, chosen by row number alone.

    Parameters
    ----------
    rows : Rows
        The data.
    n_components : int
        Number of components k; there are at least 20 k rows.
    run : Run
        How passes are run.

    Returns
    -------
    Sample
        The rows, and their first two moments.
    """
    wanted = max(min(_SAMPLE_ROWS, _SAMPLE_ENTRIES // rows.n_features), 20 * n_components)
    numbers = spread_rows(rows.n_rows, -(-wanted // _RUN_ROWS), _RUN_ROWS)
    found = fetch_rows(rows, numbers, run)
    every = np.arange(rows.n_rows) if numbers is None else numbers
    require_squares(found, every)
    require_size(found, every)
    centre = found.mean(axis=0)
    found -= centre
    return Sample(every, found, centre, (found**2).mean(axis=0))


def _spreads(rows: Floats) -> Floats:
    """Root mean squares of columns, none of them zero."""
    squares = (rows**2).mean(axis=0)
    mean = float(squares.mean())
    return np.sqrt(np.maximum(squares, _LEAST_SPREAD**2 * mean if mean > 0.0 else 1.0))


def find_signatures(
    rows: Rows,
    sample: Sample,
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
    sample : Sample
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
        The map, and the sample's signatures.
    """
    scaling = _scaling(sample, scaled=scaled)
    y = sample.rows * scaling.factor
    if views is None:
        return _principal(scaling, y, n_components)
    m = min(2 * n_components + _SPARE, *(len(view) for view in views))
    weights = _random_weights(y.shape[1], views, m, seed)
    products = cross_moments(rows, scaling, views, weights, _spreads(y @ weights), run)
    bases = _leading(products, views, y.shape[1], m)
    products = power_moments(rows, scaling, views, bases, _spreads(y @ bases), run)
    if not given:
        return _signatures(rows, scaling, y, views, _leading(products, views, y.shape[1], m), m, run)
    bases = _leading(products, views, y.shape[1], min(n_components, m))
    for _ in range(_RESUBSTITUTIONS):
        bases = _resubstituted(rows, scaling, y, views, bases, n_components, seed, run)
    return _signatures(rows, scaling, y, views, bases, max(1, n_components - 1), run)


def _scaling(sample: Sample, *, scaled: bool) -> Scaling:
    mean = float(sample.variances.mean())
    factor = np.ones(len(sample.centre))
    if scaled and mean > 0.0:
        factor = 1.0 / np.sqrt(sample.variances + mean)
    return Scaling(sample.centre, factor, sample.deviations * factor)


def _principal(scaling: Scaling, y: Floats, n_components: int) -> Signatures:
    """The scaled features themselves, or their leading principal directions."""
    n, p = y.shape
    if p <= 2 * n_components + _SPARE:
        return Signatures(scaling, np.eye(p), np.zeros(p), y)
    vectors = np.linalg.eigh(y.T @ y / n)[1][:, ::-1][:, : 2 * n_components + _SPARE]
    return Signatures(scaling, vectors, np.zeros(vectors.shape[1]), y @ vectors)


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


def _signatures(
    rows: Rows, scaling: Scaling, y: Floats, views: tuple[Numbers, ...], bases: Floats, width: int, run: Run
) -> Signatures:
    mean, covariance = signature_moments(rows, scaling, bases, _spreads(y @ bases), run)
    axes = _cross_view_axes(covariance, len(views), width)
    coordinates = bases @ axes
    return Signatures(scaling, coordinates, mean @ axes, y @ coordinates - mean @ axes)


def _resubstituted(
    rows: Rows,
    scaling: Scaling,
    y: Floats,
    views: tuple[Numbers, ...],
    bases: Floats,
    n_components: int,
    seed: int,
    run: Run,
) -> Floats:
    """Bases from the clusters that the present bases show: each view by the assignments that the others make."""
    seen = y @ bases
    seen -= seen.mean(axis=0)
    places = seen @ _cross_view_axes(seen.T @ seen / len(seen), len(views), max(1, n_components - 1))
    labels = lloyd(places, spread_centres(places, n_components, np.random.default_rng(seed))).labels
    seen = y @ bases
    members = np.eye(n_components)[labels]
    counts = np.maximum(members.sum(axis=0), 1.0)
    centres = (members.T @ seen) / counts[:, None]
    within = float(((seen - centres[labels]) ** 2).mean())
    owner = np.repeat(np.arange(len(views)), bases.shape[1] // len(views))
    others = (owner != np.arange(len(views))[:, None]).astype(np.float64)
    precision = 1.0 / within if within > 0.0 else 0.0
    products = label_moments(rows, scaling, views, bases, centres, others, precision, run)
    shares = counts / counts.sum()
    scale = np.sqrt(np.sqrt(np.maximum(shares * (1.0 - shares), 1e-12)))
    products = [(product - product.sum(axis=1, keepdims=True) * shares) / scale for product in products]
    width = max(1, n_components - 1)
    return _leading(products, views, y.shape[1], min(width, *(len(view) for view in views)))
