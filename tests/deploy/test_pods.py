"""What the manifests start, started: scheduler, a worker and the job as processes, in the clear and over TLS."""

import asyncio
import json
import shutil
import subprocess
import time

import numpy as np
import pytest
import zarr
from distributed.core import connect

import dask_dca as dca
from tests.conftest import SOAK_ONLY, planted
from tests.deploy.manifests import KUBERNETES, built
from tests.deploy.pods import Pods

pytestmark = pytest.mark.cluster


def local_pods(overlay, folder, places):
    documents = built(overlay)
    [job] = [document for document in documents if document["kind"] == "DaskJob"]
    return Pods(job, documents, folder, places)


@pytest.fixture(scope="module")
def dev(tmp_path_factory):
    """The overlay dev, whose data are on a volume."""
    folder = tmp_path_factory.mktemp("dev")
    (folder / "volume").mkdir()
    with local_pods("overlays/dev", folder, {"/data/": f"{folder}/volume/"}) as pods:
        pods.start_cluster(workers=1)
        yield pods


@SOAK_ONLY  # as over TLS, below
def test_the_job_makes_a_model_on_the_workers(dev):
    code, said = dev.run_job()
    assert code == 0, said
    model = dca.load_model(dev.folder / "volume" / "model.zarr")
    assert model.components_.shape[0] == 9
    assert "dca-divide done" in said  # progress of its passes, for the pod's log
    assert "Saved as" in said
    assert "Register worker" in dev.log("scheduler")


def test_the_scheduler_is_ready_and_shows_its_dashboard(dev):
    assert dev.wait_until_ready() == "ok"
    assert "Bokeh" in dev.http("/status")


def test_the_operator_can_scale_by_http(dev):
    """What its controller asks for, in the form that it reads."""
    assert dev.http("/api/v1/check_idle").startswith("{")
    assert json.loads(dev.http("/api/v1/adaptive_target"))["workers"] >= 0
    end = time.monotonic() + 60.0  # until the worker is there
    while not (retired := json.loads(dev.http("/api/v1/retire_workers", b'{"n": 1}', "POST"))):
        assert time.monotonic() < end, dev.log("scheduler")
        time.sleep(0.2)
    [name] = [worker["name"] for worker in retired.values()]
    assert name == f"dca-nmf-default-worker-{0:010x}"  # that of a Deployment to delete


def test_missing_data_end_the_job_with_a_line_that_says_so(dev):
    dev.pods["job"]["initContainers"].clear()  # waiting and making data, as before
    code, said = dev.run_job("missing", DCA_DATA="/data/nothing.zarr", DCA_OUTPUT="/data/none.zarr")
    assert code == 2
    assert "Error: there is nothing at" in said
    assert "nothing.zarr" in said
    assert "Traceback" not in said
    assert not (dev.folder / "volume" / "none.zarr").exists()


def test_a_scheduler_that_never_answers_ends_the_wait(tmp_path):
    with local_pods("job", tmp_path, {}) as pods:
        wait = pods.pods["job"]["initContainers"][0]
        wait["args"][1] = "1"
        assert pods.start("wait", wait).wait(60) == 1
        assert "Error: the scheduler at tcp://127.0.0.1:" in pods.log("wait")
        assert "Traceback" not in pods.log("wait")


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_all_of_it_over_tls(tmp_path):
    subprocess.run([KUBERNETES / "secrets" / "make-certificates.sh", tmp_path / "tls"], check=True, timeout=60)
    assert sorted(path.name for path in (tmp_path / "tls").iterdir()) == ["ca.crt", "tls.crt", "tls.key"]
    X, _ = planted(3000, 30, 20, dtype=np.float32)
    zarr.create_array(tmp_path / "bucket" / "pixels.zarr", data=X, chunks=(600, 30))
    places = {"s3://bucket": f"{tmp_path}/bucket", "/run/dask-tls": f"{tmp_path}/tls"}
    with local_pods("overlays/tls", tmp_path, places) as pods:
        pods.start_cluster(workers=1)
        code, said = pods.run_job()
        assert code == 0, said
        model = dca.load_model(tmp_path / "bucket" / "model.zarr")
        np.testing.assert_array_equal(model.anchor_indices_, dca.NMF(20).fit(X).anchor_indices_)
        assert "at tls://127.0.0.1:" in said
        assert "Scheduler at:" in pods.log("scheduler")
        assert "tcp://" not in pods.log("scheduler") + said
        with pytest.raises((OSError, TypeError, RuntimeError)):  # not in the clear
            asyncio.run(connect(f"tcp://127.0.0.1:{pods.scheduler_ports['8786']}", timeout=2))
        assert json.loads(pods.http("/api/v1/adaptive_target"))["workers"] >= 0  # plain HTTP, for the operator
        assert len(json.loads(pods.http("/api/v1/retire_workers", b'{"n": 1}', "POST"))) == 1
