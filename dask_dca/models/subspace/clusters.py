"""Clusters as linear subspaces and as cones: bases, sweeps, the rule of labels, and the anchors of every cone."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from dask_dca.geometry import planes as ensembles
from dask_dca.geometry import votes
from dask_dca.geometry.moments import shrinkage, top_eigenpairs
from dask_dca.geometry.votes import NO_ROW, coverage_curve, select_candidates, shortfalls
from dask_dca.models.kmeans import squared_distances
from dask_dca.models.subspace.landmarks import RIDGE, code_rows, embed, quantise

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dask_dca.geometry.arrays import Floats, Labels, Numbers
    from dask_dca.geometry.votes import ArgBest


_ENTRIES: Final = 2**18  # of a temporary array
_ONE_SIDED: Final = 0.95  # share of rows in front of their mean direction that makes a cluster a cone
_LEAST_HEIGHT: Final = 0.05
_FOLDS: Final = 4
_NO_ENERGY: Final = 2.0**-20  # of a row of unit length: rounding


@dataclass(frozen=True)
class Bases:
    """Subspaces of clusters, quantised; the axis of a cluster that is a cone tells its side."""

    columns: Floats  # (k, d, r), orthogonal, those of greatest energy first; zeros where there are fewer
    axes: Floats  # (k, d), zeros for a cluster with rows on both sides of the origin


def fit_bases(coordinates: Floats, labels: Labels, n_clusters: int, rank: int) -> Bases:
    """Fit a linear subspace to the rows of each cluster.

    coordinates (n, d): rows of unit length; labels (n,): cluster of each row; rank: dimension r; a cluster of m rows
    has at most m / 2, so that its rows don't make it, and at least one.
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
    vectors: Floats = top_eigenpairs(rows.T @ rows, count)[1][:, ::-1]
    return vectors


def _side(rows: Floats) -> Floats:
    """The mean direction of rows, or zeros if they lie on both sides of the origin."""
    mean = rows.sum(axis=0)
    size = np.sqrt((mean**2).sum())
    axis = quantise(mean / size) if size > 0.0 else mean * 0.0
    return axis if np.mean(rows @ axis > 0.0) >= _ONE_SIDED else mean * 0.0


def shrink_bases(bases: Bases, coordinates: Floats, labels: Labels) -> Bases:
    """Make directions count by how far they stand out of the noise, which so many rows spread on any.

    bases: as fitted to coordinates (n, d) and labels (n,). The noise in a cluster is the geometric mean of what its own
    directions leave and what all clusters' do. Returns bases of columns whose squared length is their factor.
    """
    k, d, _ = bases.columns.shape
    counts = np.bincount(labels, minlength=k)
    inside = [(coordinates[labels == cluster] @ bases.columns[cluster]) ** 2 for cluster in range(k)]
    energies = np.array([part.sum(axis=0) for part in inside]) / np.maximum(counts, 1)[:, None]
    used = bases.columns.any(axis=1).sum(axis=1)
    left = counts * np.maximum(1.0 - energies.sum(axis=1), _NO_ENERGY)
    own = left / (np.maximum(d - used, 1) * np.maximum(counts - used, 1))  # as many degrees of freedom are left
    noise = np.sqrt(own * float(own @ counts) / len(labels))
    factors = [shrinkage(*one) for one in zip(energies, noise, d / np.maximum(counts, 1), strict=True)]
    return replace(bases, columns=quantise(bases.columns * np.sqrt(factors)[:, None, :]))


def residuals(coordinates: Floats, bases: Bases) -> Floats:
    """Measure the energy of rows outside each subspace, directions by their factors.

    coordinates (n, d): quantised rows of unit length. Returns (n, k): between 0 and 1, up to rounding, and more by one
    for rows behind a cone; a row's have the same bits beside any others.
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
    """Move rows to the nearest subspace and fit the subspaces again, until nothing moves.

    Bradley and Mangasarian, k-plane clustering, Journal of Global Optimization 16, 2000, with shrunk planes through 0.
    coordinates (n, d): quantised rows of unit length; labels (n,): where to start; n_clusters, rank: number of clusters
    k and dimension r; sweeps: at most that many fits. Returns bases: the last fit; a row belongs to the one of least
    residual, ties to the lower number; n_sweeps: how many fits there were.
    """
    for done in range(1, sweeps + 1):
        bases = shrink_bases(fit_bases(coordinates, labels, n_clusters, rank), coordinates, labels)
        moved = residuals(coordinates, bases).argmin(axis=1) if done < sweeps else labels
        if np.array_equal(moved, labels):
            break
        labels = moved
    return bases, done


def misfit(coordinates: Floats, labels: Labels, n_clusters: int, rank: int) -> float:
    """Multiply what clusters leave of their rows: seen, held out, and relative to the second nearest subspace.

    coordinates (n, d): quantised rows of unit length; labels (n,): their clusters. Where subspaces hold all rows
    except for rounding, partitions are alike.
    """
    bases = fit_bases(coordinates, labels, n_clusters, rank)
    left = np.maximum(residuals(coordinates, bases), _NO_ENERGY)
    own = float(left[np.arange(len(left)), labels].mean())
    nearest, second = np.sort(left, axis=1).T[[0, min(1, n_clusters - 1)]]
    return own * held_out(coordinates, labels, n_clusters, rank) * float((nearest / second).mean())


def held_out(coordinates: Floats, labels: Labels, n_clusters: int, rank: int) -> float:
    """Sum the energy of rows outside the subspace of their cluster, fitted without them.

    coordinates (n, d): quantised rows of unit length; labels (n,): their clusters. Every fourth row of a cluster is
    measured against the subspace of the others, for each of the four.
    """
    order = np.argsort(labels, kind="stable")
    place = np.empty(len(labels), dtype=np.intp)
    place[order] = np.arange(len(labels)) - np.searchsorted(labels[order], labels[order])
    total = 0.0
    for fold in range(_FOLDS):
        out = place % _FOLDS == fold
        left = residuals(coordinates[out], fit_bases(coordinates[~out], labels[~out], n_clusters, rank))
        total += float(np.maximum(left[np.arange(len(left)), labels[out]], _NO_ENERGY).sum())
    return total


@dataclass(frozen=True)
class ClusterRule:
    """All that labels need; quantised, so that a row's label does not depend on the rows beside it."""

    bases: Bases  # of rank 0: labels by codes
    landmarks: Floats  # (K, d)
    nodes: Floats  # (K, m)
    centres: Floats  # (k, m)
    ridge: float = RIDGE  # of the codes


def label_rows(coordinates: Floats, rule: ClusterRule) -> Labels:
    """Give each row its cluster.

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
    """What a sample says of the cone of one cluster."""

    axis: Floats  # (d,), mean direction
    frame: Floats  # (d, r), basis of its subspace
    middle: Floats  # (r,), mean place at height one
    scales: Floats  # (r,), spread of places along `turn`
    turn: Floats  # (r, r), their principal directions


@dataclass(frozen=True)
class ConeAnchors:
    """Candidates of one cone in the order of their use, with what the first 1, 2, ... of them reach."""

    rows: Numbers  # (c,)
    votes: Numbers  # (c,)
    curve: Floats  # (c,), coverage on planes that took no part in the choice
    gains: Floats  # (c,), what each adds to the reach on those that did


@dataclass(frozen=True)
class ConeFit:
    """Anchors of all cones with their clusters, and what they rest on."""

    indices: Numbers  # (K,)
    clusters: Numbers  # (K,), of increasing number
    votes: Numbers  # (K,)
    sizes: Floats | Numbers  # (k + 1,) of clusters, the last one of zero rows; by weight
    spectrum: Floats
    n_planes: int  # of each cone, or in all
    coverage: Floats  # (k,)


def cone_of(rows: Floats, frame: Floats) -> ClusterCone:
    """Measure the cone of a cluster on some of its rows.

    rows (m, d): quantised rows of unit length; may be none; frame (d, r): quantised basis of the cluster's subspace.
    """
    d, r = frame.shape
    mean = rows.sum(axis=0) if len(rows) else np.zeros(d)
    size = np.sqrt((mean**2).sum())
    axis = quantise(mean / size if size > 0.0 else np.eye(1, d)[0])
    along = rows @ axis
    tall = along >= _LEAST_HEIGHT
    places = (rows[tall] @ frame) / along[tall, None]
    middle = places.mean(axis=0) if len(places) else np.zeros(r)
    spread = (places - middle).T @ (places - middle) / max(len(places), 1)
    values, turn = np.linalg.eigh(spread)
    scales = np.sqrt(np.maximum(values[::-1], 1e-12 * max(float(values[-1]), 1e-300)))
    return ClusterCone(axis, frame, middle, scales, turn[:, ::-1])


def tangents(cone: ClusterCone, ensemble: str, seed: int, count: int) -> Floats:
    """Draw directions inside the subspace of a cone.

    ensemble: what they are drawn from, as in `geometry.planes.directions`; seed, count: root seed and number s. Returns
    (s, r): unit vectors.
    """
    return ensembles.directions(ensemble, seed, np.arange(count), cone.scales) @ cone.turn.T


def choose_anchors(cone: ClusterCone, found: ArgBest, drawn: Floats, fresh: int, most: int) -> ConeAnchors:
    """Choose anchors among the extreme rows by the reach of their cone.

    found: extreme rows on the signed directions; drawn (s, r): the directions; fresh: how many of them, the last ones,
    only test the choice; most: how many anchors at most.
    """
    signed = np.concatenate([drawn, -drawn])
    heights = found.keys - signed @ cone.middle
    s = len(drawn)
    test = np.arange(2 * s) % s >= s - fresh
    seen = found.rows < NO_ROW
    rows, first = np.unique(found.rows[seen & ~test], return_index=True)
    if not len(rows):
        nothing = np.zeros(0, dtype=np.int64)
        return ConeAnchors(nothing, nothing, np.zeros(0), np.zeros(0))
    positions = found.values[seen & ~test][first] - cone.middle
    use = shortfalls(positions, signed[~test], heights[~test]) ** 2
    order = select_candidates(use, most)
    order = order if len(order) else np.zeros(1, dtype=np.intp)
    half = slice(0, s - fresh)
    voters, counts = votes.count_votes(found.rows[:s][half], found.rows[s:][half])
    own = counts[np.searchsorted(voters, rows[order])]
    judged = shortfalls(positions[order], signed[test], heights[test])
    reach = coverage_curve(use[order])
    return ConeAnchors(rows[order], own, coverage_curve(judged), np.diff(reach, prepend=0.0))


def share_out(gains: Sequence[Floats], total: int) -> list[int]:
    """Share anchors out among cones: one each, then wherever the next one adds most.

    gains: what each cone's first, second, ... anchor adds. Returns number of anchors of each cone.
    """
    counts = [min(1, len(gain)) for gain in gains]
    offers = [(-gain[j], j, i) for i, gain in enumerate(gains) for j in range(1, len(gain))]
    # an anchor comes after those before it in its cone, whose gains may be smaller by a swap
    for _, _, i in sorted(offers)[: max(total - sum(counts), 0)]:
        counts[i] += 1
    return counts
