"""The tasks of a pass over a zarr array, which read their own blocks, also from stores that answer slowly.

An object store answers a request after tens of milliseconds and sends some 100 MB a second to each connection, while
the thread that asked waits. Where few rows of many chunks are wanted, a task asks for several chunks at once; where all
rows are, a task leaves its slot of the worker to the next one as soon as its block is there.
"""

from __future__ import annotations

import sys
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np

from dask_dca.engine.computing import task_threads
from dask_dca.engine.entry import admitted, aligned
from dask_dca.engine.numerics import call_on_one_blas_thread
from dask_dca.engine.stores import read_rows
from dask_dca.engine.types import Window

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from dask_dca.engine.entry import Declared
    from dask_dca.engine.rows import Rows
    from dask_dca.engine.types import Halo, Pass

_IN_FLIGHT_BYTES: Final = 2**27  # of the chunks that a task asks for at once
_MOST_IN_FLIGHT: Final = 8
_MOST_THREADS: Final = 2  # workers with more read beside computing as it is
_lock: Final = threading.Lock()
_slots: Final[weakref.WeakKeyDictionary[Any, threading.BoundedSemaphore]] = weakref.WeakKeyDictionary()
T = TypeVar("T")


def add_zarr_tasks(
    graph: dict[Any, Any], rows: Rows, job: Pass[T], shared: str, name: str, chosen: Sequence[list[int]]
) -> list[Any]:
    """One task per block, or per bundle of blocks, which reads its own slices."""
    from dask.task_spec import DataNode, Task, TaskRef

    source = name.replace(f"dca-{job.name}", "dca-source")
    graph[source] = DataNode(source, read_by(rows, job.block, job.halo))
    both = TaskRef(source), TaskRef(shared)  # one object each: a graph of many tasks is small only if they share
    keys = [(name, some[0]) for some in chosen]
    for key, some in zip(keys, chosen, strict=True):
        task = (call_on_one_blas_thread, *both, key[1]) if len(some) == 1 else (_several, job.merge, *both, tuple(some))
        graph[key] = Task(key, *task, _data_producer=True)
    return keys


def _several(
    merge: Callable[[Sequence[T]], T], work: Callable[[Any, int], T], state: Any, numbers: tuple[int, ...]
) -> T:
    """Work on several blocks, each in a thread that mostly waits for the store, and merge what they give."""
    with ThreadPoolExecutor(max_workers=len(numbers), thread_name_prefix="dask-dca-read") as pool:
        found = list(pool.map(partial(call_on_one_blas_thread, work, state), numbers))
    return call_on_one_blas_thread(merge, found)


def _itself(state: None, start: int, block: T) -> T:
    return block


def read_by(rows: Rows, block: Callable[..., Any] = _itself, halo: Halo | None = None) -> _ZarrBlock:
    """Make what reads a block of a zarr array, by its number, and works on it; else it is the block itself."""
    every, starts = rows.offsets[:-1], range(0, int(rows.offsets[-2]) + 1, int(rows.offsets[1]))
    compact = starts if np.array_equal(every, starts) else every  # of equal height, except for the last
    return _ZarrBlock(rows.source, block, halo, rows.declared, compact)


@dataclass(frozen=True)
class _ZarrBlock:
    """Read a slice of a zarr array and work on it, in one task."""

    array: Any
    block: Callable[..., Any]
    halo: Halo | None
    declared: Declared
    starts: range | NDArray[np.int64]

    def __call__(self, state: Any, number: int) -> Any:
        n_rows, state = int(self.array.shape[0]), aligned(state)
        start = int(self.starts[number])
        stop = int(self.starts[number + 1]) if number + 1 < len(self.starts) else n_rows
        first, last = start, stop
        where: int | Window = start
        if self.halo is not None:
            first, last = max(start - self.halo.before, 0), min(stop + self.halo.after, n_rows)
            where = Window(first, start, stop)
        columns = admitted([read_rows(self.array, first, last)], range(first, last), self.declared)
        with beside_reading(self.array):
            return self.block(state, where, *columns)


def answers_slowly(array: Any) -> bool:
    """Tell whether each read of an array waits for a store elsewhere.

    array: a zarr array, or what is read as one; those whose store is not known are taken for quick.
    """
    stored = getattr(array, "array", array)  # of packed values
    return bool(getattr(getattr(stored, "store", None), "answers_slowly", False))


def bundles(rows: Rows, blocks: NDArray[np.int64]) -> list[list[int]]:
    """Bundle blocks of which few rows are wanted: a task's chunks, which it asks for at the same time.

    rows: data of kind "zarr"; blocks: which blocks, sorted. Returns one block a task for a store that answers at once;
    else up to eight of at most 128 MB in all, yet no fewer than two tasks a thread.
    """
    size = 1
    if answers_slowly(rows.source):
        block_bytes = max(int(rows.offsets[1]) * rows.n_features * rows.dtype.itemsize, 1)
        size = min(_IN_FLIGHT_BYTES // block_bytes, _MOST_IN_FLIGHT, len(blocks) // (2 * task_threads()))
    size = max(size, 1)
    return [[int(i) for i in blocks[j : j + size]] for j in range(0, len(blocks), size)]


@contextmanager
def beside_reading(array: Any) -> Iterator[None]:
    """Leave the worker's slot to a task that reads the next block, while what is in the context computes.

    As many tasks compute as the worker has threads; the others wait here with their block, and hold their slots. So a
    worker has two blocks a thread at most. Nothing changes for a store that answers at once, outside of workers, and on
    workers of more than two threads, which read beside computing as it is.
    """
    worker = _worker() if answers_slowly(array) else None
    if worker is None or worker.state.nthreads > _MOST_THREADS:
        yield
        return
    from distributed import secede

    with _lock:
        slots = _slots.setdefault(worker, threading.BoundedSemaphore(worker.state.nthreads))
    with slots:
        secede()
        yield


def _worker() -> Any:
    """The worker that runs this task; None elsewhere."""
    if "distributed" not in sys.modules:
        return None
    from distributed import get_worker

    try:
        return get_worker()
    except ValueError:
        return None
