"""Running passes: block -> small value, merged in a tree; and results per row, lazy for chunked data.

The same pass runs inline on data in memory (no graph, no scheduler), and as a graph on chunked data: one task per
block, in which loading and kernel are fused, and a tree of merge tasks.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, TypeVar, cast

import numpy as np
from dask.base import tokenize
from dask.delayed import Delayed, delayed
from dask.highlevelgraph import HighLevelGraph
from dask.layers import ArraySliceDep
from numpy.typing import NDArray

from dask_dca.engine.advice import Form, WithErrorContext, in_terms_of
from dask_dca.engine.checkpoint import Checkpoint
from dask_dca.engine.computing import (
    compute_delayed,
    compute_with_state,
    require_package_for_results,
    scatter,
    task_threads,
)
from dask_dca.engine.cubes import labelled
from dask_dca.engine.entry import Declared, array_bytes, as_sent, check_blocks, run_task
from dask_dca.engine.fingerprint import fingerprint_pass, with_fingerprint
from dask_dca.engine.graphs import add_merge_tasks, array_of_keys, block_tasks, identity, with_weights
from dask_dca.engine.process import numpy_defaults
from dask_dca.engine.rows import Rows
from dask_dca.engine.types import Halo, Window, stack_parts
from dask_dca.engine.types import Pass as Pass
from dask_dca.engine.types import Reads as Reads
from dask_dca.engine.types import Run as Run

# least number of planes of a group: with fewer, the overhead per tile of rows costs more than it saves (S13)
_MIN_GROUP_PLANES: Final = 256
_MIN_PART_ENTRIES: Final = 2**21  # least entries of a part of a block: with fewer, a task costs more than it saves
_DEFAULT_RUN: Final = Run()
T = TypeVar("T")
_MAX_GRAPH_STATE_BYTES: Final = 8 * 10**6  # bytes of a state in a graph; Dask warns of graphs of 10 MB


@dataclass(frozen=True)
class PlaneGroup:
    """One of several equal ranges of planes."""

    number: int
    of: int
    label: str

    def range_of(self, count: int) -> NDArray[np.int64]:
        """Return the numbers of its planes, out of `count` in all groups."""
        return np.arange(count * self.number // self.of, count * (self.number + 1) // self.of)


def plane_groups(rows: Rows, n_planes: int | None, n_groups: int | None = None) -> tuple[PlaneGroup, ...]:
    """Cut the planes of a pass into groups: one if blocks, or parts of them, fill the threads, else as many as do.

    n_planes: None if it is not known before the pass, which then has one group. Labels are the first and last plane.
    """
    if n_groups is None:
        n_groups = 1
        if n_planes is not None and rows.kind != "memory" and n_row_parts(rows) == 1:
            n_groups = max(1, min(-(-task_threads() // rows.n_blocks), n_planes // _MIN_GROUP_PLANES))
    groups = [PlaneGroup(i, n_groups, f"{i + 1}-of-{n_groups}") for i in range(n_groups)]
    if n_planes is not None:
        edges = [group.range_of(n_planes)[[0, -1]] for group in groups]
        groups = [replace(group, label=f"{first}-{last}") for group, (first, last) in zip(groups, edges, strict=True)]
    return tuple(groups)


def n_row_parts(rows: Rows) -> int:
    """Number of parts that the rows of a block are cut into: as many as fill the threads, if blocks are large.

    It is one if blocks fill the threads, or are small.
    """
    if rows.kind == "memory":
        return 1
    entries = int(np.diff(rows.offsets).max()) * rows.n_features
    return max(1, min(-(-task_threads() // rows.n_blocks), entries // _MIN_PART_ENTRIES))


def run_pass(
    rows: Rows, job: Pass[T], state: Any, run: Run = _DEFAULT_RUN, *, blocks: NDArray[np.int64] | None = None
) -> T:
    """Run a pass and return its value.

    state: small object that every block's function receives first; run: retries, progress, checkpoint; blocks: numbers
    of the blocks to visit, all if None. Returns the merged value.
    """
    run.count(rows.source, blocks)
    state = as_sent(state)
    if run.lazy:
        return cast("T", delayed_pass(rows, job, state, blocks=blocks, shared=True))
    with in_terms_of(rows.form, rows.feature_names):
        if rows.kind == "memory":
            return _run_inline(rows, job, state)
        if run.checkpoint is None or rows.source is not run.checkpoint.source:  # samples are cheap to read again
            return _run_graph(rows, job, state, run, blocks)
        return _run_with_checkpoint(rows, job, state, run, run.checkpoint, blocks)


def _run_with_checkpoint(
    rows: Rows, job: Pass[T], state: Any, run: Run, point: Checkpoint, blocks: NDArray[np.int64] | None
) -> T:
    """Run a pass, or read its value from the checkpoint once the data are known to be the same."""
    if point.content is not None and not point.confirmed:
        point.confirm(_run_graph(rows, fingerprint_pass(rows.n_rows), None, run, None))
    inputs: tuple[Any, ...] = (f"{job.block.__module__}.{job.block.__qualname__}", state, blocks)
    if job.weighted and rows.weights is not None:
        inputs += (rows.weights.content,)
    if point.confirmed:
        return point.value(job.name, inputs, lambda: _run_graph(rows, job, state, run, blocks))
    if blocks is not None:  # the content of the other blocks is not known yet
        return _run_graph(rows, job, state, run, blocks)
    content, value = _run_graph(rows, with_fingerprint(job, rows.n_rows), state, run, None)
    point.confirm(content)
    point.keep(job.name, inputs, value)
    return value


def step(run: Run, name: str, function: Callable[..., T], *args: Any) -> T:
    """Call a function between passes: at once, or in a lazy run as a task dca-<name> on one thread.

    Returns its value, or a Delayed of it in a lazy run, where Delayed arguments are computed first.
    """
    if not run.lazy:
        return run_task(function, *args)
    key = f"dca-{name}-{uuid.uuid4().hex}"
    return cast("T", delayed(run_task, pure=False)(function, *args, dask_key_name=key))


class _ArrayDelayed(Delayed):
    """A Delayed that is optimised as Dask arrays are."""

    __slots__ = ()

    @property
    def __dask_optimize__(self) -> Any:
        from dask.array import Array

        return Array.__dask_optimize__


def optimized_with_arrays(value: Any, name: str) -> Delayed:
    """Make a Delayed that is optimised together with the Dask arrays that it is computed with.

    Dask fuses the loading of an array's blocks with their first use unless there are other uses, and sees these only
    among objects that are optimised in the same way.
    value: a Delayed on top of layers of arrays; name: the last task is called dca-<name>.
    """
    last = delayed(identity, pure=False)(value, dask_key_name=f"dca-{name}-{uuid.uuid4().hex}")
    return _ArrayDelayed(last.key, last.dask, layer=last.key)


def _run_inline(rows: Rows, job: Pass[T], state: Any) -> T:
    rows, job = with_weights(rows, job)
    where = 0 if job.halo is None else Window(0, 0, rows.n_rows)
    found = [run_task(part.merge, [run_task(part.block, state, where, rows.source)]) for part in job.by_group()]
    if job.groups is None:
        return cast("T", found[0])
    ends = [run_task(job.groups.finish, *pair) for pair in zip(job.groups.every, found, strict=True)]
    return cast("T", run_task(job.groups.conquer, ends))


def _run_graph(rows: Rows, job: Pass[T], state: Any, run: Run, blocks: NDArray[np.int64] | None) -> T:
    def compute(held: Any) -> T:
        return cast("T", compute_delayed(delayed_pass(rows, job, held, blocks=blocks), job.name, run))

    return compute_with_state(state, compute, rows.source, job.name, run, rows)


def delayed_pass(
    rows: Rows, job: Pass[T], state: Any, *, blocks: NDArray[np.int64] | None = None, shared: bool = False
) -> Delayed:
    """Build the graph of a pass; nothing is computed.

    rows: of kind "zarr" or "dask"; state: as for `run_pass`, one node of the graph that all tasks share; blocks:
    numbers of the blocks to visit, all if None; shared: load blocks of kind "dask" in separate tasks, which graphs that
    are computed together share. Returns a Delayed of the pass's value.
    """
    state = as_sent(state)
    rows, job = with_weights(rows, job)
    if rows.form != Form():
        job = replace(job, block=WithErrorContext(job.block, rows.form))
    jobs = job.by_group()
    whole = len(jobs) > 1 or job.halo is not None or blocks is not None
    if not whole:
        jobs = jobs[0].by_rows(n_row_parts(rows))
    graph, keys, token, below = block_tasks(rows, jobs, state, blocks, shared=shared)
    if not whole:
        keys = [[key for block in zip(*keys, strict=True) for key in block]]  # in the order of the rows
    last = add_merge_tasks(graph, job, keys, token)
    layer = f"dca-{job.name}-pass-{token}"
    return Delayed(last, HighLevelGraph.from_collections(layer, graph, below), layer=layer)


def map_rows(rows: Rows, function: Callable[..., NDArray[Any]], state: Any, width: int | None) -> Any:
    """Apply a function to every block of rows, lazily for chunked rows.

    Returns (n, width), or (n,) if width is None, in the floating dtype of the input, at least float32; with the labels
    of the rows.
    """
    state = as_sent(state)
    if rows.kind == "memory":
        wrapped = WithErrorContext(function, rows.form, rows.feature_names)
        found: Any = run_task(_call_and_cast, wrapped, rows.result_dtype, state, 0, rows.source)
    else:
        require_package_for_results()
        found = _map_lazily(rows, function, state, width or 1)
    return labelled(rows.labels, found[:, 0]) if width is None else labelled(rows.labels, found, "parts")


def _map_lazily(rows: Rows, function: Callable[..., NDArray[Any]], state: Any, width: int) -> Any:
    import dask.array as da

    source, dtype = rows.source, rows.result_dtype
    if rows.kind == "zarr":
        source = da.from_array(source, chunks=(tuple(np.diff(rows.offsets).tolist()), -1))
    whole = source.numblocks[1] == 1  # then no index is contracted, and Dask fuses loading with the function
    return da.blockwise(
        _apply,
        "ij" if whole else "ik",
        source,
        "ij",
        ArraySliceDep(source.chunks[:1]),
        "i",
        _state_node(_State(state, rows.form, rows.feature_names)),
        "",
        **({"adjust_chunks": {"j": width}} if whole else {"new_axes": {"k": width}}),
        concatenate=False,
        align_arrays=False,
        dtype=dtype,
        meta=np.empty((0, 0), dtype=dtype),
        token="dca-transform",
        function=function,
        declared=rows.declared,
        out=dtype,
        whole=whole,
    )


@dataclass(frozen=True)
class _State:
    """What all blocks receive; wrapped, since a bare array would be taken for a collection."""

    value: Any
    form: Form
    names: Any


def _state_node(state: _State) -> Any:
    """Make one node of the graph for all blocks, or scatter the state if it would make the graph too large.

    It is an array without dimensions, because array expressions lose Delayed keyword arguments.
    """
    import dask.array as da

    holder = np.empty((), dtype=object)
    holder[()] = state
    held = scatter(holder) if array_bytes(state) > _MAX_GRAPH_STATE_BYTES else holder
    if held is not holder:
        return da.from_delayed(held, (), dtype=object)
    return da.from_array(holder, name=f"dca-state-{tokenize(state)}")


@numpy_defaults
def _apply(
    columns: Any,
    where: tuple[slice],
    shared: Any,
    *,
    function: Callable[..., Any],
    declared: Declared,
    out: Any,
    whole: bool,
) -> NDArray[Any]:
    numbers = range(where[0].start, where[0].stop)
    parts = check_blocks([columns] if whole else columns, numbers, declared)
    state: _State = shared.item()
    wrapped = WithErrorContext(function, state.form, state.names)
    return run_task(_call_and_cast, wrapped, out, state.value, numbers.start, *parts)


def map_frames(
    rows: Rows,
    function: Callable[..., NDArray[Any]],
    state: Any,
    width: int | None,
    halo: Halo,
    dtype: np.dtype[Any],
    name: str = "decode",
    kind: str = "parts",
) -> Any:
    """Apply a function to every block and its halo, for results per frame, lazily for chunked rows.

    Returns (n, width), or (n,) if width is None, with the labels of the rows.
    """
    typed = partial(_call_and_cast, WithErrorContext(function, rows.form, rows.feature_names), dtype)
    state = as_sent(state)
    if rows.kind == "memory":
        window = Window(0, 0, rows.n_rows)
        found: Any = run_task(typed, state, window, rows.source)
    else:
        require_package_for_results()
        found = _lazy_frames(rows, Pass(name, typed, stack_parts, halo), state, width or 1, dtype)
    return labelled(rows.labels, found[:, 0]) if width is None else labelled(rows.labels, found, kind)


def _lazy_frames(rows: Rows, job: Pass[Any], state: Any, width: int, dtype: np.dtype[Any]) -> Any:
    rows = rows.with_chunks()
    shared = rows.form.kind == "table"  # whose partitions are loaded once, for values and index
    graph, (keys,), token, below = block_tasks(rows, [job], state, None, shared=shared)
    layer = f"dca-{job.name}-pass-{token}"
    return array_of_keys(graph, keys, layer, np.diff(rows.offsets), width, dtype, below)


def _call_and_cast(function: Callable[..., NDArray[Any]], dtype: np.dtype[Any], *args: Any) -> NDArray[Any]:
    """Call a block's function, and cast its result."""
    return function(*args).astype(dtype, copy=False)
