"""From a block, as a task holds it, to float64 tiles small enough for the cache."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from scipy import sparse

from dask_dca.errors import InvalidInputError, NotFiniteError
from dask_dca.geometry.frame import scale_in_place

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Numbers = NDArray[np.int64]

__all__ = [
    "Census",
    "Reading",
    "clip_rounding",
    "count_unusable",
    "even_tiles",
    "require_finite",
    "tile_height",
    "tiles",
    "usable_tiles",
]

_TILE_ENTRIES: Final = 2**18  # 2 MiB of float64
_MAX_TILE_ROWS: Final = 1024
_EVEN_ROWS: Final = 64  # heights of even tiles are multiples of this: no kernel of a BLAS has a remainder
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


def tiles(
    columns: Sequence[Any], start: int, only: Numbers | None = None, *, copy: bool = True
) -> Iterator[tuple[Numbers, Floats]]:
    """
    Cut a block of rows into float64 tiles.

    Parameters
    ----------
    columns : sequence of ndarray or sparse matrix or array, each of shape (n, p_j)
        The block's column chunks, side by side; a tile is put together, the block never is.
    start : int
        Row number of the block's first row.
    only : ndarray of int64, optional
        Sorted row numbers to restrict the tiles to; all rows if None.
    copy : bool, default True
        False allows views of the block, which must not be written to.

    Yields
    ------
    numbers : ndarray of int64, shape (m,)
        Row numbers, increasing.
    tile : ndarray of float64, shape (m, p)
        These rows, C-contiguous.
    """
    parts = [_readable(part) for part in columns]
    n, p = parts[0].shape[0], sum(part.shape[1] for part in parts)
    numbers = np.arange(start, start + n, dtype=np.int64)
    if only is not None:
        numbers = only[(only >= start) & (only < start + n)]
    ready = not copy and only is None and len(parts) == 1 and _is_plain(parts[0])
    step = int(np.clip(_TILE_ENTRIES // max(p, 1), 16, _MAX_TILE_ROWS))
    for begin in range(0, len(numbers), step):
        chosen = numbers[begin : begin + step]
        if ready:
            yield chosen, parts[0][begin : begin + step]
            continue
        tile = np.empty((len(chosen), p))
        _fill(tile, parts, chosen - start)
        yield chosen, tile


def tile_height(n_rows: int, n_features: int) -> int:
    """
    Choose the height of even tiles, by the shape of the whole matrix alone.

    Parameters
    ----------
    n_rows, n_features : int
        Shape of the whole matrix, not of a block.

    Returns
    -------
    int
        A multiple of 64.

    Examples
    --------
    >>> tile_height(400, 12), tile_height(10**6, 50), tile_height(10**6, 10_000)
    (448, 1024, 64)
    """
    rows = min(_TILE_ENTRIES // max(n_features, 1), _MAX_TILE_ROWS, max(n_rows, 1))
    return _EVEN_ROWS * max(1, -(-rows // _EVEN_ROWS))


def even_tiles(columns: Sequence[Any], start: int, height: int) -> Iterator[tuple[Numbers, Floats]]:
    """
    Cut a block into float64 tiles of one height, the last one filled up with rows of zeros.

    Matrix products of tiles of one shape treat every row alike, so a row's product has the same bits wherever
    blocks are cut. (Products of tiles of other heights may take other kernels, which round differently.)

    Parameters
    ----------
    columns, start : sequence and int
        As `tiles` takes them.
    height : int
        Rows of a tile, from `tile_height`.

    Yields
    ------
    numbers : ndarray of int64, shape (m,)
        Row numbers of the tile's first m rows; the others are zeros.
    tile : ndarray of float64, shape (height, p)
        The rows; not to be written to.
    """
    parts = [_readable(part) for part in columns]
    n, p = parts[0].shape[0], sum(part.shape[1] for part in parts)
    plain = len(parts) == 1 and _is_plain(parts[0])
    for begin in range(0, n, height):
        count = min(height, n - begin)
        numbers = np.arange(start + begin, start + begin + count, dtype=np.int64)
        if plain and count == height:
            yield numbers, parts[0][begin : begin + height]
            continue
        tile = np.zeros((height, p))
        _fill(tile[:count], parts, numbers - start)
        yield numbers, tile


def _readable(part: Any) -> Any:
    """Rows that can be sliced; masked entries become NaN, which has no place."""
    if sparse.issparse(part):
        return part.tocsr()
    return part.astype(np.float64).filled(np.nan) if np.ma.is_masked(part) else part


def _is_plain(part: Any) -> bool:
    return isinstance(part, np.ndarray) and part.dtype == np.float64 and part.flags.c_contiguous


def _fill(tile: Floats, parts: Sequence[Any], local: Numbers) -> None:
    whole = len(local) > 0 and local[-1] - local[0] + 1 == len(local)
    where = slice(int(local[0]), int(local[-1]) + 1) if whole else local
    left = 0
    for part in parts:
        right = left + part.shape[1]
        rows = part[where]
        tile[:, left:right] = rows.toarray() if sparse.issparse(rows) else rows
        left = right


def usable_tiles(
    columns: Sequence[Any], start: int, reading: Reading, census: Census, only: Numbers | None = None
) -> Iterator[tuple[Numbers, Floats]]:
    """
    Cut a block into tiles of rows scaled to height one; rows that have no place are counted and left out.

    Parameters
    ----------
    columns, start, only : sequence, int, ndarray of int64
        As `tiles` takes them.
    reading : Reading
        Reference axis and sign rule.
    census : Census
        Counts are added to it.

    Yields
    ------
    numbers : ndarray of int64, shape (m,)
        Numbers of the usable rows.
    scaled : ndarray of float64, shape (m, p)
        Their ratios to the reference axis.

    Raises
    ------
    NotFiniteError
        A row holds NaN or infinity.
    InvalidInputError
        A row holds a negative entry beyond rounding and `reading` refuses those.
    """
    for numbers, tile in tiles(columns, start, only):
        if reading.nonnegative:
            tile = clip_rounding(tile, numbers, census)
        usable = scale_in_place(tile, reading.axis)
        if usable.all():
            yield numbers, tile
            continue
        count_unusable(tile[~usable], numbers[~usable], census)
        if usable.any():
            yield numbers[usable], tile[usable]


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
    bad = ~np.isfinite(tile)
    if bad.any():
        row, column = (int(i) for i in np.argwhere(bad)[0])
        what = "NaN" if np.isnan(tile[row, column]) else "infinity"
        msg = (
            f"Input X contains {what}: row {numbers[row]}, column {column}; drop such rows first, for example "
            "X = X[np.isfinite(X).all(axis=1)]"
        )
        raise NotFiniteError(msg)
