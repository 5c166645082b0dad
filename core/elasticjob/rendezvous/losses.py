# SPDX-License-Identifier: Apache-2.0
"""Which workers are lost, what breaks a formed round, and what explains a failure. Pure questions: `decide` draws the
consequences."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from elasticjob.members import Member
from elasticjob.rendezvous.failure_detector import lived_on, unacked_for
from elasticjob.rendezvous.live import comes_back
from elasticjob.rendezvous.model import COUNTED_CAUSES, PodState, Spec, State, Worker
from elasticjob.rendezvous.roster import (
    ENDED,
    began_anew,
    current,
    has_joined,
    is_between_stages,
    is_current,
    is_stopping,
    lacks_last_word,
)
from elasticjob.terms import FailureKind, Loss, PolicyAction, RendezvousPhase, RequestCause, RequestType, RoundCause

# Pods whose training is at fault. A rank 0 that only failed to serve its store is not among them: it explains the
# failures of its peers.
AT_FAULT = ENDED | {PodState.CRASH_LOOP}
NOT_TORCHRUN = (
    "its trainer ended with exit code 0 without joining a round: its command must be torchrun, without --standalone "
    "and --rdzv-backend, and a shell around it must pass on its exit code"
)
NOT_FINISHED = (
    "its trainer ended with exit code 0 before the training had finished: a shell around torchrun must pass on its "
    "exit code"
)

UNKNOWN = FailureKind.UNKNOWN
Fault = tuple[Loss, str, FailureKind]  # a loss in a word and in a sentence, and what that tells of the cause


@dataclass(frozen=True, slots=True)
class Lost:
    """A pod that is replaced: its index and replacement number, and why, in a word and in a sentence.

    `was_member`: it was in the last formed round. `training_failed`: the training is at fault. `failed_by_itself`:
    nobody else ended the pod, whether the training is at fault or not. `ignored`: it does not count, because of the
    job's failure policy or because the node rejected the pod. `speaks_of_node`: it counts as a failure on that node.
    `kind`: what `why` tells of the cause.
    """

    index: int
    replacement: int
    cause: Loss
    why: str
    was_member: bool = False
    training_failed: bool = False
    failed_by_itself: bool = False
    ignored: bool = False
    speaks_of_node: bool = False
    kind: FailureKind = UNKNOWN


class Break(NamedTuple):
    """A member that no longer trains in the formed round. `counted`: the training itself failed. `kind`: what `why`
    tells of the cause."""

    member: Member
    cause: Loss | RequestCause | RoundCause
    why: str
    counted: bool
    kind: FailureKind = UNKNOWN


def lost_workers(spec: Spec, state: State, workers: Iterable[Worker], now: float) -> Iterator[Lost]:
    """The current workers that are lost, and members of a formed round whose pods are gone."""
    present = current(state, workers)
    done, members = state.done, frozenset(state.participants)
    for worker in present.values():
        if worker.index in done:
            continue
        pod_key, was_member = worker.pod_key, worker.member in members
        if fault := _pod_fault(spec, state, worker, was_member):
            cause, why, kind = fault
            failed_by_itself = _failed_by_itself(spec, state, worker)
            ignored = worker.matched is not None and worker.matched.action is PolicyAction.IGNORE
            yield Lost(
                *pod_key,
                cause,
                why,
                was_member,
                training_failed=was_member and _training_failed(spec, state, worker),
                failed_by_itself=failed_by_itself,
                ignored=ignored or worker.rejected,
                # the pods of an unready node are deleted by the control plane, not by themselves
                speaks_of_node=not ignored and (failed_by_itself or (worker.deleting and worker.unready)),
                kind=kind,
            )
        elif (unacked := unacked_for(spec, state, worker, now)) is not None:
            why = f"no ack of a ping for {unacked:g} s"
            yield Lost(*pod_key, Loss.UNRESPONSIVE, why, was_member, speaks_of_node=True)
        elif worker.invalid and now - state.clocks.invalid.get(pod_key, now) >= spec.patience:
            why = f"its ElasticWorker has been invalid for {spec.patience:g} s: {worker.invalid}"
            yield Lost(*pod_key, Loss.INVALID_RECORD, why, was_member)
        elif was_member and _hangs(spec, state, worker, now):
            why = f"its trainer has neither joined again nor left within {spec.rejoin:g} s"
            yield Lost(*pod_key, Loss.TRAINER_HUNG, why, was_member, training_failed=True, speaks_of_node=True)
    if state.phase is RendezvousPhase.FORMED:
        for member in state.participants:
            if member.index not in present and member.index not in done:
                number = state.replacements.get(member.index, 0)
                yield Lost(member.index, number, Loss.POD_GONE, "its pod is gone", was_member=True)


def _pod_fault(spec: Spec, state: State, worker: Worker, was_member: bool) -> Fault | None:
    is_explained = worker.detail and (worker.disrupted or not worker.deleting)
    detail, kind = (f" ({worker.detail})", worker.kind) if is_explained else ("", UNKNOWN)
    if worker.deleting:
        return Loss.POD_DELETED, "its pod was deleted" + detail, kind
    if worker.rejected:
        return Loss.POD_REJECTED, "its node rejected the pod" + detail, kind
    if worker.pod in (PodState.FAILED, PodState.OOM_KILLED):
        return Loss.POD_FAILED, "its pod failed" + detail, kind
    if worker.pod is PodState.SUCCEEDED:
        return _unfinished(spec, state, worker, was_member)
    if worker.pod is PodState.CRASH_LOOP and was_member and not is_between_stages(worker):
        return Loss.TRAINER_CRASHED, "its trainer crashed again, and a fresh pod starts sooner" + detail, kind
    request = worker.request
    if request is not None and request.type is RequestType.LEAVE and request.cause == RequestCause.STORE_NOT_READY:
        return Loss.STORE_NOT_READY, "it did not serve the round's store in time", UNKNOWN
    return None


def _unfinished(spec: Spec, state: State, worker: Worker, was_member: bool) -> Fault | None:
    """Why exit code 0 of an unfinished worker was no success."""
    if _ended_as_suspended(spec, state, worker):
        return Loss.ENDED_SUSPENDED, "its pod ended while the job was suspended", UNKNOWN
    if lacks_last_word(state, worker):
        return None
    if worker.disrupted:
        return Loss.POD_DISRUPTED, "its pod was disrupted" + (f" ({worker.detail})" if worker.detail else ""), UNKNOWN
    return Loss.ENDED_UNFINISHED, NOT_FINISHED if was_member else NOT_TORCHRUN, UNKNOWN


def never_joined(worker: Worker) -> bool:
    """Whether the trainer has asked for nothing, as its record says: at the pod's end the sidecar itself writes a
    leave."""
    request = worker.request
    return request is None or (request.type is RequestType.LEAVE and request.cause == RequestCause.POD_STOPPING)


def _ended_as_suspended(spec: Spec, state: State, worker: Worker) -> bool:
    return worker.pod is PodState.SUCCEEDED and spec.suspend and state.phase is not RendezvousPhase.CLOSED


def _failed_by_itself(spec: Spec, state: State, worker: Worker) -> bool:
    """Whether the pod of a worker at fault was ended by nothing but itself or its node."""
    return not (worker.deleting or worker.disrupted or _ended_as_suspended(spec, state, worker))


def _training_failed(spec: Spec, state: State, worker: Worker) -> bool:
    """Whether a member's loss counts as the training's failure. A failure that the job's policy counts does, even if
    others ended the pod. One that it ignores waits as any other, as it may be the cause of others."""
    if worker.matched is not None and worker.matched.action is not PolicyAction.IGNORE:
        return not _ended_as_suspended(spec, state, worker)
    return worker.pod in AT_FAULT and not worker.rejected and _failed_by_itself(spec, state, worker)


def _hangs(spec: Spec, state: State, worker: Worker, now: float) -> bool:
    """Whether a member has not joined again in time, although its sidecar lived all that time.

    The time counts from an ack since the end of the round: a worker that was cut off before may not have known of it.
    """
    if state.phase is not RendezvousPhase.FORMING or is_between_stages(worker) or not is_stopping(state, worker):
        return False
    lived = lived_on(state, worker)
    return lived is not None and now - lived >= spec.rejoin


def explained(state: State, workers: Iterable[Worker], lost: Mapping[int, Lost]) -> bool:
    """Whether a member of the last formed round is cut off, had its sidecar restarted, or is lost for a cause outside
    the training. `lost`: the losses of this step, by index."""
    if any(worker.cut_off and worker.member in state.participants for worker in workers):
        return True
    seen = {worker.member for worker in workers}
    known = (one for one in state.participants if one.index not in state.done and one not in state.replaced)
    return any(one not in seen or (one.index in lost and not lost[one.index].training_failed) for one in known)


def may_be_explained(spec: Spec, state: State, workers: Iterable[Worker], now: float) -> bool:
    """While a round forms: whether a member of the last one that has not joined again may still turn out to be lost.

    A member may have left because its pod was ended, which is seen separately, some seconds later. One that is still
    stopping its processes is pinged by then, and is known to live once it has acked. One that has left until its new
    processes are ready is known to live.
    """
    present = current(state, workers)
    members = (present.get(member.index) for member in state.participants if member.index not in state.done)
    there = [one for one in members if one and one.member in state.participants]
    away = [one for one in there if not (has_joined(state, one) or comes_back(one))]
    if away and now - state.clocks.opened < spec.worker_lost:
        return True
    stopping = (one for one in away if is_stopping(state, one))
    return any(lived_on(state, one) is None for one in stopping) or any(lacks_last_word(state, one) for one in away)


def stopped_unnotified(state: State, workers: Iterable[Worker]) -> bool:
    """While the next round forms: whether a member of the last one has stopped without being told to.

    A member without pod or record has stopped as told: a loss would have been seen before the pod was gone.
    """
    newest_last = sorted(workers, key=lambda worker: worker.replacement)
    known = {worker.member: worker for worker in newest_last}
    by_index = {worker.index: worker for worker in newest_last}
    for member in state.participants:
        worker = known.get(member) or by_index.get(member.index)
        if worker is None or worker.id is None or member.index in state.done:
            continue
        if not _trains_or_was_notified(state, member, worker):
            return True
    return False


def _trains_or_was_notified(state: State, member: Member, worker: Worker) -> bool:
    request, leaves = worker.request, member in state.leaving
    if worker.member == member and leaves and worker.pod is PodState.SUCCEEDED:
        return True
    if worker.member != member or request is None:
        return False
    if leaves and request.cause == RequestCause.TOLD_TO_LEAVE:  # only after this is its pod deleted
        return True
    if leaves and request.cause == RequestCause.POD_STOPPING and not worker.deleting:
        return True
    ended = worker.deleting or worker.pod in (PodState.CRASH_LOOP, PodState.FAILED, PodState.OOM_KILLED)
    if ended or request.type is RequestType.LEAVE or not (leaves or is_current(state, worker)):
        return False
    if began_anew(state, request, state.last_formed):
        return False
    came_back = request.type is RequestType.JOIN and request.after >= state.last_formed
    return not came_back or request.cause in (RequestCause.MEMBERSHIP_CHANGED, RequestCause.RENEWED)


def breaks(state: State, workers: Iterable[Worker], lost: Mapping[int, Lost]) -> list[Break]:
    """Members of the last formed round that no longer train in it, in rank order. `lost` says why, by index.

    A pod that was sent away in this step is ignored, not missing.
    """
    newest_last = sorted(workers, key=lambda worker: worker.replacement)
    seen = {worker.index: worker for worker in newest_last} | current(state, newest_last)
    training = (member for member in state.participants if member.index not in state.done)
    found = (_break_of(state, member, seen.get(member.index), lost) for member in training)
    return [one for one in found if one is not None]


def _break_of(state: State, member: Member, worker: Worker | None, lost: Mapping[int, Lost]) -> Break | None:
    name = f"worker {member.index}"
    if worker is None or worker.member != member or not is_current(state, worker):
        if member in state.leaving:
            return Break(member, RoundCause.TOLD_TO_LEAVE, f"{name} was told to leave", False)
        if loss := lost.get(member.index):
            return Break(member, loss.cause, f"{name} lost: {loss.why}", loss.training_failed, loss.kind)
        if worker is None:
            return Break(member, Loss.POD_GONE, f"{name} lost: its pod is gone", False)
        return Break(member, *_replaced(name, worker), False)
    request = worker.request
    if request is None:
        return Break(member, RoundCause.RECORD_REPLACED, f"{name}'s record was made anew", False)
    counted = request.cause in COUNTED_CAUSES
    returns = comes_back(worker)
    if request.type is RequestType.LEAVE and not returns:
        detail = f" ({worker.detail})" if worker.detail and counted else ""
        kind = worker.kind if counted else UNKNOWN
        return Break(member, _word_of(request.cause), f"{name} left: {request.cause}{detail}", counted, kind)
    # the trainer was restarted, and its new join replaced its leave before that was read
    if began_anew(state, request, state.round):
        return _started_again(member, worker)
    if not returns and (request.type is not RequestType.JOIN or request.after < state.round):
        hangs = worker.hung and state.phase is RendezvousPhase.FORMED
        return Break(member, RoundCause.TRAINING_HUNG, worker.hung, True) if hangs else None
    if request.cause == RequestCause.WORKER_FAILED:
        detail = f" ({request.detail})" if request.detail else ""
        return Break(member, RoundCause.WORKER_FAILED, f"{name}'s processes failed{detail}", counted, request.kind)
    if request.cause == RequestCause.STARTED:
        return _started_again(member, worker)
    return Break(member, RoundCause.CAME_BACK, f"{name} came back", counted)


def _started_again(member: Member, worker: Worker) -> Break:
    detail = f" ({worker.detail})" if worker.detail else ""
    why = f"worker {member.index}'s trainer was started again{detail}"
    return Break(member, RoundCause.TRAINER_STARTED_AGAIN, why, True, worker.kind)


def _replaced(name: str, worker: Worker) -> tuple[RoundCause, str]:
    """Why the index has another record than the member's, or no valid one."""
    if worker.invalid:
        return RoundCause.INVALID_RECORD, f"{name}'s ElasticWorker is invalid: {worker.invalid}"
    if worker.id:
        return RoundCause.SIDECAR_RESTARTED, f"{name}'s sidecar was restarted"
    return RoundCause.RECORD_REPLACED, f"{name}'s ElasticWorker was deleted, or lost its labels or its owner"


def _word_of(cause: str) -> RequestCause | RoundCause:
    """The word for metrics. A worker may write any cause, so an unknown one becomes `OTHER`."""
    return RequestCause(cause) if cause in set(RequestCause) else RoundCause.OTHER
