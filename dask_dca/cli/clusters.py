"""The cluster of a command: this process, local worker processes, or a running scheduler."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import socket
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from dask_dca.engine.computing import require_package
from dask_dca.engine.files import require_regular
from dask_dca.errors import InvalidParameterError, reason_of

_CONNECT_TIMEOUT: Final = 10  # seconds to wait for a scheduler's answer
# By default malloc returns large arrays to the system at once, which costs more than the arithmetic on them.
_MALLOC_CONFIG: Final = {
    "distributed.nanny.pre-spawn-environ.MALLOC_MMAP_THRESHOLD_": 2**25,
    "distributed.nanny.pre-spawn-environ.MALLOC_TRIM_THRESHOLD_": 2**28,
}
# Workers ignore Ctrl-C, which the parent handles, and do not log connections that are open when they end.
_WORKER_PRELOAD: Final = """
import logging, signal
signal.signal(signal.SIGINT, signal.SIG_IGN)
logging.getLogger("asyncio").setLevel(logging.CRITICAL)
"""


@dataclass(frozen=True)
class Cluster:
    """Options of a cluster; if none is set, Dask's configured scheduler in this process."""

    scheduler: str | None = None
    scheduler_file: str | None = None
    workers: int | None = None
    tls_ca_file: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None


@contextmanager
def connected(cluster: Cluster | None) -> Iterator[Any]:
    """Connect to a cluster, and close the connection at the end.

    cluster: None for Dask's configured scheduler in this process. Yields the active client, or None in this process.
    Raises InvalidParameterError: the scheduler does not answer, or the certificates can't be used; ClusterError:
    workers can't import this package.
    """
    cluster = cluster or Cluster()
    _check(cluster)
    if cluster.workers is not None:
        with _own_workers(cluster.workers) as client:
            yield client
    elif cluster.scheduler or cluster.scheduler_file:
        import dask

        with _client(cluster) as client, client.as_current(), dask.config.set(scheduler="dask.distributed"):
            require_package(client)
            yield client
    else:
        yield None


def _check(cluster: Cluster) -> None:
    chosen = [name for name in ("scheduler", "scheduler_file", "workers") if getattr(cluster, name) is not None]
    if len(chosen) > 1:
        options = " and ".join(f"--{name.replace('_', '-')}" for name in chosen)
        msg = f"{options} exclude each other; give one of them"
        raise InvalidParameterError(msg)
    for path in (cluster.scheduler_file, cluster.tls_ca_file, cluster.tls_cert, cluster.tls_key):
        if path is not None and not Path(path).is_file():
            msg = f"there is no file {path!r}; check the path"
            raise InvalidParameterError(msg)


@contextmanager
def _own_workers(count: int) -> Iterator[Any]:
    import dask
    from dask.system import CPU_COUNT
    from distributed import Client, LocalCluster

    with dask.config.set(_MALLOC_CONFIG), _sighup_blocked(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="\\s*Port .* is already in use")  # the dashboard's, meanwhile
        cluster = LocalCluster(
            n_workers=count,
            threads_per_worker=max(1, CPU_COUNT // count),
            dashboard_address=_dashboard_address(),
            silence_logs=logging.CRITICAL,  # errors of workers reach the client, which reports them
            preload=[_WORKER_PRELOAD],
        )
    with cluster, Client(cluster) as client:
        # without bokeh the page only asks to install it
        seen = f"; dashboard: {cluster.dashboard_link}" if find_spec("bokeh") else ""
        print(f"{count} worker processes{seen}", file=sys.stderr, flush=True)
        yield client


@contextmanager
def _sighup_blocked() -> Iterator[None]:
    """Block SIGHUP in child processes, which this process ends itself when its terminal is closed."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _dashboard_address() -> str:
    """Return Dask's default port on localhost, or a free one if that is taken."""
    with socket.socket() as probe:
        free = probe.connect_ex(("127.0.0.1", 8787)) != 0
    return "127.0.0.1:8787" if free else "127.0.0.1:0"


def _client(cluster: Cluster) -> Any:
    from distributed import Client

    security = _security(cluster)
    address = cluster.scheduler or _address_in(cluster.scheduler_file or "")
    try:
        asyncio.run(_probe(address, security.get_connection_args("client")))
    except TypeError as error:  # for a tls:// address without certificates
        msg = (
            f"{address!r} needs certificates: --tls-ca-file CA.pem --tls-cert CERT.pem --tls-key KEY.pem, "
            "or Dask's configuration distributed.comm.tls"
        )
        raise InvalidParameterError(msg) from error
    except RuntimeError as error:
        reason = reason_of(error)
        msg = f"can't connect to {address!r} ({reason}); with --tls-ca-file and --tls-cert the address is tls://..."
        raise InvalidParameterError(msg) from error
    except (OSError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        msg = f"the scheduler {address!r} does not answer ({reason}); check the address and that `dask scheduler` runs"
        raise InvalidParameterError(msg) from error
    return Client(address, security=security, timeout=_CONNECT_TIMEOUT, set_as_default=False)


def _address_in(path: str) -> str:
    try:
        require_regular(path)
        return str(json.loads(Path(path).read_text())["address"])
    except (OSError, ValueError, LookupError, TypeError) as error:
        msg = f"{path!r} holds no scheduler's address; start one with: dask scheduler --scheduler-file {path!r}"
        raise InvalidParameterError(msg) from error


async def _probe(address: str, arguments: dict[str, Any]) -> None:
    """Open and close a connection, since a client that can't connect gives up slowly and logs errors."""
    from distributed.core import connect

    comm = await connect(address, timeout=_CONNECT_TIMEOUT, **arguments)
    await comm.close()


def _security(cluster: Cluster) -> Any:
    from distributed.security import Security

    given = {"tls_ca_file": cluster.tls_ca_file, "tls_client_cert": cluster.tls_cert, "tls_client_key": cluster.tls_key}
    chosen = {key: value for key, value in given.items() if value}
    for path in chosen.values():
        require_regular(path)
    return Security(require_encryption=True, **chosen) if chosen else Security()
