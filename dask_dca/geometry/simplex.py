"""Least squares over the simplex for very many targets of few coordinates, by accelerated projected gradients.

Active sets (`geometry.active_set`) are exact, and slow where tens of vertices lie close together. Here a fixed number
of steps gives topics to three digits, which is more than counts of words can tell.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Reals = NDArray[np.floating]

__all__ = ["SLAB_ROWS", "onto_simplex", "simplex_descent"]

SLAB_ROWS: Final = 2048  # targets that go down side by side: parts of that many rows have the bits of the whole
_NEWTON: Final = 20  # at most; three or four are the rule
_STILL: Final = 1e-6  # coefficients that move less than this in a step are done


def onto_simplex(columns: Reals) -> Reals:
    """Project columns (k, n) on the probability simplex; sums over the first axis run along contiguous memory.

    The threshold is the root of a convex piecewise linear function, which Newton's method finds in a few steps from the
    left (Michelot, Journal of Optimization Theory and Applications 50, 1986).
    """
    threshold = (columns.sum(axis=0) - 1.0) / len(columns)
    for _ in range(_NEWTON):
        above = columns > threshold
        kept = (columns * above).sum(axis=0)
        moved = (kept - 1.0) / np.maximum(above.sum(axis=0), 1)
        if np.all(moved <= threshold):
            break
        threshold = np.maximum(moved, threshold)
    return np.maximum(columns - threshold, 0.0)


def simplex_descent(targets: Floats, vertices: Floats, start: Floats | None = None, n_steps: int = 200) -> Floats:
    """Minimise |r_i - b_i V|^2 over the simplex for every target r_i, in Gram form and single precision.

    targets (n, d): rows R; vertices (k, d): vertices V; start (n, k): coefficients to start from; the centre by
    default; n_steps: steps of Nesterov's method, at most. Returns (n, k): coefficients B, rows on the simplex.
    A. Beck, M. Teboulle, "A fast iterative shrinkage-thresholding algorithm for linear inverse problems", SIAM Journal
    on Imaging Sciences 2, 2009.
    """
    centre = vertices.mean(axis=0)
    spread = vertices - centre
    gram = spread @ spread.T
    curvature = max(float(np.linalg.eigvalsh(gram)[-1]), 1e-300)
    gram = (gram / curvature).astype(np.float32)
    B = np.full((len(targets), len(vertices)), 1.0 / len(vertices)) if start is None else start.copy()
    for begin in range(0, len(targets), SLAB_ROWS):
        part = slice(begin, begin + SLAB_ROWS)
        products = (spread @ (targets[part] - centre).T / curvature).astype(np.float32)
        B[part] = _descend(np.ascontiguousarray(B[part].T, dtype=np.float32), gram, products, n_steps).T
    return B


def _descend(B: Reals, gram: Reals, products: Reals, n_steps: int) -> Reals:
    """Accelerated steps of length one on columns of curvature one, begun anew where they overshoot."""
    ahead, pace = B, 1.0
    for _ in range(n_steps):
        moved = onto_simplex(ahead - gram @ ahead + products)
        step = moved - B
        if np.abs(step).max(initial=0.0) < _STILL:
            return moved
        if float(((ahead - moved) * step).sum()) > 0.0:  # going uphill: O'Donoghue and Candes' restart
            pace = 1.0
        faster = 0.5 * (1.0 + math.sqrt(1.0 + 4.0 * pace**2))
        ahead = moved + np.float32((pace - 1.0) / faster) * step
        B, pace = moved, faster
    return B
