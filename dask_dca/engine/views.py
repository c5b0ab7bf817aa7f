"""Rows with three views: column groups, or whatever else cuts a block in three."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from dask_dca.engine.checks import require_squares
from dask_dca.engine.passes import Pass, run_pass
from dask_dca.engine.tiles import tiles

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from dask_dca.engine.passes import Run
    from dask_dca.engine.rows import Rows

    Floats = NDArray[np.float64]
    Numbers = NDArray[np.int64]
    Three = tuple[Floats, Floats, Floats]

__all__ = ["ColumnViews", "Views", "fetch_views"]


class Views(Protocol):
    """How a block of rows is read as three views: column groups, or successive observations."""

    def tiles(self, columns: Sequence[Any], start: int) -> Iterator[tuple[Numbers, Three]]:
        """
        Cut a block into row numbers and three float64 matrices of these rows.

        Parameters
        ----------
        columns : sequence of ndarray or sparse matrix, each of shape (n, p_j)
            The block's column chunks.
        start : int
            Row number of the block's first row.
        """


@dataclass(frozen=True)
class ColumnViews:
    """Three groups of columns as views."""

    groups: tuple[Numbers, Numbers, Numbers]

    def tiles(self, columns: Sequence[Any], start: int) -> Iterator[tuple[Numbers, Three]]:
        """
        Cut a block of rows into its views.

        Parameters
        ----------
        columns : sequence of ndarray or sparse matrix, each of shape (n, p_j)
            The block's column chunks.
        start : int
            Row number of the block's first row.

        Yields
        ------
        numbers : ndarray of int64, shape (m,)
            Row numbers.
        views : tuple of ndarray of float64, shapes (m, p1), (m, p2) and (m, p3)
            Their views.

        Raises
        ------
        NotFiniteError
            A row holds NaN or infinity.
        """
        first, second, third = self.groups
        for numbers, tile in tiles(columns, start, copy=False):
            require_squares(tile, numbers)
            yield numbers, (tile[:, first], tile[:, second], tile[:, third])


def fetch_views(rows: Rows, views: Views, numbers: Numbers | None, run: Run) -> Three:
    """
    Bring the views of some rows to the driver.

    Parameters
    ----------
    rows : Rows
        The data.
    views : Views
        How they are read.
    numbers : ndarray of int64 or None
        Which rows; all if None. Rows that have no views (the first of a sequence, say) are left out.
    run : Run
        How passes are run.

    Returns
    -------
    tuple of ndarray of float64, shapes (m, p1), (m, p2) and (m, p3)
        The views, in the order of the numbers.
    """
    rows = rows if numbers is None else rows.by_chunk()
    wanted = np.arange(rows.n_rows) if numbers is None else np.unique(numbers)
    job = Pass("fetch", _fetch_block, _merge_fetched)
    blocks = None if numbers is None else rows.blocks_with(wanted)
    found, first, second, third = run_pass(rows, job, (views, wanted), run, blocks=blocks)
    order = np.argsort(found)
    if numbers is not None:
        there = numbers[np.isin(numbers, found)]
        order = order[np.searchsorted(found[order], there)]
    return first[order], second[order], third[order]


def _fetch_block(state: tuple[Views, Numbers], start: int, *columns: Any) -> tuple[Any, ...]:
    views, wanted = state
    found = []
    for numbers, parts in views.tiles(columns, start):
        kept = np.isin(numbers, wanted, assume_unique=True)
        found.append((numbers[kept], *(part[kept] for part in parts)))
    return _merge_fetched(found)


def _merge_fetched(parts: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
    parts = [part for part in parts if part]
    return tuple(np.concatenate(some) for some in zip(*parts, strict=True))
