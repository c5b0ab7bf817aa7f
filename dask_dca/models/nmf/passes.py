"""Coefficients of rows on given rays, block by block, and what they leave out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dask_dca.engine.checks import RowCensus, clip_rounding, require_squares
from dask_dca.engine.tiles import even_tiles, tile_height
from dask_dca.geometry.cone import nonnegative_coefficients
from dask_dca.geometry.exact import plain_total
from dask_dca.geometry.pieces import times

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from dask_dca.geometry.exact import Total

    Floats = NDArray[np.float64]

__all__ = ["coefficients_block", "combinations_block", "exponent", "residual_block"]

_ANY_N: Final = 2**20
_LEAST_SQUARE: Final = 2.0**-200  # far below what rounding leaves of a row


def exponent(components: Floats) -> int:
    """Return the unit that least squares are solved in, where squares are in range.

    components (k, p): rays, not all of them zero. Returns binary exponent of their greatest entry.
    """
    return int(np.frexp(float(np.abs(components).max()))[1])


def _in_units(components: Floats, start: int, columns: Sequence[Any]) -> Iterator[tuple[Floats, Floats]]:
    """Tiles and components in float64, both in the components' unit."""
    unit = -exponent(components)
    basis = np.ldexp(components.astype(np.float64), unit)
    for numbers, filled in even_tiles(columns, start, tile_height(_ANY_N, components.shape[1])):
        tile = filled[: len(numbers)]
        require_squares(tile, numbers, unit=float(np.ldexp(1.0, -unit)))
        yield np.ldexp(clip_rounding(tile, numbers, RowCensus()), unit), basis


def coefficients_block(components: Floats, start: int, *columns: Any) -> Floats:
    """Express the rows of a block as non-negative combinations of rays.

    components (k, p): the rays; start: row number of the block's first row. Returns (n, k): the coefficients; a row's
    have the same bits in any block.
    """
    found = [nonnegative_coefficients(tile, basis) for tile, basis in _in_units(components, start, columns)]
    return np.concatenate([np.zeros((0, len(components))), *found])


def combinations_block(components: Floats, start: int, *columns: Any) -> Floats:
    """Combine rays.

    components (k, p): the rays; start: row number of the block's first row; *columns: column chunks of the block's
    coefficients. Returns (n, p): the combinations; a row's have the same bits in any block.
    """
    basis, height = components.astype(np.float64), tile_height(_ANY_N, len(components))
    found = [times(tile[: len(numbers)], basis) for numbers, tile in even_tiles(columns, start, height)]
    return np.concatenate([np.zeros((0, components.shape[1])), *found])


def residual_block(components: Floats, start: int, *columns: Any) -> Total:
    """Sum the squares that the combinations of rays leave out of a block.

    Returns the sum, exact, in the square of the unit that `exponent` tells.
    """
    total = plain_total(np.zeros(0), _LEAST_SQUARE)
    for tile, basis in _in_units(components, start, columns):
        left = tile - times(nonnegative_coefficients(tile, basis), basis)
        total += plain_total((left**2).sum(axis=1), _LEAST_SQUARE)
    return total
