"""The tasks of a pass: one per block, in which loading and kernel are fused, and the tree that merges their values."""

from __future__ import annotations

import contextlib
import itertools
import uuid
from collections import Counter
from dataclasses import dataclass, replace
from functools import partial
from traceback import clear_frames
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np

from dask_dca.engine.computing import task_threads
from dask_dca.engine.entry import add_zarr_tasks, admitted, aligned, bundles, read_by
from dask_dca.engine.numerics import call_on_one_blas_thread, numpy_defaults, one_blas_thread
from dask_dca.engine.types import Window, rounded_weights, stack_columns, window_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from dask_dca.engine.entry import Declared
    from dask_dca.engine.rows import Rows
    from dask_dca.engine.types import Halo, Pass

_FAN_IN: Final = 8  # values that one merge task takes

T = TypeVar("T")


def block_tasks(
    rows: Rows, jobs: Sequence[Pass[Any]], state: Any, blocks: NDArray[np.int64] | None, *, shared: bool = False
) -> tuple[dict[Any, Any], list[list[Any]], str]:
    """Build the graph of one task per block and pass.

    Returns keys: those of the blocks, in order, for each pass.
    """
    token = uuid.uuid4().hex
    held = f"dca-state-{token}"
    graph = state_tasks(held, state, shared=shared)
    chosen = range(rows.n_blocks) if blocks is None else [int(i) for i in blocks]
    if rows.kind == "zarr" and len(jobs) > 1:
        rows = as_dask(rows)
    if rows.kind == "zarr":
        (job,) = jobs
        some = [[i] for i in chosen] if blocks is None else bundles(rows, blocks, task_threads())
        return graph, [add_zarr_tasks(graph, rows, job, held, f"dca-{job.name}-{token}", some)], token
    names = [f"dca-{job.name}-{token}" for job in jobs]
    return graph, _add_dask_tasks(graph, rows, jobs, held, names, chosen, shared=shared), token


def state_tasks(key: str, state: Any, *, shared: bool = False) -> dict[Any, Any]:
    """Build the node that holds a state, or the tasks that compute it, or fetch it from where it was sent.

    state: A value, a Delayed, or a future; shared: leave the tasks of a Delayed to whoever computes its graph.
    """
    from dask.delayed import Delayed
    from dask.task_spec import Alias, DataNode, Task, TaskRef

    if isinstance(state, TaskRef):
        return {key: Task(key, _same, state)}
    if not isinstance(state, Delayed):
        return {key: DataNode(key, state)}
    own = {} if shared else dict(state.__dask_graph__())
    return {**own, key: Alias(key, state.key)}


def _same(value: T) -> T:
    return value


def rows_of_tasks(
    whole: Any, layer: str, keys: Sequence[Any], counts: NDArray[np.int64], width: int, dtype: np.dtype[Any]
) -> Any:
    """Put what tasks return below each other, as a Dask array.

    whole: the graph; layer: its layer with the tasks, of these keys; counts: rows that each returns.
    """
    import dask.array as da
    from dask.delayed import Delayed

    parts = zip(keys, counts, strict=True)
    blocks = [da.from_delayed(Delayed(key, whole, layer=layer), (int(n), width), dtype=dtype) for key, n in parts]
    return da.concatenate(blocks)


def add_merge_tree(graph: dict[Any, Any], merge: Callable[[Sequence[Any]], Any], keys: list[Any], name: str) -> Any:
    """Add the tasks that merge values, eight at a time.

    graph: the tasks are added to it; merge: makes one value of several; keys: the values' keys, in order.
    """
    from dask.task_spec import List, Task, TaskRef

    for level in itertools.count():
        groups = [keys[j : j + _FAN_IN] for j in range(0, len(keys), _FAN_IN)]
        keys = [(name, level, j) for j in range(len(groups))]
        for key, group in zip(keys, groups, strict=True):
            graph[key] = Task(key, call_on_one_blas_thread, merge, List(*[TaskRef(part) for part in group]))
        if len(keys) == 1:
            return keys[0]
    raise AssertionError  # unreachable: the loop above ends


def add_conquest(graph: dict[Any, Any], job: Pass[Any], keys: list[list[Any]], token: str) -> Any:
    """Add the tasks that merge the values of blocks, and then those of groups.

    graph: the tasks are added to it; job: what is merged, and how; keys: the values' keys: those of the blocks, in
    order, for each group.
    """
    from dask.task_spec import Task, TaskRef

    found = []
    n_ends = 1 if job.groups is None else len(job.groups.every)
    for part, own in list(zip(job.by_group(), keys, strict=True))[-n_ends:]:
        found.append(add_merge_tree(graph, job.merge, own, f"dca-merge-{part.name}-{token}"))
    if job.groups is None:
        return found[0]
    for i, group in enumerate(job.groups.every):
        key = (f"dca-votes-{group.label}-{token}", 0)
        graph[key] = Task(key, call_on_one_blas_thread, job.groups.finish, group, TaskRef(found[i]))
        found[i] = key
    return add_merge_tree(graph, job.groups.conquer, found, f"dca-conquer-{token}")


def as_dask(rows: Rows) -> Rows:
    """Turn rows into a Dask array of their blocks: for graphs in which several tasks share the loading of a block.

    rows: the data, of any kind. Returns the same data, of kind "dask"; those of one zarr array have one name.
    """
    import dask.array as da
    from dask.base import tokenize
    from dask.highlevelgraph import HighLevelGraph
    from dask.task_spec import DataNode, Task, TaskRef

    if rows.kind == "dask":
        return rows
    name = f"dca-load-{tokenize(rows.source, rows.offsets)}"
    graph: dict[Any, Any] = {}
    if rows.kind == "memory":
        graph[name, 0, 0] = DataNode((name, 0, 0), rows.source)
    else:
        source = f"dca-source-{name}"
        graph[source] = DataNode(source, read_by(rows))
        reads = TaskRef(source)
        for key in ((name, i, 0) for i in range(rows.n_blocks)):
            graph[key] = Task(key, call_on_one_blas_thread, reads, None, key[1], _data_producer=True)
    chunks = tuple(np.diff(rows.offsets).tolist()), (rows.n_features,)
    array = da.Array(HighLevelGraph({name: graph}, {name: set()}), name, chunks, dtype=rows.dtype)
    return replace(rows, source=array, kind="dask")


def beside_weights(rows: Rows, job: Pass[T]) -> tuple[Rows, Pass[T]]:
    """Let a weighted pass see the weights: they come along as one more column chunk."""
    if rows.weights is None or not job.weighted:
        return rows, job
    if rows.kind == "memory":
        return rows, replace(
            job, block=partial(job.block, weights=rounded_weights(rows.weights.source, rows.weights.unit))
        )
    import dask.array as da
    from dask.base import tokenize
    from dask.highlevelgraph import HighLevelGraph
    from dask.task_spec import Alias

    data = as_dask(rows).source
    column = rows.weights.source.rechunk((data.chunks[0], (1,)))
    name = f"dca-weighted-{tokenize(data.name, column.name)}"
    keys = [[*some, *last] for some, last in zip(data.__dask_keys__(), column.__dask_keys__(), strict=True)]
    graph = {(name, i, j): Alias((name, i, j), key) for i, some in enumerate(keys) for j, key in enumerate(some)}
    whole = HighLevelGraph.from_collections(name, graph, dependencies=[data, column])
    both = da.Array(whole, name, (data.chunks[0], (*data.chunks[1], 1)), dtype=np.dtype(np.float64))
    # float64, so that weights keep their digits; chunks are as they were
    beside = replace(rows, source=both, kind="dask", dtype=both.dtype)
    return beside, replace(job, block=_Weighted(job.block, rows.weights.unit))


@dataclass(frozen=True)
class _Weighted:
    """A block's function, that receives its last column as weights."""

    block: Callable[..., Any]
    unit: float

    def __call__(self, *args: Any) -> Any:
        *rest, column = args
        return self.block(*rest, weights=rounded_weights(column, self.unit))


def _add_dask_tasks(
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
    edges, firsts = rows.chunk_offsets.tolist(), rows.first_chunks.tolist()
    chunks = {  # of each block, column by column from top to bottom
        i: [_origin(loads, key) for some in zip(*chunk_keys[firsts[i] : firsts[i + 1]], strict=True) for key in some]
        for i in chosen
    }
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
            joined = edges[firsts[i] : firsts[i + 1] + 1] if firsts[i + 1] - firsts[i] > 1 else None
            names_of = tuple(own_keys), tuple(pieces[i]), lead, own, inputs
            work = _work, job.block, declared, refs[held], where, joined, *names_of
            produces = any(task.data_producer for task in own.values())
            graph[name, i] = Task((name, i), *work, *(refs[k] for k in inputs), _data_producer=produces)
            needed |= others & loads.keys()
        keys.append([(name, i) for i in chunks])
    if not shared:
        graph.update(cull(loads, needed)[0])
        every = zip(edges[:-1], chunk_keys, strict=True)
        _name_loads(graph, ((first, _origin(loads, key)) for first, some in every for key in some))
    return keys


def _name_loads(graph: dict[Any, Any], chunks: Iterable[tuple[int, Any]]) -> None:
    """Let chunks that several tasks share be loaded by tasks that tell which block failed: by its first row."""
    from dask.task_spec import Task, TaskRef

    for first, key in chunks:
        task = graph.get(key)
        if isinstance(task, Task):
            inputs = tuple(sorted(task.dependencies, key=str))
            work = _load, first, {key: task}, inputs
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
    joined: list[int] | None,
    own: tuple[Any, ...],
    pieces: tuple[Any, ...],
    lead: tuple[Any, ...],
    loads: dict[Any, Any],
    inputs: tuple[Any, ...],
    *values: Any,
) -> T:
    """
    Load the chunks of a block and work on them, with its neighbours' rows where the pass asks for them.

    joined: first row of each chunk, and the last one's end, where several below each other are the block. The values of
    the passes that come before, if there are any, are what the function receives first.
    """
    given = dict(zip(inputs, values, strict=True))
    with _naming(where.start), one_blas_thread():
        parts = [
            loads[key]({k: given[k] for k in loads[key].dependencies}) if key in loads else given[key] for key in own
        ]
        edges = joined or [where.start, where.stop]
        depth = len(edges) - 1
        for i in range(depth):
            parts[i::depth] = admitted(parts[i::depth], range(edges[i], edges[i + 1]), declared)
        if isinstance(where, range):
            parts = [column[:] if depth > 1 else column for column in stack_columns(parts, depth)]
            return function(*([given[key] for key in lead],) * bool(lead), aligned(state), where.start, *parts)
        found = {**given, **dict(zip(own, parts, strict=True))}
        height = len(pieces) * depth // len(own)
        return function(aligned(state), where, *stack_columns([found[key] for key in pieces], height))


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
    edges, firsts = rows.chunk_offsets, rows.first_chunks
    for i in chunks:
        own = range(int(firsts[i]), int(firsts[i + 1]))
        reach = _reach(edges, own, *window_of(rows.offsets, i, halo))
        found[i] = []
        for j in range(len(declared)):
            for other, start, stop in reach:
                origin = _origin(loads, chunk_keys[other][j])
                if other in own:
                    found[i].append(origin)
                    continue
                key, numbers = (f"{name}-halo", other, j, start, stop), range(int(edges[other]), int(edges[other + 1]))
                slices[key] = Task(key, _slice, TaskRef(origin), start, stop, numbers, declared[j])
                found[i].append(key)
    return found, slices


def _reach(edges: NDArray[np.int64], own: range, window: Window, last: int) -> list[tuple[int, int, int]]:
    """Which rows of which chunks make up the window of a block; empty ones are left out, except for its own."""
    low, high = own.start, own.stop
    while edges[low] > window.first:
        low -= 1
    while edges[high] < last:
        high += 1
    reach = []
    for other in range(low, high):
        base = int(edges[other])
        start, stop = max(window.first - base, 0), min(last, int(edges[other + 1])) - base
        if other in own or start < stop:
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
