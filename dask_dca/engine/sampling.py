"""Samples of rows: which ones, taken out of their blocks and kept where they are, or brought to the driver.

Row numbers that are sampled depend on the number of rows alone, never on chunks.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from dask.base import is_dask_collection

from dask_dca.engine.checks import RowCensus, clip_rounding, require_finite
from dask_dca.engine.graphs import as_dask
from dask_dca.engine.held import Held, hold_pass
from dask_dca.engine.passes import Pass, keep_rows, run_pass, step
from dask_dca.engine.rows import as_rows
from dask_dca.engine.tiles import take_rows, tiles
from dask_dca.engine.types import stack_parts
from dask_dca.geometry import planes

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from dask_dca.engine.passes import Run
    from dask_dca.engine.rows import Rows

    Floats = NDArray[np.float64]
    Numbers = NDArray[np.int64]

__all__ = ["fetch_rows", "hold_rows", "sample_rows", "spread_rows"]

T = TypeVar("T")


@dataclass(frozen=True)
class _State:
    """Which rows, and whether negative entries are refused, and missing ones allowed."""

    numbers: Numbers
    nonnegative: bool
    dtype: np.dtype[Any]
    holes: bool = False


def spread_rows(n_rows: int, n_groups: int, group: int) -> Numbers | None:
    """Choose rows in short runs spread over the whole matrix, by the number of rows alone.

    n_rows: number of rows of the matrix; n_groups, group: how many runs, one in each equal stretch of the matrix, and
    how many rows each. Returns sorted row numbers; None means all rows, where there are no more than asked for.
    """
    if n_rows <= n_groups * group:
        return None
    edges = np.arange(n_groups + 1) * n_rows // n_groups
    slack = np.diff(edges) - group
    draws = planes.uniforms(planes.child_seeds(0, np.arange(n_groups)), 1)[:, 0]
    starts = edges[:-1] + (draws * (slack + 1)).astype(np.int64)
    return (starts[:, None] + np.arange(group)).ravel()


def fetch_rows(
    rows: Rows, numbers: Numbers | None, run: Run, *, nonnegative: bool = False, holes: bool = False
) -> Floats:
    """Bring some rows to the driver.

    numbers: which rows, in any order, each once; all if None; nonnegative: clip negative entries that are mere
    rounding, refuse others; holes: entries may be missing. Returns (m, p): the rows, in the order of `numbers`.
    """
    if run.lazy and is_dask_collection(numbers):  # not known yet: any block may have some
        state = step(run, "state", _of_numbers, numbers, nonnegative)
        found = run_pass(as_dask(rows), Pass("fetch", _fetch_block, stack_parts), state, run)
        return step(run, "fetch", _in_order_of, found, numbers)
    wanted = np.arange(rows.n_rows) if numbers is None else np.sort(numbers)
    rows = rows if numbers is None else rows.by_chunk()
    state = _State(wanted, nonnegative, np.dtype(np.float64), holes)
    blocks = None if numbers is None else rows.blocks_with(wanted)
    found = run_pass(rows, Pass("fetch", _fetch_block, stack_parts), state, run, blocks=blocks)
    return step(run, "fetch", _in_order, found, None if numbers is None else np.searchsorted(wanted, numbers))


def _of_numbers(numbers: Numbers, nonnegative: bool) -> _State:
    return _State(np.sort(numbers), nonnegative, np.dtype(np.float64))


def _in_order_of(found: tuple[Numbers, Floats], numbers: Numbers) -> Floats:
    return _in_order(found, np.searchsorted(np.sort(numbers), numbers))


def _in_order(found: tuple[Numbers, Floats], places: NDArray[np.intp] | None) -> Floats:
    where, values = found
    values = values[np.argsort(where)]
    return values if places is None else values[places]


def hold_rows(
    rows: Rows, numbers: Numbers | None, run: Run, finish: Callable[[Floats], T], *, holes: bool = False
) -> Held[T]:
    """Put some rows together and leave them where the data are, for what learns on them.

    numbers: which rows, sorted; all if None; finish: what to make of the rows, float64 and finite, in their order;
    holes: rows are not checked, as entries of theirs may be missing; `finish` does it.
    """
    wanted = np.arange(rows.n_rows) if numbers is None else numbers
    rows = rows if numbers is None else rows.by_chunk()
    blocks = None if numbers is None else rows.blocks_with(wanted)
    state = _State(wanted, nonnegative=False, dtype=np.dtype(np.float64), holes=holes)
    job = Pass("fetch", _fetch_block, stack_parts)
    return hold_pass(rows, job, state, run, partial(_finished, finish), blocks=blocks)


def _finished(finish: Callable[[Floats], T], found: tuple[Numbers, Floats]) -> T:
    return finish(_in_order(found, None))


def sample_rows(rows: Rows, numbers: Numbers | None, run: Run, *, nonnegative: bool = False) -> Rows:
    """Take some rows out as a matrix of their own, which later passes read instead of the whole.

    numbers: which rows, sorted; all if None; nonnegative: clip negative entries that are mere rounding, refuse others.
    Returns in memory for data in memory, else kept on the cluster.
    Raises DCAError: one of them is not finite, or negative; the message names row and column of the whole (for chunked
    data it is raised by the first pass that reads the sample).
    """
    if numbers is None:
        return rows
    state = _State(numbers, nonnegative, rows.output_dtype)
    if rows.kind == "memory":
        return as_rows(_sample_block(state, 0, rows.source))
    job = Pass("sample", _sample_block, stack_parts)
    rows = rows.by_chunk()
    blocks = rows.blocks_with(numbers)
    counts = np.diff(np.searchsorted(numbers, rows.offsets))[blocks]
    return as_rows(keep_rows(rows, job, state, blocks, counts, retries=run.retries, lazy=run.lazy))


def _sample_block(state: _State, start: int, *columns: Any) -> NDArray[Any]:
    return _fetch_block(state, start, *columns)[1].astype(state.dtype, copy=False)


def _fetch_block(state: _State, start: int, *columns: Any) -> tuple[Numbers, Floats]:
    numbers, values = take_rows(columns, start, state.numbers)
    for where, tile in tiles([values], 0, copy=False):
        if not state.holes:
            require_finite(tile, numbers[where])
        if state.nonnegative:
            clipped = clip_rounding(tile, numbers[where], RowCensus())
            if clipped is not tile:
                tile[:] = clipped
    return numbers, values
