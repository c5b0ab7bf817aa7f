"""What the batch script says of an environment that can't run it: before anybody waits, in a line of the log."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.deploy.manifests import DEPLOY

BIN = Path(sys.executable).parent


def submitted(folder, programs, **more):
    """Run the script where there are these programs beside those of the system, without any of Python."""
    tools = folder / "bin"
    tools.mkdir()
    own = ("bash", "sh", "cat", "kill", "mktemp", "openssl", "rm", "seq", "sleep", "tail", "timeout")
    for name in own:
        if name not in programs and (found := shutil.which(name)):
            (tools / name).symlink_to(found)
    for name, text in programs.items():
        if text is not None:
            (tools / name).write_text(f"#!/bin/sh\n{text}\n")
            (tools / name).chmod(0o755)
    environment = {"PATH": str(tools), "HOME": str(folder), "PYTHONPATH": str(ROOT), "SLURM_JOB_ID": "7", **more}
    began = time.monotonic()
    done = subprocess.run(
        ["bash", DEPLOY / "slurm/dask-dca.sbatch", "fit", "nmf", "x.zarr", "-k", "5", "-o", "m.zarr"],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=200,
    )  # fmt: skip
    assert time.monotonic() - began < 120  # not after it has waited for its scheduler
    assert not list(folder.glob(".dask-dca-*"))
    return done.returncode, done.stderr.splitlines()


PYTHON = f'exec {sys.executable} "$@"'
DASK = f'exec {BIN / "dask"} "$@"'
BARE = f'exec {sys.executable} -S "$@"'  # a Python without packages
BROKEN = 'echo "something of openssl"; echo "no random numbers" >&2; exit 1'


@pytest.mark.parametrize(
    ("programs", "said"),
    [
        ({"dask": None, "python3": PYTHON}, "there is no dask on "),
        ({"dask": DASK, "python3": None}, "there is no python3 on "),
        ({"dask": DASK, "python3": BARE}, "can't run dask-dca (ModuleNotFoundError: No module named "),
        ({"dask": DASK, "python3": PYTHON, "openssl": None}, "there is no openssl on "),
        ({"dask": DASK, "python3": PYTHON, "openssl": BROKEN}, "openssl made no certificate: no random numbers"),
    ],
)
def test_what_lacks_is_one_line(tmp_path, programs, said):
    code, lines = submitted(tmp_path, programs)
    assert code == 1
    [line] = lines
    assert line.startswith("Error: ")
    assert said in line


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_a_scheduler_that_does_not_start_ends_the_job(tmp_path):
    programs = {"dask": DASK, "python3": PYTHON}
    code, lines = submitted(tmp_path, programs, DASK_DCA_INTERFACE="none0", TMPDIR=os.fspath(tmp_path))
    assert code == 1
    assert lines[-1] == "Error: the scheduler ended at once; why stands above"
    assert any("none0" in line for line in lines)
