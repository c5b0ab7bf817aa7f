"""Frames in the order of time, laid out so that a recursion goes through many pieces of them side by side.

All sequences, one after the other, are cut into pieces of L frames, wherever sequences end; M pieces are a *tile*, and
tiles begin at multiples of M L whatever the blocks are, so that a tile's numbers have the same bits for any chunking.
A tile has the piece before and the piece after, too: a recursion enters a piece from the last frames of the one before
it, or the first of the one after it, where it has forgotten where it began. Where a sequence begins, inside a piece as
well, it begins anew.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dask_dca.engine.checks import require_squares
from dask_dca.engine.halo import Halo
from dask_dca.engine.tiles import even_tiles

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from dask_dca.engine.halo import Window

    Floats = NDArray[np.float64]
    Numbers = NDArray[np.int64]
    Mask = NDArray[np.bool_]
    Places = tuple[NDArray[np.intp] | None, ...]  # for each step, on which pieces; None for none

__all__ = ["Layout", "Tile", "in_time", "lay_out", "tiles_of_block", "tiles_of_frames"]

_LENGTH: Final = (24, 64)  # frames of a piece where they are few, and where they are many
_MANY: Final = 3000
_BURN_IN: Final = 16
_PIECES: Final = (16, 128)  # of a tile: least and greatest number
_ENTRIES: Final = 2**19  # numbers of a tile


@dataclass(frozen=True)
class Layout:
    """How frames are laid out, by their number and by where sequences end alone."""

    edges: Numbers  # (m + 1,): first frame of each sequence, and the number of frames
    length: int  # L, frames of a piece
    burn_in: int  # frames of its neighbours by which a piece is entered
    pieces: int  # M, side by side in a tile

    @property
    def frames(self) -> int:
        """How many frames a tile has of its own.

        Returns M L.
        """
        return self.length * self.pieces

    @property
    def halo(self) -> Halo:
        """What a block must see to work on the tiles that begin in it.

        Returns the piece before, the rest of the last tile, and the piece after it.
        """
        return Halo(self.length, self.frames + self.length - 1)


@dataclass(frozen=True)
class Tile:
    """M pieces side by side, between the one before them and the one after.

    begin: number of the first own frame; features (q, L, M + 2): of each frame; zero where there is none; exists (L, M
    + 2): where there is one; None for everywhere; enter, leave: for each step of the forward recursion the pieces on
    which a sequence begins there, and for each step of the backward one those on which it ends; early_enter,
    early_leave: the same for the steps of the burn-in.
    """

    begin: int
    features: Floats
    exists: Mask | None
    enter: Places
    leave: Places
    early_enter: Places
    early_leave: Places


def lay_out(edges: Numbers, width: int, length: int | None = None, burn_in: int = _BURN_IN) -> Layout:
    """Decide how frames are laid out.

    edges (m + 1,): from `as_edges`; width: numbers per frame; length: frames of a piece; by their number if None;
    burn_in: at most as many.
    """
    n = int(edges[-1])
    length = min(_LENGTH[int(n >= _MANY)] if length is None else length, n)
    if n <= length + burn_in:
        length = n
    most = int(np.clip(_ENTRIES // (length * max(width, 1)), *_PIECES))
    return Layout(edges, length, min(burn_in, length), min(most, -(-n // length)))


def tiles_of_frames(layout: Layout, frames: Floats, features: Callable[[Floats], Floats]) -> list[Tile]:
    """Lay all frames out.

    frames (n, p): all of them; features: from values (p, L, M + 2) to (q, L, M + 2).
    """
    begins = range(0, len(frames), layout.frames)
    return [_tile(layout, begin, _part(layout, begin, frames, 0), features) for begin in begins]


def tiles_of_block(
    layout: Layout, window: Window, columns: Sequence[Any], features: Callable[[Floats], Floats], *, holes: bool = False
) -> Iterator[Tile]:
    """Lay the frames out of the tiles that begin in a block.

    window, columns: the block's rows and halo; features: as `tiles_of_frames` has it; holes: entries may be missing.
    Raises NotFiniteError: an entry is not finite; InvalidInputError: it is too great to be squared.
    """
    n, last = int(layout.edges[-1]), window.first + columns[0].shape[0]
    for begin in range(-(-window.start // layout.frames) * layout.frames, window.stop, layout.frames):
        low, high = max(begin - layout.length, 0), min(begin + layout.frames + layout.length, n, last)
        parts = [part[low - window.first : high - window.first] for part in columns]
        ((numbers, frames),) = even_tiles(parts, low, high - low)
        require_squares(frames, numbers, missing=holes)
        yield _tile(layout, begin, _part(layout, begin, frames, low), features)


def in_time(layout: Layout, values: NDArray[Any]) -> NDArray[Any]:
    """Put values of a tile's own frames in the order of time.

    values (..., L, M). Returns (..., M L).
    """
    return np.ascontiguousarray(values.swapaxes(-1, -2)).reshape(*values.shape[:-2], layout.frames)


def _part(layout: Layout, begin: int, frames: Floats, low: int) -> Floats:
    """The frames of a tile and its neighbours ((M + 2) L, p), zeros where there is none; `frames` begin at `low`."""
    first, count = begin - layout.length, layout.frames + 2 * layout.length
    here = frames[max(first - low, 0) : first + count - low]
    if len(here) == count:
        return here
    whole = np.zeros((count, frames.shape[1]))
    at = max(low - first, 0)
    whole[at : at + len(here)] = here
    return whole


def _tile(layout: Layout, begin: int, frames: Floats, features: Callable[[Floats], Floats]) -> Tile:
    steps, pieces, n = layout.length, layout.pieces, int(layout.edges[-1])
    shape = (pieces + 2, steps)
    values = features(frames.reshape(*shape, -1).transpose(2, 1, 0))
    first, exists = begin - steps, None
    if first < 0 or first + len(frames) > n:
        number = first + np.arange(len(frames)).reshape(shape).T
        exists = (number >= 0) & (number < n)
        values[:, ~exists] = 0.0
    low, high = np.searchsorted(layout.edges, [first, first + len(frames) + 1])
    at = layout.edges[low:high] - first  # where sequences begin; the one before it has ended a frame earlier
    piece, step = np.divmod(at, steps)
    before, last = np.divmod(at - 1, steps)
    early, late = step - (steps - layout.burn_in), layout.burn_in - 1 - last
    return Tile(
        begin,
        values,
        exists,
        _by_step(step, piece - 1, steps, pieces),
        _by_step(steps - 1 - last, before - 1, steps, pieces),
        _by_step(early, piece, layout.burn_in, pieces),
        _by_step(late, before - 2, layout.burn_in, pieces),
    )


def _by_step(step: Numbers, piece: Numbers, steps: int, pieces: int) -> Places:
    """For each step the pieces, of those that are the tile's."""
    own = (step >= 0) & (step < steps) & (piece >= 0) & (piece < pieces)
    found: list[NDArray[np.intp] | None] = [None] * steps
    for t in np.unique(step[own]).tolist():
        found[t] = piece[own & (step == t)].astype(np.intp)
    return tuple(found)
