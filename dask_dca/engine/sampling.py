"""Samples of rows, and values that stay on the cluster and are passed to functions there.

A sample of chunked data is assembled by a task and kept on the worker that ran it. Functions of its value and a few
small arguments run as tasks, independent ones at the same time, and only their results are sent back. For data in
memory the same functions are called directly.

Samples that later passes read are kept in pieces, which the scheduler computes again if a worker is lost.

Which rows are sampled depends on the number of rows alone, not on chunks.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import Any, Final, Generic, TypeVar

import numpy as np
from dask.base import is_dask_collection
from dask.delayed import Delayed, delayed
from dask.highlevelgraph import HighLevelGraph
from dask.task_spec import List, Task, TaskRef

from dask_dca.engine.advice import in_terms_of
from dask_dca.engine.computing import compute_and_persist, compute_delayed, compute_with_state, task_threads
from dask_dca.engine.entry import array_bytes, as_sent, run_task
from dask_dca.engine.graphs import (
    add_merge_tree,
    array_of_keys,
    as_dask,
    block_tasks,
    state_tasks,
    with_weights,
)
from dask_dca.engine.passes import Pass, Run, delayed_pass, run_pass, step
from dask_dca.engine.rows import Rows, as_rows
from dask_dca.engine.tiles import RowCounts, clip_rounding, require_finite, take_rows, tiles
from dask_dca.engine.types import stack_parts
from dask_dca.errors import kept_warnings, warn
from dask_dca.geometry import planes
from dask_dca.geometry.arrays import Floats, Numbers

_DOUBLE: Final = np.dtype(np.float64)
_MAX_PERSISTED_BYTES: Final = 2**28  # greatest size of rows that are persisted on the cluster between passes
T = TypeVar("T")
V = TypeVar("V")
R = TypeVar("R")


@dataclass(frozen=True)
class Held(Generic[T]):
    """A value in this process, or persisted on the cluster, which computes it again if its worker dies."""

    value: T | Delayed
    source: Any = None  # the data that it was computed from


@dataclass(frozen=True)
class _SizedValue:
    """A persisted value whose size Dask sees, so that tasks are sent to its worker rather than the value to them."""

    value: Any

    def __sizeof__(self) -> int:
        return array_bytes(self.value)


def hold_pass(
    rows: Rows,
    job: Pass[V],
    state: Any,
    run: Run,
    finish: Callable[[V], T],
    *,
    blocks: Numbers | None = None,
) -> Held[T]:
    """Run a pass, and leave its value on the cluster.

    state: small object that every block's function receives first; finish: function of the merged value; blocks:
    numbers of the blocks to visit, all if None. With a checkpoint, the value of a pass over all rows is fetched and
    kept.
    """
    point = run.checkpoint
    if rows.kind == "memory" or (blocks is None and point is not None and rows.source is point.source):
        return Held(run_task(finish, run_pass(rows, job, state, run, blocks=blocks)))
    run.count(rows.source, blocks)

    merged = delayed_pass(rows, job, state, blocks=blocks)
    key = f"dca-{job.name}-held-{uuid.uuid4().hex}"
    whole = delayed(_finish_value, pure=False)(finish, merged, dask_key_name=key)
    # the state is part of the graph: if it were scattered, the value could not be computed again without its workers
    kept = compute_with_state(None, lambda _: whole.persist(retries=run.retries), rows.source, job.name, run)
    return Held(kept, rows.source)


def call(run: Run, name: str, function: Callable[..., R], held: Held[Any], *args: Any) -> R:
    """Call a function with a persisted value, on its worker, in a task dca-<name>.

    function: of a module; it must not change the value, and must warn by `dask_dca.errors.warn` only.
    """
    return call_each(run, name, function, held, [args])[0]


def call_each(
    run: Run, name: str, function: Callable[..., R], held: Held[Any], arguments: Sequence[tuple[Any, ...]]
) -> list[R]:
    """Call a function several times with a persisted value, concurrently; arguments: further ones of each call."""
    arguments = as_sent(arguments)
    if not is_dask_collection(held.value):
        return [run_task(function, held.value, *args) for args in arguments]

    def _work(state: Any) -> Any:
        return compute_delayed(_delayed_calls(name, function, held, state, len(arguments)), name, run)

    found = []
    for value, warnings in compute_with_state(tuple(arguments), _work, held.source, name, run):
        for message, category in warnings:
            warn(message, category)
        found.append(value)
    return found


def _delayed_calls(name: str, function: Callable[..., Any], held: Held[Any], state: Any, n_calls: int) -> Delayed:
    """Build one task per call, and one that collects the results."""
    token = uuid.uuid4().hex
    own, layer = f"dca-state-{token}", f"dca-{name}-{token}"
    graph: dict[Any, Any] = state_tasks(own, state)
    keys = [(layer, i) for i in range(n_calls)]
    for key in keys:
        graph[key] = Task(key, _call_on_value, function, TaskRef(held.value.key), TaskRef(own), key[1])
    last = f"dca-results-{token}"
    graph[last] = Task(last, list, List(*map(TaskRef, keys)))
    return Delayed(last, HighLevelGraph.from_collections(layer, graph, dependencies=[held.value]), layer=layer)


def _finish_value(finish: Callable[[Any], Any], merged: Any) -> _SizedValue:
    return _SizedValue(run_task(finish, merged))


def _call_on_value(function: Callable[..., R], kept: _SizedValue, arguments: Any, number: int) -> tuple[R, list[Any]]:
    with kept_warnings() as warnings:
        return run_task(function, kept.value, *arguments[number]), warnings


@dataclass(frozen=True)
class KeepRule:
    """How the rows that blocks return are selected once they are merged to pieces.

    note: maps a piece to a small value; judge: maps the notes of all pieces to a verdict; rows: maps a piece and the
    verdict to a matrix of the rows that are kept; most_pieces: greatest number of pieces, if there are more threads.
    """

    note: Callable[[Any], Any]
    judge: Callable[[Sequence[Any]], Any]
    rows: Callable[[Any, Any], Any]
    most_pieces: int


def run_and_keep(rows: Rows, job: Pass[tuple[T, Any]], keep: KeepRule, state: Any, run: Run) -> tuple[T, Rows | None]:
    """Run a pass over chunked data whose blocks return a value and some rows.

    rows: of kind "zarr" or "dask"; job: its block function returns both, and its merge merges either; keep: how the
    rows are selected. Returns the merged value, and the selected rows, None if there are none.
    """
    run.count(rows.source)
    state = as_sent(state)
    rows, job = with_weights(rows, job)

    def compute(held: Any) -> Any:
        return compute_and_persist(*_keep_graph(rows, job, keep, held), job.name, run)

    with in_terms_of(rows.form, rows.feature_names):
        (value, sizes), pieces = compute_with_state(state, compute, rows.source, job.name, run, rows)
    if not sum(sizes):
        return value, None
    name = f"dca-parts-{uuid.uuid4().hex}"
    return value, as_rows(array_of_keys({}, [one.key for one in pieces], name, sizes, rows.n_features, _DOUBLE, pieces))


def _keep_graph(rows: Rows, job: Pass[Any], keep: KeepRule, state: Any) -> tuple[Delayed, list[Delayed]]:
    """Build the value with the sizes of the pieces, and the pieces."""
    graph, (keys,), token, below = block_tasks(rows, [job], state, None)

    def add(what: str, i: int, function: Callable[..., Any], *args: Any) -> Any:
        key = (f"dca-{what}-{token}", i)
        graph[key] = Task(key, run_task, function, *args)
        return key

    values, taken = (
        [add(f"{job.name}-{what}", i, itemgetter(j), TaskRef(key)) for i, key in enumerate(keys)]
        for j, what in enumerate(("value", "rows"))
    )
    n_pieces = max(1, min(task_threads(), keep.most_pieces))
    merged = [
        add_merge_tree(graph, job.merge, taken[own[0] : own[-1] + 1], f"dca-keep-{j}-{token}")
        for j, own in enumerate(np.array_split(np.arange(len(taken)), min(n_pieces, len(taken))))
    ]
    notes = [TaskRef(add("note", j, keep.note, TaskRef(key))) for j, key in enumerate(merged)]
    verdict = TaskRef(add("judge", 0, keep.judge, List(*notes)))
    parts = -(-n_pieces // len(merged))  # more than one if there are fewer blocks than threads
    work = [(TaskRef(key), verdict, j, parts) for key in merged for j in range(parts)]
    kept = [add("kept", i, _part_of_kept, keep.rows, *each) for i, each in enumerate(work)]
    sizes = [TaskRef(add("size", i, _n_rows, TaskRef(key))) for i, key in enumerate(kept)]
    whole = TaskRef(add_merge_tree(graph, job.merge, values, f"dca-merge-{job.name}-{token}"))
    last = add(f"{job.name}-pass", 0, tuple, List(whole, List(*sizes)))
    layered = HighLevelGraph.from_collections(token, graph, below)
    return Delayed(last, layered, layer=token), [Delayed(key, layered, layer=token) for key in kept]


def _part_of_kept(take: Callable[[Any, Any], Any], piece: Any, verdict: Any, part: int, of: int) -> Any:
    """One of several equal parts of the selected rows of a piece."""
    rows = take(piece, verdict)
    n = rows.shape[0]
    return rows[n * part // of : n * (part + 1) // of]


def _n_rows(rows: Any) -> int:
    return int(rows.shape[0])


@dataclass(frozen=True)
class _State:
    """Which rows are fetched, and which entries are refused."""

    numbers: Numbers  # sorted
    nonnegative: bool = False  # refuse negative entries
    missing: bool = False  # allow missing entries
    dtype: np.dtype[Any] = _DOUBLE


def spread_rows(n_rows: int, n_groups: int, group: int) -> Numbers | None:
    """Choose rows in short runs spread over the whole matrix, by the number of rows alone.

    n_groups: number of runs, one in each of as many equal ranges of rows; group: rows of a run. Returns sorted row
    numbers; None means all rows, if there are no more than asked for.
    """
    if n_rows <= n_groups * group:
        return None
    edges = np.arange(n_groups + 1) * n_rows // n_groups
    slack = np.diff(edges) - group
    draws = planes.uniforms(planes.child_seeds(0, np.arange(n_groups)), 1)[:, 0]
    starts = edges[:-1] + (draws * (slack + 1)).astype(np.int64)
    return (starts[:, None] + np.arange(group)).ravel()


def fetch_rows(
    rows: Rows,
    numbers: Numbers | None,
    run: Run,
    *,
    nonnegative: bool = False,
    missing: bool = False,
    dtype: np.dtype[Any] = _DOUBLE,
) -> Floats:
    """Fetch some rows (m, p) to the driver, in the order of their numbers.

    numbers: distinct, in any order; all rows if None; nonnegative: clip negative entries that are rounding errors, and
    refuse others; missing: allow missing entries.
    """
    job = Pass("fetch", _fetch_block, stack_parts)
    if run.lazy and is_dask_collection(numbers):  # numbers are not known yet, so that all blocks are read
        found = run_pass(as_dask(rows), job, step(run, "state", _fetch_state, numbers, nonnegative), run)
    else:
        rows, wanted, blocks = _locate_rows(rows, numbers)
        found = run_pass(rows, job, _State(wanted, nonnegative, missing, dtype), run, blocks=blocks)
    return found if numbers is None else step(run, "fetch", _in_order, found, numbers)


def _locate_rows(rows: Rows, numbers: Numbers | None) -> tuple[Rows, Numbers, Numbers | None]:
    """Return rows in the smallest blocks that can be read, the sorted row numbers, and the blocks with these."""
    if numbers is None:
        return rows, np.arange(rows.n_rows), None
    wanted = np.sort(numbers)
    rows, blocks = rows.blocks_for(wanted)
    return rows, wanted, blocks


def _fetch_state(numbers: Numbers, nonnegative: bool) -> _State:
    return _State(np.sort(numbers), nonnegative)


def _in_order(values: Floats, numbers: Numbers) -> Floats:
    """Put rows, which are sorted by their numbers, in the order of these."""
    return values[np.searchsorted(np.sort(numbers), numbers)]


def hold_rows(
    rows: Rows, numbers: Numbers | None, run: Run, finish: Callable[[Floats], T], *, missing: bool = False
) -> Held[T]:
    """Assemble some rows and leave them on the cluster, for functions that are called there.

    numbers: sorted, all rows if None; finish: function of the rows, which are float64, finite, and in order; missing:
    entries may be missing, so that rows are not checked, and `finish` must do it.
    """
    rows, wanted, blocks = _locate_rows(rows, numbers)
    job = Pass("fetch", _fetch_block, stack_parts)
    return hold_pass(rows, job, _State(wanted, missing=missing), run, finish, blocks=blocks)


def hold_rows_and_count(
    rows: Rows, numbers: Numbers | None, run: Run, count: Callable[..., Any], finish: Callable[[Floats, Numbers], T]
) -> Held[T]:
    """Assemble some rows as `hold_rows` does, unchecked, in a pass over all rows that also counts.

    count: a block's function without a state, which returns integers; finish: also receives their sums.
    """
    wanted = np.arange(rows.n_rows) if numbers is None else numbers
    job = Pass("count", _fetch_and_count, stack_parts)
    return hold_pass(rows, job, (_State(wanted, missing=True), count), run, partial(_finish_rows_and_count, finish))


def _fetch_and_count(state: tuple[_State, Callable[..., Any]], start: int, *columns: Any) -> tuple[Any, ...]:
    return _fetch_block(state[0], start, *columns), np.array([state[1](None, start, *columns)], dtype=np.int64)


def _finish_rows_and_count(finish: Callable[[Floats, Numbers], T], found: tuple[Floats, Numbers]) -> T:
    return finish(found[0], found[1].sum(axis=0))


def sample_rows(rows: Rows, numbers: Numbers | None, run: Run, *, nonnegative: bool = False) -> Rows:
    """Extract some rows as a matrix of their own, which later passes read instead of the data.

    numbers: sorted, all rows if None; nonnegative: clip negative entries that are rounding errors, and refuse others.
    Returns rows in memory for data in memory, else persisted on the cluster.
    Raises DCAError: an entry is not finite, or negative; the message names row and column of the data (for chunked data
    the first pass that reads the sample raises it).
    """
    if numbers is None:
        return rows
    state = _State(numbers, nonnegative, dtype=rows.output_dtype)
    if rows.kind == "memory":
        return as_rows(_fetch_block(state, 0, rows.source))
    rows, numbers, blocks = _locate_rows(rows, numbers)
    return as_rows(_persist_rows(rows, state, blocks, run))


def _persist_rows(rows: Rows, state: _State, blocks: Any, run: Run) -> Any:
    """Extract some rows of each block and persist them on the cluster, unless they are too large."""
    job = Pass("sample", _fetch_block, stack_parts)
    graph, (keys,), token, below = block_tasks(rows, [job], state, blocks, shared=run.lazy)
    layer = f"dca-{job.name}-pass-{token}"
    counts = np.diff(np.searchsorted(state.numbers, rows.offsets))[blocks]
    # number of rows of each task, which may bundle blocks
    counts = np.add.reduceat(counts, np.searchsorted(blocks, [number for _, number in keys]))
    kept = array_of_keys(graph, keys, layer, counts, rows.n_features, rows.output_dtype, below)
    if run.lazy or kept.size * kept.dtype.itemsize > _MAX_PERSISTED_BYTES:
        return kept
    # the state is in the graph, as in `hold_pass`
    return compute_with_state(None, lambda _: kept.persist(retries=run.retries), rows.source, job.name, run)


def _fetch_block(state: _State, start: int, *columns: Any) -> Floats:
    numbers, values = take_rows(columns, start, state.numbers)
    for where, tile in tiles([values], 0, copy=False):
        if not state.missing:
            require_finite(tile, numbers[where])
        if state.nonnegative:
            known = np.where(np.isnan(tile), 0.0, tile) if state.missing else tile
            clipped = clip_rounding(known, numbers[where], RowCounts())
            if clipped is not known:
                np.copyto(tile, clipped, where=~np.isnan(tile))
    return values.astype(state.dtype, copy=False)
