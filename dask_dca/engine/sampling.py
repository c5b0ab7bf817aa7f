"""Samples of rows, and values that stay on the cluster, where functions are called with them.

A sample of chunked data is put together by a task and kept by the worker that did it. What learns on it are functions
of its value and of a few small arguments, called by tasks; several at a time where they don't need each other. Only
what they return comes back. For data in memory the same functions are called at once.

Later passes read the pieces as any other rows. They are not lost with a worker: the scheduler knows how to take them
again.

Row numbers that are sampled depend on the number of rows alone, never on chunks.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import numpy as np
from dask.base import is_dask_collection

from dask_dca.engine.advice import in_terms_of
from dask_dca.engine.computing import computed, computed_and_kept, task_threads, try_with
from dask_dca.engine.entry import aligned, held_bytes
from dask_dca.engine.graphs import add_merge_tree, as_dask, beside_weights, block_tasks, rows_of_tasks, state_tasks
from dask_dca.engine.numerics import call_on_one_blas_thread
from dask_dca.engine.passes import Pass, delayed_pass, layered, run_pass, step
from dask_dca.engine.rows import as_rows
from dask_dca.engine.tiles import RowCensus, clip_rounding, require_finite, take_rows, tiles
from dask_dca.engine.types import stack_parts
from dask_dca.errors import kept_warnings, warn
from dask_dca.geometry import planes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dask.delayed import Delayed
    from numpy.typing import NDArray

    from dask_dca.engine.passes import Run
    from dask_dca.engine.rows import Rows
    from dask_dca.geometry.arrays import Floats, Numbers


_DOUBLE: Final = np.dtype(np.float64)
_KEPT_BYTES: Final = 2**28  # rows kept on the cluster between passes take no more memory than this
T = TypeVar("T")
V = TypeVar("V")
R = TypeVar("R")


@dataclass(frozen=True)
class Held(Generic[T]):
    """A value: at hand, or kept by the cluster, which makes it again if the worker that has it dies."""

    value: T | Delayed
    source: Any = None  # the data that it is of


@dataclass(frozen=True)
class _Kept:
    """What workers keep, of a size that the scheduler can see: it sends tasks there rather than the value to them."""

    value: Any

    def __sizeof__(self) -> int:
        return held_bytes(self.value)


def hold_pass(
    rows: Rows,
    job: Pass[V],
    state: Any,
    run: Run,
    finish: Callable[[V], T],
    *,
    blocks: Numbers | None = None,
) -> Held[T]:
    """Run a pass, and leave its value where the data are.

    state: small object that every block's function receives first; run: how it is run. Where a checkpoint keeps passes
    over all rows, this one comes to the driver to be kept, too; finish: what to make of the merged blocks; blocks:
    which blocks to visit; all if None.
    """
    point = run.checkpoint
    if rows.kind == "memory" or (blocks is None and point is not None and rows.source is point.source):
        return Held(call_on_one_blas_thread(finish, run_pass(rows, job, state, run, blocks=blocks)))
    run.count(rows.source, blocks)
    import dask

    merged = delayed_pass(rows, job, state, blocks=blocks)
    key = f"dca-{job.name}-held-{uuid.uuid4().hex}"
    whole = dask.delayed(_kept, pure=False)(finish, merged, dask_key_name=key)
    # the state is not sent apart: the scheduler could not make the value again without those who held it
    kept = try_with(None, lambda _: whole.persist(retries=run.retries), rows.source, job.name, run)
    return Held(kept, rows.source)


def call(run: Run, name: str, function: Callable[..., R], held: Held[Any], *args: Any) -> R:
    """Call a function where a value is.

    run: how often a failing task is tried again, and whether progress is shown; name: A task is called dca-<name>;
    function: A function of a module; it neither changes the value nor warns otherwise than by `dask_dca.errors.warn`.
    """
    return call_each(run, name, function, held, [args])[0]


def call_each(
    run: Run, name: str, function: Callable[..., R], held: Held[Any], arguments: Sequence[tuple[Any, ...]]
) -> list[R]:
    """Call a function several times where a value is, at the same time if there are threads for it.

    arguments: the other arguments of each call.
    """
    if not is_dask_collection(held.value):
        return [call_on_one_blas_thread(function, held.value, *args) for args in arguments]

    def _work(state: Any) -> Any:
        return computed(_delayed_calls(name, function, held, state, len(arguments)), name, run)

    found = []
    for value, warnings in try_with(tuple(arguments), _work, held.source, name, run):
        for message, category in warnings:
            warn(message, category)
        found.append(value)
    return found


def _delayed_calls(name: str, function: Callable[..., Any], held: Held[Any], state: Any, n_calls: int) -> Delayed:
    """One task a call, and one that collects what they return."""
    from dask.delayed import Delayed
    from dask.highlevelgraph import HighLevelGraph
    from dask.task_spec import List, Task, TaskRef

    token = uuid.uuid4().hex
    own, layer = f"dca-state-{token}", f"dca-{name}-{token}"
    graph: dict[Any, Any] = state_tasks(own, state)
    keys = [(layer, i) for i in range(n_calls)]
    for key in keys:
        graph[key] = Task(key, _called, function, TaskRef(held.value.key), TaskRef(own), key[1])
    last = f"dca-results-{token}"
    graph[last] = Task(last, list, List(*map(TaskRef, keys)))
    return Delayed(last, HighLevelGraph.from_collections(layer, graph, dependencies=[held.value]), layer=layer)


def _kept(finish: Callable[[Any], Any], merged: Any) -> _Kept:
    return _Kept(call_on_one_blas_thread(finish, merged))


def _called(function: Callable[..., R], kept: _Kept, arguments: Any, number: int) -> tuple[R, list[Any]]:
    with kept_warnings() as told:
        return call_on_one_blas_thread(function, aligned(kept.value), *aligned(arguments[number])), told


@dataclass(frozen=True)
class Keep:
    """What becomes of the rows that blocks took along, once these are merged to pieces.

    note: of a piece, what must be known to judge; judge: of the notes of all pieces, what is to be kept; rows: of a
    piece and that, a matrix of the rows that are kept; most_pieces: not cut into more; else there are as many as
    threads.
    """

    note: Callable[[Any], Any]
    judge: Callable[[Sequence[Any]], Any]
    rows: Callable[[Any, Any], Any]
    most_pieces: int


def run_and_keep(rows: Rows, job: Pass[tuple[T, Any]], keep: Keep, state: Any, run: Run) -> tuple[T, Rows | None]:
    """Run a pass over chunked data whose blocks give a value and some rows.

    rows: the data, of kind "zarr" or "dask"; job: its block function returns both; its merge merges values, and it
    merges rows; keep: what becomes of the rows; state: what every block's function receives first. Returns value: what
    the merged blocks gave; kept: the rows in pieces; None if there are none.
    """
    run.count(rows.source)
    rows, job = beside_weights(rows, job)

    def compute(held: Any) -> Any:
        return computed_and_kept(*_graph(rows, job, keep, held), job.name, run)

    with in_terms_of(rows.form, rows.feature_names):
        (value, sizes), pieces = try_with(state, compute, rows.source, job.name, run, rows)
    return value, as_rows(_array(pieces, sizes, rows)) if sum(sizes) else None


def _graph(rows: Rows, job: Pass[Any], keep: Keep, state: Any) -> tuple[Delayed, list[Delayed]]:
    """The value with the sizes of the pieces, and the pieces."""
    from dask.delayed import Delayed
    from dask.highlevelgraph import HighLevelGraph
    from dask.task_spec import List, Task, TaskRef

    graph, (keys,), token = block_tasks(rows, [job], state, None)

    def add(what: str, i: int, function: Callable[..., Any], *args: Any) -> Any:
        key = (f"dca-{what}-{token}", i)
        graph[key] = Task(key, call_on_one_blas_thread, function, *args)
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
    parts = -(-n_pieces // len(merged))  # where blocks are fewer than threads
    work = [(TaskRef(key), verdict, j, parts) for key in merged for j in range(parts)]
    kept = [add("kept", i, _part, keep.rows, *each) for i, each in enumerate(work)]
    sizes = [TaskRef(add("size", i, _height, TaskRef(key))) for i, key in enumerate(kept)]
    whole = TaskRef(add_merge_tree(graph, job.merge, values, f"dca-merge-{job.name}-{token}"))
    last = add(f"{job.name}-pass", 0, tuple, List(whole, List(*sizes)))
    layered = HighLevelGraph({token: graph}, {token: set()})
    return Delayed(last, layered, layer=token), [Delayed(key, layered, layer=token) for key in kept]


def _part(take: Callable[[Any, Any], Any], piece: Any, verdict: Any, part: int, of: int) -> Any:
    """One of several equal parts of the rows that are kept of a piece."""
    rows = take(piece, verdict)
    n = rows.shape[0]
    return rows[n * part // of : n * (part + 1) // of]


def _height(rows: Any) -> int:
    return int(rows.shape[0])


def _array(pieces: Sequence[Delayed], sizes: Sequence[int], rows: Rows) -> Any:
    """Pieces one below the other as a Dask array, of which nothing is copied."""
    import dask.array as da
    from dask.highlevelgraph import HighLevelGraph
    from dask.task_spec import Alias

    name = f"dca-pieces-{pieces[0].key}"
    graph = {(name, i, 0): Alias((name, i, 0), piece.key) for i, piece in enumerate(pieces)}
    layered = HighLevelGraph.from_collections(name, graph, dependencies=pieces)
    return da.Array(layered, name, (tuple(sizes), (rows.n_features,)), dtype=np.dtype(np.float64))


@dataclass(frozen=True)
class _State:
    """Which rows, and whether negative entries are refused, and missing ones allowed."""

    numbers: Numbers
    nonnegative: bool = False
    holes: bool = False
    dtype: np.dtype[Any] = _DOUBLE


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
    rows: Rows,
    numbers: Numbers | None,
    run: Run,
    *,
    nonnegative: bool = False,
    holes: bool = False,
    dtype: np.dtype[Any] = _DOUBLE,
) -> Floats:
    """Bring some rows to the driver.

    numbers: which rows, in any order, each once; all if None; nonnegative: clip negative entries that are mere
    rounding, refuse others; holes: entries may be missing. Returns (m, p): the rows, in the order of `numbers`.
    """
    job = Pass("fetch", _fetch_block, stack_parts)
    if run.lazy and is_dask_collection(numbers):  # not known yet: any block may have some
        found = run_pass(as_dask(rows), job, step(run, "state", _of_numbers, numbers, nonnegative), run)
    else:
        rows, wanted, blocks = _located(rows, numbers)
        found = run_pass(rows, job, _State(wanted, nonnegative, holes, dtype), run, blocks=blocks)
    return step(run, "fetch", _in_order, found, numbers)


def _located(rows: Rows, numbers: Numbers | None) -> tuple[Rows, Numbers, Numbers | None]:
    """Rows in the smallest blocks that can be read, the sorted numbers that are wanted, and the blocks with them."""
    if numbers is None:
        return rows, np.arange(rows.n_rows), None
    wanted = np.sort(numbers)
    rows, blocks = rows.blocks_for(wanted)
    return rows, wanted, blocks


def _of_numbers(numbers: Numbers, nonnegative: bool) -> _State:
    return _State(np.sort(numbers), nonnegative)


def _in_order(found: tuple[Numbers, Floats], numbers: Numbers | None = None) -> Floats:
    """Rows in the order of their numbers, or of those that are given."""
    where, values = found
    if (np.diff(where) < 0).any():
        values = values[np.argsort(where)]
    return values if numbers is None else values[np.searchsorted(np.sort(numbers), numbers)]


def hold_rows(
    rows: Rows, numbers: Numbers | None, run: Run, finish: Callable[[Floats], T], *, holes: bool = False
) -> Held[T]:
    """Put some rows together and leave them where the data are, for what learns on them.

    numbers: which rows, sorted; all if None; finish: what to make of the rows, float64 and finite, in their order;
    holes: rows are not checked, as entries of theirs may be missing; `finish` does it.
    """
    rows, wanted, blocks = _located(rows, numbers)
    job = Pass("fetch", _fetch_block, stack_parts)
    return hold_pass(rows, job, _State(wanted, holes=holes), run, partial(_finished, finish), blocks=blocks)


def hold_rows_and_count(
    rows: Rows, numbers: Numbers | None, run: Run, count: Callable[..., Any], finish: Callable[[Floats, Numbers], T]
) -> Held[T]:
    """Put some rows together as `hold_rows` does, unchecked, in a pass over all rows which counts them.

    count: a pass's function without a state, which returns integers; finish: also receives their sums.
    """
    wanted = np.arange(rows.n_rows) if numbers is None else numbers
    state = _State(wanted, nonnegative=False, dtype=np.dtype(np.float64), holes=True), count
    job = Pass("count", _fetch_and_count, stack_parts)
    return hold_pass(rows, job, state, run, partial(_finished_count, finish))


def _fetch_and_count(state: tuple[_State, Callable[..., Any]], start: int, *columns: Any) -> tuple[Any, ...]:
    return *_fetch_block(state[0], start, *columns), np.array([state[1](None, start, *columns)], dtype=np.int64)


def _finished_count(finish: Callable[[Floats, Numbers], T], found: tuple[Numbers, Floats, Numbers]) -> T:
    return finish(_in_order(found[:2], None), found[2].sum(axis=0))


def _finished(finish: Callable[[Floats], T], found: tuple[Numbers, Floats]) -> T:
    return finish(_in_order(found))


def sample_rows(rows: Rows, numbers: Numbers | None, run: Run, *, nonnegative: bool = False) -> Rows:
    """Take some rows out as a matrix of their own, which later passes read instead of the whole.

    numbers: which rows, sorted; all if None; nonnegative: clip negative entries that are mere rounding, refuse others.
    Returns in memory for data in memory, else kept on the cluster.
    Raises DCAError: one of them is not finite, or negative; the message names row and column of the whole (for chunked
    data it is raised by the first pass that reads the sample).
    """
    if numbers is None:
        return rows
    state = _State(numbers, nonnegative, dtype=rows.output_dtype)
    if rows.kind == "memory":
        return as_rows(_sample_block(state, 0, rows.source))
    rows, numbers, blocks = _located(rows, numbers)
    return as_rows(_kept_rows(rows, state, blocks, run))


def _kept_rows(rows: Rows, state: _State, blocks: Any, run: Run) -> Any:
    """Take some rows out of each block and keep them on the cluster: later passes need not read the blocks again."""
    job = Pass("sample", _sample_block, stack_parts)
    graph, (keys,), token = block_tasks(rows, [job], state, blocks, shared=run.lazy)
    layer = f"dca-{job.name}-pass-{token}"
    whole = layered(layer, graph, [rows.source, state] if run.lazy else [])
    counts = np.diff(np.searchsorted(state.numbers, rows.offsets))[blocks]
    counts = np.add.reduceat(counts, np.searchsorted(blocks, [number for _, number in keys]))  # of bundles of blocks
    kept = rows_of_tasks(whole, layer, keys, counts, rows.n_features, rows.output_dtype)
    if run.lazy or kept.nbytes > _KEPT_BYTES:
        return kept
    # the state is in the graph, as in `hold_pass`
    return try_with(None, lambda _: kept.persist(retries=run.retries), rows.source, job.name, run)


def _sample_block(state: _State, start: int, *columns: Any) -> NDArray[Any]:
    return _fetch_block(state, start, *columns)[1]


def _fetch_block(state: _State, start: int, *columns: Any) -> tuple[Numbers, Floats]:
    numbers, values = take_rows(columns, start, state.numbers)
    for where, tile in tiles([values], 0, copy=False):
        if not state.holes:
            require_finite(tile, numbers[where])
        if state.nonnegative:
            known = np.where(np.isnan(tile), 0.0, tile) if state.holes else tile
            clipped = clip_rounding(known, numbers[where], RowCensus())
            if clipped is not known:
                np.copyto(tile, clipped, where=~np.isnan(tile))
    return numbers, values.astype(state.dtype, copy=False)
