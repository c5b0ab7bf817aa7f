"""Passes, run options, the halo of a block, and sums of the values of blocks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from operator import add
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

if TYPE_CHECKING:
    from dask_dca.engine.checkpoint import Checkpoint


@dataclass(frozen=True)
class Halo:
    """Number of neighbouring rows that a block receives at each end."""

    before: int = 0
    after: int = 0


@dataclass(frozen=True)
class Window:
    """Which rows a block's function received, and which of them are the block's own."""

    first: int  # number of the first row received
    start: int  # the block's own rows are start, ..., stop - 1
    stop: int


def window_of(offsets: NDArray[np.int64], block: int, halo: Halo) -> tuple[Window, int]:
    """Return the window of a block, clipped to the data, and the row after the last one received.

    offsets (n_blocks + 1,): first row of each block, and the number of rows.
    """
    start, stop = int(offsets[block]), int(offsets[block + 1])
    return Window(max(start - halo.before, 0), start, stop), min(stop + halo.after, int(offsets[-1]))


class StackedRows:
    """Arrays (n_j, p) stacked from top to bottom, concatenated only where they are read."""

    def __init__(self, parts: Sequence[Any]) -> None:
        self._parts = parts
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
        return np.concatenate(found)


def stack_columns(pieces: Sequence[Any], depth: int) -> list[Any]:
    """Stack the pieces of a block with a halo into its column chunks, without copies.

    pieces: for each column chunk from left to right, its pieces from top to bottom; depth: pieces per column chunk.
    """
    return [
        pieces[j] if depth == 1 else StackedRows(pieces[j : j + depth]) for j in range(0, len(pieces), max(depth, 1))
    ]


T = TypeVar("T")


class Summed:
    """A dataclass whose sum is that of its fields by `add_parts`; a field is None if that of either is None."""

    def __add__(self, other: Self) -> Self:
        return self.sum_of((self, other))

    @classmethod
    def sum_of(cls, parts: Sequence[Any]) -> Self:
        """Add several instances."""
        fields = zip(*(vars(part).values() for part in parts), strict=True)
        return cls(*(None if any(one is None for one in some) else add_parts(some) for some in fields))


def add_parts(parts: Sequence[T]) -> T:
    """Add values, or tuples and lists of values entry by entry.

    parts: at least one value that supports `+`, such as an array, `Total` or `Summed`; or tuples or lists of such
    values, all of one length. Returns the sum, of the type of the parts.
    """
    first: Any = parts[0]
    entries: Any = parts
    several = isinstance(first, tuple | list)
    return type(first)(_sum(some) for some in zip(*entries, strict=True)) if several else _sum(parts)


def _sum(parts: Sequence[Any]) -> Any:
    """Sum values; large arrays are added in place to the sum of the first two."""
    if len(parts) > 1 and type(parts[0]).__add__ is Summed.__add__:
        return parts[0].sum_of(parts)
    whole = reduce(add, parts[:2])
    for part in parts[2:]:
        alike = type(whole) is type(part) is np.ndarray and (whole.shape, whole.dtype) == (part.shape, part.dtype)
        whole = np.add(whole, part, out=whole) if alike else whole + part
    return whole


def stack_parts(parts: Sequence[T]) -> T:
    """Concatenate arrays along rows, or tuples of arrays entry by entry."""
    arrays: Any = parts
    if isinstance(parts[0], tuple):
        return tuple(np.concatenate(some) for some in zip(*arrays, strict=True))  # type: ignore[return-value]
    whole: Any = np.concatenate(arrays)
    return whole


@dataclass(frozen=True)
class Groups:
    """Groups of the sub-problems of a pass; a task is a block of rows and a group.

    The pass's function receives the group, the values of `share`, and then the arguments of any pass's function.
    """

    every: tuple[Any, ...]  # the groups, each with a `label` for its task names
    finish: Callable[[Any, Any], Any]  # (group, merged value of all blocks) -> result of the group
    conquer: Callable[[Sequence[Any]], Any]  # merges the results of groups, in their order
    # (state, first row number, *column chunks) -> what all groups need of some rows, computed once
    share: Callable[..., Any] | None = None


@dataclass(frozen=True)
class Pass(Generic[T]):
    """One sweep over the data: a function of a block, and the merge of its values."""

    name: str  # tasks are called dca-<name>
    block: Callable[..., T]  # (state, first row number, *column chunks) -> value
    merge: Callable[[Sequence[T]], T]  # associative
    halo: Halo | None = None  # with a halo, the block's function receives a Window instead of the first row number
    groups: Groups | None = None
    weighted: bool = False  # whether the block's function receives weights= (m,), if rows have any
    after: range = range(0)  # passes over the same block whose values the block's function receives first

    def by_group(self) -> list[Pass[Any]]:
        """Return the passes that are run over each block: those of `share`, then one for each group.

        Without groups that is the pass itself. With several groups as many passes come first, each of which computes
        `share` for an equal part of the block's rows.
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
        """Return n passes, each over one of n equal parts of every block's rows."""
        if n == 1:
            return [self]
        parts = [partial(_call_on_part, self.block, j, n) for j in range(n)]
        return [replace(self, name=f"{self.name}-{j + 1}-of-{n}", block=part) for j, part in enumerate(parts)]


def _call_on_part(function: Callable[..., Any], part: int, of: int, state: Any, start: int, *columns: Any) -> Any:
    """Call a block's function with one of several equal parts of its rows."""
    n = columns[0].shape[0]
    first, last = n * part // of, n * (part + 1) // of
    return function(state, start + first, *(column[first:last] for column in columns))


def rounded_weights(column: NDArray[np.float64], unit: float) -> NDArray[np.float64]:
    """Return the weights of some rows, (m, 1), as multiples of a unit, (m,)."""
    return np.rint(column[:, 0] / unit) * unit


@dataclass(frozen=True)
class Weights:
    """Weights of the rows."""

    source: Any  # (n, 1) in memory, or a Dask array cut as the rows were
    unit: float  # weights are rounded to multiples of it: one if all are integers
    starts: NDArray[np.int64]  # (b,) first row of each block
    totals: NDArray[np.float64]  # (b + 1,) cumulative weight before each block, and of all rows, in units
    most: float  # a power of two that no weight exceeds
    n_copies: int  # number of rows that samples are drawn from: the sum of integer weights, else that of rows
    content: int  # hash of the weights, for checkpoints

    @property
    def total(self) -> float:
        """Sum of the weights."""
        return float(self.totals[-1]) * self.unit


@dataclass
class Reads:
    """Number of passes over all rows of a fit; passes over a sample are not counted."""

    source: Any  # the data
    full: int = 0


@dataclass(frozen=True)
class Run:
    """Options of the passes of a fit."""

    retries: int = 3
    verbose: bool = False
    checkpoint: Checkpoint | None = None  # where finished passes are kept
    reads: Reads | None = None  # counts passes over all rows, including those read from a checkpoint
    lazy: bool = False  # whether passes and steps only extend a graph, with Delayed values

    def count(self, source: Any, blocks: Any = None) -> None:
        """Count a pass if it is over all blocks of the data of the fit."""
        if self.reads is not None and source is self.reads.source and blocks is None:
            self.reads.full += 1

    @property
    def n_passes(self) -> int:
        """Number of passes over all rows so far; those read from a checkpoint are included."""
        return 0 if self.reads is None else self.reads.full
