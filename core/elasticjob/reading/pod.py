# SPDX-License-Identifier: Apache-2.0
"""A worker's pod."""

from collections.abc import Iterator
from dataclasses import dataclass

from elasticjob.api import INDEX_LABEL, JOB_LABEL
from elasticjob.objects import Object
from elasticjob.pods import (
    AVOIDED_NODES,
    BATCH,
    DISRUPTIONS,
    JOB_UID,
    KUEUE,
    OVER_ITS_LIMIT,
    QUEUE_LABEL,
    SIDECAR,
    TEMPLATE_HASH,
    WORKLOAD,
)
from elasticjob.reading.container import ABSENT, Container
from elasticjob.reading.devices import Device, unhealthy_devices
from elasticjob.reading.node import Toleration
from elasticjob.reading.shared import sentence, shared, word


@dataclass(frozen=True, slots=True)
class PodCondition:
    type: str
    status: str = ""
    reason: str = ""
    message: str = ""

    @classmethod
    def read(cls, body: Object) -> "PodCondition":
        type, status, reason = (word(body.get(field)) for field in ("type", "status", "reason"))
        return cls(type, status, reason, sentence(body.get("message")))


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """A worker's pod.

    `version`: its resourceVersion. `job`, `index`, `queue`: from its labels, empty if absent. `owners`: the UIDs of its
    owners. `deleting`: the deletionTimestamp, `created`: the creationTimestamp, both in RFC 3339. `made_from`: the hash
    of the settings that the operator made it from. `avoided_nodes`: the nodes it must not run on. `workload`: the
    Workload whose quota it takes. `batch`, `job_uid`: from the sidecar's environment. These five are None or empty for
    a pod that the operator did not make. `staying`: the init containers that run as long as the pod. `deadline`:
    activeDeadlineSeconds. `claims`: the PersistentVolumeClaims that it names. `containers`: all of them, init
    containers first. `unhealthy`: its unhealthy devices, or the first few of them.
    """

    name: str
    namespace: str
    uid: str
    version: int
    job: str
    index: str
    queue: str
    owners: tuple[str, ...]
    created: str
    deleting: str
    finalizers: tuple[str, ...]
    made_from: str | None
    avoided_nodes: frozenset[str]
    workload: str
    batch: str | None
    job_uid: str | None
    node: str
    tolerations: tuple[Toleration, ...]
    gates: tuple[str, ...]
    staying: frozenset[str]
    deadline: int | None
    claims: tuple[str, ...]
    phase: str
    reason: str
    message: str
    addresses: tuple[str, ...]
    conditions: tuple[PodCondition, ...]
    containers: tuple[Container, ...]
    unhealthy: tuple[Device, ...]

    @classmethod
    def read(cls, body: Object) -> "Pod":
        meta, spec, status = body["metadata"], body.get("spec") or {}, body.get("status") or {}
        labels, annotations = meta.get("labels") or {}, meta.get("annotations") or {}
        init = spec.get("initContainers") or ()
        set_in_sidecar = next((_variables(one) for one in init if one["name"] == SIDECAR), {})
        made_from, job_uid = annotations.get(TEMPLATE_HASH), set_in_sidecar.get(JOB_UID)
        return cls(
            name=meta["name"],
            namespace=word(meta.get("namespace")),
            uid=meta.get("uid", ""),
            version=int(meta.get("resourceVersion", 0)),
            job=word(labels.get(JOB_LABEL)),
            index=word(labels.get(INDEX_LABEL)),
            queue=word(labels.get(QUEUE_LABEL)),
            owners=shared(tuple(owner["uid"] for owner in meta.get("ownerReferences") or ())),
            created=word(meta.get("creationTimestamp")),
            deleting=word(meta.get("deletionTimestamp")),
            finalizers=shared(tuple(meta.get("finalizers") or ())),
            made_from=None if made_from is None else word(made_from),
            avoided_nodes=shared(frozenset(filter(None, annotations.get(AVOIDED_NODES, "").split(",")))),
            workload=shared(word(annotations.get(WORKLOAD))),
            batch=set_in_sidecar.get(BATCH),
            job_uid=None if job_uid is None else word(job_uid),
            node=word(spec.get("nodeName")),
            tolerations=shared(tuple(map(Toleration.read, spec.get("tolerations") or ()))),
            gates=shared(tuple(one["name"] for one in spec.get("schedulingGates") or ())),
            staying=shared(
                frozenset((SIDECAR, *(one["name"] for one in init if one.get("restartPolicy") == "Always")))
            ),
            deadline=spec.get("activeDeadlineSeconds"),
            claims=shared(tuple(_claims(spec))),
            phase=word(status.get("phase")),
            reason=word(status.get("reason")),
            message=sentence(status.get("message")),
            addresses=tuple(_addresses(status)),
            conditions=shared(tuple(map(PodCondition.read, status.get("conditions") or ()))),
            containers=tuple(_containers(status)),
            unhealthy=unhealthy_devices(status),
        )

    def condition(self, type: str) -> PodCondition:
        """The condition of this type, an empty one if there is none."""
        return next((one for one in self.conditions if one.type == type), PodCondition(type))

    def container(self, name: str) -> Container:
        return next((one for one in self.containers if one.name == name), ABSENT)

    @property
    def init_containers(self) -> tuple[Container, ...]:
        return tuple(one for one in self.containers if one.is_init)

    @property
    def is_over(self) -> bool:
        """Whether all its containers have ended for good."""
        return self.phase in ("Succeeded", "Failed")

    @property
    def is_ready(self) -> bool:
        return self.condition("Ready").status == "True"

    @property
    def is_unheard_of(self) -> bool:
        """Whether the cluster has lost contact with its node: then the control plane marks the pod unready although its
        containers were last reported ready. A live kubelet reports both together, except for an unmet readiness gate,
        which it names."""
        ready = self.condition("Ready")
        statuses = [ready.status, self.condition("ContainersReady").status]
        return statuses == ["False", "True"] and ready.reason != "ReadinessGatesNotReady"

    @property
    def disruption(self) -> PodCondition | None:
        """The condition by which the cluster ends the pod for a reason outside it: a drain, an eviction, a lost node,
        preemption. A pod evicted for exceeding its own disk limit is not disrupted."""
        if self.reason == "Evicted" and OVER_ITS_LIMIT.search(self.message):
            return None
        found = (self.condition(type) for type in DISRUPTIONS)
        return next((one for one in found if one.status == "True"), None)

    @property
    def was_rejected(self) -> bool:
        """Whether its node ended it before any container started, as a kubelet does that cannot admit it. After a
        node's restart it may be a pod that did run there: the kubelet then knows nothing of that."""
        return self.phase == "Failed" and not any(one.has_started or one.ended_before for one in self.containers)

    @property
    def unready_since(self) -> str:
        """When the sidecar started to run, if it is not ready: it has no access to the API server, or has just started.
        Empty if it is ready or does not run."""
        sidecar = self.container(SIDECAR)
        return sidecar.since if sidecar.ready is False else ""

    @property
    def awaited_queue(self) -> str | None:
        """The Kueue queue in which the pod waits for quota; None if it does not wait."""
        return self.queue or None if any(gate.startswith(KUEUE) for gate in self.gates) else None


def _containers(status: Object) -> Iterator[Container]:
    for field in ("initContainerStatuses", "containerStatuses"):
        for one in status.get(field) or ():
            yield Container.read(one, is_init=field == "initContainerStatuses")


def _addresses(status: Object) -> Iterator[str]:
    for one in status.get("podIPs") or [{"ip": status.get("podIP")}]:
        if one.get("ip"):
            yield one["ip"]


def _variables(container: Object) -> dict[str, str | None]:
    """The container's environment variables. They cannot change in an existing pod."""
    return {one["name"]: one.get("value") for one in container.get("env") or ()}


def _claims(spec: Object) -> Iterator[str]:
    for volume in spec.get("volumes") or ():
        if claim := volume.get("persistentVolumeClaim"):
            yield claim["claimName"]
