"""On worker processes: the same bits for any number of workers, and for workers that die."""

import contextlib
import io
import os
import pickle
import pkgutil
import subprocess
import sys
import threading
import time
import warnings
from unittest.mock import patch

import dask
import dask.array as da
import numpy as np
import pytest
import trustme
import zarr
from click.testing import CliRunner
from distributed import Client, LocalCluster
from distributed.scheduler import KilledWorker
from distributed.security import Security

import dask_dca as dca
from dask_dca.cli.main import main
from dask_dca.engine import computing
from dask_dca.engine import rows as engine_rows
from dask_dca.errors import ClusterError, ClusterWarning, NotFiniteError, PerformanceWarning
from tests.cluster.workers import MARKS, faulty, scaled
from tests.conftest import bits, planted

pytestmark = MARKS


@pytest.fixture(scope="module")
def data():
    X, anchors = planted(6000, 30, 5, dtype=np.float32)
    X[1000:1400] = X[200:600] * 2.0
    return X, anchors


def hide_package(hidden):
    """What a worker's process has that was started where the package is not installed."""
    import sys

    if hidden:
        sys.modules["hidden"], sys.modules["dask_dca"] = sys.modules["dask_dca"], None
    else:
        sys.modules["dask_dca"] = sys.modules.pop("hidden")


def set_version(version):
    import dask_dca

    dask_dca.__version__ = version


def test_workers_without_the_package_or_with_another_version_are_told(client, data):
    """A task of a module that a worker can't import ends the worker, and Dask waits for another one."""
    X, _ = data
    chunked, whole = da.from_array(X, chunks=(1000, 30)), bits(dca.NMF(5).fit(X))
    nmf, kalman = dca.NMF(5).fit(X), dca.KalmanFilter(2).fit(X[:500])
    client.run(pkgutil.resolve_name, "dask_dca.NMF")
    client.run(hide_package, True)
    try:
        with pytest.raises(ClusterError, match=r"2 of 2 new workers can't import dask_dca \(tcp://.*in this process's"):
            dca.NMF(5).fit(chunked)
        with pytest.warns(PerformanceWarning), pytest.raises(ClusterError, match="2 of 2 new workers can't import"):
            dca.NMF(5).fit(chunked[chunked[:, 0] > 0.0])  # whose rows are counted first
        many = da.random.default_rng(0).random((60_000, 4), chunks=(10_000, 4))
        with pytest.raises(ClusterError, match="2 of 2 new workers can't import"):
            dca.NMF(2).fit(many)  # of which a sample is kept first
        with pytest.raises(ClusterError, match="2 of 2 new workers can't import dask_dca"):
            nmf.transform(chunked)  # by a model that was fitted, or loaded, elsewhere
        with pytest.raises(ClusterError, match="2 of 2 new workers can't import dask_dca"):
            kalman.smooth(chunked)
    finally:
        client.run(hide_package, False)
    client.run(set_version, "0.0.1")
    with pytest.warns(ClusterWarning, match=f"workers have dask_dca 0.0.1, this process {dca.__version__}"):
        assert bits(dca.NMF(5).fit(chunked)) == whole
    client.run(set_version, dca.__version__)
    assert bits(dca.NMF(5).fit(chunked)) == whole  # these workers are known


def test_a_worker_that_leaves_while_it_is_asked_is_none_of_another_version(client, data):
    there = client.nthreads() | {"tcp://127.0.0.1:9": 1}
    with patch.object(client, "nthreads", lambda: there), dask.config.set({"distributed.comm.timeouts.connect": "1s"}):
        computing.require_package(client)  # warnings are errors


def test_a_first_worker_that_comes_late_is_asked_before_it_gets_a_task(data, tmp_path):
    """An adaptive cluster starts it for a task; by one that names the package it would end at once, and none comes."""
    lacks = tmp_path / "lacks.py"
    lacks.write_text("import sys\nsys.modules['dask_dca'] = None\n")
    with LocalCluster(n_workers=0, threads_per_worker=1, preload=str(lacks), dashboard_address=":0") as cluster:
        cluster.adapt(minimum=0, maximum=1, interval="1s")
        with Client(cluster), pytest.raises(ClusterError, match="1 of 1 new workers can't import dask_dca"):
            dca.NMF(5).fit(da.from_array(data[0], chunks=(1000, 30)))


def test_a_worker_without_the_package_that_joins_others_stops_no_fit(cluster, client, data, tmp_path):
    X, _ = data
    chunked, whole = da.from_array(X, chunks=(300, 30)), bits(dca.NMF(5).fit(X))
    assert bits(dca.NMF(5).fit(chunked)) == whole
    n_workers, lacks = len(client.nthreads()), tmp_path / "lacks.py"
    lacks.write_text("import sys\nsys.modules['dask_dca'] = None\n")
    words = ["dask", "worker", cluster.scheduler_address, "--preload", str(lacks), "--no-dashboard", "--no-nanny"]
    with (tmp_path / "log").open("w") as log, subprocess.Popen([sys.executable, "-m", *words], stderr=log) as late:
        try:
            client.wait_for_workers(n_workers + 1, timeout=60)
            with pytest.warns(ClusterWarning, match="1 of 1 new workers can't import dask_dca"):
                assert bits(dca.NMF(5).fit(chunked)) == whole
        finally:
            late.terminate()


@pytest.mark.parametrize("method", ["robust", "paper"])
def test_one_two_and_four_workers_give_the_same_bits(cluster, client, data, method):
    X, _ = data
    whole = bits(dca.NMF(5, method=method).fit(X))
    chunked = da.from_array(X, chunks=(1000, 17))
    for _ in scaled(cluster, client, 1, 4, 2):
        assert bits(dca.NMF(5, method=method).fit(chunked)) == whole


def test_worker_threads_and_processes_give_the_same_bits(client, data):
    X, _ = data
    whole = bits(dca.NMF(5).fit(X))
    chunked = da.from_array(X, chunks=(1000, 17))
    assert bits(dca.NMF(5).fit(chunked)) == whole  # processes
    with (
        LocalCluster(n_workers=1, threads_per_worker=4, processes=False, dashboard_address=":0") as threads,
        Client(threads),
    ):
        assert bits(dca.NMF(5).fit(chunked)) == whole


@pytest.mark.parametrize("name", ["fetch", "gram", "divide", "power"])
def test_a_worker_killed_in_a_pass_changes_no_bit(client, data, tmp_path, name):
    X, _ = data
    marker = tmp_path / "killed"
    with patch("dask_dca.anchoring.preprocess._MAX_MOMENT_FEATURES", 1 if name == "power" else 2048):
        whole = bits(dca.NMF(5).fit(X))
        assert bits(dca.NMF(5).fit(faulty(X, f"dca-{name}", marker))) == whole
    assert marker.exists()  # a worker did die


def test_a_worker_killed_in_the_papers_divide_changes_no_bit(client, data, tmp_path):
    X, _ = data
    whole = bits(dca.NMF(5, method="paper").fit(X))
    assert bits(dca.NMF(5, method="paper").fit(faulty(X, "dca-divide", tmp_path / "killed"))) == whole
    assert (tmp_path / "killed").exists()


def test_a_worker_killed_in_transform_changes_no_coefficient(client, data, tmp_path):
    X, _ = data
    model = dca.NMF(5).fit(X)
    marker = tmp_path / "killed"
    found = model.transform(faulty(X, "dca-transform", marker)).compute()
    assert marker.exists()
    np.testing.assert_allclose(found, model.transform(X), atol=1e-6, rtol=1e-6)


def test_a_block_that_fails_once_is_tried_again(client, data, tmp_path):
    X, _ = data
    whole = bits(dca.NMF(5).fit(X))
    for verbose in (False, True):
        marker = tmp_path / str(verbose)
        with contextlib.redirect_stderr(io.StringIO()):
            assert bits(dca.NMF(5, verbose=verbose).fit(faulty(X, "dca-divide", marker, "raise"))) == whole
        assert marker.exists()


def test_without_retries_a_block_that_fails_once_is_an_error(client, data, tmp_path):
    with pytest.raises(OSError, match=r"chunk at row .* can't be read"):
        dca.NMF(5, retries=0).fit(faulty(data[0], "dca-divide", tmp_path / "failed", "raise"))


def test_a_block_that_always_fails_ends_with_its_own_error(client, data):
    with pytest.raises(OSError, match=r"chunk at row .* can't be read"):
        dca.NMF(5).fit(faulty(data[0], "dca-gram", None, "raise"))


def test_a_block_that_always_kills_its_worker_ends_with_an_error_that_names_the_pass(
    cluster, client, data, monkeypatch
):
    monkeypatch.setattr(cluster.scheduler, "allowed_failures", 0)
    with pytest.raises(ClusterError, match=r"1 workers died.*dca-divide of the block of rows") as told:
        dca.NMF(5).fit(faulty(data[0], "dca-divide"))
    assert isinstance(told.value.__cause__, KilledWorker)


def asking(block, folder):
    """A block whose first reader asks for the cluster to be restarted, and waits for it."""
    if folder and not os.path.exists(f"{folder}/asked"):
        open(f"{folder}/asked", "w").close()
        await_file(f"{folder}/restarted")
    return block


def await_file(path):
    until = time.monotonic() + 60.0
    while not os.path.exists(path) and time.monotonic() < until:
        time.sleep(0.02)


def test_a_cluster_that_is_restarted_in_a_pass_ends_the_fit_with_a_clear_error(data, tmp_path):
    X = da.from_array(data[0], chunks=(1000, -1)).map_blocks(asking, str(tmp_path), meta=np.empty((0, 0)))
    with (  # of its own: nannies are not always back in time for other tests
        LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):

        def _restart():
            await_file(tmp_path / "asked")
            client.restart(wait_for_workers=False)
            (tmp_path / "restarted").touch()

        thread = threading.Thread(target=_restart)
        thread.start()
        with pytest.raises(ClusterError, match="the scheduler was lost or restarted in the pass dca-"):
            dca.NMF(3).fit(X)
        thread.join()


def test_bad_entries_name_their_place_from_a_worker(client, data):
    """The row and column of the whole matrix, not of a block (priyankshah7/hypers #90)."""
    X = data[0].copy()
    X[4321, 7] = np.inf
    with pytest.raises(NotFiniteError, match="infinity: row 4321, column 7"):
        dca.NMF(5).fit(da.from_array(X, chunks=(1000, 17)))


def test_tasks_have_names_that_people_can_read(cluster, client, data):
    """The dashboard shows what is done (dask/distributed #2973, dask #10642)."""
    dca.NMF(5).fit(da.from_array(data[0], chunks=(3000, 17)))
    with patch("dask_dca.anchoring.preprocess._MAX_MOMENT_FEATURES", 1):
        model = dca.NMF(5).fit(da.from_array(data[0], chunks=(3000, 17)))
    model.transform(da.from_array(data[0], chunks=(3000, 17))).compute()
    names = set(cluster.scheduler.task_prefixes)
    assert {"dca-fetch", "dca-gram", "dca-power", "dca-divide", "dca-conquer", "dca-state"} <= names
    assert any("dca-transform" in name for name in names), names


def test_repeated_fits_leave_nothing_on_the_scheduler(cluster, client, data):
    """No graph, result or array stays behind (dask/dask #6833)."""
    for _ in range(3):
        dca.NMF(5).fit(da.from_array(data[0], chunks=(1500, 17)))
    deadline = time.monotonic() + 10
    while cluster.scheduler.tasks and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not cluster.scheduler.tasks


def test_no_graph_is_called_large(client, tmp_path):
    """Also with many planes, wide data and stored arrays (dask/dask #11562)."""
    X, _ = planted(800, 1500, 20, dtype=np.float32)
    stored = zarr.create_array(tmp_path / "x.zarr", data=X, chunks=(200, 1500))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert bits(dca.NMF(20).fit(stored)) == bits(dca.NMF(20).fit(X))


def test_the_active_client_is_used_and_not_kept(cluster, client, data):
    """No scheduler beside the client's; the fitted model is small and plain (radio-astro-tools/spectral-cube #921)."""
    where = []

    def spy(block):
        where.append(os.getpid())
        return block

    X, _ = data
    chunked = da.from_array(X, chunks=(1000, 17)).map_blocks(spy, dtype=X.dtype, meta=X[:0])
    before = len(cluster.scheduler.task_prefixes)
    model = dca.NMF(5).fit(chunked)
    assert not where  # nothing ran in this process
    assert len(cluster.scheduler.task_prefixes) >= before
    state = pickle.dumps(model)
    assert b"distributed" not in state
    assert b"dask.array" not in state
    k, p = model.components_.shape
    # votes of the candidates, at most two a plane, are the only other array
    assert len(state) < 4 * k * p + 2 * 16 * model.n_subproblems_ + 4000
    np.testing.assert_array_equal(pickle.loads(state).transform(X), model.transform(X))


def test_persisted_arrays_are_fitted_where_they_are(client, data):
    X, _ = data
    whole = dca.NMF(5).fit(X)
    for chunks in ((450, 30), (450, 17)):
        kept = client.persist(da.from_array(X, chunks=chunks))
        model = dca.NMF(5).fit(kept if chunks[1] == 30 else kept * np.float32(1.0))
        assert bits(model) == bits(whole)
        np.testing.assert_allclose(model.transform(kept).compute(), whole.transform(X), atol=1e-6, rtol=1e-6)


def test_a_stored_array_is_read_by_the_workers(client, data, tmp_path, monkeypatch):
    monkeypatch.setattr(engine_rows, "_BLOCK_BYTES", 2**15)
    X, _ = data
    stored = zarr.create_array(tmp_path / "x.zarr", data=X, chunks=(200, 30))
    model = dca.NMF(5).fit(str(tmp_path / "x.zarr"))
    assert bits(model) == bits(dca.NMF(5).fit(X))
    np.testing.assert_allclose(model.transform(stored).compute(), model.transform(X), atol=1e-6, rtol=1e-6)


def test_progress_is_shown_with_a_distributed_scheduler(client, data, capsys):
    """On standard error, pass by pass (malariagen-data-python #612, mne-bids-pipeline PR #647)."""
    model = dca.NMF(5, verbose=True).fit(da.from_array(data[0], chunks=(1000, 17)))
    out, err = capsys.readouterr()
    assert not out
    for name in ("dca-fetch", "dca-gram", "dca-divide"):
        assert f"{name} ..." in err
        assert f"{name} done in" in err
    assert bits(model) == bits(dca.NMF(5).fit(data[0]))


def test_a_fit_inside_a_task_uses_the_clusters_workers(client, data):
    X, _ = data

    def fit_there():
        return dca.NMF(5).fit(da.from_array(X, chunks=(2000, 30)))

    assert bits(client.submit(fit_there, pure=False).result(timeout=60)) == bits(dca.NMF(5).fit(X))


def test_commands_reach_a_cluster_over_tls(tmp_path, data):
    """Schedulers and workers of the real commands are started over TLS in tests/deploy/test_pods.py."""
    authority = trustme.CA()
    issued = authority.issue_cert("localhost", "127.0.0.1")
    files = {name: str(tmp_path / f"{name}.pem") for name in ("ca", "cert", "key")}
    authority.cert_pem.write_to_path(files["ca"])
    issued.cert_chain_pems[0].write_to_path(files["cert"])
    issued.private_key_pem.write_to_path(files["key"])
    tls = ["--tls-ca-file", files["ca"], "--tls-cert", files["cert"], "--tls-key", files["key"]]
    own = {f"tls_{role}_{part}": files[part] for role in ("scheduler", "worker", "client") for part in ("cert", "key")}
    security = Security(tls_ca_file=files["ca"], require_encryption=True, **own)
    X, _ = data
    zarr.create_array(tmp_path / "x.zarr", data=X, chunks=(600, 30))
    options = {"n_workers": 1, "threads_per_worker": 1, "processes": False, "dashboard_address": ":0"}
    with LocalCluster(protocol="tls", host="127.0.0.1", security=security, **options) as cluster:
        address = cluster.scheduler_address
        assert address.startswith("tls://")
        with Client(address, security=security, timeout=60):
            model = dca.NMF(5).fit(da.from_array(X, chunks=(500, 30)))
            assert bits(model) == bits(dca.NMF(5).fit(X))
        model_path, data_path, out = (str(tmp_path / name) for name in ("m.zarr", "x.zarr", "f.zarr"))
        for words in (
            ["fit", "nmf", data_path, "-k", "5", "-o", model_path],
            ["transform", model_path, data_path, "-o", out],
        ):
            done = CliRunner().invoke(main, [*words, "--scheduler", address, *tls])
            assert done.exit_code == 0, done.output
        assert bits(dca.load_model(model_path)) == bits(model)
        np.testing.assert_allclose(zarr.open_array(out, mode="r")[:], model.transform(X), atol=1e-6)
        with pytest.raises((OSError, TypeError)):  # not without the certificates
            Client(address, timeout=2, set_as_default=False)
