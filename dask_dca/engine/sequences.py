"""Rows that are frames of sequences: where these begin and end, and pieces of them in the order of time.

A recursion over time can't start anew at each block: its result would depend on where blocks are cut. Therefore
every sequence is cut into *pieces* at fixed places, its frames [0, L), [L, 2 L), ..., whatever the blocks are. A piece
may be entered `burn_in` frames early and left as many frames late, as far as its sequence goes. It belongs to the block
in which it begins. The block's function receives the rows of its pieces, those in the neighbouring blocks included (a
*halo*), and works on all pieces at once: step t of the recursion is one operation on (pieces, width) numbers. So each
piece sees the same numbers, and gives the same bits, for any chunking.

A pass over pieces::

    cut = cut_sequences(as_edges(lengths, rows.n_rows), length=64, burn_in=16, width=p)
    run_pass(rows, Pass("refine", block, merge, cut.halo), (cut, parameters))

    def block(state, window, *columns):        # a module-level function
        cut, parameters = state
        for batch in batches(cut, window, columns, function):
            batch.values[batch.index]          # (steps, pieces, width): frames in time, pieces side by side
            batch.inside                       # (steps, pieces): False before, after and between sequences
            batch.own                          # (steps, pieces): frames that this piece counts; each frame once in all

`function` maps an even tile of frames (height, p) to (height, width) numbers, row by row. Step `cut.burn_in` is
a piece's first own frame; `batch.first` marks the pieces that begin a sequence there, so a recursion is started anew at
that step. Results per frame are written by `dask_dca.engine.passes.map_frames`, whose function goes through every piece
with an own frame in the block (`batches(..., touching=True)`) and places them by `batch.scatter`.

Pairs of successive frames alone need no pieces: a pass with `Halo(after=1)`, and `pair_mask` for the ends.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dask_dca.engine.advice import beside_rows
from dask_dca.engine.tiles import even_tiles, require_squares, tile_height
from dask_dca.engine.types import Halo
from dask_dca.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from dask_dca.engine.types import Window
    from dask_dca.geometry.arrays import Floats, Mask, Numbers


_EVEN_PIECES: Final = 64  # products of batches of that many pieces have no remainder: see even_tiles
_BATCH_FRAMES: Final = 2**12
_BATCH_ENTRIES: Final = 2**21  # 16 MiB of float64


def as_edges(lengths: Any, n_rows: int) -> Numbers:
    """Check the lengths of sequences.

    lengths (m,): frames of each sequence, one after the other, as hmmlearn takes them; None is one sequence. Returns (m
    + 1,): first frame of each sequence, and the number of frames; sequences without frames are left out.
    Raises InvalidInputError: not integers, negative, or another number in all.
    """
    if lengths is None:
        return np.array([0, n_rows], dtype=np.int64)
    found = np.atleast_1d(np.asarray(beside_rows("lengths", lengths)))
    if found.ndim != 1 or found.dtype.kind not in "iu" or (found < 0).any():
        msg = f"lengths must be non-negative integers, one per sequence; received {lengths!r:.80}"
        raise InvalidInputError(msg)
    total = int(found.sum()) if found.max(initial=0) <= n_rows else sum(found.tolist())  # which doesn't wrap
    if total != n_rows:
        msg = f"lengths add up to {total} frames, but X has {n_rows} rows; pass lengths=[{n_rows}] for one"
        raise InvalidInputError(msg)
    return np.concatenate([[0], np.cumsum(found[found > 0], dtype=np.int64)])


def pair_mask(edges: Numbers, start: int, stop: int, lag: int) -> Mask:
    """Tell which frames have a later frame in their own sequence.

    edges (m + 1,): from `as_edges`; start, stop: frames to ask for: start, ..., stop - 1; lag: how much later; negative
    for earlier. Returns (stop - start,): true where frame t + lag is in the sequence of frame t.
    """
    number = np.arange(start, stop)
    which = np.searchsorted(edges, number, side="right") - 1
    return (number + lag < edges[which + 1]) & (number + lag >= edges[which])


def ends_of_runs(numbers: Numbers | None, edges: Numbers) -> Numbers:
    """Say where the runs of successive frames end in a sample, and sequences within them.

    numbers (n,): sorted numbers of the frames; None for all; edges (m + 1,): from `as_edges`. Returns likewise.
    """
    if numbers is None:
        return edges
    breaks = (np.diff(numbers) != 1) | (np.diff(np.searchsorted(edges, numbers, side="right")) != 0)
    return np.concatenate([[0], np.flatnonzero(breaks) + 1, [len(numbers)]])


@dataclass(frozen=True)
class Cut:
    """How sequences are cut into pieces."""

    edges: Numbers  # (m + 1,): first frame of each sequence, and the number of frames
    length: int  # own frames of a piece, except for the last of a sequence
    burn_in: int  # frames before and after them that it sees
    chains: int  # pieces that are worked on at once
    height: int  # of even tiles

    @property
    def steps(self) -> int:  # numpydoc ignore=RT01
        """Frames that a piece sees in all."""
        return self.length + 2 * self.burn_in

    @property
    def halo(self) -> Halo:  # numpydoc ignore=RT01
        """What a block must see to work on the pieces that begin in it."""
        return Halo(self.burn_in, self.length - 1 + self.burn_in)

    @property
    def halo_touching(self) -> Halo:  # numpydoc ignore=RT01
        """What a block must see to work on the pieces that have an own frame in it."""
        return Halo(self.length - 1 + self.burn_in, self.length - 1 + self.burn_in)


@dataclass(frozen=True)
class Batch:
    """Some pieces side by side; places without one are outside everywhere."""

    begins: Numbers  # (m,): number of each piece's first own frame
    low: int  # number of the first row of `values`
    values: Floats  # (rows + 1, width), the last row zeros
    index: Numbers  # (steps, pieces): row of `values`, the last where outside
    inside: Mask  # (steps, pieces): the frame exists, in this sequence
    own: Mask  # (steps, pieces): and belongs to this piece
    first: Mask  # (pieces,): the piece begins its sequence
    last: Mask  # (pieces,): the piece ends its sequence

    def scatter(self, result: Floats, window: Window, found: Floats) -> None:
        """Write results into the block's own rows.

        result (rows of the block, width): written to; found (steps, pieces, width): results of all frames of the
        pieces.
        """
        number = self.index + self.low - window.start
        wanted = self.own & (number >= 0) & (number < len(result))
        result[number[wanted]] = found[wanted]


def cut_sequences(edges: Numbers, *, length: int, burn_in: int, width: int) -> Cut:
    """Decide how sequences are cut, by their lengths alone.

    edges (m + 1,): from `as_edges`; length: frames of a piece; fewer where all sequences are shorter; burn_in: frames
    before and after; at most `length`, and none where no sequence is cut; width: numbers per frame, held at once:
    it bounds the pieces of a batch. Returns the plan; small, to be sent with a pass's state.
    """
    longest = int(np.diff(edges).max())
    if longest <= length + burn_in:
        length, burn_in = longest, 0
    pieces = int((-(-np.diff(edges) // length)).sum())
    frames = min(_BATCH_FRAMES, _BATCH_ENTRIES // max(width, 1))
    most = max(1, frames // (length * _EVEN_PIECES)) * _EVEN_PIECES
    chains = min(most, -(-pieces // _EVEN_PIECES) * _EVEN_PIECES)
    return Cut(edges, length, min(burn_in, length), chains, tile_height(int(edges[-1]), width))


def piece_numbers(cut: Cut, begins: Numbers) -> Numbers:
    """Number pieces in the order of time.

    begins (m,): first own frame of each piece. Returns (m,): how many pieces of all sequences begin earlier.
    """
    counts = -(-np.diff(cut.edges) // cut.length)
    which = np.searchsorted(cut.edges, begins, side="right") - 1
    numbers: Numbers = (np.cumsum(counts) - counts)[which] + (begins - cut.edges[which]) // cut.length
    return numbers


def batches(
    cut: Cut,
    window: Window,
    columns: Sequence[Any],
    function: Callable[[Floats], Floats],
    *,
    touching: bool = False,
    finite: bool = True,
) -> Iterator[Batch]:
    """Go through the pieces of a block.

    window: the block's rows and halo; function: from a tile of frames (height, p) to (height, width) numbers per frame,
    row by row; touching: all pieces with an own frame in the block, not only those that begin in it; finite: refuse
    frames with NaN, not only infinite ones.
    Raises NotFiniteError: A frame is not finite; InvalidInputError: an entry is too great to be squared.
    """
    begins, sequence = _pieces(cut, window, touching=touching)
    for i in range(0, len(begins), cut.chains):
        some, which = begins[i : i + cut.chains], sequence[i : i + cut.chains]
        starts, stops = cut.edges[which], cut.edges[which + 1]
        low = int(max(some[0] - cut.burn_in, starts[0]))
        high = int(min(some[-1] + cut.length + cut.burn_in, stops[-1]))
        values = _frame_values(cut, low, high, window, columns, function, finite=finite)
        yield _batch(cut, some, starts, stops, low, values)


def _pieces(cut: Cut, window: Window, *, touching: bool) -> tuple[Numbers, Numbers]:
    """Where the pieces of a block begin, and of which sequence they are."""
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
    """Numbers of the frames low, ..., high - 1, each of the same bits wherever tiles begin."""
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


def _batch(cut: Cut, begins: Numbers, starts: Numbers, stops: Numbers, low: int, values: Floats) -> Batch:
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
