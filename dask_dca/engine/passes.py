"""A pass: one sweep over the row blocks, block -> small value, merged by a tree. The one module that builds graphs.

The same pass runs inline on data in memory (no graph, no scheduler), and as a graph on chunked data: one task a
block, in which loading and kernel are fused, and a tree of merge tasks named `dca-conquer`.
"""

from __future__ import annotations

import contextlib
import itertools
import uuid
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from dask_dca.engine.rows import read_rows
from dask_dca.engine.threads import one_blas_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import numpy as np
    from dask.delayed import Delayed
    from numpy.typing import NDArray

    from dask_dca.engine.rows import Rows

__all__ = ["Pass", "Run", "delayed_pass", "keep_rows", "run_pass"]

_FAN_IN: Final = 8  # values that one merge task takes
_KEPT_BYTES: Final = 2**28  # rows kept on the cluster between passes take no more memory than this

T = TypeVar("T")


@dataclass(frozen=True)
class Pass(Generic[T]):
    """One sweep: what is done to a block, and how two results become one."""

    name: str  # tasks are called dca-<name>
    block: Callable[..., T]  # (state, first row number, *column chunks) -> value
    merge: Callable[[Sequence[T]], T]  # associative


@dataclass(frozen=True)
class Run:
    """How passes are run."""

    retries: int = 3
    verbose: bool = False


def run_pass(
    rows: Rows,
    job: Pass[T],
    state: Any,
    *,
    blocks: NDArray[np.int64] | None = None,
    retries: int = 3,
    verbose: bool = False,
) -> T:
    """
    Run a pass and return its value.

    Parameters
    ----------
    rows : Rows
        The data.
    job : Pass
        What to do.
    state : object
        Small object that every block's function receives first.
    blocks : ndarray of int64, optional
        Which blocks to visit; all if None.
    retries : int, default 3
        How often a failing task is tried again (on a distributed scheduler).
    verbose : bool, default False
        Show progress on standard error.

    Returns
    -------
    object
        What the merged blocks gave.
    """
    if rows.kind == "memory":
        with one_blas_thread():
            return job.merge([job.block(state, 0, rows.source)])
    value: T = _compute(delayed_pass(rows, job, state, blocks=blocks), job.name, retries=retries, verbose=verbose)
    return value


def delayed_pass(rows: Rows, job: Pass[T], state: Any, *, blocks: NDArray[np.int64] | None = None) -> Delayed:
    """
    Build the graph of a pass; nothing is computed.

    Parameters
    ----------
    rows : Rows
        The data, of kind "zarr" or "dask".
    job : Pass
        What to do.
    state : object
        As for `run_pass`; it is one node of the graph, shared by all tasks.
    blocks : ndarray of int64, optional
        Which blocks to visit; all if None.

    Returns
    -------
    dask.delayed.Delayed
        Its value is the pass's.
    """
    from dask.delayed import Delayed
    from dask.highlevelgraph import HighLevelGraph

    graph, keys, token = _block_tasks(rows, job, state, blocks)
    last = _add_merge_tree(graph, job, keys, f"dca-conquer-{token}")
    layer = f"dca-{job.name}-pass-{token}"
    return Delayed(last, HighLevelGraph({layer: graph}, {layer: set()}), layer=layer)


def keep_rows(
    rows: Rows,
    job: Pass[NDArray[Any]],
    state: Any,
    blocks: NDArray[np.int64],
    counts: NDArray[np.int64],
    *,
    retries: int,
) -> Any:
    """
    Take some rows out of each block and keep them on the cluster, so that later passes need not read the blocks again.

    Kept rows are not lost with a worker: the scheduler knows how to read them again.

    Parameters
    ----------
    rows : Rows
        The data, of kind "zarr" or "dask".
    job : Pass
        Its block function returns the rows of a block; it has no merge.
    state : object
        As for `run_pass`.
    blocks, counts : ndarray of int64, shape (b,)
        Which blocks, and how many rows each gives.
    retries : int
        How often a failing task is tried again.

    Returns
    -------
    dask.array.Array of shape (sum of counts, p)
        Persisted where it is small, else lazy.
    """
    import dask.array as da
    from dask.delayed import Delayed
    from dask.highlevelgraph import HighLevelGraph

    graph, keys, token = _block_tasks(rows, job, state, blocks)
    layer = f"dca-{job.name}-pass-{token}"
    whole = HighLevelGraph({layer: graph}, {layer: set()})
    kept = da.concatenate(
        [
            da.from_delayed(Delayed(key, whole, layer=layer), (int(n), rows.n_features), dtype=rows.output_dtype)
            for key, n in zip(keys, counts, strict=True)
        ]
    )
    return kept.persist(retries=retries) if kept.nbytes <= _KEPT_BYTES else kept


def _block_tasks(
    rows: Rows, job: Pass[T], state: Any, blocks: NDArray[np.int64] | None
) -> tuple[dict[Any, Any], list[Any], str]:
    """The graph of one task a block, the tasks' keys, and the token that ends all names."""
    from dask.task_spec import DataNode

    token = uuid.uuid4().hex
    shared = f"dca-state-{token}"
    graph: dict[Any, Any] = {shared: DataNode(shared, state)}
    chosen = range(rows.n_blocks) if blocks is None else [int(i) for i in blocks]
    add = _add_zarr_tasks if rows.kind == "zarr" else _add_dask_tasks
    return graph, add(graph, rows, job, shared, f"dca-{job.name}-{token}", chosen), token


def _add_zarr_tasks(
    graph: dict[Any, Any], rows: Rows, job: Pass[T], shared: str, name: str, chosen: Iterable[int]
) -> list[Any]:
    """One task a block, which reads its own slice."""
    from dask.task_spec import DataNode, Task, TaskRef

    source = name.replace(f"dca-{job.name}", "dca-source")
    graph[source] = DataNode(source, _ZarrBlock(rows.source, job.block))
    keys = []
    for i in chosen:
        key = (name, i)
        start, stop = int(rows.offsets[i]), int(rows.offsets[i + 1])
        graph[key] = Task(key, _call, TaskRef(source), TaskRef(shared), start, stop, _data_producer=True)
        keys.append(key)
    return keys


@dataclass(frozen=True)
class _ZarrBlock(Generic[T]):
    """Read a slice of a zarr array and work on it, in one task."""

    array: Any
    block: Callable[..., T]

    def __call__(self, state: Any, start: int, stop: int) -> T:
        return self.block(state, start, read_rows(self.array, start, stop))


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
    uses = Counter(key for task in loads.values() if isinstance(task, Task) for key in task.dependencies)
    uses.update(itertools.chain.from_iterable(chunks.values()))
    keys, needed = [], set()
    for i, own_keys in chunks.items():
        key = (name, i)
        task = Task(key, job.block, TaskRef(shared), int(rows.offsets[i]), *[TaskRef(k) for k in own_keys])
        own = [loads[k] for k in own_keys if uses[k] == 1 and isinstance(loads.get(k), Task)]
        graph[key] = Task.fuse(task, *own, key=key) if own else task
        needed |= graph[key].dependencies & loads.keys()
        keys.append(key)
    graph.update(cull(loads, needed)[0])
    return keys


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


def _add_merge_tree(graph: dict[Any, Any], job: Pass[T], keys: list[Any], name: str) -> Any:
    from dask.task_spec import List, Task, TaskRef

    for level in itertools.count():
        groups = [keys[j : j + _FAN_IN] for j in range(0, len(keys), _FAN_IN)]
        keys = [(name, level, j) for j in range(len(groups))]
        for key, group in zip(keys, groups, strict=True):
            graph[key] = Task(key, job.merge, List(*[TaskRef(part) for part in group]))
        if len(keys) == 1:
            return keys[0]
    raise AssertionError  # unreachable: the loop above ends


def _compute(value: Delayed, name: str, *, retries: int, verbose: bool) -> Any:
    """Compute on the active client, else on Dask's configured scheduler."""
    from dask_dca.engine.watch import active_client, compute_with_progress

    with one_blas_thread() if active_client() is None else contextlib.nullcontext():
        if not verbose:
            return value.compute(retries=retries)
        return compute_with_progress(value, name, retries=retries)
