"""Batched least squares for the baselines: all rows at once, in Gram form, never an n x p residual.

The problem is always min_H |X - H B|^2 with G = B B^T (k, k) and C = B X^T (k, n); H^T (k, n) is returned.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable


def nonnegative(
    G: np.ndarray, C: np.ndarray, start: np.ndarray | None = None, sweeps: int = 200, tol: float = 1e-6
) -> np.ndarray:
    """H >= 0 by exact coordinate descent (HALS; Cichocki & Phan 2009)."""
    H = np.zeros_like(C) if start is None else start.copy()
    scale = np.linalg.norm(C) / max(np.linalg.norm(G), 1e-300)
    for _ in range(sweeps):
        change = 0.0
        for j in range(len(G)):
            new = np.maximum(H[j] + (C[j] - G[j] @ H) / max(G[j, j], 1e-300), 0)
            change = max(change, float(np.linalg.norm(new - H[j])))
            H[j] = new
        if change <= tol * scale:
            break
    return H


def projected(
    G: np.ndarray,
    C: np.ndarray,
    project: Callable[[np.ndarray], np.ndarray],
    start: np.ndarray | None = None,
    steps: int = 200,
    tol: float = 1e-6,
) -> np.ndarray:
    """H^T with columns in the set of `project`, by accelerated projected gradients (FISTA with restarts)."""
    H = project(np.zeros_like(C)) if start is None else start.copy()
    step = 1 / max(np.linalg.eigvalsh(G)[-1], 1e-300)
    Y, t = H, 1.0
    first = None
    for _ in range(steps):
        new = project(Y - step * (G @ Y - C))
        change = float(np.linalg.norm(new - H))
        first = change if first is None else first
        restart = np.vdot(Y - new, new - H) > 0
        t_new = 1.0 if restart else (1 + np.sqrt(1 + 4 * t * t)) / 2
        Y = new + (0.0 if restart else (t - 1) / t_new) * (new - H)
        H, t = new, t_new
        if change <= tol * first:
            break
    return H


def subsimplex(H: np.ndarray) -> np.ndarray:
    """Nearest points (columns) with non-negative entries and sums of at most one."""
    P = np.maximum(H, 0)
    over = P.sum(axis=0) > 1
    if over.any():
        P[:, over] = simplex(H[:, over])
    return P


def simplex(H: np.ndarray) -> np.ndarray:
    """Nearest columns on the simplex: subtract a threshold found by sorting (Held, Wolfe & Crowder 1974)."""
    ordered = -np.sort(-H, axis=0)
    excess = (np.cumsum(ordered, axis=0) - 1) / np.arange(1, len(H) + 1)[:, None]
    last = np.count_nonzero(ordered > excess, axis=0) - 1
    return np.maximum(H - np.take_along_axis(excess, last[None], axis=0), 0)


def residual_energy(energy: np.ndarray, G: np.ndarray, C: np.ndarray, H: np.ndarray) -> np.ndarray:
    """|x_i - h_i B|^2 for all rows, from |x_i|^2."""
    return np.maximum(energy - 2 * np.einsum("kn,kn->n", H, C) + np.einsum("kn,kn->n", H, G @ H), 0)
