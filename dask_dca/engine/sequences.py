"""Rows that are frames of sequences: offsets of sequences, and pieces of them for recursions over time.

If a recursion over time started at each block, its result would depend on chunks. Every sequence is therefore cut into
*pieces* at fixed frames, [0, L), [L, 2 L), ..., independent of blocks. A piece may start `burn_in` frames early and end
as many frames late, within its sequence. It belongs to the block in which it begins. The block's function receives the
rows of its pieces, including those in neighbouring blocks (a *halo*), and processes all pieces at once: step t of the
recursion is one operation on (pieces, width) numbers. Each piece thus has the same numbers, and the same bits, for any
chunking.

A pass over pieces::

    cut = cut_sequences(as_edges(lengths, rows.n_rows), length=64, burn_in=16, width=p)
    run_pass(rows, Pass("refine", block, merge, cut.halo), (cut, parameters))

    def block(state, window, *columns):        # a module-level function
        cut, parameters = state
        for batch in batches(cut, window, columns, function):
            batch.values[batch.index]          # (steps, pieces, width): numbers of the frames
            batch.inside                       # (steps, pieces): False before, after and between sequences
            batch.own                          # (steps, pieces): frames of this piece; each frame belongs to one

`function` maps an even tile of frames (height, p) to (height, width) numbers, row by row. Step `cut.burn_in` is
a piece's first own frame; `batch.first` marks the pieces that begin a sequence there, where a recursion must restart.
Results per frame are made by `dask_dca.engine.passes.map_frames`, whose function iterates over every piece with an own
frame in the block (`batches(..., touching=True)`) and writes results by `batch.scatter`.

Pairs of successive frames need no pieces, only a pass with `Halo(after=1)`, and `pair_mask` at the ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from dask_dca.engine.advice import array_per_row
from dask_dca.engine.tiles import even_tiles, require_squares, tile_height
from dask_dca.engine.types import Halo, Window
from dask_dca.errors import InvalidInputError
from dask_dca.geometry.arrays import Floats, Mask, Numbers

_PIECE_MULTIPLE: Final = 64  # batches have a multiple of this many pieces, so that BLAS kernels have no remainder
_MAX_BATCH_FRAMES: Final = 2**12  # frames of a batch, unless `_PIECE_MULTIPLE` pieces have more
_MAX_BATCH_ENTRIES: Final = 2**21  # entries of a batch, likewise: 16 MiB of float64


def as_edges(lengths: Any, n_rows: int) -> Numbers:
    """Check the lengths of sequences and return their offsets.

    lengths (m,): numbers of frames, as in hmmlearn; None is one sequence. Returns (m + 1,): first frame of each
    sequence, and the number of frames; sequences without frames are left out.
    Raises InvalidInputError: not integers, negative, or another number in all.
    """
    if lengths is None:
        return np.array([0, n_rows], dtype=np.int64)
    found = np.atleast_1d(np.asarray(array_per_row("lengths", lengths)))
    if found.ndim != 1 or found.dtype.kind not in "iu" or (found < 0).any():
        msg = f"lengths must be non-negative integers, one per sequence; received {lengths!r:.80}"
        if found.dtype.kind == "f" and (found % 1 == 0).all():
            msg += "; pass lengths=numpy.asarray(lengths, dtype=int)"
        raise InvalidInputError(msg)
    total = int(found.sum()) if found.max(initial=0) <= n_rows else sum(found.tolist())  # no overflow
    if total != n_rows:
        msg = f"lengths add up to {total} frames, but X has {n_rows} rows; pass lengths=[{n_rows}] for one sequence"
        raise InvalidInputError(msg)
    return np.concatenate([[0], np.cumsum(found[found > 0], dtype=np.int64)])


def pair_mask(edges: Numbers, start: int, stop: int, lag: int) -> Mask:
    """Return for frames t = start, ..., stop - 1 whether frame t + lag is in the same sequence.

    edges (m + 1,): from `as_edges`; lag: may be negative.
    """
    number = np.arange(start, stop)
    which = np.searchsorted(edges, number, side="right") - 1
    return (number + lag < edges[which + 1]) & (number + lag >= edges[which])


def run_edges(numbers: Numbers | None, edges: Numbers) -> Numbers:
    """Return the offsets of the runs of successive frames of one sequence in a sample.

    numbers (n,): sorted numbers of the frames, None for all; edges (m + 1,): from `as_edges`.
    """
    if numbers is None:
        return edges
    breaks = (np.diff(numbers) != 1) | (np.diff(np.searchsorted(edges, numbers, side="right")) != 0)
    return np.concatenate([[0], np.flatnonzero(breaks) + 1, [len(numbers)]])


@dataclass(frozen=True)
class Cut:
    """How sequences are cut into pieces."""

    edges: Numbers  # (m + 1,): first frame of each sequence, and the number of frames
    length: int  # own frames of a piece; the last one of a sequence may have fewer
    burn_in: int  # further frames before and after
    chains: int  # pieces of a batch
    height: int  # rows of even tiles

    @property
    def steps(self) -> int:  # numpydoc ignore=RT01
        """Number of frames of a piece, including burn-in."""
        return self.length + 2 * self.burn_in

    @property
    def halo(self) -> Halo:  # numpydoc ignore=RT01
        """Halo of a block for the pieces that begin in it."""
        return Halo(self.burn_in, self.length - 1 + self.burn_in)

    @property
    def halo_touching(self) -> Halo:  # numpydoc ignore=RT01
        """Halo of a block for the pieces with an own frame in it."""
        return Halo(self.length - 1 + self.burn_in, self.length - 1 + self.burn_in)


@dataclass(frozen=True)
class Batch:
    """Pieces that are processed at once; columns without a piece are outside everywhere."""

    begins: Numbers  # (m,): number of each piece's first own frame
    low: int  # number of the first row of `values`
    values: Floats  # (rows + 1, width), the last row zeros
    index: Numbers  # (steps, pieces): row of `values`, the last where outside
    inside: Mask  # (steps, pieces): the frame exists, in this sequence
    own: Mask  # (steps, pieces): and belongs to this piece
    first: Mask  # (pieces,): the piece begins its sequence
    last: Mask  # (pieces,): the piece ends its sequence

    def scatter(self, result: Floats, window: Window, found: Floats) -> None:
        """Write results found (steps, pieces, width) to the block's own rows, result (rows, width)."""
        number = self.index + self.low - window.start
        wanted = self.own & (number >= 0) & (number < len(result))
        result[number[wanted]] = found[wanted]


def cut_sequences(edges: Numbers, *, length: int, burn_in: int, width: int) -> Cut:
    """Decide how sequences are cut, by their lengths alone.

    edges (m + 1,): from `as_edges`; length: frames of a piece, reduced if all sequences are shorter; burn_in: frames
    before and after, at most `length`, and zero if no sequence is cut; width: numbers per frame, which bounds the
    pieces of a batch. The result is small enough for a pass's state.
    """
    longest = int(np.diff(edges).max())
    if longest <= length + burn_in:
        length, burn_in = longest, 0
    pieces = int((-(-np.diff(edges) // length)).sum())
    frames = min(_MAX_BATCH_FRAMES, _MAX_BATCH_ENTRIES // max(width, 1))
    most = max(1, frames // (length * _PIECE_MULTIPLE)) * _PIECE_MULTIPLE
    chains = min(most, -(-pieces // _PIECE_MULTIPLE) * _PIECE_MULTIPLE)
    return Cut(edges, length, min(burn_in, length), chains, tile_height(int(edges[-1]), width))


def piece_numbers(cut: Cut, begins: Numbers) -> Numbers:
    """Return the number of each piece, in order over all sequences; begins (m,): first own frames."""
    counts = -(-np.diff(cut.edges) // cut.length)
    which = np.searchsorted(cut.edges, begins, side="right") - 1
    return (np.cumsum(counts) - counts)[which] + (begins - cut.edges[which]) // cut.length


def batches(
    cut: Cut,
    window: Window,
    columns: Sequence[Any],
    function: Callable[[Floats], Floats],
    *,
    touching: bool = False,
    finite: bool = True,
) -> Iterator[Batch]:
    """Iterate over the pieces of a block.

    window: the block's rows and halo; function: maps a tile of frames (height, p) to numbers (height, width), row by
    row; touching: include all pieces with an own frame in the block, not only those that begin in it; finite: refuse
    NaN, not only infinite entries.
    Raises NotFiniteError: a frame is not finite; InvalidInputError: an entry is too great to be squared.
    """
    begins, sequence = _pieces_of_block(cut, window, touching=touching)
    for i in range(0, len(begins), cut.chains):
        some, which = begins[i : i + cut.chains], sequence[i : i + cut.chains]
        starts, stops = cut.edges[which], cut.edges[which + 1]
        low = int(max(some[0] - cut.burn_in, starts[0]))
        high = int(min(some[-1] + cut.length + cut.burn_in, stops[-1]))
        values = _frame_values(cut, low, high, window, columns, function, finite=finite)
        yield _make_batch(cut, some, starts, stops, low, values)


def _pieces_of_block(cut: Cut, window: Window, *, touching: bool) -> tuple[Numbers, Numbers]:
    """First own frames of the pieces of a block, and the numbers of their sequences."""
    low = int(np.searchsorted(cut.edges, window.start, side="right")) - 1
    high = int(np.searchsorted(cut.edges, window.stop, side="left"))
    if window.start >= window.stop:
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    starts, stops = cut.edges[low:high], cut.edges[low + 1 : high + 1]
    before = np.maximum(window.start - starts, 0)
    first = before // cut.length if touching else -(-before // cut.length)
    counts = np.maximum(-(-(np.minimum(stops, window.stop) - starts) // cut.length) - first, 0)
    within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.repeat(starts + first * cut.length, counts) + within * cut.length, np.repeat(np.arange(low, high), counts)


def _frame_values(
    cut: Cut,
    low: int,
    high: int,
    window: Window,
    columns: Sequence[Any],
    function: Callable[[Floats], Floats],
    *,
    finite: bool,
) -> Floats:
    """Apply the function to frames low, ..., high - 1; the bits of a frame do not depend on tiles."""
    parts = [part[low - window.first : high - window.first] for part in columns]
    found: Floats | None = None
    for numbers, tile in even_tiles(parts, low, cut.height):
        require_squares(tile[: len(numbers)], numbers, missing=not finite)
        values = function(tile)[: len(numbers)]
        if found is None:
            found = np.zeros((high - low + 1, values.shape[1]))
        found[numbers[0] - low : numbers[-1] + 1 - low] = values
    assert found is not None  # a piece has frames
    return found


def _make_batch(cut: Cut, begins: Numbers, starts: Numbers, stops: Numbers, low: int, values: Floats) -> Batch:
    """Make the batch of some pieces."""
    m = len(begins)
    origin, start, stop = (np.zeros(cut.chains, dtype=np.int64) for _ in range(3))
    origin[:m], start[:m], stop[:m] = begins, starts, stops
    number = origin + np.arange(-cut.burn_in, cut.length + cut.burn_in)[:, None]
    inside = (number >= start) & (number < stop)
    own = inside.copy()
    own[: cut.burn_in] = own[cut.burn_in + cut.length :] = False
    real = np.arange(cut.chains) < m
    return Batch(
        begins=begins,
        low=low,
        values=values,
        index=np.where(inside, number - low, len(values) - 1),
        inside=inside,
        own=own,
        first=real & (origin == start),
        last=real & (origin + cut.length >= stop),
    )
