"""Gaussian components of rows with missing entries: densities of what was observed, and what it says of the rest.

With L the inverse covariance and m the missing entries of a row, these have, given the observed ones, the covariance
inv(L_mm) and the mean mu_m - inv(L_mm) L_mo (x_o - mu_o). Filled with that mean, the row is as far from mu as what was
observed alone, and log|S_oo| = log|L_mm| - log|L|: so nothing but inverses of the size of the missing entries is
needed. Rows of the same pattern share them. A row's numbers have the same bits beside any others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from scipy.special import ndtri

from dask_dca.geometry.exact import piecewise_matmul
from dask_dca.geometry.low_rank import missing_patterns
from dask_dca.models.gaussians import ROUND, log_densities, log_peak

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from dask_dca.geometry.arrays import Floats, Mask
    from dask_dca.models.gaussians import Gaussians

    Places = NDArray[np.intp]

_LOG_2_PI: Final = float(np.log(2.0 * np.pi))


@dataclass(frozen=True)
class Uncertain:
    """What missing entries may be, in rows with equally many: products of deviations from the filled row, by pattern.

    rows (m,): which rows; pattern (m,): the pattern of each; where (u, q): the missing entries of each pattern; places
    (u, c): where its c products stand among all: in the p variances, or the p * p entries of a covariance; values (u,
    c): their expectations.
    """

    rows: Places
    pattern: Places
    where: Places
    places: Places
    values: Floats

    def weighted(self, weights: Floats) -> tuple[Floats, Floats, Places]:
        """Weigh them by weights (n,) of the rows; returns weights, values and places, one for each product."""
        of_patterns = np.bincount(self.pattern, weights[self.rows], minlength=len(self.places))
        return np.repeat(of_patterns, self.places.shape[1]), self.values.ravel(), self.places.ravel()

    def drawn(self, noise: Floats) -> Floats:
        """Turn standard normal numbers (m, q) into deviations of the missing entries (m, q)."""
        q = self.where.shape[1]
        if self.places is self.where:
            return noise * np.sqrt(self.values)[self.pattern]
        roots = np.linalg.cholesky(self.values.reshape(-1, q, q))
        return np.asarray((roots[self.pattern] * noise[:, None, :]).sum(axis=2))


@dataclass(frozen=True)
class CompletedRows:
    """Rows as one component sees them.

    away (n, p): rows less its mean, missing entries filled by their conditional means; distances (n,): squared, in its
    own deviations; log_densities (n,): of the observed entries, zero for a row without any; uncertain: what missing
    entries may be.
    """

    away: Floats
    distances: Floats
    log_densities: Floats
    uncertain: list[Uncertain]


@dataclass(frozen=True)
class _Holes:
    """Rows that lack equally many entries: which, the pattern of each, and where each pattern lacks them (u, q)."""

    rows: Places
    pattern: Places
    where: Places


def _holes_of(mask: Mask) -> list[_Holes]:
    """Group the rows that have missing entries, by their number; mask (n, p): true where an entry was observed."""
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
    """See rows as each component sees them, one after the other.

    rows (n, p): what stands in missing entries does not matter; mask (n, p): true where an entry was observed.
    """
    kind, factors = gaussians.covariance_type, gaussians.precisions_cholesky
    (k, p), groups, shared = gaussians.means.shape, _holes_of(mask), None
    for j, mean in enumerate(gaussians.means):
        away = np.where(mask, rows - gaussians.centre - mean, 0.0)
        if kind == "diag" or kind in ROUND:
            factor = np.broadcast_to(factors.reshape(-1, factors.shape[-1] if kind == "diag" else 1), (k, p))[j]
            yield _by_feature(factor, away, mask, groups)
            continue
        factor = factors if kind == "tied" else factors[j]
        precision = factor @ factor.T
        inverses = shared or [_inverses(precision, group.where) for group in groups]
        shared = inverses if kind == "tied" else None
        yield _by_covariance(factor, precision, away, mask, groups, inverses)


def _by_feature(factor: Floats, away: Floats, mask: Mask, groups: list[_Holes]) -> CompletedRows:
    """Independent features: missing entries are at their mean."""
    distances = ((away * factor) ** 2).sum(axis=1)
    logs = np.where(mask, np.log(factor) - 0.5 * _LOG_2_PI, 0.0).sum(axis=1) - 0.5 * distances
    variances = 1.0 / factor**2
    uncertain = [Uncertain(one.rows, one.pattern, one.where, one.where, variances[one.where]) for one in groups]
    return CompletedRows(away, distances, logs, uncertain)


def _inverses(precision: Floats, where: Places) -> tuple[Floats, Floats]:
    """Conditional covariances (u, q, q) of missing entries by pattern, and half their inverses' log determinants."""
    roots = np.linalg.cholesky(precision[where[:, :, None], where[:, None, :]])
    over = np.linalg.inv(roots)
    return over.swapaxes(1, 2) @ over, np.log(np.diagonal(roots, axis1=1, axis2=2)).sum(axis=1)


def _by_covariance(
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
        uncertain.append(Uncertain(one.rows, one.pattern, one.where, places, covariances.reshape(len(covariances), -1)))
    distances = (piecewise_matmul(away, factor) ** 2).sum(axis=1)
    return CompletedRows(away, distances, logs - 0.5 * distances, uncertain)


def typicality(found: CompletedRows, mask: Mask) -> Floats:
    """Say how typical rows are of a component: their expected squared distance, the less the better, as a negative.

    Missing entries count for what they are expected to add, so that a row is not typical for what it lacks. Returns
    (n,).
    """
    return -(found.distances + (~mask).sum(axis=1))


def drawn_rows(gaussians: Gaussians, shares: Floats, rows: Floats, mask: Mask, uniforms: Floats) -> Floats:
    """Fill the missing entries of rows by draws: of a component, and of what it says of the missing entries.

    shares (n, k): probabilities of the components; rows, mask (n, p): as `completed_rows` takes them; uniforms (n, p +
    1): in (0, 1). Returns (n, p).
    """
    chosen = (shares.cumsum(axis=1) < uniforms[:, :1]).sum(axis=1).clip(max=shares.shape[1] - 1)
    noise, found = ndtri(uniforms[:, 1:]), rows.copy()
    for j, one in enumerate(completed_rows(gaussians, rows, mask)):
        away = one.away
        for part in one.uncertain:
            q = part.where.shape[1]
            away[part.rows[:, None], part.where[part.pattern]] += part.drawn(noise[part.rows, :q])
        own = (chosen == j)[:, None] & ~mask
        found[own] = (away + gaussians.centre + gaussians.means[j])[own]
    return found


def _in_tails(gaussians: Gaussians, one: CompletedRows, mask: Mask) -> Floats:
    """Log densities of the observed entries, by the tails of the components."""
    if np.isinf(gaussians.degrees):
        return one.log_densities
    counts = mask.sum(axis=1)
    heights = one.log_densities + 0.5 * (one.distances + counts * _LOG_2_PI)
    peaks = np.array([log_peak(q, gaussians.degrees) for q in range(mask.shape[1] + 1)])[counts]
    return np.asarray(
        heights + peaks - 0.5 * (gaussians.degrees + counts) * np.log1p(one.distances / gaussians.degrees)
    )


def observed_log_densities(gaussians: Gaussians, rows: Floats) -> Floats:
    """Evaluate the logarithm of every density of the observed entries of every row.

    rows (n, p): NaN where an entry is missing. Returns (n, k): those of `log_densities` for rows without missing
    entries, in tiles of one height bit for bit; zero for rows without any entry.
    """
    holes = np.isnan(rows)
    some = np.flatnonzero(holes.any(axis=1))
    if not len(some):
        return log_densities(gaussians, rows)
    found = log_densities(gaussians, np.where(holes, gaussians.centre, rows))
    mask = ~holes[some]
    for j, one in enumerate(completed_rows(gaussians, np.where(mask, rows[some], 0.0), mask)):
        found[some, j] = np.where(mask.any(axis=1), _in_tails(gaussians, one, mask), 0.0)
    return found
