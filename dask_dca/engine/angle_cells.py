"""The passes of the paper's subspace clustering: histograms of angles, and the extreme rows of their cells."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dask_dca.engine.checks import require_finite
from dask_dca.engine.merges import add_parts
from dask_dca.engine.passes import Pass, run_pass
from dask_dca.engine.tiles import tiles
from dask_dca.geometry import angles, planes
from dask_dca.geometry.arg_best import NOBODY, ArgBest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from dask_dca.engine.passes import Run
    from dask_dca.engine.rows import Rows

    Floats = NDArray[np.float64]
    Numbers = NDArray[np.int64]

__all__ = ["AnglePlanes", "angle_histograms", "cell_extremes", "cells_of"]

BINS: Final = 512  # of the half turn
_KEY: Final = 2.0**24  # of a cosine
_CUT_ENTRIES: Final = 2**17


@dataclass(frozen=True)
class AnglePlanes:
    """What regenerates the planes, and the cell of each bin of each plane once they are known."""

    ensemble: str
    seed: int
    count: int
    sample: Floats | None = None
    cells: Numbers | None = None  # (s, BINS)

    def pairs(self, n_features: int) -> planes.Pairs:
        """
        Regenerate the integer directions of all planes.

        Parameters
        ----------
        n_features : int
            Number of features p.

        Returns
        -------
        ndarray or scipy.sparse.csr_array
            As `geometry.angles.integer_pairs` returns them.
        """
        every = np.arange(self.count)
        return angles.integer_pairs(planes.plane_pairs(self.ensemble, self.seed, every, n_features, self.sample))


def angle_histograms(rows: Rows, state: AnglePlanes, run: Run) -> Numbers:
    """
    Count the rows' angles to the axis of each plane.

    Parameters
    ----------
    rows : Rows
        The data.
    state : AnglePlanes
        The planes.
    run : Run
        How passes are run.

    Returns
    -------
    ndarray of int64, shape (s, 512)
        Rows by angle, from 0 to half a turn; rows without projection are left out.
    """
    return run_pass(rows, Pass("angles", _count_block, add_parts), state, run)


def cell_extremes(rows: Rows, state: AnglePlanes, run: Run) -> ArgBest:
    """
    Find the rows of least and of greatest angle in each cell of each plane.

    Parameters
    ----------
    rows : Rows
        The data.
    state : AnglePlanes
        The planes, with cells.
    run : Run
        How passes are run.

    Returns
    -------
    ArgBest of shape (2, s * c)
        By the greatest cosine, of the least angle, and by the least, negated; ties go to the lower row number.
    """
    return run_pass(rows, Pass("divide", _extreme_block, add_parts), state, run)


def cells_of(rows: Floats, state: AnglePlanes) -> Numbers:
    """
    Return the cells that rows lie in.

    Parameters
    ----------
    rows : ndarray of float64, shape (m, p)
        Rows.
    state : AnglePlanes
        The planes, with cells.

    Returns
    -------
    ndarray of int64, shape (m, s)
        Numbers of cells; -1 for a row without projection.
    """
    keys = angles.cosine_keys(angles.inner_products(rows, state.pairs(rows.shape[1]))[0])
    return _cells(keys, state)


def _bins(keys: Floats) -> Numbers:
    """Bin of each angle; -1 where there is none."""
    there = np.isfinite(keys)
    turn = np.arccos(np.clip(np.where(there, keys, 0.0) / _KEY, -1.0, 1.0)) / np.pi
    return np.where(there, np.minimum((turn * BINS).astype(np.int64), BINS - 1), -1)


def _cells(keys: Floats, state: AnglePlanes) -> Numbers:
    assert state.cells is not None
    bins = _bins(keys)
    return np.where(bins >= 0, state.cells[np.arange(state.count), bins], -1)


def _cuts(state: AnglePlanes, start: int, columns: Sequence[Any]) -> Iterator[tuple[Numbers, Floats]]:
    """Row numbers and cosines of a few rows at a time."""
    pairs = state.pairs(sum(part.shape[1] for part in columns))
    step = max(16, _CUT_ENTRIES // state.count)
    for numbers, tile in tiles(columns, start, copy=False):
        require_finite(tile, numbers)
        for begin in range(0, len(numbers), step):
            some = slice(begin, begin + step)
            yield numbers[some], angles.cosine_keys(angles.inner_products(tile[some], pairs)[0])


def _count_block(state: AnglePlanes, start: int, *columns: Any) -> Numbers:
    counts = np.zeros(state.count * BINS, dtype=np.int64)
    for _, keys in _cuts(state, start, columns):
        bins = _bins(keys)
        places = (np.arange(state.count) * BINS + bins)[bins >= 0]
        counts += np.bincount(places, minlength=len(counts))
    return counts.reshape(state.count, BINS)


def _extreme_block(state: AnglePlanes, start: int, *columns: Any) -> ArgBest:
    assert state.cells is not None
    width = int(state.cells.max()) + 1
    size = state.count * width
    found = ArgBest.nobody((2, size))
    for numbers, keys in _cuts(state, start, columns):
        cells = _cells(keys, state)
        there = cells >= 0
        groups = (np.arange(state.count) * width + cells)[there]
        rows = np.broadcast_to(numbers[:, None], keys.shape)[there]
        sides = [_best(sign * keys[there], groups, rows, size) for sign in (1.0, -1.0)]
        keys, first = map(np.stack, zip(*sides, strict=True))
        found += ArgBest(keys, first, found.values)
    return found


def _best(keys: Floats, groups: Numbers, rows: Numbers, size: int) -> tuple[Floats, Numbers]:
    """Greatest key of each group, and the first row that has it."""
    top = np.full(size, -np.inf)
    np.maximum.at(top, groups, keys)
    winners = np.flatnonzero(keys == top[groups])[::-1]
    first = np.full(size, NOBODY)
    first[groups[winners]] = rows[winners]  # rows increase, so the last one written is the lowest
    return top, first
