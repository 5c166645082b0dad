"""Who is lost, what breaks a formed round, what explains a failure. Pure questions: `decide` draws the consequences."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from elasticjob.rendezvous.limits import worker_lost
from elasticjob.rendezvous.model import COUNTED_CAUSES, Beat, Member, PodState, Spec, State, Worker
from elasticjob.rendezvous.roster import current, is_current
from elasticjob.terms import Cause, RendezvousPhase, RequestType

# Two heartbeats of five seconds: silence that everybody shares for less than this is nobody's own.
SHARED_SILENCE = 10.0


@dataclass(frozen=True, slots=True)
class Lost:
    """A pod that is given up: its index and replacement number, and why; `own` when it is the training's own fault."""

    index: int
    replacement: int
    why: str
    own: bool = False


class Break(NamedTuple):
    """A member that no longer trains in the formed round; `counted` when the training itself failed."""

    member: Member
    why: str
    counted: bool


def lost_workers(spec: Spec, state: State, workers: Iterable[Worker], now: float) -> Iterator[Lost]:
    """The current workers that are lost, and members of a formed round whose pod vanished unseen."""
    present = current(state, workers)
    limits = {worker.member: worker_lost(spec, worker) for worker in present.values() if worker.member is not None}
    silent = _silent(limits, state.clocks.beats, now)
    done = state.done
    for worker in present.values():
        if worker.index in done:
            continue
        if why := _pod_fault(state, worker):
            yield Lost(worker.index, worker.replacement, why, _own_fault(state, worker))
        elif worker.member in silent:
            yield Lost(worker.index, worker.replacement, f"no heartbeat for {worker_lost(spec, worker):g} s")
        elif now - state.clocks.invalid.get(worker.place, now) >= spec.worker_lost:
            why = f"its ElasticWorker has been invalid for {spec.worker_lost:g} s: {worker.invalid}"
            yield Lost(worker.index, worker.replacement, why)
    if state.phase is RendezvousPhase.FORMED:
        for member in state.participants:
            if member.index not in present and member.index not in done:
                yield Lost(member.index, state.replacements.get(member.index, 0), "its pod is gone")


def _pod_fault(state: State, worker: Worker) -> str | None:
    if worker.deleting:
        return "its pod was deleted"
    detail = f" ({worker.detail})" if worker.detail else ""
    if worker.pod in (PodState.FAILED, PodState.OOM_KILLED):
        return "its pod failed" + detail
    if worker.pod is PodState.SUCCEEDED:
        return "its pod ended " + ("without a record" if worker.id is None else "while the job was suspended")
    if worker.pod is PodState.CRASH_LOOP and worker.member in state.participants:
        return "its trainer crashed again, and a fresh pod starts sooner" + detail
    request = worker.request
    if request is not None and request.type is RequestType.LEAVE and request.cause == Cause.STORE_NOT_READY:
        return "it did not serve the round's store in time"
    return None


def _own_fault(state: State, worker: Worker) -> bool:
    ended = worker.pod in (PodState.CRASH_LOOP, PodState.OOM_KILLED)
    return ended and not worker.deleting and worker.member in state.participants


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
    return any(one not in seen or (one.index in lost and not lost[one.index].own) for one in known)


def stopped_untold(state: State, workers: Iterable[Worker]) -> bool:
    """While the next round forms: whether a member of the last one has stopped otherwise than as it was told to.

    One of which nothing is left was told to: a loss is seen before the pod is gone.
    """
    newest_last = sorted(workers, key=lambda worker: worker.replacement)
    known = {worker.member: worker for worker in newest_last}
    places = {worker.index: worker for worker in newest_last}
    for member in state.participants:
        worker = known.get(member) or places.get(member.index)
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
    """Members of the last formed round, in rank order, that no longer train in it; `lost` says why, by index."""
    present, done = current(state, workers), state.done
    training = (member for member in state.participants if member.index not in done)
    found = (_break_of(state, member, present.get(member.index), lost) for member in training)
    return [one for one in found if one is not None]


def _break_of(state: State, member: Member, worker: Worker | None, lost: Mapping[int, Lost]) -> Break | None:
    name = f"worker {member.index}"
    if worker is None or worker.member != member:
        if member in state.leaving:
            return Break(member, f"{name} was told to leave", False)
        if loss := lost.get(member.index):
            return Break(member, f"{name} lost: {loss.why}", loss.own)
        if worker is None:
            return Break(member, f"{name} lost: its pod is gone", False)
        why = f"ElasticWorker is invalid: {worker.invalid}" if worker.invalid else "sidecar was restarted"
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
        return Break(member, f"{name}'s processes failed", counted)
    # a new trainer where one was in the round: the old one's leave was replaced before it was read
    again = request.cause == Cause.STARTED
    return Break(member, f"{name}'s trainer was started again" if again else f"{name} came back", counted or again)
