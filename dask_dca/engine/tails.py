"""The divide pass of a mixture: tails of rows along random directions of their signatures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dask_dca.engine.merges import add_parts
from dask_dca.engine.passes import Pass, run_pass
from dask_dca.engine.scaling import scaled_tiles
from dask_dca.engine.tiles import tile_height
from dask_dca.geometry.arg_best import ArgBest
from dask_dca.geometry.exact import Total, power_of_two, weighted_total

if TYPE_CHECKING:
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
    extremes : ArgBest of shape (2 s,)
        The rows of greatest height, with their coordinates (2 s, d).
    sums : Total of shape (2 s, d + 1)
        Sum of the coordinates of the rows beyond the threshold, and their number.
    """

    extremes: ArgBest
    sums: Total

    def __add__(self, other: Tails) -> Tails:
        return Tails(self.extremes + other.extremes, self.sums + other.sums)

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
        return np.where(counts > 0.0, sums[:, :-1] / np.maximum(counts, 1.0), self.extremes.values)


@dataclass(frozen=True)
class _Directions:
    """Directions in the coordinates, and a threshold on each side of them."""

    scaling: Scaling
    height: int
    coordinates: Floats  # (p, d)
    offset: Floats  # (d,)
    spreads: Floats  # (d,)
    axes: Floats  # (s, d)
    low: Floats  # (s,)
    high: Floats  # (s,)


def tail_means(
    rows: Rows,
    scaling: Scaling,
    coordinates: Floats,
    offset: Floats,
    spreads: Floats,
    axes: Floats,
    low: Floats,
    high: Floats,
    run: Run,
) -> Tails:
    """
    Look along directions, both ways, for the rows furthest out: the divide pass.

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
    axes : ndarray of float64, shape (s, d)
        Directions.
    low, high : ndarray of float64, shape (s,)
        Heights at and below which, at and above which, a row belongs to a tail.
    run : Run
        How passes are run.

    Returns
    -------
    Tails
        Of all rows: along the directions, then against them.
    """
    height = tile_height(rows.n_rows, rows.n_features)
    state = _Directions(scaling, height, coordinates, offset, spreads, axes, low, high)
    return run_pass(rows, Pass("divide", _tail_block, add_parts), state, run)


def _tail_block(state: _Directions, start: int, *columns: Any) -> Tails:
    units = np.append(_FINE * power_of_two(state.spreads), 1.0)
    s, d = state.axes.shape
    nothing = weighted_total(np.zeros((0, 2 * s)), np.zeros((0, d + 1)), units, weight_bits=0)
    found = [Tails(ArgBest.nobody(2 * s, d), nothing)]
    for numbers, tile in scaled_tiles(state.scaling, state.height, start, columns):
        n = len(numbers)
        seen = tile @ state.coordinates - state.offset
        heights = (state.axes @ seen.T)[:, :n]
        extremes = ArgBest.of_rows(np.concatenate([heights, -heights]).T, numbers, seen[:n])
        beyond = np.concatenate([heights >= state.high[:, None], heights <= state.low[:, None]]).T
        sums = weighted_total(beyond, np.hstack([seen[:n], np.ones((n, 1))]), units, weight_bits=0)
        found.append(Tails(extremes, sums))
    return add_parts(found)
