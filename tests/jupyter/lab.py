"""JupyterLab as deploy/jupyter sets it up, on a free port of this machine, for as long as a test needs it."""

import json
import os
import queue
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from dataclasses import dataclass

from tests.conftest import ROOT

SETTINGS = ROOT / "deploy" / "jupyter"
# what a test must not depend on: news from the internet, cells that exist only while they are looked at
QUIET = {
    "@jupyterlab/apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": False},
    "@jupyterlab/notebook-extension:tracker": {"windowingMode": "none"},
}
START = 150  # seconds


@dataclass(frozen=True)
class Lab:
    """A running server."""

    url: str
    token: str

    def get(self, path, *, token=True):
        """Status and text of a page; redirections are not followed."""
        headers = {"Authorization": f"token {self.token}"} if token else {}
        request = urllib.request.Request(f"{self.url}{path}", headers=headers)
        try:
            with urllib.request.build_opener(_NoRedirect).open(request, timeout=30) as answer:
                return answer.status, answer.read().decode(errors="replace")
        except urllib.error.HTTPError as error:
            return error.code, ""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *args):
        return None


@contextmanager
def jupyter_lab(folder):
    """Start it in a folder of its own: neither settings of the user nor those of the machine are read."""
    for name in ("work", "dask", "settings", "home"):
        (folder / name).mkdir()
    shutil.copy(SETTINGS / "labextension.yaml", folder / "dask")
    overrides = json.loads((SETTINGS / "overrides.json").read_text()) | QUIET
    (folder / "settings" / "overrides.json").write_text(json.dumps(overrides))
    token = secrets.token_hex(16)
    command = [
        *(sys.executable, "-m", "jupyterlab", "--no-browser", "--ServerApp.ip=127.0.0.1", f"--port={_free_port()}"),
        *("--ServerApp.allow_root=True", "--ServerApp.terminals_enabled=False", f"--ServerApp.root_dir={folder}/work"),
        *(f"--LabApp.app_settings_dir={folder}/settings", "--LabApp.news_url="),
    ]
    environment = os.environ | {
        "JUPYTER_TOKEN": token,
        "DASK_CONFIG": str(folder / "dask"),
        "HOME": str(folder / "home"),
    }
    environment |= {f"JUPYTER_{name}_DIR": str(folder / "home" / name) for name in ("CONFIG", "DATA", "RUNTIME")}
    environment |= {f"JUPYTERLAB_{name}_DIR": str(folder / "home" / name) for name in ("SETTINGS", "WORKSPACES")}
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    lines = queue.Queue()
    reader = threading.Thread(target=lambda: [lines.put(line) for line in process.stderr], daemon=True)
    reader.start()
    try:
        yield Lab(_address(lines), token)
    finally:
        _stop(process)
        reader.join(5)
        process.stderr.close()


def _free_port():
    """A port that nobody listens on; the server takes another one if that has changed, and says which."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _address(lines):
    said = []
    while True:
        said.append(lines.get(timeout=START))
        if found := re.search(r"(http://127\.0\.0\.1:(\d+))/lab", said[-1]):
            _wait_for_port(int(found.group(2)))
            return found.group(1)


def _wait_for_port(port):
    """The address is said a moment before the server listens."""
    for _ in range(10 * START):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise TimeoutError(port)


def _stop(process):
    """End the server, and with it the kernels: they are of its session."""
    for ending, patience in ((signal.SIGTERM, 20), (signal.SIGKILL, 5)):
        try:
            os.killpg(process.pid, ending)
            process.wait(patience)
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue
