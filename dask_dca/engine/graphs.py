"""Graphs of passes: one task per block, in which loading and kernel are fused, and the tree that merges values."""

from __future__ import annotations

import contextlib
import itertools
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from traceback import clear_frames
from typing import TYPE_CHECKING, Any, Final, TypeVar

import dask
import numpy as np
from dask.base import is_dask_collection, tokenize
from dask.blockwise import optimize_blockwise
from dask.delayed import Delayed
from dask.highlevelgraph import HighLevelGraph
from dask.optimization import cull
from dask.task_spec import Alias, DataNode, List, Task, TaskRef
from numpy.typing import NDArray

from dask_dca.engine.computing import task_threads
from dask_dca.engine.entry import Declared, add_zarr_tasks, block_reader, bundle_blocks, check_blocks, run_task
from dask_dca.engine.types import Halo, Pass, Window, rounded_weights, stack_columns, window_of

if TYPE_CHECKING:
    from dask_dca.engine.rows import Rows

_FAN_IN: Final = 8  # values that one task merges

T = TypeVar("T")


def block_tasks(
    rows: Rows, jobs: Sequence[Pass[Any]], state: Any, blocks: NDArray[np.int64] | None, *, shared: bool = False
) -> tuple[dict[Any, Any], list[list[Any]], str, list[Any]]:
    """Build the graph of one task per block and pass.

    shared: refer to the tasks of the array and the state. Returns the graph, the keys of each pass in the order of
    blocks, the token in their names, and the collections that the graph refers to.
    """
    token = uuid.uuid4().hex
    held = f"dca-state-{token}"
    graph = state_tasks(held, state, shared=shared)
    below = [some for some in (rows.source, state) if is_dask_collection(some)] if shared else []
    chosen = range(rows.n_blocks) if blocks is None else [int(i) for i in blocks]
    if rows.kind == "zarr" and len(jobs) > 1:
        rows = as_dask(rows)
    if rows.kind == "zarr":
        (job,) = jobs
        some = [[i] for i in chosen] if blocks is None else bundle_blocks(rows, blocks, task_threads())
        return graph, [add_zarr_tasks(graph, rows, job, held, f"dca-{job.name}-{token}", some)], token, below
    if not shared and _has_annotations(rows.source):
        rows = replace(rows, source=_fuse_alike(rows.source))
        shared, below = True, [rows.source]
    names = [f"dca-{job.name}-{token}" for job in jobs]
    return graph, _add_dask_tasks(graph, rows, jobs, held, names, chosen, shared=shared), token, below


def _has_annotations(X: Any) -> bool:
    """Whether layers of a Dask array have other annotations than those around this call."""
    layers = getattr(X.dask, "layers", {}).values()
    return any(layer.annotations not in (None, dask.get_annotations()) for layer in layers)


def _fuse_alike(X: Any) -> Any:
    """Fuse the tasks of a Dask array as far as Dask does without losing their annotations."""
    rebuild, args = X.__dask_postpersist__()
    return rebuild(optimize_blockwise(X.dask, keys=[(X.name,)]), *args)


def state_tasks(key: str, state: Any, *, shared: bool = False) -> dict[Any, Any]:
    """Build the node that holds a state, or the tasks that compute or fetch it.

    state: a value, a Delayed, or a reference to a task; shared: leave out the tasks of a Delayed, which the caller
    computes with it.
    """
    if isinstance(state, TaskRef):
        return {key: Task(key, identity, state)}
    if not isinstance(state, Delayed):
        return {key: DataNode(key, state)}
    own = {} if shared else dict(state.__dask_graph__())
    return {**own, key: Alias(key, state.key)}


def identity(value: T) -> T:
    """Return a value, as a task of its own."""
    return value


def array_of_tasks(
    graph: dict[Any, Any],
    name: str,
    chunks: tuple[tuple[int, ...], tuple[int, ...]],
    dtype: Any,
    below: Sequence[Any] = (),
) -> Any:
    """Make the Dask array whose chunks are the tasks (name, i, j) of a graph; below: collections that it refers to."""
    import dask.array as da

    whole = HighLevelGraph.from_collections(name, graph, below)
    if not da.array_expr_enabled():
        return da.Array(whole, name, chunks, dtype=dtype)
    from_graph, _ = da.empty((0, 0)).__dask_postpersist__()
    keys = [(name, i, j) for i in range(len(chunks[0])) for j in range(len(chunks[1]))]
    return from_graph(dict(whole), np.empty((0, 0), dtype), chunks, keys, name)


def array_of_keys(
    graph: dict[Any, Any],
    keys: Sequence[Any],
    name: str,
    counts: Sequence[int] | NDArray[np.int64],
    width: int,
    dtype: Any,
    below: Sequence[Any],
) -> Any:
    """Stack the matrices that tasks return as a Dask array; keys: of these tasks; counts: number of rows of each."""
    graph |= {(name, i, 0): Alias((name, i, 0), key) for i, key in enumerate(keys)}
    return array_of_tasks(graph, name, (tuple(map(int, counts)), (width,)), dtype, below)


def add_merge_tree(graph: dict[Any, Any], merge: Callable[[Sequence[Any]], Any], keys: list[Any], name: str) -> Any:
    """Add the tasks that merge values, eight at a time, to a graph; returns the key of the result.

    merge: merges several values; keys: of the values, in order.
    """
    level = 0
    while level == 0 or len(keys) > 1:
        groups = [keys[j : j + _FAN_IN] for j in range(0, len(keys), _FAN_IN)]
        keys, level = [(name, level, j) for j in range(len(groups))], level + 1
        for key, group in zip(keys, groups, strict=True):
            graph[key] = Task(key, run_task, merge, List(*[TaskRef(part) for part in group]))
    return keys[0]


def add_merge_tasks(graph: dict[Any, Any], job: Pass[Any], keys: list[list[Any]], token: str) -> Any:
    """Add the tasks that merge the values of blocks, and then those of groups; returns the key of the result.

    keys: of the values of blocks, in order, for each group.
    """
    found = []
    n_ends = 1 if job.groups is None else len(job.groups.every)
    for part, own in list(zip(job.by_group(), keys, strict=True))[-n_ends:]:
        found.append(add_merge_tree(graph, job.merge, own, f"dca-merge-{part.name}-{token}"))
    if job.groups is None:
        return found[0]
    for i, group in enumerate(job.groups.every):
        key = (f"dca-votes-{group.label}-{token}", 0)
        graph[key] = Task(key, run_task, job.groups.finish, group, TaskRef(found[i]))
        found[i] = key
    return add_merge_tree(graph, job.groups.conquer, found, f"dca-conquer-{token}")


def as_dask(rows: Rows) -> Rows:
    """Turn rows of any kind into a Dask array of their blocks, so that several tasks share the loading of a block.

    Arrays of the same zarr array have the same name.
    """
    if rows.kind == "dask":
        return rows
    name = f"dca-load-{tokenize(rows.source, rows.offsets)}"
    graph: dict[Any, Any] = {}
    if rows.kind == "memory":
        graph[name, 0, 0] = DataNode((name, 0, 0), rows.source)
    else:
        source = f"dca-source-{name}"
        graph[source] = DataNode(source, block_reader(rows))
        reads = TaskRef(source)
        for key in ((name, i, 0) for i in range(rows.n_blocks)):
            graph[key] = Task(key, run_task, reads, None, key[1], _data_producer=True)
    chunks = tuple(np.diff(rows.offsets).tolist()), (rows.n_features,)
    return replace(rows, source=array_of_tasks(graph, name, chunks, rows.dtype), kind="dask")


def as_new_tasks(rows: Rows) -> Rows:
    """Rename the chunks of a Dask array, so that another pass of the same graph loads them again, and none is held."""
    if rows.kind != "dask":
        return rows
    return replace(rows, source=rows.source.map_blocks(identity, dtype=rows.dtype))


def with_weights(rows: Rows, job: Pass[T]) -> tuple[Rows, Pass[T]]:
    """Give a weighted pass the weights, for chunked rows as one more column chunk."""
    if rows.weights is None or not job.weighted:
        return rows, job
    if rows.kind == "memory":
        return rows, replace(
            job, block=partial(job.block, weights=rounded_weights(rows.weights.source, rows.weights.unit))
        )
    data = as_dask(rows).source
    column = rows.weights.source.rechunk((data.chunks[0], (1,)))
    name = f"dca-weighted-{tokenize(data.name, column.name)}"
    keys = [[*some, *last] for some, last in zip(data.__dask_keys__(), column.__dask_keys__(), strict=True)]
    graph = {(name, i, j): Alias((name, i, j), key) for i, some in enumerate(keys) for j, key in enumerate(some)}
    both = array_of_tasks(graph, name, (data.chunks[0], (*data.chunks[1], 1)), np.dtype(np.float64), [data, column])
    # declared as float64, so that weights are not rounded; chunks of the data keep their dtype
    weighted = replace(rows, source=both, kind="dask", dtype=both.dtype)
    return weighted, replace(job, block=_Weighted(job.block, rows.weights.unit))


@dataclass(frozen=True)
class _Weighted:
    """A block's function that receives the last column as weights."""

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
    """Add one task per block and pass, fused with the loading of column chunks that no other task needs.

    jobs: passes, each after those whose values it receives; names: task names of each pass; shared: refer to the
    array's own chunks, and leave out their tasks. Returns the keys of each pass.
    """
    loads, chunk_keys = ({}, rows.source.__dask_keys__()) if shared else _optimized_graph(rows.source)
    edges, firsts = rows.chunk_offsets.tolist(), rows.first_chunks.tolist()
    columns = {i: zip(*chunk_keys[firsts[i] : firsts[i + 1]], strict=True) for i in chosen}
    # keys of each block, column by column from top to bottom
    chunks = {i: [_resolve_alias(loads, key) for some in own for key in some] for i, own in columns.items()}
    uses = Counter(key for task in loads.values() if isinstance(task, Task) for key in task.dependencies)
    uses.update(itertools.chain.from_iterable([*chunks.values()] * len(jobs)))
    declared, needed = rows.declared, set()
    refs: dict[Any, Any] = {held: TaskRef(held)}  # shared objects keep a graph of many tasks small
    keys: list[list[Any]] = []
    for job, name in zip(jobs, names, strict=True):
        pieces = chunks
        slices: dict[Any, Any] = {}
        if job.halo is not None:
            pieces, slices = _halo_pieces(rows, job.halo, loads, chunk_keys, chunks, name)
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
            work = _run_block, job.block, declared, refs[held], where, joined, *names_of
            produces = any(task.data_producer for task in own.values())
            graph[name, i] = Task((name, i), *work, *(refs[k] for k in inputs), _data_producer=produces)
            needed |= others & loads.keys()
        keys.append([(name, i) for i in chunks])
    if not shared:
        graph.update(cull(loads, needed)[0])
        every = zip(edges[:-1], chunk_keys, strict=True)
        _wrap_loads(graph, ((first, _resolve_alias(loads, key)) for first, some in every for key in some))
    return keys


def _wrap_loads(graph: dict[Any, Any], chunks: Iterable[tuple[int, Any]]) -> None:
    """Wrap the tasks that load shared chunks, so that their errors name the block by its first row."""
    for first, key in chunks:
        task = graph.get(key)
        if isinstance(task, Task):
            inputs = tuple(sorted(task.dependencies, key=str))
            work = _load_chunk, first, {key: task}, inputs
            graph[key] = Task(key, *work, *map(TaskRef, inputs), _data_producer=task.data_producer)


def _load_chunk(first: int, loads: dict[Any, Any], inputs: tuple[Any, ...], *values: Any) -> Any:
    """Load one chunk; errors name its block."""
    ((_, task),) = loads.items()
    with _naming_block(first):
        return task(dict(zip(inputs, values, strict=True)))


@contextlib.contextmanager
def _naming_block(first: int) -> Iterator[None]:
    """Add to an error in which block it happened."""
    try:
        yield
    except Exception as error:
        error.add_note(f"in the block of rows that begins with row {first}")
        raise


def _run_block(*args: Any) -> Any:
    try:
        return run_task(_load_and_call, *args)
    except Exception as error:
        clear_frames(error.__traceback__)  # which refer to the block as long as the scheduler keeps the error
        raise


def _load_and_call(
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
    """Load the chunks of a block, with its neighbours' rows if the pass has a halo, and call the block's function.

    joined: row offsets of the chunks, if the block consists of several. The function receives the values of the passes
    `lead` first, if there are any.
    """
    given = dict(zip(inputs, values, strict=True))
    with _naming_block(where.start):
        parts = [
            loads[key]({k: given[k] for k in loads[key].dependencies}) if key in loads else given[key] for key in own
        ]
        edges = joined or [where.start, where.stop]
        depth = len(edges) - 1
        for i in range(depth):
            parts[i::depth] = check_blocks(parts[i::depth], range(edges[i], edges[i + 1]), declared)
        if isinstance(where, range):
            parts = [column[:] if depth > 1 else column for column in stack_columns(parts, depth)]
            return function(*([given[key] for key in lead],) * bool(lead), state, where.start, *parts)
        found = {**given, **dict(zip(own, parts, strict=True))}
        height = len(pieces) * depth // len(own)
        return function(state, where, *stack_columns([found[key] for key in pieces], height))


def _halo_pieces(
    rows: Rows,
    halo: Halo,
    loads: dict[Any, Any],
    chunk_keys: list[list[Any]],
    chunks: dict[int, list[Any]],
    name: str,
) -> tuple[dict[int, list[Any]], dict[Any, Any]]:
    """Return the keys of each block's pieces, column by column, and the tasks that slice its neighbours."""
    slices: dict[Any, Any] = {}
    found: dict[int, list[Any]] = {}
    declared = [rows.declared.chunk(j) for j in range(len(chunk_keys[0]))]
    edges, firsts = rows.chunk_offsets, rows.first_chunks
    for i in chunks:
        own = range(int(firsts[i]), int(firsts[i + 1]))
        reach = _chunks_of_window(edges, own, *window_of(rows.offsets, i, halo))
        found[i] = []
        for j in range(len(declared)):
            for other, start, stop in reach:
                origin = _resolve_alias(loads, chunk_keys[other][j])
                if other in own:
                    found[i].append(origin)
                    continue
                key, numbers = (f"{name}-halo", other, j, start, stop), range(int(edges[other]), int(edges[other + 1]))
                slices[key] = Task(key, _copy_rows, TaskRef(origin), start, stop, numbers, declared[j])
                found[i].append(key)
    return found, slices


def _chunks_of_window(edges: NDArray[np.int64], own: range, window: Window, last: int) -> list[tuple[int, int, int]]:
    """List (chunk, start, stop) of the window of a block; other chunks without rows are left out."""
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


def _copy_rows(chunk: Any, start: int, stop: int, rows: range, declared: Declared) -> Any:
    """Copy rows out of a chunk, so that the chunk itself can be freed."""
    with _naming_block(rows.start):
        (found,) = check_blocks([chunk], rows, declared)
        return found[start:stop].copy()


def _resolve_alias(graph: dict[Any, Any], key: Any) -> Any:
    """Follow the aliases that optimisation leaves where it renames a task."""
    while isinstance(graph.get(key), Alias):
        key = graph[key].target
    return key


def _optimized_graph(X: Any) -> tuple[dict[Any, Any], list[list[Any]]]:
    """Return the optimised graph of a Dask array, and its chunk keys as rows of columns."""
    (optimized,) = [X.optimize()] if hasattr(X, "expr") else dask.optimize(X)  # an array expression, or a graph
    loads, keys = dict(optimized.__dask_graph__()), optimized.__dask_keys__()
    if any(key not in loads for key in itertools.chain.from_iterable(keys)):  # persisted, so that chunks are futures
        loads, keys = dict(X.__dask_graph__()), X.__dask_keys__()
    return loads, keys
