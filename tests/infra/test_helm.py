"""Helm's own engine on our values, and on the operator's chart."""

import json
from pathlib import Path

import pytest
import yaml

from tests.deploy.manifests import DEPLOY, read
from tests.deploy.validator import KUBERNETES, against

helm = pytest.importorskip("helm_python", reason="helm-python-sdk is not installed")

# What the chart jupyterhub says of hub.config: its own values.schema.json is in no package index.
SCHEMA = {"type": "object", "properties": {"hub": {"type": "object", "properties": {"config": {"type": "object"}}}}}
OWN = {"hub": {"config": {"JupyterHub": {"authenticator_class": "dummy"}}}}
USERS = """
jupyterhub:
  hub:
    config:
      GitHubOAuthenticator: {allowed_users: [ann]}
"""


@pytest.fixture(scope="module")
def daskhub(tmp_path_factory):
    """Charts of the names, with that rule and the chart's own authenticator, that say what their values are."""
    place = tmp_path_factory.mktemp("charts") / "daskhub"
    for name in ("jupyterhub", "dask-gateway"):
        part = place / "charts" / name
        (part / "templates").mkdir(parents=True)
        (part / "Chart.yaml").write_text(f"{{apiVersion: v2, name: {name}, version: 1.0.0}}")
        (part / "templates/said.yaml").write_text("{{ toJson .Values }}")
    (place / "Chart.yaml").write_text("{apiVersion: v2, name: daskhub, version: 1.0.0}")
    (place / "charts/jupyterhub/values.schema.json").write_text(json.dumps(SCHEMA))
    (place / "charts/jupyterhub/values.yaml").write_text(json.dumps(OWN))
    return place


def merged(first, second):
    """As Helm merges files that are given by -f: mappings join, all else is replaced."""
    if not (isinstance(first, dict) and isinstance(second, dict)):
        return second
    return {**first, **{name: merged(first.get(name), value) for name, value in second.items()}}


def rendered(place, values):
    with helm.Chart.load(str(place)) as chart:
        return {path.split("/")[-3]: text for path, text in chart.render(values, name="hub", namespace="hub").items()}


def test_daskhub_is_refused_until_it_is_said_who_may_come_in(daskhub):
    [values] = read(DEPLOY / "helm/daskhub.yaml")
    with pytest.raises(helm.HelmValuesError, match=r"(?s)jupyterhub.*/hub/config.*want object"):
        rendered(daskhub, values)
    parts = rendered(daskhub, merged(values, yaml.safe_load(USERS)))
    hub = json.loads(parts["jupyterhub"])["hub"]
    assert hub["config"]["GitHubOAuthenticator"] == {"allowed_users": ["ann"]}
    assert hub["config"]["JupyterHub"]["authenticator_class"] == "dummy"  # so it is asked for again as the hub starts
    [code] = hub["extraConfig"].values()
    assert "authenticator_class" in code
    assert (
        json.loads(parts["dask-gateway"])["gateway"]["extraConfig"] == values["dask-gateway"]["gateway"]["extraConfig"]
    )


def test_what_the_head_of_daskhub_tells_to_write_opens_it(daskhub):
    text = (DEPLOY / "helm/daskhub.yaml").read_text()
    told = [line.removeprefix("#   ") for line in text.splitlines() if line.startswith("#   ") and "helm" not in line]
    users = yaml.safe_load("\n".join(told).replace("...", "x"))
    parts = rendered(daskhub, merged(yaml.safe_load(text), users))
    assert json.loads(parts["jupyterhub"])["hub"]["config"]["JupyterHub"]["authenticator_class"] == "github"


def test_the_operators_chart_makes_valid_manifests():
    """The chart in the package of the operator, as docs/running/kubernetes.md installs it."""
    import dask_kubernetes

    place = Path(dask_kubernetes.__file__).parent / "operator/deployment/helm/dask-kubernetes-operator"
    with helm.Chart.load(str(place)) as chart:
        texts = chart.render({}, name="dask-operator", namespace="dask-operator")
        kinds = {yaml.safe_load(crd["data"])["spec"]["names"]["kind"] for crd in chart.crds}
    assert {"DaskJob", "DaskCluster", "DaskWorkerGroup", "DaskAutoscaler"} <= kinds
    [deployment] = yaml.safe_load_all(texts["dask-kubernetes-operator/templates/deployment.yaml"])
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    said = {name: value for name, value in container.items() if value is not None}  # the chart has an empty env
    assert against(KUBERNETES, "Container", said) == []
