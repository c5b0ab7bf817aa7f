"""What a pass meets in the rows: entries that are not finite or negative, rows that can't be scaled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from dask_dca.errors import InvalidInputError, MissingEntriesError, NotFiniteError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Numbers = NDArray[np.int64]

__all__ = [
    "LEAST",
    "Reading",
    "RowCensus",
    "clip_rounding",
    "count_unusable",
    "out_of_range",
    "require_finite",
    "require_size",
    "require_squares",
]

GREATEST: Final = 2.0**504  # 5e151: of entries whose squares are summed
LEAST: Final = 2.0**-464  # 2e-140: of the greatest entry, for a millionth of its square, to some bits, is wanted too
_ROUNDING: Final = 1e-6  # negative entries up to this share of their row's peak are rounding, and clipped


@dataclass(frozen=True)
class Reading:
    """How rows are read: along which axis they are scaled, and whether negative entries are refused."""

    axis: Floats | None = None  # None: all ones
    nonnegative: bool = False


@dataclass
class RowCensus:
    """Counts of rows and entries that a pass met and could not use as they are."""

    zero_rows: int = 0
    behind_rows: int = 0  # not zero, yet without positive height along the axis
    clipped_entries: int = 0

    def __add__(self, other: RowCensus) -> RowCensus:
        return RowCensus(
            self.zero_rows + other.zero_rows,
            self.behind_rows + other.behind_rows,
            self.clipped_entries + other.clipped_entries,
        )


def count_unusable(tile: Floats, numbers: Numbers, census: RowCensus) -> None:
    """Count rows that can't be scaled.

    tile (m, p): such rows; numbers (m,): their numbers; census: counts are added to it.
    Raises NotFiniteError: A row holds NaN or infinity.
    """
    require_finite(tile, numbers)
    empty = ~tile.any(axis=1)
    census.zero_rows += int(empty.sum())
    census.behind_rows += int((~empty).sum())


def clip_rounding(tile: Floats, numbers: Numbers, census: RowCensus) -> Floats:
    """Set negative entries that are mere rounding to zero, and count them.

    tile (m, p): rows; numbers (m,): their numbers, for the message; census: the count is added to it. Returns (m, p):
    the tile itself where nothing is negative, else a clipped copy.
    Raises InvalidInputError: an entry is negative beyond rounding: below -1e-6 times its row's greatest magnitude.
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
            "model needs non-negative entries; shift or clip the data first, for example X = X.clip(0), or "
            "X.maximum(0) of a sparse matrix"
        )
        raise InvalidInputError(msg)
    census.clipped_entries += int((tile < 0.0).sum())
    return np.maximum(tile, 0.0)


def require_finite(tile: Floats, numbers: Numbers) -> None:
    """Raise an error that names the first entry which is not finite.

    tile (m, p): rows; numbers (m,): their numbers.
    Raises NotFiniteError: there is one.
    """
    finite = np.isfinite(tile)
    if not finite.all():
        row, column = (int(i) for i in np.argwhere(~finite)[0])
        missing = np.isnan(tile[row, column])
        what = "NaN" if missing else "infinity"
        msg = (
            f"Input X contains {what}: row {numbers[row]}, column {column}; drop such rows first, for example "
            "X = X[np.isfinite(X).all(axis=1)]"
        )
        raise MissingEntriesError(msg) if missing else NotFiniteError(msg)


def require_squares(tile: Floats, numbers: Numbers, *, missing: bool = False, unit: float = 1.0) -> None:
    """Raise an error that names the first entry whose square is no usable number: for models of second moments.

    tile (m, p): rows; numbers (m,): their numbers; there may be rows beyond these, which are no rows of the data; unit:
    what entries are divided by before they are squared.
    Raises NotFiniteError: an entry is not finite; InvalidInputError: one is too great.
    """
    if missing:
        _require_bounded(tile, numbers)
    else:
        require_finite(tile, numbers)
    most, least = (float(of.reduce(tile, axis=None, initial=0.0)) for of in (np.fmax, np.fmin))
    if max(most, -least) > GREATEST * unit:
        row, column = (int(i) for i in np.argwhere(np.abs(tile) > GREATEST * unit)[0])
        raise InvalidInputError(out_of_range(int(numbers[row]), column, float(tile[row, column])))


def require_size(sample: Floats, numbers: Numbers) -> None:
    """Raise an error that names the greatest entry of a sample if even its square vanishes.

    sample (m, p): rows; NaN where an entry is missing; numbers (m,): their numbers.
    Raises InvalidInputError: it does.
    """
    sizes = np.abs(np.where(np.isnan(sample), 0.0, sample))
    row, column = (int(i) for i in np.unravel_index(sizes.argmax(), sizes.shape))
    if 0.0 < sizes[row, column] < LEAST:
        raise InvalidInputError(out_of_range(int(numbers[row]), column, float(sample[row, column])))


def _require_bounded(tile: Floats, numbers: Numbers) -> None:
    infinite = np.isinf(tile)
    if infinite.any():
        row, column = (int(i) for i in np.argwhere(infinite)[0])
        msg = (
            f"Input X contains infinity: row {numbers[row]}, column {column}; mark missing entries as NaN, for "
            "example X[~np.isfinite(X)] = np.nan"
        )
        raise NotFiniteError(msg)


def out_of_range(row: int, column: int, value: float) -> str:
    """Say that numbers can't be squared, and what to do.

    Returns the message of an error.
    """
    which = "the greatest entry, " if abs(value) < 1.0 else ""
    return (
        f"row {row}, column {column} of X is {which}{value:.3g}: squares of such numbers are out of range; divide X "
        f"or this row by a number first, for example X = X / {abs(value):.0e}"
    )
