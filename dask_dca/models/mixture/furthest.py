"""The rows furthest out along directions, both ways: the divide step of a mixture, screened in single precision."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from dask_dca.geometry.arg_best import NOBODY, ArgBest

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Numbers = NDArray[np.int64]

__all__ = ["FurthestRows", "TailDirections"]

_ENDS: Final = (np.float32(-np.inf), np.float32(np.inf))
_ROUNDING: Final = 2.0**-23  # of a sum in single precision: its terms have twice that relative error, with room


@dataclass(frozen=True)
class TailDirections:
    """Directions in coordinates.

    centre (p,), coordinates (p, d): a row less the centre times these has its place; axes (s, d): the directions.
    """

    centre: Floats
    coordinates: Floats
    axes: Floats


class FurthestRows:
    """The rows furthest out among those that were looked at: along the directions, then against them."""

    def __init__(self, directions: TailDirections) -> None:
        self._directions = directions
        (s, d), lengths = directions.axes.shape, np.sqrt((directions.axes**2).sum(axis=1))
        self._single = directions.axes.astype(np.float32)
        self._doubt = (d + 8) * _ROUNDING * lengths
        self._keys, self._rows = np.full((2, s), -np.inf), np.full((2, s), NOBODY)
        self._values = np.zeros((2, s, d))

    def add(self, tile: Floats, numbers: Numbers, counts: NDArray[np.bool_] | None = None) -> None:
        """Look at rows of higher numbers than before.

        tile (h, p): rows, the first of them those with these numbers; the height is the same for every tile; counts
        (n,): which of them take part, if not all.
        """
        places = ((tile - self._directions.centre) @ self._directions.coordinates)[: len(numbers)]
        reach = float(np.sqrt(np.square(places).sum(axis=1).max()))
        unit = reach if reach > 0.0 else 1.0
        heights = self._single @ np.ascontiguousarray((places / unit).T, dtype=np.float32)
        highest, lowest = (heights, heights) if counts is None else (np.where(counts, heights, end) for end in _ENDS)
        for side, best in enumerate((highest.max(axis=1), -lowest.min(axis=1))):
            known = self._keys[side] / unit
            some = np.flatnonzero(best + self._doubt > known)
            if not len(some):
                continue
            bar = np.maximum(best - 2.0 * self._doubt, known - self._doubt)[some, None]
            near = highest[some] >= bar if side == 0 else lowest[some] <= -bar
            self._compare(side, places, numbers, some, *np.nonzero(near))

    def _compare(
        self,
        side: int,
        places: Floats,
        numbers: Numbers,
        some: NDArray[np.intp],
        which: NDArray[np.intp],
        rows: NDArray[np.intp],
    ) -> None:
        """Compare the exact heights of a few rows with the greatest; they are ordered by direction, then by row."""
        chosen = some[which]
        heights = np.zeros(len(rows))
        for one, other in zip(self._directions.axes.T, places.T, strict=True):  # in the same order for every row
            heights += one[chosen] * other[rows]
        heights *= 1.0 - 2.0 * side
        order = np.lexsort((rows, -heights, chosen))
        first = order[np.unique(chosen[order], return_index=True)[1]]
        better = first[heights[first] > self._keys[side, chosen[first]]]
        where = chosen[better]
        self._keys[side, where], self._rows[side, where] = heights[better], numbers[rows[better]]
        self._values[side, where] = places[rows[better]]

    def total(self) -> ArgBest:
        """Return the rows (2 s,), with their places (2 s, d)."""
        return ArgBest(self._keys.ravel(), self._rows.ravel(), self._values.reshape(-1, self._values.shape[2]))
