"""Passes that take rows along: what is counted comes back, the rows stay on the cluster, in a few pieces.

Later passes read the pieces as any other rows. They are not lost with a worker: the scheduler knows how to take them
again.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from dask_dca.engine.computing import computed_and_kept, try_with
from dask_dca.engine.graphs import add_merge_tree, block_tasks
from dask_dca.engine.rows import as_rows
from dask_dca.engine.threads import call_on_one_blas_thread
from dask_dca.engine.watch import task_threads

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dask.delayed import Delayed

    from dask_dca.engine.job import Pass, Run
    from dask_dca.engine.rows import Rows

__all__ = ["Keep", "run_and_keep"]

T = TypeVar("T")


@dataclass(frozen=True)
class Keep:
    """
    What becomes of the rows that blocks took along, once these are merged to pieces.

    Attributes
    ----------
    note : callable
        Of a piece, what must be known to judge.
    judge : callable
        Of the notes of all pieces, what is to be kept.
    rows : callable
        Of a piece and that, a matrix of the rows that are kept.
    most_pieces : int
        Not cut into more; else there are as many as threads.
    """

    note: Callable[[Any], Any]
    judge: Callable[[Sequence[Any]], Any]
    rows: Callable[[Any, Any], Any]
    most_pieces: int


def run_and_keep(rows: Rows, job: Pass[tuple[T, Any]], keep: Keep, state: Any, run: Run) -> tuple[T, Rows | None]:
    """
    Run a pass over chunked data whose blocks give a value and some rows.

    Parameters
    ----------
    rows : Rows
        The data, of kind "zarr" or "dask".
    job : Pass
        Its block function returns both; its merge merges values, and it merges rows.
    keep : Keep
        What becomes of the rows.
    state : object
        What every block's function receives first.
    run : Run
        How passes are run.

    Returns
    -------
    value : object
        What the merged blocks gave.
    kept : Rows or None
        The rows in pieces; None if there are none.
    """
    if run.reads is not None and rows.source is run.reads.source:
        run.reads.full += 1
    (value, sizes), pieces = try_with(
        state, lambda held: computed_and_kept(*_graph(rows, job, keep, held), job.name, run), rows.source, job.name, run
    )
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
    last = add(f"{job.name}-pass", 0, _both, whole, List(*sizes))
    layered = HighLevelGraph({token: graph}, {token: set()})
    return Delayed(last, layered, layer=token), [Delayed(key, layered, layer=token) for key in kept]


def _part(take: Callable[[Any, Any], Any], piece: Any, verdict: Any, part: int, of: int) -> Any:
    """One of several equal parts of the rows that are kept of a piece."""
    rows = take(piece, verdict)
    n = rows.shape[0]
    return rows[n * part // of : n * (part + 1) // of]


def _height(rows: Any) -> int:
    return int(rows.shape[0])


def _both(value: T, sizes: list[int]) -> tuple[T, list[int]]:
    return value, sizes


def _array(pieces: Sequence[Delayed], sizes: Sequence[int], rows: Rows) -> Any:
    """Pieces one below the other as a Dask array, of which nothing is copied."""
    import dask.array as da
    from dask.highlevelgraph import HighLevelGraph
    from dask.task_spec import Alias

    name = f"dca-pieces-{pieces[0].key}"
    graph = {(name, i, 0): Alias((name, i, 0), piece.key) for i, piece in enumerate(pieces)}
    layered = HighLevelGraph.from_collections(name, graph, dependencies=pieces)
    return da.Array(layered, name, (tuple(sizes), (rows.n_features,)), dtype=np.dtype(np.float64))
