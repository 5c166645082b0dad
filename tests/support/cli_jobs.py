# SPDX-License-Identifier: Apache-2.0
"""Jobs as the API server would show them, with as much of their pods and records as `look` reads."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from elasticjob.objects import Object
from elasticjob_cli.reading.look import Look, look
from elasticjob_cli.reading.scene import Leader, Scene

NOW = datetime(2026, 11, 22, 12, 0, 0, tzinfo=UTC)
LEADER = Leader("elasticjob-system/elasticjob-operator")


def ago(seconds: float) -> str:
    return (NOW - timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")


def condition(type: str, status: str, seconds: float, message: str = "", reason: str = "Any") -> Object:
    made = {"type": type, "status": status, "reason": reason, "message": message}
    return made | {"lastTransitionTime": ago(seconds)}


def blocker(reason: str, message: str, *workers: int, passes: bool = False, **more: Any) -> Object:
    """As the operator writes it."""
    kept = " ".join(map(str, workers))
    return {"reason": reason, "workers": kept, "count": len(workers), "since": ago(20), "message": message} | {
        "passes": passes,
        **more,
    }


def pod(index: int, *, since: float | None = 100, replacement: int = 0, **status: Any) -> Object:
    """`since`: how long its trainer has run; None for not at all."""
    running = {"state": {"running": {"startedAt": ago(since)}}} if since is not None else {"state": {}}
    name = f"digits-{index}-{replacement}"
    labels = {"elasticjob.io/job": "digits", "elasticjob.io/index": str(index)}
    meta = {"name": name, "uid": f"uid-{name}", "labels": labels, "creationTimestamp": ago(200)}
    containers = [{"name": "trainer", "restartCount": 0, **running}]
    return {
        "metadata": meta,
        "spec": {"nodeName": f"node-{index}", "containers": [{"name": "trainer", "image": "train:1"}]},
        "status": {"phase": "Running", "containerStatuses": containers, **status},
    }


def record(index: int, request: Object | None = None, *, asked: float = 50, heard: float = 2, **status: Any) -> Object:
    """`asked` and `heard`: seconds since its spec and its status were written."""
    name = f"digits-{index}-0"
    fields = [{"operation": "Update", "time": ago(asked)}, {"subresource": "status", "time": ago(heard)}]
    spec = {"job": "digits", "index": index, "id": f"ab.{index}", "certificate": "PEM", "address": "10.0.0.1:27601"}
    owner = {"kind": "Pod", "name": name, "uid": f"uid-{name}"}
    meta = {"name": name, "ownerReferences": [owner], "managedFields": fields}
    return {"metadata": meta, "spec": spec | ({"request": request} if request else {}), "status": status}


def joins(after: int) -> Object:
    return {"type": "Join", "after": after, "cause": "MembershipChanged"}


def scene(
    spec: Mapping[str, Any],
    status: Mapping[str, Any],
    pods: Iterable[Object] = (),
    records: Iterable[Object] = (),
    **more: Any,
) -> Scene:
    meta = {"name": "digits", "namespace": "default", "uid": "uid", "generation": 1, "creationTimestamp": ago(1000)}
    body = {
        "metadata": meta,
        "spec": {"template": {"spec": {}}, **spec},
        "status": {"observedGeneration": 1, **status},
    }
    return Scene(job=body, pods=tuple(pods), records=tuple(records), **{"leader": LEADER, "now": NOW, **more})


def formed(
    members: Sequence[int],
    *,
    number: int = 4,
    spec: Mapping[str, Any] | None = None,
    rendezvous: Mapping[str, Any] | None = None,
    pods: Iterable[Object] = (),
    records: Iterable[Object] = (),
    **more: Any,
) -> Look:
    """A round of these workers, in rank order, for 30 s; `pods` and `records` of others."""
    agreed = {
        "round": number,
        "phase": "Formed",
        "worldSize": len(members),
        "participants": " ".join(f"{index}/ab.{index}" for index in members),
        "replicas": len(members),
        **(rendezvous or {}),
    }
    status = {"rendezvous": agreed, "conditions": [condition("Rendezvoused", "True", 30)], **more}
    own = [pod(index) for index in members]
    said = [record(index, joins(number - 1)) for index in members]
    return look(scene({"replicas": len(members), **(spec or {})}, status, [*own, *pods], [*said, *records]))


def forming(
    *,
    joined: Iterable[int] = (),
    last: Sequence[int] = (0, 1, 2),
    spec: Mapping[str, Any] | None = None,
    rendezvous: Mapping[str, Any] | None = None,
    pods: Iterable[Object] = (),
    records: Iterable[Object] = (),
    **more: Any,
) -> Look:
    """Round 2, opened 12 s ago after one of the workers `last`; who has `joined` did so 5 s ago."""
    agreed = {
        "round": 2,
        "phase": "Forming",
        "participants": " ".join(f"{index}/ab.{index}" for index in last),
        "replicas": len(last),
        "reason": "worker 2 lost: its pod was deleted",
        **(rendezvous or {}),
    }
    status = {"rendezvous": agreed, "conditions": [condition("Rendezvoused", "False", 12)], **more}
    there = [pod(index) for index in joined]
    said = [record(index, joins(1), asked=5) for index in joined]
    return look(scene({"replicas": len(last), **(spec or {})}, status, [*there, *pods], [*said, *records]))
