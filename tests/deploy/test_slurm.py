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
from tests.conftest import ROOT, SOAK_ONLY, planted
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
    """The batch script; what SLURM makes of it is seen in tests/infra."""

    script = DEPLOY / "slurm/dask-dca.sbatch"

    def test_a_node_that_is_lost_ends_neither_the_job_nor_its_step(self):
        text = self.script.read_text()
        assert "#SBATCH --no-kill\n" in text
        assert re.search(r"^srun .*--no-kill .*--kill-on-bad-exit=0 ", text, re.MULTILINE)

    def test_a_job_without_options_has_what_the_page_says(self):
        script, page = self.script.read_text(), (ROOT / "docs/running/slurm.md").read_text()
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
    @SOAK_ONLY  # and by make test-infra on a real SLURM
    def test_it_fits_on_its_worker_and_ends_without_a_word_of_errors(self, tmp_path):
        """Though nearly always a heartbeat is under way, which a worker that ends would tell as a traceback."""
        X, _ = planted(3000, 30, 5, dtype=np.float32)
        zarr.create_array(tmp_path / "x.zarr", data=X, chunks=(600, 30))
        (tmp_path / "slow.py").write_text(self.slow)
        slow = {"DASK_DISTRIBUTED__SCHEDULER__PRELOAD": f'["{tmp_path}/slow.py"]'}
        code, said = self.one_task(tmp_path, "fit", "nmf", "x.zarr", "-k", "5", "-o", "m.zarr", **slow)
        assert code == 0, said
        assert "Nanny asking worker to close" in said, said
        busy = "WARNING - Worker process still alive"  # of a machine that has no time for its end
        assert not re.search("Traceback|ERROR|WARNING", said.replace(busy, "")), said
        model = dca.load_model(tmp_path / "m.zarr")
        np.testing.assert_array_equal(model.anchor_indices_, dca.NMF(5).fit(X).anchor_indices_)
        assert "tls://" in said
        assert said.count("Register worker") == 1
        assert not list(tmp_path.glob(".dask-dca-*"))  # its certificates are gone

    def one_task(self, folder, *args, **more):
        """The script's exit code and log, without `srun`: the one worker is started on this machine."""
        text, found = re.subn(r"^srun --no-kill --kill-on-bad-exit=0 ", "", self.script.read_text(), flags=re.MULTILINE)
        assert found == 1
        given = {"SLURM_JOB_ID": "7", "SLURM_CPUS_PER_TASK": "1", "SLURM_MEM_PER_CPU": "1000"}
        outer = {name: value for name, value in os.environ.items() if not name.startswith(("DASK_", "SLURM_"))}
        path = {"PATH": f"{Path(sys.executable).parent}:{outer['PATH']}", "PYTHONPATH": str(ROOT)}
        job = subprocess.run(
            ["bash", "-c", text, "bash", *args], cwd=folder, env={**outer, **path, **given, **more},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=200, check=False,
        )  # fmt: skip
        return job.returncode, job.stdout
