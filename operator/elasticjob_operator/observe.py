"""Reads pods and ElasticWorkers into what the state machine is given. Pure; `records` says which to believe."""

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from elasticjob.api import INDEX_LABEL, ElasticWorkerSpec, WorkerRequest
from elasticjob.certificates import der_of, fingerprint_of
from elasticjob.rendezvous import PodState, Request, Worker
from elasticjob_operator.cache import JobView
from elasticjob_operator.kube import Object
from elasticjob_operator.pods import place_of
from elasticjob_operator.records import Reading, problems_among, read_record

# waiting reasons of the kubelet after which only a change by the user helps
BLOCKED_REASONS = frozenset(
    {
        "ErrImagePull",
        "ImagePullBackOff",
        "ErrImageNeverPull",
        "InvalidImageName",
        "ImageInspectError",
        "CreateContainerConfigError",
        "CreateContainerError",
        "RunContainerError",
    }
)
DETAIL_LENGTH = 300


class Seen(NamedTuple):
    """A pod with its record, and what was read of them; no worker where the pod is none of the job's."""

    pod: Object
    record: Object | None
    reading: Reading
    worker: Worker | None
    ready: bool


class Observer:
    """Of one job, whose trainer container is named `trainer`. Reads again only what has changed: objects in a view are
    replaced, never changed."""

    def __init__(self, trainer: str) -> None:
        self.trainer = trainer
        self._seen: dict[str, Seen] = {}

    def observe(self, view: JobView) -> tuple[tuple[Worker, ...], int]:
        """The workers of the job in `view`, and how many of its pods are ready."""
        if view.job is None:
            return (), 0
        self._seen = {name: self._look(name, pod, view) for name, pod in view.pods.items()}
        seen = {name: one.worker for name, one in self._seen.items() if one.worker is not None}
        records = {name: record for name in seen if (record := self._seen[name].reading.record) is not None}
        for name, problem in problems_among(view.job, records).items():
            seen[name] = _unbelieved(seen[name], problem)
        return tuple(seen.values()), sum(one.ready for one in self._seen.values())

    def _look(self, name: str, pod: Object, view: JobView) -> Seen:
        record, known = view.workers.get(name), self._seen.get(name)
        if known is not None and known.pod is pod and known.record is record:
            return known
        assert view.job is not None
        job = view.job["metadata"]
        place = place_of(job["name"], name)
        if not is_owned_by(pod, job["uid"]):
            return Seen(pod, record, Reading(), None, False)
        if place is None:
            return Seen(pod, record, Reading(), None, is_ready(pod))
        reading = read_record(record, pod, place[0], job["name"])
        return Seen(pod, record, reading, worker_of(pod, place, reading, self.trainer), is_ready(pod))


def is_owned_by(body: Object, uid: str) -> bool:
    return any(owner["uid"] == uid for owner in body["metadata"].get("ownerReferences", ()))


def nodes_of_index(view: JobView, index: int) -> set[str]:
    """Where the older pods of `index` still are: a pod that cannot be got rid of is on a node that is lost."""
    pods = (pod for pod in view.pods.values() if pod["metadata"]["labels"].get(INDEX_LABEL) == str(index))
    return {pod["spec"]["nodeName"] for pod in pods if pod["spec"].get("nodeName")}


def worker_of(pod: Object, place: tuple[int, int], reading: Reading, trainer: str) -> Worker:
    """One pod and what its record says."""
    record = reading.record
    state, crashes, detail = pod_state(pod, trainer)
    return Worker(
        index=place[0],
        replacement=place[1],
        pod=state,
        deleting="deletionTimestamp" in pod["metadata"],
        crashes=crashes,
        id=record.spec.id if record else None,
        address=store_of(record.spec) if record else "",
        request=_request(record.spec.request) if record and record.spec.request else None,
        heartbeat=reading.signs,
        detail=detail,
        invalid=reading.problem,
    )


def store_of(spec: ElasticWorkerSpec) -> str:
    """Where the round's store is if this worker is its rank 0, and by which certificate it is known."""
    return f"{spec.address}/{fingerprint_of(der_of(spec.certificate))}"


def _unbelieved(worker: Worker, problem: str) -> Worker:
    return replace(worker, id=None, address="", request=None, heartbeat=None, invalid=problem)


def _request(said: WorkerRequest) -> Request:
    return Request(
        type=said.type,
        after=said.after or 0,
        round=said.round or 0,
        cause=said.cause or "",
        last_call=said.last_call_seconds,
        worker_lost=said.worker_lost_seconds,
    )


def pod_state(pod: Object, trainer: str) -> tuple[PodState, int, str]:
    """State of the trainer container, how often it was started again, and what is wrong.

    The container's status, not the pod's phase: the phase follows seconds later (measured: 3 s).
    """
    status = pod.get("status", {})
    container = _container(status, trainer)
    crashes = container.get("restartCount", 0)
    ended = container.get("state", {}).get("terminated")
    if status.get("phase") == "Failed":
        return PodState.FAILED, crashes, _joined(status.get("reason"), status.get("message")) or _exit(ended)
    if ended and ended["exitCode"] == 0 and ended.get("reason") == "OOMKilled":
        return PodState.OOM_KILLED, crashes, "OOMKilled"
    if status.get("phase") == "Succeeded" or (ended and ended["exitCode"] == 0):
        return PodState.SUCCEEDED, crashes, ""
    for reason, message in _waiting(status):
        if reason in BLOCKED_REASONS:
            return PodState.BLOCKED, crashes, _joined(reason, message)
    waiting = container.get("state", {}).get("waiting", {})
    if waiting.get("reason") == "CrashLoopBackOff" and crashes > 0:
        return PodState.CRASH_LOOP, crashes, _exit(container.get("lastState", {}).get("terminated"))
    if ended or "running" in container.get("state", {}):
        return PodState.RUNNING, crashes, _exit(ended)
    for condition in status.get("conditions", ()):
        if condition["type"] == "PodScheduled" and condition.get("reason") == "Unschedulable":
            return PodState.UNSCHEDULABLE, crashes, _joined("Unschedulable", condition.get("message"))
    return PodState.PENDING, crashes, ""


def is_ready(pod: Object) -> bool:
    conditions = pod.get("status", {}).get("conditions", ())
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


def _container(status: Object, name: str) -> Object:
    return next((one for one in status.get("containerStatuses", ()) if one["name"] == name), {})


def _waiting(status: Object) -> Iterator[tuple[str, str]]:
    for kind in ("initContainerStatuses", "containerStatuses"):
        for container in status.get(kind, ()):
            waiting = container.get("state", {}).get("waiting", {})
            yield waiting.get("reason", ""), waiting.get("message", "")


def _exit(ended: Object | None) -> str:
    """`exit code 1: last line of its message`, or the signal's or OOM's name where there is one."""
    if not ended or ended["exitCode"] == 0:
        return ""
    reason = ended.get("reason", "Error")
    said = [line for line in ended.get("message", "").splitlines() if line.strip()]
    code = f"exit code {ended['exitCode']}" + ("" if reason == "Error" else f", {reason}")
    return _joined(code, said[-1].strip() if said else None)


def _joined(*parts: str | None) -> str:
    return ": ".join(part for part in parts if part)[:DETAIL_LENGTH]
