"""Mean shift in one dimension, on histograms: cells around the modes of a smoothed density."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.ndimage import gaussian_filter1d

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Numbers = NDArray[np.int64]

__all__ = ["bandwidth", "mode_cells"]


def bandwidth(counts: Numbers) -> float:
    """
    Choose a bandwidth by Silverman's rule, 0.9 min(deviation, interquartile range / 1.34) n^(-1/5).

    Parameters
    ----------
    counts : ndarray of int64, shape (b,)
        Histogram.

    Returns
    -------
    float
        In bins, at least a half.

    Examples
    --------
    >>> bandwidth(np.array([0, 0, 5, 0, 0]))
    0.5
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
    """
    Give each bin the mode that mean shift leads to from it.

    In one dimension mean shift climbs the smoothed density, so the cells are the intervals between its minima.

    Parameters
    ----------
    counts : ndarray of int64, shape (b,)
        Histogram of angles.

    Returns
    -------
    ndarray of int64, shape (b,)
        Number of the cell, increasing along the bins.

    Notes
    -----
    Comaniciu and Meer, Mean shift: a robust approach toward feature space analysis, PAMI 24, 2002. The binned form
    is merged over blocks by adding histograms.

    Examples
    --------
    >>> mode_cells(np.array([0, 9, 0, 0, 0, 0, 9, 0]))
    array([0, 0, 0, 0, 1, 1, 1, 1])
    """
    density = gaussian_filter1d(counts.astype(np.float64), bandwidth(counts), mode="constant")
    slope = np.sign(np.diff(density))
    moving = np.flatnonzero(slope)
    turns = np.flatnonzero((slope[moving[:-1]] < 0.0) & (slope[moving[1:]] > 0.0))
    starts = np.zeros(len(counts), dtype=np.int64)
    starts[(moving[turns] + moving[turns + 1]) // 2 + 1] = 1  # the middle of what is flat between fall and rise
    return np.cumsum(starts)
