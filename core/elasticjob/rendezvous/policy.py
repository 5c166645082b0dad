# SPDX-License-Identifier: Apache-2.0
"""The effect of the job's failure policy: which failures end the job at once, which count, and which are ignored.

The matching rule of a worker is found where pods are read, as `Worker.matched`. A round ends by one failure, however
many workers show it: so the lowest rule among all that match decides, in whatever order they were seen.
"""

from collections.abc import Iterable, Iterator

from elasticjob.rendezvous.barrier import awaits_members
from elasticjob.rendezvous.model import Matched, PodState, State, Worker
from elasticjob.rendezvous.roster import ENDED, is_current
from elasticjob.rendezvous.step import Step
from elasticjob.terms import Loss, Outcome, PolicyAction, RendezvousPhase, RequestType, RoundCause

STOPPED = ENDED | {PodState.CRASH_LOOP}
RUNS_ON = frozenset({Loss.UNRESPONSIVE, Loss.INVALID_RECORD})  # the trainer is not known to have ended


def note_matched(step: Step) -> None:
    """While a failure waits for judgement, the first rule of `spec.podFailurePolicy` that matches a failure in the
    round is kept with it (rule 17)."""
    state = step.state
    found = [state.matched, *_matched_members(state, step.workers)] if state.failure else []
    step.set(matched=_first(one for one in found if one is not None))


def fail_by_policy(step: Step) -> None:
    """A failure that matches a `FailJob` rule ends the job: one in a round as soon as nothing can explain it any more,
    one of a worker outside any round at once, unless a round is formed (rule 17)."""
    state = step.state
    if state.phase is not RendezvousPhase.FORMING or step.spec.suspend:
        return
    found = [one for one in (state.matched, *_matched_others(step)) if one and one.action is PolicyAction.FAIL_JOB]
    if state.matched in found and awaits_members(state, step.roster):
        found.remove(state.matched)
    if matched := _first(found):
        step.close(Outcome.FAILED, matched.why, RoundCause.POD_FAILURE_POLICY)


def ignores(state: State) -> bool:
    """Whether the waiting failure does not count, as far as is known."""
    return state.matched is not None and state.matched.action is PolicyAction.IGNORE


def is_ignored(step: Step) -> bool:
    """The same when the failure is judged; an event then reports it."""
    matched = step.state.matched
    if matched is None or not ignores(step.state):
        return False
    step.announce("FailureIgnored", matched.why)
    return True


def _first(found: Iterable[Matched]) -> Matched | None:
    return min(found, key=lambda one: one.rule, default=None)  # of equals, the one noted before


def _matched_members(state: State, workers: Iterable[Worker]) -> Iterator[Matched]:
    """The matching rules of members that have stopped since the last round: what is known of the others may stem from
    an earlier one."""
    for worker in sorted((one for one in workers if one.matched), key=lambda one: one.pod_key):
        is_member = worker.member in state.participants and worker.member not in state.leaving
        if worker.matched and is_member and worker.index not in state.done and _has_stopped(state, worker):
            yield worker.matched


def _has_stopped(state: State, worker: Worker) -> bool:
    request = worker.request
    if worker.deleting or worker.pod in STOPPED:
        return True
    if request is None or request.type is not RequestType.JOIN:
        return worker.asks(RequestType.LEAVE)
    return request.after >= state.last_formed


def _matched_others(step: Step) -> Iterator[Matched]:
    """The matching rules of workers outside the last round that failed or were ended: no peer's failure can have caused
    it."""
    for worker in sorted((one for one in step.workers if one.matched), key=lambda one: one.pod_key):
        lost = step.lost.get(worker.index)
        is_lost = lost is not None and lost.replacement == worker.replacement and lost.cause not in RUNS_ON
        fails = is_lost or (worker.pod is PodState.CRASH_LOOP and is_current(step.state, worker))
        if worker.matched and fails and worker.member not in step.state.participants:
            yield worker.matched
