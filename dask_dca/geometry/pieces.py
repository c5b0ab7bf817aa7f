"""Matrix products of one height, in double precision: a row's product has the same bits beside any other rows."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dask_dca.geometry.arrays import Floats


PIECE: Final = 256  # rows of a matrix product, filled up with zeros
_WIDE: Final = 1024  # columns from which pieces are lower, as tiles of such rows are
_LOW: Final = 64


class Workspace:
    """Arrays that are used again, by name.

    Workers give memory back to the system as soon as it is free and get it anew page by page: a fresh array of a
    megabyte takes them longer than most of what is computed in it.
    """

    def __init__(self) -> None:
        self._held: dict[str, Floats] = {}

    def array(self, name: str, *shape: int) -> Floats:
        """Return an array of some shape, which holds what was left in it."""
        size = math.prod(shape)
        if name not in self._held or self._held[name].size < size:
            self._held[name] = np.empty(size)
        return self._held[name][:size].reshape(shape)


def padded(rows: NDArray[Any], height: int = PIECE) -> NDArray[Any]:
    """Fill rows up with zeros to the height of a piece.

    rows (n, m): at most that many rows. Returns (height, m): the rows, and zeros, of the same dtype.
    """
    if len(rows) == height:
        return rows
    full = np.zeros((height, rows.shape[1]), dtype=rows.dtype)
    full[: len(rows)] = rows
    return full


def times(rows: Floats, matrix: Floats, *, low: bool = False, out: Floats | None = None) -> Floats:
    """Multiply rows by a matrix, piece by piece.

    Products of another height may take another kernel of the BLAS, which rounds otherwise; and so may those of an array
    in another layout, or of another precision.
    rows (n, m): any number of rows; matrix (m, k): the matrix; low: pieces are lower, for rows that may be few; out:
    what to write in. Returns (n, k): the product; a row's has the same bits beside any others.
    """
    height = _LOW if low or len(matrix) > _WIDE else PIECE
    found = np.empty((len(rows), matrix.shape[1])) if out is None else out
    for start in range(0, len(rows), height):
        part, own = np.ascontiguousarray(rows[start : start + height]), found[start : start + height]
        if len(part) == height:
            np.matmul(part, matrix, out=own)
        else:
            own[:] = (padded(part, height) @ matrix)[: len(part)]
    return found
