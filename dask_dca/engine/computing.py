"""Computation of graphs on the active client or a local scheduler, with states that are sent again, and progress.

Progress bars are drawn in terminals and notebooks; a log file gets two lines for each pass.
"""

from __future__ import annotations

import contextlib
import pkgutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING, Any, Final, TypeVar
from weakref import WeakKeyDictionary

import dask
from dask.system import CPU_COUNT
from dask.utils import format_bytes, key_split

from dask_dca.engine.entry import align_arrays, array_bytes, own_worker
from dask_dca.engine.process import one_blas_thread
from dask_dca.engine.stores import is_a
from dask_dca.engine.types import Run
from dask_dca.errors import ClusterError, ClusterWarning, InvalidInputError, warn

if TYPE_CHECKING:
    from dask.delayed import Delayed

    from dask_dca.engine.rows import Rows

_SYNCHRONOUS: Final = ("sync", "synchronous", "single-threaded")  # names of Dask's scheduler without threads
_LOCAL_SCHEDULERS: Final = (*_SYNCHRONOUS, "threads", "threading", "processes", "multiprocessing")
_MIN_SCATTER_BYTES: Final = 2**20  # size from which a state is scattered instead of sent with the graph
# seconds to wait for workers to replace those that died, before a large state is sent with the graph
_WORKER_TIMEOUT: Final = 30.0
_VERSION_ATTEMPTS: Final = 3  # attempts to ask workers for their version, where they end before they answer
_MISSING_PACKAGE: Final = (
    "{} of {} new workers can't import dask_dca ({}: {}); start workers in this process's environment or image, or "
    "install what is missing there (client.register_plugin(distributed.PipInstall([...])))"
)
# workers whose version was checked, by client
_CHECKED_WORKERS: Final[WeakKeyDictionary[Any, set[str]]] = WeakKeyDictionary()
_WARN_AFTER: Final = 10.0  # seconds of waiting without any worker after which a warning is given
# reasons that distributed gives for cancelled futures if the scheduler is lost
_LOST_REASONS: Final = ("scheduler-connection-lost", "scheduler-restart")
T = TypeVar("T")


def active_client() -> Any:
    """Return the client that Dask would use, None for Dask's local schedulers.

    Raises ClusterError: it is asynchronous, and this is a coroutine of its event loop, which can't wait.
    """
    if "distributed" not in sys.modules or dask.config.get("scheduler", None) in _LOCAL_SCHEDULERS:
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
    """Count the threads of all workers of the active client, or of Dask's configured scheduler; at least one."""
    client = active_client()
    if client is not None:
        return max(1, sum(client.nthreads().values()))

    if dask.config.get("scheduler", None) in _SYNCHRONOUS:
        return 1
    return int(dask.config.get("num_workers", None) or CPU_COUNT)


def refuse_delayed(X: Any) -> None:
    """Raise InvalidInputError for a `dask.delayed` object or a future, whose shape is not known."""
    if is_a(X, "dask", "Delayed") or is_a(X, "distributed", "Future"):
        msg = (
            f"a {type(X).__name__} has no known shape; pass dask.array.from_delayed(X, shape=(n, p), dtype=float), "
            "or its value"
        )
        raise InvalidInputError(msg)


def refuse_closed(X: Any) -> None:
    """Raise InvalidInputError for a Dask array that was persisted by a client that is closed."""
    for client in _clients_of_chunks(X):
        if client.status == "closed":
            msg = "X was persisted by a Dask client that is closed, so its chunks are lost; make X again, or load it"
            raise InvalidInputError(msg)


def refuse_elsewhere(X: Any, active: Any) -> None:
    """Raise InvalidInputError for a Dask array that was persisted on another cluster than the active one."""
    for client in _clients_of_chunks(X):
        if active is None or _scheduler_id(client) != _scheduler_id(active):
            msg = (
                f"X was persisted on the cluster of {client.scheduler.address}, and another scheduler computes; "
                "compute there: with client.as_current(), or call X.compute() there first"
            )
            raise InvalidInputError(msg)


def _clients_of_chunks(X: Any) -> Iterator[Any]:
    """Yield the client of the futures in each layer of an array that has any."""
    for layer in getattr(getattr(X, "dask", None), "layers", {}).values():
        if is_a(layer, "dask.highlevelgraph", "MaterializedLayer"):
            first: Any = next(iter(layer.values()), None)
            if is_a(first, "distributed", "Future"):
                yield first.client


def _scheduler_id(client: Any) -> Any:
    return client.scheduler_info(n_workers=0).get("id")


def require_package(client: Any, *, wait: bool = True) -> None:
    """Check once that each worker of a cluster can import this package; a worker that can't would die.

    client: the active one, or None; wait: if there is no worker, submit a task, for which adaptive clusters start one.
    Raises ClusterError: no worker is known that can import it. Warns if only some workers can't, which then die without
    further harm, and if versions differ.
    """
    from dask_dca import __version__

    if client is None or client.status != "running":
        return
    met = _CHECKED_WORKERS.setdefault(client, set())
    with contextlib.suppress(OSError):  # the scheduler is lost
        there, found = _worker_versions(client, met, wait=wait)
        new = there - met
        lacking = {worker: error for worker, error in found.items() if isinstance(error, Exception)}
        if lacking:
            msg = _MISSING_PACKAGE.format(len(lacking), len(new), *next(iter(lacking.items())))
            if not there & met:
                raise ClusterError(msg)
            warn(msg, ClusterWarning)
        met |= found.keys() - lacking.keys()
        others = sorted({str(found[worker]) for worker in found.keys() - lacking.keys()} - {__version__})
        if others:
            warn(f"workers have dask_dca {', '.join(others)}, this process {__version__}", ClusterWarning)


def require_package_for_results() -> None:
    """Check each present worker once before lazy results are built, which this process may never compute.

    Raises ClusterError: as `require_package`; not in a coroutine, which can't ask.
    """
    try:
        client = active_client()
    except ClusterError:
        return
    require_package(client, wait=False)


def _worker_versions(client: Any, met: set[str], *, wait: bool) -> tuple[set[str], dict[str, Any]]:
    """Return all workers, and the package's version, or an error, of those that were not checked yet."""
    for _ in range(_VERSION_ATTEMPTS):
        if not (there := set(client.nthreads())) and wait:
            compute_lazy(dask.delayed(bool, pure=False)(), retries=0, shown=False)
            there = set(client.nthreads())
        new = list(there - met)
        version = pkgutil.resolve_name, "dask_dca:__version__"
        answers = client.run(*version, workers=new, on_error="return") if new else {}
        found = {worker: one for worker, one in answers.items() if not isinstance(one, OSError)}  # else it is gone
        if found or there & met or not wait:
            break
    return there, found


def scatter(value: Any, *, patience: float = 0.0) -> Any:
    """Send a value to all workers of a cluster directly.

    patience: seconds to wait for a first worker. Returns a future; the value itself if there is no cluster, no worker,
    or the transfer fails.
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


def compute_with_state(
    state: Any, compute: Callable[[Any], T], source: Any, name: str, run: Run, rows: Rows | None = None
) -> T:
    """Compute something that needs a state on the cluster; send it again if all workers with the state died.

    compute: function of the state, or of its future; name: of the pass, for errors; rows: data whose blocks are the
    tasks of the pass.
    Raises ClusterError: the scheduler was lost or restarted, workers died repeatedly, or can't import this package.
    """
    client, held = active_client(), state
    for left in reversed(range(run.retries + 1)):
        try:
            require_package(client)
            if array_bytes(state) >= _MIN_SCATTER_BYTES:
                held = scatter(state, patience=0.0 if left == run.retries else _WORKER_TIMEOUT)
            return compute(held)
        except Exception as error:
            refuse_elsewhere(source, client)
            if client is not None and (client.status != "running" or getattr(error, "reason", "") in _LOST_REASONS):
                lost = f"the scheduler was lost or restarted in the pass dca-{name}; start the cluster and fit again"
                raise ClusterError(f"{lost} ({_resume_hint(run)})") from error
            if is_a(error, "distributed", "KilledWorker"):
                raise killed_worker_error(error, f"dca-{name}-", rows, f" ({_resume_hint(run)})") from error
            # cancelled because all workers with the state died
            if not isinstance(error, CancelledError) or held is state or not left:
                raise
    raise AssertionError  # unreachable: the loop above returns or raises


def _resume_hint(run: Run) -> str:
    if run.checkpoint is None:
        return "with checkpoint=PATH a fit goes on where it stopped"
    return f"what was finished is kept in {run.checkpoint.path!r}, and the same fit goes on from there"


def killed_worker_error(error: Any, name: str, rows: Rows | None, then: str = "") -> ClusterError:
    """Make the error for a KilledWorker of Dask; its message names the rows, and what to do.

    name: prefix of the tasks of the rows' blocks; then: end of the message.
    """
    key, last = error.task, error.last_worker
    task, *numbers = key if isinstance(key, tuple) else (key,)
    where = f"the task {key_split(task)}"
    if rows is not None and numbers and str(task).startswith((name, "dca-load")):
        own = (rows.with_chunks() if "-halo" in str(task) else rows).numbers_of(numbers[0])
        where += f" of the block of rows {own.start} to {own.stop - 1}, or one beside it"  # Dask blames all its tasks
    memory = f"{format_bytes(last.memory_limit)} for " if last.memory_limit else ""
    msg = (
        f"{error.allowed_failures + 1} workers died, one after the other, at {where}, most likely for want of memory: "
        f"the last had {memory}{last.nthreads} threads. Take smaller chunks of rows, or give each worker fewer threads "
        "or more memory (dask worker --nthreads 1 --memory-limit 16GiB; fewer workers on one machine have more each); "
        f"the logs of workers tell more{then}"
    )
    return ClusterError(msg)


def compute_delayed(value: Delayed, name: str, run: Run) -> Any:
    """Compute on the active client, else on Dask's configured scheduler; name: of the pass, for progress."""
    with announce(name) if run.verbose else contextlib.nullcontext():
        return align_arrays(compute_lazy(value, retries=run.retries, shown=run.verbose))


def compute_and_persist(value: Delayed, kept: Sequence[Delayed], name: str, run: Run) -> tuple[Any, list[Delayed]]:
    """Compute a value, and persist other values of the same graph.

    kept: stay on the workers, or without a cluster in this process; the scheduler computes them again if a worker is
    lost. Returns the value, and the persisted ones.
    """
    if active_client() is None:
        found, *there = compute_delayed(dask.delayed(list)([value, *kept]), name, run)
        return found, [dask.delayed(one) for one in there]
    first, *held = dask.persist(value, *kept, retries=run.retries)
    return compute_delayed(first, name, run), held


def compute_lazy(value: Any, *, retries: int, shown: bool) -> Any:
    """Compute something lazy on the active client, else on Dask's configured scheduler.

    retries: of a failing task; shown: draw a progress bar on standard error, if it is a terminal or a notebook.
    """
    client, shown = active_client(), shown and is_interactive()
    if client is None:
        from dask.diagnostics import ProgressBar

        with one_blas_thread(), ProgressBar(out=sys.stderr) if shown else contextlib.nullcontext():
            return value.compute(retries=retries)
    if own_worker() is not None:  # inside a task, Dask secedes while it waits
        return value.compute(retries=retries)
    future = client.compute(value, retries=retries)
    try:
        return result_of(future, client, shown=shown)
    finally:
        future.release()


def result_of(future: Any, client: Any, *, shown: bool) -> Any:
    """Return the result of a future; warn if there is no worker to wait for; shown: draw a progress bar."""
    warned = False
    while not future.done():
        if shown and client.nthreads():
            show_progress(future)
            break
        with contextlib.suppress(TimeoutError):  # of this wait; an error of the future is raised again
            return future.result(timeout=_WARN_AFTER)
        if not (warned or future.done() or client.nthreads()):
            warned, address = True, client.scheduler.address
            msg = (
                f"no workers at {address}: waiting for them; start some (dask worker {address}), or see why those that "
                "were asked for don't come"
            )
            warn(msg, ClusterWarning)
    return future.result()


@contextlib.contextmanager
def announce(name: str) -> Iterator[None]:
    """Print on standard error that a pass begins, and how long it took when it ends."""
    begin = time.perf_counter()
    print(f"dca-{name} ...", file=sys.stderr, flush=True)
    yield
    print(f"dca-{name} done in {time.perf_counter() - begin:.1f} s", file=sys.stderr, flush=True)


def is_interactive() -> bool:
    """Whether standard error is a terminal or the output of a notebook's cell; it is None where it is closed."""
    out = sys.stderr
    return bool(out) and (out.isatty() or type(out).__module__.startswith("ipykernel."))


def show_progress(future: Any) -> None:
    """Draw the progress bar of a future on standard error until it is done."""
    from distributed import progress

    with contextlib.redirect_stdout(sys.stderr):
        progress(future, notebook=False)
        print()
