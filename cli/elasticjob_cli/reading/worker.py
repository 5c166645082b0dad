# SPDX-License-Identifier: Apache-2.0
"""One worker: its pod, its record, its place in the round."""

from dataclasses import dataclass
from datetime import datetime

from elasticjob.api import WorkerRequest
from elasticjob.members import Member
from elasticjob.objects import Object
from elasticjob.reading import ABSENT, Container, Pod, PodCondition, Record, WorkerContent
from elasticjob.reading.validity import Reading
from elasticjob.reading.waits import Wait, wait_of
from elasticjob.reading.workers import worker_of
from elasticjob.rendezvous import Worker
from elasticjob.rendezvous.model import PodKey
from elasticjob.terms import RequestType
from elasticjob_cli.reading.times import moment


@dataclass(frozen=True, slots=True)
class WorkerView:
    """One worker as read. `pod` and `record`: None if absent; `record` also if it does not follow its schema.
    `invalid`: why the operator ignores the record. `worker`: the worker as the rendezvous takes it; None without a pod.
    `wait`: why its pod does not do its part, as the operator reads it. `rank`: in the last formed round. `joined`: for
    the next round. `spare`: it has no place, and waits for one."""

    index: int
    replacement: int
    pod: Pod | None = None
    body: Object | None = None
    record: WorkerContent | None = None
    worker: Worker | None = None
    wait: Wait | None = None
    rank: int | None = None
    joined: bool = False
    invalid: str = ""
    spare: bool = False

    @property
    def name(self) -> str:
        return self.pod.name if self.pod else ""

    def container(self, name: str) -> Container:
        return self.pod.container(name) if self.pod else ABSENT

    @property
    def scheduling(self) -> PodCondition:
        return self.pod.condition("PodScheduled") if self.pod else PodCondition("PodScheduled")

    @property
    def is_member(self) -> bool:
        return self.rank is not None

    @property
    def node(self) -> str:
        return self.pod.node if self.pod else ""

    @property
    def made(self) -> datetime | None:
        return moment(self.pod.created) if self.pod else None

    @property
    def asked_at(self) -> datetime | None:
        """When its record's spec was last changed, by the API server's account: the time of its request."""
        return changed_at(self.body, status=False)

    @property
    def heard_at(self) -> datetime | None:
        """When its record was last written, heartbeats included."""
        times = [changed_at(self.body, status=True), self.asked_at]
        return max((time for time in times if time), default=None)

    @property
    def request(self) -> WorkerRequest | None:
        return self.record.request if self.record else None

    def asks(self, type: RequestType) -> bool:
        return self.request is not None and self.request.type == type


def changed_at(body: Object | None, *, status: bool) -> datetime | None:
    """When the object's spec, or its status, was last changed."""
    fields = (body or {}).get("metadata", {}).get("managedFields", ())
    times = [moment(one.get("time")) for one in fields if (one.get("subresource") == "status") is status]
    return max((time for time in times if time), default=None)


def parsed(body: Object | None, pod: Pod | None) -> WorkerContent | None:
    """The content of a record; None if it is invalid, or belongs to another pod of this name."""
    record = None if body is None else Record.read(body, check=False)
    return record.content if record and pod and pod.uid in record.owners else None


def read_worker(
    pod_key: PodKey, pod: Pod, reading: Reading, trainer: str, made_from: str
) -> tuple[Worker, Wait | None]:
    """The worker as the operator reads it, and why its pod does not do its part."""
    asked = reading.content is not None and reading.content.request is not None
    wait = wait_of(pod, trainer, asked=asked)
    return worker_of(pod, pod_key, reading, trainer, made_from, wait), wait


def is_of(member: Member, pod: Pod, record: WorkerContent | None) -> bool:
    """Whether this pod is the one that was in the round, and not its replacement. The ids of members whose pods were
    made together begin with the same batch, which each pod names."""
    if record is not None:
        return record.id == member.id
    return pod.batch in (None, member.id.partition(".")[0])
