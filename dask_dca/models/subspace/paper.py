"""Subspace clustering by the paper's algorithm: mean shift of angles on random planes, counts of shared cells."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from scipy import sparse
from scipy.ndimage import gaussian_filter1d

from dask_dca.anchoring.literal import n_planes
from dask_dca.anchoring.parameters import Settings
from dask_dca.engine.passes import Pass, Run, run_pass
from dask_dca.engine.process import one_blas_thread
from dask_dca.engine.rows import Rows
from dask_dca.engine.sampling import fetch_rows, spread_rows
from dask_dca.engine.tiles import even_tiles, require_finite, tile_height, tiles
from dask_dca.engine.types import add_parts
from dask_dca.errors import InvalidInputError
from dask_dca.geometry import planes, votes
from dask_dca.geometry.arrays import Floats, Numbers
from dask_dca.geometry.nnls import nonnegative_coefficients
from dask_dca.geometry.votes import NO_ROW, ArgBest
from dask_dca.models.kmeans import kmeans_plusplus, lloyd
from dask_dca.models.subspace.clusters import ConeFit
from dask_dca.models.subspace.fit import ClusterSettings
from dask_dca.models.subspace.landmarks import MAX_AUTO_CLUSTERS, count_by_eigengap, spectrum_of
from dask_dca.models.subspace.passes import unit_rows

N_BINS: Final = 512  # bins of the angles from 0 to half a turn
_COSINE_SCALE: Final = 2.0**24  # cosines are kept as integers of this unit
_MAX_TEMPORARY_ENTRIES: Final = 2**17  # most cosines that are computed at once
_SAMPLE: Final = (32, 8)  # runs, and rows of a run, of the sample for ensemble "data"
_N_STARTS: Final = 10  # k-means++ starts of spectral clustering


def bandwidth(counts: Numbers) -> float:
    """Choose a bandwidth by Silverman's rule, 0.9 min(deviation, interquartile range / 1.34) n^(-1/5).

    counts (b,): histogram. Returns a number of bins, at least 0.5.
    """
    n = int(counts.sum())
    if n == 0:
        return 0.5
    bins = np.arange(len(counts))
    mean = float((counts * bins).sum()) / n
    deviation = float(np.sqrt((counts * (bins - mean) ** 2).sum() / n))
    low, high = np.searchsorted(np.cumsum(counts), (n / 4, 3 * n / 4))
    spread = min(deviation, (high - low) / 1.34) if high > low else deviation
    return max(0.5, 0.9 * spread * n**-0.2)


def mode_cells(counts: Numbers) -> Numbers:
    """Assign each bin to the mode that mean shift reaches from it.

    In one dimension mean shift climbs the smoothed density, so that cells are the intervals between its minima.
    Comaniciu and Meer, Mean shift: a robust approach toward feature space analysis, PAMI 24, 2002.
    counts (b,): histogram of angles, a sum over blocks. Returns (b,): cells, increasing from 0.
    """
    density = gaussian_filter1d(counts.astype(np.float64), bandwidth(counts), mode="constant")
    slope = np.sign(np.diff(density))
    moving = np.flatnonzero(slope)
    turns = np.flatnonzero((slope[moving[:-1]] < 0.0) & (slope[moving[1:]] > 0.0))
    starts = np.zeros(len(counts), dtype=np.int64)
    starts[(moving[turns] + moving[turns + 1]) // 2 + 1] = 1  # the middle of a flat minimum
    return np.cumsum(starts)


@dataclass(frozen=True)
class AnglePlanes:
    """Parameters that generate the planes, and the cell of each bin on each plane once known."""

    ensemble: str
    seed: int
    count: int
    sample: Floats | None = None
    cells: Numbers | None = None  # (s, N_BINS)

    def pairs(self, n_features: int) -> planes.Pairs:
        """Generate the integer directions of all planes."""
        every = np.arange(self.count)
        return planes.integer_pairs(planes.plane_pairs(self.ensemble, self.seed, every, n_features, self.sample))


def angle_histograms(rows: Rows, state: AnglePlanes, run: Run) -> Numbers:
    """Count the rows' angles to the axis of each plane.

    Returns (s, 512): histograms from 0 to half a turn, without rows that are orthogonal to the plane.
    """
    return run_pass(rows, Pass("angles", _count_block, add_parts), state, run)


def cell_extremes(rows: Rows, state: AnglePlanes, run: Run) -> ArgBest:
    """Find the rows of least and greatest angle in each cell of each plane.

    Returns (2, s * c): keys are the greatest cosine and the negated least one; ties go to the lower row number.
    """
    return run_pass(rows, Pass("divide", _extreme_block, add_parts), state, run)


def cells_of(rows: Floats, state: AnglePlanes) -> Numbers:
    """Find the cell of each row on each plane.

    rows (m, p): rows. Returns (m, s): cells; -1 for a row that is orthogonal to the plane.
    """
    keys = planes.cosine_keys(planes.inner_products(rows, state.pairs(rows.shape[1]))[0])
    return _cells(keys, state)


def _bins(keys: Floats) -> Numbers:
    """Bin of each angle; -1 for rows orthogonal to the plane."""
    defined = np.isfinite(keys)
    angles = np.arccos(np.clip(np.where(defined, keys, 0.0) / _COSINE_SCALE, -1.0, 1.0)) / np.pi
    return np.where(defined, np.minimum((angles * N_BINS).astype(np.int64), N_BINS - 1), -1)


def _cells(keys: Floats, state: AnglePlanes) -> Numbers:
    assert state.cells is not None
    bins = _bins(keys)
    return np.where(bins >= 0, state.cells[np.arange(state.count), bins], -1)


def _cosine_tiles(state: AnglePlanes, start: int, columns: Sequence[Any]) -> Iterator[tuple[Numbers, Floats]]:
    """Row numbers and cosines on all planes, a few rows at a time."""
    pairs = state.pairs(sum(part.shape[1] for part in columns))
    step = max(16, _MAX_TEMPORARY_ENTRIES // state.count)
    for numbers, tile in tiles(columns, start, copy=False):
        require_finite(tile, numbers)
        for begin in range(0, len(numbers), step):
            some = slice(begin, begin + step)
            yield numbers[some], planes.cosine_keys(planes.inner_products(tile[some], pairs)[0])


def _count_block(state: AnglePlanes, start: int, *columns: Any) -> Numbers:
    counts = np.zeros(state.count * N_BINS, dtype=np.int64)
    for _, keys in _cosine_tiles(state, start, columns):
        bins = _bins(keys)
        places = (np.arange(state.count) * N_BINS + bins)[bins >= 0]
        counts += np.bincount(places, minlength=len(counts))
    return counts.reshape(state.count, N_BINS)


def _extreme_block(state: AnglePlanes, start: int, *columns: Any) -> ArgBest:
    assert state.cells is not None
    width = int(state.cells.max()) + 1
    size = state.count * width
    found = ArgBest.empty((2, size))
    for numbers, keys in _cosine_tiles(state, start, columns):
        cells = _cells(keys, state)
        there = cells >= 0
        groups = (np.arange(state.count) * width + cells)[there]
        rows = np.broadcast_to(numbers[:, None], keys.shape)[there]
        sides = [_greatest_in_groups(sign * keys[there], groups, rows, size) for sign in (1.0, -1.0)]
        keys, first = map(np.stack, zip(*sides, strict=True))
        found += ArgBest(keys, first, found.values)
    return found


def _greatest_in_groups(keys: Floats, groups: Numbers, rows: Numbers, size: int) -> tuple[Floats, Numbers]:
    """Greatest key of each group, and the first row with it."""
    top = np.full(size, -np.inf)
    np.maximum.at(top, groups, keys)
    winners = np.flatnonzero(keys == top[groups])[::-1]
    first = np.full(size, NO_ROW)
    first[groups[winners]] = rows[winners]  # rows increase, so the last one written is the lowest
    return top, first


def fit_paper_cones(rows: Rows, wanted: ClusterSettings, settings: Settings, run: Run) -> ConeFit:
    """Find the anchors of every cluster by the paper's modification of Algorithm 1.

    On each plane mean shift clusters the angles, and the two extreme rows of every cell get a vote. The K rows with
    most votes are the anchors; spectral clustering of the numbers of shared cells gives their clusters.
    wanted: numbers of clusters and anchors.
    Raises InvalidInputError: all rows are zero.
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
    chosen, own = _most_voted(cell_extremes(rows, state, run), n_anchors)
    anchors = fetch_rows(rows, chosen, run)
    with one_blas_thread():
        clusters, spectrum = _cluster_anchors(cells_of(anchors, state), wanted.n_clusters, settings.seed)
    order = np.lexsort((chosen, -own, clusters))
    cones = unit_rows(anchors)[order], clusters[order]
    job = Pass("count", _size_block, add_parts)
    sizes = run_pass(rows, job, cones, run)
    nowhere = np.full(int(clusters.max()) + 1, np.nan)
    return ConeFit(chosen[order], clusters[order], own[order], sizes, spectrum, s, nowhere)


def _most_voted(found: ArgBest, n_anchors: int) -> tuple[Numbers, Numbers]:
    """The rows with most votes, and their votes."""
    candidates, counts = votes.count_votes(*found.found)
    chosen = votes.select_votes(candidates, counts, n_anchors)
    return chosen, counts[np.searchsorted(candidates, chosen)]


def _cluster_anchors(cells: Numbers, n_clusters: int | None, seed: int) -> tuple[Numbers, Floats]:
    """Cluster anchors by spectral clustering of G_ij, the number of planes on which i and j share a cell."""
    together = np.zeros((len(cells), len(cells)))
    for column in cells.T:
        together += (column[:, None] == column) & (column >= 0)
    np.fill_diagonal(together, 0.0)
    seen = spectrum_of(sparse.csr_array(together), (n_clusters or MAX_AUTO_CLUSTERS) + 1)
    k = min(n_clusters or count_by_eigengap(seen.values), len(cells))
    placed = unit_rows(seen.nodes[:, :k])
    rng = np.random.default_rng(seed)
    starts = [lloyd(placed, kmeans_plusplus(placed, k, rng)) for _ in range(_N_STARTS)]
    labels = min(starts, key=lambda found: found.inertia).labels
    return np.unique(labels, return_inverse=True)[1].astype(np.int64), seen.values


def cone_block(state: tuple[Floats, Numbers], start: int, *columns: Any) -> Floats:
    """Label the rows of a block by the nearest cone of anchors.

    state: anchors of unit length (K, p), and their clusters (K,); start: row number of the first row. Returns (n, 1):
    the cluster whose cone has the least residual; -1 for a row of zeros.
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
    """Squared distances of unit rows from a cone, rounded so that rounding errors don't break ties."""
    return np.round(((unit - nonnegative_coefficients(unit, anchors) @ anchors) ** 2).sum(axis=1), 12)


def _size_block(state: tuple[Floats, Numbers], start: int, *columns: Any) -> Numbers:
    k = int(state[1].max()) + 1
    labels = cone_block(state, start, *columns)[:, 0].astype(np.int64)
    return np.bincount(np.where(labels < 0, k, labels), minlength=k + 1)
