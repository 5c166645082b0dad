"""Who is lost, what breaks a formed round, what explains a failure. Pure questions: `decide` draws the consequences."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

from elasticjob.members import Member
from elasticjob.rendezvous.limits import SHARED_SILENCE, worker_lost
from elasticjob.rendezvous.model import COUNTED_CAUSES, Beat, PodState, Spec, State, Worker
from elasticjob.rendezvous.roster import ENDED, current, is_current, is_stopping, lacks_last_word
from elasticjob.terms import Cause, RendezvousPhase, RequestType

# pods of members whose training is at fault; a rank 0 that merely served no store is none of them, and explains what
# befell its peers
AT_FAULT = ENDED | {PodState.CRASH_LOOP}
NOT_TORCHRUN = (
    "its trainer ended with exit code 0 without joining a round: its command must be torchrun, without --standalone "
    "and --rdzv-backend, and a shell around it must pass on its exit code"
)
NOT_FINISHED = (
    "its trainer ended with exit code 0 before the training had finished: a shell around torchrun must pass on its "
    "exit code"
)


@dataclass(frozen=True, slots=True)
class Lost:
    """A pod that is given up: its index and replacement number, and why.

    `was_member`: it was in the last formed round. `training_failed`: the fault is the training's own.
    `failed_by_itself`: nobody else ended the pod, whether the training is at fault or not.
    """

    index: int
    replacement: int
    why: str
    was_member: bool = False
    training_failed: bool = False
    failed_by_itself: bool = False


class Break(NamedTuple):
    """A member that no longer trains in the formed round; `counted` when the training itself failed."""

    member: Member
    why: str
    counted: bool


def lost_workers(
    spec: Spec, state: State, workers: Iterable[Worker], heard: Mapping[Member, float], now: float
) -> Iterator[Lost]:
    """The current workers that are lost, and members of a formed round whose pod vanished unseen.

    `heard`: whose heartbeat was just heard, and when the one before.
    """
    present = current(state, workers)
    limits = {
        member: worker_lost(spec, worker)
        for worker in present.values()
        if (member := worker.member) is not None and not lacks_last_word(state, worker)  # who has ended beats no more
    }
    silent = _silent(limits, state.clocks.beats, now)
    done, members = state.done, frozenset(state.participants)
    for worker in present.values():
        if worker.index in done:
            continue
        pod_key, was_member = worker.pod_key, worker.member in members
        if why := _pod_fault(spec, state, worker, was_member):
            failed_by_itself = _failed_by_itself(spec, state, worker)
            yield Lost(
                *pod_key,
                why,
                was_member,
                training_failed=failed_by_itself and was_member and worker.pod in AT_FAULT,
                failed_by_itself=failed_by_itself,
            )
        elif worker.member in silent:
            yield Lost(*pod_key, f"no heartbeat for {worker_lost(spec, worker):g} s", was_member)
        elif worker.invalid and now - state.clocks.invalid.get(pod_key, now) >= spec.worker_lost:
            why = f"its ElasticWorker has been invalid for {spec.worker_lost:g} s: {worker.invalid}"
            yield Lost(*pod_key, why, was_member)
        elif was_member and _hangs(spec, state, worker, heard):
            why = f"its trainer has neither joined again nor left within {spec.rejoin:g} s"
            yield Lost(*pod_key, why, was_member, training_failed=True)
    if state.phase is RendezvousPhase.FORMED:
        for member in state.participants:
            if member.index not in present and member.index not in done:
                yield Lost(member.index, state.replacements.get(member.index, 0), "its pod is gone", was_member=True)


def _pod_fault(spec: Spec, state: State, worker: Worker, was_member: bool) -> str | None:
    if worker.deleting:
        return "its pod was deleted"
    detail = f" ({worker.detail})" if worker.detail else ""
    if worker.pod in (PodState.FAILED, PodState.OOM_KILLED):
        return "its pod failed" + detail
    if worker.pod is PodState.SUCCEEDED:
        return _unfinished(spec, state, worker, was_member)
    if worker.pod is PodState.CRASH_LOOP and was_member:
        return "its trainer crashed again, and a fresh pod starts sooner" + detail
    request = worker.request
    if request is not None and request.type is RequestType.LEAVE and request.cause == Cause.STORE_NOT_READY:
        return "it did not serve the round's store in time"
    return None


def _unfinished(spec: Spec, state: State, worker: Worker, was_member: bool) -> str | None:
    """Why exit code 0 was no success of a worker that has not finished."""
    if _ended_as_suspended(spec, state, worker):
        return "its pod ended while the job was suspended"
    if lacks_last_word(state, worker):
        return None
    if worker.disrupted:
        return "its pod was disrupted"
    return NOT_FINISHED if was_member else NOT_TORCHRUN


def never_joined(worker: Worker) -> bool:
    """Whether its trainer has asked for nothing, as its record says: at its pod's end the sidecar leaves by itself."""
    request = worker.request
    return request is None or (request.type is RequestType.LEAVE and request.cause == Cause.POD_STOPPING)


def _ended_as_suspended(spec: Spec, state: State, worker: Worker) -> bool:
    return worker.pod is PodState.SUCCEEDED and spec.suspend and state.phase is not RendezvousPhase.CLOSED


def _failed_by_itself(spec: Spec, state: State, worker: Worker) -> bool:
    """Whether nobody and nothing else has ended the pod of a worker that is at fault."""
    return not (worker.deleting or worker.disrupted or _ended_as_suspended(spec, state, worker))


def _hangs(spec: Spec, state: State, worker: Worker, heard: Mapping[Member, float]) -> bool:
    """Whether a member has had its time to join again, and its sidecar still beats after that.

    The second heartbeat counts: who comes back from a silence may beat before it asks.
    """
    if state.phase is not RendezvousPhase.FORMING or worker.member is None or not is_stopping(state, worker):
        return False
    return heard.get(worker.member, -inf) - state.clocks.opened >= spec.rejoin


def _silent(limits: Mapping[Member, float], beats: Mapping[Member, Beat], now: float) -> set[Member]:
    """Members whose heartbeat stands still while another's goes on: if all stand still, the fault is on the way."""
    if not beats:
        return set()
    latest = max(beat.since for beat in beats.values())
    return {
        member
        for member, beat in beats.items()
        if member in limits
        and now - beat.since >= limits[member]
        and (len(beats) == 1 or latest - beat.since >= SHARED_SILENCE)
    }


def explained(state: State, workers: Iterable[Worker], lost: Mapping[int, Lost]) -> bool:
    """Whether a member of the last formed round is lost to something else than the training, or its sidecar was
    restarted; `lost` has what this step gives up, by index."""
    seen = {worker.member for worker in workers}
    known = (one for one in state.participants if one.index not in state.done and one not in state.given_up)
    return any(one not in seen or (one.index in lost and not lost[one.index].training_failed) for one in known)


def stopped_untold(state: State, workers: Iterable[Worker]) -> bool:
    """While the next round forms: whether a member of the last one has stopped otherwise than as it was told to.

    A member of which nothing is left has stopped as it was told to: a loss is seen before the pod is gone.
    """
    newest_last = sorted(workers, key=lambda worker: worker.replacement)
    known = {worker.member: worker for worker in newest_last}
    by_index = {worker.index: worker for worker in newest_last}
    for member in state.participants:
        worker = known.get(member) or by_index.get(member.index)
        if worker is None or worker.id is None or member.index in state.done:
            continue
        if not _trains_or_was_told(state, member, worker):
            return True
    return False


def _trains_or_was_told(state: State, member: Member, worker: Worker) -> bool:
    if worker.member != member or worker.request is None:
        return False
    request, leaves = worker.request, member in state.leaving
    left = worker.pod is PodState.SUCCEEDED or (request.cause == Cause.POD_STOPPING and not worker.deleting)
    if leaves and left:
        return True
    ended = worker.deleting or worker.pod in (PodState.CRASH_LOOP, PodState.FAILED, PodState.OOM_KILLED)
    if ended or request.type is RequestType.LEAVE or not (leaves or is_current(state, worker)):
        return False
    came_back = request.type is RequestType.JOIN and request.after >= state.last_formed
    return not came_back or request.cause in (Cause.MEMBERSHIP_CHANGED, Cause.RENEWED)


def breaks(state: State, workers: Iterable[Worker], lost: Mapping[int, Lost]) -> list[Break]:
    """Members of the last formed round, in rank order, that no longer train in it; `lost` says why, by index.

    A pod that was sent away in this very step counts no more, and is not gone.
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
            return Break(member, f"{name} was told to leave", False)
        if loss := lost.get(member.index):
            return Break(member, f"{name} lost: {loss.why}", loss.training_failed)
        if worker is None:
            return Break(member, f"{name} lost: its pod is gone", False)
        why = "sidecar was restarted" if worker.id else "ElasticWorker was deleted, or lost its labels or its owner"
        if worker.invalid:
            why = f"ElasticWorker is invalid: {worker.invalid}"
        return Break(member, f"{name}'s {why}", False)
    request = worker.request
    if request is None:
        return Break(member, f"{name}'s record was made anew", False)
    counted = request.cause in COUNTED_CAUSES
    if request.type is RequestType.LEAVE:
        detail = f" ({worker.detail})" if worker.detail and counted else ""
        return Break(member, f"{name} left: {request.cause}{detail}", counted)
    if request.type is not RequestType.JOIN or request.after < state.round:
        return None
    if request.cause == Cause.WORKER_FAILED:
        detail = f" ({request.detail})" if request.detail else ""
        return Break(member, f"{name}'s processes failed{detail}", counted)
    # a new trainer where one was in the round: the old one's leave was replaced before it was read
    again = request.cause == Cause.STARTED
    return Break(member, f"{name}'s trainer was started again" if again else f"{name} came back", counted or again)
