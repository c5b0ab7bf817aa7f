"""From a block, as a task holds it, to float64 tiles small enough for the cache."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
from scipy import sparse

from dask_dca.engine.checks import clip_rounding, count_unusable
from dask_dca.geometry.coordinates import scale_in_place

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from dask_dca.engine.checks import Reading, RowCensus

    Floats = NDArray[np.float64]
    Numbers = NDArray[np.int64]

__all__ = ["even_tiles", "slabs", "take_rows", "tile_height", "tiles", "usable_tiles"]

_TILE_ENTRIES: Final = 2**18  # 2 MiB of float64
_SLAB_ENTRIES: Final = 2**23  # of a piece that is a view
_MAX_TILE_ROWS: Final = 1024
_EVEN_ROWS: Final = 64  # heights of even tiles are multiples of this: no kernel of a BLAS has a remainder


def tiles(
    columns: Sequence[Any], start: int, only: Numbers | None = None, *, copy: bool = True
) -> Iterator[tuple[Numbers, Floats]]:
    """Cut a block of rows into float64 tiles.

    columns (n, p_j): the block's column chunks, side by side; a tile is put together, the block never is; start: row
    number of the block's first row; only: sorted row numbers to restrict the tiles to; all rows if None; copy: false
    allows views of the block, which must not be written to. Returns numbers (m,): row numbers, increasing; tile (m, p):
    these rows, C-contiguous.
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


def take_rows(columns: Sequence[Any], start: int, wanted: Numbers) -> tuple[Numbers, Floats]:
    """Take rows out of a block.

    wanted: sorted row numbers, of other blocks too. Returns numbers (m,): those of this block; values (m, p): the rows,
    C-contiguous and written to once.
    """
    parts = [_readable(part) for part in columns]
    numbers = wanted[(wanted >= start) & (wanted < start + parts[0].shape[0])]
    values = np.empty((len(numbers), sum(part.shape[1] for part in parts)))
    for begin in range(0, len(numbers), _MAX_TILE_ROWS):
        some = slice(begin, begin + _MAX_TILE_ROWS)
        _fill(values[some], parts, numbers[some] - start)
    return numbers, values


def slabs(columns: Sequence[Any], start: int) -> Iterator[tuple[Numbers, NDArray[Any]]]:
    """Cut a block into large pieces in their own precision, to be glanced at: views of the block where it is plain.

    Returns numbers (m,): row numbers, increasing; slab (m, p): these rows without any rounding, C-contiguous; not to be
    written to.
    """
    parts = [_readable(part) for part in columns]
    n, p = parts[0].shape[0], sum(part.shape[1] for part in parts)
    single = all(part.dtype == np.float32 for part in parts)
    plain = len(parts) == 1 and (_is_plain(parts[0], np.float32) or _is_plain(parts[0]))
    entries = _SLAB_ENTRIES if plain else _TILE_ENTRIES * 4
    step = int(np.clip(entries // max(p, 1), 16, _MAX_TILE_ROWS * 16))
    for begin in range(0, n, step):
        count = min(step, n - begin)
        numbers = np.arange(start + begin, start + begin + count, dtype=np.int64)
        if plain:
            yield numbers, parts[0][begin : begin + count]
            continue
        slab = np.empty((count, p), dtype=np.float32 if single else np.float64)
        _fill(slab, parts, numbers - start)
        yield numbers, slab


def tile_height(n_rows: int, n_features: int) -> int:
    """Choose the height of even tiles, by the shape of the whole matrix alone.

    n_rows, n_features: shape of the whole matrix, not of a block.
    """
    rows = min(_TILE_ENTRIES // max(n_features, 1), _MAX_TILE_ROWS, max(n_rows, 1))
    return _EVEN_ROWS * max(1, -(-rows // _EVEN_ROWS))


def even_tiles(columns: Sequence[Any], start: int, height: int) -> Iterator[tuple[Numbers, Floats]]:
    """Cut a block into float64 tiles of one height, the last one filled up with rows of zeros.

    Matrix products of tiles of one shape treat every row alike, so a row's product has the same bits wherever blocks
    are cut. (Products of tiles of other heights may take other kernels, which round differently.)
    height: rows of a tile, from `tile_height`. Returns numbers (m,): row numbers of the tile's first m rows; the others
    are zeros; tile (height, p): the rows; not to be written to.
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


def _is_plain(part: Any, dtype: type = np.float64) -> bool:
    return isinstance(part, np.ndarray) and part.dtype == dtype and bool(part.flags.c_contiguous)


def _fill(tile: NDArray[Any], parts: Sequence[Any], local: Numbers) -> None:
    whole = len(local) > 0 and local[-1] - local[0] + 1 == len(local) and bool((np.diff(local) == 1).all())
    where = slice(int(local[0]), int(local[-1]) + 1) if whole else local
    left = 0
    for part in parts:
        right = left + part.shape[1]
        rows = part[where]
        tile[:, left:right] = rows.toarray() if sparse.issparse(rows) else rows
        left = right


def usable_tiles(
    columns: Sequence[Any], start: int, reading: Reading, census: RowCensus, only: Numbers | None = None
) -> Iterator[tuple[Numbers, Floats]]:
    """Cut a block into tiles of rows scaled to height one; rows that have no place are counted and left out.

    reading: reference axis and sign rule; census: counts are added to it. Returns numbers (m,): numbers of the usable
    rows; scaled (m, p): their ratios to the reference axis.
    Raises NotFiniteError: A row holds NaN or infinity; InvalidInputError: A row holds a negative entry beyond rounding
    and `reading` refuses those.
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
