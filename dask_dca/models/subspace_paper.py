"""Subspace clustering as the paper has it: mean shift of angles on random planes, co-cluster counts of anchors."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from scipy import sparse

from dask_dca.engine.angle_cells import AnglePlanes, angle_histograms, cell_extremes, cells_of
from dask_dca.engine.checks import require_finite
from dask_dca.engine.coordinates import unit_rows
from dask_dca.engine.merges import add_parts
from dask_dca.engine.passes import Pass, run_pass
from dask_dca.engine.sampling import fetch_rows, spread_rows
from dask_dca.engine.threads import one_blas_thread
from dask_dca.engine.tiles import even_tiles, tile_height
from dask_dca.errors import InvalidInputError
from dask_dca.geometry import votes
from dask_dca.geometry.cone import nonnegative_coefficients
from dask_dca.kernels.code_graph import by_eigen_gap, spectrum_of
from dask_dca.kernels.lloyd import lloyd, spread_centres
from dask_dca.kernels.mean_shift import mode_cells
from dask_dca.models.paper import n_planes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dask_dca.engine.passes import Run
    from dask_dca.engine.rows import Rows
    from dask_dca.geometry.arg_best import ArgBest
    from dask_dca.models.parameters import Settings
    from dask_dca.models.subspace_settings import ClusterSettings

    Floats = NDArray[np.float64]
    Numbers = NDArray[np.int64]

__all__ = ["PaperCones", "cone_block", "fit_paper_cones"]

_SAMPLE: Final = (32, 8)
_STARTS: Final = 10
_MOST_AUTO: Final = 64


@dataclass(frozen=True)
class PaperCones:
    """Anchors with their clusters, and what they rest on."""

    indices: Numbers  # (K,)
    clusters: Numbers  # (K,), of increasing number
    votes: Numbers  # (K,)
    sizes: Numbers  # (k + 1,), the last one of zero rows
    spectrum: Floats
    n_planes: int


def fit_paper_cones(rows: Rows, wanted: ClusterSettings, settings: Settings, run: Run) -> PaperCones:
    """
    Find the anchors of every cluster by the paper's modification of Algorithm 1.

    On each plane mean shift clusters the angles; the two extreme rows of every cell have a vote; the K rows with
    most votes are the anchors; spectral clustering of how often two of them share a cell gives their clusters.

    Parameters
    ----------
    rows : Rows
        The data.
    wanted : ClusterSettings
        Numbers of clusters and anchors.
    settings : Settings
        Planes and seed.
    run : Run
        How passes are run.

    Returns
    -------
    PaperCones
        The anchors.

    Raises
    ------
    InvalidInputError
        All rows are zero.
    """
    n_anchors = min(wanted.n_anchors(wanted.n_clusters or 10), rows.n_rows)
    s = n_planes(n_anchors, settings)
    sample = None
    if settings.ensemble == "data":
        sample = unit_rows(fetch_rows(rows, spread_rows(rows.n_rows, *_SAMPLE), run))
    state = AnglePlanes(settings.ensemble, settings.seed, s, sample)
    counts = angle_histograms(rows, state, run)
    if not counts.any():
        msg = "no row has an angle on any plane: are all rows zero?"
        raise InvalidInputError(msg)
    state = replace(state, cells=np.stack([mode_cells(one) for one in counts]))
    chosen, own = _elect(cell_extremes(rows, state, run), n_anchors)
    anchors = fetch_rows(rows, chosen, run)
    with one_blas_thread():
        clusters, spectrum = _cluster_anchors(cells_of(anchors, state), wanted.n_clusters, settings.seed)
    order = np.lexsort((chosen, -own, clusters))
    cones = unit_rows(anchors)[order], clusters[order]
    job = Pass("count", _size_block, add_parts)
    sizes = run_pass(rows, job, cones, run)
    return PaperCones(chosen[order], clusters[order], own[order], sizes, spectrum, s)


def _elect(found: ArgBest, n_anchors: int) -> tuple[Numbers, Numbers]:
    """The rows with most votes, and their votes."""
    candidates, counts = votes.count_votes(*found.found)
    chosen = votes.select_votes(candidates, counts, n_anchors)
    return chosen, counts[np.searchsorted(candidates, chosen)]


def _cluster_anchors(cells: Numbers, n_clusters: int | None, seed: int) -> tuple[Numbers, Floats]:
    """Spectral clustering of the counts G_ij = number of planes on which anchors i and j share a cell."""
    together = np.zeros((len(cells), len(cells)))
    for column in cells.T:
        together += (column[:, None] == column) & (column >= 0)
    np.fill_diagonal(together, 0.0)
    seen = spectrum_of(sparse.csr_array(together), (n_clusters or _MOST_AUTO) + 1)
    k = min(n_clusters or by_eigen_gap(seen.values), len(cells))
    placed = unit_rows(seen.nodes[:, :k])
    rng = np.random.default_rng(seed)
    starts = [lloyd(placed, spread_centres(placed, k, rng)) for _ in range(_STARTS)]
    labels = min(starts, key=lambda found: found.inertia).labels
    return np.unique(labels, return_inverse=True)[1].astype(np.int64), seen.values


def cone_block(state: tuple[Floats, Numbers], start: int, *columns: Any) -> Floats:
    """
    Label the rows of a block by the nearest cone: the paper's anchors cover the rows of their cluster.

    Parameters
    ----------
    state : tuple of ndarray
        Anchors of unit length (K, p), and their clusters (K,).
    start : int
        Row number of the block's first row.
    *columns : ndarray or sparse matrix
        Its column chunks.

    Returns
    -------
    ndarray of float64, shape (n, 1)
        The cluster whose anchors leave the least residual; -1 for a row of zeros.
    """
    anchors, clusters = state
    found = [np.zeros(0)]
    for numbers, tile in even_tiles(columns, start, tile_height(2**30, anchors.shape[1])):
        require_finite(tile[: len(numbers)], numbers)
        unit = unit_rows(tile)
        left = np.stack([_residual(unit, anchors[clusters == i]) for i in range(int(clusters.max()) + 1)], axis=1)
        labels = np.where(unit.any(axis=1), left.argmin(axis=1), -1)
        found.append(labels[: len(numbers)].astype(np.float64))
    return np.concatenate(found)[:, None]


def _residual(unit: Floats, anchors: Floats) -> Floats:
    """Squared distances from a cone, rounded so that ties are ties."""
    return np.round(((unit - nonnegative_coefficients(unit, anchors) @ anchors) ** 2).sum(axis=1), 12)


def _size_block(state: tuple[Floats, Numbers], start: int, *columns: Any) -> Numbers:
    k = int(state[1].max()) + 1
    labels = cone_block(state, start, *columns)[:, 0].astype(np.int64)
    return np.bincount(np.where(labels < 0, k, labels), minlength=k + 1)
