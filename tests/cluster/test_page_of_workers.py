"""The page that tells how to run on N workers: all of its commands, one after the other."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import zarr

import dask_dca as dca
from tests.conftest import ROOT, bits
from tests.deploy import pages


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_every_command_runs_in_this_order(tmp_path):
    commands = "\n".join(pages.by("test_every_command_runs_in_this_order"))
    outer = {name: value for name, value in os.environ.items() if not name.startswith("DASK_")}
    path = {"PATH": f"{Path(sys.executable).parent}:{outer['PATH']}", "PYTHONPATH": str(ROOT)}
    script = f"set -euo pipefail\ntrap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n{commands}"
    command = ["bash", "-c", script]
    said = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with subprocess.Popen(command, cwd=tmp_path, env={**outer, **path}, start_new_session=True, **said) as shell:
        try:
            output, _ = shell.communicate(timeout=280)
        except subprocess.TimeoutExpired:
            os.killpg(shell.pid, signal.SIGTERM)  # what it has started, too
            raise
    assert shell.returncode == 0, output
    assert "dashboard: http://" in output
    assert all(f"Saved as {name}.zarr" in output for name in ("model", "again"))
    model = dca.load_model(tmp_path / "model.zarr")
    assert bits(model) == bits(dca.load_model(tmp_path / "again.zarr"))
    assert zarr.open_array(tmp_path / "maps.zarr", mode="r").shape == (40_000, 9)
    assert (tmp_path / "model.checkpoint" / "fit.json").exists()
    assert "End scheduler" in (tmp_path / "scheduler.log").read_text()  # nothing is left running
