"""How found anchors and endmembers are scored against the truth."""

from __future__ import annotations

import numpy as np
from scipy.optimize import linear_sum_assignment

from benchmarks.leastsquares import projected, simplex


def angles(found: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Degrees between every row of `found` and every row of `truth`."""
    a = found / np.maximum(np.linalg.norm(found, axis=1, keepdims=True), 1e-300)
    b = truth / np.maximum(np.linalg.norm(truth, axis=1, keepdims=True), 1e-300)
    return np.degrees(np.arccos(np.clip(a @ b.T, -1, 1)))


def match(cost: np.ndarray) -> np.ndarray:
    """For each row of the truth the row of `found` that belongs to it (least total cost)."""
    rows, columns = linear_sum_assignment(cost)
    return rows[np.argsort(columns)]


def recovery_error(found: np.ndarray, truth: np.ndarray) -> float:
    """Relative l2 error of the anchors, rows of sum one, best matching: |found - truth|_F / |truth|_F."""
    a, b = _sum_one(found), _sum_one(truth)
    squares = np.sum(a**2, axis=1)[:, None] + np.sum(b**2, axis=1) - 2 * a @ b.T
    rows, columns = linear_sum_assignment(squares)
    return float(np.linalg.norm(a[rows] - b[columns]) / np.linalg.norm(b))


def abundances(X: np.ndarray, endmembers: np.ndarray) -> np.ndarray:
    """Shares (n, k) on the simplex of each row's endmembers, by least squares."""
    G, C = endmembers @ endmembers.T, endmembers @ X.T
    return projected(G, C, simplex, steps=2000).T


def unmixing(X: np.ndarray, endmembers: np.ndarray, M: np.ndarray, A: np.ndarray) -> dict[str, float]:
    """Mean and worst spectral angle to the true endmembers M (k, p), RMSE to the true abundances A (n, k)."""
    degrees = angles(endmembers, M)
    order = match(degrees)
    best = degrees[order, np.arange(len(M))]
    shares = abundances(X, endmembers)[:, order]
    rmse = float(np.sqrt(np.mean((shares - A) ** 2)))
    return {"angle": float(best.mean()), "worst_angle": float(best.max()), "rmse": rmse}


def _sum_one(X: np.ndarray) -> np.ndarray:
    total = X.sum(axis=1, keepdims=True)
    return X / np.where(np.abs(total) > 1e-300, total, 1)
