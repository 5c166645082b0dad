"""What must hold of who has succeeded, and of the stages that follow from it, after every step of `decide`."""

from collections.abc import Iterable, Iterator

from elasticjob.members import Member
from elasticjob.rendezvous.evidence import Step
from elasticjob.rendezvous.history import newly_formed
from elasticjob.rendezvous.model import State, Worker
from elasticjob.terms import RendezvousPhase, RequestType


def finished_in_success(step: Step) -> Iterator[str]:
    """A worker has finished when it asks `Finish` and its container has ended with exit code 0, but not while deleted
    or suspended; or when its record says nothing against that exit code, and its last word has not come. Who asks
    `Finish`, or for the next stage, is finishing while its container goes on."""
    (said, may_have), noted = step.succeeded(), set(step.after.finished) - set(step.before.finished)
    for member in sorted(said - noted):
        yield f"worker {member.index} ended in success, and has not finished"
    for member in sorted(noted - may_have):
        yield f"worker {member.index} has finished, and did not end in success"
    known = set(step.after.finishing)
    if known != step.finishing():
        yield f"workers {_indices(known)} are said to be finishing, and {_indices(step.finishing())} are"


def stages_follow_each_other(step: Step) -> Iterator[str]:
    """A stage begins when all members of the last round have succeeded in the one before, or nobody else is wanted, and
    a worker's next torchrun asks for it; no round has members of two."""
    before, after = step.before, step.after
    if newly_formed(before, after):
        asked = {one.request.stage for one in step.kept() if one.member in after.participants and one.request}
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


def _has_succeeded(state: State, worker: Worker) -> bool:
    request = worker.request
    if request is None or worker.deleting:
        return False
    later = request.type is RequestType.JOIN and request.stage > state.stage
    return later or (request.type is RequestType.FINISH and request.stage == state.stage)


def _indices(members: Iterable[Member]) -> list[int]:
    return sorted(member.index for member in members)
