"""A dask-gateway server with our settings: closed without its password, and a fit through gateway://."""

import os
import subprocess
import urllib.error
import urllib.request
from unittest import mock

import pytest
import zarr

import dask_dca as dca
from tests.conftest import ROOT, bits
from tests.deploy import pages
from tests.deploy.manifests import DEPLOY
from tests.infra.conftest import around, free_port, listens, program, service, wait_for

CONFIG = DEPLOY / "gateway/dask_gateway_config.py"
PASSWORD = "a long sentence"  # of the page


@pytest.fixture(scope="module")
def gateway(tmp_path_factory):
    folder, port = tmp_path_factory.mktemp("gateway"), free_port()
    program("dask-gateway-server")
    (folder / "deploy").symlink_to(ROOT / "deploy")
    *before, last = pages.by("gateway")
    command, environment = "\n".join([*before, f"exec {last}"]), around(DASK_GATEWAY_ADDRESS=f"127.0.0.1:{port}")
    with service(["bash", "-ec", command], folder / "said", env=environment, cwd=folder):
        wait_for(lambda: listens(port), 60, lambda: (folder / "said").read_text())
        wait_for(lambda: code(f"http://127.0.0.1:{port}") != 404, 30, "its proxy has no routes")
        yield f"http://127.0.0.1:{port}"


def test_it_does_not_start_without_a_password(tmp_path):
    command = [program("dask-gateway-server"), "-f", str(CONFIG)]
    done = subprocess.run(command, env=around(), cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode != 0
    assert "set DASK_GATEWAY_PASSWORD" in done.stderr


def test_nobody_gets_in_without_the_password(gateway):
    assert code(gateway) == 401
    assert code(gateway, Authorization="Basic YW5uOndyb25n") == 401  # ann:wrong


def code(address, **headers):
    """What a list of clusters is answered with."""
    try:
        with urllib.request.urlopen(urllib.request.Request(f"{address}/api/v1/clusters/", headers=headers)) as answer:
            return answer.status
    except urllib.error.HTTPError as refused:
        refused.close()
        return refused.code


def test_it_listens_on_this_machine_alone(gateway):
    port = int(gateway.rpartition(":")[2])
    assert not any(listens(port, address) for address in own_addresses())


def own_addresses():
    """Addresses of this machine that others may reach."""
    said = subprocess.check_output(["hostname", "-I"], text=True).split()
    return [word for word in said if "." in word]


def test_a_fit_through_the_gateway(gateway, tmp_path, pixels):
    gateway_client = pytest.importorskip("dask_gateway")
    X, model = pixels
    zarr.create_array(tmp_path / "x.zarr", data=X, chunks=(600, 30))
    with (
        mock.patch.dict(os.environ, {"DASK_GATEWAY__AUTH__TYPE": "basic"}),
        gateway_client.Gateway(gateway, auth=gateway_client.BasicAuth("ann", PASSWORD)) as server,
        server.new_cluster(worker_cores=1, worker_memory=1, shutdown_on_close=True) as cluster,
    ):
        cluster.scale(2)
        with cluster.get_client() as client:
            client.wait_for_workers(2, timeout=120)
            fitted = dca.NMF(5).fit(str(tmp_path / "x.zarr"))
        assert bits(fitted) == bits(model)
    with gateway_client.Gateway(gateway, auth=gateway_client.BasicAuth("ann", PASSWORD)) as server:
        wait_for(lambda: not server.list_clusters(), 60, "the cluster stays")


def test_what_a_user_may_ask_for_is_bounded(gateway):
    gateway_client = pytest.importorskip("dask_gateway")
    with gateway_client.Gateway(gateway, auth=gateway_client.BasicAuth("ann", PASSWORD)) as server:
        options = server.cluster_options()
        with pytest.raises(ValueError, match="16"):
            options.worker_cores = 500
