"""How graphs are computed: on the active client or a local scheduler, with states that are sent again, and progress.

A bar is redrawn where somebody looks at it, in a terminal or a notebook; a log file gets two lines for each pass.
"""

from __future__ import annotations

import contextlib
import pkgutil
import sys
import time
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING, Any, Final, TypeVar
from weakref import WeakKeyDictionary

from dask_dca.engine.entry import aligned, held_bytes, own_worker
from dask_dca.engine.numerics import one_blas_thread
from dask_dca.engine.stores import is_a
from dask_dca.errors import ClusterError, ClusterWarning, InvalidInputError, warn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from dask.delayed import Delayed

    from dask_dca.engine.rows import Rows
    from dask_dca.engine.types import Run

_LOCAL: Final = ("sync", "synchronous", "single-threaded", "threads", "threading", "processes", "multiprocessing")
_LARGE: Final = 2**20  # bytes of a state that is sent past the scheduler
_PATIENCE: Final = 30.0  # seconds for which workers that died are awaited before a large state goes with the graph
_ASKED: Final = 3  # times, where workers come and go so soon that none answers
_LACKING: Final = (
    "{} of {} new workers can't import dask_dca ({}: {}); start workers in this process's environment or image, or "
    "install what is missing there (client.register_plugin(distributed.PipInstall([...])))"
)
_MET: Final[WeakKeyDictionary[Any, set[str]]] = WeakKeyDictionary()  # workers that were looked at, by client
_SILENCE: Final = 10.0  # seconds without any worker, after which a caller who waits is told
_LOST: Final = ("scheduler-connection-lost", "scheduler-restart")  # what distributed says of futures then
T = TypeVar("T")


def active_client() -> Any:
    """Return the client that Dask would use.

    Returns none where Dask's local schedulers do the work.
    Raises ClusterError: it is asynchronous, and this is a coroutine of its event loop, which can't wait.
    """
    import dask

    if "distributed" not in sys.modules or dask.config.get("scheduler", None) in _LOCAL:
        return None
    from distributed import get_client

    try:
        client = get_client()
    except ValueError:
        return None
    if client.asynchronous:
        msg = (
            "the active Dask client is asynchronous, and this call waits for results inside its event loop; call it in "
            "a thread: await asyncio.to_thread(model.fit, X)"
        )
        raise ClusterError(msg)
    return client


def task_threads() -> int:
    """Count the threads that tasks run on at the same time.

    Returns of all workers of the active client, else of Dask's configured scheduler; at least one.
    """
    client = active_client()
    if client is not None:
        return max(1, sum(client.nthreads().values()))
    import dask
    from dask.system import CPU_COUNT

    if dask.config.get("scheduler", None) in ("sync", "synchronous", "single-threaded"):
        return 1
    return int(dask.config.get("num_workers", None) or CPU_COUNT)


def refuse_promises(X: Any) -> None:
    """Raise an error for an object that will be data, of a shape that nobody knows.

    Raises InvalidInputError: A `dask.delayed` object, or a future.
    """
    if is_a(X, "dask", "Delayed") or is_a(X, "distributed", "Future"):
        msg = (
            f"a {type(X).__name__} has no known shape; pass dask.array.from_delayed(X, shape=(n, p), dtype=float), "
            "or its value"
        )
        raise InvalidInputError(msg)


def refuse_closed(X: Any) -> None:
    """Raise an error for a Dask array whose chunks were kept by a client that is closed.

    Raises InvalidInputError: they are lost.
    """
    for client in _clients(X):
        if client.status == "closed":
            msg = "X was persisted by a Dask client that is closed, so its chunks are lost; make X again, or load it"
            raise InvalidInputError(msg)


def refuse_elsewhere(X: Any, active: Any) -> None:
    """Raise an error for a Dask array whose chunks are on another cluster than that which computes.

    Raises InvalidInputError: they are.
    """
    for client in _clients(X):
        if active is None or _scheduler(client) != _scheduler(active):
            msg = (
                f"X was persisted on the cluster of {client.scheduler.address}, and another one computes; compute "
                "there: with client.as_current(), or call X.compute() there first"
            )
            raise InvalidInputError(msg)


def _clients(X: Any) -> Iterator[Any]:
    """Clients of the futures among an array's chunks: one of each layer that holds any."""
    for layer in getattr(getattr(X, "dask", None), "layers", {}).values():
        if is_a(layer, "dask.highlevelgraph", "MaterializedLayer"):
            first: Any = next(iter(layer.values()), None)
            if is_a(first, "distributed", "Future"):
                yield first.client


def _scheduler(client: Any) -> Any:
    return client.scheduler_info(n_workers=0).get("id")


def require_package(client: Any) -> None:
    """Look once at each worker of a cluster: a task of a package that it can't import ends it, and is waited for.

    client: the active one, or None. Waits for a first worker by a task, for which adaptive clusters start one.
    Raises ClusterError: one can't import this package, and none is known that can. Warns of one beside others, which
    does no harm but to end, and of another version.
    """
    from dask_dca import __version__

    if client is None or client.status != "running":
        return
    met = _MET.setdefault(client, set())
    with contextlib.suppress(OSError):  # of a scheduler that is lost now
        there, found = _versions(client, met)
        new = there - met
        lacking = {worker: error for worker, error in found.items() if isinstance(error, Exception)}
        if lacking:
            msg = _LACKING.format(len(lacking), len(new), *next(iter(lacking.items())))
            if not there & met:
                raise ClusterError(msg)
            warn(msg, ClusterWarning)
        met |= found.keys() - lacking.keys()
        others = sorted({str(found[worker]) for worker in found.keys() - lacking.keys()} - {__version__})
        if others:
            warn(f"workers have dask_dca {', '.join(others)}, this process {__version__}", ClusterWarning)


def _versions(client: Any, met: set[str]) -> tuple[set[str], dict[str, Any]]:
    """Workers that are there, and what those that are new say of this package: its version, or an error."""
    from dask import delayed

    for _ in range(_ASKED):
        if not (there := set(client.nthreads())):
            waited_for(delayed(bool, pure=False)(), retries=0, shown=False)
            there = set(client.nthreads())
        new = list(there - met)
        told = client.run(pkgutil.resolve_name, "dask_dca:__version__", workers=new, on_error="return") if new else {}
        found = {worker: one for worker, one in told.items() if not isinstance(one, OSError)}  # of those that live
        if found or there & met:
            break
    return there, found


def sent(state: Any, *, patience: float = 0.0) -> Any:
    """Send a large state to all workers of a cluster, past the scheduler.

    state: what a pass's blocks receive first; patience: seconds to wait for a first worker. Returns A future of it; the
    state itself where it is small, where there is no cluster, or no worker yet.
    """
    return state if held_bytes(state) < _LARGE else scattered(state, patience=patience)


def scattered(value: Any, *, patience: float = 0.0) -> Any:
    """Send a value to all workers of a cluster, past the scheduler.

    value: anything that can be pickled; patience: seconds to wait for a first worker. Returns A future of it; the value
    itself where there is no cluster, no worker yet, or one that hangs or dies now.
    """
    client = active_client()
    if client is None or not (patience or client.nthreads()):
        return value
    try:
        if patience:
            client.wait_for_workers(1, timeout=patience)
        return client.scatter([value], broadcast=True, hash=False)[0]
    except OSError:
        if client.status != "running":
            raise
        return value


def try_with(state: Any, compute: Callable[[Any], T], source: Any, name: str, run: Run, rows: Rows | None = None) -> T:
    """Compute what needs a state on the cluster; send it again where all workers that held it died.

    compute: does it, given the state as it was sent; name: name of the pass, for errors; rows: whose blocks are the
    tasks that are called after the pass.
    Raises ClusterError: the scheduler was lost or restarted, or one worker after another, or workers can't import this
    package.
    """
    client, held = active_client(), state
    for left in reversed(range(run.retries + 1)):
        try:
            require_package(client)
            held = sent(state, patience=0.0 if left == run.retries else _PATIENCE)
            return compute(held)
        except Exception as error:
            refuse_elsewhere(source, client)
            if client is not None and (client.status != "running" or getattr(error, "reason", "") in _LOST):
                lost = f"the scheduler was lost or restarted in the pass dca-{name}; start the cluster and fit again"
                raise ClusterError(f"{lost} ({_kept_in(run)})") from error
            if is_a(error, "distributed", "KilledWorker"):
                raise workers_died(error, f"dca-{name}-", rows, f" ({_kept_in(run)})") from error
            # all workers that held the state died: send it again
            if not isinstance(error, CancelledError) or held is state or not left:
                raise
    raise AssertionError  # unreachable: the loop above returns or raises


def _kept_in(run: Run) -> str:
    if run.checkpoint is None:
        return "with checkpoint=PATH a fit goes on where it stopped"
    return f"what was finished is kept in {run.checkpoint.path!r}, and the same fit goes on from there"


def workers_died(error: Any, name: str, rows: Rows | None, then: str = "") -> ClusterError:
    """Say of a KilledWorker of Dask's at which rows it happened, and what helps.

    name: how tasks of the rows' blocks are called; then: what else is to be said. Returns the error to raise.
    """
    from dask.utils import format_bytes, key_split

    key, last = error.task, error.last_worker
    task, *numbers = key if isinstance(key, tuple) else (key,)
    where = f"the task {key_split(task)}"
    if rows is not None and numbers and str(task).startswith((name, "dca-load")):
        own = (rows.with_chunks() if "-halo" in str(task) else rows).numbers_of(numbers[0])
        where += f" of the block of rows {own.start} to {own.stop - 1}, or one beside it"  # Dask blames all that it had
    memory = f"{format_bytes(last.memory_limit)} for " if last.memory_limit else ""
    msg = (
        f"{error.allowed_failures + 1} workers died, one after the other, at {where}, most likely for want of memory: "
        f"the last had {memory}{last.nthreads} threads. Take smaller chunks of rows, or give each worker fewer threads "
        "or more memory (dask worker --nthreads 1 --memory-limit 16GiB; fewer workers on one machine have more each); "
        f"the logs of workers tell more{then}"
    )
    return ClusterError(msg)


def computed(value: Delayed, name: str, run: Run) -> Any:
    """Compute on the active client, else on Dask's configured scheduler.

    name: name of the pass, for those who watch.
    """
    with announced(name) if run.verbose else contextlib.nullcontext():
        return aligned(waited_for(value, retries=run.retries, shown=run.verbose))


def computed_and_kept(value: Delayed, kept: Sequence[Delayed], name: str, run: Run) -> tuple[Any, list[Delayed]]:
    """Compute a value, and other values of the same graph that stay where they are.

    kept: what stays on the workers; without a cluster in this process. Returns kept: computed already. What is lost
    with a worker is computed again, as the scheduler knows how.
    """
    import dask

    if active_client() is None:
        found, *there = computed(dask.delayed(list)([value, *kept]), name, run)
        return found, [dask.delayed(one) for one in there]
    first, *held = dask.persist(value, *kept, retries=run.retries)
    return computed(first, name, run), held


def waited_for(value: Any, *, retries: int, shown: bool) -> Any:
    """Compute something lazy on the active client, else on Dask's configured scheduler.

    retries: how often a failing task is tried again; shown: draw a bar on standard error, where somebody looks at it.
    """
    client, shown = active_client(), shown and is_watched()
    if client is None:
        from dask.diagnostics import ProgressBar

        with one_blas_thread(), ProgressBar(out=sys.stderr) if shown else contextlib.nullcontext():
            return value.compute(retries=retries)
    if own_worker() is not None:  # Dask lends a task's place to those that it waits for
        return value.compute(retries=retries)
    future = client.compute(value, retries=retries)
    try:
        return result_of(future, client, shown=shown)
    finally:
        future.release()


def result_of(future: Any, client: Any, *, shown: bool) -> Any:
    """Wait for a future, and say so if there is no worker to wait for.

    shown: draw a bar. Returns its result.
    """
    told = False
    while not future.done():
        if shown and client.nthreads():
            show_progress(future)
            break
        with contextlib.suppress(TimeoutError):  # of the wait; the future's own comes again
            return future.result(timeout=_SILENCE)
        if not (told or future.done() or client.nthreads()):
            told, address = True, client.scheduler.address
            msg = (
                f"no workers at {address}: waiting for them; start some (dask worker {address}), or see why those that "
                "were asked for don't come"
            )
            warn(msg, ClusterWarning)
    return future.result()


@contextlib.contextmanager
def announced(name: str) -> Iterator[None]:
    """Say on standard error that a pass begins, and when it has ended how long it took."""
    begin = time.perf_counter()
    print(f"dca-{name} ...", file=sys.stderr, flush=True)
    yield
    print(f"dca-{name} done in {time.perf_counter() - begin:.1f} s", file=sys.stderr, flush=True)


def is_watched() -> bool:
    """Tell whether a line on standard error can be drawn again.

    Returns whether it is a terminal, or the output of a notebook's cell.
    """
    return sys.stderr.isatty() or type(sys.stderr).__module__.startswith("ipykernel.")


def show_progress(future: Any) -> None:
    """Draw a bar of a future on standard error until it is done."""
    from distributed import progress

    with contextlib.redirect_stdout(sys.stderr):
        progress(future, notebook=False)
        print()
