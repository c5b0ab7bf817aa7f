"""Rows that stand furthest outside the subspace, and whether they agree on a direction.

What few rows hold, all in one place of the data, a sample may miss; the subspace then does not hold it, and the rows
that do stand outside. Noise, outliers and sensors that fail stand outside too: noise agrees on no direction, outliers
on none either, and a failing sensor is one of few features.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dask_dca.geometry.coordinates import ENTRY_BITS, heights, outside, ratios, scale_in_place

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dask_dca.geometry.coordinates import SubspaceCoordinates

    Floats = NDArray[np.float64]
    Numbers = NDArray[np.int64]

__all__ = ["MOST", "Outlying", "agree", "credence", "standing_outside"]

MOST: Final = 64  # rows that are kept
_LEAD: Final = 0.3  # of their residuals of length one, along one direction: noise has at most half of this
_ALONG: Final = 0.5  # of a row's residual, squared, along the leading direction: it is one of those that agree
_FEATURES: Final = 4.0  # that a material moves rows in, at least; a failing sensor is one
_LEAST: Final = 8  # rows that can agree


@dataclass(frozen=True)
class Outlying:
    """The rows of greatest score; the sum of two is those of both."""

    scores: Floats  # (c,) falling, ties by rising number
    numbers: Numbers  # (c,)
    rows: NDArray[Any]  # (c, p) as they were read

    @classmethod
    def nobody(cls, n_features: int, dtype: Any = np.float64) -> Outlying:
        """Return the neutral element of the sum."""
        return cls(np.zeros(0), np.zeros(0, dtype=np.int64), np.zeros((0, n_features), dtype))

    @property
    def bar(self) -> float:
        """The score that a row must exceed, or reach with a lower number."""
        return float(self.scores[-1]) if len(self.scores) == MOST else 0.0

    def without(self, numbers: Numbers) -> Outlying:
        """Leave out the rows of some numbers."""
        others = ~np.isin(self.numbers, numbers)
        return Outlying(self.scores[others], self.numbers[others], self.rows[others])

    def __add__(self, other: Outlying) -> Outlying:
        scores, numbers = np.concatenate([self.scores, other.scores]), np.concatenate([self.numbers, other.numbers])
        order = np.lexsort((numbers, -scores))
        new = np.ones(len(order), dtype=np.bool_)
        new[1:] = np.diff(numbers[order]) != 0  # a row has one score: its copies are neighbours
        order = order[new][:MOST]
        rows = self.rows if len(other.rows) == 0 else np.concatenate([self.rows, other.rows])
        return Outlying(scores[order], numbers[order], rows[order])


def credence(height: Floats, energy: Floats, typical: float) -> Floats:
    """Weight of a row's residual: what makes rows stand out without saying anything.

    height (n,): of the raw rows; energy (n,): their squared distances from the centre, in the frame's units; typical: a
    typical height. Returns (n,): squared: a low row's noise is magnified by scaling, and what is much further out than
    the others is an outlier.
    """
    near = np.minimum(1.0, 2.0 ** (2 * ENTRY_BITS) / np.maximum(energy, 1.0))
    return np.minimum(1.0, np.maximum(height, 0.0) / typical) ** 2 * near**2


def standing_outside(
    rows: NDArray[Any], numbers: Numbers, frame: SubspaceCoordinates, typical: float, dtype: Any
) -> Outlying:
    """Score rows by how far they stand outside the subspace, one feature of each left out: it may be a failing sensor.

    rows (n, p): as they were read; numbers (n,): their row numbers. Returns those of positive score: a row's is the
    same beside any others.
    """
    residuals, energy, height = _residuals(rows.astype(np.float64), frame)
    weight = credence(height, energy, typical)
    squares = residuals**2
    scores = (squares.sum(axis=1) - squares.max(axis=1)) * weight
    there = np.flatnonzero(scores > 0.0)
    return Outlying.nobody(rows.shape[1], dtype) + Outlying(scores[there], numbers[there], rows[there].astype(dtype))


def _residuals(rows: Floats, frame: SubspaceCoordinates) -> tuple[Floats, Floats, Floats]:
    """Residuals (n, p), exact, whole squared lengths (n,), and heights (n,), zero if unusable; overwrites the rows."""
    height = heights(rows, frame.axis)
    usable = scale_in_place(rows, frame.axis) & (height < np.inf)
    rows[~usable] = 0.0
    return *outside(rows, frame), np.where(usable, height, 0.0)


def agree(found: Outlying, frame: SubspaceCoordinates) -> bool:
    """Tell whether rows stand out in one direction of several features, as a material does.

    found: rows that stand furthest outside the frame's subspace.
    """
    if len(found.numbers) < _LEAST:
        return False
    residuals, _, _ = _residuals(found.rows.astype(np.float64), frame)
    unit = residuals / np.linalg.norm(residuals, axis=1, keepdims=True)
    _, leads, directions = np.linalg.svd(unit, full_matrices=False)
    along = (unit @ directions[0]) ** 2 > _ALONG
    if leads[0] ** 2 <= _LEAD * len(unit) or not along.any():
        return False
    shift = (ratios(found.rows[along], frame.axis)[0] * frame.gain - frame.offset).mean(axis=0)
    return min(_extent(directions[0]), _extent(shift)) >= _FEATURES


def _extent(direction: Floats) -> float:
    """How many features a direction extends over."""
    return float((direction**2).sum() ** 2 / (direction**4).sum())
