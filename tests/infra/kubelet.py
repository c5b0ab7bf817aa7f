"""Pods of the API server as processes of this machine, as tests/deploy/pods.py starts them."""

import threading
import time

from tests.deploy.pods import PORTS, Pods, free_ports, stop


class Kubelet:
    """Starts what Deployments and bare Pods say, tells how they ended, and stops what is deleted."""

    def __init__(self, api, folder, secrets):
        self.api, self.folder, self.secrets = api, folder, secrets
        self.clusters, self.running, self.runners, self.over = {}, {}, {}, threading.Event()

    def __enter__(self):
        self.thread = threading.Thread(target=self._keep, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join(60)
        for process in self.running.values():
            stop(process)
        for runner in self.runners.values():
            runner.join(60)

    def _keep(self):
        while not self.over.is_set():
            self.look()
            time.sleep(0.3)

    def look(self):
        """Compare what there should be with what there is."""
        wanted = self.api.call(lambda store: {key: found for key, found in store.objects.items() if key.namespace})
        for key, found in wanted.items():
            name = key.name
            if key.plural == "services":
                self.publish(key, found)
            elif key.plural == "deployments" and name not in self.running:
                template = found["spec"]["template"]
                self.running[name] = self.start(name, template["spec"]["containers"][0], template["metadata"]["labels"])
            elif key.plural == "pods" and name not in self.runners:
                self.runners[name] = threading.Thread(target=self.run, args=(key, found), daemon=True)
                self.runners[name].start()
        for name in set(self.running) - {key.name for key in wanted}:
            stop(self.running.pop(name))

    def cluster(self, labels):
        """The processes of a cluster: its settings, and ports of this machine."""
        name = labels["dask.org/cluster-name"]
        if name not in self.clusters:
            documents = self.api.call(lambda store: [*store.objects.values()])
            folder = self.folder / name
            folder.mkdir()
            of_name = {d["kind"]: d for d in documents if d["metadata"]["name"] == name}
            document = of_name.get("DaskJob") or of_name["DaskCluster"]
            self.clusters[name] = Pods(document, documents, folder, {}, self.secrets)
        return self.clusters[name]

    def publish(self, key, found):
        """A service's ports are those that the scheduler has on this machine."""
        ports = self.cluster(found["metadata"]["labels"]).scheduler_ports
        if str(found["spec"]["ports"][0]["port"]) in ports:
            own = [{**port, "port": int(ports[str(port["port"])])} for port in found["spec"]["ports"]]
            self.api.call(lambda store: store.patch(key, {"spec": {"ports": own}}))

    def start(self, name, container, labels):
        ports = free_ports(PORTS[2:]) if labels["dask.org/component"] == "worker" else {}
        return self.cluster(labels).start(name, container, {}, ports)

    def run(self, key, pod):
        """A pod that runs to its end."""
        cluster, name = self.cluster(pod["metadata"]["labels"]), key.name
        self.tell(key, "Running")
        for container in [*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]]:
            process = cluster.start(f"{name}-{container['name']}", container)
            self.running[name] = process
            if process.wait():
                self.tell(key, "Failed")
                return
        self.tell(key, "Succeeded")

    def tell(self, key, phase):
        self.api.call(lambda store: key in store.objects and store.patch(key, {"status": {"phase": phase}}))

    def names(self, plural):
        """Objects of a kind."""
        return self.api.call(lambda store: [key.name for key in store.objects if key.plural == plural])
