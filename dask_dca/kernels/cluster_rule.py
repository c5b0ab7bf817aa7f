"""The rule that gives a row its cluster: the nearest subspace, or the nearest centre of its embedded code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dask_dca.kernels.code_graph import embed
from dask_dca.kernels.codes import RIDGE, code_rows
from dask_dca.kernels.lloyd import squared_distances
from dask_dca.kernels.subspaces import Bases, residuals

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Labels = NDArray[np.intp]

__all__ = ["ClusterRule", "label_rows"]


@dataclass(frozen=True)
class ClusterRule:
    """All that labels need; quantised, so that a row's label does not depend on the rows beside it."""

    bases: Bases  # of rank 0: labels by codes
    landmarks: Floats  # (K, d)
    nodes: Floats  # (K, m)
    centres: Floats  # (k, m)
    ridge: float = RIDGE  # of the codes


def label_rows(coordinates: Floats, rule: ClusterRule) -> Labels:
    """
    Give each row its cluster.

    Parameters
    ----------
    coordinates : ndarray of float64, shape (n, d)
        Quantised rows of unit length, or of zeros.
    rule : ClusterRule
        Subspaces, or landmarks and centres.

    Returns
    -------
    ndarray of intp, shape (n,)
        Numbers of clusters, ties to the lower one; -1 for rows of zeros, which lie in every subspace.
    """
    if rule.bases.columns.shape[2]:
        labels = residuals(coordinates, rule.bases).argmin(axis=1)
    else:
        placed = embed(code_rows(coordinates, rule.landmarks, rule.ridge), rule.nodes)
        labels = squared_distances(placed, rule.centres).argmin(axis=1)
    return np.where(coordinates.any(axis=1), labels, -1)
