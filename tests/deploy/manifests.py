"""What kustomize makes of a folder, for machines without kubectl: resources, components, settings, images, patches."""

import copy
from pathlib import Path

import yaml

DEPLOY = Path(__file__).parents[2] / "deploy"
KUBERNETES = DEPLOY / "kubernetes"
TARGETS = ("job", "cluster", "overlays/dev", "overlays/tls", "overlays/tls-cluster")


LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read(path):
    return [document for document in yaml.load_all(Path(path).read_text(), LOADER) if document]


def built(folder):
    """All manifests of a kustomization, as a list of documents."""
    return build(KUBERNETES / folder, [])


def build(folder, found):
    """Apply a folder's kustomization to the manifests found so far."""
    [plan] = read(folder / "kustomization.yaml")
    known = {"apiVersion", "kind", "namespace", "resources", "components", "configMapGenerator", "generatorOptions",
             "images", "patches"}  # fmt: skip
    assert set(plan) <= known, f"{folder}: this resolver doesn't know {set(plan) - known}"
    found = list(found)
    for name in plan.get("resources", []):
        place = folder / name
        found += build(place, []) if place.is_dir() else read(place)
    for maker in plan.get("configMapGenerator", []):
        add_settings(folder, maker, found)
    for name in plan.get("components", []):
        found = build(folder / name, found)
    for change in plan.get("patches", []):
        for document in matching(change["target"], found):
            for step in yaml.safe_load(change["patch"]):
                apply(step, document)
    for image in plan.get("images", []):
        replace_image(image, found)
    for document in found if "namespace" in plan else []:
        key = "name" if document["kind"] == "Namespace" else "namespace"
        document["metadata"][key] = plan["namespace"]
    return found


def add_settings(folder, maker, found):
    lines = [line for name in maker.get("envs", []) for line in (folder / name).read_text().splitlines()]
    lines = [line for line in lines + maker.get("literals", []) if line and not line.startswith("#")]
    data = dict(line.split("=", 1) for line in lines)
    if maker.get("behavior") == "merge":
        [old] = matching({"kind": "ConfigMap", "name": maker["name"]}, found)
        old["data"] |= data
    else:
        metadata = {"name": maker["name"]}
        found.append({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})


def matching(target, found):
    assert set(target) <= {"kind", "name"}
    return [
        document
        for document in found
        if document["kind"] == target["kind"] and target.get("name") in (None, document["metadata"]["name"])
    ]


def apply(step, document):
    """One step of a JSON patch (RFC 6902)."""
    *parents, last = step["path"].strip("/").split("/")
    node = document
    for part in parents:
        node = node[int(part) if isinstance(node, list) else part]
    if isinstance(node, list):
        last = len(node) if last == "-" else int(last)
    value = copy.deepcopy(step["value"])
    if step["op"] == "test":
        assert node[last] == value, step
    elif step["op"] == "add" and isinstance(node, list):
        node.insert(last, value)
    else:
        assert step["op"] == "add" or node[last] is not None, step
        node[last] = value


def replace_image(image, node):
    if isinstance(node, list):
        for value in node:
            replace_image(image, value)
    elif isinstance(node, dict):
        if node.get("image") == image["name"] or str(node.get("image")).startswith(image["name"] + ":"):
            node["image"] = f"{image['newName']}:{image['newTag']}"
        for value in node.values():
            replace_image(image, value)


def pods(document):
    """The pod specs of a DaskJob or DaskCluster by role: job, scheduler, worker."""
    spec = document.get("spec")
    if document["kind"] == "DaskJob":
        return {"job": spec["job"]["spec"], **cluster_pods(spec["cluster"]["spec"])}
    return cluster_pods(spec) if document["kind"] == "DaskCluster" else {}


def cluster_pods(spec):
    return {role: spec[role]["spec"] for role in ("scheduler", "worker")}


def containers(pod):
    return [*pod.get("initContainers", []), *pod["containers"]]
