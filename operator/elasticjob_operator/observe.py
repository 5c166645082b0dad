"""Reads pods and ElasticWorkers into what the state machine is given. Pure; `records` says which to believe."""

from collections.abc import Iterator

from elasticjob.api import INDEX_LABEL, WorkerRequest
from elasticjob.rendezvous import PodState, Request, Worker
from elasticjob_operator.cache import JobView
from elasticjob_operator.kube import Object
from elasticjob_operator.pods import place_of
from elasticjob_operator.records import Reading, read_records

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


def workers_of(view: JobView, trainer: str) -> tuple[Worker, ...]:
    """The workers of the job in `view`, whose trainer container is named `trainer`."""
    if view.job is None:
        return ()
    job = view.job["metadata"]
    named = ((pod, place_of(job["name"], name)) for name, pod in view.pods.items() if is_owned_by(pod, job["uid"]))
    places = {pod["metadata"]["name"]: place for pod, place in named if place is not None}
    pods = {name: view.pods[name] for name in places}
    readings = read_records(view.job, pods, places, view.workers)
    return tuple(worker_of(pod, places[name], readings[name], trainer) for name, pod in pods.items())


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
        address=record.spec.address if record else "",
        request=_request(record.spec.request) if record and record.spec.request else None,
        heartbeat=record.status.heartbeat if record else None,
        detail=detail,
        invalid=reading.problem,
    )


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
