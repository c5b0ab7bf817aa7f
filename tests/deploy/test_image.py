"""The image, its packages and its scripts; what is linted."""

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
from itertools import chain
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests.conftest import ROOT
from tests.deploy.manifests import DEPLOY

IMAGE = DEPLOY / "image"
DOCKERFILE = (IMAGE / "Dockerfile").read_text()
BESIDE = re.search(r'^ARG BESIDE="(.*)"$', DOCKERFILE, re.MULTILINE)[1].split()


def tool(name):
    """A linter that pip put beside Python, or that is installed otherwise."""
    found = shutil.which(name, path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    return found or pytest.skip(f"{name} is not installed")


def lint(*args):
    done = subprocess.run(args, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_yamllint():
    lint(tool("yamllint"), "--strict", "-c", DEPLOY / ".yamllint", DEPLOY)


def test_hadolint(tmp_path):
    lint(tool("hadolint"), IMAGE / "Dockerfile")
    (tmp_path / "Dockerfile").write_text("FROM debian\nRUN apt-get install tini\n")  # it does find mistakes
    assert subprocess.run([tool("hadolint"), tmp_path / "Dockerfile"], capture_output=True).returncode == 1


def test_scripts_are_scripts():
    for path in [*(IMAGE / "bin").iterdir(), DEPLOY / "kubernetes/secrets/make-certificates.sh"]:
        assert os.access(path, os.X_OK), path
        if path.read_text().startswith("#!/bin/sh"):
            lint("sh", "-n", path)
        else:
            ast.parse(path.read_text())
    lint("bash", "-n", DEPLOY / "slurm/dask-dca.sbatch")


class TestImage:
    def test_the_base_is_pinned(self):
        [base] = re.findall(r"^ARG PYTHON=(.*)$", DOCKERFILE, re.MULTILINE)
        assert re.fullmatch(r"python:3\.\d+\.\d+-slim-bookworm@sha256:[0-9a-f]{64}", base)
        sources = re.findall(r"^FROM (\S+) AS (\S+)$", DOCKERFILE, re.MULTILINE)
        stages = {name for _, name in sources}
        assert {source for source, _ in sources} <= stages | {"${PYTHON}"}

    @pytest.mark.parametrize("stage", ["default", "notebook"])
    def test_it_does_not_run_as_root(self, stage):
        text = DOCKERFILE.partition(f"FROM base AS {stage}\n")[2].partition("\nFROM ")[0]
        assert "USER 1000:1000" in text.splitlines()
        assert 'ENTRYPOINT ["tini", "-g", "--"]' in DOCKERFILE.partition(" AS base\n")[2].partition("\nFROM ")[0]

    def test_numbers_are_told_and_the_notebooks_hub_is_that_of_the_chart(self):
        assert {"bokeh", "dask-gateway", "prometheus-client"} == set(BESIDE)  # /metrics is empty without the last
        assert re.search(r"^jupyterhub==5\.", (IMAGE / "constraints.txt").read_text(), re.MULTILINE)

    def test_default_is_the_last_stage(self):
        assert re.findall(r"^FROM .* AS (\S+)$", DOCKERFILE, re.MULTILINE)[-1] == "default"

    def test_what_is_copied_is_there_and_not_ignored(self):
        allowed = [line[1:] for line in (IMAGE / "Dockerfile.dockerignore").read_text().splitlines() if line[:1] == "!"]
        for line in re.findall(r"^COPY (?!--from)(.*)$", DOCKERFILE, re.MULTILINE):
            *sources, _ = [word for word in line.split() if not word.startswith("--")]
            for source in sources:
                assert (ROOT / source).exists(), source
                assert source.rstrip("/") in allowed

    def test_versions_of_all_packages_are_pinned_and_suit(self):
        lines = (IMAGE / "constraints.txt").read_text().splitlines()
        pinned = dict(line.split("==") for line in lines if not line.startswith("#"))
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        wanted = [*project["dependencies"], *chain(*project["optional-dependencies"].values())]
        for text in [
            *wanted,
            *BESIDE,
            "jupyterlab",
            "jupyterhub",
            "dask-labextension",
            "hatchling",
        ]:
            need = Requirement(text)
            if need.name != project["name"]:
                assert need.specifier.contains(Version(pinned[canonicalize_name(need.name)])), text

    @pytest.mark.parametrize("name", ["scheduler", "worker"])
    def test_old_commands_lead_to_those_of_today(self, name, tmp_path):
        fake = tmp_path / "dask"
        fake.write_text('#!/bin/sh\necho "$@"\n')
        fake.chmod(0o755)
        path = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
        said = subprocess.run(
            [IMAGE / "bin" / f"dask-{name}", "a b", "--port"], env=path, capture_output=True, text=True
        )
        assert said.stdout == f"{name} a b --port\n"


def test_workers_keep_the_same_memory_wherever_they_are_started():
    """The thresholds of `dask dca --workers` stand in every file that sets the environment of workers."""
    from dask_dca.cli.clusters import _MALLOC_CONFIG

    settings = ("image/Dockerfile", "slurm/dask-dca.sbatch", "slurm/jobqueue.yaml", "gateway/dask_gateway_config.py")
    for path in (*settings, "helm/daskhub.yaml"):
        text = (IMAGE.parent / path).read_text()
        found = dict(re.findall(r"(MALLOC_\w+_)\W{1,4}(\d+)", text))
        assert found == {name.rpartition(".")[2]: str(value) for name, value in _MALLOC_CONFIG.items()}, path
