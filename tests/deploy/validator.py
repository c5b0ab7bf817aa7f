"""
What is wrong with manifests, without a cluster.

Every function gives a list of sentences, empty if all is well.
"""

import json
import re
from pathlib import Path

import click
from jsonschema import Draft202012Validator
from referencing import Registry
from referencing.jsonschema import DRAFT202012

from tests.deploy.manifests import containers, pods


def closed(node):
    """Allow only the properties that are named."""
    if isinstance(node, list):
        return [closed(value) for value in node]
    if not isinstance(node, dict):
        return node
    inner = {key: closed(value) for key, value in node.items()}
    if isinstance(node.get("properties"), dict) and "type" in node:
        inner.setdefault("additionalProperties", False)
    return inner


SCHEMAS = Path(__file__).parent / "schemas"
OPERATOR, KUBERNETES = "operator.json", "kubernetes.json"
READ = {name: closed(json.loads((SCHEMAS / name).read_text())) for name in (OPERATOR, KUBERNETES)}
REGISTRY = Registry().with_resources((name, DRAFT202012.create_resource(read)) for name, read in READ.items()).crawl()
DASK_KINDS = ("DaskCluster", "DaskJob", "DaskAutoscaler")
NO_SCHEMA = {"PodMonitor": "monitoring.coreos.com/v1"}  # of Prometheus' operator
API = {
    "NetworkPolicy": "networking.k8s.io/v1",
    "PodDisruptionBudget": "policy/v1",
    **NO_SCHEMA,
    **dict.fromkeys(DASK_KINDS, "kubernetes.dask.org/v1"),
}
NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
LONGEST_NAME = 53  # of a cluster: the operator adds "-scheduler"
PLACEHOLDER = re.compile(r"\$\(([A-Za-z_][A-Za-z0-9_]*)\)")


def problems(documents):
    """All that is wrong with the manifests of one kustomization."""
    found = []
    for document in documents:
        name = f"{document.get('kind')}/{document.get('metadata', {}).get('name')}"
        wrong = shape(document)
        if not wrong:
            wrong = [*names(document), *references(document, documents)]
            for role, pod in pods(document).items():
                wrong += [f"{role}: {text}" for text in (*security(pod), *commands(pod))]
        found += [f"{name}: {text}" for text in wrong]
    return found


def shape(document):
    """Against the schemas, in which no field is allowed that they don't name."""
    kind, version = document.get("kind"), document.get("apiVersion")
    if version != API.get(kind, "v1"):
        return [f"apiVersion is {version}, not {API.get(kind, 'v1')}"]
    if kind in NO_SCHEMA:
        return []
    if kind not in DASK_KINDS:
        return against(KUBERNETES, kind, document) if kind in READ[KUBERNETES]["$defs"] else [f"no schema of {kind}"]
    found = against(OPERATOR, kind, {key: value for key, value in document.items() if key in ("spec", "status")})
    found += [f"{key}: not a field" for key in set(document) - {"apiVersion", "kind", "metadata", "spec"}]
    found += against(KUBERNETES, "ObjectMeta", document.get("metadata", {}))
    if not found:  # also for the Kubernetes of today
        for pod in pods(document).values():
            found += against(KUBERNETES, "PodSpec", pod)
    return found


def against(schemas, name, value):
    errors = Draft202012Validator({"$ref": f"{schemas}#/$defs/{name}"}, registry=REGISTRY).iter_errors(value)
    return [f"{'.'.join(map(str, error.absolute_path))}: {error.message}" for error in errors]


def names(document):
    name = document["metadata"]["name"]
    if document["kind"] in DASK_KINDS and not (NAME.fullmatch(name) and len(name) <= LONGEST_NAME):
        return [f"{name!r} is no name of a cluster: lower case, at most {LONGEST_NAME} letters"]
    return []


def references(document, documents):
    """Names that stand for something else: it must be there, and be the right one."""
    kind, name, found = document["kind"], document["metadata"]["name"], []
    if kind == "DaskAutoscaler":
        clusters = [other["metadata"]["name"] for other in documents if other["kind"] == "DaskCluster"]
        if document["spec"]["cluster"] not in clusters:
            found.append(f"there is no cluster {document['spec']['cluster']!r}")
    for role, pod in pods(document).items():
        found += [f"{role}: {text}" for text in pod_references(pod, documents)]
        if role != "scheduler":
            found += [f"{role}: {text}" for text in scheduler_address(pod, name)]
    if kind in ("DaskJob", "DaskCluster"):
        cluster = document["spec"] if kind == "DaskCluster" else document["spec"]["cluster"]["spec"]
        found += service(cluster["scheduler"], name)
    return found


def pod_references(pod, documents):
    there = {(other["kind"], other["metadata"]["name"]) for other in documents}
    wanted = {("ServiceAccount", pod.get("serviceAccountName", "default"))}
    volumes = {volume["name"]: volume for volume in pod.get("volumes", [])}
    for volume in volumes.values():
        if "persistentVolumeClaim" in volume:
            wanted.add(("PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"]))
    found = []
    for container in containers(pod):
        sources = [source.get("configMapRef") for source in container.get("envFrom", [])]
        wanted |= {("ConfigMap", source["name"]) for source in sources if source}
        mounted = [mount["name"] for mount in container.get("volumeMounts", [])]
        found += [f"{container['name']}: there is no volume {name!r}" for name in mounted if name not in volumes]
        ports = {port.get("name") for port in container.get("ports", [])}
        for probe in ("readinessProbe", "livenessProbe"):
            port = container.get(probe, {}).get("httpGet", {}).get("port")
            if port is not None and port not in ports:
                found.append(f"{container['name']}: {probe} asks port {port!r}, which has no such name")
    return found + [f"there is no {kind} {name!r}" for kind, name in sorted(wanted - there)]


def scheduler_address(pod, name):
    """It must be given: the operator's own is tcp:// always."""
    found = []
    for container in containers(pod):
        settings = {entry["name"]: entry.get("value") for entry in container.get("env", [])}
        address = settings.get("DASK_SCHEDULER_ADDRESS")
        if uses_scheduler(container) and address != "$(DCA_PROTOCOL)://$(DCA_NAME)-scheduler:8786":
            found.append(f"{container['name']}: DASK_SCHEDULER_ADDRESS is {address!r}")
        if uses_scheduler(container) and settings.get("DCA_NAME") != name:
            found.append(f"{container['name']}: DCA_NAME is {settings.get('DCA_NAME')!r}, not {name!r}")
    return found


def uses_scheduler(container):
    return container["args"][:1] != ["python"]


def service(scheduler, name):
    selected, ports = scheduler["service"].get("selector"), scheduler["service"].get("ports", [])
    expected = {"dask.org/cluster-name": name, "dask.org/component": "scheduler"}
    found = [] if selected == expected else [f"the service selects {selected}, not {expected}"]
    of_pod = {port["name"] for port in scheduler["spec"]["containers"][0].get("ports", [])}
    named = {entry.get("name") for entry in ports}  # the operator finds them by these names
    found += [f"the service has no port {port!r}" for port in ("tcp-comm", "http-dashboard") if port not in named]
    return found + [
        f"the service sends to port {entry.get('targetPort')!r}, which the pod doesn't name"
        for entry in ports
        if entry.get("targetPort") not in of_pod
    ]


def security(pod):
    """Pod security standard "restricted", and no rights and no writable root file system beyond it."""
    found, whole = [], pod.get("securityContext", {})
    if whole.get("runAsNonRoot") is not True or not whole.get("runAsUser"):
        found.append("runs as root")
    if whole.get("seccompProfile", {}).get("type") != "RuntimeDefault":
        found.append("has no seccomp profile")
    if pod.get("automountServiceAccountToken") is not False:
        found.append("gets a token of the Kubernetes API")
    if pod.get("enableServiceLinks") is not False:
        found.append("gets variables of services, which Dask may take for settings")
    if {"hostNetwork", "hostPID", "hostIPC"} & set(pod) or any("hostPath" in v for v in pod.get("volumes", [])):
        found.append("uses the node's own network, processes or files")
    for container in containers(pod):
        found += [f"{container['name']}: {text}" for text in container_security(container)]
    return found


def container_security(container):
    own = container.get("securityContext", {})
    expected = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
    found = [] if own == expected else [f"securityContext is {own}, not {expected}"]
    limits = container.get("resources", {}).get("limits", {})
    if not {"cpu", "memory", "ephemeral-storage"} <= set(limits):
        found.append("has no limits of cpu, memory and ephemeral-storage")
    if "/tmp" not in [mount["mountPath"] for mount in container.get("volumeMounts", [])]:
        found.append("can't write anywhere: /tmp is not mounted")
    return found


def commands(pod):
    """Each container's command must be one of today's, with options that it knows."""
    return [f"{container['name']}: {text}" for container in containers(pod) for text in command(container["args"])]


def command(args):
    """Have click parse `dask ...` as it would at the start."""
    words = [PLACEHOLDER.sub("7", word) for word in args]
    if words[0] in ("python", "wait-for-scheduler"):
        return []
    if words[0] != "dask":
        return [f"there is no command {words[0]!r}; today it is dask scheduler, dask worker or dask dca"]
    group, rest, context = dask_command(), words[1:], None
    try:
        while isinstance(group, click.Group):
            context = click.Context(group, parent=context)
            _, found, rest = group.resolve_command(context, rest)
            group = found
        group.make_context("dask", rest, parent=context)
    except click.UsageError as error:
        return [error.format_message()]
    return []


def dask_command():
    from dask.cli import cli
    from distributed.cli.dask_scheduler import main as scheduler
    from distributed.cli.dask_worker import main as worker

    from dask_dca.cli.main import main as dca

    return click.Group("dask", commands={**cli.commands, "scheduler": scheduler, "worker": worker, "dca": dca})
