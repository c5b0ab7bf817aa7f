"""Values that stay where they were made, and functions that are called there: what learns on a sample.

A sample of chunked data is put together by a task and kept by the worker that did it. What learns on it are functions
of its value and of a few small arguments, called by tasks; several at a time where they don't need each other. Only
what they return comes back. For data in memory the same functions are called at once.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from dask.base import is_dask_collection

from dask_dca.engine.computing import computed, try_with
from dask_dca.engine.graphs import state_tasks
from dask_dca.engine.passes import delayed_pass, run_pass
from dask_dca.engine.sending import aligned, held_bytes
from dask_dca.engine.threads import call_on_one_blas_thread
from dask_dca.errors import kept_warnings, warn

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    from dask.delayed import Delayed
    from numpy.typing import NDArray

    from dask_dca.engine.passes import Pass, Run
    from dask_dca.engine.rows import Rows

__all__ = ["Held", "call", "call_each", "hold_pass"]

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
    blocks: NDArray[np.int64] | None = None,
) -> Held[T]:
    """
    Run a pass, and leave its value where the data are.

    Parameters
    ----------
    rows : Rows
        The data.
    job : Pass
        What to do.
    state : object
        Small object that every block's function receives first.
    run : Run
        How it is run. Where a checkpoint keeps passes over all rows, this one comes to the driver to be kept, too.
    finish : callable
        What to make of the merged blocks.
    blocks : ndarray of int64, optional
        Which blocks to visit; all if None.

    Returns
    -------
    Held
        What `finish` returns.
    """
    point = run.checkpoint
    if rows.kind == "memory" or (blocks is None and point is not None and rows.source is point.source):
        return Held(call_on_one_blas_thread(finish, run_pass(rows, job, state, run, blocks=blocks)))
    if run.reads is not None and rows.source is run.reads.source and blocks is None:
        run.reads.full += 1
    import dask

    merged = delayed_pass(rows, job, state, blocks=blocks)
    key = f"dca-{job.name}-held-{uuid.uuid4().hex}"
    whole = dask.delayed(_kept, pure=False)(finish, merged, dask_key_name=key)
    # the state is not sent apart: the scheduler could not make the value again without those who held it
    kept = try_with(None, lambda _: whole.persist(retries=run.retries), rows.source, job.name, run)
    return Held(kept, rows.source)


def call(run: Run, name: str, function: Callable[..., R], held: Held[Any], *args: Any) -> R:
    """
    Call a function where a value is.

    Parameters
    ----------
    run : Run
        How often a failing task is tried again, and whether progress is shown.
    name : str
        A task is called dca-<name>.
    function : callable
        A function of a module; it neither changes the value nor warns otherwise than by `dask_dca.errors.warn`.
    held : Held
        Its first argument.
    *args : object
        Its other arguments.

    Returns
    -------
    object
        What the function returns.
    """
    return call_each(run, name, function, held, [args])[0]


def call_each(
    run: Run, name: str, function: Callable[..., R], held: Held[Any], arguments: Sequence[tuple[Any, ...]]
) -> list[R]:
    """
    Call a function several times where a value is, at the same time if there are threads for it.

    Parameters
    ----------
    run, name, function, held : object
        As `call` takes them.
    arguments : sequence of tuple
        The other arguments of each call.

    Returns
    -------
    list
        What each call returns.
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
    graph[last] = Task(last, _itself, List(*map(TaskRef, keys)))
    return Delayed(last, HighLevelGraph.from_collections(layer, graph, dependencies=[held.value]), layer=layer)


def _kept(finish: Callable[[Any], Any], merged: Any) -> _Kept:
    return _Kept(call_on_one_blas_thread(finish, merged))


def _called(function: Callable[..., R], kept: _Kept, arguments: Any, number: int) -> tuple[R, list[Any]]:
    with kept_warnings() as told:
        return call_on_one_blas_thread(function, aligned(kept.value), *aligned(arguments[number])), told


def _itself(value: T) -> T:
    return value
