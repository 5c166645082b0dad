# SPDX-License-Identifier: Apache-2.0
"""What must hold of who has succeeded, and of the stages that follow from it, after every step of `decide`."""

from collections.abc import Iterable, Iterator

from elasticjob.members import Member
from elasticjob.rendezvous.model import PodState, Request, State, Worker
from elasticjob.terms import RendezvousPhase, RequestType
from oracle.evidence import ENDED, Step
from oracle.history import newly_formed


def finished_in_success(step: Step) -> Iterator[str]:
    """A worker has finished when it requests `Finish` and its container has ended with exit code 0, but not while its
    pod is being deleted or the job is suspended. With that exit code it has also finished if its record does not
    contradict it and its last request has not arrived. A worker that requests `Finish` or the next stage is finishing
    while its container runs."""
    (said, may_have), noted = succeeded(step), set(step.after.finished) - set(step.before.finished)
    for member in sorted(said - noted):
        yield f"worker {member.index} ended in success, and has not finished"
    for member in sorted(noted - may_have):
        yield f"worker {member.index} has finished, and did not end in success"
    known = set(step.after.finishing)
    if known != finishing(step):
        yield f"workers {_indices(known)} are said to be finishing, and {_indices(finishing(step))} are"


def stages_follow_each_other(step: Step) -> Iterator[str]:
    """A stage begins when all members of the last round have succeeded in the stage before, or no other worker is
    wanted, and a worker's next torchrun requests it. No round has members of two stages."""
    before, after = step.before, step.after
    if newly_formed(before, after):
        asked = {one.request.stage for one in step.kept if one.member in after.participants and one.request}
        if asked - {after.stage}:
            yield f"a round of stage {after.stage} was formed of workers in stages {sorted(asked)}"
    if after.stage == before.stage:
        return
    there = step.current(before).values()
    if not any(one.request and one.asks(RequestType.JOIN) and one.request.stage > before.stage for one in there):
        yield f"stage {after.stage} began, and nobody asked for it"
    out = after.finished_indices | {one.index for one in there if _has_succeeded(before, one)}
    left = [member.index for member in before.participants if member.index not in out]
    if left and (step.spec.replicas > len(out) or before.phase is RendezvousPhase.CLOSED):
        yield f"stage {after.stage} began, and workers {left} had not succeeded"


def succeeded(step: Step) -> tuple[set[Member], set[Member]]:
    """The workers that have finished in this step, as torchrun and container have ended in success, and those that
    may be taken to have: the last word of one whose container has is missing since an earlier step."""
    if step.before.ended or step.suspended:
        return set(), set()
    alive = [
        worker
        for worker in step.current(step.before).values()
        if worker.index not in step.before.finished_indices and not worker.deleting
    ]
    ended = [worker for worker in alive if worker.pod in (PodState.SUCCEEDED, PodState.OOM_KILLED)]
    said = {worker.member for worker in ended if worker.asks(RequestType.FINISH) and worker.member}
    missing = [
        worker
        for worker in alive
        if worker.pod_key in step.before.clocks.invalid and step.is_owed_a_word(step.before, worker)
    ]
    return said, said | {worker.member for worker in missing if worker.member}


def finishing(step: Step) -> set[Member]:
    """The workers whose torchrun has ended in success in the stage that the step ends in, and whose container goes
    on."""
    if step.suspended or step.before.ended:
        return set(step.before.finishing) if step.before.ended else set()
    found = set()
    for worker in step.current(step.before).values():
        if worker.member is None or worker.deleting or worker.pod in ENDED:
            continue
        match worker.request:
            case Request(type=RequestType.FINISH, stage=stage) if stage == step.after.stage:
                found.add(worker.member)
            case Request(type=RequestType.JOIN, stage=stage) if stage > step.after.stage:
                found.add(worker.member)
    return {member for member in found if member.index not in step.after.finished_indices}


def between_stages(step: Step) -> dict[Member, Worker]:
    """Those whose last torchrun ended in success, whose container goes on, and in which no other torchrun has
    begun, or none that a closed rendezvous would let in."""
    closed = step.before.phase is RendezvousPhase.CLOSED
    there = [] if step.suspended else step.current(step.before).values()
    alive = [one for one in there if one.pod not in ENDED and not one.deleting]
    goes_on = [one for one in alive if one.asks(RequestType.FINISH) or (closed and one.member in finishing(step))]
    return {one.member: one for one in goes_on if one.member}


def _has_succeeded(state: State, worker: Worker) -> bool:
    request = worker.request
    if request is None or worker.deleting:
        return False
    later = request.type is RequestType.JOIN and request.stage > state.stage
    return later or (request.type is RequestType.FINISH and request.stage == state.stage)


def _indices(members: Iterable[Member]) -> list[int]:
    return sorted(member.index for member in members)
