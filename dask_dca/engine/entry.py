"""What enters tasks: blocks, read and compared with what was declared, and states, whose arrays begin at whole words.

Dask never looks into blocks: what a function of `map_blocks` returns may have other rows, columns or numbers than the
array says. A kernel that believed it would name wrong rows.

Tasks of a pass over a zarr array read their own blocks. An object store answers a request after tens of milliseconds
and sends some 100 MB a second to each connection, while the thread that asked waits. Where few rows of many chunks are
wanted, a task asks for several chunks at once; where all rows are, a task leaves its slot of the worker to the next one
as soon as its block is there.
"""

from __future__ import annotations

import dataclasses
import sys
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import numpy as np
from scipy import sparse

from dask_dca.engine.numerics import call_on_one_blas_thread
from dask_dca.engine.stores import read_rows
from dask_dca.engine.types import Window
from dask_dca.errors import InvalidInputError, NotNumbersError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from dask_dca.engine.rows import Rows
    from dask_dca.engine.types import Halo, Pass

_OF_KIND: Final = {  # what makes numbers of entries of other kinds
    "M": "(X - X.min()) / numpy.timedelta64(1, 's') for seconds",
    "m": "X / numpy.timedelta64(1, 's') for seconds",
    "O": "X.astype(float)",
    "V": "pandas.DataFrame(X) of records",
    "U": "X.astype(float) of numbers",
    "S": "X.astype(float) of numbers",
    "T": "X.astype(float) of numbers",
}
T = TypeVar("T")
_IN_FLIGHT_BYTES: Final = 2**27  # of the chunks that a task asks for at once
_MOST_IN_FLIGHT: Final = 8
_MOST_THREADS: Final = 2  # workers with more read beside computing as it is
_lock: Final = threading.Lock()
_slots: Final[weakref.WeakKeyDictionary[Any, threading.BoundedSemaphore]] = weakref.WeakKeyDictionary()


def held_bytes(value: Any) -> int:
    """Count the bytes of the arrays in a value.

    value: arrays, and dataclasses, lists, tuples and dictionaries that hold some. Returns their bytes; of anything else
    none.
    """
    if isinstance(value, np.ndarray):
        return value.nbytes
    if isinstance(value, list | tuple):
        return sum(map(held_bytes, value))
    if isinstance(value, dict):
        return sum(map(held_bytes, value.values()))
    if dataclasses.is_dataclass(value):
        return sum(held_bytes(getattr(value, field.name)) for field in dataclasses.fields(value))
    return 0


def aligned(given: T) -> T:
    """Let arrays begin at whole words, as they do where they were made.

    Those that came over the network may begin anywhere in a message, and NumPy adds the entries of such an array in
    other pieces, so that sums have other bits.
    given: arrays, and dataclasses, lists, tuples and dictionaries that hold some. Returns the value itself where all
    arrays do, else one with copies of those that don't.
    """
    value: Any = given
    found: Any = value
    if isinstance(value, np.ndarray):
        found = value if value.flags.aligned else value.copy()
    elif isinstance(value, list | tuple):
        parts = [aligned(part) for part in value]
        if any(new is not old for new, old in zip(parts, value, strict=True)):
            found = type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    elif isinstance(value, dict):
        changed = {key: new for key, old in value.items() if (new := aligned(old)) is not old}
        found = value | changed if changed else value
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value) if field.init}
        changed = {name: new for name, old in fields.items() if (new := aligned(old)) is not old}
        found = dataclasses.replace(value, **changed) if changed else value
    return cast("T", found)


@dataclass(frozen=True)
class Declared:
    """What the blocks of a matrix were declared to be, all of them alike."""

    edges: tuple[int, ...]  # first column of each column chunk, and the number of columns
    dtype: np.dtype[Any]

    def chunk(self, j: int) -> Declared:  # numpydoc ignore=PR01,RT01
        """Return what one column chunk was declared to be."""
        return Declared(self.edges[j : j + 2], self.dtype)


def admitted(chunks: Sequence[Any], rows: range, declared: Declared) -> list[Any]:
    """Let a block into a task.

    Returns (len(rows), columns of the chunk): the same numbers as real NumPy arrays of two dimensions or sparse rows in
    a byte order that SciPy takes, with NaN for masked entries, and no wider than declared where a floating dtype was.
    Raises InvalidInputError: other rows, columns or kinds of numbers than declared; the message names the block and
    both shapes.
    """
    sides = zip(declared.edges[:-1], declared.edges[1:], strict=True)
    return [
        _admitted(chunk, rows, range(left, right), declared.dtype)
        for chunk, (left, right) in zip(chunks, sides, strict=True)
    ]


def _admitted(chunk: Any, rows: range, columns: range, dtype: np.dtype[Any]) -> Any:
    try:
        found = plain(chunk)
    except Exception as error:  # arrays of other packages raise what they like
        what = "" if isinstance(chunk, np.ndarray) or sparse.issparse(chunk) else f"a {type(chunk).__name__}: "
        raise _not_as_declared(what + str(error).partition("\n")[0][:120], rows, columns, dtype) from error
    if found.shape != (len(rows), len(columns)):
        hint = "declare the shapes that blocks have, for example by X = X.compute_chunk_sizes()"
        raise _not_as_declared(f"its shape is {found.shape}; {hint}", rows, columns, dtype)
    if dtype.kind != "f" or np.can_cast(found.dtype, dtype, "safe"):
        return found
    with np.errstate(over="ignore"):  # infinity is found, and named, where rows are read
        return found.astype(_sparse_dtype(dtype) if sparse.issparse(found) else dtype)


def _not_as_declared(what: str, rows: range, columns: range, dtype: np.dtype[Any]) -> InvalidInputError:
    return InvalidInputError(
        f"the block of rows {rows.start} to {rows.stop}, columns {columns.start} to {columns.stop}, is not what was "
        f"declared, of shape {(len(rows), len(columns))} and dtype {dtype}: {what}"
    )


def plain(values: Any) -> Any:
    """Bring an array to one of the two forms that kernels take.

    values: dense or sparse, masked or labelled, of any real dtype. Returns A plain array, with NaN in place of what is
    masked, or sparse rows in native byte order. Nothing is copied that need not be.
    Raises InvalidInputError: the entries are no real numbers.
    """
    if hasattr(values, "to_scipy_sparse"):  # of the package sparse
        values = values.to_scipy_sparse()
    if hasattr(values, "tocsr"):
        return _rows_of_sparse(values)
    if isinstance(values, np.ma.MaskedArray):
        require_real(values.dtype)
        if np.ma.is_masked(values):
            dtype = values.dtype if values.dtype.kind == "f" else np.dtype(np.float64)
            return np.ma.filled(values.astype(dtype), np.nan)
        return np.asarray(values.data)
    found = np.asarray(values)
    require_real(found.dtype)
    return aligned(found)


def _rows_of_sparse(values: Any) -> Any:
    require_real(values.dtype)
    dtype = _sparse_dtype(values.dtype)
    return (values if values.dtype == dtype else values.astype(dtype)).tocsr()


def _sparse_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Of numbers that SciPy's sparse matrices can hold: in native byte order, and no half precision."""
    return np.dtype(np.float32) if dtype == np.float16 else dtype.newbyteorder("=")


def require_real(dtype: np.dtype[Any]) -> None:
    """Refuse entries that are no real numbers.

    Raises InvalidInputError: the message says what makes numbers of them.
    """
    if dtype.kind == "c":
        msg = f"Complex data not supported: dtype {dtype}; pass X.real or np.abs(X)"
        raise InvalidInputError(msg)
    if dtype.kind not in "biuf":
        hint = _OF_KIND.get(dtype.kind, "")
        msg = f"the data must be real numbers; received dtype {dtype}{hint and '; pass '}{hint}"
        raise NotNumbersError(msg)


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


def bundles(rows: Rows, blocks: NDArray[np.int64], n_threads: int) -> list[list[int]]:
    """Bundle blocks of which few rows are wanted: a task's chunks, which it asks for at the same time.

    rows: data of kind "zarr"; blocks: which blocks, sorted; n_threads: that work on tasks. Returns one block a
    task for a store that answers at once; else up to eight of at most 128 MB in all, yet no fewer than two tasks a
    thread.
    """
    size = 1
    if answers_slowly(rows.source):
        block_bytes = max(int(rows.offsets[1]) * rows.n_features * rows.dtype.itemsize, 1)
        size = min(_IN_FLIGHT_BYTES // block_bytes, _MOST_IN_FLIGHT, len(blocks) // (2 * n_threads))
    size = max(size, 1)
    return [[int(i) for i in blocks[j : j + size]] for j in range(0, len(blocks), size)]


@contextmanager
def beside_reading(array: Any) -> Iterator[None]:
    """Leave the worker's slot to a task that reads the next block, while what is in the context computes.

    As many tasks compute as the worker has threads; the others wait here with their block, and hold their slots. So a
    worker has two blocks a thread at most. Nothing changes for a store that answers at once, outside of workers, and on
    workers of more than two threads, which read beside computing as it is.
    """
    worker = own_worker() if answers_slowly(array) else None
    if worker is None or worker.state.nthreads > _MOST_THREADS:
        yield
        return
    from distributed import secede

    with _lock:
        slots = _slots.setdefault(worker, threading.BoundedSemaphore(worker.state.nthreads))
    with slots:
        secede()
        yield


def own_worker() -> Any:
    """Return the worker that runs this task; None elsewhere."""
    if "distributed" not in sys.modules:
        return None
    from distributed import get_worker

    try:
        return get_worker()
    except ValueError:
        return None
