"""
As much of the Kubernetes API as kubectl, kopf and kr8s ask for, in memory: no admission, no scheduling, no controllers.

Objects are created, read, listed by labels and by name, watched, patched (merge and JSON patches), and deleted with
their finalizers and all that they own. What runs pods is elsewhere (kubelet.py).
"""

import asyncio
import copy
import json
import threading
import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import yaml

KINDS = {
    "v1": {
        "namespaces": "Namespace", "pods": "Pod", "services": "Service", "events": "Event", "configmaps": "ConfigMap",
        "secrets": "Secret", "serviceaccounts": "ServiceAccount", "resourcequotas": "ResourceQuota",
        "persistentvolumeclaims": "PersistentVolumeClaim",
    },
    "apps/v1": {"deployments": "Deployment"},
    "policy/v1": {"poddisruptionbudgets": "PodDisruptionBudget"},
    "networking.k8s.io/v1": {"networkpolicies": "NetworkPolicy"},
    "monitoring.coreos.com/v1": {"podmonitors": "PodMonitor"},
    "apiextensions.k8s.io/v1": {"customresourcedefinitions": "CustomResourceDefinition"},
}  # fmt: skip
GLOBAL = ("namespaces", "customresourcedefinitions")
VERBS = ["create", "delete", "get", "list", "patch", "update", "watch"]


def custom_kinds():
    """Kinds of the operator, as its own definitions name them; those whose status is a resource of its own."""
    import dask_kubernetes

    place = Path(dask_kubernetes.__file__).parent / "operator/deployment/helm/dask-kubernetes-operator/crds"
    kinds, apart = {}, set()
    for path in place.glob("*.yaml"):
        spec = yaml.safe_load(path.read_text())["spec"]
        kinds[spec["names"]["plural"]] = spec["names"]["kind"]
        if "status" in spec["versions"][0].get("subresources", {}):
            apart.add(spec["names"]["plural"])
    return {**KINDS, "kubernetes.dask.org/v1": kinds}, apart


@dataclass(frozen=True)
class Key:
    version: str
    plural: str
    namespace: str | None = None
    name: str | None = None

    def holds(self, other):
        """Whether a list of this key has the other one in it."""
        same = (self.version, self.plural) == (other.version, other.plural)
        return same and self.namespace in (None, other.namespace)


@dataclass
class Watch:
    key: Key
    labels: str
    name: str | None
    events: asyncio.Queue = field(default_factory=asyncio.Queue)

    def wants(self, key, found):
        labels = found["metadata"].get("labels") or {}
        return self.key.holds(key) and matches(self.labels, labels) and self.name in (None, key.name)

    def tell(self, event, key, found):
        if self.wants(key, found):
            self.events.put_nowait({"type": event, "object": found})


def matches(selector, labels):
    for part in filter(None, selector.split(",")):
        name, equal, value = part.replace("==", "=").partition("=")
        if not equal:
            if (name.strip("!") in labels) == name.startswith("!"):
                return False
        elif (labels.get(name.rstrip("!")) == value) == name.endswith("!"):
            return False
    return True


def merge(held, patch):
    """RFC 7386."""
    for name, value in patch.items():
        if value is None:
            held.pop(name, None)
        elif isinstance(value, dict):
            if not isinstance(held.get(name), dict):
                held[name] = {}
            merge(held[name], value)
        else:
            held[name] = value


class Store:
    """All objects; every change has a number, and those who watch are told."""

    def __init__(self):
        self.kinds, self.apart = custom_kinds()
        self.objects, self.watches, self.history = {}, [], []

    def tell(self, event, key):
        found = self.objects[key]
        found["metadata"]["resourceVersion"] = str(len(self.history) + 1)
        self.history.append((event, key, copy.deepcopy(found)))
        for watch in self.watches:
            watch.tell(*self.history[-1])

    def create(self, key, given):
        given["apiVersion"], given["kind"] = key.version, self.kinds[key.version][key.plural]
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        facts = {"name": key.name, "uid": str(uuid.uuid4()), "creationTimestamp": now, "generation": 1}
        given["metadata"] = {**given["metadata"], **facts, **({"namespace": key.namespace} if key.namespace else {})}
        if key.plural == "pods":
            given["status"] = {"phase": "Pending"}
        if key.plural == "services":
            given["status"] = {"loadBalancer": {}}
        self.objects[key] = given
        self.tell("ADDED", key)

    def patch(self, key, change, status=False):
        """Merge a change in; of kinds whose status is apart, the status alone or all but it."""
        found = self.objects[key]
        before, spec = copy.deepcopy(found), copy.deepcopy(found.get("spec"))
        if isinstance(change, list):
            import jsonpatch

            changed = jsonpatch.apply_patch(found, change)
            found.clear()
            found.update(changed)
            change = {}
        if key.plural in self.apart:
            change = {name: value for name, value in change.items() if (name == "status") == status}
        merge(found, change)
        if found.get("spec") != spec:
            found["metadata"]["generation"] += 1
        if found != before:
            self.tell("MODIFIED", key)
        if "deletionTimestamp" in found["metadata"] and not found["metadata"].get("finalizers"):
            self.remove(key)

    def delete(self, key):
        if key not in self.objects:
            return
        facts = self.objects[key]["metadata"]
        if not facts.get("finalizers"):
            self.remove(key)
        elif "deletionTimestamp" not in facts:
            facts["deletionTimestamp"] = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            self.tell("MODIFIED", key)

    def remove(self, key):
        """Remove it, and all that it owns."""
        self.tell("DELETED", key)
        uid = self.objects.pop(key)["metadata"]["uid"]
        for other, found in list(self.objects.items()):
            if uid in [owner["uid"] for owner in found["metadata"].get("ownerReferences", [])]:
                self.delete(other)


class Api:
    """The server, in a thread of this process; `store` is to be used by `call` only."""

    def __init__(self):
        self.store, self.loop, self.ready = Store(), None, threading.Event()
        self.log = lambda pod: ""  # what a pod has said

    def __enter__(self):
        self.thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)
        self.thread.start()
        assert self.ready.wait(30)
        return self

    def __exit__(self, *_):
        self.loop.call_soon_threadsafe(self.over.set)
        self.thread.join(30)

    def call(self, function):
        """Run a function of the store in its thread."""

        async def within():
            return function(self.store)

        return asyncio.run_coroutine_threadsafe(within(), self.loop).result(30)

    async def _serve(self):
        from aiohttp import web

        self.loop, self.over = asyncio.get_running_loop(), asyncio.Event()
        app = web.Application(client_max_size=2**26)
        app.router.add_route("*", "/{path:.*}", self._answer)
        runner = web.AppRunner(app, shutdown_timeout=1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.port = site._server.sockets[0].getsockname()[1]
        self.ready.set()
        await self.over.wait()
        for watch in self.store.watches:
            watch.events.put_nowait(None)
        await runner.cleanup()

    async def _answer(self, request):
        parts = [part for part in request.path.split("/") if part]
        if parts == ["version"]:
            return as_json({"major": "1", "minor": "33", "gitVersion": "v1.33.0"})
        if parts == ["api"]:
            return as_json({"kind": "APIVersions", "versions": ["v1"]})
        if parts == ["apis"]:
            groups = [group(version) for version in self.store.kinds if "/" in version]
            return as_json({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
        if len(parts) == 2 and parts[0] == "apis":
            [version] = [each for each in self.store.kinds if each.startswith(parts[1] + "/")] or [None]
            return as_json({"apiVersion": "v1", **group(version)}) if version else failed(404, "NotFound", request.path)
        version, rest = (parts[1], parts[2:]) if parts[0] == "api" else ("/".join(parts[1:3]), parts[3:])
        if version not in self.store.kinds:
            return failed(404, "NotFound", request.path)
        if not rest:
            return as_json(self._resources(version))
        namespace = None
        if rest[0] == "namespaces" and len(rest) > 2:
            namespace, rest = rest[1], rest[2:]
        plural, name, part = [*rest, None, None][:3]
        if plural not in self.store.kinds[version]:
            return failed(404, "NotFound", request.path)
        return await self._of_objects(request, Key(version, plural, namespace, name), part)

    def _resources(self, version):
        apart = {*self.store.apart, "pods", "services", "deployments"}
        found = [
            {
                "name": plural + part,
                "singularName": kind.lower(),
                "kind": kind,
                "verbs": VERBS,
                "namespaced": plural not in GLOBAL,
            }
            for plural, kind in self.store.kinds[version].items()
            for part in (("", "/status") if plural in apart else ("",))
        ]
        return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": found}

    async def _of_objects(self, request, key, part):
        store = self.store
        if request.method == "POST":
            given = await request.json()
            facts = given.setdefault("metadata", {})
            name = facts.get("name") or facts.get("generateName", "") + uuid.uuid4().hex[:5]
            key = Key(key.version, key.plural, key.namespace, name)
            if key in store.objects:
                return failed(409, "AlreadyExists", f"{key.plural} {name!r} already exists")
            store.create(key, given)
            return as_json(store.objects[key], 201)
        if key.name is None:
            watched = request.query.get("watch") in ("true", "1")
            return await (self._watch(request, key) if watched else self._list(request, key))
        if key not in store.objects:
            return failed(404, "NotFound", f"{key.plural} {key.name!r} not found")
        found = store.objects[key]
        if part == "log":
            from aiohttp import web

            return web.Response(text=self.log(key.name))
        if request.method in ("PATCH", "PUT"):
            store.patch(key, await request.json(), part == "status")
        elif request.method == "DELETE":
            store.delete(key)
        return as_json(found)

    def _selected(self, request, key):
        fields = dict(part.split("=") for part in request.query.get("fieldSelector", "").split(",") if part)
        watch = Watch(key, request.query.get("labelSelector", ""), fields.get("metadata.name"))
        return watch, [found for each, found in self.store.objects.items() if watch.wants(each, found)]

    async def _list(self, request, key):
        _, items = self._selected(request, key)
        kind = self.store.kinds[key.version][key.plural] + "List"
        facts = {"resourceVersion": str(len(self.store.history))}
        return as_json({"kind": kind, "apiVersion": key.version, "metadata": facts, "items": items})

    async def _watch(self, request, key):
        from aiohttp import web

        answer = web.StreamResponse(headers={"Content-Type": "application/json"})
        await answer.prepare(request)
        watch, items = self._selected(request, key)
        since = int(request.query.get("resourceVersion") or 0)
        if since:
            for told in self.store.history[since:]:  # what happened since the list that was asked for before
                watch.tell(*told)
        else:
            for found in items:
                watch.events.put_nowait({"type": "ADDED", "object": copy.deepcopy(found)})
        if request.query.get("sendInitialEvents") == "true":  # who asks waits for the word that these were all
            facts = {"resourceVersion": str(len(self.store.history))}
            facts |= {"annotations": {"k8s.io/initial-events-end": "true"}}
            kind = self.store.kinds[key.version][key.plural]
            bookmark = {"kind": kind, "apiVersion": key.version, "metadata": facts}
            watch.events.put_nowait({"type": "BOOKMARK", "object": bookmark})
        self.store.watches.append(watch)
        try:
            async with asyncio.timeout(float(request.query.get("timeoutSeconds") or 3600)):
                while (event := await watch.events.get()) is not None:
                    await answer.write(json.dumps(event).encode() + b"\n")
        except (TimeoutError, ConnectionError):
            pass
        finally:
            self.store.watches.remove(watch)
        return answer


def group(version):
    own = {"groupVersion": version, "version": version.rpartition("/")[2]}
    name = version.partition("/")[0]
    return {"kind": "APIGroup", "name": name, "versions": [own], "preferredVersion": own}


def as_json(found, status=200):
    from aiohttp import web

    return web.json_response(found, status=status)


def failed(code, reason, message):
    said = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
    return as_json({**said, "reason": reason, "message": message, "code": code}, code)
