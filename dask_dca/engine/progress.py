"""Progress of a pass on standard error, on a cluster as well as on the local schedulers.

A bar is redrawn where somebody looks at it, in a terminal or a notebook; a log file gets two lines for each pass.
"""

from __future__ import annotations

import contextlib
import sys
import time
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dask.delayed import Delayed

_LOCAL: Final = ("sync", "synchronous", "single-threaded", "threads", "threading", "processes", "multiprocessing")


def compute_with_progress(value: Delayed, name: str, *, retries: int) -> Any:
    """Compute a pass while standard error shows how far it is.

    name: its name, printed before and after; retries: how often a failing task is tried again.
    """
    with announced(name):
        client = active_client()
        if not is_watched():
            return value.compute(retries=retries)
        return _on_cluster(client, value, retries) if client is not None else _on_threads(value, retries)


@contextlib.contextmanager
def announced(name: str) -> Iterator[None]:
    """Say on standard error that a pass begins, and when it has ended how long it took."""
    begin = time.perf_counter()
    print(f"dca-{name} ...", file=sys.stderr, flush=True)
    yield
    print(f"dca-{name} done in {time.perf_counter() - begin:.1f} s", file=sys.stderr, flush=True)


def active_client() -> Any:
    """Return the client that Dask would use.

    Returns none where Dask's local schedulers do the work.
    """
    import dask

    if "distributed" not in sys.modules or dask.config.get("scheduler", None) in _LOCAL:
        return None
    from distributed import get_client

    try:
        return get_client()
    except ValueError:
        return None


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


def is_watched() -> bool:
    """Tell whether a line on standard error can be drawn again.

    Returns whether it is a terminal, or the output of a notebook's cell.
    """
    return sys.stderr.isatty() or type(sys.stderr).__module__.startswith("ipykernel.")


def _on_cluster(client: Any, value: Delayed, retries: int) -> Any:
    from distributed import progress

    future = client.compute(value, retries=retries)
    with contextlib.redirect_stdout(sys.stderr):
        progress(future, notebook=False)
        print()
    return future.result()


def _on_threads(value: Delayed, retries: int) -> Any:
    from dask.diagnostics import ProgressBar

    with ProgressBar(out=sys.stderr):
        return value.compute(retries=retries)
