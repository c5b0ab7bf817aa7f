"""Tasks and their inputs: blocks, which are read and compared with what was declared, and arrays, which are aligned.

Dask does not check blocks: the value of a function of `map_blocks` may have other rows, columns or dtypes than the
array, and a kernel would then name wrong rows.

Tasks of a pass over a zarr array read their own blocks. An object store has a latency of tens of milliseconds and a
bandwidth of some 100 MB a second per connection, during which the thread waits. If few rows of many chunks are needed,
a task requests several chunks at once; if all rows are needed, a task releases its slot of the worker to the next one
as soon as its block is read.
"""

from __future__ import annotations

import dataclasses
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import numpy as np
from dask.task_spec import DataNode, Task, TaskRef
from numpy.typing import NDArray
from scipy import sparse

from dask_dca.engine.process import numpy_defaults, one_blas_thread, reuse_freed_memory
from dask_dca.engine.stores import read_rows
from dask_dca.engine.types import Halo, Pass, Window
from dask_dca.errors import InvalidInputError, NotNumbersError

if TYPE_CHECKING:
    from dask_dca.engine.rows import Rows

_CONVERSIONS: Final = {  # by kind of dtype, what turns entries into numbers
    "M": "(X - X.min()) / numpy.timedelta64(1, 's') for seconds",
    "m": "X / numpy.timedelta64(1, 's') for seconds",
    "O": "X.astype(float)",
    "V": "pandas.DataFrame(X) of records",
    "U": "X.astype(float) of numbers",
    "S": "X.astype(float) of numbers",
    "T": "X.astype(float) of numbers",
}
T = TypeVar("T")
_SCALARS: Final = (int, float, str, np.generic, type(None))
_MAX_IN_FLIGHT_BYTES: Final = 2**27  # bytes of the chunks that a task requests at once
_MAX_IN_FLIGHT: Final = 8  # chunks that a task requests at once
_MAX_SECEDING_THREADS: Final = 2  # workers with more threads overlap reading and computing anyway
_lock: Final = threading.Lock()
_slots: Final[weakref.WeakKeyDictionary[Any, threading.BoundedSemaphore]] = weakref.WeakKeyDictionary()


def array_bytes(value: Any) -> int:
    """Count the bytes of the arrays in a value, within dataclasses, lists, tuples and dictionaries."""
    if isinstance(value, np.ndarray):
        return value.nbytes
    if isinstance(value, list | tuple):
        return sum(map(array_bytes, value))
    if isinstance(value, dict):
        return sum(map(array_bytes, value.values()))
    if dataclasses.is_dataclass(value):
        return sum(array_bytes(getattr(value, field.name)) for field in dataclasses.fields(value))
    return 0


def align_arrays(given: T, *, contiguous: bool = False) -> T:
    """Copy the arrays in a value that are not aligned, within dataclasses, lists, tuples and dictionaries.

    An array that was sent over the network may begin anywhere in a message, and NumPy adds the entries of an unaligned
    array in another order, so that sums have other bits. contiguous: also copy views with gaps, as sending them does.
    Returns the value itself if all arrays are as they should be.
    """
    value: Any = given
    if isinstance(value, _SCALARS):
        return given
    found: Any = value
    align = partial(align_arrays, contiguous=contiguous)
    if isinstance(value, np.ndarray):
        as_sent = value.flags.aligned and (value.flags.forc or not contiguous)
        found = value if as_sent else value.copy()
    elif isinstance(value, list | tuple):
        parts = [align(part) for part in value]
        if any(new is not old for new, old in zip(parts, value, strict=True)):
            found = type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    elif isinstance(value, dict):
        changed = {key: new for key, old in value.items() if (new := align(old)) is not old}
        found = value | changed if changed else value
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value) if field.init}
        changed = {name: new for name, old in fields.items() if (new := align(old)) is not old}
        found = dataclasses.replace(value, **changed) if changed else value
    elif isinstance(value, partial):
        own = (value.func, value.args, value.keywords)
        parts = [align(part) for part in own]
        if any(new is not old for new, old in zip(parts, own, strict=True)):
            found = partial(parts[0], *parts[1], **parts[2])
    elif sparse.issparse(value):
        parts = [part for part in vars(value).values() if isinstance(part, np.ndarray)]
        found = value if all(part.flags.aligned for part in parts) else value.copy()
    return cast("T", found)


def as_sent(value: T) -> T:
    """Return a value with its arrays as they are after a message, also where nothing was sent."""
    return align_arrays(value, contiguous=True)


class OwnCaches:
    """A dataclass with cached properties that each process has of its own: they are not sent.

    Arrays are aligned when it is received: a task that had to copy them would begin with a new object, without caches.
    """

    def __getstate__(self) -> dict[str, Any]:
        return {part.name: getattr(self, part.name) for part in dataclasses.fields(cast("Any", self))}

    def __setstate__(self, parts: dict[str, Any]) -> None:
        vars(self).update(align_arrays(parts))


@numpy_defaults
def run_task(function: Callable[..., T], *args: Any) -> T:
    """Call a function as a task: with one BLAS thread, reusing freed memory, and arrays as they are when sent."""
    with one_blas_thread(), reuse_freed_memory():
        return as_sent(align_arrays(function)(*align_arrays(args)))


@dataclass(frozen=True)
class Declared:
    """Declared column chunks and dtype of all blocks of a matrix."""

    edges: tuple[int, ...]  # first column of each column chunk, and the number of columns
    dtype: np.dtype[Any]

    def chunk(self, j: int) -> Declared:  # numpydoc ignore=PR01,RT01
        """Return the declaration of one column chunk."""
        return Declared(self.edges[j : j + 2], self.dtype)


def check_blocks(chunks: Sequence[Any], rows: range, declared: Declared) -> list[Any]:
    """Check the column chunks of a block against their declaration, and bring them to the form that kernels take.

    Returns NumPy arrays or sparse rows in native byte order, with NaN for masked entries, and no wider than a declared
    floating dtype.
    Raises InvalidInputError: shape or kind of dtype is not as declared; the message names the block.
    """
    sides = zip(declared.edges[:-1], declared.edges[1:], strict=True)
    return [
        _check_block(chunk, rows, range(left, right), declared.dtype)
        for chunk, (left, right) in zip(chunks, sides, strict=True)
    ]


def _check_block(chunk: Any, rows: range, columns: range, dtype: np.dtype[Any]) -> Any:
    try:
        found = to_plain(chunk)
    except Exception as error:  # arrays of other packages raise what they like
        what = "" if isinstance(chunk, np.ndarray) or sparse.issparse(chunk) else f"a {type(chunk).__name__}: "
        raise _undeclared_error(what + str(error).partition("\n")[0][:120], rows, columns, dtype) from error
    if found.shape != (len(rows), len(columns)):
        hint = "declare the shapes that blocks have, for example by X = X.compute_chunk_sizes()"
        raise _undeclared_error(f"its shape is {found.shape}; {hint}", rows, columns, dtype)
    if dtype.kind != "f" or np.can_cast(found.dtype, dtype, "safe"):
        return found
    with np.errstate(over="ignore"):  # infinity is reported where rows are read
        return found.astype(_sparse_dtype(dtype) if sparse.issparse(found) else dtype)


def _undeclared_error(what: str, rows: range, columns: range, dtype: np.dtype[Any]) -> InvalidInputError:
    return InvalidInputError(
        f"the block of rows {rows.start} to {rows.stop - 1}, columns {columns.start} to {columns.stop - 1}, is not "
        f"what was declared, of shape {(len(rows), len(columns))} and dtype {dtype}: {what}"
    )


def to_plain(values: Any) -> Any:
    """Convert an array to one of the two forms that kernels take, without unnecessary copies.

    values: dense or sparse, masked or labelled, of any real dtype. Returns a NumPy array, with NaN for masked entries,
    or sparse rows in native byte order.
    Raises InvalidInputError: the entries are not real numbers.
    """
    if hasattr(values, "to_scipy_sparse"):  # of the package sparse
        values = values.to_scipy_sparse()
    if hasattr(values, "tocsr"):
        return align_arrays(_sparse_rows(values))
    if isinstance(values, np.ma.MaskedArray):
        require_real(values.dtype)
        if np.ma.is_masked(values):
            dtype = values.dtype if values.dtype.kind == "f" else np.dtype(np.float64)
            return np.ma.filled(values.astype(dtype), np.nan)
        return np.asarray(values.data)
    found = np.asarray(values)
    require_real(found.dtype)
    return align_arrays(found)


def _sparse_rows(values: Any) -> Any:
    require_real(values.dtype)
    dtype = _sparse_dtype(values.dtype)
    return (values if values.dtype == dtype else values.astype(dtype)).tocsr()


def _sparse_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Dtype that SciPy's sparse matrices support: native byte order, and no half precision."""
    return np.dtype(np.float32) if dtype == np.float16 else dtype.newbyteorder("=")


def require_real(dtype: np.dtype[Any]) -> None:
    """Raise InvalidInputError for entries that are not real numbers; the message says how to convert them."""
    if dtype.kind == "c":
        msg = f"Complex data not supported: dtype {dtype}; pass X.real or np.abs(X)"
        raise InvalidInputError(msg)
    if dtype.kind not in "biuf":
        hint = _CONVERSIONS.get(dtype.kind, "")
        msg = f"the data must be real numbers; received dtype {dtype}{hint and '; pass '}{hint}"
        raise NotNumbersError(msg)


def add_zarr_tasks(
    graph: dict[Any, Any], rows: Rows, job: Pass[T], shared: str, name: str, chosen: Sequence[list[int]]
) -> list[Any]:
    """Add one task per block, or per bundle of blocks, that reads its own slices; returns the keys."""
    source = name.replace(f"dca-{job.name}", "dca-source")
    graph[source] = DataNode(source, block_reader(rows, job.block, job.halo))
    both = TaskRef(source), TaskRef(shared)  # one object each: a graph of many tasks is small only if they share
    keys = [(name, some[0]) for some in chosen]
    for key, some in zip(keys, chosen, strict=True):
        single = (run_task, *both, key[1])
        task = single if len(some) == 1 else (_run_bundle, job.merge, *both, tuple(some))
        graph[key] = Task(key, *task, _data_producer=True)
    return keys


def _run_bundle(
    merge: Callable[[Sequence[T]], T], work: Callable[[Any, int], T], state: Any, numbers: tuple[int, ...]
) -> T:
    """Process several blocks, each in a thread that mostly waits for the store, and merge their values."""
    with ThreadPoolExecutor(max_workers=len(numbers), thread_name_prefix="dask-dca-read") as pool:
        found = list(pool.map(partial(run_task, work, state), numbers))
    return run_task(merge, found)


def _return_block(state: None, start: int, block: T) -> T:
    return block


def block_reader(rows: Rows, block: Callable[..., Any] = _return_block, halo: Halo | None = None) -> _ZarrBlock:
    """Make a callable that reads a block of a zarr array by its number, and calls a function with it, if given."""
    every, starts = rows.offsets[:-1], range(0, int(rows.offsets[-2]) + 1, int(rows.offsets[1]))
    compact = starts if np.array_equal(every, starts) else every  # all blocks have equal height, except for the last
    return _ZarrBlock(rows.source, block, halo, rows.declared, compact)


@dataclass(frozen=True)
class _ZarrBlock:
    """Read a slice of a zarr array and call the block's function, in one task."""

    array: Any
    block: Callable[..., Any]
    halo: Halo | None
    declared: Declared
    starts: range | NDArray[np.int64]

    def __call__(self, state: Any, number: int) -> Any:
        n_rows = int(self.array.shape[0])
        start = int(self.starts[number])
        stop = int(self.starts[number + 1]) if number + 1 < len(self.starts) else n_rows
        first, last = start, stop
        where: int | Window = start
        if self.halo is not None:
            first, last = max(start - self.halo.before, 0), min(stop + self.halo.after, n_rows)
            where = Window(first, start, stop)
        columns = check_blocks([read_rows(self.array, first, last)], range(first, last), self.declared)
        with release_slot(self.array):
            return self.block(state, where, *columns)


def answers_slowly(array: Any) -> bool:
    """Whether reads of a zarr array wait for a remote store; unknown stores count as fast."""
    stored = getattr(array, "array", array)  # the array of packed values
    return bool(getattr(getattr(stored, "store", None), "answers_slowly", False))


def bundle_blocks(rows: Rows, blocks: NDArray[np.int64], n_threads: int) -> list[list[int]]:
    """Bundle blocks of which few rows are needed: a task requests the chunks of a bundle at the same time.

    rows: of kind "zarr"; blocks: sorted numbers; n_threads: of all workers. Bundles have one block for a fast store,
    else up to eight with at most 128 MB in all, but there are at least two tasks per thread.
    """
    size = 1
    if answers_slowly(rows.source):
        block_bytes = max(int(rows.offsets[1]) * rows.n_features * rows.dtype.itemsize, 1)
        size = min(_MAX_IN_FLIGHT_BYTES // block_bytes, _MAX_IN_FLIGHT, len(blocks) // (2 * n_threads))
    size = max(size, 1)
    return [[int(i) for i in blocks[j : j + size]] for j in range(0, len(blocks), size)]


@contextmanager
def release_slot(array: Any) -> Iterator[None]:
    """Release the worker's slot to a task that reads the next block while this context computes.

    As many tasks compute as the worker has threads; others wait here with their block and keep their slots, so that a
    worker has at most two blocks per thread. Nothing happens for fast stores, outside workers, and on workers with more
    than two threads, which overlap reading and computing anyway.
    """
    worker = own_worker() if answers_slowly(array) else None
    if worker is None or worker.state.nthreads > _MAX_SECEDING_THREADS:
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
