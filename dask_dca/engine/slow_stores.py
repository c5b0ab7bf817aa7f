"""Stores that answer slowly: several chunks on their way at a time, and reading one block beside the work on another.

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
from typing import TYPE_CHECKING, Any, Final, TypeVar

from dask_dca.engine.progress import task_threads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from dask_dca.engine.rows import Rows

_IN_FLIGHT_BYTES: Final = 2**27  # of the chunks that a task asks for at once
_MOST_IN_FLIGHT: Final = 8
_MOST_THREADS: Final = 2  # workers with more read beside computing as it is
_lock: Final = threading.Lock()
_slots: Final[weakref.WeakKeyDictionary[Any, threading.BoundedSemaphore]] = weakref.WeakKeyDictionary()
T = TypeVar("T")


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


def in_flight(work: Callable[[int], T], numbers: Sequence[int]) -> list[T]:
    """Work on several blocks, each in a thread that mostly waits for the store.

    work: reads a block of that number, and returns little. Returns what it gave, in the order of the numbers.
    """
    with ThreadPoolExecutor(max_workers=len(numbers), thread_name_prefix="dask-dca-read") as pool:
        return list(pool.map(work, numbers))


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
