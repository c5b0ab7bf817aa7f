"""Clusters as linear subspaces and as cones: k-subspaces, losses of partitions, labels, and anchors of cones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from dask_dca.geometry import planes as ensembles
from dask_dca.geometry import votes
from dask_dca.geometry.arrays import Floats, Labels, Numbers
from dask_dca.geometry.moments import shrinkage, top_eigenpairs
from dask_dca.geometry.votes import NO_ROW, ArgBest, coverage_curve, select_candidates, shortfalls
from dask_dca.models.kmeans import squared_distances
from dask_dca.models.subspace.landmarks import DEFAULT_RIDGE, code_rows, embed, quantise

_MAX_TEMPORARY_ENTRIES: Final = 2**18  # size of the largest temporary array of `residuals`
_MIN_ONE_SIDED_SHARE: Final = 0.95  # least share of rows on the positive side of their mean direction in a cone
MIN_HEIGHT: Final = 0.05  # least coordinate along the mean direction: below, ratios to it are unstable
_N_FOLDS: Final = 4  # folds of the cross-validated residual
_RESIDUAL_FLOOR: Final = 2.0**-20  # residual energy of a unit row that is rounding error


@dataclass(frozen=True)
class Bases:
    """Orthogonal bases of the clusters' subspaces, and mean directions of the clusters that are cones; quantised."""

    columns: Floats  # (k, d, r), orthogonal, by decreasing energy; zeros where a subspace has fewer dimensions
    axes: Floats  # (k, d), mean directions; zeros for a cluster with rows on both sides of the origin


def fit_bases(coordinates: Floats, labels: Labels, n_clusters: int, rank: int) -> Bases:
    """Fit a linear subspace to the rows of each cluster.

    coordinates (n, d): rows of unit length; labels (n,): cluster of each row; rank: dimension r, at most half the
    number of the cluster's rows (and at least one), so that a subspace does not interpolate its rows.
    """
    d = coordinates.shape[1]
    columns, axes = np.zeros((n_clusters, d, rank)), np.zeros((n_clusters, d))
    for cluster in range(n_clusters):
        rows = coordinates[labels == cluster]
        if len(rows):
            leading = _right_singular_vectors(rows, min(rank, d, max(1, len(rows) // 2)))
            columns[cluster, :, : leading.shape[1]] = quantise(leading)
            axes[cluster] = _cone_axis(rows)
    return Bases(columns, axes)


def _right_singular_vectors(rows: Floats, count: int) -> Floats:
    """Right singular vectors of the greatest singular values, shape (d, count)."""
    m, d = rows.shape
    if m < d:
        return np.linalg.svd(rows, full_matrices=False)[2][:count].T
    return top_eigenpairs(rows.T @ rows, count)[1][:, ::-1]


def _cone_axis(rows: Floats) -> Floats:
    """Mean direction of rows, or zeros if they lie on both sides of the origin."""
    mean = rows.sum(axis=0)
    size = np.sqrt((mean**2).sum())
    axis = quantise(mean / size) if size > 0.0 else mean * 0.0
    return axis if np.mean(rows @ axis > 0.0) >= _MIN_ONE_SIDED_SHARE else mean * 0.0


def shrink_bases(bases: Bases, coordinates: Floats, labels: Labels) -> Bases:
    """Shrink directions whose energy is near that of noise (Gavish and Donoho's factors; see `shrinkage`).

    bases: as fitted to coordinates (n, d) and labels (n,). The noise variance of a cluster is the geometric mean of its
    own residual variance and that of all clusters. Returns columns whose squared length is their factor.
    """
    k, d, _ = bases.columns.shape
    counts = np.bincount(labels, minlength=k)
    inside = [(coordinates[labels == cluster] @ bases.columns[cluster]) ** 2 for cluster in range(k)]
    energies = np.array([part.sum(axis=0) for part in inside]) / np.maximum(counts, 1)[:, None]
    ranks = bases.columns.any(axis=1).sum(axis=1)
    left = counts * np.maximum(1.0 - energies.sum(axis=1), _RESIDUAL_FLOOR)
    own = left / (np.maximum(d - ranks, 1) * np.maximum(counts - ranks, 1))  # residual energy per degree of freedom
    noise = np.sqrt(own * float(own @ counts) / len(labels))
    factors = [shrinkage(*one) for one in zip(energies, noise, d / np.maximum(counts, 1), strict=True)]
    return replace(bases, columns=quantise(bases.columns * np.sqrt(factors)[:, None, :]))


def residuals(coordinates: Floats, bases: Bases) -> Floats:
    """Compute the energy of rows outside each subspace: one less the squared coordinates along its columns.

    coordinates (n, d): quantised rows of unit length. Returns (n, k): between 0 and 1 up to rounding; one is added for
    rows on the negative side of a cone's axis. A row's bits don't depend on other rows.
    """
    found = (coordinates @ bases.axes.T < 0.0).astype(np.float64) + 1.0
    n_clusters, d, rank = bases.columns.shape
    together = bases.columns.transpose(1, 2, 0).reshape(d, rank * n_clusters)  # by column, then by cluster
    step = max(1, _MAX_TEMPORARY_ENTRIES // max(rank * n_clusters, 1))
    for start in range(0, len(coordinates), step):
        part = slice(start, start + step)
        inside = (coordinates[part] @ together) ** 2
        for j in range(rank):
            found[part] -= inside[:, j * n_clusters : (j + 1) * n_clusters]
    return found


def k_subspaces(coordinates: Floats, labels: Labels, n_clusters: int, rank: int, sweeps: int) -> tuple[Bases, int]:
    """Assign rows to the nearest subspace and fit the subspaces again until no row moves.

    Bradley and Mangasarian, k-plane clustering, Journal of Global Optimization 16, 2000, with shrunk linear subspaces.
    coordinates (n, d): quantised rows of unit length; labels (n,): initial clusters; n_clusters, rank: number k and
    dimension r; sweeps: most fits. Returns bases: the last fit; n_sweeps: number of fits. Ties of residuals go to the
    lower number.
    """
    for done in range(1, sweeps + 1):
        bases = shrink_bases(fit_bases(coordinates, labels, n_clusters, rank), coordinates, labels)
        moved = residuals(coordinates, bases).argmin(axis=1) if done < sweeps else labels
        if np.array_equal(moved, labels):
            break
        labels = moved
    return bases, done


def partition_loss(coordinates: Floats, labels: Labels, n_clusters: int, rank: int) -> float:
    """Score a partition: residual x cross-validated residual x ratio of the nearest and second nearest residual.

    coordinates (n, d): quantised rows of unit length; labels (n,): their clusters. Residuals have a floor, so that
    partitions whose subspaces contain all rows up to rounding tie.
    """
    bases = fit_bases(coordinates, labels, n_clusters, rank)
    left = np.maximum(residuals(coordinates, bases), _RESIDUAL_FLOOR)
    own = float(left[np.arange(len(left)), labels].mean())
    nearest, second = np.sort(left, axis=1).T[[0, min(1, n_clusters - 1)]]
    return own * held_out_residual(coordinates, labels, n_clusters, rank) * float((nearest / second).mean())


def held_out_residual(coordinates: Floats, labels: Labels, n_clusters: int, rank: int) -> float:
    """Sum the fourfold cross-validated residual energy of rows outside the subspace of their own cluster.

    coordinates (n, d): quantised rows of unit length; labels (n,): their clusters. A fold is every fourth row of each
    cluster.
    """
    order = np.argsort(labels, kind="stable")
    place = np.empty(len(labels), dtype=np.intp)
    place[order] = np.arange(len(labels)) - np.searchsorted(labels[order], labels[order])
    total = 0.0
    for fold in range(_N_FOLDS):
        out = place % _N_FOLDS == fold
        left = residuals(coordinates[out], fit_bases(coordinates[~out], labels[~out], n_clusters, rank))
        total += float(np.maximum(left[np.arange(len(left)), labels[out]], _RESIDUAL_FLOOR).sum())
    return total


@dataclass(frozen=True)
class ClusterRule:
    """What assigns rows to clusters; quantised, so that a row's label does not depend on other rows."""

    bases: Bases  # of rank 0: labels are those of the nearest centre of the embedded codes
    landmarks: Floats  # (K, d)
    nodes: Floats  # (K, m), weighted eigenvectors at the landmarks
    centres: Floats  # (k, m)
    ridge: float = DEFAULT_RIDGE  # penalty of the codes' least squares


def label_rows(coordinates: Floats, rule: ClusterRule) -> Labels:
    """Assign each row to a cluster.

    coordinates (n, d): quantised rows of unit length, or of zeros; rule: subspaces, or landmarks and centres. Returns
    (n,): numbers of clusters, ties to the lower one; -1 for rows of zeros, which lie in every subspace.
    """
    if rule.bases.columns.shape[2]:
        labels = residuals(coordinates, rule.bases).argmin(axis=1)
    else:
        placed = embed(code_rows(coordinates, rule.landmarks, rule.ridge), rule.nodes)
        labels = squared_distances(placed, rule.centres).argmin(axis=1)
    return np.where(coordinates.any(axis=1), labels, -1)


@dataclass(frozen=True)
class ClusterCone:
    """Location and spread of a cluster's rows where they cut the plane at height one above its mean direction."""

    axis: Floats  # (d,), mean direction
    frame: Floats  # (d, r), basis of its subspace
    centre: Floats  # (r,), mean of the rows at height one
    scales: Floats  # (r,), standard deviations along the principal directions
    rotation: Floats  # (r, r), principal directions


@dataclass(frozen=True)
class ConeAnchors:
    """Anchors of one cone in the order of their choice, and the coverage of the first 1, 2, ... of them."""

    rows: Numbers  # (c,)
    votes: Numbers  # (c,)
    curve: Floats  # (c,), coverage on test planes
    gains: Floats  # (c,), what each adds to the coverage on the planes of the choice


@dataclass(frozen=True)
class ConeFit:
    """Anchors of all cones with their clusters, votes and coverage."""

    indices: Numbers  # (K,)
    clusters: Numbers  # (K,), increasing
    votes: Numbers  # (K,)
    sizes: Floats | Numbers  # (k + 1,), total weights of clusters, and of zero rows
    spectrum: Floats
    n_planes: int  # of each cone; of all cones together by the paper's method
    coverage: Floats  # (k,)


def measure_cone(rows: Floats, frame: Floats) -> ClusterCone:
    """Estimate the cone of a cluster from some of its rows.

    rows (m, d): quantised rows of unit length, maybe none; frame (d, r): quantised basis of the cluster's subspace.
    """
    d, r = frame.shape
    mean = rows.sum(axis=0) if len(rows) else np.zeros(d)
    size = np.sqrt((mean**2).sum())
    axis = quantise(mean / size if size > 0.0 else np.eye(1, d)[0])
    along = rows @ axis
    tall = along >= MIN_HEIGHT
    places = (rows[tall] @ frame) / along[tall, None]
    centre = places.mean(axis=0) if len(places) else np.zeros(r)
    spread = (places - centre).T @ (places - centre) / max(len(places), 1)
    values, rotation = np.linalg.eigh(spread)
    scales = np.sqrt(np.maximum(values[::-1], 1e-12 * max(float(values[-1]), 1e-300)))
    return ClusterCone(axis, frame, centre, scales, rotation[:, ::-1])


def draw_directions(cone: ClusterCone, ensemble: str, seed: int, count: int) -> Floats:
    """Draw random directions in the subspace of a cone.

    ensemble: their distribution, as in `geometry.planes.directions`; seed, count: root seed and number s. Returns
    (s, r): unit vectors.
    """
    return ensembles.directions(ensemble, seed, np.arange(count), cone.scales) @ cone.rotation.T


def choose_anchors(cone: ClusterCone, found: ArgBest, drawn: Floats, n_test: int, max_anchors: int) -> ConeAnchors:
    """Choose anchors among the extreme rows so that their cone covers the most of the cluster's extent.

    found: extreme rows by signed direction; drawn (s, r): the directions; n_test: number of directions, the last ones,
    on which only the coverage of the choice is measured.
    """
    signed = np.concatenate([drawn, -drawn])
    heights = found.keys - signed @ cone.centre
    s = len(drawn)
    test = np.arange(2 * s) % s >= s - n_test
    seen = found.rows < NO_ROW
    rows, first = np.unique(found.rows[seen & ~test], return_index=True)
    if not len(rows):
        nothing = np.zeros(0, dtype=np.int64)
        return ConeAnchors(nothing, nothing, np.zeros(0), np.zeros(0))
    positions = found.values[seen & ~test][first] - cone.centre
    use = shortfalls(positions, signed[~test], heights[~test]) ** 2
    order = select_candidates(use, max_anchors)
    order = order if len(order) else np.zeros(1, dtype=np.intp)
    half = slice(0, s - n_test)
    voters, counts = votes.count_votes(found.rows[:s][half], found.rows[s:][half])
    own = counts[np.searchsorted(voters, rows[order])]
    judged = shortfalls(positions[order], signed[test], heights[test])
    reach = coverage_curve(use[order])
    return ConeAnchors(rows[order], own, coverage_curve(judged), np.diff(reach, prepend=0.0))


def allocate_anchors(gains: Sequence[Floats], total: int) -> list[int]:
    """Distribute anchors over cones: one each, then to the cone whose next anchor adds most coverage.

    gains: what each cone's first, second, ... anchor adds. Returns the number of anchors of each cone.
    """
    counts = [min(1, len(gain)) for gain in gains]
    offers = [(-gain[j], j, i) for i, gain in enumerate(gains) for j in range(1, len(gain))]
    # sorted by gain; swaps may make later gains larger, but only the number of anchors of each cone counts
    for _, _, i in sorted(offers)[: max(total - sum(counts), 0)]:
        counts[i] += 1
    return counts
