"""The conda recipe, built by rattler-build; its own tests run on the package.

No channel is needed: Python is an environment of the interpreter that runs this, the other packages are empty ones of
the lowest versions that the recipe takes, and imports come from where this interpreter has them.
"""

import json
import sysconfig
from pathlib import Path

import pytest

import dask_dca
from tests.conftest import ROOT

rattler_build = pytest.importorskip("rattler_build")

PYTHON = f"python{sysconfig.get_python_version()}"
INSTALLED = sysconfig.get_path("purelib")
DASK = """mkdir -p "$PREFIX/bin"; printf '#!/bin/sh\\nexec python -m dask "$@"\\n' > "$PREFIX/bin/dask"
chmod +x "$PREFIX/bin/dask"
"""


@pytest.fixture
def channel(tmp_path):
    import sys

    folder = tmp_path / "channel"

    def stand_in(name, version, script="true"):
        place = tmp_path / name
        place.mkdir()
        build = {"script": [script], "dynamic_linking": {"binary_relocation": False}}
        recipe = {"package": {"name": name, "version": version}, "build": build, "about": {"summary": "stands in"}}
        (place / "recipe.yaml").write_text(json.dumps(recipe))
        (variant,) = rattler_build.Stage0Recipe.from_file(place / "recipe.yaml").render()
        variant.run_build(output_dir=folder, channels=[folder.as_uri()])

    own = f'{sys.executable} -m venv "$PREFIX"; echo {INSTALLED} > "$PREFIX/lib/{PYTHON}/site-packages/installed.pth"'
    stand_in("python", f"{sysconfig.get_python_version()}.99", own)
    return folder, stand_in


@pytest.mark.timeout(600)
def test_the_recipe_builds_and_its_tests_pass(channel):
    folder, stand_in = channel
    python_min = sysconfig.get_python_version()
    recipe = rattler_build.Stage0Recipe.from_file(ROOT / "deploy/conda/recipe.yaml")
    (variant,) = recipe.render(rattler_build.VariantConfig({"python_min": [python_min]}))
    needs = {*map(str, variant.recipe.requirements.run), *map(str, variant.recipe.requirements.host)}
    for need in sorted(needs):
        name, _, bound = need.partition(" >=")
        if not name.startswith("python"):
            stand_in(name, bound or "1", DASK if name == "dask-core" else "true")
    tools = rattler_build.ToolConfiguration(test_strategy="native")
    built = variant.run_build(tool_config=tools, output_dir=folder, channels=[folder.as_uri()])
    package = rattler_build.Package.from_file(built.packages[0])
    assert (package.name, package.version) == ("dask-dca", dask_dca.__version__)
    files = {Path(str(file)).as_posix() for file in package.files}
    assert {"site-packages/dask_dca/__init__.py", "site-packages/dask_dca/py.typed"} <= files
    assert not [file for file in files if file.startswith(("site-packages/tests", "site-packages/benchmarks"))]
