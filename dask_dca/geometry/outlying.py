"""Outlying rows: those furthest outside the subspace of a sample, and the direction that they have in common.

A sample can miss a component that only a few rows contain. The subspace fitted to the sample then lacks its direction,
and those rows have large residuals. So do noisy rows, outliers and rows with a failing sensor, but the residuals of
noise and of outliers have no direction in common, and those of a failing sensor are confined to one feature.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dask_dca.geometry.arrays import Floats, Numbers
from dask_dca.geometry.moments import (
    ENTRY_BITS,
    SubspaceCoordinates,
    heights,
    ratios,
    residual_rounding,
    scale_in_place,
    subspace_residuals,
)

MAX_OUTLYING_ROWS: Final = 64  # rows that an `Outlying` keeps
_MIN_ROWS: Final = 8  # fewer outlying rows determine no common direction
_MIN_SQUARED_COSINE: Final = 0.5  # of a residual to the leading direction, above which the row belongs to it
# share of the energy of the unit residuals along the leading direction above which it is common to them; half of it
# is enough where the ratio of the two greatest eigenvalues is above `_MIN_EIGENVALUE_RATIO`
_MIN_LEADING_SHARE: Final = 0.3
# ratio of the two greatest eigenvalues of the unit residuals; noise has about equal energy along both directions
_MIN_EIGENVALUE_RATIO: Final = 2.5
# standard deviations by which the squared length of the sum of unit residuals exceeds that of random signs
_ONE_SIDED_DEVIATIONS: Final = 6.0
_MIN_FEATURES: Final = 4.0  # effective number of features in which a component moves rows; a failing sensor is one


@dataclass(frozen=True)
class Outlying:
    """The rows with the greatest scores, at most `MAX_OUTLYING_ROWS`; the sum of two keeps the greatest of both."""

    scores: Floats  # (c,) decreasing; ties in order of row number
    numbers: Numbers  # (c,) row numbers
    rows: NDArray[Any]  # (c, p) unscaled

    @classmethod
    def empty(cls, n_features: int, dtype: Any = np.float64) -> Outlying:
        """Return the neutral element of the sum."""
        return cls(np.zeros(0), np.zeros(0, dtype=np.int64), np.zeros((0, n_features), dtype))

    @property
    def threshold(self) -> float:
        """The score that a further row must exceed, or equal with a lower row number."""
        return float(self.scores[-1]) if len(self.scores) == MAX_OUTLYING_ROWS else 0.0

    def without(self, numbers: Numbers) -> Outlying:
        """Return the outlying rows except those with the given row numbers."""
        others = ~np.isin(self.numbers, numbers)
        return Outlying(self.scores[others], self.numbers[others], self.rows[others])

    def __add__(self, other: Outlying) -> Outlying:
        scores, numbers = np.concatenate([self.scores, other.scores]), np.concatenate([self.numbers, other.numbers])
        order = np.lexsort((numbers, -scores))
        new = np.ones(len(order), dtype=np.bool_)
        new[1:] = np.diff(numbers[order]) != 0  # a row has one score, so its copies are adjacent
        order = order[new][:MAX_OUTLYING_ROWS]
        rows = self.rows if len(other.rows) == 0 else np.concatenate([self.rows, other.rows])
        return Outlying(scores[order], numbers[order], rows[order])


def residual_weights(height: Floats, energy: Floats, typical_height: float) -> Floats:
    """Weigh rows by how far their residuals can be trusted.

    height (n,): heights of the raw rows; energy (n,): squared distances of the scaled rows from the centre. Returns
    (n,): small for low rows, whose noise scaling magnifies, and for rows far beyond the others, which are outliers.
    """
    near = np.minimum(1.0, 2.0 ** (2 * ENTRY_BITS) / np.maximum(energy, 1.0))
    return np.minimum(1.0, np.maximum(height, 0.0) / typical_height) ** 2 * near**2


def find_outlying_rows(
    rows: NDArray[Any], numbers: Numbers, frame: SubspaceCoordinates, typical_height: float, dtype: Any
) -> Outlying:
    """Score rows by the squared length of their residuals outside the subspace, less the largest entry of each.

    The largest entry is left out because it may be that of a failing sensor.
    rows (n, p): unscaled rows; numbers (n,): their row numbers. Returns the rows whose residuals exceed rounding
    errors; the score of a row does not depend on the other rows.
    """
    residuals, energy, height = _residuals(rows.astype(np.float64), frame)
    weight = residual_weights(height, energy, typical_height)
    squares = residuals**2
    whole = squares.sum(axis=1)
    scores = np.where(whole > rounding_energy(frame), whole - squares.max(axis=1), 0.0) * weight
    kept = np.flatnonzero(scores > 0.0)
    return Outlying.empty(rows.shape[1], dtype) + Outlying(scores[kept], numbers[kept], rows[kept].astype(dtype))


def rounding_energy(frame: SubspaceCoordinates) -> float:
    """Squared length up to which a residual, or a bound on one, may consist of rounding errors."""
    return (2.0 * residual_rounding(frame)) ** 2


def _residuals(rows: Floats, frame: SubspaceCoordinates) -> tuple[Floats, Floats, Floats]:
    """Exact residuals (n, p), squared distances from the centre (n,), heights (n,), 0 if unusable; overwrites rows."""
    height = heights(rows, frame.axis)
    usable = scale_in_place(rows, frame.axis, frame.even) & (height < np.inf)
    rows[~usable] = 0.0
    return *subspace_residuals(rows, frame), np.where(usable, height, 0.0)


def common_direction(found: Outlying, frame: SubspaceCoordinates) -> Floats | None:
    """Find the direction that the residuals of outlying rows have in common, as rows with a missed component do.

    found: the rows furthest outside the subspace. Returns a unit vector (p,), None if there is no common direction.
    """
    if len(found.numbers) < _MIN_ROWS:
        return None
    residuals, _, _ = _residuals(found.rows.astype(np.float64), frame)
    unit = residuals / np.linalg.norm(residuals, axis=1, keepdims=True)
    _, singular_values, directions = np.linalg.svd(unit, full_matrices=False)
    first, second = singular_values[:2] ** 2
    aligned = (unit @ directions[0]) ** 2 > _MIN_SQUARED_COSINE
    least = _MIN_LEADING_SHARE * len(unit) * (0.5 if first > _MIN_EIGENVALUE_RATIO * second else 1.0)
    if first <= least or not aligned.any() or not _is_one_sided(unit, singular_values):
        return None
    scaled, _ = ratios(found.rows[aligned], frame.axis, frame.even)
    shift = (scaled * frame.gain - frame.offset).mean(axis=0)
    several = min(_effective_features(directions[0]), _effective_features(shift)) >= _MIN_FEATURES
    return directions[0] if several else None


def _is_one_sided(unit: Floats, singular_values: Floats) -> bool:
    """Whether unit vectors (n, p) point to one side, as a component that adds to rows does; noise points to both."""
    n, squared = len(unit), float((unit.sum(axis=0) ** 2).sum())
    return squared > n**2 / 2 or squared - n > _ONE_SIDED_DEVIATIONS * float(np.sqrt(2.0 * (singular_values**4).sum()))


def _effective_features(direction: Floats) -> float:
    """Effective number of features of a direction, the participation ratio of its squared entries."""
    return float((direction**2).sum() ** 2 / (direction**4).sum())
