"""Settings of a dask-gateway server for clusters of dask-dca's image: dask-gateway-server -f dask_gateway_config.py."""

from dask_gateway_server.options import Float, Integer, Options

c = get_config()  # noqa: F821 (given by dask-gateway-server)

# The gateway's own defaults, dask-scheduler and dask-worker, are gone since distributed 2026.6.
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
