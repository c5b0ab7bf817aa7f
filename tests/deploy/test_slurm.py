"""The batch script, and what dask-jobqueue makes of its settings."""

import gc
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import dask
import numpy as np
import pytest
import yaml
import zarr
from dask.utils import parse_timedelta

import dask_dca as dca
from tests.conftest import ROOT, planted
from tests.deploy.manifests import DEPLOY
from tests.deploy.validator import command


@pytest.mark.skipif(importlib.util.find_spec("dask_jobqueue") is None, reason="dask-jobqueue is not installed")
def test_jobqueue_asks_slurm_for_what_the_settings_say(tmp_path, monkeypatch):
    from dask_jobqueue import SLURMCluster

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    defaults = dask.config.get("jobqueue.slurm")
    settings = yaml.safe_load((DEPLOY / "slurm/jobqueue.yaml").read_text())["jobqueue"]["slurm"]
    assert_leaves_in_time(settings)
    assert set(settings) <= set(defaults)
    settings["scheduler-options"] = {"dashboard_address": "127.0.0.1:0"}
    with (
        dask.config.set({"jobqueue.slurm": {**defaults, **settings}}),
        SLURMCluster(n_workers=0, protocol="tls://", security=True, interface="lo") as cluster,
    ):
        script = os.path.expandvars(cluster.job_script())
        [line] = [line for line in script.splitlines() if "distributed.cli.dask_worker" in line]
        words = line.split()
        assert command(["dask", "worker", *words[words.index("distributed.cli.dask_worker") + 1 :]]) == []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # it leaves the files of its keys open
        del cluster
        gc.collect()
    assert "#SBATCH --cpus-per-task=4" in script
    assert "#SBATCH --mem=16G" in script
    assert "export OPENBLAS_NUM_THREADS=1" in script
    assert "--tls-ca-file" in words


def assert_leaves_in_time(settings):
    """Workers end before their job does, with time to hand over what they hold."""
    extra = dict(zip(settings["worker-extra-args"][::2], settings["worker-extra-args"][1::2], strict=True))
    latest = parse_timedelta(extra["--lifetime"]) + parse_timedelta(extra["--lifetime-stagger"])
    hours, minutes, _ = map(int, settings["walltime"].split(":"))
    assert latest + 300 <= 3600 * hours + 60 * minutes


class TestSlurm:
    """The batch script, with an `srun` that starts its tasks on this machine."""

    srun = """while [ "${1#--}" != "$1" ]; do shift; done
exec "$@" # one task; signals reach it, as through srun
"""

    def run(self, folder, *args, dask=None, stop=None, **more):
        tools = folder / "bin"
        tools.mkdir()
        programs = {"srun": self.srun, "python3": f'exec {sys.executable} "$@"\n'}  # of an environment that is active
        programs["dask"] = dask or f'exec {Path(sys.executable).with_name("dask")} "$@"\n'
        for name, text in programs.items():
            (tools / name).write_text(f"#!/bin/sh\n{text}")
            (tools / name).chmod(0o755)
        given = {"SLURM_JOB_ID": "7", "SLURM_CPUS_PER_TASK": "1", "SLURM_MEM_PER_CPU": "1000"}
        outer = {name: value for name, value in os.environ.items() if not name.startswith("DASK_")}
        environment = {**outer, "PATH": f"{tools}:{outer['PATH']}", "PYTHONPATH": str(ROOT), **given, **more}
        with subprocess.Popen(
            ["bash", DEPLOY / "slurm/dask-dca.sbatch", *args],
            cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        ) as job:  # fmt: skip
            if stop is not None:
                while not stop.exists():
                    assert job.poll() is None
                job.terminate()
            said = job.communicate(timeout=120)[0]
        assert not list(folder.glob(".dask-dca-*"))  # its certificates are gone
        return job.returncode, said

    def test_a_node_that_is_lost_ends_neither_the_job_nor_its_step(self):
        """What SLURM makes of it is seen in tests/infra."""
        text = (DEPLOY / "slurm/dask-dca.sbatch").read_text()
        assert "#SBATCH --no-kill\n" in text
        assert re.search(r"^srun .*--no-kill .*--kill-on-bad-exit=0 ", text, re.MULTILINE)

    def test_a_job_without_options_has_what_the_page_says(self):
        script, page = ((ROOT / name).read_text() for name in ("deploy/slurm/dask-dca.sbatch", "docs/running/slurm.md"))
        asked = dict(re.findall(r"^#SBATCH --([\w-]+)=(\S+)$", script, re.MULTILINE))
        assert "two nodes, four workers on each, of two cores and 8 GB, for four hours" in " ".join(page.split())
        named = ("nodes", "ntasks-per-node", "cpus-per-task", "mem-per-cpu", "time")
        assert [asked[name] for name in named] == ["2", "4", "2", "4G", "04:00:00"]

    slow = """import asyncio

async def dask_setup(scheduler):
    answer = scheduler.handlers["heartbeat_worker"]

    async def slowly(*args, **named):
        await asyncio.sleep(2)
        return answer(*args, **named)

    scheduler.handlers["heartbeat_worker"] = slowly
"""

    @pytest.mark.cluster
    @pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
    def test_it_fits_on_its_workers_and_ends_without_a_word_of_errors(self, tmp_path):
        """Though nearly always a heartbeat is under way, which a worker that ends would tell as a traceback."""
        X, _ = planted(3000, 30, 5, dtype=np.float32)
        zarr.create_array(tmp_path / "x.zarr", data=X, chunks=(600, 30))
        (tmp_path / "slow.py").write_text(self.slow)
        slow = {"DASK_DISTRIBUTED__SCHEDULER__PRELOAD": f'["{tmp_path}/slow.py"]'}
        code, said = self.run(tmp_path, "fit", "nmf", "x.zarr", "-k", "5", "-o", "m.zarr", **slow)
        assert code == 0, said
        assert "Nanny asking worker to close" in said, said
        assert not re.search("Traceback|ERROR|WARNING", said), said
        model = dca.load_model(tmp_path / "m.zarr")
        np.testing.assert_array_equal(model.anchor_indices_, dca.NMF(5).fit(X).anchor_indices_)
        assert "tls://" in said
        assert said.count("Register worker") == 1

    stub = """case $1 in
scheduler) while [ "$1" != --scheduler-file ]; do shift; done; echo {} > "$2"; exec sleep 60 ;;
worker) exec sleep 60 ;;
dca) %s ;;
esac
"""

    @pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
    def test_it_ends_as_its_fit_ends(self, tmp_path):
        code, said = self.run(tmp_path, "fit", "nmf", "none.zarr", dask=self.stub % 'echo "$@"; exit 2')
        assert code == 2
        assert said.startswith("dca fit nmf none.zarr --scheduler-file")

    @pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
    def test_a_fit_is_told_when_the_time_is_over(self, tmp_path):
        patient = f"trap 'echo tidy; exit 143' TERM; touch {tmp_path}/ready; while :; do sleep 0.1; done"
        code, said = self.run(tmp_path, "fit", dask=self.stub % patient, stop=tmp_path / "ready")
        assert code == 143
        assert "tidy" in said
