"""Gaussian components and rows with missing entries: densities of observed entries, conditional moments of the others.

With L the inverse covariance, the missing entries m of a row have, given the observed entries o, the covariance
inv(L_mm) and the mean mu_m - inv(L_mm) L_mo (x_o - mu_o). Filled with this mean, the row has the same Mahalanobis
distance from mu as its observed entries alone, and log|S_oo| = log|L_mm| - log|L|. So only inverses of the size of the
missing entries are computed, once for all rows of the same pattern. The results for a row have the same bits beside any
other rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from dask_dca.geometry.arrays import Floats, Mask
from dask_dca.geometry.exact import piecewise_matmul
from dask_dca.geometry.low_rank import missing_patterns
from dask_dca.models.gaussians import SPHERICAL_TYPES, Gaussians, log_densities, log_peak

Places = NDArray[np.intp]

_LOG_2_PI: Final = float(np.log(2.0 * np.pi))


@dataclass(frozen=True)
class ConditionalCovariances:
    """Conditional covariances of missing entries, for rows that lack equally many, by pattern.

    rows (m,): indices of the rows; pattern (m,): pattern of each; where (u, q): missing entries of each pattern; places
    (u, c): indices of its c (co)variances among the p variances, or the p * p entries of a covariance; values (u, c).
    """

    rows: Places
    pattern: Places
    where: Places
    places: Places
    values: Floats

    def weighted(self, weights: Floats) -> tuple[Floats, Floats, Places]:
        """Sum the weights (n,) of rows by pattern; returns weights, values and places for each (co)variance."""
        of_patterns = np.bincount(self.pattern, weights[self.rows], minlength=len(self.places))
        return np.repeat(of_patterns, self.places.shape[1]), self.values.ravel(), self.places.ravel()

    def sample(self, noise: Floats) -> Floats:
        """Convert standard normal numbers (m, q) to deviations of missing entries (m, q) from conditional means."""
        q = self.where.shape[1]
        if self.places is self.where:
            return noise * np.sqrt(self.values)[self.pattern]
        roots = np.linalg.cholesky(self.values.reshape(-1, q, q))
        return np.asarray((roots[self.pattern] * noise[:, None, :]).sum(axis=2))


@dataclass(frozen=True)
class CompletedRows:
    """Rows completed by one component.

    away (n, p): rows less its mean, missing entries filled by conditional means; distances (n,): squared Mahalanobis
    distances; log_densities (n,): of the observed entries, zero for a row without any; uncertain: conditional
    covariances of missing entries.
    """

    away: Floats
    distances: Floats
    log_densities: Floats
    uncertain: list[ConditionalCovariances]


@dataclass(frozen=True)
class _Holes:
    """Rows that lack equally many entries (m,), the pattern of each (m,), and the missing entries by pattern (u, q)."""

    rows: Places
    pattern: Places
    where: Places


def _group_holes(mask: Mask) -> list[_Holes]:
    """Group rows by their number of missing entries; mask (n, p): true where an entry was observed."""
    patterns, which = missing_patterns(mask)
    counts = (~patterns).sum(axis=1)
    found = []
    for q in np.unique(counts[counts > 0]).tolist():
        some = np.flatnonzero(counts == q)
        rows = np.flatnonzero(counts[which] == q)
        where = np.nonzero(~patterns[some])[1].reshape(len(some), q)
        found.append(_Holes(rows, np.searchsorted(some, which[rows]), where))
    return found


def completed_rows(gaussians: Gaussians, rows: Floats, mask: Mask) -> Iterator[CompletedRows]:
    """Complete rows (n, p) by each component, one after the other.

    mask (n, p): true where an entry was observed; other entries of rows are ignored.
    """
    kind, factors = gaussians.covariance_type, gaussians.precisions_cholesky
    (k, p), groups, shared = gaussians.means.shape, _group_holes(mask), None
    for j, mean in enumerate(gaussians.means):
        away = np.where(mask, rows - gaussians.centre - mean, 0.0)
        if kind == "diag" or kind in SPHERICAL_TYPES:
            factor = np.broadcast_to(factors.reshape(-1, factors.shape[-1] if kind == "diag" else 1), (k, p))[j]
            yield _complete_by_feature(factor, away, mask, groups)
            continue
        factor = factors if kind == "tied" else factors[j]
        precision = factor @ factor.T
        inverses = shared or [_conditional_covariances(precision, group.where) for group in groups]
        shared = inverses if kind == "tied" else None
        yield _complete_by_covariance(factor, precision, away, mask, groups, inverses)


def _complete_by_feature(factor: Floats, away: Floats, mask: Mask, groups: list[_Holes]) -> CompletedRows:
    """Complete rows with independent features: missing entries have their mean."""
    distances = ((away * factor) ** 2).sum(axis=1)
    logs = np.where(mask, np.log(factor) - 0.5 * _LOG_2_PI, 0.0).sum(axis=1) - 0.5 * distances
    variances = 1.0 / factor**2
    uncertain = [
        ConditionalCovariances(one.rows, one.pattern, one.where, one.where, variances[one.where]) for one in groups
    ]
    return CompletedRows(away, distances, logs, uncertain)


def _conditional_covariances(precision: Floats, where: Places) -> tuple[Floats, Floats]:
    """Conditional covariances (u, q, q) of missing entries by pattern; half the log determinants of their inverses."""
    roots = np.linalg.cholesky(precision[where[:, :, None], where[:, None, :]])
    over = np.linalg.inv(roots)
    return over.swapaxes(1, 2) @ over, np.log(np.diagonal(roots, axis1=1, axis2=2)).sum(axis=1)


def _complete_by_covariance(
    factor: Floats,
    precision: Floats,
    away: Floats,
    mask: Mask,
    groups: list[_Holes],
    inverses: list[tuple[Floats, Floats]],
) -> CompletedRows:
    p, uncertain = len(factor), []
    logs = float(np.log(np.diagonal(factor)).sum()) - 0.5 * _LOG_2_PI * mask.sum(axis=1)
    pull = piecewise_matmul(away, precision)
    for one, (covariances, halves) in zip(groups, inverses, strict=True):
        here = one.where[one.pattern]
        forces = pull[one.rows[:, None], here]
        away[one.rows[:, None], here] = -(covariances[one.pattern] * forces[:, None, :]).sum(axis=2)
        logs[one.rows] -= halves[one.pattern]
        places = (one.where[:, :, None] * p + one.where[:, None, :]).reshape(len(one.where), -1)
        uncertain.append(
            ConditionalCovariances(one.rows, one.pattern, one.where, places, covariances.reshape(len(covariances), -1))
        )
    distances = (piecewise_matmul(away, factor) ** 2).sum(axis=1)
    return CompletedRows(away, distances, logs - 0.5 * distances, uncertain)


def typicality(found: CompletedRows, mask: Mask) -> Floats:
    """Return the negative expected squared distance (n,) of rows from a component, by which typical rows are chosen.

    Each missing entry adds its expectation of one, so that rows don't become typical by missing entries.
    """
    return -(found.distances + (~mask).sum(axis=1))


def drawn_rows(gaussians: Gaussians, shares: Floats, rows: Floats, mask: Mask, uniforms: Floats) -> Floats:
    """Fill missing entries of rows (n, p) by draws of a component and from its conditional distribution.

    shares (n, k): probabilities of the components; rows, mask (n, p): as for `completed_rows`; uniforms (n, p + 1): in
    (0, 1).
    """
    chosen = (shares.cumsum(axis=1) < uniforms[:, :1]).sum(axis=1).clip(max=shares.shape[1] - 1)
    noise, found = ndtri(uniforms[:, 1:]), rows.copy()
    for j, one in enumerate(completed_rows(gaussians, rows, mask)):
        away = one.away
        for part in one.uncertain:
            q = part.where.shape[1]
            away[part.rows[:, None], part.where[part.pattern]] += part.sample(noise[part.rows, :q])
        own = (chosen == j)[:, None] & ~mask
        found[own] = (away + gaussians.centre + gaussians.means[j])[own]
    return found


def _tail_log_densities(gaussians: Gaussians, one: CompletedRows, mask: Mask) -> Floats:
    """Log densities (n,) of observed entries, for Student's t components if tails are heavy."""
    if np.isinf(gaussians.degrees):
        return one.log_densities
    counts = mask.sum(axis=1)
    heights = one.log_densities + 0.5 * (one.distances + counts * _LOG_2_PI)
    peaks = np.array([log_peak(q, gaussians.degrees) for q in range(mask.shape[1] + 1)])[counts]
    return np.asarray(
        heights + peaks - 0.5 * (gaussians.degrees + counts) * np.log1p(one.distances / gaussians.degrees)
    )


def observed_log_densities(gaussians: Gaussians, rows: Floats) -> Floats:
    """Evaluate the log density (n, k) of the observed entries of every row under every component.

    rows (n, p): NaN where an entry is missing. Rows without missing entries have the bits of `log_densities`, in tiles
    of one height; rows without any entry have zero.
    """
    missing = np.isnan(rows)
    some = np.flatnonzero(missing.any(axis=1))
    if not len(some):
        return log_densities(gaussians, rows)
    found = log_densities(gaussians, np.where(missing, gaussians.centre, rows))
    mask = ~missing[some]
    for j, one in enumerate(completed_rows(gaussians, np.where(mask, rows[some], 0.0), mask)):
        found[some, j] = np.where(mask.any(axis=1), _tail_log_densities(gaussians, one, mask), 0.0)
    return found
