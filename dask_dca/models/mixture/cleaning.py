"""What a sample's rows are worth: rows that differ, the resolution of features, rows far from all others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from dask_dca.models.kmeans import squared_distances

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Numbers = NDArray[np.intp]

__all__ = ["distinct_rows", "isolated_rows", "resolution", "spreads_of"]

_GAP: Final = 0.01  # quantile of the gaps between a feature's values that is taken for its resolution
_LEAST: Final = 1e-20  # of a feature's variance: no floor is lower
_REFERENCES: Final = 2048  # rows that distances are measured to
_NEIGHBOUR: Final = 3
_TIMES: Final = 4.0  # how much further than ordinary rows' an isolated row's neighbour is
_MOST_ISOLATED: Final = (0.02, 0.25)  # share of the rows: at most, and times 1 / k
_NORMAL_QUARTILES: Final = 1.35  # of a normal distribution are that many standard deviations apart
_PIECE: Final = 1024
_LEAST_SPREAD: Final = 1e-3  # of a feature's root mean square: units of exact sums are not finer
_SMALLEST_SQUARE: Final = 1e-290  # of a feature's spread: units of smaller ones' squares are not floats


def distinct_rows(rows: Floats) -> tuple[Numbers, Numbers]:
    """Find the rows that differ, by one random combination of their features.

    rows (n, p): rows. Returns first (m,): one of each; place (n,): which of these each row is.
    """
    line = np.random.default_rng(0).standard_normal(rows.shape[1])
    _, first, place = np.unique((rows * line).sum(axis=1), return_index=True, return_inverse=True)
    return first, place


def resolution(rows: Floats) -> Floats:
    """Find the least variance that each feature can have: that of rounding to its resolution.

    rows (n, p): rows. Returns (p,): gap**2 / 12, of a gap as small as one in a hundred between a feature's values; of
    features that are constant the mean variance, so that they tell nothing apart.
    """
    variances = rows.var(axis=0)
    mean = float(variances.mean())
    gaps = np.diff(np.sort(rows, axis=0), axis=0)
    gaps = np.sort(np.where(gaps > 0.0, gaps, np.inf), axis=0)  # those between different values first
    counts = np.isfinite(gaps).sum(axis=0)
    varies = np.flatnonzero(counts)
    floor = np.full(rows.shape[1], mean if mean > 0.0 else 1.0)
    small = gaps[(_GAP * (counts[varies] - 1)).astype(np.int64), varies]
    floor[varies] = np.maximum(small**2 / 12.0, _LEAST * variances[varies])
    return np.maximum(floor, np.finfo(np.float64).tiny)


def isolated_rows(rows: Floats, n_components: int, seed: int) -> NDArray[np.bool_]:
    """Find rows far from all others: noise, and no component of a mixture.

    A row is isolated where its third-nearest row, in features of equal quartiles, is four times as far as that of
    nearly all rows. None are where they are fewer than components, which may then be theirs, or more than noise is.
    rows (n, p): rows that differ. Returns (n,): which ones.
    """
    n, share = len(rows), min(_MOST_ISOLATED[0], _MOST_ISOLATED[1] / n_components)
    low, middle, high = np.quantile(rows, [0.25, 0.5, 0.75], axis=0)
    spreads = np.where(high > low, (high - low) / _NORMAL_QUARTILES, rows.std(axis=0))
    scaled = (rows - middle) / np.where(spreads > 0.0, spreads, np.inf)
    references = scaled[np.random.default_rng(seed).permutation(n)[:_REFERENCES]]
    rank = min(_NEIGHBOUR, len(references) - 1)
    nearest = np.empty(n)
    for start in range(0, n, _PIECE):
        squares = squared_distances(scaled[start : start + _PIECE], references)
        nearest[start : start + _PIECE] = np.partition(squares, rank, axis=1)[:, rank]
    far = nearest > _TIMES**2 * np.quantile(nearest, 1.0 - share)
    return far if n_components <= far.sum() <= share * n else np.zeros(n, dtype=bool)


def spreads_of(rows: Floats) -> Floats:
    """Take the spread of ordinary values in columns, none of them zero: what sums of rows are rounded by.

    rows (n, d): centred rows. Returns (d,): root mean squares, or the distance of the quartiles where that is less, as
    far values must not make sums of the others coarse.
    """
    low, high = np.quantile(rows, [0.25, 0.75], axis=0)
    own = (rows**2).mean(axis=0)
    squares = np.where(high > low, np.clip((high - low) ** 2, _LEAST_SPREAD**2 * own, own), own)
    mean = float(squares.mean())
    return np.sqrt(np.where(squares > _SMALLEST_SQUARE, squares, mean if mean > 0.0 else 1.0))
