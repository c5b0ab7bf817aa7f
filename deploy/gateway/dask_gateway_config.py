"""
Settings of a dask-gateway server, which asks everybody for a password and is reached from its own machine alone.

    export DASK_GATEWAY_PASSWORD="a long sentence"
    dask-gateway-server -f dask_gateway_config.py

Its clusters run as the server's own user, so the password is for those who may act as that user. For other people: a
hub's users (JUPYTERHUB_API_TOKEN, JUPYTERHUB_API_URL and JUPYTERHUB_SERVICE_NAME in the environment, as a hub gives
them to its services), a backend that starts clusters as them, and TLS, which is needed before it listens on more than
this machine.
"""

import os

from dask_gateway_server.options import Float, Integer, Options

c = get_config()  # noqa: F821 (given by dask-gateway-server)

_SHORTEST = 12  # characters of a password
if os.environ.get("JUPYTERHUB_API_TOKEN"):
    if not os.environ.get("JUPYTERHUB_SERVICE_NAME"):
        raise SystemExit("Error: set JUPYTERHUB_SERVICE_NAME, without which every token of the hub starts clusters")
    c.DaskGateway.authenticator_class = "dask_gateway_server.auth.JupyterHubAuthenticator"
elif len(os.environ.get("DASK_GATEWAY_PASSWORD", "")) >= _SHORTEST:
    c.DaskGateway.authenticator_class = "dask_gateway_server.auth.SimpleAuthenticator"
    c.SimpleAuthenticator.password = os.environ["DASK_GATEWAY_PASSWORD"]
else:
    raise SystemExit(f"Error: set DASK_GATEWAY_PASSWORD to {_SHORTEST} characters or more, or JUPYTERHUB_API_TOKEN")

c.Proxy.address = os.environ.get("DASK_GATEWAY_ADDRESS", "127.0.0.1:8000")
c.DaskGateway.backend_class = "dask_gateway_server.backends.local.UnsafeLocalBackend"  # as the server's own user

# The gateway's defaults, dask-scheduler and dask-worker, were removed in distributed 2026.6.
c.ClusterConfig.scheduler_cmd = ["dask", "scheduler"]
c.ClusterConfig.worker_cmd = ["dask", "worker"]

c.ClusterConfig.idle_timeout = 3600  # seconds
c.ClusterConfig.cluster_max_cores = 64
c.ClusterConfig.cluster_max_memory = "256 G"
c.ClusterConfig.environment = {
    "OPENBLAS_NUM_THREADS": "1",
    "MALLOC_MMAP_THRESHOLD_": "33554432",
    "MALLOC_TRIM_THRESHOLD_": "268435456",
    "OMP_NUM_THREADS": "1",
    "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "10",
    "DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": "60s",
}


def _workers(options):  # noqa: ANN001, ANN202
    return {
        "worker_cores": options.worker_cores,
        "worker_threads": options.worker_cores,
        "worker_memory": f"{options.worker_memory:g} G",
    }


c.Backend.cluster_options = Options(
    Integer("worker_cores", default=2, min=1, max=16, label="Cores a worker"),
    Float("worker_memory", default=8, min=1, max=64, label="Memory a worker (GB)"),
    handler=_workers,
)
