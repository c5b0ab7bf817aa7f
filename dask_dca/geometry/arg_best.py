"""The one rule of "which row is best": the greater key wins, and among equal keys the lower row number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Numbers = NDArray[np.int64]

__all__ = ["NOBODY", "ArgBest", "beats"]

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
