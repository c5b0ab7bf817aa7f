"""The images of deploy/image, built by buildah on a base of Debian's, and run as Kubernetes runs them."""

import json
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
import zarr

import dask_dca as dca
from tests.conftest import ROOT, planted
from tests.deploy import pages
from tests.deploy.manifests import DEPLOY, built
from tests.deploy.pods import Pods
from tests.infra.conftest import program
from tests.infra.object_store import object_store

IMAGE = DEPLOY / "image"
pytestmark = pytest.mark.timeout(1200)

# Read-only but for /tmp, as user 1000, without capabilities, and none to be had.
RUN = """
mount --bind "$0" "$0"
mount -o remount,bind,ro "$0"
mount -t proc proc "$0/proc"
mount --rbind /dev "$0/dev"
mount -t tmpfs -o mode=1777 tmpfs "$0/tmp"
rights="--reuid 1000 --regid 1000 --clear-groups --no-new-privs --bounding-set=-all --inh-caps=-all"
exec chroot "$0" setpriv $rights "$@"
"""


class Image:
    """Its files, and what it says of how to run it."""

    def __init__(self, place, config):
        self.place, self.config = place, config
        self.environment = dict(line.split("=", 1) for line in config["Env"])

    def command(self, args):
        start = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-ec", RUN, self.place]
        return [*start, *self.config["Entrypoint"], *map(str, args)]

    def run(self, *args):
        return subprocess.run(self.command(args), env=self.environment, capture_output=True, text=True, timeout=300)


class PodsOf(Pods):
    """Containers of an image."""

    def __init__(self, image, *args):
        super().__init__(*args)
        self.image = image

    def command(self, args):
        return self.image.command(args)

    def around(self, environment):
        return self.image.environment | environment

    def start(self, *args):
        process = super().start(*args)
        self.processes.callback(process.kill)  # unshare leaves other signals to what it started
        return process


@pytest.fixture(scope="module")
def built_by(tmp_path_factory):
    """Build what a page's command builds, with buildah in the place of docker."""
    if os.geteuid() != 0:
        pytest.skip("an image is built and run here by chroot, which needs root")
    buildah, folder = program("buildah"), tmp_path_factory.mktemp("image")

    def run(driver, *args):
        places = ["--root", folder / driver, "--runroot", folder / "run", "--storage-driver", driver]
        command = [buildah, *map(str, [*places, *args])]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900)

    # copies of all files take its place where this is a container itself
    driver = "vfs" if run("overlay", "info").returncode else "overlay"

    def build(*args):
        done = run(driver, *args)
        assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
        return done.stdout.strip()

    def by(command):
        docker, verb, *words, here = shlex.split(command)
        assert (docker, verb, here) == ("docker", "build", ".")
        build("bud", "--isolation", "chroot", "--network", "host", "--build-arg", "PYTHON=localhost/base", *words, here)
        container = build("from", words[words.index("-t") + 1])
        config = json.loads(build("inspect", "--type", "container", container))["OCIv1"]["config"]
        return Image(build("mount", container), config)

    base = debian(folder / "base")
    container = build("from", "scratch")
    build("add", "--quiet", container, base, "/")
    build("commit", "--quiet", container, "base")
    shutil.rmtree(base)
    yield by
    build("rm", "--all")
    build("rmi", "--all", "--force")


@pytest.fixture(scope="module")
def image(built_by):
    [command] = pages.by("image")
    return built_by(command)


@pytest.fixture(scope="module")
def slim(built_by):
    [command] = pages.by("slim")
    return built_by(command)


def debian(place):
    """A system with the Python of the image's packages, 3.13, which is Debian 13's; it trusts whom this one trusts."""
    packages = "python3,python3-venv,python-is-python3,ca-certificates"
    command = [program("debootstrap"), "--variant=minbase", f"--include={packages}", "trixie", place]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=600)
    if (trusted := Path("/etc/ssl/certs/ca-certificates.crt")).exists():
        shutil.copy(trusted, place / "etc/ssl/certs")
    return place


def test_the_image_runs_the_demo_without_any_right(image):
    assert image.config["User"] == "1000:1000"
    [command] = pages.by("test_the_image_runs_the_demo_without_any_right")
    words = shlex.split(command)
    done = image.run(*words[words.index("dask") :])
    assert done.returncode == 0, done.stdout + done.stderr
    assert "demo.png" in done.stdout + done.stderr
    said = image.run("sh", "-c", "id -u; grep CapEff /proc/self/status; touch /home/dca/x").stdout
    assert said.split() == ["1000", "CapEff:", "0000000000000000"]
    assert "Read-only file system" in image.run("touch", "/home/dca/x").stderr


def has_what_was_pinned(image):
    """Whether its packages are of the pinned versions and belong together; their names."""
    pinned = dict(re.findall(r"^([\w.-]+)==(\S+)$", (IMAGE / "constraints.txt").read_text(), re.M))
    listed = json.loads(image.run("python", "-m", "pip", "list", "--format=json").stdout)
    found = {re.sub(r"[-_.]+", "-", each["name"]).lower(): each["version"] for each in listed}
    assert {name: version for name, version in found.items() if pinned.get(name, version) != version} == {}
    assert set(found) - set(pinned) == {"dask-dca", "pip"}
    assert image.run("python", "-m", "pip", "check").returncode == 0
    return set(found)


def test_the_image_has_what_was_pinned(image):
    assert {"bokeh", "gcsfs", "pyarrow"} <= has_what_was_pinned(image)


def test_the_slim_image_fits_on_s3_without_any_right(slim, tmp_path):
    """The job's pods with the manifest's commands: scheduler, a worker, the wait for both, and the fit."""
    assert slim.config["User"] == "1000:1000"
    found = has_what_was_pinned(slim)
    assert "s3fs" in found
    assert not {"bokeh", "gcsfs", "matplotlib", "pandas", "pyarrow"} & found
    X, _ = planted(3000, 30, 5)
    documents = built("job")
    [job] = [document for document in documents if document["kind"] == "DaskJob"]
    with object_store(tmp_path) as keys, PodsOf(slim, job, documents, tmp_path, {}, {"object-store": keys}) as pods:
        zarr.create_array("s3://bucket/pixels.zarr", data=X, chunks=(600, 30))
        pods.start_cluster(workers=1)
        code, said = pods.run_job(DCA_COMPONENTS="5")
        assert code == 0, said
        assert "Saved as s3://bucket/model.zarr" in said
        assert pods.http("/metrics").startswith("# HELP")
        found = dca.load_model("s3://bucket/model.zarr")
        assert found.anchor_indices_.tolist() == dca.NMF(5).fit(X).anchor_indices_.tolist()


def test_commands_of_before_are_in_the_image(image):
    for name in ("scheduler", "worker"):
        assert f"dask {name}" in image.run(f"dask-{name}", "--help").stdout
    assert (
        "Error: the scheduler at tcp://127.0.0.1:9"
        in image.run("env", "DASK_SCHEDULER_ADDRESS=tcp://127.0.0.1:9", "wait-for-scheduler", "1").stderr
    )
