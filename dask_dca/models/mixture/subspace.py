"""A subspace in which components differ; across it rows have one variance in every direction."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from dask_dca.geometry.arrays import Floats


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
