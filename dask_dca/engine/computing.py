"""How graphs are computed: on the active client or a local scheduler, with states that are sent again, and progress."""

from __future__ import annotations

import contextlib
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING, Any, Final, TypeVar

from dask_dca.engine.futures import refuse_elsewhere
from dask_dca.engine.sending import aligned, sent
from dask_dca.engine.threads import one_blas_thread
from dask_dca.engine.watch import active_client, compute_with_progress
from dask_dca.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dask.delayed import Delayed

    from dask_dca.engine.job import Run

__all__ = ["computed", "computed_and_kept", "try_with"]

_PATIENCE: Final = 30.0  # seconds for which workers that died are awaited before a large state goes with the graph
_LOST: Final = "scheduler-connection-lost"  # what distributed says of futures then

T = TypeVar("T")


def try_with(state: Any, compute: Callable[[Any], T], source: Any, name: str, run: Run) -> T:
    """
    Compute what needs a state on the cluster; send it again where all workers that held it died.

    Parameters
    ----------
    state : object
        What blocks receive first.
    compute : callable
        Does it, given the state as it was sent.
    source : object
        The data.
    name : str
        Name of the pass, for errors.
    run : Run
        How passes are run.

    Returns
    -------
    object
        What `compute` returns.

    Raises
    ------
    ClusterError
        The scheduler was lost.
    """
    client, held = active_client(), state
    for left in reversed(range(run.retries + 1)):
        try:
            held = sent(state, patience=0.0 if left == run.retries else _PATIENCE)
            return compute(held)
        except Exception as error:
            refuse_elsewhere(source, client)
            if client is not None and (client.status != "running" or getattr(error, "reason", "") == _LOST):
                raise _lost(name, run) from error
            # all workers that held the state died: send it again
            if not isinstance(error, CancelledError) or held is state or not left:
                raise
    raise AssertionError  # unreachable: the loop above returns or raises


def _lost(name: str, run: Run) -> ClusterError:
    hint = "with checkpoint=PATH a fit goes on where it stopped"
    if run.checkpoint is not None:
        hint = f"what was finished is kept in {run.checkpoint.root!r}, and the same fit goes on from there"
    msg = f"the scheduler was lost in the pass dca-{name}; start the cluster and fit again ({hint})"
    return ClusterError(msg)


def computed(value: Delayed, name: str, run: Run) -> Any:
    """
    Compute on the active client, else on Dask's configured scheduler.

    Parameters
    ----------
    value : dask.delayed.Delayed
        What to compute.
    name : str
        Name of the pass, for those who watch.
    run : Run
        How passes are run.

    Returns
    -------
    object
        The value.
    """
    with one_blas_thread() if active_client() is None else contextlib.nullcontext():
        if not run.verbose:
            return aligned(value.compute(retries=run.retries))
        return aligned(compute_with_progress(value, name, retries=run.retries))


def computed_and_kept(value: Delayed, kept: Sequence[Delayed], name: str, run: Run) -> tuple[Any, list[Delayed]]:
    """
    Compute a value, and other values of the same graph that stay where they are.

    Parameters
    ----------
    value : dask.delayed.Delayed
        What comes back.
    kept : sequence of dask.delayed.Delayed
        What stays on the workers; without a cluster in this process.
    name, run : str and Run
        As for `computed`.

    Returns
    -------
    value : object
        The value.
    kept : list of dask.delayed.Delayed
        Computed already. What is lost with a worker is computed again, as the scheduler knows how.
    """
    import dask

    if active_client() is None:
        found, *there = computed(dask.delayed(list)([value, *kept]), name, run)
        return found, [dask.delayed(one) for one in there]
    first, *held = dask.persist(value, *kept, retries=run.retries)
    return computed(first, name, run), held
