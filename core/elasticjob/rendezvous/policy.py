# SPDX-License-Identifier: Apache-2.0
"""What the job's policy for failures changes: what ends the job at once, what does not count, what does.

Which of its rules matches a worker is found out where pods are read, as `Worker.matched`. A round ends by one failure,
in however many workers it shows: so of all that is matched at its end the lowest rule decides, whoever was seen first.
"""

from collections.abc import Iterable, Iterator

from elasticjob.rendezvous.barrier import awaits_members
from elasticjob.rendezvous.model import Matched, PodState, State, Worker
from elasticjob.rendezvous.roster import ENDED, is_current
from elasticjob.rendezvous.step import Step
from elasticjob.terms import Loss, Outcome, PolicyAction, RendezvousPhase, RequestType, RoundCause

STOPPED = ENDED | {PodState.CRASH_LOOP}
RUNS_ON = frozenset({Loss.NO_ANSWER, Loss.INVALID_RECORD})  # as far as is known: nothing of its trainer has ended now


def note_matched(step: Step) -> None:
    """While a failure waits, the first rule of `spec.podFailurePolicy` that matches what failed in the round is noted;
    it goes with the failure (rule 17)."""
    state = step.state
    found = [state.matched, *_matched_members(state, step.workers)] if state.failure else []
    step.set(matched=_first(one for one in found if one is not None))


def fail_by_policy(step: Step) -> None:
    """A failure that a rule with `FailJob` matches ends the job: that of a round as soon as nothing can explain it any
    more, that of a worker that was in none at once, while no round is formed (rule 17)."""
    state = step.state
    if state.phase is not RendezvousPhase.FORMING or step.spec.suspend:
        return
    found = [one for one in (state.matched, *_matched_others(step)) if one and one.action is PolicyAction.FAIL_JOB]
    if state.matched in found and awaits_members(state, step.roster):
        found.remove(state.matched)
    if matched := _first(found):
        step.close(Outcome.FAILED, matched.why, RoundCause.POD_FAILURE_POLICY)


def ignores(state: State) -> bool:
    """Whether the failure that waits does not count, as far as is known."""
    return state.matched is not None and state.matched.action is PolicyAction.IGNORE


def is_ignored(step: Step) -> bool:
    """The same when it is judged, which is told then."""
    matched = step.state.matched
    if matched is None or not ignores(step.state):
        return False
    step.announce("FailureIgnored", matched.why)
    return True


def _first(found: Iterable[Matched]) -> Matched | None:
    return min(found, key=lambda one: one.rule, default=None)  # of several the one that was noted before


def _matched_members(state: State, workers: Iterable[Worker]) -> Iterator[Matched]:
    """Of those that have stopped since the last round: what is known of another may be of an earlier one."""
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
    """Of those that were not in the last round and have failed, or were ended: no failure of a peer is behind it."""
    for worker in sorted((one for one in step.workers if one.matched), key=lambda one: one.pod_key):
        lost = step.lost.get(worker.index)
        is_lost = lost is not None and lost.replacement == worker.replacement and lost.cause not in RUNS_ON
        fails = is_lost or (worker.pod is PodState.CRASH_LOOP and is_current(step.state, worker))
        if worker.matched and fails and worker.member not in step.state.participants:
            yield worker.matched
