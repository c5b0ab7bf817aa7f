"""The tasks of a pass over a Dask array: fused with the array's own, and errors that tell their block."""

from __future__ import annotations

import contextlib
import itertools
from collections import Counter
from traceback import clear_frames
from typing import TYPE_CHECKING, Any, TypeVar

from dask_dca.engine.entry import admitted, aligned
from dask_dca.engine.numerics import numpy_defaults, one_blas_thread
from dask_dca.engine.types import Window, stack_columns, window_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from dask_dca.engine.entry import Declared
    from dask_dca.engine.rows import Rows
    from dask_dca.engine.types import Halo, Pass

T = TypeVar("T")


def add_dask_tasks(
    graph: dict[Any, Any],
    rows: Rows,
    jobs: Sequence[Pass[T]],
    held: str,
    names: Sequence[str],
    chosen: Iterable[int],
    *,
    shared: bool = False,
) -> list[list[Any]]:
    """Add one task per row block and pass, fused with the tasks that load its column chunks where no other needs these.

    graph: the tasks are added to it; rows: the data, of kind "dask"; jobs: what to do; a pass comes after those whose
    values it receives; names: names of the tasks of each pass; shared: refer to the array's own chunks, and leave their
    tasks to whoever computes the array's graph. Returns the tasks' keys for each pass.
    """
    from dask.optimization import cull
    from dask.task_spec import Task, TaskRef

    loads, chunk_keys = ({}, rows.source.__dask_keys__()) if shared else _optimized(rows.source)
    chunks = {i: [_origin(loads, key) for key in chunk_keys[i]] for i in chosen}
    uses = Counter(key for task in loads.values() if isinstance(task, Task) for key in task.dependencies)
    uses.update(itertools.chain.from_iterable([*chunks.values()] * len(jobs)))
    declared, needed = rows.declared, set()
    refs: dict[Any, Any] = {held: TaskRef(held)}  # one object each: a graph of many tasks is small only if they share
    keys: list[list[Any]] = []
    for job, name in zip(jobs, names, strict=True):
        pieces = chunks
        slices: dict[Any, Any] = {}
        if job.halo is not None:
            pieces, slices = _with_neighbours(rows, job.halo, loads, chunk_keys, chunks, name)
        graph.update(slices)
        for task in slices.values():
            uses.update(task.dependencies)
            needed |= task.dependencies
        for i, own_keys in chunks.items():
            own = {k: loads[k] for k in own_keys if uses[k] == 1 and isinstance(loads.get(k), Task)}
            lead = tuple((names[j], i) for j in job.after)
            others = {k for task in own.values() for k in task.dependencies} | set(pieces[i]) - own.keys() | {*lead}
            for k in others:
                refs.setdefault(k, TaskRef(k))
            inputs = tuple(sorted(others, key=str))
            where = rows.numbers_of(i) if job.halo is None else window_of(rows.offsets, i, job.halo)[0]
            work = _work, job.block, declared, refs[held], where, tuple(own_keys), tuple(pieces[i]), lead, own, inputs
            produces = any(task.data_producer for task in own.values())
            graph[name, i] = Task((name, i), *work, *(refs[k] for k in inputs), _data_producer=produces)
            needed |= others & loads.keys()
        keys.append([(name, i) for i in chunks])
    if not shared:
        graph.update(cull(loads, needed)[0])
        _name_loads(graph, rows, ((i, _origin(loads, key)) for i, every in enumerate(chunk_keys) for key in every))
    return keys


def _name_loads(graph: dict[Any, Any], rows: Rows, chunks: Iterable[tuple[int, Any]]) -> None:
    """Let chunks that several tasks share be loaded by tasks that tell which block failed."""
    from dask.task_spec import Task, TaskRef

    for i, key in chunks:
        task = graph.get(key)
        if isinstance(task, Task):
            inputs = tuple(sorted(task.dependencies, key=str))
            work = _load, int(rows.offsets[i]), {key: task}, inputs
            graph[key] = Task(key, *work, *map(TaskRef, inputs), _data_producer=task.data_producer)


def _load(first: int, loads: dict[Any, Any], inputs: tuple[Any, ...], *values: Any) -> Any:
    """Load one chunk."""
    ((_, task),) = loads.items()
    with _naming(first):
        return task(dict(zip(inputs, values, strict=True)))


@contextlib.contextmanager
def _naming(first: int) -> Iterator[None]:
    """Say of an error in which block it happened."""
    try:
        yield
    except Exception as error:
        error.add_note(f"in the block of rows that begins with row {first}")
        raise


@numpy_defaults
def _work(*args: Any) -> Any:
    try:
        return _worked(*args)
    except Exception as error:
        clear_frames(error.__traceback__)  # they hold the block for as long as the scheduler keeps the error
        raise


def _worked(
    function: Callable[..., T],
    declared: Declared,
    state: Any,
    where: range | Window,
    own: tuple[Any, ...],
    pieces: tuple[Any, ...],
    lead: tuple[Any, ...],
    loads: dict[Any, Any],
    inputs: tuple[Any, ...],
    *values: Any,
) -> T:
    """
    Load the chunks of a block and work on them, with its neighbours' rows where the pass asks for them.

    The values of the passes that come before, if there are any, are what the function receives first.
    """
    given = dict(zip(inputs, values, strict=True))
    with _naming(where.start), one_blas_thread():
        parts = [
            loads[key]({k: given[k] for k in loads[key].dependencies}) if key in loads else given[key] for key in own
        ]
        parts = admitted(parts, range(where.start, where.stop), declared)
        if isinstance(where, range):
            return function(*([given[key] for key in lead],) * bool(lead), aligned(state), where.start, *parts)
        found = {**given, **dict(zip(own, parts, strict=True))}
        return function(aligned(state), where, *stack_columns([found[key] for key in pieces], len(pieces) // len(own)))


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
    declared = [rows.declared.chunk(j) for j in range(len(chunk_keys[0]))]
    for i in chunks:
        reach = _reach(rows.offsets, i, halo)
        found[i] = []
        for j, own in enumerate(chunks[i]):
            for block, start, stop in reach:
                if block == i:
                    found[i].append(own)
                    continue
                key, chunk = (f"{name}-halo", i, j, block), TaskRef(_origin(loads, chunk_keys[block][j]))
                slices[key] = Task(key, _slice, chunk, start, stop, rows.numbers_of(block), declared[j])
                found[i].append(key)
    return found, slices


def _reach(offsets: NDArray[np.int64], block: int, halo: Halo) -> list[tuple[int, int, int]]:
    """Which rows of which blocks make up the window of a block; empty blocks are left out, except for its own."""
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


def _slice(chunk: Any, start: int, stop: int, rows: range, declared: Declared) -> Any:
    """Copy rows out of a chunk, so that the chunk itself can be freed."""
    with _naming(rows.start):
        (found,) = admitted([chunk], rows, declared)
        return found[start:stop].copy()


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
