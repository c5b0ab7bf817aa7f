"""A JupyterHub and a dask-gateway with our settings: who gets in, and a notebook that fits through gateway://."""

import asyncio
import json
import uuid

import pytest
import zarr

import dask_dca as dca
from tests.conftest import ROOT, bits
from tests.deploy import pages
from tests.deploy.manifests import DEPLOY, read
from tests.infra.conftest import BIN, around, free_port, program, service, wait_for

pytest.importorskip("jupyterhub", reason="jupyterhub is not installed")
aiohttp = pytest.importorskip("aiohttp")
pytestmark = pytest.mark.timeout(300)
VALUES = read(DEPLOY / "helm/daskhub.yaml")[0]["jupyterhub"]
PASSWORD, TOKEN, SERVICE = "a sentence for the tests", "0123456789abcdef0123456789abcdef", "dask-gateway"
SETTINGS = """
c = get_config()
c.JupyterHub.bind_url = "http://127.0.0.1:{port}"
c.JupyterHub.hub_bind_url = "http://127.0.0.1:{hub}"
c.ConfigurableHTTPProxy.api_url = "http://127.0.0.1:{proxy}"
c.ConfigurableHTTPProxy.command = ["{bin}/configurable-http-proxy"]
c.JupyterHub.authenticator_class = "{authenticator}"
c.SharedPasswordAuthenticator.user_password = "{password}"
c.Authenticator.allowed_users = {{"ann"}}
c.JupyterHub.spawner_class = "simple"
c.Spawner.args = ["--allow-root"]
c.Spawner.environment = {environment}
c.JupyterHub.services = [{{"name": "{service}", "api_token": "{token}"}}]
c.JupyterHub.load_roles = [
    {{"name": "tests", "services": ["{service}"], "scopes": ["admin:users", "admin:servers", "access:servers"]}},
    {{"name": "user", "scopes": ["self", "access:services!service={service}"]}},
    {{"name": "server", "scopes": ["inherit"]}},
]
{own}
"""


def write_settings(folder, authenticator, **more):
    ports = {name: free_port() for name in ("port", "hub", "proxy")}
    [own] = VALUES["hub"]["extraConfig"].values()
    given = {"bin": BIN, "password": PASSWORD, "service": SERVICE, "token": TOKEN, "own": own, "environment": {}} | more
    (folder / "jupyterhub_config.py").write_text(SETTINGS.format(**ports, **given, authenticator=authenticator))
    return ports


def test_a_hub_with_the_charts_own_authenticator_does_not_start(tmp_path):
    write_settings(tmp_path, "dummy")
    with service([program("jupyterhub")], tmp_path / "said", env=around(), cwd=tmp_path) as hub:
        assert hub.wait(60) != 0
    assert "Error: set hub.config.JupyterHub.authenticator_class" in (tmp_path / "said").read_text()


def ask(method, url, token=None, scheme="token"):
    """Code and text of an answer; redirections are not followed."""

    async def asked():
        headers = {"Authorization": f"{scheme} {token}"} if token else {}
        async with (
            aiohttp.ClientSession(headers=headers) as session,
            session.request(method, url, allow_redirects=False) as answer,
        ):
            return answer.status, await answer.text()

    try:
        return asyncio.run(asked())
    except aiohttp.ClientError:
        return 0, ""


def login(address, password):
    """The code that the hub's form is answered with."""

    async def answered():
        async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session:
            async with session.get(f"{address}/hub/login"):
                [xsrf] = {cookie.value for cookie in session.cookie_jar if cookie.key == "_xsrf"}
            form = {"username": "ann", "password": password, "_xsrf": xsrf}
            async with session.post(f"{address}/hub/login", data=form, allow_redirects=False) as answer:
                return answer.status

    return asyncio.run(answered())


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    """Addresses of the hub and of the gateway."""
    folder, gateway = tmp_path_factory.mktemp("hub"), f"127.0.0.1:{free_port()}"
    # what the chart daskhub itself gives beside our values
    given = {"DASK_GATEWAY__ADDRESS": f"http://{gateway}", "DASK_GATEWAY__AUTH__TYPE": "jupyterhub"}
    names = VALUES["singleuser"]["extraEnv"] | given | {"OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    ports = write_settings(folder, "shared-password", environment=names)
    hub = f"http://127.0.0.1:{ports['port']}"
    own = {"JUPYTERHUB_API_TOKEN": TOKEN, "JUPYTERHUB_SERVICE_NAME": SERVICE}
    own |= {"JUPYTERHUB_API_URL": f"{hub}/hub/api", "DASK_GATEWAY_ADDRESS": gateway}
    command = [program("dask-gateway-server"), "-f", str(DEPLOY / "gateway/dask_gateway_config.py")]
    (folder / "gateway").mkdir()
    with (
        service([program("jupyterhub")], folder / "said", env=around(), cwd=folder),
        service(command, folder / "gateway.said", env=around(**own), cwd=folder / "gateway"),
    ):
        wait_for(lambda: ask("GET", f"{hub}/hub/api/")[0] == 200, 60, lambda: (folder / "said").read_text())
        listed = f"http://{gateway}/api/v1/clusters/"
        wait_for(lambda: ask("GET", listed)[0] == 401, 60, lambda: (folder / "gateway.said").read_text())
        yield hub, listed


def test_nobody_gets_in_without_the_password(hub):
    address, clusters = hub
    assert ask("GET", f"{address}/hub/api/users")[0] == 403
    assert login(address, "wrong") == 403
    assert login(address, PASSWORD) == 302
    assert ask("GET", clusters, TOKEN, "jupyterhub")[0] == 401  # of the hub, but not for this service
    assert ask("GET", f"{address}/user/ann/api/kernels")[0] == 302  # to the form


def test_a_notebook_fits_through_the_gateway(hub, tmp_path, pixels):
    X, model = pixels
    zarr.create_array(tmp_path / "x.zarr", data=X, chunks=(600, 30))
    address, _ = hub
    api = f"{address}/hub/api/users/ann"
    assert ask("POST", f"{api}/server", TOKEN)[0] in (201, 202)
    ready = lambda: json.loads(ask("GET", api, TOKEN)[1])["servers"].get("", {}).get("ready")  # noqa: E731
    wait_for(ready, 120, "ann's server does not start")
    code, text = ask("POST", f"{address}/user/ann/api/kernels", TOKEN)
    assert code == 201, text
    [lines] = pages.scripts("test_a_notebook_fits_through_the_gateway")
    lines = lines.replace("worker_cores=4, worker_memory=16", "worker_cores=1, worker_memory=1")
    data, out = str(tmp_path / "x.zarr"), str(tmp_path / "m.zarr")
    fit = f"import dask, dask_dca as dca\ndca.NMF(5).fit({data!r}).save({out!r})"
    panel = "print(dask.config.get('labextension.factory.class'), client.scheduler.address)"
    cell = "\n".join([lines, fit, panel, "client.close()", "cluster.shutdown()"])
    said = asyncio.run(run_cell(f"{address}/user/ann/api/kernels/{json.loads(text)['id']}/channels", cell))
    assert said["status"] == "ok", said
    assert "GatewayCluster gateway://" in said["printed"]
    assert bits(dca.load_model(out)) == bits(model)


async def run_cell(url, code):
    """Run code in a kernel: its reply, with all that was printed."""
    header = {
        "msg_id": uuid.uuid4().hex,
        "session": "s",
        "username": "ann",
        "msg_type": "execute_request",
        "version": "5.3",
    }
    content = {"code": code, "silent": False, "store_history": False, "user_expressions": {}, "allow_stdin": False}
    request = {"header": header, "parent_header": {}, "metadata": {}, "content": content, "channel": "shell"}
    printed, headers = "", {"Authorization": f"token {TOKEN}"}
    async with aiohttp.ClientSession(headers=headers) as session, session.ws_connect(url) as channel:
        await channel.send_json(request)
        async with asyncio.timeout(200):
            async for message in channel:
                found = json.loads(message.data)
                if found["parent_header"].get("msg_id") != header["msg_id"]:
                    continue
                if found["msg_type"] == "stream":
                    printed += found["content"]["text"]
                if found["msg_type"] == "execute_reply":
                    return {**found["content"], "printed": printed}
    return {"status": "closed", "printed": printed}
