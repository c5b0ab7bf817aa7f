"""Hashes of rows that add up: the same for dense and sparse rows, for any cut into blocks and column chunks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
from scipy import sparse

from dask_dca.geometry.planes import child_seeds

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Hashes = NDArray[np.uint64]

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


def hash_of_contents(sums: Hashes) -> Hashes:
    """Hash rows without their numbers.

    sums (n,): from `weigh_values`, added over the column chunks. Returns (n,): the same for the same content.
    """
    return _mixed(_mixed(sums + np.uint64(1)))
