"""Coefficients of rows on given rays, block by block, and what they leave out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dask_dca.engine.checks import Census, clip_rounding, require_squares
from dask_dca.engine.tiles import tiles
from dask_dca.geometry.cone import nonnegative_coefficients

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = ["coefficients_block", "exponent", "residual_block"]


def exponent(components: Floats) -> int:
    """
    Return the unit that least squares are solved in, where squares are in range.

    Parameters
    ----------
    components : ndarray of shape (k, p)
        Rays, not all of them zero.

    Returns
    -------
    int
        Binary exponent of their greatest entry.

    Examples
    --------
    >>> exponent(np.array([[3.0, 1.0]]))
    2
    """
    return int(np.frexp(float(np.abs(components).max()))[1])


def _in_units(components: Floats, start: int, columns: Sequence[Any]) -> Iterator[tuple[Floats, Floats]]:
    """Tiles and components in float64, both in the components' unit."""
    unit = -exponent(components)
    basis = np.ldexp(components.astype(np.float64), unit)
    for numbers, tile in tiles(columns, start, copy=False):
        require_squares(tile, numbers, unit=float(np.ldexp(1.0, -unit)))
        yield np.ldexp(clip_rounding(tile, numbers, Census()), unit), basis


def coefficients_block(components: Floats, start: int, *columns: Any) -> Floats:
    """
    Express the rows of a block as non-negative combinations of rays.

    Parameters
    ----------
    components : ndarray of shape (k, p)
        The rays.
    start : int
        Row number of the block's first row.
    *columns : array-like
        The block's column chunks.

    Returns
    -------
    ndarray of float64, shape (n, k)
        The coefficients.
    """
    found = [nonnegative_coefficients(tile, basis) for tile, basis in _in_units(components, start, columns)]
    return np.concatenate([np.zeros((0, len(components))), *found])


def residual_block(components: Floats, start: int, *columns: Any) -> float:
    """
    Sum the squares that the combinations of rays leave out of a block.

    Parameters
    ----------
    components, start, *columns : ndarray, int and array-like
        As `coefficients_block` takes them.

    Returns
    -------
    float
        The sum, in the square of the unit that `exponent` tells.
    """
    total = 0.0
    for tile, basis in _in_units(components, start, columns):
        total += float(((tile - nonnegative_coefficients(tile, basis) @ basis) ** 2).sum())
    return total
