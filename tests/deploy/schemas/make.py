"""
Make the schemas of this folder again from the packages that hold their originals.

    pip download --no-deps dask-kubernetes==2026.3.0 kubernetes-validate==1.37.0
    python tests/deploy/schemas/make.py dask_kubernetes-*.whl kubernetes_validate-*.whl
"""

import json
import sys
import zipfile
from pathlib import Path

import yaml

HERE = Path(__file__).parent
CRDS = "dask_kubernetes/operator/deployment/helm/dask-kubernetes-operator/crds"
OPERATOR = ("DaskCluster", "DaskJob", "DaskAutoscaler")
CORE = "kubernetes_validate/kubernetes-json-schema/v1.37.0-local-strict/_definitions.json"
WANTED = {
    name.rpartition(".")[2]: f"io.k8s.api.{name}"
    for name in (
        "core.v1.Namespace",
        "core.v1.ServiceAccount",
        "core.v1.ConfigMap",
        "core.v1.Secret",
        "core.v1.PersistentVolumeClaim",
        "core.v1.ResourceQuota",
        "core.v1.PodSpec",
        "core.v1.ServiceSpec",
        "networking.v1.NetworkPolicy",
        "policy.v1.PodDisruptionBudget",
    )
}
WANTED["ObjectMeta"] = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"


def main(operator_wheel, core_wheel):
    with zipfile.ZipFile(operator_wheel) as wheel:
        found = {kind: operator_schema(wheel.read(f"{CRDS}/{kind.lower()}.yaml")) for kind in OPERATOR}
    with zipfile.ZipFile(core_wheel) as wheel:
        core = core_schemas(json.loads(wheel.read(CORE)))
    write("operator.json", share_pods(found))
    write("kubernetes.json", core)


def operator_schema(text):
    [version] = yaml.load(text, yaml.CSafeLoader)["spec"]["versions"]
    return bare(version["schema"]["openAPIV3Schema"])


def share_pods(schemas):
    """Keep one of the copies of PodSpec, which the resources hold three times."""
    pods = set()

    def visit(node):
        if isinstance(node, dict):
            if "containers" in node.get("properties", {}):
                pods.add(json.dumps(node, sort_keys=True))
                return {"$ref": "#/$defs/PodSpec"}
            return {key: visit(value) for key, value in node.items()}
        return [visit(value) for value in node] if isinstance(node, list) else node

    defs = {kind: visit(schema) for kind, schema in schemas.items()}
    [text] = pods
    return defs | {"PodSpec": json.loads(text)}


def core_schemas(document):
    given, kept = document["$defs"], {}

    def visit(node):
        if isinstance(node, dict):
            if "$ref" in node:
                return {"$ref": "#/$defs/" + keep(node["$ref"].rpartition("/")[2])}
            return {key: visit(value) for key, value in node.items()}
        return [visit(value) for value in node] if isinstance(node, list) else node

    def keep(full):
        name = full.rpartition(".")[2]
        if name not in kept:
            kept[name] = None  # schemas may be recursive
            kept[name] = visit(bare(given[full]))
        return name

    for full in WANTED.values():
        keep(full)
    return kept


def bare(node):
    """Leave out descriptions, defaults and Kubernetes' own annotations, and allow no nulls."""
    if isinstance(node, list):
        return [bare(value) for value in node]
    if not isinstance(node, dict):
        return node
    kept = {
        key: bare(value)
        for key, value in node.items()
        if not (key == "description" and isinstance(value, str))
        and not (key == "default" and "type" in node)
        and not key.startswith("x-kubernetes")
    }
    if isinstance(kept.get("type"), list):
        [kept["type"]] = [name for name in kept["type"] if name != "null"]
    return kept


def write(name, defs):
    lines = [f"{json.dumps(key)}: {json.dumps(defs[key], sort_keys=True)}" for key in sorted(defs)]
    (HERE / name).write_text('{"$defs": {\n' + ",\n".join(lines) + "\n}}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
