"""What a release is made of: one version, links that work elsewhere, workflows that call what there is."""

import re
import tomllib

import pytest
import yaml

import dask_dca
from tests.conftest import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))


def test_one_version():
    assert "version" in PROJECT["dynamic"]
    released = dask_dca.__version__.partition(".dev")[0]
    kept = [
        *ROOT.glob("deploy/kubernetes/**/*.yaml"),
        *ROOT.glob("deploy/helm/*.yaml"),
        ROOT / "docs/running/kubernetes.md",
    ]
    found = re.findall(
        r"(?:newTag: |\btag: |example\.org/dask-dca:)\"?([0-9][\w.]*)", "\n".join(p.read_text() for p in kept)
    )
    assert len(found) > 5
    assert set(found) == {released}


def test_the_conda_recipe_asks_for_what_the_project_asks_for():
    recipe = yaml.safe_load((ROOT / "deploy/conda/recipe.yaml").read_text())
    assert recipe["context"]["version"] == dask_dca.__version__
    (least,) = yaml.safe_load((ROOT / "deploy/conda/variants.yaml").read_text())["python_min"]
    assert PROJECT["requires-python"] == f">={least}"
    conda = {"dask[array,distributed]": ("dask-core", "distributed"), "matplotlib": ("matplotlib-base",)}

    def named(needs):
        for need in needs:
            name, _, bound = need.partition(">=")
            yield from (f"{each} >={bound}" for each in conda.get(name, (name,)))

    extras = PROJECT["optional-dependencies"]
    single = [need for name, needs in extras.items() if name not in ("all", "dataframe") for need in needs]
    run = recipe["requirements"]["run"]
    assert set(run) == {"python >=${{ python_min }}", *named(PROJECT["dependencies"])}
    assert set(recipe["requirements"]["run_constraints"]) == set(named(single))


def test_links_of_the_readme_work_on_a_package_index():
    pytest.importorskip("hatchling")
    import sys

    sys.path.insert(0, str(ROOT))
    try:
        from hatch_build import absolute
    finally:
        sys.path.remove(str(ROOT))
    text = "![a](docs/a.png) [b `c`](d/e.md#f) [g](https://h) [i](#j)"
    wanted = "![a](S/raw/main/docs/a.png) [b `c`](S/blob/main/d/e.md#f) [g](https://h) [i](#j)"
    assert absolute(text, "S") == wanted
    shown = absolute((ROOT / "README.md").read_text(), PROJECT["urls"]["Source"])
    assert not [link for link in re.findall(r"\]\(([^)]+)\)", shown) if not link.startswith(("https://", "#"))]


def test_the_repository_has_one_address():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["repository-code"] == PROJECT["urls"]["Source"]
    assert all(url.startswith(PROJECT["urls"]["Source"]) for url in PROJECT["urls"].values())


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_call_targets_that_there_are(path):
    jobs = yaml.safe_load(path.read_text())["jobs"]
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    runs = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    for target in re.findall(r"\bmake ([\w-]+)", "\n".join(run for run in runs if "apt-get" not in run)):
        assert target in targets


def test_every_python_is_tested():
    tested = yaml.safe_load((ROOT / ".github/workflows/test.yml").read_text())["jobs"]["test"]["strategy"]["matrix"][
        "python"
    ]
    named = [each.rpartition(" ")[2] for each in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", each)]
    assert tested == named


def test_the_source_archive_holds_what_its_tests_need():
    [archive] = [
        tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    ]
    for name in archive:
        assert [*ROOT.glob(name.lstrip("/"))], name
    for path in ROOT.iterdir():
        if path.name[0] != "." and path.name not in ("__pycache__", "demo", "dist", "jupyter_execute", "site"):
            assert path.name in archive or path.suffix == ".md" or path.name == "pyproject.toml", path.name
