"""Helm's values, the settings of gateways and of JupyterLab, and the pages that tell how to use them."""

import json
import os
import re
from contextlib import nullcontext
from importlib import import_module
from pathlib import Path
from unittest import mock

import dask
import pytest
import yaml

from tests.conftest import ROOT
from tests.deploy.manifests import DEPLOY, read
from tests.deploy.validator import KUBERNETES, against, command, shape


def unknown(values, known, path=""):
    """Settings that a chart doesn't have."""
    found = []
    for key, value in values.items():
        if key not in known:
            found.append(f"{path}{key}")
        elif known[key] and isinstance(value, dict):
            found += unknown(value, known[key], f"{path}{key}.")
    return found


KNOWN = read(Path(__file__).parent / "schemas/helm-values.yaml")[0]
VALUES = {name: read(DEPLOY / "helm" / f"{name}.yaml")[0] for name in ("dask", "daskhub")}


class TestHelm:
    @pytest.mark.parametrize("chart", ["dask", "daskhub"])
    def test_values_are_settings_of_the_chart(self, chart):
        assert unknown(VALUES[chart], KNOWN[chart]) == []
        assert unknown({"worker": {"image": {"repo": 1}}}, KNOWN["dask"]) == ["worker.image.repo"]

    def test_parts_of_pods_are_valid(self):
        gateway = VALUES["daskhub"]["dask-gateway"]["gateway"]["backend"]
        for role in ("scheduler", "worker"):
            for chart in (VALUES["dask"][role], gateway[role]["extraPodConfig"]):
                assert against(KUBERNETES, "PodSecurityContext", chart["securityContext"]) == []
                assert chart["securityContext"]["runAsNonRoot"] is True
            assert against(KUBERNETES, "ResourceRequirements", VALUES["dask"][role]["resources"]) == []
            container = {"name": "dask", **gateway[role]["extraContainerConfig"]}
            assert against(KUBERNETES, "Container", container) == []
        assert against(KUBERNETES, "Probe", VALUES["dask"]["scheduler"]["readinessProbe"]) == []

    def test_nobody_gets_in_by_the_charts_own_password(self):
        assert VALUES["dask"]["jupyter"]["enabled"] is False
        assert VALUES["dask"]["jupyter"]["password"] == "!"

    def test_a_hub_is_not_installed_before_it_is_said_who_may_come_in(self):
        """The chart's schema wants a mapping there; tests/infra has Helm itself refuse it."""
        assert isinstance(VALUES["daskhub"]["jupyterhub"]["hub"]["config"], str)
        assert VALUES["daskhub"]["jupyterhub"]["proxy"]["service"]["type"] == "ClusterIP"

    @pytest.mark.parametrize("chosen", ["dummy", "jupyterhub.auth.DummyAuthenticator", "github", None])
    def test_a_hub_does_not_start_with_the_charts_own_authenticator(self, chosen):
        config = pytest.importorskip("traitlets.config").Config()
        if chosen:
            config.JupyterHub.authenticator_class = chosen
        [code] = VALUES["daskhub"]["jupyterhub"]["hub"]["extraConfig"].values()
        with pytest.raises(SystemExit) if "ummy" in str(chosen) else nullcontext():
            exec(code, {"c": config})

    def test_what_is_around_the_chart_dask_is_valid_and_closed(self):
        account, policy = read(DEPLOY / "helm/dask-around.yaml")
        assert [shape(account), shape(policy)] == [[], []]
        for role in ("scheduler", "worker", "jupyter"):
            assert VALUES["dask"][role]["serviceAccountName"] == account["metadata"]["name"]
        assert account["automountServiceAccountToken"] is False
        assert policy["spec"]["ingress"] == [{"from": [{"podSelector": {"matchLabels": {"app": "dask"}}}]}]

    def test_the_notebooks_settings_are_settings(self):
        environment = VALUES["daskhub"]["jupyterhub"]["singleuser"]["extraEnv"]
        found = dask.config.collect_env(environment)
        factory = dask.config.get("labextension.factory", config=found)
        assert factory == {"module": "dask_gateway", "class": "GatewayCluster", "kwargs": {}}
        assert_link(dask.config.get("distributed.dashboard.link", config=found), "/user/ann/proxy/8787/status")


def assert_link(template, expected):
    from distributed.utils import format_dashboard_link

    with (
        dask.config.set({"distributed.dashboard.link": template}),
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("JUPYTERHUB_SERVICE_PREFIX", "/user/ann/")
        assert format_dashboard_link("10.0.0.1", 8787) == expected


PASSWORD = {"DASK_GATEWAY_PASSWORD": "a long sentence"}


def gateway_settings(text, environment=PASSWORD):
    """What a gateway's configuration sets, by running it."""
    options = pytest.importorskip("dask_gateway_server.options", reason="dask-gateway-server is not installed")
    from traitlets.config import Config

    made, found = [], Config()

    class Recorded(options.Options):
        def __init__(self, *fields, handler):
            made.append((fields, handler))
            super().__init__(*fields, handler=handler)

    with mock.patch.dict(os.environ, environment):
        exec(compile(text.replace("Options(", "Recorded("), "config", "exec"), {
            "get_config": lambda: found, "c": found, "Recorded": Recorded,
        })  # fmt: skip
    return found, made


class TestGateway:
    text = (DEPLOY / "gateway/dask_gateway_config.py").read_text()

    def test_settings_are_settings_of_the_gateway(self):
        found, _ = gateway_settings(self.text)
        from dask_gateway_server.backends.base import Backend, ClusterConfig

        config = ClusterConfig(config=found)
        for name, value in found.ClusterConfig.items():
            assert name in ClusterConfig.class_trait_names()
            assert getattr(config, name) == value or name == "cluster_max_memory"
        assert set(found.Backend) <= set(Backend.class_trait_names())

    def test_it_asks_for_a_password_and_listens_on_this_machine(self):
        found, _ = gateway_settings(self.text)
        assert found.DaskGateway.authenticator_class.endswith(".SimpleAuthenticator")
        assert found.SimpleAuthenticator.password == PASSWORD["DASK_GATEWAY_PASSWORD"]
        assert found.Proxy.address == "127.0.0.1:8000"
        with pytest.raises(SystemExit, match="JUPYTERHUB_SERVICE_NAME"):  # else every token of the hub would do
            gateway_settings(self.text, {"JUPYTERHUB_API_TOKEN": "x"})
        found, _ = gateway_settings(self.text, {"JUPYTERHUB_API_TOKEN": "x", "JUPYTERHUB_SERVICE_NAME": "y"})
        assert found.DaskGateway.authenticator_class.endswith(".JupyterHubAuthenticator")

    @pytest.mark.parametrize("password", ["", "short"])
    def test_without_a_password_it_does_not_start(self, password):
        with pytest.raises(SystemExit, match="set DASK_GATEWAY_PASSWORD"):
            gateway_settings(self.text, {"DASK_GATEWAY_PASSWORD": password})

    def test_its_commands_are_those_of_today(self):
        found, _ = gateway_settings(self.text)
        assert command([*found.ClusterConfig.scheduler_cmd, "--protocol", "tls", "--port", "0"]) == []
        assert command([*found.ClusterConfig.worker_cmd, "tls://a:1", "--name", "x", "--nthreads", "2"]) == []

    def test_options_of_a_cluster_are_understood(self):
        found, [(_, handler)] = gateway_settings(self.text)
        from dask_gateway_server.backends.base import ClusterConfig

        class Chosen:
            worker_cores, worker_memory = 2, 8.5

        config = ClusterConfig(config=found, **handler(Chosen))
        assert (config.worker_cores, config.worker_threads, config.worker_memory) == (2, 2, int(8.5 * 2**30))

    def test_daskhub_has_the_same(self):
        values = VALUES["daskhub"]["dask-gateway"]["gateway"]["extraConfig"]["dask-dca"]
        assert "get_config" not in values
        own, other = gateway_settings(self.text)[0], gateway_settings(values)[0]
        assert own.ClusterConfig == other.ClusterConfig


class TestJupyter:
    settings = yaml.safe_load((DEPLOY / "jupyter/labextension.yaml").read_text())

    def test_the_panels_button_starts_a_cluster(self):
        factory = self.settings["labextension"]["factory"]
        make = getattr(import_module(factory["module"]), factory["class"])
        with make(*factory["args"], **factory["kwargs"], n_workers=0, processes=False) as cluster:
            assert cluster.scheduler_address

    def test_the_dashboard_goes_through_jupyter(self):
        assert_link(self.settings["distributed"]["dashboard"]["link"], "/proxy/8787/status")
        assert_link("{JUPYTERHUB_SERVICE_PREFIX}proxy/{port}/status", "/user/ann/proxy/8787/status")

    def test_settings_are_settings_of_the_extension(self):
        assert set(self.settings["labextension"]) <= {"factory", "default", "initial"}
        assert set(self.settings["labextension"]["factory"]) == {"module", "class", "args", "kwargs"}
        [(name, settings)] = json.loads((DEPLOY / "jupyter/overrides.json").read_text()).items()
        assert name == "dask-labextension:plugin"
        assert set(settings) <= {"defaultURL", "autoStartClient", "hideClusterManager", "browserDashboardCheck",
                                 "defaultLayout"}  # fmt: skip
        panels = settings["defaultLayout"]
        for panel in panels.values():
            assert panel["mode"] in {
                "split-top",
                "split-left",
                "split-right",
                "split-bottom",
                "tab-before",
                "tab-after",
            }
            assert panel["ref"] is None or panel["ref"] in panels

    def test_panels_are_panels_of_the_dashboard(self):
        from distributed.dashboard.scheduler import applications

        for panel in json.loads((DEPLOY / "jupyter/overrides.json").read_text())["dask-labextension:plugin"][
            "defaultLayout"
        ]:
            assert f"/{panel}" in applications


PAGES = sorted((ROOT / "docs/running").glob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_name_files_that_are_there_and_commands_that_exist(page):
    text = page.read_text()
    for path in re.findall(r"\bdeploy/[\w./-]*\w", text):
        assert (ROOT / path).exists(), path
    for block in re.findall(r"^```sh\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        for line in block.replace("\\\n", " ").splitlines():
            words = re.sub(
                r"( 2?> \S+)?( &)?$", "", line.partition(" #")[0].rstrip()
            ).split()  # without where output goes
            if words[:1] == ["dask"]:
                assert command(words) == [], line
