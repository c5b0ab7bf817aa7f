"""The tasks of a pass: one a block, in which loading and kernel are fused, and the tree that merges their values."""

from __future__ import annotations

import itertools
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np

from dask_dca.engine.dask_tasks import add_dask_tasks
from dask_dca.engine.entry import admitted
from dask_dca.engine.halo import Window
from dask_dca.engine.rows import read_rows
from dask_dca.engine.threads import call_on_one_blas_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

    from dask_dca.engine.entry import Declared
    from dask_dca.engine.halo import Halo
    from dask_dca.engine.job import Pass
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
    add = _add_zarr_tasks if rows.kind == "zarr" else add_dask_tasks
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
            graph[key] = Task(key, call_on_one_blas_thread, job.merge, List(*[TaskRef(part) for part in group]))
        if len(keys) == 1:
            return keys[0]
    raise AssertionError  # unreachable: the loop above ends


def _add_zarr_tasks(
    graph: dict[Any, Any], rows: Rows, job: Pass[T], shared: str, name: str, chosen: Iterable[int]
) -> list[Any]:
    """One task a block, which reads its own slice."""
    from dask.task_spec import DataNode, Task, TaskRef

    source = name.replace(f"dca-{job.name}", "dca-source")
    work = _ZarrBlock(rows.source, job.block, job.halo, rows.declared, _compact(rows.offsets))
    graph[source] = DataNode(source, work)
    both = TaskRef(source), TaskRef(shared)  # one object each: a graph of many tasks is small only if they share
    keys = [(name, i) for i in chosen]
    graph.update((key, Task(key, call_on_one_blas_thread, *both, key[1], _data_producer=True)) for key in keys)
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
    declared: Declared
    starts: range | NDArray[np.int64]

    def __call__(self, state: Any, number: int) -> Any:
        n_rows = int(self.array.shape[0])
        start = int(self.starts[number])
        stop = int(self.starts[number + 1]) if number + 1 < len(self.starts) else n_rows
        if self.halo is None:
            return self.block(state, start, *self._read(start, stop))
        first, last = max(start - self.halo.before, 0), min(stop + self.halo.after, n_rows)
        return self.block(state, Window(first, start, stop), *self._read(first, last))

    def _read(self, start: int, stop: int) -> list[Any]:
        return admitted([read_rows(self.array, start, stop)], range(start, stop), self.declared)
