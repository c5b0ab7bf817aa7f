"""The scripts in examples/ run as they are, in an empty folder."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))


def output_of(script, folder):
    done = subprocess.run([sys.executable, script], cwd=folder, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.cluster
@pytest.mark.parametrize("script", EXAMPLES, ids=lambda script: script.stem)
def test_example(script, tmp_path):
    printed = output_of(script, tmp_path)
    assert printed
    if script.stem == "anchors_of_a_zarr_array":
        named = {line.partition(": ")[2] for line in printed.splitlines() if line.startswith("day ")}
        assert named == {"morning", "noon", "evening", "night"}
    if script.stem == "minerals_of_a_library":
        mixed, named, constant, lacking = printed.splitlines()
        assert mixed.partition(": ")[2].strip() == named.partition(": ")[2].strip()
        assert "mixed in: True" in constant
        assert "noticed: True" in lacking
    if script.stem in ("anchors_of_a_zarr_array", "topics_of_articles"):
        assert "saved and loaded: True" in printed
