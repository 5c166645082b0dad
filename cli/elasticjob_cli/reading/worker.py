"""One worker: its pod, its record, its place in the round."""

from dataclasses import dataclass
from datetime import datetime

from pydantic import ValidationError

from elasticjob.api import ElasticWorker, WorkerRequest
from elasticjob.members import Member
from elasticjob.objects import Object
from elasticjob.reading import ABSENT, Condition, Container, Pod
from elasticjob.rendezvous import PodState, Request, Worker
from elasticjob.terms import RequestType
from elasticjob_cli.reading.times import moment


@dataclass(frozen=True, slots=True)
class WorkerView:
    """`pod` and `record` are None where there is none; `record` also where it does not follow its schema. `invalid`:
    what the operator finds wrong with it. `rank`: in the last formed round. `joined`: for the next round. `spare`: it
    has no place, and waits for one."""

    index: int
    replacement: int
    pod: Pod | None = None
    body: Object | None = None
    record: ElasticWorker | None = None
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
    def scheduling(self) -> Condition:
        """What its scheduler says."""
        return self.pod.condition("PodScheduled") if self.pod else Condition("PodScheduled")

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
        """When its record's spec was last changed, which is when it asked; the API server notes that."""
        return changed_at(self.body, status=False)

    @property
    def heard_at(self) -> datetime | None:
        """When its record was last written, heartbeats included."""
        times = [changed_at(self.body, status=True), self.asked_at]
        return max((time for time in times if time), default=None)

    @property
    def request(self) -> WorkerRequest | None:
        return self.record.spec.request if self.record else None

    def asks(self, type: RequestType) -> bool:
        return self.request is not None and self.request.type == type


def changed_at(body: Object | None, *, status: bool) -> datetime | None:
    """When the object's spec, or its status, was last changed."""
    fields = (body or {}).get("metadata", {}).get("managedFields", ())
    times = [moment(one.get("time")) for one in fields if (one.get("subresource") == "status") is status]
    return max((time for time in times if time), default=None)


def parsed(body: Object | None, pod: Pod | None) -> ElasticWorker | None:
    """What is read of a record; None where it makes no sense, or is that of another pod of this name."""
    owners = {owner["uid"] for owner in (body or {}).get("metadata", {}).get("ownerReferences", ())}
    if body is None or pod is None or pod.uid not in owners:
        return None
    try:
        return ElasticWorker.parse(body)
    except ValidationError:
        return None


def pod_state(pod: Pod, trainer: str) -> PodState:
    """As far as it matters to who is wanted: whether its trainer runs, or has ended."""
    found = pod.container(trainer)
    if pod.phase == "Failed":
        return PodState.FAILED
    if pod.phase == "Succeeded" or (found.ended and found.ended.code == 0):
        return PodState.SUCCEEDED
    return PodState.RUNNING if found.has_started else PodState.PENDING


def as_worker(view: WorkerView, trainer: str) -> Worker:
    """As the rendezvous is given it."""
    assert view.pod is not None
    request = view.record.spec.request if view.record and not view.invalid else None
    return Worker(
        index=view.index,
        replacement=view.replacement,
        pod=pod_state(view.pod, trainer),
        deleting=bool(view.pod.deleting),
        id=view.record.spec.id if view.record and not view.invalid else None,
        request=None
        if request is None
        else Request(
            type=request.type,
            after=request.after or 0,
            round=request.round or 0,
            stage=request.stage or 1,
            cause=request.cause or "",
            detail=request.detail or "",
            last_call=request.last_call_seconds,
            worker_lost=request.worker_lost_seconds,
        ),
        invalid=view.invalid,
    )


def is_of(member: Member, pod: Pod, record: ElasticWorker | None) -> bool:
    """Whether this pod is the one that was in the round, and not another that has taken its place. The ids of all
    members in pods that were made at once begin alike, and their sidecars are told that."""
    if record is not None:
        return record.spec.id == member.id
    return pod.batch in (None, member.id.partition(".")[0])
