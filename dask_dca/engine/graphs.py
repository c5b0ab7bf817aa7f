"""The tasks of a pass: one per block, in which loading and kernel are fused, and the tree that merges their values."""

from __future__ import annotations

import itertools
import uuid
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np

from dask_dca.engine.dask_tasks import add_dask_tasks
from dask_dca.engine.entry import admitted, aligned
from dask_dca.engine.numerics import call_on_one_blas_thread
from dask_dca.engine.rows import read_rows
from dask_dca.engine.slow_stores import beside_reading, bundles, in_flight
from dask_dca.engine.types import Window, rounded_weights

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

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
        some = [[i] for i in chosen] if blocks is None else bundles(rows, blocks)
        return graph, [_add_zarr_tasks(graph, rows, job, held, f"dca-{job.name}-{token}", some)], token
    names = [f"dca-{job.name}-{token}" for job in jobs]
    return graph, add_dask_tasks(graph, rows, jobs, held, names, chosen, shared=shared), token


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


def _add_zarr_tasks(
    graph: dict[Any, Any], rows: Rows, job: Pass[T], shared: str, name: str, chosen: Sequence[list[int]]
) -> list[Any]:
    """One task per block, or per bundle of blocks, which reads its own slices."""
    from dask.task_spec import DataNode, Task, TaskRef

    source = name.replace(f"dca-{job.name}", "dca-source")
    work = _ZarrBlock(rows.source, job.block, job.halo, rows.declared, _compact(rows.offsets))
    graph[source] = DataNode(source, work)
    both = TaskRef(source), TaskRef(shared)  # one object each: a graph of many tasks is small only if they share
    keys = [(name, some[0]) for some in chosen]
    for key, some in zip(keys, chosen, strict=True):
        task = (call_on_one_blas_thread, *both, key[1]) if len(some) == 1 else (_several, job.merge, *both, tuple(some))
        graph[key] = Task(key, *task, _data_producer=True)
    return keys


def _several(
    merge: Callable[[Sequence[T]], T], work: Callable[[Any, int], T], state: Any, numbers: tuple[int, ...]
) -> T:
    """Work on several blocks whose requests are on their way at the same time, and merge what they give."""
    return call_on_one_blas_thread(merge, in_flight(partial(call_on_one_blas_thread, work, state), numbers))


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
        graph[source] = DataNode(source, _ZarrBlock(rows.source, _itself, None, rows.declared, _compact(rows.offsets)))
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


def _itself(state: None, start: int, block: T) -> T:
    return block


def _compact(offsets: NDArray[np.int64]) -> range | NDArray[np.int64]:
    """Offsets of blocks of equal height, except for the last, as their first, last and step."""
    starts = range(0, int(offsets[-2]) + 1, int(offsets[1]))
    return starts if np.array_equal(offsets[:-1], starts) else offsets[:-1]


@dataclass(frozen=True)
class _ZarrBlock:
    """Read a slice of a zarr array and work on it, in one task."""

    array: Any
    block: Callable[..., Any]
    halo: Halo | None
    declared: Declared
    starts: range | NDArray[np.int64]

    def __call__(self, state: Any, number: int) -> Any:
        n_rows = int(self.array.shape[0])
        start = int(self.starts[number])
        stop = int(self.starts[number + 1]) if number + 1 < len(self.starts) else n_rows
        state = aligned(state)
        first, last, where = self._window(start, stop, n_rows)
        columns = self._read(first, last)
        with beside_reading(self.array):
            return self.block(state, where, *columns)

    def _window(self, start: int, stop: int, n_rows: int) -> tuple[int, int, int | Window]:
        """Which rows are read for a block, and what its function is told of them."""
        if self.halo is None:
            return start, stop, start
        first, last = max(start - self.halo.before, 0), min(stop + self.halo.after, n_rows)
        return first, last, Window(first, start, stop)

    def _read(self, start: int, stop: int) -> list[Any]:
        return admitted([read_rows(self.array, start, stop)], range(start, stop), self.declared)
