# SPDX-License-Identifier: Apache-2.0
"""A Kubernetes API server in memory: what the clients of this project ask of it, with the answers of the real one.

The one of all tests that have no real one: the simulation reaches it through its networks, tests of one part through
`support.recording_server`. Every request sees a copy, as JSON. Nothing here waits: time is the network's, and an answer
says how long it takes. It runs in any event loop.
"""

import asyncio
import json
from collections.abc import Callable
from random import Random
from typing import Any

from elasticjob.api import GROUP, VERSION
from simulation.calls import Call, Reply, taken_apart
from simulation.clocks import Clock
from simulation.store import Change, Object, Store, Stored, matcher
from simulation.validity import Admission, Refusal, check_change, check_new
from simulation.watches import Watch

WITH_STATUS = frozenset({"elasticjobs", "elasticworkers", "pods", "workloads"})
GENERATED = frozenset({"elasticjobs", "elasticworkers", "pods"})
KINDS = {"elasticjobs": "ElasticJob", "elasticworkers": "ElasticWorker", "pods": "Pod", "workloads": "Workload"}
GRACE_SECONDS = 30
CUSTOM = f"{GROUP}/{VERSION}"


class ApiServer:
    """`lag`: how long watches may be behind, in seconds, now."""

    def __init__(self, loop: asyncio.AbstractEventLoop, dice: Random, clock: Clock) -> None:
        self.loop, self.dice, self.clock = loop, dice, clock
        self.store = Store()
        self.store.observers.append(self._tell_watches)
        self.admission = Admission()
        self.reviews: dict[str, Callable[[Object], Object]] = {}  # kinds that are answered and not stored, by plural
        self.down = False
        self.served = {"pods": "v1", "namespaces": "v1", "nodes": "v1", "elasticjobs": CUSTOM, "elasticworkers": CUSTOM}
        self.lag = 0.0
        self.requests = 0
        self.answered: dict[int, int] = {}
        self.on_call: list[Callable[[Call], None]] = []
        self.watches: dict[Watch, None] = {}
        self._pages: dict[str, tuple[int, list[Stored]]] = {}

    # --- over HTTP

    def handle(
        self, client: str, method: str, path: str, body: bytes | None, headers: dict[str, str], sent_at: float
    ) -> Reply:
        """One request of `client`."""
        self.requests += 1
        try:
            reply = self._answer(taken_apart(client, method, path, body, headers, sent_at))
        except Refusal as refusal:
            reply = Reply.failure(refusal.status, refusal.message, refusal.reason, refusal.after, refusal.field)
        self.answered[reply.status] = self.answered.get(reply.status, 0) + 1
        return reply

    def _answer(self, call: Call) -> Reply:
        for observer in self.on_call:
            observer(call)
        if call.plural == "":
            return self._discovery(call.path)
        if call.plural == "events" and call.method == "POST":
            return Reply(201, json.dumps(call.body).encode())
        match call.method, bool(call.name):
            case "GET", True:
                return Reply(200, self._found(call).raw)
            case "GET", False:
                return self._watch(call) if call.query.get("watch") == "true" else self._list(call)
            case "POST", False:
                return self._create(call)
            case "PUT", True:
                return self._replace(call, call.body)
            case "PATCH", True:
                return self._patch(call)
            case "DELETE", True:
                return self._delete(call)
        raise Refusal(405, "MethodNotAllowed", f"{call.method} is not supported")

    def _discovery(self, path: str) -> Reply:
        """The API groups, or what one of them holds: a group without a kind is none."""
        _, _, group = path.strip("/").partition("/")
        if not group:
            served = {"groupVersion": CUSTOM, "version": VERSION}
            groups = [{"name": GROUP, "versions": [served], "preferredVersion": served}]
            return Reply(200, json.dumps({"versions": ["v1"], "groups": groups}).encode())
        found = [name for name, its_group in self.served.items() if its_group == group]
        if not found:
            raise Refusal(404, "NotFound", "404 page not found")
        verbs = {"namespaced": True, "verbs": ["get", "list", "watch"]}
        kinds = [{"name": name, "singularName": name[:-1], "kind": KINDS.get(name, name), **verbs} for name in found]
        return Reply(200, json.dumps({"resources": kinds}).encode())

    def _found(self, call: Call) -> Stored:
        found = self.store.find(call.plural, (call.namespace or "", call.name))
        if found is None:
            raise Refusal(404, "NotFound", f'{call.plural} "{call.name}" not found')
        return found

    def _list(self, call: Call) -> Reply:
        """In pages of `limit`, all of which show what there was when the first was asked for."""
        if token := call.query.get("continue"):
            version, left = self._pages.pop(token, (-1, []))
            if version < self.store.compacted:
                raise Refusal(410, "Expired", "The provided continue parameter is too old")
        else:
            fits = matcher(call.query.get("labelSelector", ""), call.query.get("fieldSelector", ""))
            version = self.store.version
            left = [one for one in self.store.all(call.plural, call.namespace) if fits(one.body)]
            left.sort(key=lambda one: (one.body["metadata"]["namespace"], one.body["metadata"]["name"]))
        limit = int(call.query.get("limit", 0)) or len(left)
        page, left = left[:limit], left[limit:]
        token = ""
        if left:
            token = f"{version}-{self.requests}"
            self._pages[token] = (version, left)
        meta = json.dumps({"resourceVersion": str(version), "continue": token}).encode()
        kind = KINDS.get(call.plural, "Object").encode()
        items = b", ".join(one.raw for one in page)
        return Reply(200, b'{"kind": "%sList", "metadata": %s, "items": [%s]}' % (kind, meta, items))

    def _watch(self, call: Call) -> Reply:
        watch = Watch(
            self.loop,
            self.store,
            self.dice,
            call.plural,
            call.namespace,
            matcher(call.query.get("labelSelector", ""), call.query.get("fieldSelector", "")),
            int(call.query.get("resourceVersion") or self.store.version),
            float(call.query.get("timeoutSeconds", 1800)),
            call.query.get("allowWatchBookmarks") == "true",
            lambda: self.lag * self.dice.random(),
            lambda watch: self.watches.pop(watch, None),
        )
        self.watches[watch] = None
        if int(call.query.get("resourceVersion") or self.store.version) < self.store.compacted:
            self.answered[410] = self.answered.get(410, 0) + 1  # in the stream, not as the answer's status
        return Reply(200, b"", watch=watch)

    def _create(self, call: Call) -> Reply:
        body = call.body
        if review := self.reviews.get(call.plural):
            return Reply(201, json.dumps({**body, "status": review(body["spec"])}).encode())
        meta = body["metadata"]
        meta["namespace"] = call.namespace
        check_new(call.plural, body)
        if call.query.get("dryRun"):
            return Reply(201, json.dumps(body).encode())
        if self.store.find(call.plural, (call.namespace or "", meta["name"])) is not None:
            raise Refusal(409, "AlreadyExists", f'{call.plural} "{meta["name"]}" already exists')
        if "resourceVersion" in meta:
            raise Refusal(400, "BadRequest", "resourceVersion should not be set on objects to be created")
        self.admission.check(self.store, call.plural, body)
        return Reply(201, self.create(call.plural, body, call.client, call.sent_at).raw)

    def _replace(self, call: Call, body: Object) -> Reply:
        found = self._found(call)
        old, meta = found.body, body["metadata"]
        is_another = meta.get("uid") not in (None, old["metadata"]["uid"])
        if is_another and call.method == "PUT":
            why = f"Precondition failed: UID in precondition: {meta['uid']}, in object meta: {old['metadata']['uid']}"
            raise Refusal(409, "Conflict", f"Operation cannot be fulfilled on {call.plural} {call.name!r}: {why}")
        if meta.get("resourceVersion") not in (None, old["metadata"]["resourceVersion"]):
            why = "the object has been modified; please apply your changes to the latest version and try again"
            raise Refusal(409, "Conflict", f"Operation cannot be fulfilled on {call.plural} {call.name!r}: {why}")
        if is_another:
            why = f"metadata.uid: Invalid value: {meta['uid']!r}: field is immutable"
            raise Refusal(422, "Invalid", f"{call.plural} {call.name!r} is invalid: {why}", field="metadata.uid")
        if call.sub == "status":
            new = {**old, "metadata": dict(old["metadata"]), "status": body.get("status", {})}
        else:
            status = old.get("status")
            new = {**body, "metadata": _merged_meta(old["metadata"], meta)}
            if call.plural in WITH_STATUS:
                new.pop("status", None)
                if status is not None:
                    new["status"] = status
        return Reply(200, self._store(call.plural, found, new, call.client, call.sent_at).raw)

    def _patch(self, call: Call) -> Reply:
        found = self._found(call)
        if not call.patch:
            raise Refusal(415, "UnsupportedMediaType", "the simulated API server takes merge patches")
        wanted = dict(call.body)
        if call.sub == "status":
            wanted = {key: value for key, value in wanted.items() if key in ("metadata", "status")}
            wanted["metadata"] = {key: wanted.get("metadata", {}).get(key) for key in ("resourceVersion", "uid")}
            wanted["metadata"] = {key: value for key, value in wanted["metadata"].items() if value is not None}
        elif call.plural in WITH_STATUS:
            wanted.pop("status", None)
        return self._replace(call, merge(found.body, wanted))

    def _delete(self, call: Call) -> Reply:
        found, options = self._found(call), call.body or {}
        meta, asked = found.body["metadata"], options.get("preconditions") or {}
        for field in ("uid", "resourceVersion"):
            if field in asked and asked[field] != meta[field]:
                why = f"Precondition failed: {field} in precondition: {asked[field]}, in object meta: {meta[field]}"
                raise Refusal(409, "Conflict", f"Operation cannot be fulfilled on {call.plural} {call.name!r}: {why}")
        policy = options.get("propagationPolicy", "Background")
        self.delete(call.plural, found, call.client, call.sent_at, policy, options.get("gracePeriodSeconds"))
        return Reply(200, b'{"kind": "Status", "status": "Success"}')

    # --- for what belongs to the cluster itself

    def create(self, plural: str, body: Object, by: str, sent_at: float | None = None) -> Stored:
        """Stores a new object; `body` belongs to the store from now on."""
        meta = body["metadata"]
        meta |= {"uid": str(self.clock.new_uuid()), "creationTimestamp": self.clock.stamp()}
        if plural in GENERATED:
            meta["generation"] = 1
        if plural in KINDS:
            body.pop("status", None)
        if plural == "pods":
            body["status"] = {"phase": "Pending"}
            body["spec"].setdefault("terminationGracePeriodSeconds", GRACE_SECONDS)
        return self.store.put(plural, body, by, self.loop.time() if sent_at is None else sent_at)

    def get(self, plural: str, namespace: str, name: str) -> Object | None:
        """As it is stored: not to be changed."""
        found = self.store.find(plural, (namespace, name))
        return found.body if found else None

    def change(
        self, plural: str, namespace: str, name: str, how: Callable[[Object], None], by: str, uid: str = ""
    ) -> Object | None:
        """Lets `how` set fields of metadata, spec or status, in a copy of these, and stores it; None when there is no
        such object, or none with `uid`."""
        found = self.store.find(plural, (namespace, name))
        if found is None or (uid and found.body["metadata"]["uid"] != uid):
            return None
        new = {key: dict(value) if isinstance(value, dict) else value for key, value in found.body.items()}
        how(new)
        return self._store(plural, found, new, by, self.loop.time()).body

    def delete(
        self,
        plural: str,
        found: Stored,
        by: str,
        sent_at: float | None = None,
        policy: str = "Background",
        grace: int | None = None,
    ) -> None:
        """At once, or when its finalizers are gone, and a pod when its kubelet has stopped it."""
        sent_at = self.loop.time() if sent_at is None else sent_at
        meta = dict(found.body["metadata"])
        body = {**found.body, "metadata": meta}
        name = (meta["namespace"], meta["name"])
        finalizer = {"Orphan": "orphan", "Foreground": "foregroundDeletion"}.get(policy)
        if finalizer and finalizer not in meta.get("finalizers", []):
            meta["finalizers"] = [*meta.get("finalizers", []), finalizer]
        seconds = 0
        if plural == "pods":
            seconds = body["spec"]["terminationGracePeriodSeconds"] if grace is None else grace
            ended = body.get("status", {}).get("phase") in ("Succeeded", "Failed")
            if not body["spec"].get("nodeName") or ended:
                seconds = 0
        if not seconds and not meta.get("finalizers"):
            self.store.remove(plural, name, by, sent_at)
            return
        if "deletionTimestamp" not in meta or meta.get("deletionGracePeriodSeconds", 0) > seconds:
            meta.setdefault("deletionTimestamp", self.clock.stamp())
            meta["deletionGracePeriodSeconds"] = seconds
            if plural in GENERATED:
                meta["generation"] = meta.get("generation", 1) + 1
        if body != found.body:
            self.store.put(plural, body, by, sent_at)

    def _store(self, plural: str, found: Stored, new: Object, by: str, sent_at: float) -> Stored:
        """A write that changes nothing is none."""
        old = found.body
        new["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"]
        changed = {key for key in {**old, **new} if (key in old, old.get(key)) != (key in new, new.get(key))}
        if not changed:
            return found
        check_change(plural, old, new)
        new = {key: value if key in changed or key == "metadata" else old[key] for key, value in new.items()}
        if plural in GENERATED and changed - {"metadata", "status"}:
            new["metadata"]["generation"] = old["metadata"].get("generation", 1) + 1
        meta = new["metadata"]
        if "deletionTimestamp" in meta and not meta.get("finalizers") and not meta.get("deletionGracePeriodSeconds"):
            self.store.remove(plural, (meta["namespace"], meta["name"]), by, sent_at)
            return found
        return self.store.put(plural, new, by, sent_at)

    # --- watches

    def _tell_watches(self, change: Change) -> None:
        for watch in list(self.watches):
            watch.tell(change)

    def break_watches(self) -> None:
        """As an API server does that stops: all end."""
        for watch in list(self.watches):
            watch.finish("broken")


def _merged_meta(old: Object, new: Object) -> Object:
    """What only the server writes stays."""
    kept = ("uid", "creationTimestamp", "generation", "deletionTimestamp", "deletionGracePeriodSeconds", "namespace")
    own = {key: value for key, value in new.items() if key not in kept}
    return own | {key: old[key] for key in kept if key in old}


def merge(target: Any, patch: Any) -> Any:
    """RFC 7386, into a new object."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge(merged.get(key), value)
    return merged
