"""Blocks that see a few rows of their neighbours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["Halo", "StackedRows", "Window", "stack_columns", "window_of"]


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
        return np.ma.concatenate(found) if any(map(np.ma.is_masked, found)) else np.concatenate(found)  # type: ignore[no-untyped-call]


def stack_columns(pieces: Sequence[Any], depth: int) -> list[Any]:
    """Put the pieces of a block with a halo together.

    pieces: for each column chunk from left to right, its pieces from top to bottom; depth: how many pieces a column
    chunk has. Returns the column chunks; nothing is copied.
    """
    return [
        pieces[j] if depth == 1 else StackedRows(pieces[j : j + depth]) for j in range(0, len(pieces), max(depth, 1))
    ]
