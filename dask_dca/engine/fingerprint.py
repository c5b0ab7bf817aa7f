"""Which data they are, by the content of every row: taken from the blocks that a pass has read anyway.

The rows are cut into ranges by their number alone, and the hashes of a range's rows are summed, so that a fingerprint
depends neither on blocks, nor on their order, nor on how the values are held.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial, reduce
from operator import add
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np
from scipy import sparse

from dask_dca.engine.types import Pass, Window
from dask_dca.geometry.planes import child_seeds

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    Hashes = NDArray[np.uint64]

_MOST_RANGES: Final = 4096

T = TypeVar("T")


@dataclass(frozen=True)
class Fingerprint:
    """Sums of the hashes of rows, one for each range; those of parts add up to that of the whole."""

    first: int  # number of the first range
    sums: NDArray[np.uint64]

    def __add__(self, other: Fingerprint) -> Fingerprint:
        if not len(other.sums):
            return self
        if not len(self.sums):
            return other
        first = min(self.first, other.first)
        last = max(self.first + len(self.sums), other.first + len(other.sums))
        sums = np.zeros(last - first, dtype=np.uint64)
        for part in (self, other):
            sums[part.first - first :][: len(part.sums)] += part.sums
        return Fingerprint(first, sums)


def fingerprint_pass(n_rows: int) -> Pass[Fingerprint]:
    """Make the pass that takes the fingerprint of all rows and does nothing else.

    n_rows: number of rows of the data.
    """
    return Pass("verify", _Taken(_range_length(n_rows)), _sum)


def with_fingerprint(job: Pass[T], n_rows: int) -> Pass[tuple[Fingerprint, T]]:
    """Let a pass take the fingerprint of the data as well.

    job: a pass over all rows; n_rows: number of rows of the data. Returns a pass that gives the fingerprint, and what
    the given one gives.
    """
    groups = job.groups
    block = partial(_block_of_both, _Taken(_range_length(n_rows)), job.block, 0 if groups is None else 2)
    if groups is not None:
        finish, conquer = partial(_finish_both, groups.finish), partial(_conquer_both, groups.conquer)
        groups = replace(groups, finish=finish, conquer=conquer)
    return Pass(job.name, block, partial(_merge_both, job.merge), job.halo, groups)


def changed_rows(old: Fingerprint, new: Fingerprint, n_rows: int) -> list[tuple[int, int]]:
    """Tell which rows differ.

    old, new: of data of the same number of rows. Returns first row and the row after the last, of each run of ranges in
    which some row differs.
    """
    length = _range_length(n_rows)
    edges = np.flatnonzero(np.diff(old.sums != new.sums, prepend=False, append=False))
    return [(int(a) * length, min(int(b) * length, n_rows)) for a, b in edges.reshape(-1, 2)]


def n_ranges(n_rows: int) -> int:
    """Count the ranges that rows are cut into.

    n_rows: number of rows of the data.
    """
    return -(-n_rows // _range_length(n_rows))


def _range_length(n_rows: int) -> int:
    return -(-n_rows // _MOST_RANGES)


@dataclass(frozen=True)
class _Taken:
    """Take the fingerprint of a block's own rows."""

    length: int  # of a range

    def __call__(self, state: Any, where: int | Window, *columns: Any) -> Fingerprint:
        del state
        own = where if isinstance(where, Window) else Window(where, where, where + columns[0].shape[0])
        sums, left = np.zeros(own.stop - own.start, dtype=np.uint64), 0
        for part in columns:
            values = part[own.start - own.first : own.stop - own.first]
            values = values.tocsr() if hasattr(values, "tocsr") else values
            sums += weigh_values(values, column_keys(left, part.shape[1]))
            left += part.shape[1]
        return self._by_range(hash_of_rows(sums, own.start), own.start)

    def _by_range(self, hashes: NDArray[np.uint64], start: int) -> Fingerprint:
        if not len(hashes):
            return Fingerprint(0, hashes)
        starts = np.arange(-(start % self.length), len(hashes), self.length)
        return Fingerprint(start // self.length, np.add.reduceat(hashes, np.maximum(starts, 0)))


def _block_of_both(taken: _Taken, block: Callable[..., T], lead: int, *args: Any) -> tuple[Fingerprint, T]:
    """Work on a block for both; lead: how many arguments come before the state."""
    return taken(*args[lead:]), block(*args)


def _merge_both(merge: Callable[[Sequence[T]], T], parts: Sequence[tuple[Fingerprint, T]]) -> tuple[Fingerprint, T]:
    return _sum([content for content, _ in parts]), merge([value for _, value in parts])


def _finish_both(finish: Callable[[Any, Any], T], group: Any, whole: tuple[Fingerprint, Any]) -> tuple[Fingerprint, T]:
    return whole[0], finish(group, whole[1])


def _conquer_both(conquer: Callable[[Sequence[T]], T], parts: Sequence[tuple[Fingerprint, T]]) -> tuple[Fingerprint, T]:
    """Merge what groups found; each of them has seen all rows."""
    return parts[0][0], conquer([value for _, value in parts])


def _sum(parts: Sequence[Fingerprint]) -> Fingerprint:
    return reduce(add, parts)


_ENTRIES: Final = 2**16  # of a tile: its bits stay in the cache
_ODD: Final = np.uint64(0xD6E8FEB86659FD93)
_COLUMNS, _ROWS = 0, 1  # seeds


def column_keys(first: int, count: int) -> Hashes:
    """Draw a random odd number for each column.

    first, count: number of the first column, and how many. Returns (count,): by the columns' numbers alone.
    """
    return child_seeds(_COLUMNS, np.arange(first, first + count)) | np.uint64(1)


def weigh_values(part: Any, keys: Hashes) -> Hashes:
    """Mix the bits of each value, weigh them by the keys of the columns, and sum them over each row mod 2**64.

    Zero counts nothing, so that sparse rows have the sums of dense ones; the sums of column chunks add up.
    part (n, p): values of any real dtype; they count as float64, -0 as 0, all NaN and masked ones as one; keys (p,):
    from `column_keys`. Returns (n,): the sums.
    """
    n, p = part.shape
    found = np.zeros(n, dtype=np.uint64)
    width = max(part.nnz // max(n, 1), 1) if sparse.issparse(part) else max(p, 1)
    weigh = _weigh_sparse if sparse.issparse(part) else _weigh_dense
    step = max(1, _ENTRIES // width)
    for begin in range(0, n, step):
        found[begin : begin + step] = weigh(part[begin : begin + step], keys)
    return found


def _weigh_dense(tile: Any, keys: Hashes) -> Hashes:
    plain = tile.astype(np.float64).filled(np.nan) if np.ma.is_masked(tile) else np.asarray(tile)
    summed: Hashes = np.einsum("ij,j->i", _bits(plain), keys)
    return summed


def _weigh_sparse(tile: Any, keys: Hashes) -> Hashes:
    if not tile.has_canonical_format:  # entries that are stored twice are summed
        tile = tile.copy()
        tile.sum_duplicates()
    upto = np.zeros(len(tile.data) + 1, dtype=np.uint64)
    np.cumsum(_bits(tile.data) * keys[tile.indices], out=upto[1:])
    return upto[tile.indptr[1:]] - upto[tile.indptr[:-1]]


def _bits(values: NDArray[Any]) -> Hashes:
    """Mix the bits of values, one to one; of zero they are zero."""
    numbers = np.empty(values.shape)
    np.add(values, 0.0, out=numbers)  # -0 is 0
    if np.isnan(numbers.min(initial=0.0)):
        numbers[np.isnan(numbers)] = np.nan  # of one form
    return _mixed(numbers.view(np.uint64))


def _mixed(bits: Hashes) -> Hashes:
    spare = bits >> np.uint64(32)
    bits ^= spare
    bits *= _ODD
    np.right_shift(bits, np.uint64(29), out=spare)
    bits ^= spare
    return bits


def hash_of_rows(sums: Hashes, first: int) -> Hashes:
    """Hash rows together with their numbers.

    sums (n,): from `weigh_values`, added over the column chunks; first: number of the first row. Returns (n,): their
    hashes; sums of these, mod 2**64, tell which rows there are, in any order.
    """
    return _mixed(_mixed(sums + child_seeds(_ROWS, np.arange(first, first + len(sums)))))


def hash_of_contents(rows: NDArray[Any]) -> NDArray[np.int64]:
    """Hash rows by what they hold alone.

    rows (n, p): any rows. Returns (n,): integers from 0 to 2**62.
    """
    sums = weigh_values(rows, column_keys(0, rows.shape[1]))
    return (_mixed(_mixed(sums + np.uint64(1))) >> np.uint64(2)).astype(np.int64)
