"""How workers end the job: by the success of all, by that of one that never joined, or by a `Close` (rule 9)."""

from elasticjob.rendezvous.losses import NOT_TORCHRUN, breaks, never_joined
from elasticjob.rendezvous.model import PodState
from elasticjob.rendezvous.roster import current
from elasticjob.rendezvous.step import Step
from elasticjob.terms import Outcome, RendezvousPhase, RequestType


def refuse_strays(step: Step) -> None:
    """Success without any formed round ends the job: its command is no elastic torchrun (rule 9)."""
    if step.state.participants or step.suspended:
        return
    for worker in current(step.state, step.workers).values():
        ended = worker.pod is PodState.SUCCEEDED and not (worker.deleting or worker.disrupted or worker.invalid)
        if worker.index in step.state.done or (ended and never_joined(worker)):
            step.close(Outcome.FAILED, f"worker {worker.index}: {NOT_TORCHRUN}")
            return


def complete(step: Step) -> None:
    """When all members have finished, or no other worker is wanted, the job is `Complete` (rule 9).

    So members told to leave are not waited for once nobody else is wanted.
    """
    state, done = step.state, step.state.done
    if not done or step.suspended:
        return
    if done.issuperset(member.index for member in state.participants) or _nobody_left(step):
        step.close(Outcome.COMPLETE, f"all workers of the last round finished ({len(done)} in all)")


def _nobody_left(step: Step) -> bool:
    return step.state.phase is not RendezvousPhase.CLOSED and step.roster.wanted == 0


def close_on_request(step: Step) -> None:
    """A `Close` lets the formed round train on, and nobody join another (rule 9)."""
    state = step.state
    if state.phase is RendezvousPhase.CLOSED:
        gone = state.done | {broken.member.index for broken in breaks(state, step.workers, step.lost)}
        if gone.issuperset(member.index for member in state.participants):
            step.close(Outcome.FAILED, "closed by set_closed(), and not every member of the last round finished")
        return
    closers = [worker for worker in current(state, step.workers).values() if worker.asks(RequestType.CLOSE)]
    if closers and state.phase is RendezvousPhase.FORMED:
        step.close(Outcome.CLOSED, f"closed by worker {closers[0].index}; the round trains on to its end")
    elif closers:
        step.close(Outcome.FAILED, f"closed by worker {closers[0].index} while no round was formed")
