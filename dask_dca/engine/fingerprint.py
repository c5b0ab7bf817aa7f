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

from dask_dca.engine.types import Pass, Window
from dask_dca.geometry.row_hashes import column_keys, hash_of_rows, weigh_values

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

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

    job: A pass over all rows; n_rows: number of rows of the data. Returns gives the fingerprint, and what the pass
    gives.
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
