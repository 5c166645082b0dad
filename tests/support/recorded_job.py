# SPDX-License-Identifier: Apache-2.0
"""A job whose API server is a list of what was done, with a reconciler for it."""

from copy import deepcopy
from types import SimpleNamespace
from typing import Any, cast

from elasticjob.kube.errors import Conflict, NotFound
from elasticjob.reading import Node, Pod, Record
from elasticjob_operator.cluster.cache import Cache, Key
from elasticjob_operator.cluster.client import Listing
from elasticjob_operator.cluster.reflector import Reflector
from elasticjob_operator.memory import Memories
from elasticjob_operator.objects.pods import SidecarImage
from elasticjob_operator.reconciler import Reconciler
from support.operator_objects import Object

KEY = Key("ml", "digits")


class RecordedJob:
    """One job, and all that is done to it and for it, in its order."""

    def __init__(self, body: Object) -> None:
        self.body, self.done = body, list[str]()
        self.there: list[Object] = []
        self.records: list[Object] = []
        self.queued: list[Object] = []
        self.made: list[Object] = []
        self.unseen: Exception | None = None
        self.nodes_there: list[Object] = []
        self.budget: Object | None = None
        self.conflicts, self.now = 0, 100.0

    def announce(self, _: Object, reason: str, message: str, *, warning: bool = False, cause: str = "") -> None:
        self.done.append(f"announce {reason}")

    def forget(self, _: str) -> None: ...

    async def jobs(self, _: str | None) -> Listing[Object]:
        return Listing([self.body], "7")

    async def pods(self, *_: Any) -> Listing[Pod]:
        return Listing([Pod.read(one) for one in self.there], "7")

    async def workers(self, *_: Any) -> Listing[Record]:
        return Listing([Record.read(one) for one in self.records], "7")

    async def nodes(self) -> Listing[Node]:
        return Listing([Node.read(one) for one in self.nodes_there], "7")

    async def workloads(self, _: str | None) -> Listing[Object]:
        if self.unseen:
            raise self.unseen
        return Listing(deepcopy(self.queued), "7")

    async def job(self, *_: str) -> Object:
        return self.body

    async def try_template(self, *_: Any) -> None: ...

    async def replace_job_status(self, body: Object, status: Object) -> Object:
        if self.conflicts:
            self.conflicts -= 1
            raise Conflict("the object has been modified", 409)
        self.done.append("status")
        self.body = deepcopy(body) | {"status": status}
        self.body["metadata"]["resourceVersion"] += "0"
        return self.body

    async def request(self, method: str, path: str, body: Object | None = None) -> Object:
        of_budget = "poddisruptionbudgets" in path
        if body is None:
            if of_budget and self.budget:
                return deepcopy(self.budget)
            raise NotFound(path, 404)
        self.done.append(body["kind"])
        if of_budget:
            self.budget = body | {"metadata": body["metadata"] | {"uid": "b"}}
        if body["kind"] == "Workload":
            self.queued.append(body | {"metadata": body["metadata"] | {"uid": "x"}})
        return body

    async def create_pod(self, pod: Object) -> Object:
        self.done.append("pod")
        self.made.append(pod)
        return {**pod, "metadata": {**pod["metadata"], "resourceVersion": "1", "uid": "x"}}

    async def delete(self, path: str, uid: str) -> None:
        if "/workloads/" in path:
            self.queued = [one for one in self.queued if one["metadata"]["uid"] != uid]
            return
        assert (path.rpartition("/")[2], uid) == ("digits-worker", "b")
        self.budget = None

    async def delete_pod(self, namespace: str, name: str, uid: str) -> None:
        self.done.append(f"delete {name}")

    async def delete_job(self, namespace: str, name: str, uid: str) -> None:
        self.done.append(f"delete {namespace}/{name} {uid}")


def reconciler(recorded: RecordedJob, *, nodes: bool = True) -> Reconciler:
    cache, image = Cache(), SidecarImage("sidecar:1", "IfNotPresent")
    clock = SimpleNamespace(epoch=0, settled=0.0, now=lambda: recorded.now)
    leadership: Any = SimpleNamespace(term=5, lease=None, clock=clock)
    cache.note_job(recorded.body)
    kube = cast(Any, recorded)
    memories = Memories(kube, cache, Reflector(kube, cache, nodes=nodes), leadership, kube, image, nodes=nodes)
    return Reconciler(memories, cache, leadership, kube)
