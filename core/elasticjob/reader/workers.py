"""Reads one pod and its record into the worker that the rendezvous is given. Pure; `records` says which to believe."""

from elasticjob.api import DETAIL_LENGTH, ElasticWorkerStatus, WorkerRequest
from elasticjob.fields import WORD_LENGTH
from elasticjob.objects import Object
from elasticjob.pods import condition, container, crash_before, disruption, ended, has_started, hash_of, was_rejected
from elasticjob.reader.records import Reading
from elasticjob.reader.waits import KINDS, Reason, Wait, exit_of, joined
from elasticjob.rendezvous import PodState, Request, Worker
from elasticjob.rendezvous.model import PodKey
from elasticjob.terms import Cause, RequestType
from elasticjob.text import plain


def worker_of(
    pod: Object,
    pod_key: PodKey,
    reading: Reading,
    trainer: str,
    made_from: str,
    wait: Wait | None,
) -> Worker:
    """One pod and what its record says, but for what a certificate and the job's policy for failures tell: those are
    for the operator to judge. `made_from`: the hash of what pods are made from now; `wait`: of `wait_of`."""
    record = reading.record
    state, crashes, detail = pod_state(pod, trainer, wait)
    asked = record.spec.request if record else None
    request = _request(asked, record.spec.node) if record and asked else None
    disrupted = disruption(pod)
    detail = detail or plain(disrupted.get("message", ""), DETAIL_LENGTH)
    went_on = request is not None and (request.cause == Cause.STARTED or request.type is RequestType.FINISH)
    if not detail and went_on:  # any other request has its own reason
        detail = exit_of(crash_before(container(pod, trainer)))
    return Worker(
        index=pod_key[0],
        replacement=pod_key[1],
        pod=state,
        deleting="deletionTimestamp" in pod["metadata"],
        crashes=crashes,
        id=record.spec.id if record else None,
        request=request,
        heartbeat=reading.signs,
        detail=detail,
        invalid=reading.problem,
        doubts=tuple(record.status.doubts) if record else (),
        answer=_answer(record.status) if record else 0,
        disrupted=bool(disrupted),
        rejected=was_rejected(pod) and not disrupted,
        unready=is_unheard_of(pod),
        outdated=hash_of(pod) not in (None, made_from),
    )


def _answer(said: ElasticWorkerStatus) -> int | None:
    """A sidecar that writes a heartbeat and no number of a challenge knows of none."""
    return 0 if said.answer is None and said.heartbeat is None else said.answer


def _request(said: WorkerRequest, node: str) -> Request:
    return Request(
        type=said.type,
        after=said.after or 0,
        round=said.round or 0,
        stage=said.stage or 1,
        script=plain(said.script or "", WORD_LENGTH),
        cause=said.cause or "",
        detail=_failure(said, node),
        last_call=said.last_call_seconds,
        worker_lost=said.worker_lost_seconds,
    )


def _failure(said: WorkerRequest, node: str) -> str:
    """What failed, and where; also of one that its peers' failure, which may come of it, has reached before."""
    detail = plain(said.detail or "", DETAIL_LENGTH)
    if said.cause != Cause.WORKER_FAILED and not (said.cause == Cause.MEMBERSHIP_CHANGED and detail):
        return ""
    where = f"on {plain(node, WORD_LENGTH)}" if node else ""
    return ": ".join(part for part in (where, detail) if part)


def pod_state(pod: Object, trainer: str, wait: Wait | None) -> tuple[PodState, int, str]:
    """State of the trainer container, how often it was started again, and what is wrong.

    The container's status, not the pod's phase: the phase follows seconds later (measured: 3 s).
    """
    status = pod.get("status", {})
    found = container(pod, trainer)
    crashes, end = found.get("restartCount", 0), ended(found)
    if status.get("phase") == "Failed":
        return PodState.FAILED, crashes, joined(status.get("reason"), status.get("message")) or exit_of(end)
    if end and end["exitCode"] == 0 and end.get("reason") == "OOMKilled":
        return PodState.OOM_KILLED, crashes, "OOMKilled"
    if status.get("phase") == "Succeeded" or (end and end["exitCode"] == 0):
        return PodState.SUCCEEDED, crashes, ""
    if wait is None or (has_started(found) and wait.reason in (Reason.SIDECAR_CRASHES, Reason.TRAINER_CRASHES)):
        return PodState.RUNNING, crashes, exit_of(end)
    return KINDS[wait.reason].state, wait.crashes or crashes, wait.said if wait.is_news else ""


def is_unheard_of(pod: Object) -> bool:
    """Whether the cluster hears no more of the node: it then calls a pod unready whose containers were last said to be
    ready. A kubelet that lives says both of the two together, unless it waits for a readiness gate, which it names."""
    ready = condition(pod, "Ready")
    said = [ready.get("status"), condition(pod, "ContainersReady").get("status")]
    return said == ["False", "True"] and ready.get("reason") != "ReadinessGatesNotReady"
