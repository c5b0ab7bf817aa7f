"""From a block, as a task holds it, to float64 tiles small enough for the cache, or sparse counts; what is refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from dask.sizeof import sizeof
from scipy import sparse

from dask_dca.engine.types import Summed
from dask_dca.errors import CLIP, DROP, MARK, InvalidInputError, MissingEntriesError, NotFiniteError
from dask_dca.geometry.moments import UNEVEN, Evenness, scale_in_place

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from dask_dca.geometry.arrays import Floats, Numbers


GREATEST: Final = 2.0**504  # 5e151: of entries whose squares are summed
LEAST: Final = 2.0**-464  # 2e-140: of the greatest entry, for a millionth of its square, to some bits, is wanted too
_ROUNDING: Final = 1e-6  # negative entries up to this share of their row's peak are rounding, and clipped


@dataclass(frozen=True)
class Reading:
    """How rows are read: along which axis they are scaled, and whether negative entries are refused."""

    axis: Floats | None = None  # None: all ones
    nonnegative: bool = False
    even: Evenness = UNEVEN  # of their heights


@dataclass
class RowCensus(Summed):
    """Counts of rows and entries that a pass met and could not use as they are."""

    zero_rows: int = 0
    behind_rows: int = 0  # not zero, yet without positive height along the axis
    clipped_entries: int = 0


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
            f"model needs non-negative entries; shift or clip the data first, for example {CLIP}"
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
        msg = f"Input X contains {what}: row {numbers[row]}, column {column}; drop such rows first, for example {DROP}"
        raise MissingEntriesError(msg) if missing else NotFiniteError(msg)


def require_squares(tile: Floats, numbers: Numbers, *, missing: bool = False, most: float = GREATEST) -> None:
    """Raise an error that names the first entry whose square is no usable number: for models of second moments.

    tile (m, p): rows; numbers (m,): their numbers; there may be rows beyond these, which are no rows of the data; most:
    the greatest entry that passes.
    Raises NotFiniteError: an entry is not finite; InvalidInputError: one is too great.
    """
    if missing:
        _require_bounded(tile, numbers)
    else:
        require_finite(tile, numbers)
    high, low = (float(of.reduce(tile, axis=None, initial=0.0)) for of in (np.fmax, np.fmin))
    if max(high, -low) > most:
        row, column = (int(i) for i in np.argwhere(np.abs(tile) > most)[0])
        raise InvalidInputError(out_of_range(int(numbers[row]), column, float(tile[row, column]), most))


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
            f"example {MARK}"
        )
        raise NotFiniteError(msg)


def out_of_range(row: int, column: int, value: float, most: float = GREATEST) -> str:
    """Say that numbers can't be squared, in their unit, and what to do.

    Returns the message of an error.
    """
    if most != GREATEST:
        return (
            f"row {row}, column {column} of X is {value:.3g}, and beside the components {most:.0e} is the most: "
            "squares of such numbers are out of range; divide this row by a number first, or leave it out"
        )
    which = "the greatest entry, " if abs(value) < 1.0 else ""
    return (
        f"row {row}, column {column} of X is {which}{value:.3g}: squares of such numbers are out of range; divide X "
        f"or this row by a number first, for example X = X / {abs(value):.0e}"
    )


_TILE_ENTRIES: Final = 2**18  # 2 MiB of float64
_SLAB_ENTRIES: Final = 2**23  # of a piece that is a view
_MAX_TILE_ROWS: Final = 1024
_EVEN_ROWS: Final = 64  # heights of even tiles are multiples of this: no kernel of a BLAS has a remainder


def tiles(
    columns: Sequence[Any], start: int, only: Numbers | None = None, *, copy: bool = True, again: bool = False
) -> Iterator[tuple[Numbers, Floats]]:
    """Cut a block of rows into float64 tiles.

    columns (n, p_j): the block's column chunks, side by side; a tile is put together, the block never is; start: row
    number of the block's first row; only: sorted row numbers to restrict the tiles to; all rows if None; copy: false
    allows views of the block, which must not be written to; again: all tiles are one array, which the next one
    overwrites. Returns numbers (m,): row numbers, increasing; tile (m, p): these rows, C-contiguous.
    """
    parts = [_readable(part) for part in columns]
    n, p = parts[0].shape[0], sum(part.shape[1] for part in parts)
    numbers = np.arange(start, start + n, dtype=np.int64)
    if only is not None:
        numbers = only[(only >= start) & (only < start + n)]
    ready = not copy and only is None and len(parts) == 1 and _is_plain(parts[0])
    step, tile = int(np.clip(_TILE_ENTRIES // max(p, 1), 16, _MAX_TILE_ROWS)), None
    for begin in range(0, len(numbers), step):
        chosen = numbers[begin : begin + step]
        if ready:
            yield chosen, parts[0][begin : begin + step]
            continue
        if tile is None or not again:
            tile = np.empty((len(chosen), p))
        tile = tile[: len(chosen)]
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
    step = int(np.clip(entries // max(p, 1), 16, _MAX_TILE_ROWS * 12))
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
    columns: Sequence[Any], start: int, reading: Reading, census: RowCensus
) -> Iterator[tuple[Numbers, Floats]]:
    """Cut a block into tiles of rows scaled to height one; rows that have no place are counted and left out.

    reading: reference axis and sign rule; census: counts are added to it. Returns numbers (m,): numbers of the usable
    rows; scaled (m, p): their ratios to the reference axis.
    Raises NotFiniteError: A row holds NaN or infinity; InvalidInputError: A row holds a negative entry beyond rounding
    and `reading` refuses those.
    """
    for numbers, tile in tiles(columns, start):
        if reading.nonnegative:
            tile = clip_rounding(tile, numbers, census)
        usable = scale_in_place(tile, reading.axis, reading.even)
        if usable.all():
            yield numbers, tile
            continue
        count_unusable(tile[~usable], numbers[~usable], census)
        if usable.any():
            yield numbers[usable], tile[usable]


_LARGEST_COUNT: Final = 2.0**31  # counts up to this are added exactly


@sizeof.register(sparse.sparray)
def _sizeof_sparse_array(values: sparse.sparray) -> int:
    """Let Dask see the size of sparse arrays: it knows of sparse matrices only."""
    return int(sum(part.nbytes for part in vars(values).values() if isinstance(part, np.ndarray)))


def counts_of_block(columns: Sequence[Any], start: int) -> sparse.csr_array:
    """Take a block as sparse non-negative rows in one canonical form.

    columns (n, p_j): the block's column chunks, side by side; start: row number of the block's first row, for messages.
    Returns (n, p): sorted indices, no duplicates, no stored zeros; never the caller's own arrays if these had to be
    changed; places are not copied for other numbers.
    Raises NotFiniteError: an entry is NaN or infinite; InvalidInputError: an entry is negative or above 2**31.
    """
    parts = [sparse.csr_array(part if sparse.issparse(part) else _dense(part)) for part in columns]
    rows = parts[0] if len(parts) == 1 else sparse.csr_array(sparse.hstack(parts, format="csr"))
    if not rows.has_canonical_format or not rows.data.all():
        rows = rows.copy()
        rows.sum_duplicates()
        rows.eliminate_zeros()
    if not (rows.data.dtype.kind in "bu" and rows.data.dtype.itemsize <= 2):  # others can't be wrong
        _check_entries(rows, start)
    if rows.dtype == np.float64:
        return rows
    return sparse.csr_array((rows.data.astype(np.float64), rows.indices, rows.indptr), shape=rows.shape)


def _dense(part: Any) -> Floats:
    """Dense rows in a dtype that sparse ones have; masked entries become NaN, which has no place."""
    values = np.ma.filled(part.astype(np.float64), np.nan) if np.ma.is_masked(part) else part
    return np.asarray(values, dtype=np.float64)


def _check_entries(rows: sparse.csr_array, start: int) -> None:
    if not rows.nnz or (rows.data.min() >= 0.0 and rows.data.max() <= _LARGEST_COUNT):  # NaN is neither
        return
    good = (rows.data >= 0.0) & (rows.data <= _LARGEST_COUNT)
    at = int(np.flatnonzero(~good)[0])
    row = start + int(np.searchsorted(rows.indptr, at, side="right")) - 1
    where, value = f"row {row}, column {rows.indices[at]}", rows.data[at]
    if not np.isfinite(value):
        what = "NaN" if np.isnan(value) else "infinity"
        msg = f"Input X contains {what}: {where}; drop such rows first, for example {DROP}"
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
