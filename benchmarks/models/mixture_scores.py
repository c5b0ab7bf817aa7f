"""How mixtures are scored, and compared with the peers cell by cell."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import linear_sum_assignment
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score
from sklearn.metrics.cluster import contingency_matrix

from benchmarks.harness import Check, Record, group, mean
from benchmarks.mixture_peers import MAIN, Fit

if TYPE_CHECKING:
    from benchmarks.mixture_data import Sample


def scores(data: Sample, found: Fit) -> dict[str, float]:
    """The paper's metrics that need labels only, and the inertia of the partition."""
    table = contingency_matrix(data.labels, found.labels)
    rows, columns = linear_sum_assignment(-table)
    return {
        "accuracy": float(table[rows, columns].sum() / len(data.labels)),
        "information": float(normalized_mutual_info_score(data.labels, found.labels)),
        "rand": float(adjusted_rand_score(data.labels, found.labels)),
        "inertia": inertia(data.X, found.labels),
    }


def mean_scores(data: Sample, found: Fit) -> dict[str, float]:
    """Relative l2 error of the means, best matching; share of the planted means among the anchors."""
    squares = _squares(found.means, data.means)
    rows, columns = linear_sum_assignment(squares)
    # the means that a method with fewer components lacks count in full
    lost = np.delete(data.means, columns, axis=0)
    error = np.sqrt((squares[rows, columns].sum() + (lost**2).sum()) / (data.means**2).sum())
    # a method without anchors: the row nearest to each mean
    anchors = _squares(data.X, found.means).argmin(axis=0) if found.anchors is None else found.anchors
    return {"error": float(error), "anchors": float(np.isin(data.planted, anchors).mean())}


def inertia(X: np.ndarray, labels: np.ndarray) -> float:
    """Sum of squares about the means of the labels' clusters."""
    return float(sum(((part - part.mean(axis=0)) ** 2).sum() for part in (X[labels == j] for j in np.unique(labels))))


def _squares(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    return np.maximum(np.sum(A**2, axis=1)[:, None] + np.sum(B**2, axis=1) - 2 * A @ B.T, 0.0)


def likelihood(found: Fit, X: np.ndarray) -> Record:
    """Mean log-likelihood of some rows, of the methods that have one."""
    return {"scored": False} if found.score is None else {"scored": True, "likelihood": float(found.score(X))}


def cells(records: list[Record], names: tuple[str, ...], value: str) -> dict[tuple, dict[str, float]]:
    """Means of `value` by cell and method."""
    return {
        key: {name: mean([r[value] for r in rows]) for (name,), rows in group(cell, "method").items()}
        for key, cell in group([r for r in records if value in r], *names).items()
    }


def compare(
    records: list[Record],
    names: tuple[str, ...],
    value: str,
    peers: str | tuple[str, ...],
    margin: float,
    words: str,
    least: float | None = None,
) -> Check:
    """In every cell the library's mean is at least the best peer's less a margin."""
    peers = (peers,) if isinstance(peers, str) else peers
    what = peers[0] if len(peers) == 1 else "the best peer"
    lost, judged = [], 0
    for key, values in cells(records, names, value).items():
        others = [values[name] for name in peers if name in values]
        if MAIN not in values or not others or (least is not None and key[0] < least):
            continue
        judged += 1
        if values[MAIN] < max(others) - margin - 1e-9:
            lost.append(f"{' '.join(map(str, key))} ({values[MAIN]:.3f} < {max(others):.3f})")
    text = f"{len(lost)} of {judged} cells lost: {'; '.join(lost) or '-'}"
    return Check(f"{value} {words} {what}", text, not lost if judged else None)


def share_of_time(records: list[Record], rows: int, most: float) -> Check:
    must = f"in <= {most} of the time of k-means x10 from {rows:,} rows up (medians, run in turn)"
    shares = []
    for key, cell in group([r for r in records if r["rows"] >= rows], "set", "k").items():
        times = {name: np.median([r["seconds"] for r in rs]) for (name,), rs in group(cell, "method").items()}
        if MAIN in times and "kmeans x10" in times:
            shares.append((float(times[MAIN] / times["kmeans x10"]), key))
    if not shares:
        return Check(must, "not run", None)
    worst, (name, k) = max(shares)
    return Check(must, f"greatest share {worst:.2f} ({name}, k = {k})", worst <= most)
