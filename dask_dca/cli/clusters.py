"""Where the command line's jobs run: this process, worker processes of its own, or a scheduler somewhere."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import socket
import sys
import warnings
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dask_dca.engine.computing import require_package
from dask_dca.engine.files import require_regular
from dask_dca.errors import InvalidParameterError, reason_of

if TYPE_CHECKING:
    from collections.abc import Iterator

_TIMEOUT: Final = 10  # seconds that a scheduler has to answer
# By default Dask's workers give every large array back to the system, which costs more than the arithmetic on it.
_KEEP_MEMORY: Final = {
    "distributed.nanny.pre-spawn-environ.MALLOC_MMAP_THRESHOLD_": 2**25,
    "distributed.nanny.pre-spawn-environ.MALLOC_TRIM_THRESHOLD_": 2**28,
}
# Ctrl-C reaches workers too; and connections that are still open when they end are no news.
_LEAVE_TO_PARENT: Final = """
import logging, signal
signal.signal(signal.SIGINT, signal.SIG_IGN)
logging.getLogger("asyncio").setLevel(logging.CRITICAL)
"""


@dataclass(frozen=True)
class Where:
    """Which cluster; none of them: this process, on Dask's configured scheduler."""

    scheduler: str | None = None
    scheduler_file: str | None = None
    workers: int | None = None
    tls_ca_file: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None


@contextmanager
def connected(where: Where) -> Iterator[Any]:
    """Connect to a cluster, and leave it when done.

    Yields the client, now the active one; None in this process.
    Raises InvalidParameterError: the scheduler doesn't answer, or the certificates can't be used; ClusterError: workers
    can't import this package.
    """
    _check(where)
    if where.workers is not None:
        with _own_workers(where.workers) as client:
            yield client
    elif where.scheduler or where.scheduler_file:
        import dask

        with _client(where) as client, client.as_current(), dask.config.set(scheduler="dask.distributed"):
            require_package(client)
            yield client
    else:
        yield None


def _check(where: Where) -> None:
    chosen = [name for name in ("scheduler", "scheduler_file", "workers") if getattr(where, name) is not None]
    if len(chosen) > 1:
        options = " and ".join(f"--{name.replace('_', '-')}" for name in chosen)
        msg = f"{options} exclude each other; give one of them"
        raise InvalidParameterError(msg)
    for path in (where.scheduler_file, where.tls_ca_file, where.tls_cert, where.tls_key):
        if path is not None and not Path(path).is_file():
            msg = f"there is no file {path!r}; check the path"
            raise InvalidParameterError(msg)


@contextmanager
def _own_workers(count: int) -> Iterator[Any]:
    import dask
    from dask.system import CPU_COUNT
    from distributed import Client, LocalCluster

    with (
        dask.config.set(_KEEP_MEMORY),
        _without_hangups(),
        warnings.catch_warnings(),
    ):  # somebody may take the port in this moment
        warnings.filterwarnings("ignore", message="\\s*Port .* is already in use")
        cluster = LocalCluster(
            n_workers=count,
            threads_per_worker=max(1, CPU_COUNT // count),
            dashboard_address=_dashboard_address(),
            silence_logs=logging.CRITICAL,  # workers' errors reach the client, which reports them
            preload=[_LEAVE_TO_PARENT],
        )
    with cluster, Client(cluster) as client:
        seen = f"; dashboard: {cluster.dashboard_link}" if find_spec("bokeh") else ""  # else the page only asks for it
        print(f"{count} worker processes{seen}", file=sys.stderr, flush=True)
        yield client


@contextmanager
def _without_hangups() -> Iterator[None]:
    """Let the end of a terminal reach this process alone, not those that are started here: it ends them itself."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _dashboard_address() -> str:
    """Dask's usual port on this machine alone, or any other if that is taken."""
    with socket.socket() as probe:
        free = probe.connect_ex(("127.0.0.1", 8787)) != 0
    return "127.0.0.1:8787" if free else "127.0.0.1:0"


def _client(where: Where) -> Any:
    from distributed import Client

    security = _security(where)
    address = where.scheduler or _address_in(where.scheduler_file or "")
    try:
        asyncio.run(_knock(address, security.get_connection_args("client")))
    except TypeError as error:  # a tls:// address without certificates
        msg = (
            f"{address!r} needs certificates: --tls-ca-file CA.pem --tls-cert CERT.pem --tls-key KEY.pem, "
            "or Dask's configuration distributed.comm.tls"
        )
        raise InvalidParameterError(msg) from error
    except RuntimeError as error:
        reason = reason_of(error)
        msg = f"can't connect to {address!r} ({reason}); with --tls-ca-file and its kin the address is tls://..."
        raise InvalidParameterError(msg) from error
    except (OSError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        msg = f"the scheduler {address!r} does not answer ({reason}); check the address and that `dask scheduler` runs"
        raise InvalidParameterError(msg) from error
    return Client(address, security=security, timeout=_TIMEOUT, set_as_default=False)


def _address_in(path: str) -> str:
    try:
        require_regular(path)
        return str(json.loads(Path(path).read_text())["address"])
    except (OSError, ValueError, LookupError, TypeError) as error:
        msg = f"{path!r} holds no scheduler's address; start one with: dask scheduler --scheduler-file {path!r}"
        raise InvalidParameterError(msg) from error


async def _knock(address: str, arguments: dict[str, Any]) -> None:
    """Connect and leave again: a client that can't connect is slow to give up and leaves traces."""
    from distributed.core import connect

    comm = await connect(address, timeout=_TIMEOUT, **arguments)
    await comm.close()


def _security(where: Where) -> Any:
    from distributed.security import Security

    given = {"tls_ca_file": where.tls_ca_file, "tls_client_cert": where.tls_cert, "tls_client_key": where.tls_key}
    chosen = {key: value for key, value in given.items() if value}
    for path in chosen.values():
        require_regular(path)
    return Security(require_encryption=True, **chosen) if chosen else Security()
