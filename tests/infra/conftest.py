"""Services that are started for real, by `make test-infra`; what can't be started is skipped with the reason."""

import contextlib
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import ROOT, planted

BIN = Path(sys.executable).parent


RUNS = bool(os.environ.get("DASK_DCA_INFRA"))


def pytest_collection_modifyitems(items):
    for item in items:
        if "tests/infra" in item.nodeid and not RUNS:
            item.add_marker(pytest.mark.skip(reason="services are started by make test-infra alone"))


def program(name):
    """Find a program of this environment or of the system, or skip."""
    for place in (BIN, "/usr/sbin", "/usr/bin", "/usr/local/bin"):
        if (Path(place) / name).exists():
            return str(Path(place) / name)
    return pytest.skip(f"{name} is not installed; make test-infra installs it as root on Debian")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for(true, seconds, what):
    """Wait until something is true; `what` says what is missing, as text or a function of none."""
    end = time.monotonic() + seconds
    while not (found := true()):
        assert time.monotonic() < end, what() if callable(what) else what
        time.sleep(0.2)
    return found


def listens(port, host="127.0.0.1"):
    with socket.socket() as probe:
        return probe.connect_ex((host, port)) == 0


def around(**more):
    """The environment of processes: this package, nothing of the settings of Dask and clouds that the caller has."""
    outer = {
        name: value for name, value in os.environ.items() if not name.startswith(("DASK_", "AWS_", "SLURM_", "KUBE"))
    }
    path = {"PATH": f"{BIN}:/usr/sbin:/sbin:{outer['PATH']}", "PYTHONPATH": str(ROOT)}
    return {**outer, **path, "OPENBLAS_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", **more}


@contextlib.contextmanager
def service(args, log, **more):
    """A process until the end of the block; what it says is in a file."""
    with open(log, "ab") as said:
        process = subprocess.Popen(args, stdout=said, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, **more)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@pytest.fixture(scope="session")
def pixels():
    """(3000, 30) rows of five anchors, and the model that a fit in memory makes of them."""
    import dask_dca as dca

    X, _ = planted(3000, 30, 5, dtype=np.float32)
    return X, dca.NMF(5).fit(X)
