"""What a pass meets in the rows: entries that are not finite or negative, rows that can't be scaled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from dask_dca.errors import InvalidInputError, NotFiniteError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Numbers = NDArray[np.int64]

__all__ = ["Census", "Reading", "clip_rounding", "count_unusable", "require_finite"]

_ROUNDING: Final = 1e-6  # negative entries up to this share of their row's peak are rounding, and clipped


@dataclass(frozen=True)
class Reading:
    """How rows are read: along which axis they are scaled, and whether negative entries are refused."""

    axis: Floats | None = None  # None: all ones
    nonnegative: bool = False


@dataclass
class Census:
    """Counts of rows and entries that a pass met and could not use as they are."""

    zero_rows: int = 0
    behind_rows: int = 0  # not zero, yet without positive height along the axis
    clipped_entries: int = 0

    def __add__(self, other: Census) -> Census:
        return Census(
            self.zero_rows + other.zero_rows,
            self.behind_rows + other.behind_rows,
            self.clipped_entries + other.clipped_entries,
        )


def count_unusable(tile: Floats, numbers: Numbers, census: Census) -> None:
    """
    Count rows that can't be scaled.

    Parameters
    ----------
    tile : ndarray of float64, shape (m, p)
        Such rows.
    numbers : ndarray of int64, shape (m,)
        Their numbers.
    census : Census
        Counts are added to it.

    Raises
    ------
    NotFiniteError
        A row holds NaN or infinity.
    """
    require_finite(tile, numbers)
    empty = ~tile.any(axis=1)
    census.zero_rows += int(empty.sum())
    census.behind_rows += int((~empty).sum())


def clip_rounding(tile: Floats, numbers: Numbers, census: Census) -> Floats:
    """
    Set negative entries that are mere rounding to zero, and count them.

    Parameters
    ----------
    tile : ndarray of float64, shape (m, p)
        Rows.
    numbers : ndarray of int64, shape (m,)
        Their numbers, for the message.
    census : Census
        The count is added to it.

    Returns
    -------
    ndarray of float64, shape (m, p)
        The tile itself where nothing is negative, else a clipped copy.

    Raises
    ------
    InvalidInputError
        An entry is negative beyond rounding: below -1e-6 times its row's greatest magnitude.
    """
    if not tile.size or tile.min() >= 0.0:
        return tile
    require_finite(tile, numbers)
    beyond = tile.min(axis=1) < -_ROUNDING * np.abs(tile).max(axis=1)
    if beyond.any():
        row = int(np.flatnonzero(beyond)[0])
        column = int(tile[row].argmin())
        msg = (
            f"Negative values in data: row {numbers[row]}, column {column} is {tile[row, column]:.6g}, and this "
            "model needs non-negative entries; shift or clip the data first, for example X = X.clip(0)"
        )
        raise InvalidInputError(msg)
    census.clipped_entries += int((tile < 0.0).sum())
    return np.maximum(tile, 0.0)


def require_finite(tile: Floats, numbers: Numbers) -> None:
    """
    Raise an error that names the first entry which is not finite.

    Parameters
    ----------
    tile : ndarray of float64, shape (m, p)
        Rows.
    numbers : ndarray of int64, shape (m,)
        Their numbers.

    Raises
    ------
    NotFiniteError
        There is one.
    """
    finite = np.isfinite(tile)
    if not finite.all():
        row, column = (int(i) for i in np.argwhere(~finite)[0])
        what = "NaN" if np.isnan(tile[row, column]) else "infinity"
        msg = (
            f"Input X contains {what}: row {numbers[row]}, column {column}; drop such rows first, for example "
            "X = X[np.isfinite(X).all(axis=1)]"
        )
        raise NotFiniteError(msg)
