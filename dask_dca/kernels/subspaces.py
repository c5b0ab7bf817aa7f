"""Clusters as linear subspaces: their bases, the rows' residuals, and the sweeps that fit both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from scipy import linalg

from dask_dca.kernels.landmarks import quantise

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Labels = NDArray[np.intp]

__all__ = ["Bases", "fit_bases", "refine", "residuals"]

_ENTRIES: Final = 2**18  # of a temporary array
_ONE_SIDED: Final = 0.95  # share of rows in front of their mean direction that makes a cluster a cone


@dataclass(frozen=True)
class Bases:
    """Subspaces of clusters, quantised; the axis of a cluster that is a cone tells its side."""

    columns: Floats  # (k, d, r), orthonormal, those of greatest energy first; zeros where there are fewer
    axes: Floats  # (k, d), zeros for a cluster with rows on both sides of the origin


def fit_bases(coordinates: Floats, labels: Labels, n_clusters: int, rank: int) -> Bases:
    """
    Fit a linear subspace to the rows of each cluster.

    Parameters
    ----------
    coordinates : ndarray of float64, shape (n, d)
        Rows of unit length.
    labels : ndarray of intp, shape (n,)
        Cluster of each row.
    n_clusters : int
        Number of clusters k.
    rank : int
        Dimension r; a cluster of m rows has at most m / 2, so that its rows don't make it, and at least one.

    Returns
    -------
    Bases
        Of each cluster.
    """
    d = coordinates.shape[1]
    columns, axes = np.zeros((n_clusters, d, rank)), np.zeros((n_clusters, d))
    for cluster in range(n_clusters):
        rows = coordinates[labels == cluster]
        if len(rows):
            leading = _leading(rows, min(rank, d, max(1, len(rows) // 2)))
            columns[cluster, :, : leading.shape[1]] = quantise(leading)
            axes[cluster] = _side(rows)
    return Bases(columns, axes)


def _leading(rows: Floats, count: int) -> Floats:
    """Right singular vectors of greatest singular value, shape (d, count)."""
    m, d = rows.shape
    if m < d:
        return np.linalg.svd(rows, full_matrices=False)[2][:count].T
    vectors: Floats = linalg.eigh(rows.T @ rows, subset_by_index=(d - count, d - 1))[1][:, ::-1]
    return vectors


def _side(rows: Floats) -> Floats:
    """The mean direction of rows, or zeros if they lie on both sides of the origin."""
    mean = rows.sum(axis=0)
    size = np.sqrt((mean**2).sum())
    axis = quantise(mean / size) if size > 0.0 else mean * 0.0
    return axis if np.mean(rows @ axis > 0.0) >= _ONE_SIDED else mean * 0.0


def residuals(coordinates: Floats, bases: Bases) -> Floats:
    """
    Measure the energy of rows outside each subspace.

    Parameters
    ----------
    coordinates : ndarray of float64, shape (n, d)
        Quantised rows of unit length.
    bases : Bases
        As `fit_bases` returns them.

    Returns
    -------
    ndarray of float64, shape (n, k)
        Between 0 and 1, up to rounding, and more by one for rows behind a cone; a row's have the same bits beside
        any others.

    Examples
    --------
    >>> line = fit_bases(np.array([[1.0, 0.0], [1.0, 0.0]]), np.array([0, 0]), 1, 1)
    >>> residuals(np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]]), line).ravel()
    array([0., 1., 1.])
    """
    found = (coordinates @ bases.axes.T < 0.0).astype(np.float64) + 1.0
    n_clusters, d, rank = bases.columns.shape
    together = bases.columns.transpose(1, 2, 0).reshape(d, rank * n_clusters)  # first vectors of all clusters, ...
    step = max(1, _ENTRIES // max(rank * n_clusters, 1))
    for start in range(0, len(coordinates), step):
        part = slice(start, start + step)
        inside = (coordinates[part] @ together) ** 2
        for j in range(rank):
            found[part] -= inside[:, j * n_clusters : (j + 1) * n_clusters]
    return found


def refine(coordinates: Floats, labels: Labels, n_clusters: int, rank: int, sweeps: int) -> tuple[Bases, int]:
    """
    Move rows to the nearest subspace and fit the subspaces again, until nothing moves.

    Bradley and Mangasarian, k-plane clustering, Journal of Global Optimization 16, 2000, with planes through zero.

    Parameters
    ----------
    coordinates : ndarray of float64, shape (n, d)
        Quantised rows of unit length.
    labels : ndarray of intp, shape (n,)
        Where to start.
    n_clusters, rank : int
        Number of clusters k and dimension r.
    sweeps : int
        At most so many fits.

    Returns
    -------
    bases : Bases
        The last fit; a row belongs to the one of least residual, ties to the lower number.
    n_sweeps : int
        How many fits there were.
    """
    bases = fit_bases(coordinates, labels, n_clusters, rank)
    for done in range(1, sweeps):
        moved = residuals(coordinates, bases).argmin(axis=1)
        if np.array_equal(moved, labels):
            return bases, done
        labels, bases = moved, fit_bases(coordinates, moved, n_clusters, rank)
    return bases, sweeps
