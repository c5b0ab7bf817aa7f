"""Rows centred and scaled, in tiles of one height."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dask_dca.engine.checks import require_squares
from dask_dca.engine.tiles import even_tiles

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Numbers = NDArray[np.int64]

__all__ = ["Scaling", "scaled_tiles"]


@dataclass(frozen=True)
class Scaling:
    """
    How rows are centred and scaled before anything is looked for.

    Attributes
    ----------
    centre, factor : ndarray of float64, shape (p,)
        A row x becomes (x - centre) * factor.
    deviations : ndarray of float64, shape (p,)
        Standard deviations of the scaled features, none of them zero.
    """

    centre: Floats
    factor: Floats
    deviations: Floats

    def apply(self, rows: Floats) -> Floats:
        """
        Centre and scale rows.

        Parameters
        ----------
        rows : ndarray of float64, shape (n, p)
            Rows.

        Returns
        -------
        ndarray of float64, shape (n, p)
            The same, scaled.
        """
        return (rows - self.centre) * self.factor


def scaled_tiles(scaling: Scaling, height: int, start: int, columns: Sequence[Any]) -> Iterator[tuple[Numbers, Floats]]:
    """
    Cut a block into scaled tiles of one height.

    Parameters
    ----------
    scaling : Scaling
        How rows are scaled.
    height : int
        Rows of a tile.
    start : int
        Row number of the block's first row.
    columns : sequence
        The block's column chunks.

    Yields
    ------
    numbers : ndarray of int64, shape (n,)
        Row numbers.
    tile : ndarray of float64, shape (height, p)
        Scaled rows; those beyond n are no rows of the data.
    """
    for numbers, tile in even_tiles(columns, start, height):
        require_squares(tile, numbers)
        yield numbers, scaling.apply(tile)
