# SPDX-License-Identifier: Apache-2.0
"""Combine a pod and its record into a `Worker` of the rendezvous. Pure; `validity` says which records count."""

from elasticjob.api import DETAIL_LENGTH, WorkerRequest
from elasticjob.blocker_reasons import Reason
from elasticjob.fields import WORD_LENGTH
from elasticjob.reading.container import Termination
from elasticjob.reading.pod import Pod
from elasticjob.reading.validity import Reading
from elasticjob.reading.waits import KINDS, Wait, exit_of, joined
from elasticjob.rendezvous import PodState, Request, Worker
from elasticjob.rendezvous.model import PodKey
from elasticjob.terms import FailureKind, RequestCause, RequestType
from elasticjob.text import plain

UNKNOWN, SIGNAL = FailureKind.UNKNOWN, FailureKind.SIGNAL
SIGNALLED = 128  # plus the signal's number: the exit code of a process that a signal ended
ENDED_BY_SIGNAL = ("OOMKilled", "DeadlineExceeded")


def worker_of(
    pod: Pod,
    pod_key: PodKey,
    reading: Reading,
    trainer: str,
    made_from: str,
    wait: Wait | None,
) -> Worker:
    """One pod with its record, without what depends on certificates or the job's failure policy: the operator adds
    that. `made_from`: the hash of the settings that pods are made from now. `wait`: from `wait_of`."""
    content = reading.content
    state, crashes, detail, kind = pod_state(pod, trainer, wait)
    request = _request(content.request, content.node) if content and content.request else None
    disrupted = pod.disruption
    detail = detail or plain(disrupted.message if disrupted else "", DETAIL_LENGTH)
    went_on = request is not None and (request.cause == RequestCause.STARTED or request.type is RequestType.FINISH)
    if not detail and went_on:  # any other request has its own reason
        end = pod.container(trainer).crashed_before
        detail, kind = exit_of(end), _kind_of(end)
    return Worker(
        index=pod_key[0],
        replacement=pod_key[1],
        pod=state,
        deleting=bool(pod.deleting),
        crashes=crashes,
        id=content.id if content else None,
        request=request,
        heartbeat=reading.writes,
        detail=detail,
        kind=kind,
        invalid=reading.problem,
        suspects=tuple(content.status.suspects) if content else (),
        ack=content.status.ack or 0 if content else 0,
        live_in=content.status.live or 0 if content else 0,
        disrupted=disrupted is not None,
        rejected=pod.was_rejected and not disrupted,
        unready=pod.is_unheard_of,
        outdated=pod.made_from not in (None, made_from),
    )


def _request(asked: WorkerRequest, node: str) -> Request:
    return Request(
        type=asked.type,
        after=asked.after or 0,
        round=asked.round or 0,
        stage=asked.stage or 1,
        script=plain(asked.script or "", WORD_LENGTH),
        cause=asked.cause or "",
        detail=_failure(asked, node),
        kind=asked.failure_kind or FailureKind.UNKNOWN,
        live=bool(asked.live),
        last_call=asked.last_call_seconds,
        worker_lost=asked.worker_lost_seconds,
    )


def _failure(asked: WorkerRequest, node: str) -> str:
    """What failed, and on which node; also for a worker that a peer's failure stopped first, which may be the
    consequence of its own."""
    detail = plain(asked.detail or "", DETAIL_LENGTH)
    if asked.cause != RequestCause.WORKER_FAILED and not (asked.cause == RequestCause.MEMBERSHIP_CHANGED and detail):
        return ""
    where = f"on {plain(node, WORD_LENGTH)}" if node else ""
    return ": ".join(part for part in (where, detail) if part)


def pod_state(pod: Pod, trainer: str, wait: Wait | None) -> tuple[PodState, int, str, FailureKind]:
    """The state of the trainer container, how often it was restarted, what is wrong, and what that tells of the cause.

    It reads the container's status rather than the pod's phase, which follows seconds later (3 s measured).
    """
    found = pod.container(trainer)
    crashes, end = found.restarts, found.ended
    if pod.phase == "Failed":
        if message := joined(pod.reason, pod.message):
            return PodState.FAILED, crashes, message, SIGNAL if pod.reason in ENDED_BY_SIGNAL else UNKNOWN
        return PodState.FAILED, crashes, exit_of(end), _kind_of(end)
    if end and end.code == 0 and end.reason == "OOMKilled":
        return PodState.OOM_KILLED, crashes, end.reason, SIGNAL
    if pod.phase == "Succeeded" or (end and end.code == 0):
        return PodState.SUCCEEDED, crashes, "", UNKNOWN
    if wait is None or (found.has_started and wait.reason in (Reason.SIDECAR_CRASHES, Reason.TRAINER_CRASHES)):
        return PodState.RUNNING, crashes, exit_of(end), _kind_of(end)
    kind = _kind_of(found.crashed_before) if wait.reason is Reason.TRAINER_CRASHES else UNKNOWN
    return KINDS[wait.reason].state, wait.crashes or crashes, wait.message if wait.has_event else "", kind


def _kind_of(end: Termination | None) -> FailureKind:
    """What a container's end tells of the cause of its failure."""
    if end is None or not end.code:
        return UNKNOWN
    if end.code > SIGNALLED:
        return SIGNAL
    return FailureKind.MESSAGE if end.message else FailureKind.EXIT_CODE
