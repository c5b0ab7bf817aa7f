"""The batch script as it is on two nodes of SLURM: over TLS, cancelled, out of time, with a node that is lost."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest
import zarr

import dask_dca as dca
from tests.conftest import bits, planted
from tests.deploy import pages
from tests.deploy.manifests import DEPLOY
from tests.infra import slurm as machine
from tests.infra.conftest import wait_for

SCRIPT = DEPLOY / "slurm/dask-dca.sbatch"
SMALL = ("--ntasks-per-node=1", "--cpus-per-task=1")  # of a machine that has few cores


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    with machine.cluster(tmp_path_factory.mktemp("slurm")) as cluster:
        yield cluster


@pytest.fixture
def place(slurm, request, pixels):
    folder = slurm.folder / request.node.name
    folder.mkdir()
    zarr.create_array(folder / "x.zarr", data=pixels[0], chunks=(600, 30))
    return folder


def fit(out="m.zarr"):
    return "fit", "nmf", "x.zarr", "-k", "5", "-o", out, "--checkpoint", "kept"


def tidy(folder):
    """Certificates are gone, nothing half-written is left."""
    return not [path.name for path in folder.glob(".*")]


def test_it_fits_on_two_nodes_and_ends_in_order(slurm, place, pixels):
    job = slurm.submit(place, *SMALL, SCRIPT, *fit())
    assert slurm.ended(job) == ("COMPLETED", "0:0"), slurm.log(job)
    assert bits(dca.load_model(place / "m.zarr")) == bits(pixels[1])
    said = slurm.log(job)
    assert len(set(re.findall(r"Register worker addr: tls://(10\.77\.0\.\d)", said))) == 2  # one on each node
    assert "tcp://" not in said
    for trouble in ("Traceback", "srun: error", "CANCELLED", "Error"):
        assert trouble not in said, said
    assert tidy(place)


def test_the_commands_of_the_page(slurm, place):
    """In a folder with the script, the data and an environment; of four nodes there are two."""
    X, _ = planted(3000, 30, 20)
    zarr.create_array(place / "pixels.zarr", data=X, chunks=(600, 30))
    shutil.copy(SCRIPT, place)
    (place / "env").symlink_to(sys.prefix)
    activate, fit, queue, follow, grep, info, transform = pages.by("test_the_commands_of_the_page")

    def shell(line):
        line = line.replace("--nodes=4", " ".join(["--nodes=2", *SMALL])).replace("tail -f", "tail -n +1")
        return slurm.run("bash", "-ec", f"{activate}\n{line}", cwd=place)

    job = shell(fit).split()[-1]
    assert job in shell(queue)
    assert slurm.ended(job) == ("COMPLETED", "0:0"), slurm.log(job)
    said = shell(follow)
    assert "Register worker" in said
    assert "Saved as model.zarr" in said
    assert shell(grep).splitlines()[-1] == "Saved as model.zarr"
    assert "Coverage" in shell(info)
    assert slurm.ended(shell(transform).split()[-1]) == ("COMPLETED", "0:0")
    fitted = dca.NMF(20).fit(X)
    assert bits(dca.load_model(place / "model.zarr")) == bits(fitted)
    assert zarr.open_array(place / "coefficients.zarr", mode="r")[:].tobytes() == fitted.transform(X).tobytes()


def test_a_fit_that_fails_is_a_job_that_fails(slurm, place):
    job = slurm.submit(place, *SMALL, SCRIPT, "fit", "nmf", "none.zarr", "-k", "5", "-o", "m.zarr")
    assert slurm.ended(job) == ("FAILED", "2:0"), slurm.log(job)
    assert "Error: there is nothing at 'none.zarr'" in slurm.log(job)
    assert tidy(place)


PATIENT = """#!/bin/sh
# A fit that takes its time, for what happens to it meanwhile.
case "$1 $2" in
"dca fit") trap 'echo tidy; exit 143' TERM; echo patient; while :; do sleep 0.2; done ;;
*) exec {dask} "$@" ;;
esac
"""


@pytest.fixture
def patient(slurm, place, monkeypatch):
    from tests.infra.conftest import BIN

    folder = place / "bin"
    folder.mkdir()
    (folder / "dask").write_text(PATIENT.format(dask=BIN / "dask"))
    (folder / "dask").chmod(0o755)
    monkeypatch.setitem(slurm.environment, "PATH", f"{folder}:{slurm.environment['PATH']}")


def test_a_job_that_is_cancelled_tells_its_fit(slurm, place, patient):
    job = slurm.submit(place, *SMALL, SCRIPT, *fit())
    wait_for(lambda: "patient" in slurm.log(job), 120, lambda: slurm.log(job))
    slurm.run("scancel", "--batch", "--signal=TERM", job)
    assert slurm.ended(job)[0] == "FAILED"
    assert "tidy" in slurm.log(job)
    assert tidy(place)


def test_a_job_whose_time_is_over_tells_its_fit_before(slurm, place, patient):
    began = time.monotonic()
    job = slurm.submit(place, *SMALL, "--time=2", "--signal=B:TERM@15", SCRIPT, *fit())  # up to a minute earlier
    state, _ = slurm.ended(job)
    assert state == "FAILED"  # by its own exit code, before SLURM ends it as TIMEOUT
    assert time.monotonic() - began < 120
    assert "tidy" in slurm.log(job)
    assert tidy(place)


def test_a_node_that_is_lost_costs_its_worker_alone(slurm, place, patient, pixels):
    job = slurm.submit(place, *SMALL, SCRIPT, *fit())
    wait_for(lambda: slurm.log(job).count("Register worker") == 2, 120, lambda: slurm.log(job))
    lost = slurm.daemons[slurm.nodes[1]]
    for process in in_namespace(slurm.nodes[1]):
        os.kill(process, signal.SIGKILL)
    lost.wait(10)
    wait_for(lambda: "Remove worker" in slurm.log(job), 120, lambda: slurm.log(job))
    wait_for(lambda: "down" in slurm.run("sinfo", "-h", "-o", "%t"), 90, "the node is not given up")
    assert slurm.state(job)[0] == "RUNNING"
    slurm.run("scancel", "--batch", "--signal=TERM", job)
    slurm.ended(job)
    assert "tidy" in slurm.log(job)


def in_namespace(name):
    """Processes of a node."""
    return [int(word) for word in subprocess.check_output(["ip", "netns", "pids", name]).split()]


SCALES = """
import time

model.save("m.zarr")
print("workers", *client.scheduler_info(n_workers=-1)["workers"])
end = time.monotonic() + 60
while client.scheduler_info(n_workers=-1)["workers"]:
    assert time.monotonic() < end, "workers stay"
    time.sleep(0.2)
client.close()
cluster.close()
"""


def test_jobqueue_has_workers_while_there_is_work(slurm, place):
    """The page's own lines, with its settings, as a user's script on the first node."""
    pytest.importorskip("dask_jobqueue", reason="dask-jobqueue is not installed")
    X, _ = planted(3000, 30, 20)
    zarr.create_array(place / "pixels.zarr", data=X, chunks=(600, 30))
    (place / ".config/dask").mkdir(parents=True)
    shutil.copy(DEPLOY / "slurm/jobqueue.yaml", place / ".config/dask")
    [lines] = pages.scripts("test_jobqueue_has_workers_while_there_is_work")
    (place / "fit.py").write_text(lines + SCALES)
    settings = [f"HOME={place}", f"DASK_JOBQUEUE__SLURM__INTERFACE={machine.FAST}"]
    said = slurm.run("env", *settings, sys.executable, "fit.py", cwd=place)
    assert "#SBATCH" in said
    assert re.search(r"^workers tls://10\.77\.0\.\d:", said, re.MULTILINE)
    assert bits(dca.load_model(place / "m.zarr")) == bits(dca.NMF(20).fit(X))
    wait_for(lambda: not slurm.run("squeue", "-h"), 60, "jobs stay")
