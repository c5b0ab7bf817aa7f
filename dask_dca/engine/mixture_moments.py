"""Exact moments of a mixture's components over tiles of rows: about the centre, and about far components' own means."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from dask_dca.geometry.exact import Total, power_of_two, product_total, weighted_total
from dask_dca.kernels.gaussian_moments import GaussianMoments, about_origins

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from dask_dca.kernels.gaussian import Gaussians

    Floats = NDArray[np.float64]

__all__ = ["Scales", "component_totals", "joined_moments", "scales_of"]

_VALUE: Final = 2.0**-30  # standard deviations
_SQUARE: Final = 2.0**-32  # variances: squares up to 128 of them take two digits
_TOTALS: Final = {"full": 2, "tied": 2}  # sums about an origin: of outer products too
_LEAST_SHARE: Final = 2.0**-25  # rounded, a smaller share is none
_LEAST_DEVIATION: Final = 2.0**-40  # of a feature's own: units of sums about an origin are not finer


@dataclass(frozen=True)
class Scales:
    """
    Standard deviations that sums are rounded by.

    Attributes
    ----------
    features : ndarray of float64, shape (p,)
        Of the features, none of them zero.
    far : dict of int to ndarray of float64, shape (p,)
        Of the features in each component that is far from the centre.
    """

    features: Floats
    far: dict[int, Floats]


def scales_of(gaussians: Gaussians, deviations: Floats) -> Scales:
    """
    Find what sums over rows are rounded by.

    Parameters
    ----------
    gaussians : Gaussians
        Components.
    deviations : ndarray of float64, shape (p,)
        Standard deviations of the features.

    Returns
    -------
    Scales
        Of the features, and within far components.
    """
    far = np.flatnonzero(gaussians.far).tolist()
    own = gaussians.deviations if far else deviations[None]
    return Scales(deviations, {j: np.maximum(own[j], _LEAST_DEVIATION * deviations) for j in far})


def joined_moments(gaussians: Gaussians, scales: Scales, totals: Sequence[Floats]) -> GaussianMoments:
    """
    Put the sums of `component_totals` over all rows together.

    Parameters
    ----------
    gaussians, scales : Gaussians and Scales
        As `component_totals` takes them.
    totals : sequence of ndarray
        Their values.

    Returns
    -------
    GaussianMoments
        Of all components.
    """
    form, width = gaussians.covariance_type, _TOTALS.get(gaussians.covariance_type, 1)
    near, *rest = (_as_moments(form, totals[i : i + width]) for i in range(0, len(totals), width))
    return about_origins(near, dict(zip(scales.far, rest, strict=True)), gaussians.origins, form)


def _as_moments(form: str, totals: Sequence[Floats]) -> GaussianMoments:
    linear, *products = totals
    p = linear.shape[1] - 1 if products else (linear.shape[1] - 1) // 2 if form == "diag" else linear.shape[1] - 2
    counts, first, second = np.split(linear, [1, 1 + p], axis=1)
    if form != "diag":
        second = products[0] if products else second[:, 0]
    return GaussianMoments(counts[:, 0], first, second)


def component_totals(gaussians: Gaussians, scales: Scales, shares: Floats, centred: Floats) -> Iterator[Total]:
    """
    Sum moments about the centre, then those of each far component about its own mean.

    Parameters
    ----------
    gaussians, scales : Gaussians and Scales
        Components, and what sums are rounded by.
    shares : ndarray of float64, shape (n, k)
        How much of each row belongs to each component.
    centred : ndarray of float64, shape (n, p)
        The rows less the centre.

    Yields
    ------
    Total
        One or two for the centre and for each far component.
    """
    form, far = gaussians.covariance_type, gaussians.far
    near, every = (np.where(far, 0.0, shares), False) if far.any() else (shares, True)
    yield from _about(form, near, centred, scales.features, every=every)
    for j, deviations in scales.far.items():
        own = shares[:, j] > _LEAST_SHARE  # far rows would cost many digits
        yield from _about(form, shares[own, j : j + 1], centred[own] - gaussians.means[j], deviations, every=False)


def _about(form: str, shares: Floats, centred: Floats, deviations: Floats, *, every: bool) -> Iterator[Total]:
    """Counts, weighted sums and sums of squares beside each other; sums of outer products where a form has them."""
    ones, scale = np.ones((len(centred), 1)), power_of_two(deviations)
    columns, units = [ones, centred], [np.ones(1), _VALUE * scale]
    if form == "diag":
        columns.append(centred**2)
        units.append(_SQUARE * scale**2)
    elif form in ("spherical", "tied-spherical"):
        columns.append((centred**2).sum(axis=1, keepdims=True))
        units.append(np.atleast_1d(_SQUARE * power_of_two((deviations**2).sum())))
    yield weighted_total(shares, np.hstack(columns), np.concatenate(units))
    if form in ("full", "tied"):
        yield _products(form, shares, centred, _VALUE * scale, every=every)


def _products(form: str, shares: Floats, centred: Floats, unit: Floats, *, every: bool) -> Total:
    """Sums of outer products: for each component, or together; `every` says that shares sum to one."""
    if form == "tied":
        rows = centred if every else centred * np.sqrt(shares.sum(axis=1))[:, None]
        return product_total(rows, rows, unit, unit)
    weighted = (centred * root[:, None] for root in np.sqrt(shares).T)
    return _stacked([product_total(part, part, unit, unit) for part in weighted])


def _stacked(totals: list[Total]) -> Total:
    levels = max(len(total.parts) for total in totals)
    parts = np.zeros((levels, len(totals), *totals[0].parts.shape[1:]))
    for j, total in enumerate(totals):
        parts[: len(total.parts), j] = total.parts
    return Total(parts, totals[0].unit)
