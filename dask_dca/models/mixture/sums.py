"""Exact sums in several digits: about the centre, or own means of components that are far, or whose rows have holes."""

from __future__ import annotations

from itertools import repeat
from typing import TYPE_CHECKING, Final

import numpy as np

from dask_dca.geometry.exact import Total, power_of_two, product_total, scattered_total, weighted_total
from dask_dca.models.gaussians import ROUND, GaussianMoments

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from dask_dca.geometry.arrays import Floats
    from dask_dca.models.gaussians import Gaussians
    from dask_dca.models.incomplete_gaussians import Uncertain


_VALUE: Final = 2.0**-30  # standard deviations
_SQUARE: Final = 2.0**-32  # variances: squares up to 128 of them take two digits
_TOTALS: Final = {"full": 2, "tied": 2}  # sums about an origin: of outer products too
_UNCERTAIN: Final = 2.0**-40  # of a variance, or product of deviations: what holes may add
_LEAST_SHARE: Final = 2.0**-25  # rounded, a smaller share is none
_LEAST_DEVIATION: Final = 2.0**-40  # of a feature's own: units of sums about an origin are not finer
_WHOLE: Final = 2.0**24  # of a share


def component_totals(
    gaussians: Gaussians, deviations: Floats, shares: Floats, centred: Floats, *, every: bool = True
) -> Iterator[Total]:
    """Sum moments about the centre; each component's about its own mean where one is far from the centre.

    deviations (p,): standard deviations of the features, none of them zero, that sums are rounded by; shares (n, k):
    how much of each row belongs to each component; centred (n, p): the rows less the centre; every: whether the shares
    of each row sum to one.
    """
    if gaussians.far.any():
        return totals_about_means(gaussians, deviations, shares, (centred - mean for mean in gaussians.means))
    return _about(gaussians.covariance_type, shares, centred, deviations, every=every)


def totals_about_means(
    gaussians: Gaussians,
    deviations: Floats,
    shares: Floats,
    away: Iterable[Floats],
    holes: Iterable[list[Uncertain]] = repeat([]),
) -> Iterator[Total]:
    """Sum each component's moments about its own mean, and what holes may add to them.

    away: for each component the rows (n, p) less its mean, holes filled; holes: what these may hold. Returns two or
    three for each component.
    """
    form, own = gaussians.covariance_type, np.maximum(gaussians.deviations, _LEAST_DEVIATION * deviations)
    for part, rows, more, spread in zip(shares.T, away, holes, own, strict=False):
        some, scale = part > _LEAST_SHARE, power_of_two(spread)  # far rows would cost many digits
        yield from _about(form, part[some, None], rows[some], spread, every=False)
        units = np.multiply.outer(scale, scale).ravel() if form in _TOTALS else scale**2
        yield _uncertain(more, np.where(some, part, 0.0), _UNCERTAIN * units)


def joined_moments(gaussians: Gaussians, totals: Sequence[Floats]) -> GaussianMoments:
    """Put the sums of either over all rows together."""
    (k, p), form = gaussians.means.shape, gaussians.covariance_type
    width = _TOTALS.get(form, 1)
    if len(totals) == width:
        return _as_moments(form, totals)
    own = [_as_moments(form, totals[i : i + width]) for i in range(0, len(totals), width + 1)]
    added = np.stack(totals[width :: width + 1])
    added = added.sum(axis=1, keepdims=True) if form in ROUND else added
    second = np.stack([one.second.ravel() for one in own]) + added
    if form in _TOTALS:
        second = second.reshape(k, p, p) if form == "full" else second.sum(axis=0).reshape(p, p)
    second = second[:, 0] if form in ROUND else second
    counts, first = (np.concatenate(parts) for parts in zip(*((one.counts, one.first) for one in own), strict=True))
    return GaussianMoments(counts, first, second, gaussians.means)


def _as_moments(form: str, totals: Sequence[Floats]) -> GaussianMoments:
    linear, *products = totals
    p = linear.shape[1] - 1 if products else (linear.shape[1] - 1) // 2 if form == "diag" else linear.shape[1] - 2
    counts, first, second = np.split(linear, [1, 1 + p], axis=1)
    if form != "diag":
        second = products[0] if products else second[:, 0]
    return GaussianMoments(counts[:, 0], first, second)


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


def _uncertain(holes: list[Uncertain], shares: Floats, unit: Floats) -> Total:
    """What holes are expected to add, in the places of variances, or of the entries of covariances."""
    whole = np.rint(shares * _WHOLE) / _WHOLE
    parts = [one.weighted(whole) for one in holes] or [(np.zeros(0), np.zeros(0), np.zeros(0, dtype=np.intp))]
    weights, values, places = (np.concatenate(some) for some in zip(*parts, strict=True))
    return scattered_total(weights, values, places, unit)
