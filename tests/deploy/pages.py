"""
The commands of docs/running, and who runs each: a test, which takes them from here, or none, and why.

A page's entries stand in the order of its commands; each is how the command begins. test_pages.py compares.
"""

import re

from tests.conftest import ROOT

FOLDER = ROOT / "docs/running"
CHART = "no: the program helm and this chart are in no package index; tests/infra/test_helm.py has Helm's engine"
FORWARD = "no: kubectl forwards ports by a stream to a node's kubelet, which the API server in memory doesn't have"
NOTEBOOK = "no: the notebook's image is built by the workflow `image` alone"
OPERATOR = "no: there is no program helm; tests/infra runs the operator itself, and Helm's engine on its chart"
WORKERS = "tests/cluster/test_page_of_workers.py::test_every_command_runs_in_this_order"
LAB = "tests/jupyter/lab.py::jupyter_lab"
STORE = "tests/infra/test_object_store.py::test_the_page_from_installation_to_a_report"
GATEWAY = "tests/infra/test_gateway.py::gateway"
IMAGE = "tests/infra/test_image.py::image"
SLIM = "tests/infra/test_image.py::slim"
DEMO = "tests/infra/test_image.py::test_the_image_runs_the_demo_without_any_right"
AROUND = "tests/infra/test_operator.py::test_what_is_around_the_chart_dask_is_taken"
DEV = "tests/infra/test_operator.py::test_a_job_on_one_node_makes_its_own_data"
JOB = "tests/infra/test_operator.py::test_a_job_from_its_manifest_to_its_model"
CLUSTER = "tests/infra/test_operator.py::test_a_hundred_workers_come_and_all_but_ten_go_without_what_they_hold"
TLS = "tests/infra/test_operator.py::test_a_job_over_tls"
PRODUCTION = "tests/infra/test_operator.py::test_a_job_with_all_components"
SLURM = "tests/infra/test_slurm.py::test_the_commands_of_the_page"
COMMANDS = {
    "faults.md": [],
    "index.md": [
        ("pip install", STORE),
        ("export AWS_ACCESS_KEY_ID", STORE),
        ("export AWS_ENDPOINT_URL", STORE),
        ("export MALLOC_MMAP", STORE),
    ],
    "jupyter.md": [
        ("cd dask-dca", LAB),
        ("pip install", "no: make installs the same into .venv, by the group `test`"),
        ("mkdir -p ~/.config/dask", LAB),
        ("jupyter lab", LAB),
        ("docker build", NOTEBOOK),
        ("docker run", NOTEBOOK),
        ("hash=$(docker run", NOTEBOOK),
        ("printf", NOTEBOOK),
        ("kubectl apply -f deploy/helm/dask-around.yaml", AROUND),
        ("helm install", CHART),
        ("kubectl port-forward", FORWARD),
        ("helm install", CHART),
        ("kubectl port-forward", FORWARD),
        ("export DASK_GATEWAY_PASSWORD", GATEWAY),
        ("dask-gateway-server", GATEWAY),
    ],
    "kubernetes.md": [
        ("helm install", OPERATOR),
        ("docker build", IMAGE),
        ("docker push", "no: there is no registry"),
        ("docker build", SLIM),
        ("docker run", DEMO),
        ("docker build", "no: the same build under another name"),
        ("kind load", "no: kind is in no package index, and needs a container engine"),
        ("kubectl apply -k deploy/kubernetes/overlays/dev", DEV),
        ("kubectl -n dask-dca get daskjob", DEV),
        ("kubectl -n dask-dca logs", DEV),
        ("kubectl apply -f deploy/kubernetes/base/namespace.yaml", JOB),
        ("kubectl -n dask-dca create secret generic object-store", JOB),
        ("kubectl apply -k deploy/kubernetes/job", JOB),
        ("kubectl -n dask-dca get daskjob", JOB),
        ("kubectl -n dask-dca logs", JOB),
        ("kubectl -n dask-dca port-forward", FORWARD),
        ("dask dca info", JOB),
        ("kubectl apply -k deploy/kubernetes/cluster", CLUSTER),
        ("kubectl -n dask-dca get daskcluster,daskautoscaler", CLUSTER),
        ("kubectl -n dask-dca port-forward", FORWARD),
        ("dask dca fit", CLUSTER),
        ("deploy/kubernetes/secrets/make-certificates.sh", TLS),
        ("kubectl apply -f deploy/kubernetes/base/namespace.yaml", TLS),
        ("kubectl -n dask-dca create secret generic dask-tls", TLS),
        ("kubectl apply -k deploy/kubernetes/overlays/tls", TLS),
        ("kubectl -n dask-dca logs", TLS),
        ("kubectl apply -k deploy/kubernetes/overlays/production", PRODUCTION),
    ],
    "slurm.md": [
        (". env/bin/activate", SLURM),
        ("sbatch --nodes=4", SLURM),
        ("squeue", SLURM),
        ("tail", SLURM),
        ("grep", SLURM),
        ("dask dca info", SLURM),
        ("sbatch --nodes=4", SLURM),
        ("ssh", "no: the nodes of tests/infra have no server of ssh"),
    ],
    "workers.md": [
        ("python -c", WORKERS),
        ("dask dca fit", WORKERS),
        ("dask scheduler", WORKERS),
        ("dask worker", WORKERS),
        ("until", WORKERS),
        ("dask dca fit", WORKERS),
        ("dask dca transform", WORKERS),
        ("dask dca info", WORKERS),
        ("kill", WORKERS),
        ("kill", WORKERS),
    ],
}  # fmt: skip
OWN = "tests/deploy/test_pages.py::test_fits_of_the_page_of_jupyter"
ALIKE = "no: needs a cluster over TLS that stays; the lines are those of the other pages' tests"
SCRIPTS = {  # the blocks of Python that are no doctests
    "index.md": [STORE],
    "jupyter.md": [OWN, OWN, ALIKE, "tests/infra/test_hub.py::test_a_notebook_fits_through_the_gateway"],
    "slurm.md": ["tests/infra/test_slurm.py::test_jobqueue_has_workers_while_there_is_work"],
}


def blocks(page, language):
    """Fenced blocks of a page."""
    return re.findall(rf"^```{language}\n(.*?)^```", (FOLDER / page).read_text(), re.DOTALL | re.MULTILINE)


def commands(page):
    """Commands of a page, one a line, without their comments."""
    lines = "".join(blocks(page, "sh")).replace("\\\n", " ").splitlines()
    return [line for line in (re.sub(r"\s+#.*$", "", line).strip() for line in lines) if line]


def by(test):
    """The commands that a test is to run."""
    pairs = [pair for page, own in COMMANDS.items() for pair in zip(own, commands(page), strict=True)]
    found = [command for (_, who), command in pairs if who.endswith(f"::{test}")]
    assert found, test
    return found


def scripts(test):
    """The blocks of Python that a test is to run."""
    pairs = [pair for page, own in SCRIPTS.items() for pair in zip(own, blocks(page, "py"), strict=True)]
    return [script for who, script in pairs if who.endswith(f"::{test}")]
