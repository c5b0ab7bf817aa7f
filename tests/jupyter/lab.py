"""JupyterLab as deploy/jupyter sets it up, on a free port of this machine, for as long as a test needs it."""

import json
import os
import queue
import re
import secrets
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
from tests.deploy import pages

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
    """Start it by the page's commands, with a home of its own: no settings of user or machine are read."""
    for name in ("work", "settings", "home"):
        (folder / name).mkdir()
    (folder / "dask-dca").symlink_to(ROOT)
    overrides = json.loads((SETTINGS / "overrides.json").read_text()) | QUIET
    (folder / "settings" / "overrides.json").write_text(json.dumps(overrides))
    token = secrets.token_hex(16)
    *before, last = pages.by("jupyter_lab")
    last = last.replace("jupyter lab", f"exec {sys.executable} -m jupyterlab").replace("examples/notebooks", "$0")
    command = [
        *("bash", "-ec", "\n".join([*before, f'{last} "$@"']), str(folder / "work")),
        *("--no-browser", "--ServerApp.ip=127.0.0.1", f"--port={_free_port()}"),
        *("--ServerApp.allow_root=True", "--ServerApp.terminals_enabled=False"),
        *(f"--LabApp.app_settings_dir={folder}/settings", "--LabApp.news_url="),
    ]
    environment = {name: value for name, value in os.environ.items() if name != "DASK_CONFIG"}
    environment |= {"JUPYTER_TOKEN": token, "HOME": str(folder / "home"), "PYTHONPATH": str(ROOT)}
    environment |= {f"JUPYTER_{name}_DIR": str(folder / "home" / name) for name in ("CONFIG", "DATA", "RUNTIME")}
    environment |= {f"JUPYTERLAB_{name}_DIR": str(folder / "home" / name) for name in ("SETTINGS", "WORKSPACES")}
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
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
