"""The Kubernetes manifests: valid for the operator and for Kubernetes, safe, and what kustomize makes of them."""

import copy
import json
import re
import shutil

import pytest
import yaml

from tests.conftest import ROOT
from tests.deploy.manifests import KUBERNETES, TARGETS, built, containers, pods, read
from tests.deploy.validator import problems, shape


def of_kind(documents, kind):
    return [document for document in documents if document["kind"] == kind]


@pytest.mark.parametrize("folder", TARGETS)
def test_manifests_are_valid(folder):
    assert problems(built(folder)) == []


@pytest.mark.parametrize("path", sorted((KUBERNETES / "secrets").glob("*.yaml")), ids=lambda path: path.name)
def test_secrets_are_examples_that_are_valid_and_not_applied(path):
    [secret] = read(path)
    assert shape(secret) == []
    assert "replace-me" in secret["stringData"].values()
    for folder in TARGETS:
        assert not of_kind(built(folder), "Secret")


def test_the_pages_policy_for_a_store_inside_the_cluster():
    page = (ROOT / "docs" / "running" / "kubernetes.md").read_text()
    [policy] = [yaml.safe_load(block) for block in re.findall(r"^```yaml\n(.*?)^```", page, re.DOTALL | re.MULTILINE)]
    assert shape(policy) == []
    [given] = [d for d in of_kind(built("base"), "NetworkPolicy") if d["metadata"]["name"] == "object-stores"]
    assert policy["spec"]["podSelector"] == given["spec"]["podSelector"]  # the pods that read and write data


def test_the_example_secrets_are_those_that_pods_use():
    used = set()
    for folder in TARGETS:
        for document in built(folder):
            for pod in pods(document).values():
                sources = [s.get("secretRef", {}).get("name") for c in containers(pod) for s in c.get("envFrom", [])]
                used |= {*sources, *(v.get("secret", {}).get("secretName") for v in pod["volumes"])}
    examples = [read(path)[0]["metadata"]["name"] for path in (KUBERNETES / "secrets").glob("*.yaml")]
    assert used - {None} == set(examples)


def test_one_image_for_all():
    for folder in TARGETS:
        images = {c["image"] for d in built(folder) for pod in pods(d).values() for c in containers(pod)}
        assert len(images) == 1
        assert not next(iter(images)).endswith((":latest", "dask-dca"))


def test_job_and_cluster_run_the_same_pods():
    [job], [cluster] = of_kind(built("job"), "DaskJob"), of_kind(built("cluster"), "DaskCluster")
    for role in ("scheduler", "worker"):
        text = json.dumps(pods(job)[role]).replace("dca-nmf", "dca")
        assert json.loads(text) == pods(cluster)[role]


def changed(place, folder, line, other):
    """The manifests of a folder, in a copy in which one line is another."""
    shutil.copytree(KUBERNETES, place)
    [path] = [path for path in (place / folder).iterdir() if line in path.read_text()]
    assert path.read_text().count(line) == 1
    path.write_text(path.read_text().replace(line, other))
    return built(place / folder)


@pytest.mark.parametrize(
    ("folder", "line", "other", "old"),
    [("job", "DCA_NAME=dca-nmf", "DCA_NAME=topics-7", "dca-nmf"), ("cluster", "name: dca #", "name: ours #", "dca")],
)
def test_one_line_names_a_job_or_a_cluster(tmp_path, folder, line, other, old):
    documents = changed(tmp_path / "k8s", folder, line, other)
    assert problems(documents) == []
    assert f'"{old}' not in json.dumps(documents).replace('"dca/', "")
    names = {d["metadata"]["name"] for d in documents if d["kind"] in ("DaskJob", "DaskCluster", "DaskAutoscaler")}
    assert names == {re.split("[=: ]+", other)[1]}


def test_one_line_says_how_many_workers(tmp_path):
    documents = changed(tmp_path / "k8s", "job", "DCA_WORKERS=4", "DCA_WORKERS=7")
    assert problems(documents) == []
    [job] = of_kind(documents, "DaskJob")
    assert job["spec"]["cluster"]["spec"]["worker"]["replicas"] == 7


def test_the_job_ends():
    """Restarted runners never fail, and a runner that hangs would keep its cluster."""
    for folder in ("job", "overlays/dev", "overlays/tls"):
        [job] = of_kind(built(folder), "DaskJob")
        assert pods(job)["job"]["restartPolicy"] == "Never"
        assert pods(job)["job"]["activeDeadlineSeconds"] > 0


def test_workers_are_retired_by_the_operators_names():
    [job] = of_kind(built("job"), "DaskJob")
    args = pods(job)["worker"]["containers"][0]["args"]
    assert args[args.index("--name") + 1] == "$(DASK_WORKER_NAME)"


def test_the_operators_routes_are_on_beside_dasks_own():
    import dask
    import distributed  # noqa: F401 (its settings)

    [settings] = [d for d in of_kind(built("job"), "ConfigMap") if d["metadata"]["name"] == "dask-settings"]
    routes = json.loads(settings["data"]["DASK_DISTRIBUTED__SCHEDULER__HTTP__ROUTES"])
    defaults = dask.config.get("distributed.scheduler.http.routes", None, override_with=None)
    assert set(routes) == {*defaults, "distributed.http.scheduler.api"}


def test_settings_are_settings_of_dask():
    """A misspelt name would be ignored."""
    import dask
    import distributed  # noqa: F401

    for folder in TARGETS:
        for document in of_kind(built(folder), "ConfigMap"):
            if document["metadata"]["name"] == "dask-settings":
                for name in document["data"]:
                    key = name.removeprefix("DASK_").lower().replace("__", ".")
                    dask.config.get(key)  # KeyError if there is none


def test_a_worker_that_hangs_gives_its_name_back_before_its_pod_has_failed_often():
    for folder in TARGETS:
        [settings] = [d for d in of_kind(built(folder), "ConfigMap") if d["metadata"]["name"] == "dask-settings"]
        assert settings["data"]["DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL"] == "60s"


def test_a_job_that_is_applied_again_goes_on():
    for folder in ("job", "overlays/dev", "overlays/tls", "overlays/production"):
        [job] = of_kind(built(folder), "DaskJob")
        args = pods(job)["job"]["containers"][0]["args"]
        assert args[args.index("--checkpoint") + 1] == "$(DCA_CHECKPOINT)"
        [settings] = [d for d in of_kind(built(folder), "ConfigMap") if d["metadata"]["name"] == "dask-dca-job"]
        places = [settings["data"][name] for name in ("DCA_DATA", "DCA_OUTPUT", "DCA_CHECKPOINT")]
        assert len(set(places)) == 3
        assert len({place.rpartition("/")[0] for place in places}) == 1


UNITS = {"": 1, "m": 1e-3, "Gi": 2**30, "Ti": 2**40}


def amount(text):
    number, unit = re.fullmatch(r"([0-9.]+)([A-Za-z]*)", text).groups()
    return float(number) * UNITS[unit]


def test_job_and_cluster_fit_together_into_the_quota():
    [quota] = of_kind(built("job"), "ResourceQuota")
    [job], [cluster], [scaler] = (
        of_kind(built("job"), "DaskJob"),
        of_kind(built("cluster"), "DaskCluster"),
        of_kind(built("cluster"), "DaskAutoscaler"),
    )
    workers = job["spec"]["cluster"]["spec"]["worker"]["replicas"], scaler["spec"]["maximum"]
    needed = [(pods(job)["job"], 1)]
    for document, count in zip((job, cluster), workers, strict=True):
        needed += [(pods(document)["scheduler"], 1), (pods(document)["worker"], count)]
    for name in ("cpu", "memory", "ephemeral-storage"):
        total = sum(n * amount(pod["containers"][0]["resources"]["limits"][name]) for pod, n in needed)
        assert total <= amount(quota["spec"]["hard"][f"limits.{name}"]), name
    assert sum(n for _, n in needed) <= int(quota["spec"]["hard"]["pods"])


def test_spilled_data_fit_on_the_nodes_disk_as_it_is_asked_for():
    for folder in ("job", "cluster"):
        for document in built(folder):
            for pod in pods(document).values():
                spilled = sum(amount(volume["emptyDir"]["sizeLimit"]) for volume in pod["volumes"])
                limits = [c["resources"]["limits"]["ephemeral-storage"] for c in pod["containers"]]
                assert spilled < sum(map(amount, limits))


def test_workers_may_be_taken_back_and_nothing_else():
    [job] = of_kind(built("overlays/production"), "DaskJob")
    labels = ("cloud.google.com/gke-spot", "eks.amazonaws.com/capacityType", "kubernetes.azure.com/scalesetpriority")
    preferred = pods(job)["worker"]["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert tuple(term["preference"]["matchExpressions"][0]["key"] for term in preferred) == labels
    assert tuple(each["key"] for each in pods(job)["worker"]["tolerations"]) == labels
    for role in ("scheduler", "job"):
        required = pods(job)[role]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        [term] = required["nodeSelectorTerms"]
        assert [(each["key"], each["operator"]) for each in term["matchExpressions"]] == [(n, "NotIn") for n in labels]
        assert "tolerations" not in pods(job)[role]


def test_prometheus_reads_ports_that_pods_name_and_policies_open():
    documents = built("overlays/production")
    [monitor], [job] = of_kind(documents, "PodMonitor"), of_kind(documents, "DaskJob")
    [rule] = monitor["spec"]["selector"]["matchExpressions"]
    [endpoint] = monitor["spec"]["podMetricsEndpoints"]
    [policy] = [d for d in of_kind(documents, "NetworkPolicy") if d["metadata"]["name"] == "monitoring"]
    opened = {port["port"] for port in policy["spec"]["ingress"][0]["ports"]}
    named = set()
    for role in rule["values"]:
        [container] = pods(job)[role]["containers"]
        named |= {port["containerPort"] for port in container["ports"] if port["name"] == endpoint["port"]}
    assert opened == named


def test_pods_reach_no_private_networks_and_no_metadata_service():
    [policy] = [d for d in of_kind(built("job"), "NetworkPolicy") if d["metadata"]["name"] == "object-stores"]
    [rule] = policy["spec"]["egress"]
    private = {
        "0.0.0.0/0": {"10.0.0.0/8", "100.64.0.0/10", "169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16"},
        "::/0": {"fc00::/7", "fe80::/10"},
    }
    assert {peer["ipBlock"]["cidr"]: set(peer["ipBlock"]["except"]) for peer in rule["to"]} == private


class TestNetwork:
    policies = of_kind(built("job"), "NetworkPolicy")

    def ports(self, kind, selected):
        """Ports that some policy opens for pods of a component."""
        found = set()
        for policy in self.policies:
            selector = policy["spec"]["podSelector"]
            values = [v for rule in selector.get("matchExpressions", []) for v in rule["values"]]
            values += [selector.get("matchLabels", {}).get("dask.org/component")]
            if selected in values:
                rules = policy["spec"].get(kind, [])
                found |= {port["port"] for rule in rules for port in rule["ports"]}
        return found

    def test_the_default_is_to_deny(self):
        [default] = [p for p in self.policies if p["metadata"]["name"] == "default-deny"]
        assert default["spec"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}

    def test_the_ports_of_the_pods_are_open_and_no_others(self):
        [job] = of_kind(built("job"), "DaskJob")
        for role in ("scheduler", "worker"):
            own = {p["containerPort"] for c in pods(job)[role]["containers"] for p in c["ports"]}
            assert self.ports("ingress", role) == own
            assert own <= self.ports("egress", "worker") & self.ports("egress", "scheduler")
        assert self.ports("ingress", "job-runner") == set()
        assert 8786 in self.ports("egress", "job-runner")

    def test_every_rule_names_who_and_which_port(self):
        for policy in self.policies:
            for kind, peer in (("ingress", "from"), ("egress", "to")):
                for rule in policy["spec"].get(kind, []):
                    assert rule.get(peer)
                    assert rule.get("ports")

    def test_only_the_operator_comes_from_other_namespaces(self):
        outside = [
            (peer["namespaceSelector"], [port["port"] for port in rule["ports"]])
            for policy in self.policies
            for rule in policy["spec"].get("ingress", [])
            for peer in rule["from"]
            if "namespaceSelector" in peer
        ]
        assert outside == [({"matchLabels": {"kubernetes.io/metadata.name": "dask-operator"}}, [8787])]


def job():
    return copy.deepcopy(built("job"))


def change(documents, kind, path, value):
    """Set a field, or remove it (None)."""
    [node] = of_kind(documents, kind)
    *parents, last = [part.replace("~1", "/") for part in path.split("/")]
    for part in parents:
        node = node[int(part) if isinstance(node, list) else part]
    last = int(last) if isinstance(node, list) else last
    if value is None:
        del node[last]
    else:
        node[last] = value


SCHEDULER = "spec/cluster/spec/scheduler"
WORKER = "spec/cluster/spec/worker"
RUNNER = "spec/job/spec/containers/0"
MISTAKES = {
    "integer port of a probe": (
        f"{SCHEDULER}/spec/containers/0/readinessProbe/httpGet/port",
        8787,
        "8787 is not of type 'string'",
    ),
    "integer port of the service": (f"{SCHEDULER}/service/ports/0/targetPort", 8786, "8786 is not of type 'string'"),
    "text for a port": (f"{SCHEDULER}/service/ports/0/port", "8786", "'8786' is not of type 'integer'"),
    "number for cpu": (f"{WORKER}/spec/containers/0/resources/limits/cpu", 2, "2 is not of type 'string'"),
    "no service": (f"{SCHEDULER}/service", None, "'service' is a required property"),
    "misspelt field": (f"{WORKER}/replica", 4, "'replica' was unexpected"),
    "misspelt field, deep": (f"{RUNNER}/enviroment", [], "'enviroment' was unexpected"),
    "field that only newer Kubernetes has": (
        "spec/job/spec/initContainers/0/restartPolicy",
        "Always",
        "'restartPolicy' was unexpected",
    ),
    "no name of a container": (f"{RUNNER}/name", None, "'name' is a required property"),
    "old command": (f"{SCHEDULER}/spec/containers/0/args", ["dask-scheduler"], "no command 'dask-scheduler'"),
    "unknown command": (f"{RUNNER}/args/1", "dcaa", "No such command 'dcaa'"),
    "unknown model": (f"{RUNNER}/args/3", "nfm", "No such command 'nfm'"),
    "unknown option": (f"{WORKER}/spec/containers/0/args/4", "--worker-prt", "unexpected extra argument: (8788)"),
    "no output": (f"{RUNNER}/args", ["dask", "dca", "fit", "nmf", "x.zarr"], "Missing option '-o'"),
    "another cluster's service": (f"{SCHEDULER}/service/selector/dask.org~1cluster-name", "dca", "the service selects"),
    "port without its name": (f"{SCHEDULER}/service/ports/1/name", "dashboard", "has no port 'http-dashboard'"),
    "probe of an unnamed port": (
        f"{SCHEDULER}/spec/containers/0/livenessProbe/httpGet/port",
        "http",
        "livenessProbe asks port 'http'",
    ),
    "address of another cluster": (f"{RUNNER}/env/2/value", "tcp://dca-scheduler:8786", "DASK_SCHEDULER_ADDRESS is"),
    "no address": (f"{WORKER}/spec/containers/0/env/2", None, "DASK_SCHEDULER_ADDRESS is None"),
    "name of another cluster": (f"{WORKER}/spec/containers/0/env/1/value", "dca", "DCA_NAME is 'dca', not 'dca-nmf'"),
    "settings that are not there": (f"{RUNNER}/envFrom/0/configMapRef/name", "dask-seting", "no ConfigMap"),
    "volume that is not there": (f"{RUNNER}/volumeMounts/0/name", "temp", "there is no volume 'temp'"),
    "account that is not there": (f"{WORKER}/spec/serviceAccountName", "dask", "there is no ServiceAccount 'dask'"),
    "root": (f"{WORKER}/spec/securityContext/runAsNonRoot", None, "runs as root"),
    "writable root": (f"{RUNNER}/securityContext/readOnlyRootFilesystem", False, "securityContext is"),
    "token": ("spec/job/spec/automountServiceAccountToken", None, "token of the Kubernetes API"),
    "no limits": (f"{RUNNER}/resources/limits", None, "no limits"),
    "old version": ("apiVersion", "kubernetes.dask.org/v1beta1", "apiVersion is"),
    "long name": ("metadata/name", "a" * 54, "is no name of a cluster"),
    "field beside spec": ("specification", {}, "specification: not a field"),
}


@pytest.mark.parametrize(("path", "value", "said"), MISTAKES.values(), ids=MISTAKES)
def test_mistakes_are_found(path, value, said):
    documents = job()
    change(documents, "DaskJob", path, value)
    assert said in "\n".join(problems(documents))


@pytest.mark.parametrize(
    ("kind", "path", "value", "said"),
    [
        ("ServiceAccount", "automountServiceAccountTokn", False, "was unexpected"),
        ("ServiceAccount", "apiVersion", "v2", "apiVersion is v2"),
        ("Namespace", "metadata/label", {}, "was unexpected"),
        ("DaskAutoscaler", "spec/minimum", "1", "'1' is not of type 'integer'"),
        ("DaskAutoscaler", "spec/cluster", "dac", "no cluster 'dac'"),
        ("DaskCluster", "spec/idleTimeout", "1h", "'1h' is not of type 'integer'"),
        ("DaskCluster", "spec/scheduler/service", None, "'service' is a required property"),
    ],
)
def test_mistakes_in_other_kinds_are_found(kind, path, value, said):
    documents = copy.deepcopy(built("cluster"))
    change(documents, kind, path, value)
    assert said in "\n".join(problems(documents))


def test_mistakes_in_a_policy_are_found():
    documents = job()
    [policy] = [d for d in of_kind(documents, "NetworkPolicy") if d["metadata"]["name"] == "scheduler"]
    policy["spec"]["ingress"][0]["port"] = []
    assert "'port' was unexpected" in "\n".join(problems(documents))
    assert problems([{"apiVersion": "v1", "kind": "Pood", "metadata": {"name": "x"}}]) == ["Pood/x: no schema of Pood"]
