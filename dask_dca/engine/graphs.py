"""The tasks of a pass: one a block, in which loading and kernel are fused, and the tree that merges their values."""

from __future__ import annotations

import itertools
import uuid
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np

from dask_dca.engine.halo import Window, stack_columns, window_of
from dask_dca.engine.rows import read_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

    from dask_dca.engine.halo import Halo
    from dask_dca.engine.passes import Pass
    from dask_dca.engine.rows import Rows

__all__ = ["add_merge_tree", "block_tasks"]

_FAN_IN: Final = 8  # values that one merge task takes

T = TypeVar("T")


def block_tasks(
    rows: Rows, job: Pass[Any], state: Any, blocks: NDArray[np.int64] | None
) -> tuple[dict[Any, Any], list[Any], str]:
    """
    Build the graph of one task a block.

    Parameters
    ----------
    rows : Rows
        The data, of kind "zarr" or "dask".
    job : Pass
        What to do.
    state : object
        One node of the graph, shared by all tasks; a Delayed is computed first, a future fetched.
    blocks : ndarray of int64 or None
        Which blocks to visit; all if None.

    Returns
    -------
    graph : dict
        The tasks.
    keys : list
        Those of the blocks, in order.
    token : str
        Ends all names.
    """
    token = uuid.uuid4().hex
    shared = f"dca-state-{token}"
    graph = _state_tasks(shared, state)
    chosen = range(rows.n_blocks) if blocks is None else [int(i) for i in blocks]
    add = _add_zarr_tasks if rows.kind == "zarr" else _add_dask_tasks
    return graph, add(graph, rows, job, shared, f"dca-{job.name}-{token}", chosen), token


def _state_tasks(key: str, state: Any) -> dict[Any, Any]:
    """The node that holds the state, or the tasks that compute it, or fetch it from where it was sent."""
    from dask.delayed import Delayed
    from dask.task_spec import Alias, DataNode, Task, TaskRef

    if isinstance(state, TaskRef):
        return {key: Task(key, _same, state)}
    if not isinstance(state, Delayed):
        return {key: DataNode(key, state)}
    return {**dict(state.__dask_graph__()), key: Alias(key, state.key)}


def _same(value: T) -> T:
    return value


def add_merge_tree(graph: dict[Any, Any], job: Pass[Any], keys: list[Any], name: str) -> Any:
    """
    Add the tasks that merge values, eight at a time.

    Parameters
    ----------
    graph : dict
        The tasks are added to it.
    job : Pass
        What is merged, and how.
    keys : list
        The values' keys, in order.
    name : str
        Name of the tasks.

    Returns
    -------
    key
        Of the last task.
    """
    from dask.task_spec import List, Task, TaskRef

    for level in itertools.count():
        groups = [keys[j : j + _FAN_IN] for j in range(0, len(keys), _FAN_IN)]
        keys = [(name, level, j) for j in range(len(groups))]
        for key, group in zip(keys, groups, strict=True):
            graph[key] = Task(key, job.merge, List(*[TaskRef(part) for part in group]))
        if len(keys) == 1:
            return keys[0]
    raise AssertionError  # unreachable: the loop above ends


def _add_zarr_tasks(
    graph: dict[Any, Any], rows: Rows, job: Pass[T], shared: str, name: str, chosen: Iterable[int]
) -> list[Any]:
    """One task a block, which reads its own slice."""
    from dask.task_spec import DataNode, Task, TaskRef

    source = name.replace(f"dca-{job.name}", "dca-source")
    graph[source] = DataNode(source, _ZarrBlock(rows.source, job.block, job.halo, _compact(rows.offsets)))
    both = TaskRef(source), TaskRef(shared)  # one object each: a graph of many tasks is small only if they share
    keys = [(name, i) for i in chosen]
    graph.update((key, Task(key, _call, *both, key[1], _data_producer=True)) for key in keys)
    return keys


def _compact(offsets: NDArray[np.int64]) -> range | NDArray[np.int64]:
    """Offsets of blocks of equal height, but for the last, as their first, last and step."""
    starts = range(0, int(offsets[-2]) + 1, int(offsets[1]))
    return starts if np.array_equal(offsets[:-1], starts) else offsets[:-1]


@dataclass(frozen=True)
class _ZarrBlock:
    """Read a slice of a zarr array and work on it, in one task."""

    array: Any
    block: Callable[..., Any]
    halo: Halo | None
    starts: range | NDArray[np.int64]

    def __call__(self, state: Any, number: int) -> Any:
        n_rows = int(self.array.shape[0])
        start = int(self.starts[number])
        stop = int(self.starts[number + 1]) if number + 1 < len(self.starts) else n_rows
        if self.halo is None:
            return self.block(state, start, read_rows(self.array, start, stop))
        first, last = max(start - self.halo.before, 0), min(stop + self.halo.after, n_rows)
        return self.block(state, Window(first, start, stop), read_rows(self.array, first, last))


def _call(function: Callable[..., T], *args: Any) -> T:
    return function(*args)


def _add_dask_tasks(
    graph: dict[Any, Any], rows: Rows, job: Pass[T], shared: str, name: str, chosen: Iterable[int]
) -> list[Any]:
    """One task a row block, fused with the tasks that load its column chunks."""
    from dask.optimization import cull
    from dask.task_spec import Task, TaskRef

    loads, chunk_keys = _optimized(rows.source)
    chunks = {i: [_origin(loads, key) for key in chunk_keys[i]] for i in chosen}
    pieces = dict(chunks)
    slices: dict[Any, Any] = {}
    if job.halo is not None:
        pieces, slices = _with_neighbours(rows, job.halo, loads, chunk_keys, chunks, name)
    graph.update(slices)
    uses = Counter(key for task in loads.values() if isinstance(task, Task) for key in task.dependencies)
    uses.update(itertools.chain.from_iterable(chunks.values()))
    uses.update(key for task in slices.values() for key in task.dependencies)
    keys, needed = [], {key for task in slices.values() for key in task.dependencies}
    refs = {shared: TaskRef(shared)}  # one object each: a graph of many tasks is small only if they share
    for i, own_keys in chunks.items():
        key = (name, i)
        own = {k: loads[k] for k in own_keys if uses[k] == 1 and isinstance(loads.get(k), Task)}
        others = {k for task in own.values() for k in task.dependencies} | set(pieces[i]) - own.keys()
        for k in others:
            refs.setdefault(k, TaskRef(k))
        inputs = tuple(sorted(others, key=str))
        where = int(rows.offsets[i]) if job.halo is None else window_of(rows.offsets, i, job.halo)[0]
        work = _work, job.block, len(own_keys), refs[shared], where, tuple(pieces[i]), own, inputs
        graph[key] = Task(
            key, *work, *(refs[k] for k in inputs), _data_producer=any(t.data_producer for t in own.values())
        )
        needed |= others & loads.keys()
        keys.append(key)
    graph.update(cull(loads, needed)[0])
    return keys


def _work(
    function: Callable[..., T],
    n_columns: int,
    state: Any,
    where: int | Window,
    pieces: tuple[Any, ...],
    loads: dict[Any, Any],
    inputs: tuple[Any, ...],
    *values: Any,
) -> T:
    """Load the chunks of a block and work on them, with its neighbours' rows where the pass asks for them."""
    given = dict(zip(inputs, values, strict=True))
    try:
        parts = [
            loads[key]({k: given[k] for k in loads[key].dependencies}) if key in loads else given[key] for key in pieces
        ]
        if isinstance(where, Window):
            return function(state, where, *stack_columns(parts, len(parts) // n_columns))
        return function(state, where, *parts)
    except Exception as error:
        first = where.start if isinstance(where, Window) else where
        error.add_note(f"in the block of rows that begins with row {first}")
        raise


def _with_neighbours(
    rows: Rows,
    halo: Halo,
    loads: dict[Any, Any],
    chunk_keys: list[list[Any]],
    chunks: dict[int, list[Any]],
    name: str,
) -> tuple[dict[int, list[Any]], dict[Any, Any]]:
    """For each block the keys of its pieces, column by column, and the tasks that slice its neighbours."""
    from dask.task_spec import Task, TaskRef

    slices: dict[Any, Any] = {}
    found: dict[int, list[Any]] = {}
    for i in chunks:
        reach = _reach(rows.offsets, i, halo)
        found[i] = []
        for j, own in enumerate(chunks[i]):
            for block, start, stop in reach:
                if block == i:
                    found[i].append(own)
                    continue
                key = (f"{name}-halo", i, j, block)
                slices[key] = Task(key, _slice, TaskRef(_origin(loads, chunk_keys[block][j])), start, stop)
                found[i].append(key)
    return found, slices


def _reach(offsets: NDArray[np.int64], block: int, halo: Halo) -> list[tuple[int, int, int]]:
    """Which rows of which blocks make up the window of a block; empty blocks are left out, but for its own."""
    window, last = window_of(offsets, block, halo)
    low = block
    while offsets[low] > window.first:
        low -= 1
    high = block + 1
    while offsets[high] < last:
        high += 1
    reach = []
    for other in range(low, high):
        base = int(offsets[other])
        start, stop = max(window.first - base, 0), min(last, int(offsets[other + 1])) - base
        if other == block or start < stop:
            reach.append((other, start, stop))
    return reach


def _slice(chunk: Any, start: int, stop: int) -> Any:
    """Copy rows out of a chunk, so that the chunk itself can be freed (a sparse one knows rows only as csr)."""
    return (chunk.tocsr() if hasattr(chunk, "tocsr") else chunk)[start:stop].copy()


def _origin(graph: dict[Any, Any], key: Any) -> Any:
    """Follow the aliases that optimisation leaves behind where it renames a task."""
    from dask.task_spec import Alias

    while isinstance(graph.get(key), Alias):
        key = graph[key].target
    return key


def _optimized(X: Any) -> tuple[dict[Any, Any], list[list[Any]]]:
    """Return the optimised graph of a Dask array, and its chunk keys as rows of columns."""
    import dask

    (optimized,) = dask.optimize(X)
    loads, keys = dict(optimized.__dask_graph__()), optimized.__dask_keys__()
    if any(key not in loads for key in itertools.chain.from_iterable(keys)):  # persisted: its chunks are futures
        loads, keys = dict(X.__dask_graph__()), X.__dask_keys__()
    return loads, keys
