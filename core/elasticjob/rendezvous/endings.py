# SPDX-License-Identifier: Apache-2.0
"""How workers end a stage and the job: all succeed, one succeeds without ever joining, a container does not end, or a
worker asks `Close` (rule 9)."""

from elasticjob.members import Member
from elasticjob.rendezvous.losses import NOT_TORCHRUN, breaks, never_joined
from elasticjob.rendezvous.model import Finishing, PodState, Spec, Worker
from elasticjob.rendezvous.roster import ENDED, ENDED_WITH_0, has_succeeded, lacks_last_word
from elasticjob.rendezvous.stages import MOST_SCRIPTS, asked_for
from elasticjob.rendezvous.step import NO_PLAN, Step
from elasticjob.rendezvous.transitions import STAGE_FINISHED
from elasticjob.terms import Outcome, RendezvousPhase, RequestType, RoundCause


def note_finished(step: Step) -> None:
    """A worker whose torchrun ended in success is finishing, and has finished once its container has ended in success
    too. In both states it is not lost, awaited or replaced for having left its round (rule 9)."""
    finishing: list[Member] = []
    for worker in [] if step.suspended else step.current.values():
        member = worker.member
        if member is None or worker.deleting or member.index in step.state.finished_indices:
            continue
        if _has_finished(step, worker):
            step.set(finished=(*step.state.finished, member))
            step.announce("WorkerFinished", f"worker {worker.index} finished", worker=worker.index)
        elif worker.pod not in ENDED and has_succeeded(step.state, worker):
            finishing.append(member)
    step.set(finishing=tuple(sorted(finishing)))


def _has_finished(step: Step, worker: Worker) -> bool:
    waited = step.now - step.state.clocks.invalid.get(worker.pod_key, step.now)
    last_word_lost = waited >= step.spec.patience and lacks_last_word(step.state, worker)
    return last_word_lost or (worker.pod in ENDED_WITH_0 and worker.asks(RequestType.FINISH))


def refuse_strays(step: Step) -> None:
    """Success before any round was formed ends the job: its command is no elastic torchrun (rule 9)."""
    if step.state.participants or step.suspended:
        return
    for worker in step.current.values():
        ended = worker.pod is PodState.SUCCEEDED and not (worker.deleting or worker.disrupted or worker.invalid)
        if worker.index in step.state.done or (ended and never_joined(worker)):
            step.close(Outcome.FAILED, f"worker {worker.index}: {NOT_TORCHRUN}")
            return


def fail_unfinished(step: Step) -> None:
    """After a worker's torchrun ended in success, its container may fail `maxRestarts` times, and may run on for
    `finishSeconds` once nothing else is awaited; beyond that the job fails (rule 9)."""
    known, found = step.state.clocks.finishing, {}
    between = _between_stages(step)
    is_over = bool(between) and (_is_over(step) or _is_closed_and_done(step))
    for member, worker in between.items():
        before = known.get(member, Finishing(worker.crashes))
        awaited = step.state.phase is RendezvousPhase.FORMING and worker.index not in step.state.done
        since = (step.now if before.since is None else before.since) if is_over or awaited else None
        found[member] = before._replace(since=since)
    step.clock(finishing=found)
    late = [one.index for member, one in between.items() if _is_late(step, found[member])]
    failing = (_why_failing(step.spec, one, found[member].crashes) for member, one in between.items())
    if failure := next(filter(None, failing), _why_late(step.spec, late) if late else ""):
        step.close(Outcome.FAILED, failure)


def _between_stages(step: Step) -> dict[Member, Worker]:
    """Workers whose last torchrun ended in success and whose container runs on without another. After a `Close` no
    other torchrun can follow, whatever they ask for."""
    state = step.state
    closed = state.phase is RendezvousPhase.CLOSED
    there = [] if step.suspended else step.current.values()
    alive = [one for one in there if not one.deleting and one.pod not in ENDED]
    between = [one for one in alive if one.asks(RequestType.FINISH) or (closed and has_succeeded(state, one))]
    between.sort(key=lambda one: one.index)  # the order in which sentences name them
    return {one.member: one for one in between if one.member and one.index not in state.finished_indices}


def _is_late(step: Step, finishing: Finishing) -> bool:
    return finishing.since is not None and step.now - finishing.since >= step.spec.finish


def _why_failing(spec: Spec, worker: Worker, crashes: int) -> str:
    """Why the job fails, empty while the container has not failed too often. `crashes`: restarts before the success."""
    failed = worker.crashes - crashes
    if failed <= spec.max_restarts:
        return ""
    return f"{failed_after_success(worker, failed)}, and maxRestarts is {spec.max_restarts}"


def failed_after_success(worker: Worker, times: int) -> str:
    """A clause for people, without a period."""
    often = "" if times == 1 else f" {times} times"
    detail = f" ({worker.detail})" if worker.detail else ""
    return f"worker {worker.index}'s container failed{often} after its torchrun had ended in success{detail}"


def _why_late(spec: Spec, late: list[int]) -> str:
    who = f"container of worker {late[0]} goes"
    if len(late) > 1:
        who = f"containers of workers {', '.join(map(str, late))} go"
    return f"the {who} on {spec.finish:g} s after torchrun ended in success (spec.finishSeconds)"


def end_stage(step: Step) -> None:
    """The stage is over when all members have succeeded, or when no other worker is wanted. The next stage begins once
    a worker's next torchrun asks for it; the job is `Complete` when all their containers have ended (rule 9).

    So members told to leave are not awaited once no other worker is wanted.
    """
    state = step.state
    if not _is_over(step):
        return
    asking = asked_for(state, step.current.values())
    if asking and state.phase is not RendezvousPhase.CLOSED:
        _next_stage(step, asking[0])
    elif not state.finishing:
        step.close(Outcome.COMPLETE, f"all workers of the last round finished ({len(state.done)} in all)")


def _is_over(step: Step) -> bool:
    state, done = step.state, step.state.done
    if not done or step.suspended:
        return False
    return done.issuperset(member.index for member in state.participants) or _nobody_left(step)


def _nobody_left(step: Step) -> bool:
    return step.state.phase is not RendezvousPhase.CLOSED and step.roster.wanted == 0


def _next_stage(step: Step, first: Worker) -> None:
    """Begin the next stage. A formed round ends. A forming round goes on, and waits for no member to save: a save would
    belong to the previous stage."""
    stage = step.state.stage + 1
    if step.state.phase is RendezvousPhase.FORMED:
        why = f"stage {stage - 1} is finished, and the next torchrun of worker {first.index} has begun"
        step.open_round(STAGE_FINISHED, RoundCause.NEXT_STAGE, why)
    known = step.state.scripts
    step.set(stage=stage, finishing=(), live=(), scripts=(*known, "")[-MOST_SCRIPTS:] if known else (), **NO_PLAN)


def fail_overdue(step: Step) -> None:
    """A job that has not ended by its deadline fails, unless it is suspended (rule 23)."""
    if step.suspended or step.spec.deadline is None or step.now < step.spec.deadline:
        return
    why = "the job has not ended within spec.activeDeadlineSeconds"
    step.close(Outcome.FAILED, why, RoundCause.DEADLINE_EXCEEDED)


def close_on_request(step: Step) -> None:
    """A `Close` lets the formed round train on, and lets no worker join another (rule 9)."""
    state = step.state
    if state.phase is RendezvousPhase.CLOSED:
        if not _is_closed_and_done(step):
            return
        if state.finishing:
            step.set(members_ended=True)
        else:
            step.close(Outcome.FAILED, "closed by set_closed(), and not every member of the last round finished")
        return
    closers = [worker for worker in step.current.values() if worker.asks(RequestType.CLOSE)]
    if closers and state.phase is RendezvousPhase.FORMED:
        step.close(Outcome.CLOSED, f"closed by worker {closers[0].index}; the round trains on to its end")
    elif closers:
        step.close(Outcome.FAILED, f"closed by worker {closers[0].index} while no round was formed")


def _is_closed_and_done(step: Step) -> bool:
    """After a `Close`: whether no member trains any more."""
    state = step.state
    if state.phase is not RendezvousPhase.CLOSED:
        return False
    gone = state.done | {broken.member.index for broken in breaks(state, step.workers, step.lost)}
    return gone.issuperset(member.index for member in state.participants)
