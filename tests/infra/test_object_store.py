"""Data, models, checkpoints and reports in an object store, and what is said when it can't be used."""

import socket
import subprocess
import sys
import sysconfig
import time

import fsspec
import numpy as np
import pytest
import zarr
from click.testing import CliRunner

import dask_dca as dca
from dask_dca.cli.main import main
from tests.conftest import ROOT, bits
from tests.deploy import pages
from tests.infra.conftest import BIN, around
from tests.infra.object_store import KEYS, object_store

DATA, MODEL = "s3://bucket/x.zarr", "s3://bucket/m.zarr"


@pytest.fixture(scope="module")
def store(tmp_path_factory, pixels):
    with object_store(tmp_path_factory.mktemp("s3")) as settings:
        zarr.create_array(DATA, data=pixels[0], chunks=(600, 30))
        yield settings


def run(*arguments):
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def fit(data=DATA, out=MODEL, *more):
    return run("fit", "nmf", data, "-k", 5, "-o", out, *more)


def well(result, text):
    assert result.exit_code == 0, (result.output, result.exception)
    assert text in result.output


def refused(result, *texts):
    """One line and exit code 2."""
    assert result.exit_code == 2, (result.output, result.exception)
    assert len(result.stderr.splitlines()) == 1, result.stderr
    [line] = result.stderr.splitlines()
    assert line.startswith("Error: ")
    for text in texts:
        assert text in line


def test_fit_transform_info_and_report(store, pixels):
    X, model = pixels
    well(fit(DATA, MODEL, "--checkpoint", "s3://bucket/kept"), f"Saved as {MODEL}")
    assert bits(dca.load_model(MODEL)) == bits(model)
    well(run("info", MODEL), "Coverage")
    well(run("transform", MODEL, DATA, "-o", "s3://bucket/f.zarr"), "3000 rows of 5 numbers")
    np.testing.assert_array_equal(zarr.open_array("s3://bucket/f.zarr", mode="r")[:], model.transform(X))
    well(run("report", MODEL, "--data", DATA, "-o", "s3://bucket/r.html"), "Report of")
    refused(fit(), f"{MODEL!r} exists", "--overwrite")
    # what the first fit has kept is used: the same bits, and no pass is computed again
    well(fit(DATA, MODEL, "--checkpoint", "s3://bucket/kept", "--overwrite"), "Saved as")
    assert bits(dca.load_model(MODEL)) == bits(model)


def test_worker_processes_read_and_keep(store, pixels):
    """As users start it: no word of connections that are still open at the end."""
    done = process("fit", "nmf", DATA, "-k", "5", "-o", "s3://bucket/w.zarr", "--workers", "2", **store)
    assert done.returncode == 0, done.stderr
    assert bits(dca.load_model("s3://bucket/w.zarr")) == bits(pixels[1])
    assert done.stderr.splitlines()[1:] == []  # but where the workers are


def process(*args, **settings):
    command = [str(BIN / "dask"), "dca", *args]
    return subprocess.run(command, env=around(**settings), capture_output=True, text=True, timeout=240)


PAGE = """set -eux
{install}
cd {folder}
export PATH={bin}:$PATH
{exports}
python table.py
dask dca fit nmf s3://bucket/pixels.zarr -k 5 -o s3://bucket/page.zarr --workers 2
dask dca info s3://bucket/page.zarr
dask dca report s3://bucket/page.zarr -o report.html
"""


def test_the_page_from_installation_to_a_report(store, tmp_path, pixels):
    """docs/running/index.md in an environment that has what the package needs, but not the package."""
    own = tmp_path / "own"
    subprocess.run([sys.executable, "-m", "venv", own], check=True, timeout=120)
    beside = own / "lib" / f"python{sysconfig.get_python_version()}" / "site-packages/beside.pth"
    beside.write_text(sysconfig.get_path("purelib"))
    names = [f"component {i}" for i in range(pixels[0].shape[1])]
    rows = [",".join(names), *(",".join(map(repr, row)) for row in pixels[0].tolist())]
    (tmp_path / "spectra.csv").write_text("\n".join(rows) + "\n")
    (tmp_path / "table.py").write_text(pages.scripts("test_the_page_from_installation_to_a_report")[0])
    install, *exports = pages.by("test_the_page_from_installation_to_a_report")
    told = "\n".join(exports).replace("https://minio.example.org", store["AWS_ENDPOINT_URL"])
    script = PAGE.format(install=f"{own}/bin/{install}", folder=tmp_path, bin=own / "bin", exports=told)
    clean = around(PYTHONPATH="")
    done = subprocess.run(["bash", "-c", script], env=clean, cwd=ROOT, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Successfully installed dask-dca" in done.stdout
    assert "Coverage" in done.stdout
    assert (tmp_path / "report.html").stat().st_size > 10_000
    assert bits(dca.load_model("s3://bucket/page.zarr")) == bits(pixels[1])


def test_what_is_not_there(store, tmp_path):
    refused(fit("s3://bucket/none.zarr", tmp_path / "m.zarr"), "no zarr array or group at 's3://bucket/none.zarr'")
    refused(fit("s3://nobucket/x.zarr", tmp_path / "m.zarr"), "no zarr array or group at 's3://nobucket/x.zarr'")
    refused(fit(DATA, "s3://nobucket/m.zarr"), "'s3://nobucket/m.zarr'", "bucket does not exist")
    refused(run("info", "s3://bucket/none.zarr"), "no model at 's3://bucket/none.zarr'")


def everywhere(tmp_path, *texts):
    """Input, output, checkpoint, model and report, each at a store that can't be used."""
    local = tmp_path / "x.npy"
    np.save(local, np.random.default_rng(0).random((50, 6)))
    refused(fit(DATA, tmp_path / "m.zarr"), f"can't reach {DATA!r}", *texts)
    refused(fit(local, "s3://bucket/n.zarr"), "can't reach 's3://bucket/n.zarr'", *texts)
    refused(fit(local, tmp_path / "m.zarr", "--checkpoint", "s3://bucket/c"), "can't reach 's3://bucket/c'", *texts)
    refused(run("info", MODEL), f"can't reach {MODEL!r}", *texts)
    assert not list(tmp_path.glob("*.zarr"))


@pytest.fixture
def fresh():
    """File systems are kept by process; credentials and addresses that a test sets must be looked up again."""
    import s3fs

    s3fs.S3FileSystem.clear_instance_cache()
    yield
    s3fs.S3FileSystem.clear_instance_cache()


def test_no_credentials(store, tmp_path, monkeypatch, fresh):
    for name in KEYS:
        monkeypatch.delenv(name)
    everywhere(tmp_path, "Unable to locate credentials")


def test_the_store_is_down(store, tmp_path, monkeypatch, fresh):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    everywhere(tmp_path, "Could not connect to the endpoint")


def test_nothing_more_is_said_as_the_process_ends(store, tmp_path):
    down = {**store, "AWS_ENDPOINT_URL": "http://127.0.0.1:9"}
    done = process("fit", "nmf", DATA, "-k", "5", "-o", str(tmp_path / "m.zarr"), **down)
    assert done.returncode == 2
    [line] = (done.stdout + done.stderr).splitlines()
    assert line.startswith(f"Error: can't reach {DATA!r}")


def test_access_is_denied(store, tmp_path, monkeypatch, fresh):
    with Answering(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n") as port:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
        everywhere(tmp_path, "PermissionError")


def test_a_store_that_never_answers_is_given_up(store, tmp_path, monkeypatch, fresh):
    quick = {"connect_timeout": 5, "read_timeout": 1, "retries": {"total_max_attempts": 2}}  # the user's own settings
    monkeypatch.setitem(fsspec.config.conf, "s3", {"config_kwargs": quick})
    began = time.monotonic()
    with Answering(None) as port:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
        refused(fit(DATA, tmp_path / "m.zarr"), "can't reach", "timeout")
    assert time.monotonic() - began < 30  # five times two attempts of a second each, and pauses


class Answering:
    """A server that answers everything with the same bytes, or never."""

    def __init__(self, answer):
        self.answer = answer

    def __enter__(self):
        import threading

        self.socket = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.held = []
        threading.Thread(target=self.serve, daemon=True).start()
        return self.socket.getsockname()[1]

    def serve(self):
        try:
            while True:
                connection, _ = self.socket.accept()
                self.held.append(connection)
                if self.answer is not None:
                    connection.recv(65536)
                    connection.sendall(self.answer)
                    connection.close()
        except OSError:
            pass

    def __exit__(self, *_):
        self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()
        for connection in self.held:
            connection.close()
