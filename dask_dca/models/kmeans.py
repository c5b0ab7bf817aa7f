"""K-means in memory: Lloyd's algorithm, k-means++ and breathing k-means; distinct rows; counts of labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dask_dca.geometry.arrays import Floats, Labels, Numbers
from dask_dca.geometry.solvers import successive_projection

_MAX_SWEEPS: Final = 100  # maximum number of sweeps of Lloyd's algorithm
_SWEEP_TOL: Final = 1e-5  # sweeps end when the inertia falls by less than this share
_BREATH_TOL: Final = 1e-4  # the same within a breath, which must lower the inertia by this share to be kept
_SUM_ROWS: Final = 4096  # rows that are multiplied at once
_JITTER: Final = 0.01  # standard deviation of the jitter of copied centres, in root mean squared distances to centres


def distinct_rows(rows: Floats) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Find the distinct rows of (n, p), by one random linear combination of their features.

    Returns first (m,): index of the first copy of each; place (n,): which of these each row equals.
    """
    line = np.random.default_rng(0).standard_normal(rows.shape[1])
    sums = [(rows[start : start + _SUM_ROWS] * line).sum(axis=1) for start in range(0, len(rows), _SUM_ROWS)]
    _, first, place = np.unique(np.concatenate([*sums, np.zeros(0)]), return_index=True, return_inverse=True)
    return first, place


def distinct_count(rows: Floats) -> int:
    """Count the distinct rows of (n, p)."""
    return len(distinct_rows(rows)[0])


def label_counts(labels: Labels, edges: Numbers, k: int) -> tuple[Floats, Floats]:
    """Count the sequences that start in each state (k,), and the transitions between states (k, k).

    labels (n,): a state for each frame; edges (m + 1,): boundaries of the sequences.
    """
    follows = np.ones(len(labels) - 1, dtype=bool)
    follows[edges[1:-1] - 1] = False
    pairs = np.bincount(labels[:-1][follows] * k + labels[1:][follows], minlength=k * k)
    starts = np.bincount(labels[edges[:-1]], minlength=k)
    return starts.astype(np.float64), pairs.reshape(k, k).astype(np.float64)


@dataclass(frozen=True)
class Partition:
    """Centres, the nearest centre of each row, and the inertia: the sum of squared distances to them."""

    centres: Floats  # (k, d)
    labels: Labels  # (n,)
    inertia: float


def squared_distances(rows: Floats, centres: Floats) -> Floats:
    """Compute the squared Euclidean distances (n, k) of rows (n, d), which should be centred, from centres (k, d)."""
    found = rows @ (-2.0 * centres.T)
    found += (rows**2).sum(axis=1)[:, None]
    found += (centres**2).sum(axis=1)
    return np.maximum(found, 0.0, out=found)


def _scores(rows: Floats, centres: Floats) -> Floats:
    """Squared distances (n, k) less the rows' squared lengths."""
    found = rows @ (-2.0 * centres.T)
    found += (centres**2).sum(axis=1)
    return found


def _assign(rows: Floats, centres: Floats, energy: float) -> Partition:
    """Assign rows to their nearest centres; energy: sum of the rows' squared lengths."""
    scores = _scores(rows, centres)
    labels = scores.argmin(axis=1)
    reached = float(np.take_along_axis(scores, labels[:, None], axis=1).sum(dtype=np.float64))
    return Partition(centres, labels, max(0.0, energy + reached))


def lloyd(rows: Floats, centres: Floats, sweeps: int = _MAX_SWEEPS, tol: float = _SWEEP_TOL) -> Partition:
    """Run Lloyd's algorithm from centres (k, d) until a sweep lowers the inertia by less than the share `tol`.

    A centre without rows moves to the row furthest from its own centre.
    """
    energy = float(np.einsum("ij,ij->i", rows, rows).sum(dtype=np.float64))
    found = _assign(rows, centres, energy)
    for _ in range(sweeps):
        moved = _assign(rows, cluster_means(rows, found.labels, len(centres)), energy)
        settled = moved.inertia >= (1.0 - tol) * found.inertia
        found = moved if moved.inertia <= found.inertia else found
        if settled:
            break
    return found


def cluster_means(rows: Floats, labels: Labels, n_clusters: int) -> Floats:
    """Compute the mean row (k, d) of each cluster; an empty cluster gets the row furthest from its own mean."""
    n = len(rows)
    counts = np.bincount(labels, minlength=n_clusters)
    members = sparse.csr_array((np.ones(n, rows.dtype), labels, np.arange(n + 1)), shape=(n, n_clusters))
    means: Floats = (members.T @ rows) / np.maximum(counts, 1).astype(rows.dtype)[:, None]
    empty = np.flatnonzero(counts == 0)
    if len(empty):
        distances = ((rows - means[labels]) ** 2).sum(axis=1)
        means[empty] = rows[np.argsort(-distances, kind="stable")[: len(empty)]]
    return means


def within_variances(rows: Floats, labels: Labels, n_clusters: int) -> Floats:
    """Compute the within-cluster variance (d,) of each feature."""
    return ((rows - cluster_means(rows, labels, n_clusters)[labels]) ** 2).mean(axis=0)


def spread_points(points: Floats, k: int) -> NDArray[np.intp]:
    """Choose k of the points (m, d), some twice if there are fewer: the conquer step among means of tails.

    By successive projection; by farthest-point traversal if that finds fewer than k, for lack of dimensions.
    """
    squares = (points**2).sum(axis=1)
    height = max(float(np.sqrt(squares.mean())), 1e-300)
    found = successive_projection(np.column_stack([np.full(len(points), height), points]), k)
    if len(found) == k:
        return found.astype(np.intp)
    chosen, closest = [int(squares.argmax())], np.full(len(points), np.inf)
    while len(chosen) < k:
        closest = np.minimum(closest, squared_distances(points, points[chosen[-1:]])[:, 0])
        chosen.append(int(closest.argmax()))
    return np.array(chosen, dtype=np.intp)


def kmeans_plusplus(rows: Floats, k: int, rng: np.random.Generator) -> Floats:
    """Draw k rows (k, d) by greedy k-means++; with repetitions if fewer than k are distinct.

    Arthur and Vassilvitskii, k-means++, SODA 2007; here with the best of a few draws at each step.
    """
    chosen = [int(rng.integers(len(rows)))]
    closest = squared_distances(rows, rows[chosen])[:, 0]
    trials = 2 + int(np.log(k))
    for _ in range(k - 1):
        reach = np.cumsum(closest)
        draws = np.searchsorted(reach, rng.random(trials) * reach[-1], side="right").clip(0, len(rows) - 1)
        nearer = np.minimum(closest[:, None], squared_distances(rows, rows[draws]))
        best = int(nearer.sum(axis=0).argmin())
        chosen.append(int(draws[best]))
        closest = nearer[:, best]
    return rows[chosen]


def breathing_kmeans(rows: Floats, start: Partition, rng: np.random.Generator) -> Partition:
    """Improve a partition by adding some centres, and then removing as many, as long as the inertia falls.

    Fritzke, Breathing k-means, arXiv:2006.15666; it replaces many restarts.
    """
    best, k = start, len(start.centres)
    depth = min(10, max(3, k // 4), k)
    while depth > 0 and best.inertia > 0.0 and k > 1:
        wide = lloyd(rows, np.vstack([best.centres, _jittered(rows, best, depth, rng)]), tol=_BREATH_TOL)
        narrow = lloyd(rows, wide.centres[_most_useful(rows, wide, depth)], tol=_BREATH_TOL)
        if narrow.inertia < (1.0 - _BREATH_TOL) * best.inertia:
            best = narrow
        else:
            depth -= 1
    return lloyd(rows, best.centres)


def _jittered(rows: Floats, partition: Partition, depth: int, rng: np.random.Generator) -> Floats:
    """Jittered copies of the `depth` centres of greatest error."""
    distances = ((rows - partition.centres[partition.labels]) ** 2).sum(axis=1)
    errors = np.bincount(partition.labels, weights=distances, minlength=len(partition.centres))
    worst = np.argsort(-errors, kind="stable")[:depth]
    scale = _JITTER * np.sqrt(partition.inertia / len(rows))
    jitter = scale * rng.standard_normal((len(worst), rows.shape[1]))
    return partition.centres[worst] + jitter.astype(rows.dtype)


def _most_useful(rows: Floats, partition: Partition, depth: int) -> Labels:
    """Indices of the centres without the `depth` least useful ones; neighbours of dropped centres are kept."""
    k, every = len(partition.centres), np.arange(len(rows))
    scores = _scores(rows, partition.centres)
    nearest = scores[every, partition.labels].copy()
    scores[every, partition.labels] = np.inf
    utility = np.bincount(partition.labels, weights=scores.min(axis=1) - nearest, minlength=k)
    between = squared_distances(partition.centres, partition.centres)
    np.fill_diagonal(between, np.inf)
    neighbour = between.argmin(axis=1)
    dropped: list[int] = []
    kept: set[int] = set()
    for j in np.argsort(utility, kind="stable").tolist():
        if len(dropped) == depth:
            break
        if j not in kept:
            dropped.append(j)
            kept.add(int(neighbour[j]))
    for j in np.argsort(utility, kind="stable").tolist():  # if too many were kept as neighbours
        if len(dropped) < depth and j not in dropped:
            dropped.append(j)
    return np.setdiff1d(np.arange(k), dropped)
