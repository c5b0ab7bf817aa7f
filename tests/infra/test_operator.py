"""The Dask operator itself, kubectl, an API server in memory and pods as processes: from a manifest to a model."""

import os
import subprocess

import pytest
import yaml
import zarr

import dask_dca as dca
from tests.conftest import planted
from tests.deploy.manifests import KUBERNETES
from tests.infra.conftest import around, program, service, wait_for
from tests.infra.kube_api import Api, Key
from tests.infra.kubelet import Kubelet
from tests.infra.object_store import object_store

NAMESPACE = "dask-dca"
pytestmark = pytest.mark.timeout(600)
pytest.importorskip("dask_kubernetes", reason="dask-kubernetes is not installed")


class World:
    def __init__(self, api, kubelet, environment, folder):
        self.api, self.kubelet, self.environment, self.folder = api, kubelet, environment, folder

    def kubectl(self, *args):
        done = subprocess.run(
            [program("kubectl"), *map(str, args)], env=self.environment, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def get(self, plural, name, version="kubernetes.dask.org/v1"):
        return self.api.call(lambda store: store.objects.get(Key(version, plural, NAMESPACE, name)))

    def status(self, job):
        return ((self.get("daskjobs", job) or {}).get("status") or {}).get("jobStatus")

    def there(self, *plurals):
        return [name for plural in plurals for name in self.kubelet.names(plural)]

    def log(self, pod):
        clusters = self.kubelet.clusters.values()
        return "\n".join(cluster.log(name) for cluster in clusters for name in cluster.logs if pod in name)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    if os.geteuid() != 0:
        pytest.skip("the operator finds the scheduler's service by a file of host names of its own, which needs root")
    folder = tmp_path_factory.mktemp("operator")
    with object_store(folder) as keys, Api() as api:
        X, _ = planted(3000, 30, 5)
        zarr.create_array("s3://bucket/pixels.zarr", data=X, chunks=(600, 30))
        environment = around(KUBECONFIG=str(kubeconfig(folder, api.port)), HOME=str(folder))
        hosts = "".join(f"127.0.0.1 {name}-scheduler.{NAMESPACE}\n" for name in ("dca-nmf", "dca"))
        (folder / "hosts").write_text("127.0.0.1 localhost\n" + hosts)
        operator = ["kopf", "run", "--standalone", "--all-namespaces", "-m", "dask_kubernetes.operator.controller"]
        named = ["unshare", "--mount", "sh", "-c", f'mount --bind {folder}/hosts /etc/hosts; exec "$@"', "sh"]
        with (
            service([*named, program(operator[0]), *operator[1:]], folder / "operator.log", env=environment),
            Kubelet(api, folder, {"object-store": keys}, {"/run/dask-tls": str(folder / "tls")}) as kubelet,
        ):
            yield World(api, kubelet, environment, folder)


def kubeconfig(folder, port):
    server = {"name": "test", "cluster": {"server": f"http://127.0.0.1:{port}"}}
    context = {"name": "test", "context": {"cluster": "test", "user": "test", "namespace": NAMESPACE}}
    whole = {"apiVersion": "v1", "kind": "Config", "current-context": "test", "clusters": [server],
             "contexts": [context], "users": [{"name": "test", "user": {}}]}  # fmt: skip
    (folder / "kubeconfig").write_text(yaml.safe_dump(whole))
    return folder / "kubeconfig"


def applied(world, folder, **settings):
    """Apply a kustomization with settings of its own on top, as docs/running/kubernetes.md says."""
    place = world.folder / "kustomize"
    place.mkdir(exist_ok=True)
    literals = [f"{name}={value}" for name, value in settings.items()]
    maker = {"name": "dask-dca-job", "behavior": "merge", "literals": literals}
    fewer = [{"op": "replace", "path": "/spec/cluster/spec/worker/replicas", "value": 2}]
    plan = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "namespace": NAMESPACE,
        "resources": [os.path.relpath(KUBERNETES / folder, place)], "generatorOptions": {"disableNameSuffixHash": True},
        **({"configMapGenerator": [maker]} if literals else {}),
        "patches": [{"target": {"kind": "DaskJob"}, "patch": yaml.safe_dump(fewer)}],
    }  # fmt: skip
    (place / "kustomization.yaml").write_text(yaml.safe_dump(plan))
    world.kubectl("apply", "--validate=false", "-k", place)


def test_a_job_from_its_manifest_to_its_model(world):
    applied(world, "job", DCA_COMPONENTS=5)
    wait_for(lambda: world.status("dca-nmf") in ("Successful", "Failed"), 480, lambda: world.log("runner"))
    assert world.status("dca-nmf") == "Successful", world.log("runner")
    assert world.log("dca-nmf-scheduler").count("Register worker") == 2
    model = dca.load_model("s3://bucket/model.zarr")
    assert model.anchor_indices_.tolist() == dca.NMF(5).fit(planted(3000, 30, 5)[0]).anchor_indices_.tolist()
    wait_for(lambda: not world.there("deployments", "daskclusters", "services"), 60, "the cluster stays")
    kinds = [kind for event, kind, _ in world.api.call(lambda store: store.history) if event == "ADDED"]
    assert kinds.count("deployments") == 3  # a scheduler, two workers
