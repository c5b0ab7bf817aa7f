"""The scripts in examples/ run as they are, in an empty folder."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))


@pytest.mark.cluster
def test_anchors_of_a_zarr_array_are_the_four_profiles(tmp_path):
    (script,) = EXAMPLES
    done = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    named = {line.partition(": ")[2] for line in done.stdout.splitlines() if line.startswith("day ")}
    assert named == {"morning", "noon", "evening", "night"}
    assert "saved and loaded: True" in done.stdout
