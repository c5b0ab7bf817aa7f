"""Blocks cut into float64 tiles that fit into the cache, or as sparse counts, and checks of their entries."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from dask.sizeof import sizeof
from numpy.typing import NDArray
from scipy import sparse

from dask_dca.engine.types import Summed
from dask_dca.errors import CLIP, DROP, MARK, InvalidInputError, MissingEntriesError, NotFiniteError
from dask_dca.geometry.arrays import Floats, Numbers
from dask_dca.geometry.moments import UNEVEN, Evenness, scale_in_place

MAX_SQUARABLE: Final = 2.0**504  # 5e151: greatest entry whose squares can be summed
# 2e-140: least value of the greatest entry: a millionth of its square must not underflow
MIN_PEAK: Final = 2.0**-464
_DROP_HINT: Final = f"drop such rows first, for example {DROP}"
_NEGATIVE_TOL: Final = 1e-6  # negative entries up to this share of the row's greatest magnitude are clipped


@dataclass(frozen=True)
class Reading:
    """How rows are read: the axis that they are scaled along, and whether negative entries are refused."""

    axis: Floats | None = None  # None: all ones
    nonnegative: bool = False
    even: Evenness = UNEVEN  # level of their heights, if these are equal up to noise


@dataclass
class RowCounts(Summed):
    """Counts of unusable rows and clipped entries in a pass."""

    zero_rows: int = 0
    behind_rows: int = 0  # rows that are not zero and have no positive height along the axis
    clipped_entries: int = 0


def count_unusable(tile: Floats, numbers: Numbers, row_counts: RowCounts) -> None:
    """Count rows that can't be scaled.

    tile (m, p): such rows; numbers (m,): their row numbers; row_counts: is added to.
    Raises NotFiniteError: a row has NaN or infinite entries.
    """
    require_finite(tile, numbers)
    empty = ~tile.any(axis=1)
    row_counts.zero_rows += int(empty.sum())
    row_counts.behind_rows += int((~empty).sum())


def clip_rounding(tile: Floats, numbers: Numbers, row_counts: RowCounts) -> Floats:
    """Set negative entries that are rounding errors to zero, and count them.

    tile (m, p); numbers (m,): row numbers, for the message; row_counts: is added to. Returns the tile itself
    if nothing is negative, else a clipped copy.
    Raises InvalidInputError: an entry is below -1e-6 times its row's greatest magnitude.
    """
    if not tile.size or tile.min() >= 0.0:
        return tile
    require_finite(tile, numbers)
    beyond = tile.min(axis=1) < -_NEGATIVE_TOL * np.abs(tile).max(axis=1)
    if beyond.any():
        row = int(np.flatnonzero(beyond)[0])
        column = int(tile[row].argmin())
        value = float(tile[row, column])
        marker = f"pass missing={value!r} if it marks missing entries, or " if value.is_integer() else ""
        msg = (
            f"Negative values in data: row {numbers[row]}, column {column} is {value:.6g}, and this model needs "
            f"non-negative entries; {marker}shift or clip the data first, for example {CLIP}"
        )
        raise InvalidInputError(msg)
    row_counts.clipped_entries += int((tile < 0.0).sum())
    return np.maximum(tile, 0.0)


def require_finite(tile: Floats, numbers: Numbers, *, missing: bool = False) -> None:
    """Raise NotFiniteError for the first entry that is not finite.

    tile (m, p); numbers (m,): row numbers; missing: whether NaN is allowed.
    """
    wrong = np.isinf(tile) if missing else ~np.isfinite(tile)
    if wrong.any():
        row, column = (int(i) for i in np.argwhere(wrong)[0])
        lacking = np.isnan(tile[row, column])
        hint = f"mark missing entries as NaN, for example {MARK}" if missing else _DROP_HINT
        msg = f"Input X contains {'NaN' if lacking else 'infinity'}: row {numbers[row]}, column {column}; {hint}"
        raise MissingEntriesError(msg) if lacking else NotFiniteError(msg)


def require_squares(tile: Floats, numbers: Numbers, *, missing: bool = False, most: float = MAX_SQUARABLE) -> None:
    """Raise an error for the first entry whose square overflows, for models of second moments.

    tile (m, p): may have more rows than numbers (m,), which are padding; missing: whether NaN is allowed; most:
    greatest magnitude that is allowed.
    Raises NotFiniteError: an entry is not finite; InvalidInputError: one is too great.
    """
    require_finite(tile, numbers, missing=missing)
    high, low = (float(of.reduce(tile, axis=None, initial=0.0)) for of in (np.fmax, np.fmin))
    if max(high, -low) > most:
        row, column = (int(i) for i in np.argwhere(np.abs(tile) > most)[0])
        raise InvalidInputError(out_of_range(int(numbers[row]), column, float(tile[row, column]), most))


def require_size(sample: Floats, numbers: Numbers) -> None:
    """Raise InvalidInputError if even the square of the greatest entry of a sample underflows.

    sample (m, p): NaN where an entry is missing; numbers (m,): row numbers.
    """
    high, low = (float(of.reduce(sample, axis=None, initial=0.0)) for of in (np.fmax, np.fmin))
    if 0.0 < (peak := max(high, -low)) < MIN_PEAK:
        row, column = (int(i) for i in np.argwhere(np.abs(sample) == peak)[0])
        raise InvalidInputError(out_of_range(int(numbers[row]), column, float(sample[row, column])))


def out_of_range(row: int, column: int, value: float, most: float = MAX_SQUARABLE) -> str:
    """Compose the message of an error for an entry whose square is out of range."""
    if most != MAX_SQUARABLE:
        return (
            f"row {row}, column {column} of X is {value:.3g}, and beside the components {most:.0e} is the most: "
            "squares of such numbers are out of range; divide this row by a number first, or leave it out"
        )
    which = "the greatest entry, " if abs(value) < 1.0 else ""
    return (
        f"row {row}, column {column} of X is {which}{value:.3g}: squares of such numbers are out of range; divide X "
        f"or this row by a number first, for example X = X / {abs(value):.0e}"
    )


_TILE_ENTRIES: Final = 2**18  # entries of a tile: 2 MiB of float64
_SLAB_ENTRIES: Final = 2**23  # entries of a slab that is a view of the block
_MAX_TILE_ROWS: Final = 1024  # greatest number of rows of a tile
_HEIGHT_MULTIPLE: Final = 64  # even tiles have a multiple of this many rows, so that BLAS kernels have no remainder


def tiles(
    columns: Sequence[Any], start: int, only: Numbers | None = None, *, copy: bool = True, again: bool = False
) -> Iterator[tuple[Numbers, Floats]]:
    """Cut a block of rows into float64 tiles.

    columns (n, p_j): the block's column chunks; start: number of the block's first row; only: sorted row numbers to
    restrict tiles to; copy: whether tiles must be copies, else they may be read-only views; again: whether each tile
    overwrites the one before. Yields row numbers (m,), increasing, and these rows (m, p), C-contiguous.
    """
    n, p = columns[0].shape[0], sum(part.shape[1] for part in columns)
    numbers = np.arange(start, start + n, dtype=np.int64)
    if only is not None:
        numbers = only[(only >= start) & (only < start + n)]
    ready = not copy and only is None and len(columns) == 1 and _is_plain(columns[0])
    step, tile = int(np.clip(_TILE_ENTRIES // max(p, 1), 16, _MAX_TILE_ROWS)), None
    for begin in range(0, len(numbers), step):
        chosen = numbers[begin : begin + step]
        if ready:
            yield chosen, columns[0][begin : begin + step]
            continue
        if tile is None or not again:
            tile = np.empty((len(chosen), p))
        tile = tile[: len(chosen)]
        _fill(tile, columns, chosen - start)
        yield chosen, tile


def take_rows(columns: Sequence[Any], start: int, wanted: Numbers) -> tuple[Numbers, Floats]:
    """Take rows out of a block.

    wanted: sorted row numbers, also of other blocks. Returns those of this block (m,), and their rows (m, p).
    """
    numbers = wanted[(wanted >= start) & (wanted < start + columns[0].shape[0])]
    values = np.empty((len(numbers), sum(part.shape[1] for part in columns)))
    for begin in range(0, len(numbers), _MAX_TILE_ROWS):
        some = slice(begin, begin + _MAX_TILE_ROWS)
        _fill(values[some], columns, numbers[some] - start)
    return numbers, values


def slabs(columns: Sequence[Any], start: int) -> Iterator[tuple[Numbers, NDArray[Any]]]:
    """Cut a block into large read-only slabs in its own precision, views of the block if possible, for screening.

    Yields row numbers (m,), increasing, and these rows (m, p) without rounding, C-contiguous.
    """
    n, p = columns[0].shape[0], sum(part.shape[1] for part in columns)
    single = all(part.dtype == np.float32 for part in columns)
    plain = len(columns) == 1 and (_is_plain(columns[0], np.float32) or _is_plain(columns[0]))
    entries = _SLAB_ENTRIES if plain else _TILE_ENTRIES * 4
    step = int(np.clip(entries // max(p, 1), 16, _MAX_TILE_ROWS * 12))
    for begin in range(0, n, step):
        count = min(step, n - begin)
        numbers = np.arange(start + begin, start + begin + count, dtype=np.int64)
        if plain:
            yield numbers, columns[0][begin : begin + count]
            continue
        slab = np.empty((count, p), dtype=np.float32 if single else np.float64)
        _fill(slab, columns, numbers - start)
        yield numbers, slab


def tile_height(n_rows: int, n_features: int) -> int:
    """Choose the number of rows of even tiles by the shape of the whole matrix alone, not by blocks."""
    rows = min(_TILE_ENTRIES // max(n_features, 1), _MAX_TILE_ROWS, max(n_rows, 1))
    return _HEIGHT_MULTIPLE * max(1, -(-rows // _HEIGHT_MULTIPLE))


def even_tiles(columns: Sequence[Any], start: int, height: int) -> Iterator[tuple[Numbers, Floats]]:
    """Cut a block into read-only float64 tiles of one height, the last one padded with rows of zeros.

    Products of tiles of one shape give a row the same bits wherever blocks are cut; for another height a BLAS may
    choose another kernel, which rounds differently. height: from `tile_height`. Yields the numbers (m,) of the tile's
    first m rows, and the tile (height, p).
    """
    n, p = columns[0].shape[0], sum(part.shape[1] for part in columns)
    plain = len(columns) == 1 and _is_plain(columns[0])
    for begin in range(0, n, height):
        count = min(height, n - begin)
        numbers = np.arange(start + begin, start + begin + count, dtype=np.int64)
        if plain and count == height:
            yield numbers, columns[0][begin : begin + height]
            continue
        tile = np.zeros((height, p))
        _fill(tile[:count], columns, numbers - start)
        yield numbers, tile


def _is_plain(part: Any, dtype: type = np.float64) -> bool:
    return isinstance(part, np.ndarray) and part.dtype == dtype and bool(part.flags.c_contiguous)


def _fill(tile: NDArray[Any], columns: Sequence[Any], local: Numbers) -> None:
    whole = len(local) > 0 and local[-1] - local[0] + 1 == len(local) and bool((np.diff(local) == 1).all())
    where = slice(int(local[0]), int(local[-1]) + 1) if whole else local
    left = 0
    for part in columns:
        right = left + part.shape[1]
        rows = part[where]
        tile[:, left:right] = rows.toarray() if sparse.issparse(rows) else rows
        left = right


def usable_tiles(
    columns: Sequence[Any], start: int, reading: Reading, row_counts: RowCounts
) -> Iterator[tuple[Numbers, Floats]]:
    """Cut a block into tiles of rows scaled to height one; unusable rows are counted and left out.

    row_counts: is added to. Yields the numbers (m,) of the usable rows, and the scaled rows (m, p).
    Raises NotFiniteError: an entry is not finite; InvalidInputError: one is negative, and `reading` refuses that.
    """
    for numbers, tile in tiles(columns, start):
        if reading.nonnegative:
            tile = clip_rounding(tile, numbers, row_counts)
        usable = scale_in_place(tile, reading.axis, reading.even)
        if usable.all():
            yield numbers, tile
            continue
        count_unusable(tile[~usable], numbers[~usable], row_counts)
        if usable.any():
            yield numbers[usable], tile[usable]


_MAX_COUNT: Final = 2.0**31  # greatest count whose sums are exact


@sizeof.register(sparse.sparray)
def _sizeof_sparse_array(values: sparse.sparray) -> int:
    """Size of sparse arrays for Dask, which knows sparse matrices only."""
    return int(sum(part.nbytes for part in vars(values).values() if isinstance(part, np.ndarray)))


def counts_of_block(columns: Sequence[Any], start: int) -> sparse.csr_array:
    """Convert a block to sparse non-negative rows in canonical form: sorted indices, no duplicates, no stored zeros.

    columns (n, p_j): the block's column chunks; start: number of the block's first row, for messages. The caller's
    arrays are not changed.
    Raises NotFiniteError: an entry is NaN or infinite; InvalidInputError: an entry is negative or above 2**31.
    """
    parts = [sparse.csr_array(part if sparse.issparse(part) else np.asarray(part, np.float64)) for part in columns]
    rows = parts[0] if len(parts) == 1 else sparse.csr_array(sparse.hstack(parts, format="csr"))
    if not rows.has_canonical_format or not rows.data.all():
        rows = rows.copy()
        rows.sum_duplicates()
        rows.eliminate_zeros()
    if not (rows.data.dtype.kind in "bu" and rows.data.dtype.itemsize <= 2):  # small unsigned integers need no check
        _check_entries(rows, start)
    if rows.dtype == np.float64:
        return rows
    return sparse.csr_array((rows.data.astype(np.float64), rows.indices, rows.indptr), shape=rows.shape)


def _check_entries(rows: sparse.csr_array, start: int) -> None:
    if not rows.nnz or (rows.data.min() >= 0.0 and rows.data.max() <= _MAX_COUNT):  # NaN is neither
        return
    good = (rows.data >= 0.0) & (rows.data <= _MAX_COUNT)
    at = int(np.flatnonzero(~good)[0])
    row = start + int(np.searchsorted(rows.indptr, at, side="right")) - 1
    where, value = f"row {row}, column {rows.indices[at]}", rows.data[at]
    if not np.isfinite(value):
        what = "NaN" if np.isnan(value) else "infinity"
        msg = f"Input X contains {what}: {where}; {_DROP_HINT}"
        raise NotFiniteError(msg)
    if value > 0.0:
        msg = (
            f"a count is too large to be added exactly: {where} is {value:.6g}, above 2**31; divide X first, for "
            f"example X = X / {value / 2**20:.0e}"
        )
        raise InvalidInputError(msg)
    msg = (
        f"Negative values in data: {where} is {value:.6g}, and word counts are not negative; clip them first, for "
        f"example {CLIP}"
    )
    raise InvalidInputError(msg)
