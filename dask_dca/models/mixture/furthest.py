"""The divide step of a mixture's first pass over all rows: the rows furthest out along many directions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dask_dca.geometry.arrays import Floats, Numbers
from dask_dca.geometry.votes import NO_ROW, ArgBest

_EXCLUDED_HEIGHTS: Final = (np.float32(-np.inf), np.float32(np.inf))  # of rows that count neither as highest nor lowest
_FLOAT32_ROUNDING: Final = 2.0**-23  # relative rounding error of each term of a float32 sum: twice the unit roundoff


@dataclass(frozen=True)
class TailDirections:
    """Directions along which the rows furthest out are sought.

    centre (p,), coordinates (p, d): a row x has coordinates (x - centre) @ coordinates; axes (s, d): the directions, in
    these coordinates.
    """

    centre: Floats
    coordinates: Floats
    axes: Floats


class FurthestRows:
    """The rows of greatest and of least height along each direction, among those added so far.

    Heights are compared in float32 first; rows within the rounding error of the best are compared again in float64.
    """

    def __init__(self, directions: TailDirections) -> None:
        self._directions = directions
        (s, d), lengths = directions.axes.shape, np.sqrt((directions.axes**2).sum(axis=1))
        self._float32_axes = directions.axes.astype(np.float32)
        self._tolerance = (d + 8) * _FLOAT32_ROUNDING * lengths
        self._heights, self._rows = np.full((2, s), -np.inf), np.full((2, s), NO_ROW)
        self._values = np.zeros((2, s, d))

    def add(self, tile: Floats, numbers: Numbers, included: NDArray[np.bool_] | None = None) -> None:
        """Add rows whose numbers are higher than all before.

        tile (h, p): all tiles have one height; the first n rows are those with these numbers, the rest is padding;
        included (n,): which rows take part, if not all.
        """
        places = ((tile - self._directions.centre) @ self._directions.coordinates)[: len(numbers)]
        reach = float(np.sqrt(np.square(places).sum(axis=1).max()))
        unit = reach if reach > 0.0 else 1.0
        heights = self._float32_axes @ np.ascontiguousarray((places / unit).T, dtype=np.float32)
        highest = lowest = heights
        if included is not None:
            highest, lowest = (np.where(included, heights, end) for end in _EXCLUDED_HEIGHTS)
        for side, best in enumerate((highest.max(axis=1), -lowest.min(axis=1))):
            known = self._heights[side] / unit
            improvable = np.flatnonzero(best + self._tolerance > known)
            if not len(improvable):
                continue
            threshold = np.maximum(best - 2.0 * self._tolerance, known - self._tolerance)[improvable, None]
            near = highest[improvable] >= threshold if side == 0 else lowest[improvable] <= -threshold
            self._compare(side, places, numbers, improvable, *np.nonzero(near))

    def _compare(
        self,
        side: int,
        places: Floats,
        numbers: Numbers,
        improvable: NDArray[np.intp],
        which: NDArray[np.intp],
        rows: NDArray[np.intp],
    ) -> None:
        """Compare float64 heights of a few rows with the best known, which they replace where they are greater.

        improvable: directions; which, rows: pairs of a place among these and a row, by direction, then by row.
        """
        chosen = improvable[which]
        heights = np.zeros(len(rows))
        # one coordinate after the other: a sum in fixed order, with the same bits for any tile
        for one, other in zip(self._directions.axes.T, places.T, strict=True):
            heights += one[chosen] * other[rows]
        heights *= 1.0 - 2.0 * side
        order = np.lexsort((rows, -heights, chosen))
        first = order[np.unique(chosen[order], return_index=True)[1]]
        better = first[heights[first] > self._heights[side, chosen[first]]]
        where = chosen[better]
        self._heights[side, where], self._rows[side, where] = heights[better], numbers[rows[better]]
        self._values[side, where] = places[rows[better]]

    def total(self) -> ArgBest:
        """Return the rows (2 s,), highest and then lowest, with their coordinates (2 s, d)."""
        return ArgBest(self._heights.ravel(), self._rows.ravel(), self._values.reshape(-1, self._values.shape[2]))
