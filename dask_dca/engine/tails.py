"""The divide pass of a mixture: tails of rows along random directions of their signatures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dask_dca.engine.passes import Pass, run_pass
from dask_dca.engine.scaling import scaled_tiles
from dask_dca.engine.tiles import tile_height
from dask_dca.geometry.exact import Total, power_of_two, weighted_total

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from dask_dca.engine.passes import Run
    from dask_dca.engine.rows import Rows
    from dask_dca.engine.scaling import Scaling

    Floats = NDArray[np.float64]
    Numbers = NDArray[np.int64]

__all__ = ["Tails", "tail_means"]

_FINE: Final = 2.0**-14  # standard deviations: what sums are exact to


@dataclass(frozen=True)
class Tails:
    """
    What directions saw: on each of 2s signed directions, the rows beyond a threshold and the row furthest out.

    Attributes
    ----------
    heights : ndarray of float64, shape (2 s,)
        Greatest height.
    extremes : ndarray of int64, shape (2 s,)
        The row that has it, the first one among equals.
    places : ndarray of float64, shape (2 s, d)
        That row's coordinates.
    sums : Total of shape (2 s, d + 1)
        Sum of the coordinates of the rows beyond the threshold, and their number.
    """

    heights: Floats
    extremes: Numbers
    places: Floats
    sums: Total

    def means(self) -> Floats:
        """
        Average the rows beyond each threshold.

        Returns
        -------
        ndarray of float64, shape (2 s, d)
            Mean coordinates; the extreme row's own where no row is beyond.
        """
        sums = self.sums.value()
        counts = sums[:, -1:]
        return np.where(counts > 0.0, sums[:, :-1] / np.maximum(counts, 1.0), self.places)


@dataclass(frozen=True)
class _Directions:
    """Signed directions in the coordinates, and a threshold on each."""

    scaling: Scaling
    height: int
    coordinates: Floats  # (p, d)
    offset: Floats  # (d,)
    spreads: Floats  # (d,)
    directions: Floats  # (2 s, d)
    thresholds: Floats  # (2 s,)


def tail_means(
    rows: Rows,
    scaling: Scaling,
    coordinates: Floats,
    offset: Floats,
    spreads: Floats,
    directions: Floats,
    thresholds: Floats,
    run: Run,
) -> Tails:
    """
    Look along signed directions for the rows furthest out: the divide pass.

    Parameters
    ----------
    rows : Rows
        The data.
    scaling : Scaling
        How rows are scaled.
    coordinates, offset : ndarray of float64, shapes (p, d) and (d,)
        A scaled row y has coordinates y @ coordinates - offset.
    spreads : ndarray of float64, shape (d,)
        Standard deviations of the coordinates.
    directions : ndarray of float64, shape (2 s, d)
        Signed directions.
    thresholds : ndarray of float64, shape (2 s,)
        Heights from which on a row belongs to a tail.
    run : Run
        How passes are run.

    Returns
    -------
    Tails
        Of all rows.
    """
    height = tile_height(rows.n_rows, rows.n_features)
    state = _Directions(scaling, height, coordinates, offset, spreads, directions, thresholds)
    return run_pass(rows, Pass("divide", _tail_block, _merge_tails), state, run)


def _tail_block(state: _Directions, start: int, *columns: Any) -> Tails:
    units = np.append(_FINE * power_of_two(state.spreads), 1.0)
    s, d = state.directions.shape
    nothing = weighted_total(np.zeros((0, s)), np.zeros((0, d + 1)), units)
    found = [Tails(np.full(s, -np.inf), np.full(s, -1, dtype=np.int64), np.zeros((s, d)), nothing)]
    for numbers, tile in scaled_tiles(state.scaling, state.height, start, columns):
        n = len(numbers)
        seen = tile @ state.coordinates - state.offset
        heights = (seen @ state.directions.T)[:n]
        best = heights.argmax(axis=0)
        beyond = (heights >= state.thresholds).astype(np.float64)
        sums = weighted_total(beyond, np.hstack([seen[:n], np.ones((n, 1))]), units)
        found.append(Tails(heights[best, np.arange(s)], numbers[best], seen[best], sums))
    return _merge_tails(found)


def _merge_tails(parts: Sequence[Tails]) -> Tails:
    merged = parts[0]
    for part in parts[1:]:
        none = merged.extremes < 0
        tie = (part.heights == merged.heights) & (part.extremes < merged.extremes)
        better = (part.extremes >= 0) & (none | (part.heights > merged.heights) | tie)
        merged = Tails(
            np.where(better, part.heights, merged.heights),
            np.where(better, part.extremes, merged.extremes),
            np.where(better[:, None], part.places, merged.places),
            merged.sums + part.sums,
        )
    return merged
