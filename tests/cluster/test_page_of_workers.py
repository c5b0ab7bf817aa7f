"""The page that tells how to run on N workers: all of its commands, one after the other."""

import os
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import zarr
from click.testing import CliRunner

import dask_dca as dca
from dask_dca.cli.main import main
from tests.cluster.workers import MARKS
from tests.conftest import ROOT, bits
from tests.deploy import pages

pytestmark = MARKS


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_every_command_runs_in_this_order(tmp_path, monkeypatch):
    """Those of this library in this process, which has imported what they need; the others in one shell."""
    monkeypatch.chdir(tmp_path)
    outer = {name: value for name, value in os.environ.items() if not name.startswith("DASK_")}
    path = {"PATH": f"{Path(sys.executable).parent}:{outer['PATH']}", "PYTHONPATH": str(ROOT)}
    said = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "start_new_session": True}
    output = ""
    with subprocess.Popen(["bash"], env={**outer, **path}, **said) as shell:
        try:
            for line in "\n".join(pages.by("test_every_command_runs_in_this_order")).splitlines():
                if line.startswith("dask dca "):
                    ran = CliRunner().invoke(main, shlex.split(line)[2:], catch_exceptions=False)
                    assert ran.exit_code == 0, (line, ran.output)
                    output += ran.output
                else:
                    print(f"{line}\necho $?", file=shell.stdin, flush=True)
                    assert shell.stdout.readline() == "0\n", line
        finally:
            os.killpg(shell.pid, signal.SIGTERM)  # what it has started, too
    assert "dashboard: http://" in output
    assert all(f"Saved as {name}.zarr" in output for name in ("model", "again"))
    model = dca.load_model(tmp_path / "model.zarr")
    assert bits(model) == bits(dca.load_model(tmp_path / "again.zarr"))
    assert zarr.open_array(tmp_path / "maps.zarr", mode="r").shape == (40_000, 9)
    assert (tmp_path / "model.checkpoint" / "fit.json").exists()
    assert "End scheduler" in (tmp_path / "scheduler.log").read_text()  # nothing is left running
