"""Densities of a mixture at the observed entries of rows with holes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dask_dca.models.gaussians import prepare_gaussians
from dask_dca.models.incomplete_gaussians import observed_log_densities

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dask_dca.models.gaussians import Gaussians
    from dask_dca.models.mixture.passes import Densities
    from dask_dca.models.mixture.subspace import CovarianceSubspace

    Floats = NDArray[np.float64]

__all__ = ["joint_of_observed"]


def joint_of_observed(densities: Densities, tile: Floats) -> Floats:
    """Evaluate the logarithms of weight times density of what was observed.

    tile (n, p): NaN where an entry is missing. Returns (n, k): rows without any observed entry have density one.
    """
    if densities.subspace is None:
        found: Floats = observed_log_densities(densities.gaussians, tile) + densities.log_weights
        return found
    holes = np.asarray(np.isnan(tile).any(axis=1))
    found = np.empty((len(tile), len(densities.log_weights)))
    found[holes] = observed_log_densities(_whole(densities.gaussians, densities.subspace), tile[holes])
    places, across = densities.subspace.split(np.where(holes[:, None], densities.subspace.origin, tile))
    found[~holes] = (observed_log_densities(densities.gaussians, places) + across[:, None])[~holes]
    return found + densities.log_weights


def _whole(inside: Gaussians, space: CovarianceSubspace) -> Gaussians:
    """Components in a subspace as those of all features, with full covariances."""
    factors = inside.precisions_cholesky
    within = np.linalg.inv(factors @ factors.swapaxes(1, 2))
    across = space.noise * (np.eye(len(space.axes)) - space.axes @ space.axes.T)
    covariances = space.axes @ within @ space.axes.T + across
    return prepare_gaussians(space.points(inside.means + inside.centre), covariances, "full", space.origin)
