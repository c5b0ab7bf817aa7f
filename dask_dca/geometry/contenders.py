"""Which rows may be extreme, judged by approximate places: no other row can win or tie."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dask_dca.geometry.extremes import LONGEST, rising

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from dask_dca.geometry.extremes import Extremes

    Floats = NDArray[np.float64]
    Singles = NDArray[np.float32]

__all__ = ["contenders"]

_TILE: Final = 256  # rows, and
_GROUP: Final = 1024  # directions, whose heights are held at once
_FEW: Final = 0.25  # of the rows are tall enough for half of the directions: it pays to look at few of these at a time
_SHARES: Final = (
    1 / 8,
    1 / 2,
    1.0,
)  # of the directions, up to the end of each group: products of few directions are slow
_ODD: Final = 4.0  # times the median margin: a row with more is looked at, so that the others have a small one


def contenders(found: Extremes, positions: NDArray[Any], margins: Floats, directions: Singles) -> NDArray[np.intp]:
    """
    Tell which rows may win or tie, from their approximate places; no other row can.

    Parameters
    ----------
    found : Extremes
        The extremes so far.
    positions : ndarray of float32 or float64, shape (n, d)
        Approximate places.
    margins : ndarray of float64, shape (n,)
        Bounds on their errors, as lengths; infinite where there is none.
    directions : ndarray of float32, shape (s, d)
        The integer directions.

    Returns
    -------
    ndarray of intp, shape (m,)
        Indices of the rows to look at exactly, increasing.
    """
    s, d = directions.shape
    upper, lower = found.heights[:s], found.heights[s:]
    rounding = (d + 8) * 2.0**-23
    with np.errstate(invalid="ignore", over="ignore"):
        lengths = np.sqrt(np.vecdot(positions, positions).astype(np.float64)) * (1.0 + rounding)
    # not a row that is too short for the lowest bar; nan is
    alive = ~((lengths + margins) * LONGEST < np.minimum(upper, lower).min(initial=np.inf))
    usual = alive & np.isfinite(margins)
    if usual.any():
        usual &= margins <= _ODD * np.median(margins[usual])
    wanted, tried = alive & ~usual, np.flatnonzero(usual)
    if len(tried):
        near = (positions if len(tried) == len(positions) else positions[tried]).astype(np.float32, copy=False)
        reach = lengths[tried]
        # of a height: the error of its place, and that of its sum
        slack = float(margins[tried].max() + reach.max() * rounding) * LONGEST
        wanted[tried[_reaching(near, reach * LONGEST, directions, upper, lower, slack)]] = True
    return np.flatnonzero(wanted)


def _reaching(
    near: Singles, reach: Floats, directions: Singles, upper: Floats, lower: Floats, slack: float
) -> NDArray[np.bool_]:
    """Rows whose height may be at least that of the highest, or at most that of the lowest, on some direction."""
    wanted = np.zeros(len(near), dtype=np.bool_)
    for group, bar in _groups(np.minimum(upper, lower) - 2.0 * slack, reach):
        tall = np.flatnonzero(reach >= bar)
        if not len(tall):
            continue
        some, rows = directions[group], near if len(tall) == len(near) else near[tall]
        tops, bottoms = _tile_extremes(rows, some)
        # the highest row reaches at least this much, and may seem lower by the slack
        high = np.maximum(upper[group], tops.max(axis=0).astype(np.float64) - slack) - slack
        low = np.maximum(lower[group], -bottoms.min(axis=0).astype(np.float64) - slack) - slack
        for tile, top, bottom in zip(_tiles(len(rows)), tops, bottoms, strict=True):
            high_in, low_in = top >= high, bottom <= -low
            if high_in.any():
                wanted[tall[tile]] |= (rows[tile] @ some[high_in].T >= high[high_in]).any(axis=1)
            if low_in.any():
                wanted[tall[tile]] |= (rows[tile] @ some[low_in].T <= -low[low_in]).any(axis=1)
    return wanted


def _groups(bars: Floats, reach: Floats) -> Iterator[tuple[NDArray[np.intp], float]]:
    """Directions that are looked at together, and the lowest bar among them; by rising bars where that spares rows."""
    spares = (reach >= np.median(bars)).mean() <= _FEW
    for group in rising(bars, _SHARES) if spares else [np.arange(len(bars))]:
        for some in (group[begin : begin + _GROUP] for begin in range(0, len(group), _GROUP)):
            yield some, float(bars[some].min())


def _tile_extremes(near: Singles, directions: Singles) -> tuple[Singles, Singles]:
    """Greatest and least height of each tile of rows on each direction."""
    count = -(-len(near) // _TILE)
    tops, bottoms = np.empty((2, count, len(directions)), dtype=np.float32)
    heights = np.empty((min(_TILE, len(near)), len(directions)), dtype=np.float32)
    for i, tile in enumerate(_tiles(len(near))):
        some = near[tile]
        np.matmul(some, directions.T, out=heights[: len(some)])
        np.max(heights[: len(some)], axis=0, out=tops[i])
        np.min(heights[: len(some)], axis=0, out=bottoms[i])
    return tops, bottoms


def _tiles(n: int) -> Iterator[slice]:
    return (slice(begin, min(begin + _TILE, n)) for begin in range(0, n, _TILE))
