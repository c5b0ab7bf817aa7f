"""What a run on this machine opens to the network, and what it tells."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import psutil
import pytest
import trustme
from sklearn.base import clone

import dask_dca as dca
from dask_dca.cli.clusters import Cluster, connected
from dask_dca.errors import InvalidInputError, warn, without_secrets
from dask_dca.models.describe import model_facts
from tests.cluster.workers import MARKS
from tests.conftest import ROOT, planted

pytestmark = MARKS


def listening():
    """Addresses at which this process and its children wait for others."""
    here = psutil.Process()
    found = []
    for process in (here, *here.children(recursive=True)):
        found += [one.laddr for one in process.net_connections() if one.status == psutil.CONN_LISTEN]
    return found


def test_worker_processes_listen_on_this_machine_alone():
    before = set(listening())
    with connected(Cluster(workers=2)) as client:
        client.wait_for_workers(2)
        opened = set(listening()) - before
    assert len(opened) >= 4  # the scheduler, its dashboard, two workers
    assert {address.ip for address in opened} <= {"127.0.0.1", "::1"}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("at 's3://key:pass@bucket/x'", "at 's3://***@bucket/x'"),
        ("https://h/x?sv=1&sig=abc%3D&se=2", "https://h/x?sv=***&sig=***&se=***"),
        (
            "https://h/x?X-Amz-Signature=ab&X-Amz-Security-Token=cd",
            "https://h/x?X-Amz-Signature=***&X-Amz-Security-Token=***",
        ),
        ("s3://key:pa/ss@bucket/x", "s3://***@bucket/x"),
        ("simplecache::s3://key:pass@bucket/x", "simplecache::s3://***@bucket/x"),
        ("zip://a.npy::https://me:pass@h/x.zip?code=1", "zip://a.npy::https://***@h/x.zip?code=***"),
        ("https://host:8080/a@b", "https://host:8080/a@b"),
        ("mail me@host, row 3", "mail me@host, row 3"),
        ("s3://bucket/a@b.zarr", "s3://bucket/a@b.zarr"),
    ],
)
def test_secrets_of_urls_are_hidden(text, shown):
    assert without_secrets(text) == shown


def test_no_secret_is_told_at_any_verbosity(tmp_path):
    issued = trustme.CA().issue_cert("localhost")
    issued.private_key_pem.write_to_path(tmp_path / "key.pem")
    issued.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    (tmp_path / "ca.pem").write_text("no certificate")
    np.save(tmp_path / "x.npy", planted(50, 5, 3)[0])
    tls = ["--tls-ca-file", "ca.pem", "--tls-cert", "cert.pem", "--tls-key", "key.pem"]
    program = [str(Path(sys.executable).with_name("dask")), "dca", "fit", "nmf"]
    loud = {
        "DASK_LOGGING__DISTRIBUTED": "debug",
        "DASK_DISTRIBUTED__LOGGING__DISTRIBUTED": "debug",
        "PYTHONASYNCIODEBUG": "1",
    }
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    for words in (
        ["x.npy", "-k", "3", "-o", "m.zarr", "--scheduler", "tls://127.0.0.1:1", *tls],
        ["https://me:pa55word@127.0.0.1:1/x.zarr?sig=s3cret", "-k", "3", "-o", "m.zarr"],
    ):
        done = subprocess.run(
            [*program, *words, "--progress"],
            cwd=tmp_path,
            env={**os.environ, **loud, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        told = done.stdout + done.stderr
        assert done.returncode != 0
        assert told
        secret = issued.private_key_pem.bytes().decode().splitlines()[1]
        assert secret not in told
        assert "PRIVATE KEY" not in told
        assert "pa55word" not in told
        assert "s3cret" not in told


def test_secrets_of_a_checkpoint_are_kept_nowhere(tmp_path):
    place = "memory://key:pa55word@bucket/kept?token=s3cret"
    model = dca.NMF(3, checkpoint=place).fit(planted(50, 5, 3)[0])
    model.save(str(tmp_path / "model.zarr"))
    held = "".join(path.read_text(errors="ignore") for path in tmp_path.rglob("*") if path.is_file())
    shown = [dca.report(model), model._repr_html_(), repr(model), str(model_facts(model)), held]
    shown += [clone(model)._repr_html_(), str(InvalidInputError(f"no array at {place!r}"))]
    with pytest.warns(UserWarning, match="at memory:") as caught:
        warn(f"at {place}", UserWarning)
    for text in [*shown, str(caught[0].message)]:
        assert "pa55word" not in text
        assert "s3cret" not in text
