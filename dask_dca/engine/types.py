"""Passes, how a fit is run, neighbouring rows that a block sees, and how the values of blocks become one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial, reduce
from operator import add
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

import numpy as np
from scipy import sparse

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from dask_dca.engine.checkpoint import Checkpoint


@dataclass(frozen=True)
class Halo:
    """How many rows of its neighbours a block receives at each end."""

    before: int = 0
    after: int = 0


@dataclass(frozen=True)
class Window:
    """Which rows a block's function received, and which of them are the block's own."""

    first: int  # number of the first row received
    start: int  # the block's own rows are start, ..., stop - 1
    stop: int


def window_of(offsets: NDArray[np.int64], block: int, halo: Halo) -> tuple[Window, int]:
    """Return the window of a block, clipped to the data.

    offsets (n_blocks + 1,): first row of each block, and the number of rows; halo: rows to receive beyond its own.
    Returns last: the row after the last one received.
    """
    start, stop = int(offsets[block]), int(offsets[block + 1])
    return Window(max(start - halo.before, 0), start, stop), min(stop + halo.after, int(offsets[-1]))


class StackedRows:
    """Some arrays one below the other, put together only where they are read.

    parts (n_j, p): from top to bottom; at least one.
    """

    def __init__(self, parts: Sequence[Any]) -> None:
        self._parts = [part.tocsr() if sparse.issparse(part) else part for part in parts]
        self._edges = np.cumsum([0, *(part.shape[0] for part in parts)])
        self.shape = (int(self._edges[-1]), parts[0].shape[1])

    def __getitem__(self, rows: slice) -> Any:
        start, stop, _ = rows.indices(self.shape[0])
        found = []
        for part, low, high in zip(self._parts, self._edges[:-1], self._edges[1:], strict=True):
            if max(start, low) < min(stop, high):
                found.append(part[max(start - low, 0) : stop - low])
        if not found:
            return self._parts[0][:0]
        if len(found) == 1:
            return found[0]
        if any(map(sparse.issparse, found)):
            return sparse.vstack(found, format="csr")
        join: Any = np.ma.concatenate if any(map(np.ma.is_masked, found)) else np.concatenate
        return join(found)


def stack_columns(pieces: Sequence[Any], depth: int) -> list[Any]:
    """Put the pieces of a block with a halo together.

    pieces: for each column chunk from left to right, its pieces from top to bottom; depth: how many pieces a column
    chunk has. Returns the column chunks; nothing is copied.
    """
    return [
        pieces[j] if depth == 1 else StackedRows(pieces[j : j + depth]) for j in range(0, len(pieces), max(depth, 1))
    ]


T = TypeVar("T")


class Summed:
    """A dataclass whose sum is that of its fields, as `add_parts` adds them; none where either has none."""

    def __add__(self, other: Self) -> Self:
        return self.sum_of((self, other))

    @classmethod
    def sum_of(cls, parts: Sequence[Any]) -> Self:
        """Add up several."""
        fields = zip(*(vars(part).values() for part in parts), strict=True)
        return cls(*(None if any(one is None for one in some) else add_parts(some) for some in fields))


def add_parts(parts: Sequence[T]) -> T:
    """Add values, or tuples and lists of values entry by entry.

    parts: at least one value that has a sum, such as arrays, `Total` and `Summed`; or tuples or lists of such, all of
    one length. Returns the sum, of the type of the parts.
    """
    first: Any = parts[0]
    entries: Any = parts
    several = isinstance(first, tuple | list)
    whole: T = type(first)(_sum(some) for some in zip(*entries, strict=True)) if several else _sum(parts)
    return whole


def _sum(parts: Sequence[Any]) -> Any:
    """Sum of values; that of large arrays takes memory once, as only the first two make a new one."""
    if len(parts) > 1 and type(parts[0]).__add__ is Summed.__add__:
        return parts[0].sum_of(parts)
    whole = reduce(add, parts[:2])
    for part in parts[2:]:
        alike = type(whole) is type(part) is np.ndarray and (whole.shape, whole.dtype) == (part.shape, part.dtype)
        whole = np.add(whole, part, out=whole) if alike else whole + part
    return whole


def stack_parts(parts: Sequence[T]) -> T:
    """Put arrays one below the other, or the arrays of tuples entry by entry."""
    arrays: Any = parts
    if isinstance(parts[0], tuple):
        return tuple(np.concatenate(some) for some in zip(*arrays, strict=True))  # type: ignore[return-value]
    whole: Any = np.concatenate(arrays)
    return whole


@dataclass(frozen=True)
class Groups:
    """
    Sub-problems of a pass in groups: a task is a block of rows with one group.

    The pass's function receives the group first, then what the groups share, then what every pass's function does.
    """

    every: tuple[Any, ...]  # each with a `label`, which names its tasks
    finish: Callable[[Any, Any], Any]  # (group, merged value of all blocks) -> what the group found
    conquer: Callable[[Sequence[Any]], Any]  # merges what groups found, in their order
    share: Callable[..., Any] | None = (
        None  # (state, first row number, *column chunks) -> what groups need of some rows
    )


@dataclass(frozen=True)
class Pass(Generic[T]):
    """One sweep: what is done to a block, and how two results become one."""

    name: str  # tasks are called dca-<name>
    block: Callable[..., T]  # (state, first row number, *column chunks) -> value
    merge: Callable[[Sequence[T]], T]  # associative
    halo: Halo | None = None  # with one, the block's function receives a Window in place of the first row number
    groups: Groups | None = None
    weighted: bool = False  # its function receives weights=, those of the block's rows (m,), where rows have any
    after: range = range(0)  # which passes over the same block come before it: its function receives their values first

    def by_group(self) -> list[Pass[Any]]:
        """Return the passes that are run over each block, those of the groups last.

        Returns the pass itself where there are no groups. One pass for a single group; for several, as many before them
        that share out the rows of the block, to do once what all groups need of them.
        """
        if self.groups is None:
            return [self]
        n, share = len(self.groups.every), self.groups.share
        before: list[Pass[Any]] = []
        if share is not None and n > 1:
            before = Pass("share", share, self.merge).by_rows(n)
        own = [partial(self.block, group, *([],) * (not before)) for group in self.groups.every]
        return before + [
            replace(self, name=f"{self.name}-{group.label}", block=block, groups=None, after=range(len(before)))
            for group, block in zip(self.groups.every, own, strict=True)
        ]

    def by_rows(self, n: int) -> list[Pass[Any]]:
        """Return passes that are each run over one of several equal parts of every block's rows.

        Returns the pass itself for one part.
        """
        if n == 1:
            return [self]
        parts = [partial(_of_some_rows, self.block, j, n) for j in range(n)]
        return [replace(self, name=f"{self.name}-{j + 1}-of-{n}", block=part) for j, part in enumerate(parts)]


def _of_some_rows(function: Callable[..., Any], part: int, of: int, state: Any, start: int, *columns: Any) -> Any:
    """Call a block's function with one of several equal parts of the block's rows."""
    n = columns[0].shape[0]
    first, last = n * part // of, n * (part + 1) // of
    return function(state, start + first, *(column[first:last] for column in columns))


def rounded_weights(column: NDArray[np.float64], unit: float) -> NDArray[np.float64]:
    """Return the weights of some rows, (m, 1), as multiples of a unit, (m,)."""
    found: NDArray[np.float64] = np.rint(column[:, 0] / unit) * unit
    return found


@dataclass(frozen=True)
class Weights:
    """How often each row counts."""

    source: Any  # (n, 1) in memory, or a Dask array cut as the rows were
    unit: float  # what weights are rounded to: one if all are whole numbers
    starts: NDArray[np.int64]  # (b,) first row of each block
    totals: NDArray[np.float64]  # (b + 1,) units before each block, and in all
    most: float  # a power of two that no weight exceeds
    n_copies: int  # how many rows a sample is drawn from: the sum of whole weights, else the number of rows

    @property
    def total(self) -> float:
        """Sum of the weights."""
        return float(self.totals[-1]) * self.unit


@dataclass
class Reads:
    """How often the rows of a fit were read, all of them: passes over a sample don't count."""

    source: Any  # the data
    full: int = 0


@dataclass(frozen=True)
class Run:
    """How passes are run."""

    retries: int = 3
    verbose: bool = False
    checkpoint: Checkpoint | None = None  # where finished passes are kept
    reads: Reads | None = None  # counts passes over all rows, those that a checkpoint had kept among them
    lazy: bool = False  # passes and steps are not run: they become a graph, and their values are Delayed

    def count(self, source: Any, blocks: Any = None) -> None:
        """Count a pass over the blocks of some data, if it is over all of those that are counted."""
        if self.reads is not None and source is self.reads.source and blocks is None:
            self.reads.full += 1

    @property
    def n_passes(self) -> int:
        """How often all rows were read so far.

        Returns also of a fit that goes on from a checkpoint: as if it had read them itself.
        """
        return 0 if self.reads is None else self.reads.full
