"""The commands: results on standard output, one clear line and exit code 2 for bad input, nothing half-written."""

import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import time
from functools import cache
from pathlib import Path

import dask
import numpy as np
import pytest
import zarr
from click.testing import CliRunner

import dask_dca as dca
from dask_dca import output
from dask_dca.cli import clusters, group
from dask_dca.cli.main import main


@pytest.fixture(scope="module")
def X():
    rng = np.random.default_rng(0)
    return np.vstack([np.eye(3), rng.dirichlet(np.ones(3), 97)]) @ rng.random((3, 8))


@pytest.fixture
def place(tmp_path, X, monkeypatch):
    """A folder with data in every form, good and bad; the working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DASK_SCHEDULER_ADDRESS", raising=False)
    nan, inf, negative = X.copy(), X.copy(), X.copy()
    nan[50, 3], inf[50, 3], negative[50, 3] = np.nan, np.inf, -1.0
    arrays = {"X": X, "nan": nan, "inf": inf, "negative": negative, "narrow": X[:, :5], "empty": X[:0]}
    for name, values in arrays.items():
        chunks = tuple(max(1, -(-size // 4)) for size in values.shape)
        zarr.create_array(f"{name}.zarr", shape=values.shape, dtype=values.dtype, chunks=chunks)[...] = values
    zarr.create_group("bare.zarr")
    several = zarr.create_group("several.zarr")
    several.create_array("first", data=X)
    several.create_array("second", data=X)
    np.save("X.npy", X)
    np.savetxt("X.csv", X, delimiter=",", header=",".join("abcdefgh"), comments="")
    np.savetxt("headless.csv", X, delimiter=",")
    Path("words.csv").write_text("a,b\n1,2\nx,y\n")
    Path("notes.txt").write_text("not data")
    return tmp_path


def run(*arguments):
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def test_fit_transform_and_info_of_a_zarr_array(place, X):
    fitted = run("fit", "nmf", "X.zarr", "-k", 3, "-o", "model.zarr")
    assert fitted.exit_code == 0, fitted.output
    assert fitted.stderr == ""
    assert "Coverage 1.000" in fitted.stdout
    model = dca.load_model("model.zarr")
    assert sorted(model.anchor_indices_) == [0, 1, 2]
    written = run("transform", "model.zarr", "X.zarr", "-o", "F.zarr")
    assert written.exit_code == 0, written.output
    F = zarr.open_array("F.zarr", mode="r")
    assert F.shape == (100, 3)
    np.testing.assert_allclose(F[...] @ model.components_, X, atol=1e-12)
    facts = json.loads(run("info", "model.zarr", "--json").stdout)
    assert [anchor["row"] for anchor in facts["anchors"]] == model.anchor_indices_.tolist()
    assert "3 anchors of 8 features" in run("info", "model.zarr").stdout
    assert not [name for name in os.listdir(place) if "partial" in name]


@pytest.mark.parametrize("name", ["X.npy", "X.csv", "headless.csv", "several.zarr"])
def test_every_form_of_input_gives_the_same_model(place, name):
    more = ["--array", "second"] if name == "several.zarr" else []
    run("fit", "nmf", "X.zarr", "-k", 3, "-o", "expected.zarr")
    fitted = run("fit", "nmf", name, "-k", 3, "-o", "model.zarr", *more)
    assert fitted.exit_code == 0, fitted.output
    model, expected = dca.load_model("model.zarr"), dca.load_model("expected.zarr")
    np.testing.assert_array_equal(model.components_, expected.components_)
    names = list("abcdefgh") if name == "X.csv" else None
    assert getattr(model, "feature_names_in_", np.array(None)).tolist() == names
    written = run("transform", "model.zarr", name, "-o", "F.zarr", *more)
    assert written.exit_code == 0, written.output


def test_k_auto_options_and_overwrite(place):
    first = run("fit", "nmf", "X.zarr", "-k", "auto", "-o", "model.zarr", "--seed", 3, "--subproblems", 50)
    assert first.exit_code == 0, first.output
    assert dca.load_model("model.zarr").get_params()["n_subproblems"] == 50
    assert run("fit", "nmf", "X.zarr", "-k", 2, "-o", "model.zarr").exit_code == 2
    again = run("fit", "nmf", "X.zarr", "--n-components", 2, "-o", "model.zarr", "--overwrite", "--method", "paper")
    assert again.exit_code == 0, again.output
    assert dca.load_model("model.zarr").n_components_ == 2
    assert not [name for name in os.listdir(place) if name.startswith(".")]


def test_progress_goes_to_standard_error(place):
    shown = run("fit", "nmf", "X.zarr", "-k", 3, "-o", "model.zarr", "--progress")
    assert "dca-divide" in shown.stderr
    assert "dca-divide" not in shown.stdout
    for out in ("F.zarr", "F.csv"):  # a log gets two lines a pass
        shown = run("transform", "model.zarr", "X.zarr", "-o", out, "--progress")
        begin, end = [line for line in shown.stderr.splitlines() if line.startswith("dca-")]
        assert begin == "dca-transform ..."
        assert re.fullmatch(r"dca-transform done in [0-9.]+ s", end)


def test_a_closed_standard_error(place, monkeypatch, capsys):
    """As of daemons and pythonw: what would go there goes nowhere, and the library's own progress is no error."""
    monkeypatch.setattr(sys, "stderr", None)
    with pytest.raises(SystemExit) as end:
        main(["fit", "nmf", "headless.csv", "-k", "3", "-o", "model.zarr"])
    assert end.value.code == 0
    assert "no header" not in capsys.readouterr().out
    dca.NMF(3, verbose=True).fit(zarr.open("X.zarr"))


BAD_FITS = {
    "path not there": (["gone.zarr"], "nothing at 'gone.zarr'"),
    "group without arrays": (["bare.zarr"], "no two-dimensional array"),
    "several arrays": (["several.zarr"], "--array"),
    "no such array": (["several.zarr", "--array", "third"], "no array 'third'"),
    "neither zarr nor table": (["notes.txt"], "notes.txt"),
    "words in a table": (["words.csv"], "words.csv"),
    "output exists": (["X.zarr", "-o", "X.zarr"], "exists"),
    "no folder for the output": (["X.zarr", "-o", "no/such/model.zarr"], "mkdir -p"),
    "overwrite of no zarr": (["X.zarr", "-o", "notes.txt", "--overwrite"], "not a zarr group"),
    "k below one": (["X.zarr", "-k", "0"], "received '0'"),
    "k of words": (["X.zarr", "-k", "many"], "received 'many'"),
    "k above n": (["X.zarr", "-k", "101"], "k=101"),
    "negative": (["negative.zarr"], "negative"),
    "NaN": (["nan.zarr", "--method", "paper"], "row 50"),
    "infinity": (["inf.zarr"], "row 50"),
    "unknown ensemble": (["X.zarr", "--ensemble", "magic"], "'magic'"),
    "unknown method": (["X.zarr", "--method", "magic"], "'magic'"),
    "empty": (["empty.zarr"], "0 sample"),
    "two clusters": (["X.zarr", "--workers", "2", "--scheduler", "tcp://x:1"], "exclude"),
    "no scheduler file": (["X.zarr", "--scheduler-file", "gone.json"], "gone.json"),
    "scheduler file of something else": (["X.zarr", "--scheduler-file", "notes.txt"], "notes.txt"),
    "unknown address": (["X.zarr", "--scheduler", "carrier-pigeon://x"], "carrier-pigeon"),
    "TLS without certificates": (["X.zarr", "--scheduler", "tls://127.0.0.1:9"], "--tls-ca-file"),
    "unknown option": (["X.zarr", "--speed", "11"], "--speed"),
    "unknown protocol": (["carrier-pigeon://x"], "carrier-pigeon"),
}


def refused(result, text, place, before):
    assert result.exit_code == 2, (result.output, result.exception)
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("Error: ")
    assert text in lines[0]
    assert result.stdout == ""
    assert sorted(os.listdir(place)) == before


@pytest.mark.parametrize("case", BAD_FITS)
def test_fit_refuses(place, case):
    arguments, text = BAD_FITS[case]
    before = sorted(os.listdir(place))
    chosen = ["-k", "3", "-o", "model.zarr", *arguments[1:]]
    refused(run("fit", "nmf", arguments[0], *chosen), text, place, before)


def test_fit_refuses_without_output(place):
    refused(run("fit", "nmf", "X.zarr"), "--output", place, sorted(os.listdir(place)))


def test_scheduler_that_does_not_answer(place, monkeypatch):
    monkeypatch.setattr(clusters, "_CONNECT_TIMEOUT", 0.3)
    before = sorted(os.listdir(place))
    result = run("fit", "nmf", "X.zarr", "-k", 3, "-o", "model.zarr", "--scheduler", "tcp://127.0.0.1:9")
    refused(result, "does not answer", place, before)


def test_no_write_permission(place, monkeypatch):
    monkeypatch.setattr(output.os, "access", lambda *_: False)
    before = sorted(os.listdir(place))
    refused(run("fit", "nmf", "X.zarr", "-k", 3, "-o", "model.zarr"), "no permission", place, before)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["model.zarr", "narrow.zarr", "-o", "F.zarr"], "5 features"),
        (["model.zarr", "inf.zarr", "-o", "F.zarr"], "row 50"),
        (["model.zarr", "gone.zarr", "-o", "F.zarr"], "nothing at"),
        (["X.zarr", "X.zarr", "-o", "F.zarr"], "not a saved model"),
        (["gone.zarr", "X.zarr", "-o", "F.zarr"], "no model at"),
        (["model.zarr", "X.zarr", "-o", "model.zarr"], "exists"),
        (["model.zarr", "X.zarr", "-o", "no/F.zarr"], "mkdir -p"),
    ],
)
def test_transform_refuses(place, arguments, text):
    run("fit", "nmf", "X.zarr", "-k", 3, "-o", "model.zarr")
    before = sorted(os.listdir(place))
    refused(run("transform", *arguments), text, place, before)


def test_columns_of_another_name_are_refused(place):
    run("fit", "nmf", "X.csv", "-k", 3, "-o", "model.zarr")
    Path("other.csv").write_text(Path("X.csv").read_text().replace("a,b", "b,a"))
    before = sorted(os.listdir(place))
    refused(run("transform", "model.zarr", "other.csv", "-o", "F.zarr"), "ordered.csv", place, before)


def test_info_of_no_model(place):
    refused(run("info", "X.zarr"), "not a saved model", place, sorted(os.listdir(place)))


def test_workers_go_before_the_environments_scheduler(place, monkeypatch):
    seen = []
    monkeypatch.setenv("DASK_SCHEDULER_ADDRESS", "tcp://127.0.0.1:9")
    monkeypatch.setattr("dask_dca.cli.jobs.fit", lambda *args, **_: seen.append(args[4]) or 1 / 0)
    for more in (["--workers", "2"], []):
        run("fit", "nmf", "X.zarr", "-k", 3, "-o", "model.zarr", *more)
    assert [(where.workers, where.scheduler) for where in seen] == [(2, None), (None, "tcp://127.0.0.1:9")]


def started(*arguments):
    words = [sys.executable, "-m", "dask", "dca", *map(str, arguments)]
    # a shell's background job ignores SIGINT, and so would what it starts
    return subprocess.Popen(
        words,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


def test_errors_of_workers_are_one_line(place):
    """What two workers that do well say is seen in tests/cluster/test_page_of_workers.py."""
    before = sorted(os.listdir(place))
    job = started("fit", "nmf", "inf.zarr", "-k", 3, "-o", "model.zarr", "--workers", 1, "--no-progress")
    _, err = job.communicate(timeout=60)
    assert job.returncode == 2
    lines = [line for line in err.splitlines() if "dashboard" not in line]
    assert len(lines) == 1, err
    assert "dashboard: http://" in err
    assert "row 50" in lines[0]
    assert sorted(os.listdir(place)) == before


@cache
def wide_model():
    rows = np.random.default_rng(0).random((60_000, 40), dtype=np.float32)
    return dca.NMF(20, n_subproblems=40).fit(rows), rows


def wide(place):
    """A model and data whose transform takes long enough to be interrupted."""
    model, rows = wide_model()
    model.save("wide.zarr")
    zarr.create_array("rows.zarr", shape=rows.shape, dtype=rows.dtype, chunks=(500, 40))[...] = rows
    return sorted(os.listdir(place))


def interrupted(place, number, *more):
    """Start a transform, send it a signal when the first chunk is written, and wait for its end."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # where the tests run under nohup, jobs would ignore it
    job = started("transform", "wide.zarr", "rows.zarr", "-o", "F.zarr", "--no-progress", *more)
    signal.signal(signal.SIGHUP, before)
    end = time.monotonic() + 60
    while not list(place.glob(".F.zarr.*.partial/new/c/*")) and job.poll() is None and time.monotonic() < end:
        time.sleep(0.01)
    os.killpg(job.pid, number) if number != signal.SIGTERM else job.send_signal(number)  # as terminals do
    _, err = job.communicate(timeout=60)
    assert "Traceback" not in err
    return job.returncode


@pytest.mark.parametrize(
    ("number", "code", "workers"),
    [
        (signal.SIGHUP, 129, []),  # SIGTERM: of a scheduler elsewhere, below
        (signal.SIGINT, 130, ["--workers", "1"]),
    ],
)
def test_signals_leave_nothing_half_written(place, workers, number, code):
    before = wide(place)
    assert interrupted(place, number, *workers) == code
    assert sorted(os.listdir(place)) == before


def test_what_sigkill_leaves_is_removed_by_the_next_write_to_the_same_place(place):
    before = wide(place)
    assert interrupted(place, signal.SIGKILL) == -signal.SIGKILL
    assert len(os.listdir(place)) == len(before) + 1
    done = run("fit", "nmf", "X.zarr", "-k", 3, "-o", "F.zarr")
    assert done.exit_code == 0, done.stderr
    assert sorted(os.listdir(place)) == sorted([*before, "F.zarr"])


def test_nohup_is_left_alone(place):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with group._cleanup_on_signals():
            os.kill(os.getpid(), signal.SIGHUP)
            assert signal.getsignal(signal.SIGTERM) is group._terminate
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_scheduler_elsewhere(place):
    from distributed import LocalCluster

    more = {"n_workers": 1, "threads_per_worker": 1, "processes": False, "dashboard_address": ":0"}
    with LocalCluster(protocol="tcp", host="127.0.0.1", **more) as cluster:
        address = ["--scheduler", cluster.scheduler_address]
        done = run("fit", "nmf", "X.zarr", "-k", 3, "-o", "model.zarr", *address)
        assert (done.exit_code, done.stderr) == (0, "")
        done = run("transform", "model.zarr", "X.zarr", "-o", "F.zarr", *address)
        assert (done.exit_code, done.stderr) == (0, "")
        shutil.rmtree("F.zarr")
        before = wide(place)
        assert interrupted(place, signal.SIGTERM, *address) == 143
        time.sleep(1)  # a task that still ran would write now
        assert sorted(os.listdir(place)) == before


def test_a_dashboard_elsewhere_where_its_port_is_taken():
    import socket

    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            holder.bind(("127.0.0.1", 8787))
            holder.listen()
        except OSError:
            pass  # somebody else holds it
        assert clusters._dashboard_address() == "127.0.0.1:0"


@pytest.mark.parametrize("out", ["X.zarr", "./X.zarr", "X.zarr/model.zarr", "."])
def test_overwrite_never_destroys_what_is_read(place, out):
    before = zarr.open_array("X.zarr", mode="r")[:]
    done = run("fit", "nmf", "X.zarr", "-k", 3, "-o", out, "--overwrite")
    assert done.exit_code == 2
    assert len(done.stderr.strip().splitlines()[-1:]) == 1
    np.testing.assert_array_equal(zarr.open_array("X.zarr", mode="r")[:], before)


def test_transform_never_replaces_its_model(place):
    assert run("fit", "nmf", "X.zarr", "-k", 3, "-o", "model.zarr").exit_code == 0
    done = run("transform", "model.zarr", "X.zarr", "-o", "model.zarr", "--overwrite")
    assert done.exit_code == 2
    assert "overlap" in done.stderr
    assert run("info", "model.zarr").exit_code == 0


def test_a_damaged_chunk_is_named(place):
    first = sorted(path for path in (place / "X.zarr" / "c").rglob("*") if path.is_file())[0]
    first.write_bytes(first.read_bytes()[:10])
    done = run("fit", "nmf", "X.zarr", "-k", 3, "-o", "model.zarr")
    assert done.exit_code == 2
    assert "rows 0 to" in done.stderr
    assert "can't be read" in done.stderr
    assert not (place / "model.zarr").exists()


def test_a_table_without_header_says_so(place):
    (place / "numbers.csv").write_text("400,410,420\n1,2,3\n4,5,7\n2,2,9\n")
    done = run("fit", "nmf", "numbers.csv", "-k", 2, "-o", "model.zarr")
    assert "numbers.csv: 4 rows of 3 features, no header" in done.stderr


def _faults_of_arrays_made_again() -> int:
    """Page faults of fifty arrays of 8 MB, one after the other, when there was one before."""
    import resource

    np.ones(2**20)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(50):
        np.ones(2**20)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="its settings")
def test_own_workers_keep_the_memory_of_large_arrays(monkeypatch):
    for name in ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_"):
        monkeypatch.delenv(name, raising=False)  # a nanny of another test leaves them behind, and they overrule
    fresh = {"distributed.worker.multiprocessing-method": "spawn"}  # a process reads them when it begins
    with dask.config.set(fresh), clusters.connected(clusters.Cluster(workers=1)) as client:
        found = client.submit(_faults_of_arrays_made_again).result()
    assert found < 10_000  # 102,400 where each array gets fresh pages
