"""
The containers of manifests as processes of this machine, with the commands and the environment that the manifests say.

What a cluster would give is put in place by text: names of services become 127.0.0.1, ports free ports, folders of
volumes folders of the test. The operator's part is done as its controller does it: names of workers, and the address
of the scheduler where a container has none.
"""

import contextlib
import os
import re
import secrets
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

from tests.conftest import ROOT
from tests.deploy.manifests import DEPLOY, containers, pods
from tests.deploy.validator import PLACEHOLDER

PORTS = ("8786", "8787", "8788", "8789", "8790")


class Pods:
    """A DaskJob or DaskCluster on this machine; `places` are the folders that stand for those of volumes."""

    def __init__(self, document, documents, folder, places, secrets=None):
        self.name, self.folder, self.secrets = document["metadata"]["name"], folder, secrets or {}
        self.settings = {d["metadata"]["name"]: dict(d["data"]) for d in documents if d["kind"] == "ConfigMap"}
        self.pods, self.places = pods(document), places
        self.scheduler_ports = free_ports(PORTS[:2])
        self.processes = contextlib.ExitStack()
        self.logs = {}

    def __enter__(self):
        self.processes.__enter__()
        return self

    def __exit__(self, *error):
        return self.processes.__exit__(*error)

    def start_cluster(self, workers):
        self.start("scheduler", self.pods["scheduler"]["containers"][0])
        for i in range(workers):
            name = f"{self.name}-default-worker-{i:010x}"  # as the operator names them
            self.start(name, self.pods["worker"]["containers"][0], {"DASK_WORKER_NAME": name}, free_ports(PORTS[2:]))

    def run_job(self, name="job", **settings):
        """Run the job's pod to its end: the code that it ends with, and what it said."""
        said = ""
        self.settings["dask-dca-job"] |= settings
        for container in containers(self.pods["job"]):
            process = self.start(f"{name}-{container['name']}", container)
            code = process.wait(120)
            said += self.log(f"{name}-{container['name']}")
            if code:
                break
        return code, said

    def start(self, name, container, given=None, ports=None):
        place = self.folder / name
        place.mkdir(exist_ok=True)  # it is there when a process is started again
        environment = self.environment(container, given or {}, ports or {})
        args = [self.here(expand(word, environment), ports or {}) for word in container["args"]]
        if args[0] == "dask" and args[1] in ("scheduler", "worker"):  # for this machine alone
            args = [re.sub(r"^:(?=\d)", "127.0.0.1:", word) for word in args] + ["--host", "127.0.0.1"]
        self.logs[name] = place / "log"
        log = self.processes.enter_context(self.logs[name].open("ab"))
        process = subprocess.Popen(
            self.command(args), env=self.around(environment), cwd=place, stdout=log, stderr=subprocess.STDOUT
        )
        self.processes.callback(stop, process)
        return process

    def command(self, args):
        """Find a command of the image on this machine: Python's own, a script of the image, or an installed one."""
        own = DEPLOY / "image" / "bin" / args[0]
        if own.exists():
            interpreter = sys.executable if "python" in own.read_text().partition("\n")[0] else "sh"
            return [interpreter, str(own), *args[1:]]
        return [sys.executable if args[0] == "python" else str(Path(sys.executable).with_name(args[0])), *args[1:]]

    def environment(self, container, given, ports):
        """As Kubernetes makes it: what settings and secrets hold, then what the container names, later ones last."""
        found = {}
        for source in container.get("envFrom", []):
            if "configMapRef" in source:
                found |= self.settings[source["configMapRef"]["name"]]
            else:
                found |= self.secrets.get(source["secretRef"]["name"], {})
        entries = [*container.get("env", [])]
        named = {entry["name"] for entry in entries}
        operators = {"DASK_SCHEDULER_ADDRESS": f"tcp://{self.name}-scheduler.ns.svc.cluster.local:8786", **given}
        for name, value in operators.items():
            if name not in named:
                entries.append({"name": name, "value": value})
        for entry in entries:
            found[entry["name"]] = expand(entry["value"], found)
        return {name: self.here(value, ports) for name, value in found.items()}

    def here(self, text, ports):
        text = re.sub(rf"{self.name}-scheduler(\.ns\.svc\.cluster\.local)?(?=:)", "127.0.0.1", text)
        for port, free in (self.scheduler_ports | ports).items():
            text = re.sub(rf"\b{port}\b", free, text)
        for mounted, place in self.places.items():
            text = text.replace(mounted, str(place))
        return text

    def around(self, environment):
        """What the image gives, nothing of this process's own settings of Dask, and the package of this folder."""
        outer = {name: value for name, value in os.environ.items() if not name.startswith("DASK_")}
        path = os.pathsep.join([str(ROOT), *filter(None, [outer.get("PYTHONPATH")])])
        image = {"DASK_TEMPORARY_DIRECTORY": str(self.folder), "OPENBLAS_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
        return {**outer, **image, "PYTHONPATH": path, **environment}

    def log(self, name):
        return self.logs[name].read_text(errors="replace")

    def http(self, path, data=None, method=None):
        """Ask the scheduler's HTTP port, as the operator and the probes do."""
        url = f"http://127.0.0.1:{self.scheduler_ports['8787']}{path}"
        headers = {"Content-Type": "application/json"}
        with urllib.request.urlopen(urllib.request.Request(url, data, headers, method=method), timeout=20) as answer:
            return answer.read().decode()

    def wait_until_ready(self, seconds=60):
        """Ask for the scheduler's readiness as its probe does."""
        probe = self.pods["scheduler"]["containers"][0]["readinessProbe"]["httpGet"]
        end = time.monotonic() + seconds
        while True:
            try:
                return self.http(probe["path"])
            except (urllib.error.URLError, ConnectionError):
                assert time.monotonic() < end, self.log("scheduler")
                time.sleep(0.1)


def expand(text, environment):
    """Put values in the place of $(NAME); an unknown name stays as it is."""
    return PLACEHOLDER.sub(lambda match: environment.get(match[1], match[0]), text)


def free_ports(names):
    """Free ports of this machine for the given ones, as text; none that a process which asks for any port is given."""
    with contextlib.ExitStack() as stack:
        return {name: str(_free_port(stack.enter_context(socket.socket()))) for name in names}


def _free_port(free):
    while True:
        with contextlib.suppress(OSError):
            free.bind(("127.0.0.1", 20_000 + secrets.randbelow(12_000)))
            return free.getsockname()[1]


def stop(process):
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
