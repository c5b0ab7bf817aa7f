"""Fingerprints of the content of all rows, computed from the blocks that a pass reads anyway.

Rows are divided into ranges by their number alone, and the hashes of the rows of a range are summed, so that a
fingerprint depends neither on blocks, nor on their order, nor on the dtype of the values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dask_dca.engine.types import Pass, Window, add_parts
from dask_dca.geometry.planes import child_seeds

Hashes = NDArray[np.uint64]

_MAX_RANGES: Final = 4096  # greatest number of ranges of rows

T = TypeVar("T")


@dataclass(frozen=True)
class Fingerprint:
    """Sums of the hashes of rows, one for each range; fingerprints of parts are added."""

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
    """Make a pass that only computes the fingerprint of all n_rows rows."""
    return Pass("verify", _TakeFingerprint(_range_length(n_rows)), add_parts)


def with_fingerprint(job: Pass[T], n_rows: int) -> Pass[tuple[Fingerprint, T]]:
    """Make a pass that returns the fingerprint of all n_rows rows and the value of a given pass."""
    groups = job.groups
    block = partial(_block_of_both, _TakeFingerprint(_range_length(n_rows)), job.block, 0 if groups is None else 2)
    if groups is not None:
        finish, conquer = partial(_finish_both, groups.finish), partial(_conquer_both, groups.conquer)
        groups = replace(groups, finish=finish, conquer=conquer)
    both: Any = replace(job, block=block, merge=partial(_merge_both, job.merge), groups=groups)  # type: ignore[arg-type]
    return both


def changed_rows(old: Fingerprint, new: Fingerprint, n_rows: int) -> list[tuple[int, int]]:
    """Return the first row, and the row after the last one, of each run of ranges that differ.

    old, new: of data with the same number of rows.
    """
    length = _range_length(n_rows)
    edges = np.flatnonzero(np.diff(old.sums != new.sums, prepend=False, append=False))
    return [(int(a) * length, min(int(b) * length, n_rows)) for a, b in edges.reshape(-1, 2)]


def n_ranges(n_rows: int) -> int:
    """Number of ranges that n_rows rows are divided into."""
    return -(-n_rows // _range_length(n_rows))


def _range_length(n_rows: int) -> int:
    return -(-n_rows // _MAX_RANGES)


@dataclass(frozen=True)
class _TakeFingerprint:
    """Computes the fingerprint of a block's own rows."""

    length: int  # rows of a range

    def __call__(self, state: Any, where: int | Window, *columns: Any) -> Fingerprint:
        own = where if isinstance(where, Window) else Window(where, where, where + columns[0].shape[0])
        sums, left = np.zeros(own.stop - own.start, dtype=np.uint64), 0
        for part in columns:
            values = part[own.start - own.first : own.stop - own.first]
            sums += weigh_values(values, column_keys(left, part.shape[1]))
            left += part.shape[1]
        return self._by_range(hash_of_rows(sums, own.start), own.start)

    def _by_range(self, hashes: NDArray[np.uint64], start: int) -> Fingerprint:
        if not len(hashes):
            return Fingerprint(0, hashes)
        starts = np.arange(-(start % self.length), len(hashes), self.length)
        return Fingerprint(start // self.length, np.add.reduceat(hashes, np.maximum(starts, 0)))


def _block_of_both(
    taken: _TakeFingerprint, block: Callable[..., T], lead: int, *args: Any, **weights: Any
) -> tuple[Fingerprint, T]:
    """Compute the fingerprint and the value of a block; lead: number of arguments before the state."""
    return taken(*args[lead:]), block(*args, **weights)


def _merge_both(merge: Callable[[Sequence[T]], T], parts: Sequence[tuple[Fingerprint, T]]) -> tuple[Fingerprint, T]:
    return add_parts([content for content, _ in parts]), merge([value for _, value in parts])


def _finish_both(finish: Callable[[Any, Any], T], group: Any, whole: tuple[Fingerprint, Any]) -> tuple[Fingerprint, T]:
    return whole[0], finish(group, whole[1])


def _conquer_both(conquer: Callable[[Sequence[T]], T], parts: Sequence[tuple[Fingerprint, T]]) -> tuple[Fingerprint, T]:
    """Merge the values of groups, each of which has seen all rows."""
    return parts[0][0], conquer([value for _, value in parts])


_TILE_ENTRIES: Final = 2**16  # entries of a tile, which stays in the cache
_MULTIPLIER: Final = np.uint64(0xD6E8FEB86659FD93)  # odd, so that multiplication is one to one
_COLUMN_SEED, _ROW_SEED = 0, 1


def column_keys(first: int, count: int) -> Hashes:
    """Draw a random odd number for each of `count` columns from `first`, by their numbers alone."""
    return child_seeds(_COLUMN_SEED, np.arange(first, first + count)) | np.uint64(1)


def weigh_values(part: Any, keys: Hashes) -> Hashes:
    """Hash rows (n,): mix the bits of values, multiply them by the keys of columns, and sum over each row mod 2**64.

    Zeros contribute nothing, so that sparse and dense rows have equal sums, and sums of column chunks can be added.
    part (n, p): values of any real dtype, converted to float64; -0 is 0, and all NaN are equal; keys (p,): from
    `column_keys`.
    """
    n, p = part.shape
    found = np.zeros(n, dtype=np.uint64)
    width = max(part.nnz // max(n, 1), 1) if sparse.issparse(part) else max(p, 1)
    weigh = _weigh_sparse if sparse.issparse(part) else _weigh_dense
    step = max(1, _TILE_ENTRIES // width)
    for begin in range(0, n, step):
        found[begin : begin + step] = weigh(part[begin : begin + step], keys)
    return found


def _weigh_dense(tile: Any, keys: Hashes) -> Hashes:
    return np.einsum("ij,j->i", _bits(tile), keys)


def _weigh_sparse(tile: Any, keys: Hashes) -> Hashes:
    if not tile.has_canonical_format:  # duplicate entries are summed
        tile = tile.copy()
        tile.sum_duplicates()
    upto = np.zeros(len(tile.data) + 1, dtype=np.uint64)
    np.cumsum(_bits(tile.data) * keys[tile.indices], out=upto[1:])
    return upto[tile.indptr[1:]] - upto[tile.indptr[:-1]]


def _bits(values: NDArray[Any]) -> Hashes:
    """Mix the bits of values, one to one; those of zero are zero."""
    numbers = np.empty(values.shape)
    np.add(values, 0.0, out=numbers)  # -0 is 0
    if np.isnan(numbers.min(initial=0.0)):
        numbers[np.isnan(numbers)] = np.nan  # one bit pattern for all NaN
    return _mix(numbers.view(np.uint64))


def _mix(bits: Hashes) -> Hashes:
    spare = bits >> np.uint64(32)
    bits ^= spare
    bits *= _MULTIPLIER
    np.right_shift(bits, np.uint64(29), out=spare)
    bits ^= spare
    return bits


def hash_of_rows(sums: Hashes, first: int) -> Hashes:
    """Hash rows together with their numbers, (n,); sums of these mod 2**64 identify the rows in any order.

    sums (n,): from `weigh_values`, added over the column chunks; first: number of the first row.
    """
    return _mix(_mix(sums + child_seeds(_ROW_SEED, np.arange(first, first + len(sums)))))


def hash_of_contents(rows: NDArray[Any]) -> NDArray[np.int64]:
    """Hash rows (n, p) by their content alone, to integers (n,) below 2**62."""
    sums = weigh_values(rows, column_keys(0, rows.shape[1]))
    return (_mix(_mix(sums + np.uint64(1))) >> np.uint64(2)).astype(np.int64)
