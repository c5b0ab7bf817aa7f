"""K-means in memory: Lloyd's sweeps, k-means++ starts, breathing; and counts of labelled rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from scipy import sparse

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dask_dca.geometry.arrays import Floats, Labels, Numbers

_MOST_SWEEPS: Final = 100
_SETTLED: Final = 1e-5
_WORTHWHILE: Final = 1e-4  # a breath is kept if it lowers the inertia by this share, and its sweeps end there
_JITTER: Final = 0.01


def distinct_rows(rows: Floats) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Find the rows that differ, by one random combination of their features.

    rows (n, p): rows. Returns first (m,): one of each; place (n,): which of these each row is.
    """
    line = np.random.default_rng(0).standard_normal(rows.shape[1])
    _, first, place = np.unique((rows * line).sum(axis=1), return_index=True, return_inverse=True)
    return first, place


def distinct_count(rows: Floats) -> int:
    """Count distinct rows; (n, p)."""
    return len(distinct_rows(rows)[0])


def label_counts(labels: Labels, edges: Numbers, k: int) -> tuple[Floats, Floats]:
    """Count starts and transitions of labels.

    labels (n,): a state for each frame; edges (m + 1,): ends of sequences. Returns starts (k,): how many sequences
    start in each state; transitions (k, k): how many frames in one state are followed by one in the other.
    """
    follows = np.ones(len(labels) - 1, dtype=bool)
    follows[edges[1:-1] - 1] = False
    pairs = np.bincount(labels[:-1][follows] * k + labels[1:][follows], minlength=k * k)
    starts = np.bincount(labels[edges[:-1]], minlength=k)
    return starts.astype(np.float64), pairs.reshape(k, k).astype(np.float64)


@dataclass(frozen=True)
class Partition:
    """Centres, the centre nearest each row, and the sum of squared distances to them."""

    centres: Floats  # (k, d)
    labels: Labels  # (n,)
    inertia: float


def squared_distances(rows: Floats, centres: Floats) -> Floats:
    """Measure every row against every centre.

    rows (n, d): rows, not far from zero for their spread; centres (k, d): centres. Returns (n, k): squared Euclidean
    distances.
    """
    found = rows @ (-2.0 * centres.T)
    found += (rows**2).sum(axis=1)[:, None]
    found += (centres**2).sum(axis=1)
    return np.maximum(found, 0.0, out=found)


def _scores(rows: Floats, centres: Floats) -> Floats:
    """Squared distances less the rows' own squared lengths."""
    found = rows @ (-2.0 * centres.T)
    found += (centres**2).sum(axis=1)
    return found


def _assign(rows: Floats, centres: Floats, energy: float) -> Partition:
    """Nearest centres; energy is the sum of the rows' squared lengths."""
    scores = _scores(rows, centres)
    labels = scores.argmin(axis=1)
    reached = float(np.take_along_axis(scores, labels[:, None], axis=1).sum(dtype=np.float64))
    return Partition(centres, labels, max(0.0, energy + reached))


def lloyd(rows: Floats, centres: Floats, sweeps: int = _MOST_SWEEPS, settled_at: float = _SETTLED) -> Partition:
    """Move centres to the means of the rows nearest them until the inertia settles.

    rows (n, d): rows; centres (k, d): where to start; an empty centre moves to the row furthest from its own;
    settled_at: they end when the inertia falls by less than this share.
    """
    energy = _energy(rows)
    found = _assign(rows, centres, energy)
    for _ in range(sweeps):
        moved = _assign(rows, cluster_means(rows, found.labels, len(centres)), energy)
        settled = moved.inertia >= (1.0 - settled_at) * found.inertia
        found = moved if moved.inertia <= found.inertia else found
        if settled:
            break
    return found


def _energy(rows: Floats) -> float:
    return float(np.einsum("ij,ij->i", rows, rows).sum(dtype=np.float64))


def cluster_means(rows: Floats, labels: Labels, n_clusters: int) -> Floats:
    """Average the rows of each cluster.

    rows (n, d): rows; labels (n,): cluster of each row. Returns (k, d): means; an empty cluster gets the row furthest
    from its own mean.
    """
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
    """Measure the variance that a partition leaves in each feature.

    rows (n, d): rows; labels (n,): cluster of each row. Returns (d,): mean squares about the clusters' means.
    """
    variances: Floats = ((rows - cluster_means(rows, labels, n_clusters)[labels]) ** 2).mean(axis=0)
    return variances


def kmeans_plusplus(rows: Floats, k: int, rng: np.random.Generator) -> Floats:
    """Draw k rows as k-means++ does: each with probability in proportion to its squared distance from those before.

    Arthur and Vassilvitskii, k-means++, SODA 2007; the best of a few draws at each step.
    rows (n, d): rows; rng: where the draws come from. Returns (k, d): some of the rows; with repetitions where fewer
    than k are distinct.
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
    """Improve a partition by breathing: some centres more, then as many fewer, as long as the inertia falls.

    Fritzke, Breathing k-means, arXiv:2006.15666; it does the work of many starts.
    rows (n, d): rows; rng: where the jitter comes from.
    """
    best, k = start, len(start.centres)
    depth = min(10, max(3, k // 4), k)
    while depth > 0 and best.inertia > 0.0 and k > 1:
        wide = lloyd(rows, np.vstack([best.centres, _jittered(rows, best, depth, rng)]), settled_at=_WORTHWHILE)
        narrow = lloyd(rows, wide.centres[_useful(rows, wide, depth)], settled_at=_WORTHWHILE)
        if narrow.inertia < (1.0 - _WORTHWHILE) * best.inertia:
            best = narrow
        else:
            depth -= 1
    return lloyd(rows, best.centres)


def _jittered(rows: Floats, partition: Partition, depth: int, rng: np.random.Generator) -> Floats:
    """Copies of the centres of greatest error, moved a little."""
    distances = ((rows - partition.centres[partition.labels]) ** 2).sum(axis=1)
    errors = np.bincount(partition.labels, weights=distances, minlength=len(partition.centres))
    worst = np.argsort(-errors, kind="stable")[:depth]
    scale = _JITTER * np.sqrt(partition.inertia / len(rows))
    jitter = scale * rng.standard_normal((len(worst), rows.shape[1]))
    return partition.centres[worst] + jitter.astype(rows.dtype)


def _useful(rows: Floats, partition: Partition, depth: int) -> Labels:
    """All but the `depth` centres of least utility; the nearest neighbour of one dropped stays."""
    k, every = len(partition.centres), np.arange(len(rows))
    scores = _scores(rows, partition.centres)
    nearest = scores[every, partition.labels].copy()
    scores[every, partition.labels] = np.inf
    utility = np.bincount(partition.labels, weights=scores.min(axis=1) - nearest, minlength=k)
    between = squared_distances(partition.centres, partition.centres)
    np.fill_diagonal(between, np.inf)
    neighbour = between.argmin(axis=1)
    dropped: list[int] = []
    kept_for_sure: set[int] = set()
    for j in np.argsort(utility, kind="stable").tolist():
        if len(dropped) == depth:
            break
        if j not in kept_for_sure:
            dropped.append(j)
            kept_for_sure.add(int(neighbour[j]))
    for j in np.argsort(utility, kind="stable").tolist():  # where too many were spared
        if len(dropped) < depth and j not in dropped:
            dropped.append(j)
    return np.setdiff1d(np.arange(k), dropped)
