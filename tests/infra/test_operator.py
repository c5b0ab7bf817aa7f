"""The Dask operator itself, kubectl, an API server in memory and pods as processes: from a manifest to a model."""

import os
import re
import shutil
import subprocess
import time
from itertools import chain

import pytest
import yaml
import zarr
from distributed import Client, Security

import dask_dca as dca
from tests.conftest import ROOT, bits, planted
from tests.deploy import pages
from tests.deploy.manifests import KUBERNETES
from tests.infra.conftest import around, program, service, wait_for
from tests.infra.kube_api import Api, Key
from tests.infra.kubelet import Kubelet
from tests.infra.object_store import object_store
from tests.models.kalman.data import draw, make_system

NAMESPACE = "dask-dca"
pytestmark = pytest.mark.timeout(600)
pytest.importorskip("dask_kubernetes", reason="dask-kubernetes is not installed")


class World:
    def __init__(self, api, kubelet, environment, keys, folder):
        self.api, self.kubelet, self.environment, self.folder = api, kubelet, environment, folder
        self.keys = keys  # of the object store

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

    def said(self, name):
        return (self.folder / f"{name}.log").read_text()

    def log(self, pod):
        return self.kubelet.log(pod)

    def shell(self, line):
        """
        A command of a page, in a folder with deploy/. A watch is a look, and there are no schemas of kinds.

        What kubectl creates it sends in protobuf, which the API in memory doesn't read: it is applied as YAML.
        """
        if " create " in line:
            line += " --dry-run=client -o yaml | kubectl apply -f -"
        line = re.sub(" -w$", "", line).replace("kubectl apply", "kubectl apply --validate=false")
        done = subprocess.run(
            ["bash", "-c", f"set -eo pipefail\n{line}"], env={**self.environment, **self.keys}, cwd=self.folder,
            capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


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
        shutil.copytree(ROOT / "deploy", folder / "deploy")
        (folder / "volume").mkdir()
        places = {"/run/dask-tls": str(folder / "tls"), "/data": str(folder / "volume")}  # not a name within itself
        operator = ["kopf", "run", "--standalone", "--all-namespaces", "-m", "dask_kubernetes.operator.controller"]
        named = ["unshare", "--mount", "sh", "-c", f'mount --bind {folder}/hosts /etc/hosts; exec "$@"', "sh"]
        with (
            service([*named, program(operator[0]), *operator[1:]], folder / "operator.log", env=environment),
            Kubelet(api, folder, {"object-store": keys}, places) as kubelet,
        ):
            yield World(api, kubelet, environment, keys, folder)


def kubeconfig(folder, port):
    server = {"name": "test", "cluster": {"server": f"http://127.0.0.1:{port}"}}
    context = {"name": "test", "context": {"cluster": "test", "user": "test", "namespace": NAMESPACE}}
    whole = {"apiVersion": "v1", "kind": "Config", "current-context": "test", "clusters": [server],
             "contexts": [context], "users": [{"name": "test", "user": {}}]}  # fmt: skip
    (folder / "kubeconfig").write_text(yaml.safe_dump(whole))
    return folder / "kubeconfig"


def applied(world, folder, lines, command=None):
    """Apply a kustomization by a page's command, in a copy of deploy/ where lines of its files are others."""
    shutil.rmtree(world.folder / "deploy", ignore_errors=True)
    shutil.copytree(ROOT / "deploy", world.folder / "deploy")
    for (name, words), others in lines.items():
        path = world.folder / "deploy/kubernetes" / name
        text, found = re.subn(words, others, path.read_text())
        assert found == 1, (name, words)
        path.write_text(text)
    whole = f"kubectl apply -k deploy/kubernetes/{folder}"
    assert command in (None, whole)
    world.shell(whole)


@pytest.fixture
def job(world):
    """Apply the job with a number of workers; it is deleted at the end."""

    def start(model="nmf", workers=2, folder="job", command=None, **settings):
        world.kubectl("delete", "daskjob", "dca-nmf", "--ignore-not-found")
        settings = {"DCA_WORKERS": workers, **settings}
        lines = {("job/kustomization.yaml", rf"- {name}=\S+"): f"- {name}={value}" for name, value in settings.items()}
        applied(world, folder, lines | {("job/job.yaml", "fit, nmf,"): f"fit, {model},"}, command)

    yield start
    world.kubectl("delete", "daskjob", "dca-nmf")
    wait_for(lambda: not world.there("deployments", "daskclusters", "services", "pods"), 180, "the job stays")


def ended(world, status):
    """Wait for a job's end, as it should be; its cluster goes with it, and the runner's log stays."""
    wait_for(lambda: world.status("dca-nmf") in ("Successful", "Failed"), 300, lambda: world.log("runner"))
    assert world.status("dca-nmf") == status, world.log("runner")
    wait_for(lambda: not world.there("deployments", "daskclusters", "services"), 180, "the cluster stays")


def test_a_job_from_its_manifest_to_its_model(world, job):
    """By the page's commands, of which the secret is given the keys; its store is not Amazon's."""
    namespace, secret, apply, look, logs, info = pages.by("test_a_job_from_its_manifest_to_its_model")
    world.shell(namespace)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        secret = secret.replace(f"{name}=...", f"{name}={world.keys[name]}")
    world.shell(secret)
    job(command=apply, DCA_COMPONENTS=5)
    assert "dca-nmf" in world.shell(look)
    ended(world, "Successful")
    assert "Saved as s3://bucket/model.zarr" in world.shell(logs)
    assert "Coverage" in world.shell(info)
    assert world.log("dca-nmf-scheduler").count("Register worker") == 2
    model = dca.load_model("s3://bucket/model.zarr")
    assert model.anchor_indices_.tolist() == dca.NMF(5).fit(planted(3000, 30, 5)[0]).anchor_indices_.tolist()
    added = [key.plural for event, key, _ in world.api.call(lambda store: store.history) if event == "ADDED"]
    assert added.count("deployments") == 3  # a scheduler, two workers


def test_a_job_on_one_node_makes_its_own_data(world, job):
    apply, look, logs = pages.by("test_a_job_on_one_node_makes_its_own_data")
    job(folder="overlays/dev", command=apply)
    assert "dca-nmf" in world.shell(look)
    ended(world, "Successful")
    assert "model.zarr" in world.shell(logs)
    image, model = (world.folder / "volume" / name for name in ("image.zarr", "model.zarr"))
    assert bits(dca.load_model(model)) == bits(dca.NMF(9).fit(image))


def test_a_job_over_tls(world, job):
    certificates, namespace, secret, apply, logs = pages.by("test_a_job_over_tls")
    for line in (certificates, namespace, secret):
        world.shell(line)
    again("s3://bucket/model.zarr")
    job(folder="overlays/tls", command=apply, DCA_COMPONENTS=5)
    wait_for(lambda: "tls://" in world.log("dca-nmf-scheduler"), 60, lambda: world.said("operator"))
    assert "tls://" in world.shell(logs)
    ended(world, "Successful")


def test_a_job_with_all_components(world, job):
    """The spot nodes and the monitor are seen to be taken by the API; the job runs over TLS."""
    [apply] = pages.by("test_a_job_with_all_components")
    again("s3://bucket/model.zarr")
    job(folder="overlays/production", command=apply, DCA_COMPONENTS=5)
    ended(world, "Successful")
    assert world.there("podmonitors") == ["dask"]


def again(model):
    """Make room for a model of that name."""
    import s3fs

    files = s3fs.S3FileSystem(use_listings_cache=False)
    if files.exists(model):
        files.rm(model, recursive=True)


def test_what_is_around_the_chart_dask_is_taken(world):
    [apply] = pages.by("test_what_is_around_the_chart_dask_is_taken")
    world.shell(apply)
    assert "dask-dca" in world.there("networkpolicies")


def test_a_job_whose_scheduler_is_killed_goes_on_from_its_checkpoint(world, job):
    X = draw(make_system(4, 8), 60_000)
    zarr.create_array("s3://bucket/long.zarr", data=X, chunks=(200, 8))
    places = {"DATA": "s3://bucket/long.zarr", "OUTPUT": "s3://bucket/long.model", "CHECKPOINT": "s3://bucket/kept"}
    settings = {"DCA_COMPONENTS": 4, **{f"DCA_{name}": place for name, place in places.items()}}
    job("kalman", **settings)
    wait_for(lambda: kept() and within(world.log("runner"), "dca-refine"), 240, lambda: world.log("runner"))
    time.sleep(0.5)  # in the midst of the pass
    world.kubelet.kill("dca-nmf-scheduler")
    ended(world, "Failed")
    [said] = [line for line in world.log("runner").splitlines() if line.startswith("Error")]
    assert "the scheduler was lost or restarted in the pass dca-refine" in said
    assert "is kept in 's3://bucket/kept'" in said
    before = kept()
    job("kalman", **settings)  # as the page says: deleted, and applied again
    ended(world, "Successful")
    assert before.items() < kept().items()  # nothing of it was computed again
    found, alone = dca.load_model("s3://bucket/long.model"), dca.KalmanFilter(4).fit(X)
    for name in ("anchor_indices_", "transition_matrices_", "observation_matrices_", "observation_covariance_"):
        assert getattr(found, name).tobytes() == getattr(alone, name).tobytes(), name


def within(log, name):
    """Whether a second pass of that name is being computed."""
    return log.count(f"{name} ...") == 2 and log.count(f"{name} done") == 1


def kept():
    """Passes in the checkpoint, and when they were written."""
    import s3fs

    files = s3fs.S3FileSystem(use_listings_cache=False)
    if not files.exists("bucket/kept"):
        return {}
    found = files.find("bucket/kept", detail=True)
    return {name: facts["LastModified"] for name, facts in found.items() if not name.endswith("fit.json")}


FILES = {"replicas": "cluster", "minimum": "autoscaler", "maximum": "autoscaler"}


@pytest.fixture
def cluster(world):
    """Apply a cluster and its autoscaler; all is gone at the end."""

    def start(folder, command=None, **chosen):
        lines = {(f"cluster/{FILES[name]}.yaml", rf"{name}: \d+"): f"{name}: {value}" for name, value in chosen.items()}
        applied(world, folder, lines, command)
        return wait_for(lambda: world.kubelet.of("dca"), 60, lambda: world.said("operator"))

    yield start
    world.kubectl("delete", "daskcluster", "dca", "--ignore-not-found")
    wait_for(lambda: not world.there("deployments", "daskautoscalers", "services", "pods"), 60, "the cluster stays")


def workers(world):
    """Deployments of workers."""
    return [name for name in world.there("deployments") if "worker" in name]


def test_a_cluster_over_tls_scales_with_its_work_and_goes_when_nobody_uses_it(world, cluster):
    """Up and down by the HTTP port alone: the operator has no certificate."""
    tls = world.folder / "tls"
    subprocess.run([KUBERNETES / "secrets/make-certificates.sh", tls], check=True, timeout=60)
    pods = cluster("overlays/tls-cluster", maximum=2)
    address, own = f"tls://127.0.0.1:{pods.scheduler_ports['8786']}", [tls / "ca.crt", tls / "tls.crt", tls / "tls.key"]
    wait_for(lambda: pods.log("dca-scheduler").count("Register worker") == 1, 90, lambda: pods.log("dca-scheduler"))
    names = ("tls_ca_file", "tls_client_cert", "tls_client_key")
    security = Security(require_encryption=True, **dict(zip(names, map(str, own), strict=True)))
    with Client(address, security=security, set_as_default=False) as client:
        assert len(workers(world)) == 1
        load = client.map(time.sleep, [0.5] * 300, pure=False)
        wait_for(lambda: pods.log("dca-scheduler").count("Register worker") == 2, 90, lambda: world.said("operator"))
        client.cancel(load)
        wait_for(lambda: len(workers(world)) == 1, 120, lambda: world.said("operator"))
        wait_for(lambda: len(client.scheduler_info(n_workers=-1)["workers"]) == 1, 20, "its worker stays")
    given = zip(("--tls-ca-file", "--tls-cert", "--tls-key"), own, strict=True)
    fit = [program("dask"), "dca", "fit", "nmf", "s3://bucket/pixels.zarr", "-k", "5", "-o", "s3://bucket/tls.model"]
    command = [*fit, "--scheduler", address, *map(str, chain(*given))]
    done = subprocess.run(command, env=around(**world.keys), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert bits(dca.load_model("s3://bucket/tls.model")) == bits(dca.NMF(5).fit(planted(3000, 30, 5)[0]))
    world.kubectl("patch", "daskcluster", "dca", "--type=merge", "-p", '{"spec": {"idleTimeout": 5}}')
    wait_for(lambda: not world.there("daskclusters", "deployments", "services"), 60, lambda: world.said("operator"))


def test_a_hundred_workers_come_and_all_but_ten_go_without_what_they_hold(world, cluster):
    world.kubelet.crowded = True
    apply, look, fit = pages.by("test_a_hundred_workers_come_and_all_but_ten_go_without_what_they_hold")
    pods = cluster("cluster", apply, replicas=100, minimum=100, maximum=100)
    assert {"daskcluster", "daskautoscaler"} <= set(re.findall(r"^(\w+)\S*/dca\s", world.shell(look), re.M))
    wait_for(lambda: len(workers(world)) == 100, 90, lambda: world.said("operator"))
    with Client(f"tcp://127.0.0.1:{pods.scheduler_ports['8786']}") as client:
        client.wait_for_workers(100, timeout=120)
        again("s3://bucket/model.zarr")
        world.shell(fit.replace("-k 20", "-k 5").replace("127.0.0.1:8786", f"127.0.0.1:{pods.scheduler_ports['8786']}"))
        assert bits(dca.load_model("s3://bucket/model.zarr")) == bits(dca.NMF(5).fit(planted(3000, 30, 5)[0]))
        held = client.map(lambda _: os.urandom(8), range(500), pure=False)
        before = client.gather(held)
        world.kubectl("delete", "daskautoscaler", "dca")
        world.kubectl("patch", "daskcluster", "dca", "--type=merge", "-p", '{"spec": {"worker": {"replicas": 10}}}')
        wait_for(lambda: len(workers(world)) == 10, 90, lambda: world.said("operator"))
        wait_for(lambda: len(client.scheduler_info(n_workers=-1)["workers"]) == 10, 60, "workers stay")
        assert client.gather(held) == before
