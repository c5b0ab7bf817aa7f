"""The divide step's kernel: which row is extreme in each direction, and the one rule of which row is best.

Positions and directions are integers whose products stay below 2**53, so heights are exact and equal rows tie
exactly. The tie rule is: the greater height, then the lower row number. Merging is associative and commutative.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from dask_dca.geometry.arrays import Floats, Numbers


NOBODY: Final = np.iinfo(np.int64).max  # the row number where no row was seen: any row is lower


def beats(keys: Floats, rows: Numbers, old_keys: Floats, old_rows: Numbers) -> NDArray[np.bool_]:
    """Tell where new rows are better than old ones: by a greater key, among equals by a lower number.

    keys, old_keys: what rows are compared by; rows, old_rows: their numbers, of the same shape. Returns true where the
    new one wins.
    """
    return (keys > old_keys) | ((keys == old_keys) & (rows < old_rows))


@dataclass(frozen=True)
class ArgBest:
    """The best row in each of several respects; the sum of two is the best of both.

    keys: the greatest key in each respect; -inf where no row was seen; rows: the row that has it, of the same shape;
    `NOBODY` where no row was seen; values: what comes along with each row, one axis more; of width zero where nothing
    does.
    """

    keys: Floats
    rows: Numbers
    values: Floats

    @classmethod
    def nobody(cls, shape: int | tuple[int, ...], width: int = 0) -> ArgBest:
        """Return the neutral element of the sum.

        width: of the values that come along.
        """
        keys = np.full(shape, -np.inf)
        return cls(keys, np.full(shape, NOBODY), np.zeros((*keys.shape, width)))

    @classmethod
    def of_rows(cls, keys: Floats, numbers: Numbers, values: Floats | None = None) -> ArgBest:
        """Find the best of some rows in each respect.

        keys (n, ...): keys of the rows, n > 0; NaN and -inf where a row does not count; numbers (n,): their numbers, in
        increasing order; values (n, w): what comes along with each. Returns of the keys' further axes.
        """
        known = np.where(np.isnan(keys), -np.inf, keys)
        where = known.argmax(axis=0)
        best = np.take_along_axis(known, where[None], axis=0)[0]
        there = best > -np.inf
        values = np.zeros((len(numbers), 0)) if values is None else values
        return cls(best, np.where(there, numbers[where], NOBODY), np.where(there[..., None], values[where], 0.0))

    @property
    def found(self) -> Numbers:
        """Row numbers, -1 where no row was seen."""
        return np.where(self.rows == NOBODY, -1, self.rows)

    def __add__(self, other: ArgBest) -> ArgBest:
        wins = beats(other.keys, other.rows, self.keys, self.rows)
        return ArgBest(
            np.where(wins, other.keys, self.keys),
            np.where(wins, other.rows, self.rows),
            np.where(wins[..., None], other.values, self.values),
        )


_DIRECTION_BITS: Final = 20
_TILE: Final = 512  # rows whose heights are held at once
LONGEST: Final = 2.0**_DIRECTION_BITS  # no integer direction is longer
_SHARES: Final = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0)  # of the directions, by height, up to the end of each group


def integer_directions(directions: Floats) -> Floats:
    """Round unit directions to integers, so that heights are exact.

    directions (s, d): unit vectors. Returns (s, d): integers; the vectors have a length of about 2**20.
    """
    return np.rint(directions * (2.0**_DIRECTION_BITS - 2.0**4))


def extremes(positions: Floats, numbers: Numbers, directions: Floats, best: ArgBest | None = None) -> ArgBest:
    """Find the rows of greatest and of least height in each direction.

    positions (n, d): integer positions of rows, in increasing order of their numbers; numbers (n,): the rows' numbers;
    directions (s, d): as `integer_directions` returns them; best: what other rows gave, to go on from. Returns (2 s,):
    heights on the directions and against them, and what comes along are the rows' positions (2 s, d).
    """
    best = ArgBest.nobody(2 * len(directions), directions.shape[1]) if best is None else best
    found = ArgBest(best.keys.copy(), best.rows.copy(), best.values.copy())
    lengths = np.sqrt((positions**2).sum(axis=1)) * LONGEST
    for start in range(0, len(positions), _TILE):
        part = slice(start, start + _TILE)
        _update(found, positions[part], numbers[part], directions, lengths[part])
    return found


def _update(found: ArgBest, positions: Floats, numbers: Numbers, directions: Floats, reach: Floats) -> None:
    """Let the rows of a tile compete, in place; a row is tried only where it is long enough to win or tie."""
    s = len(directions)
    lower = np.minimum(found.keys[:s], found.keys[s:])
    for group in rising(lower):
        tall = np.flatnonzero(reach >= lower[group[0]])
        if not len(tall):
            return  # the other directions have greater heights still
        _compete(found, positions[tall], numbers[tall], directions[group], group)


def rising(bars: Floats, shares: Sequence[float] = _SHARES) -> Iterator[NDArray[np.intp]]:
    """Group directions by the height that a row must have to count there, the lowest first.

    bars (s,): the heights; shares: of all directions, up to the end of each group; the last is one. Returns which
    directions, by rising bars: few at first, where many rows count.
    """
    order = np.argsort(bars)
    begin = 0
    for share in shares:
        end = int(np.ceil(share * len(bars)))
        if end > begin:
            yield order[begin:end]
        begin = end


def _compete(found: ArgBest, positions: Floats, numbers: Numbers, directions: Floats, group: NDArray[np.intp]) -> None:
    heights = directions @ positions.T
    every = np.arange(len(group))
    for where, sign, place in (
        (heights.argmax(axis=1), 1.0, 0),
        (heights.argmin(axis=1), -1.0, len(found.rows) // 2),
    ):
        height, row, at = sign * heights[every, where], numbers[where], group + place
        wins = np.flatnonzero(beats(height, row, found.keys[at], found.rows[at]))
        at = at[wins]
        found.keys[at] = height[wins]
        found.rows[at] = row[wins]
        found.values[at] = positions[where[wins]]
