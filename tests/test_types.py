"""Types are whole: mypy, as `make lint` runs it, here beside the other tests."""

import subprocess
import sys

from tests.conftest import ROOT


def test_mypy_finds_nothing():
    done = subprocess.run([sys.executable, "-m", "mypy"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
