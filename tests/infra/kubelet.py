"""Pods of the API server as processes of this machine, as tests/deploy/pods.py starts them."""

import base64
import copy
import subprocess
import sys
import threading
import time
from pathlib import Path

from tests.deploy.pods import PORTS, Pods, free_ports, stop
from tests.infra.conftest import around, listens
from tests.infra.kube_api import Key


class Kubelet:
    """
    Starts what Deployments and bare Pods say, and a Deployment's process again when it ends; stops what is deleted.

    places: folders that stand for those of volumes. Objects are told apart by uid, since their names come again.
    """

    def __init__(self, api, folder, secrets, places):
        self.api, self.folder, self.secrets, self.places = api, folder, secrets, places
        self.clusters, self.running, self.runners, self.over = {}, {}, {}, threading.Event()
        self.crowds = {}
        self.crowded = False  # workers are members of one process a cluster: a machine has no room for a hundred

    def __enter__(self):
        self.api.log = self.log
        self.thread = threading.Thread(target=self._keep, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join(60)
        for process in self.running.values():
            stop(process)
        for crowd in self.crowds.values():
            crowd.end()
        for runner in self.runners.values():
            runner.join(60)

    def _keep(self):
        while not self.over.is_set():
            self.look()
            time.sleep(0.3)

    def look(self):
        """Compare what there should be with what there is."""
        wanted = self.api.call(
            lambda store: {found["metadata"]["uid"]: (key, found) for key, found in store.objects.items()}
        )
        for uid in set(self.running) - set(wanted):
            stop(self.running.pop(uid))
        documents = [found for _, found in wanted.values()]
        for uid, (key, found) in wanted.items():
            cluster = self.cluster(found, documents)
            if cluster is None or self.over.is_set():
                continue
            if key.plural == "services":
                self.publish(key, found, cluster)
            elif key.plural == "deployments":
                self.keep(uid, key, found, cluster)
            elif key.plural == "pods" and uid not in self.runners and key.name.endswith("-runner"):
                self.runners[uid] = threading.Thread(target=self.run, args=(uid, key, found, cluster), daemon=True)
                self.runners[uid].start()

    def cluster(self, found, documents):
        """The processes of an object's cluster: its settings, and ports of this machine; none if it has none."""
        name = (found["metadata"].get("labels") or {}).get("dask.org/cluster-name")
        of_name = {d["kind"]: d for d in documents if name and d["metadata"]["name"] == name}
        document = of_name.get("DaskJob") or of_name.get("DaskCluster")
        if document is None:
            return None
        uid = document["metadata"]["uid"]
        if uid not in self.clusters:
            folder = self.folder / f"{name}-{uid[:8]}"
            folder.mkdir()
            given = {name: {**self.secrets.get(name, {}), **held} for name, held in secrets_of(documents).items()}
            self.clusters[uid] = Pods(document, documents, folder, self.places, self.secrets | given)
        return self.clusters[uid]

    def of(self, name):
        """The processes of a cluster that is there now; none if it isn't."""
        known = self.api.call(lambda store: {d["metadata"]["uid"] for d in store.objects.values()})
        return next((pods for uid, pods in self.clusters.items() if pods.name == name and uid in known), None)

    def publish(self, key, found, cluster):
        """A service's ports are those that the scheduler has on this machine."""
        ports = cluster.scheduler_ports
        if str(found["spec"]["ports"][0]["port"]) in ports:
            own = [{**port, "port": int(ports[str(port["port"])])} for port in found["spec"]["ports"]]
            self.api.call(lambda store: store.patch(key, {"spec": {"ports": own}}))

    def keep(self, uid, key, found, cluster):
        """Have a Deployment's one pod run, and tell whether it is ready."""
        template, pod = found["spec"]["template"], Key("v1", "pods", key.namespace, f"{key.name}-pod")
        if uid not in self.running or self.running[uid].poll() is not None:
            self.running[uid] = self.start(key.name, template, cluster)
            owner = {"apiVersion": key.version, "kind": "Deployment", "name": key.name, "uid": uid}
            facts = {"name": pod.name, "labels": template["metadata"]["labels"], "ownerReferences": [owner]}
            whole = {"metadata": facts, "spec": template["spec"]}
            self.api.call(lambda store: pod in store.objects or store.create(pod, copy.deepcopy(whole)))
        ready = "worker" in key.name or listens(int(cluster.scheduler_ports["8787"]))
        conditions = [{"type": kind, "status": str(ready)} for kind in ("Ready", "ContainersReady")]
        self.tell(pod, "Running", conditions=conditions)

    def start(self, name, template, cluster):
        """One process; of the workers of a crowd, one member."""
        [container] = template["spec"]["containers"]
        if template["metadata"]["labels"]["dask.org/component"] != "worker":
            return cluster.start(name, container)
        if not self.crowded:
            return cluster.start(name, container, {}, free_ports(PORTS[2:]))
        if cluster not in self.crowds:
            address = f"tcp://127.0.0.1:{cluster.scheduler_ports['8786']}"
            self.crowds[cluster] = Crowd(address, self.secrets["object-store"], cluster.folder / "crowd.said")
        return Member(self.crowds[cluster], name)

    def run(self, uid, key, pod, cluster):
        """A pod that runs to its end."""
        self.tell(key, "Running")
        for container in [*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]]:
            self.running[uid] = process = cluster.start(f"{key.name}-{container['name']}", container)
            if process.wait():
                self.tell(key, "Failed")
                return
        self.tell(key, "Succeeded")

    def tell(self, key, phase, **more):
        self.api.call(lambda store: key in store.objects and store.patch(key, {"status": {"phase": phase, **more}}))

    def kill(self, deployment):
        """End a Deployment's process as a node that is lost does."""
        objects = self.api.call(lambda store: [*store.objects.items()])
        [found] = [found for key, found in objects if (key.plural, key.name) == ("deployments", deployment)]
        self.running[found["metadata"]["uid"]].kill()

    def log(self, pod):
        """What the newest pods of a name have said; a Deployment's process has its name."""
        name = pod.removesuffix("-pod")
        said = ["\n".join(each.log(log) for log in each.logs if name in log) for each in self.clusters.values()]
        return next(filter(None, reversed(said)), "")

    def names(self, plural):
        """Objects of a kind."""
        return self.api.call(lambda store: [key.name for key in store.objects if key.plural == plural])


def secrets_of(documents):
    """What the secrets hold, by their names."""
    found = {d["metadata"]["name"]: d.get("data") or {} for d in documents if d["kind"] == "Secret"}
    return {name: {key: base64.b64decode(text).decode() for key, text in held.items()} for name, held in found.items()}


class Crowd:
    """Many workers in one process."""

    def __init__(self, address, settings, log):
        command = [sys.executable, str(Path(__file__).with_name("crowd.py")), address]
        environment = around(**settings)
        with open(log, "wb") as said:
            self.process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=said, stderr=said)

    def say(self, line):
        self.process.stdin.write(f"{line}\n".encode())
        self.process.stdin.flush()

    def end(self):
        self.process.stdin.close()
        self.process.wait(60)


class Member:
    """One worker of a crowd, to be started and stopped as a process is."""

    def __init__(self, crowd, name):
        self.crowd, self.name = crowd, name
        crowd.say(f"+ {name}")

    def poll(self):
        return self.crowd.process.poll()

    def terminate(self):
        self.crowd.say(f"- {self.name}")

    def wait(self, _=None):
        return 0
