"""How commands end: whatever goes wrong in any library is one line on standard error and exit code 2."""

import logging
import os
import subprocess
import sys
from pathlib import Path

import fsspec
import numpy as np
import pytest
import zarr
from click.testing import CliRunner
from fsspec.implementations.memory import MemoryFileSystem

import dask_dca as dca
from dask_dca.cli.main import main
from dask_dca.errors import unreachable

rng = np.random.default_rng(0)
X = np.vstack([np.eye(3), rng.dirichlet(np.ones(3), 57)]) @ rng.random((3, 8))


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with data; the working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("DASK_SCHEDULER_ADDRESS", raising=False)
    (tmp_path / "home").mkdir()
    np.save("X.npy", X)
    return tmp_path


def run(*arguments):
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def one_line(result, *texts):
    assert result.exit_code == 2, (result.output, result.exception)
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("Error: ")
    for text in texts:
        assert text in lines[0]


def fit(model="nmf", data="X.npy", *more, k=3, out="m.zarr"):
    return run("fit", model, data, "-k", k, "-o", out, *more)


def test_no_command(place):
    one_line(run("fit"), "Missing command", "nmf, subspace")


class NoKeys(MemoryFileSystem):
    """An object store whose client library finds no credentials."""

    protocol = "nokeys"

    def _info(self, path, **_):
        raise RuntimeError("Unable to locate credentials\nand more lines")

    info = exists = ls = cat_file = _open = _info


class EndpointConnectionError(Exception):
    """As the client library of an object store raises it: neither an OSError nor a ValueError."""

    def __init__(self):
        super().__init__("Could not connect to the endpoint URL")


EndpointConnectionError.__module__ = "botocore.exceptions"


class Down(MemoryFileSystem):
    """An object store that can't be reached."""

    protocol = "down"

    def _info(self, *_, **__):
        raise EndpointConnectionError

    info = exists = ls = cat_file = _open = _info


@pytest.fixture
def down():
    fsspec.register_implementation("down", Down, clobber=True)
    return "down://bucket/m.zarr"


def test_an_object_store_that_is_down(place, down):
    told = f"can't reach {down!r}: EndpointConnectionError: Could not connect"
    one_line(fit(out=down), told)
    one_line(fit("nmf", down), told)
    one_line(run("info", down), told)
    one_line(fit("nmf", "X.npy", "--checkpoint", down), told)
    assert fit().exit_code == 0
    one_line(run("report", "m.zarr", "-o", down), told)
    one_line(run("transform", down, "X.npy", "-o", "f.zarr"), told)


def test_an_object_store_that_goes_down_while_it_is_written_to(place, down, monkeypatch):
    monkeypatch.setattr(Down, "exists", MemoryFileSystem.exists)
    monkeypatch.setattr(Down, "pipe_file", Down._info)
    one_line(fit(out=down), f"can't reach {down!r}: EndpointConnectionError: Could not connect")


def test_waiting_for_an_object_store_has_an_end(place, monkeypatch):
    """Of s3fs' own settings and botocore's: five times five attempts of a minute each."""
    from fsspec.config import conf

    monkeypatch.setitem(conf, "s3", {"anon": True})
    during = []
    monkeypatch.setattr("dask_dca.cli.jobs.fit", lambda *_, **__: during.append(dict(conf["s3"])) or raising(OSError)())
    fit()
    assert during[0]["anon"] is True  # the user's
    assert during[0]["config_kwargs"]["retries"] == {"total_max_attempts": 2}
    assert conf["s3"] == {"anon": True}


@pytest.fixture
def object_store():
    fsspec.register_implementation("nokeys", NoKeys, clobber=True)
    return "nokeys://bucket/m.zarr"


def test_an_object_store_without_credentials(place, object_store):
    one_line(fit(out=object_store), repr(object_store), "RuntimeError: Unable to locate credentials and more lines")
    one_line(fit(data=object_store), "Unable to locate credentials")
    one_line(run("info", object_store), "Unable to locate credentials")


class UnreadableError(Exception):
    """Of some library."""


def raising(error):
    def fails(*_, **__):
        raise error

    return fails


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (UnreadableError("first\n\nsecond"), "UnreadableError: first second"),
        (AttributeError("no such thing"), "AttributeError: no such thing"),
        (MemoryError(), "MemoryError"),
        (
            ExceptionGroup("several", [UnreadableError("the first"), ValueError("x")]),
            "UnreadableError: the first",
        ),
        (ConnectionError("gone"), "the cluster or a file failed: ConnectionError: gone"),
        (UnreadableError("https://me:secret@host/x?token=abc"), "https://***@host/x?token=***"),
    ],
)
def test_errors_of_any_library(error, told, place, monkeypatch):
    monkeypatch.setattr("dask_dca.cli.jobs.fit", raising(error))
    one_line(fit(), told)
    monkeypatch.setattr("dask_dca.store.load_model", raising(error))
    one_line(run("info", "m.zarr"), told)


def test_an_error_without_text_tells_its_cause(place, monkeypatch):
    def fails(*_, **__):
        raise UnreadableError from ValueError("the cause")

    monkeypatch.setattr("dask_dca.cli.jobs.fit", fails)
    one_line(fit(), "ValueError: the cause")


def test_tracebacks_are_shown_on_demand(place, monkeypatch):
    monkeypatch.setenv("DASK_DCA_DEBUG", "1")
    monkeypatch.setattr("dask_dca.cli.jobs.fit", raising(UnreadableError("x")))
    assert isinstance(fit().exception, UnreadableError)


def test_logs_of_libraries_are_no_lines(place, monkeypatch, capfd):
    def fails(*_, **__):
        for name in ("distributed.client", "asyncio", "aiohttp.client"):
            logging.getLogger(name).error("Unclosed client session")
        raise UnreadableError("x")

    monkeypatch.setattr("dask_dca.cli.jobs.fit", fails)
    one_line(fit(), "UnreadableError: x")
    assert "Unclosed" not in capfd.readouterr().err
    assert logging.getLogger("asyncio").isEnabledFor(logging.ERROR)  # the caller's again


SHAKY = """
import asyncio, sys, weakref
import dask_dca.cli.jobs
class Session:
    pass
def told():
    import logging
    logging.getLogger("aiohttp").error("Unclosed client session")
def fails(*_, **__):
    global held
    held = Session()
    weakref.finalize(held, told)
    raise RuntimeError("refused")
dask_dca.cli.jobs.fit = fails
from dask_dca.cli.main import main
main()
"""


def test_connections_closed_at_the_end_of_the_process_add_no_line(place):
    words = [sys.executable, "-c", SHAKY, "fit", "nmf", "X.npy", "-k", "3", "-o", "m.zarr"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 2
    assert done.stderr == "Error: RuntimeError: refused\n"


def test_certificates_for_a_scheduler_without_tls(place, monkeypatch):
    monkeypatch.setattr("dask_dca.cli.clusters._CONNECT_TIMEOUT", 5)
    Path("ca.pem").write_text("no certificate")
    one_line(
        fit("nmf", "X.npy", "--scheduler", "tcp://127.0.0.1:9", "--tls-ca-file", "ca.pem"),
        "tcp://127.0.0.1:9",
        "tls://...",
    )


@pytest.mark.parametrize("path", ["", "  "])
def test_an_empty_path(place, path):
    before = sorted(os.listdir(place))
    one_line(fit(out=path), "a path is empty")
    one_line(fit(data=path), "a path is empty")
    one_line(fit("nmf", "X.npy", "--checkpoint", path), "a path is empty")
    one_line(fit("nmf", "X.npy", "--scheduler-file", path), "a path is empty")
    one_line(run("info", path), "a path is empty")
    one_line(run("report", path, "-o", "r.html"), "a path is empty")
    one_line(run("convert", path, "-o", "d.zarr"), "a path is empty")
    one_line(run("transform", "m.zarr", "X.npy", "-o", path), "a path is empty")
    assert sorted(os.listdir(place)) == before


def test_the_home_folder(place):
    home = place / "home"
    np.save(home / "X.npy", X)
    zarr.create_array(home / "X.zarr", data=X, chunks=(20, 8))
    (home / "lengths.csv").write_text("20,40\n")
    done = fit("kalman", "~/X.zarr", "--lengths", "~/lengths.csv", "--checkpoint", "~/kept", out="~/m.zarr")
    assert done.exit_code == 0, done.output
    assert done.stdout.endswith("Saved as ~/m.zarr\n")
    assert dca.load_model("~/m.zarr").n_sequences_ == 2
    assert {"m.zarr", "kept"} <= set(os.listdir(home))
    assert sorted(os.listdir(place)) == ["X.npy", "home"]
    assert dca.NMF(3).fit("~/X.zarr").anchor_indices_.tolist() == dca.NMF(3).fit(X).anchor_indices_.tolist()
    one_line(fit(data="~nobody-of-this-name/X.npy"), "no home folder")
    one_line(fit("nmf", "X.npy", "--scheduler-file", "~/gone.json"), f"{home}/gone.json")


@pytest.mark.parametrize("end", [",\n", ", \n", "\n"])
@pytest.mark.parametrize("header", ["", "a,b,c", "a,b,c,"])
def test_trailing_commas_of_a_table(place, end, header):
    lines = [",".join(map(str, row)) for row in ([3, 1, 2], [1, 0, 0], [0, 2, 5])]
    Path("t.csv").write_text((header + "\n" if header else "") + end.join(lines) + end)
    names, values = dca.inputs.open_data("t.csv").names, dca.inputs.open_data("t.csv").matrix
    np.testing.assert_array_equal(values, [[3, 1, 2], [1, 0, 0], [0, 2, 5]])
    assert names == (["a", "b", "c"] if header else None)


def test_a_last_column_that_is_missing_throughout_stays_if_it_has_a_name(place):
    Path("t.csv").write_text("a,b\n1,\n2,\n")
    assert dca.inputs.open_data("t.csv").matrix.shape == (2, 2)


@pytest.mark.parametrize("model", ["nmf", "mixture", "kalman"])
def test_long_doubles_are_read_as_doubles(place, model):
    np.save("long.npy", X.astype(np.longdouble))
    done = fit(model, "long.npy", k=2)
    assert done.exit_code == 0, done.output
    assert fit(model, k=2, out="expected.zarr").exit_code == 0
    name = {"nmf": "components_", "mixture": "means_", "kalman": "observation_matrices_"}[model]
    found, expected = (getattr(dca.load_model(path), name) for path in ("m.zarr", "expected.zarr"))
    np.testing.assert_array_equal(found, expected)
    assert found.dtype == np.float64


def test_a_zipped_store(place):
    with zarr.storage.ZipStore("X.zarr.zip", mode="w") as store:
        zarr.create_array(store, data=X, chunks=(20, 8))
    assert fit(data="X.zarr.zip").exit_code == 0
    assert sorted(dca.load_model("m.zarr").anchor_indices_) == [0, 1, 2]
    Path("bad.zip").write_bytes(b"PK\3\4 no archive")
    one_line(fit(data="bad.zip", out="other.zarr"), "bad.zip")


@pytest.mark.parametrize("model", ["hmm", "kalman"])
@pytest.mark.parametrize("lengths", ["9223372036854775807,9223372036854775807,62", "18446744073709551615,61", "1e30,2"])
def test_lengths_that_would_wrap(place, model, lengths):
    one_line(fit(model, "X.npy", "--lengths", lengths, k=2), "engths")


def test_views_beyond_the_data(place):
    one_line(fit("mixture", "X.npy", "--views", "0:99999999999,1:2,2:3"), "0:99999999999", "8 columns")
    one_line(fit("mixture", "X.npy", "--views", f"0:{'9' * 5000},1:2,2:3"))


def test_urls_that_no_package_reads(place):
    one_line(fit("nmf", "nosuch://x.zarr"), "can't reach 'nosuch://x.zarr': no installed package knows nosuch://")
    one_line(run("info", "nosuch://m.zarr"), "no installed package knows nosuch://")
    assert fit().exit_code == 0
    one_line(run("transform", "m.zarr", "X.npy", "-o", "nosuch://f.zarr"), "no installed package knows nosuch://")

    class Absent(MemoryFileSystem):
        def __init__(self, *_, **__):
            raise ImportError("Install it")

    fsspec.register_implementation("absent", Absent, clobber=True)
    one_line(fit("nmf", "absent://b/x.zarr", out="n.zarr"), "a package for it is missing (Install it): install it")
    one_line(run("info", "absent://b/m.zarr"), "a package for it is missing")
    assert "pip install 'dask-dca[s3]', for workers too" in unreachable("s3://b/x", ImportError("Install s3fs"))
