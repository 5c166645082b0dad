# SPDX-License-Identifier: Apache-2.0
"""If nothing more happens from outside, does a job come to rest, and in time? Asked of every state that is visited.

Three kinds of calm. In each, pods that are being deleted go, living sidecars beat, ack, and suspect nobody, and time
passes only as the operator has said that it will look again. Nothing fails, nobody scales.

- `WELL`: what the cluster owes comes. Pods run, told workers leave, who is owed a join makes it, and containers end in
  success after their torchrun has.
- `SILENT`: pods run, but nobody joins any more, who is told to leave does not, and no container ends.
- `WITHOUT_PODS`: as `SILENT`, and no pod comes to run that does not run yet.

A job then reaches Formed or Closed within `bound` seconds, and comes to rest there: from some moment on nothing changes
any more, whatever time passes. By design there are two other ways to rest. A suspended job forms nothing: it rests when
its pods are gone. And without pods a job that has less than its minimum waits for them, for days if need be.
"""

from collections.abc import Iterable
from dataclasses import replace
from enum import Enum
from math import inf
from typing import NoReturn

from elasticjob.rendezvous import PodState, Request, Roster, Spec, State, Worker, roster_of
from elasticjob.rendezvous.backoff import delay_of
from elasticjob.rendezvous.live import in_live_pods
from elasticjob.rendezvous.roster import ENDED, has_joined, has_succeeded, is_current
from elasticjob.rendezvous.sizes import largest_size, min_members
from elasticjob.terms import Outcome, RendezvousPhase, RequestCause, RequestType
from model.operator_key import key_of
from model.operator_moves import with_record
from model.operator_system import OperatorSystem, after_seconds, lines_of, looked
from model.search import Digest, Violation, digest, in_words
from model.state_key import asks_anew

FORMING, FORMED, CLOSED = RendezvousPhase


class Calm(Enum):
    WELL = "all goes well"
    SILENT = "pods run, and nobody joins any more"
    WITHOUT_PODS = "no pod comes to run, and nobody joins any more"


def bound(spec: Spec, state: State) -> float:
    """Within how many seconds of calm a round is formed or the job has ended.

    Who has not joined in time is replaced when it was seen to beat twice after that, and the new pod has its time; a
    pod comes late where others failed before it. A torchrun may be started late, and then join late.
    """
    late = max((delay_of(failures) for failures in state.clocks.failures.values()), default=0.0)
    going_on = spec.finish if state.clocks.finishing else 0.0
    forming = late + spec.rejoin + 2 * spec.worker_lost + spec.start_timeout + spec.join_timeout
    return max(spec.last_call, going_on + forming)


class Liveness:
    """Remembers the states that calm has led to rest, with the seconds to Formed or Closed."""

    def __init__(self) -> None:
        self._seconds: dict[Calm, dict[Digest, float]] = {calm: {} for calm in Calm}
        self._later: dict[Digest, OperatorSystem] = {}  # where calm leads, be it of one kind or another
        self.longest = dict.fromkeys(Calm, 0.0)

    def check(self, system: OperatorSystem) -> None:
        """Raises Violation."""
        self._later.clear()
        for calm in Calm if system.unseen or _waits_for_pods(system) else (Calm.WELL, Calm.SILENT):
            seconds = self._seconds_to_rest(system, calm)
            if seconds > bound(system.spec, system.state):
                raise Violation(f"{calm.value}: it takes {seconds:g} s to form a round or end")
            self.longest[calm] = max(self.longest[calm], seconds)

    def _seconds_to_rest(self, start: OperatorSystem, calm: Calm) -> float:
        known = self._seconds[calm]
        way: dict[Digest, tuple[OperatorSystem, float]] = {}
        system = _calmed(start, calm)
        key = digest(key_of(system))
        try:
            while key not in known:
                if key not in self._later:
                    self._later[key] = _after_a_while(system)
                following = _calmed(self._later[key], calm)
                next_key = digest(key_of(following))
                if next_key == key:
                    _must_rest(system, calm)
                    known[key] = 0.0 if _is_there(system) else -inf  # it waits for pods, for as long as it takes
                    break
                if next_key in way:
                    goes_in_a_circle()
                if following.state.outcome is not system.state.outcome:
                    _may_end(following, calm)
                way[key] = (system, following.now - system.now)
                system, key = following, next_key
        except Exception as error:
            lines = [line for step, _ in (*way.values(), (system, 0.0)) for line in lines_of(step)]
            raise Violation(f"{calm.value}: {in_words(error)}", ("left alone, this follows:", *lines)) from error
        seconds = known[key]
        for key, (step, passed) in reversed(way.items()):
            known[key] = seconds = 0.0 if _is_there(step) else seconds + passed
        return seconds


def _waits_for_pods(system: OperatorSystem) -> bool:
    """Whether `WITHOUT_PODS` is another calm than `SILENT`."""
    return any(not worker.deleting and worker.pod not in ENDED | {PodState.RUNNING} for worker in system.workers)


def _is_there(system: OperatorSystem) -> bool:
    return system.state.phase is not FORMING or system.spec.suspend


def _after_a_while(system: OperatorSystem) -> OperatorSystem:
    """After what the operator has still to do, or else when it means to look again."""
    after = system if system.idle else looked(system)
    if not after.idle or after.wake is None:
        return after
    return looked(after_seconds(after, after.wake - after.now, "all"))


def _calmed(system: OperatorSystem, calm: Calm) -> OperatorSystem:
    """With all that the cluster and the workers owe."""
    workers = tuple(_calm(system, _well(worker), calm) for worker in system.workers if not worker.deleting)
    if workers == system.workers and not system.unseen:
        return system
    return system._replace(workers=workers, ids=system.ids + 1, idle=False, unseen=False)


def _well(worker: Worker) -> Worker:
    ails = worker.suspects or worker.unready or worker.hung or worker.cut_off
    return replace(worker, suspects=(), unready=False, hung="", cut_off=False) if ails else worker


def _calm(system: OperatorSystem, worker: Worker, calm: Calm) -> Worker:
    if worker.pod in ENDED or calm is Calm.WITHOUT_PODS:
        return worker
    if worker.pod is not PodState.RUNNING:
        worker = replace(worker, pod=PodState.RUNNING)
    if calm is Calm.SILENT:
        return worker
    if worker.asks(RequestType.FINISH):
        return replace(worker, pod=PodState.SUCCEEDED)
    if worker.member in system.state.leaving:
        return replace(worker, request=Request(type=RequestType.LEAVE, cause=RequestCause.TOLD_TO_LEAVE))
    if worker.id is None:
        worker = with_record(system, worker)
    if system.state.phase is CLOSED and has_succeeded(system.state, worker):  # its next torchrun is refused
        return replace(worker, request=Request(type=RequestType.LEAVE, cause=RequestCause.TOLD_TO_LEAVE))
    if not _owes_a_join(system.state, worker):
        return worker
    state = system.state
    lives = bool(in_live_pods(state, [worker])) and state.restart_round < state.round
    join = Request(
        type=RequestType.JOIN,
        after=state.last_formed,
        stage=state.stage,
        cause=RequestCause.MEMBERSHIP_CHANGED,
        live=lives and not worker.asks(RequestType.LEAVE),
    )
    return replace(worker, request=join)


def _owes_a_join(state: State, worker: Worker) -> bool:
    in_round = state.phase is FORMED and worker.member in state.participants
    last_word = worker.asks(RequestType.CLOSE) or has_succeeded(state, worker)
    if in_round or last_word or state.phase is CLOSED:
        return False
    return is_current(state, worker) and not has_joined(state, worker)


def goes_in_a_circle() -> NoReturn:
    raise Violation("the job does not come to rest")


def _must_rest(system: OperatorSystem, calm: Calm) -> None:
    """Raises Violation when this is no place to rest."""
    spec, state = system.spec, system.state
    if state.phase is CLOSED and not state.ended:
        if not any(_trains(state, worker) for worker in system.workers):
            raise Violation("the rendezvous is closed, nobody trains any more, and the job does not end")
        return
    roster = roster_of(spec, state, system.workers)
    if left := left_over(roster, state, system.workers):
        raise Violation(f"the pods {left} are of no use any more, and stay")
    if state.ended:
        return
    if spec.suspend:
        if state.phase is FORMED:
            raise Violation("a suspended job rests, and trains")
    elif state.phase is FORMED:
        _must_be_whole(spec, state, roster, calm)
    else:
        waits = any(worker.pod is not PodState.RUNNING for worker in roster.awaited) or not roster.awaited
        if calm is not Calm.WITHOUT_PODS or len(roster.joined) >= min_members(spec, state) or not waits:
            raise Violation(f"the job rests while round {state.round} is forming")


def _must_be_whole(spec: Spec, state: State, roster: Roster, calm: Calm) -> None:
    """Raises Violation when a formed round is not the one that the job is to rest in."""
    if calm is Calm.WELL:
        must_have_spares(spec, state, roster)
    if state.done:
        return
    if asks_anew(spec, state):
        raise Violation(f"round {state.round} is formed, and a restart that was asked for never comes")
    newcomers = sum(worker.member not in state.participants for worker in roster.joined)
    if largest_size(spec, state, len(state.participants) + newcomers) > len(state.participants):
        raise Violation(f"round {state.round} is formed, and newcomers wait for ever")
    if calm is Calm.WELL and {worker.member for worker in roster.kept} != set(state.participants):
        raise Violation(f"round {state.round} is formed, and somebody is for ever left out")
    if calm is Calm.WELL and any(worker.draining for worker in roster.kept):
        raise Violation(f"round {state.round} is formed, and members stay where nodes are draining")


def must_have_spares(spec: Spec, state: State, roster: Roster) -> None:
    """Raises Violation when a job that has places for workers rests with fewer spares than it wants."""
    waiting = sum(has_joined(state, worker) for worker in roster.spares)
    if roster.wanted and waiting < spec.spares:
        raise Violation(f"round {state.round} is formed, and {waiting} of {spec.spares} spares wait")


def _may_end(system: OperatorSystem, calm: Calm) -> None:
    """Raises Violation when calm has led to an end that it must not lead to."""
    if system.state.outcome is Outcome.TIMEOUT and (calm is Calm.WELL or system.spec.suspend):
        raise Violation("the job has timed out" + ", though suspended" * system.spec.suspend)


def _trains(state: State, worker: Worker) -> bool:
    """Whether it is a member of the last round that may still end in success."""
    request = worker.request
    if worker.member not in state.participants or worker.index in state.done or not is_current(state, worker):
        return False
    left = request is None or request.type is RequestType.LEAVE
    again = request is not None and request.type is RequestType.JOIN and request.after >= state.round
    return worker.pod not in ENDED and not left and not again


def left_over(roster: Roster, state: State, workers: Iterable[Worker]) -> list[str]:
    """Names of pods that run on, and are neither wanted nor a worker's that has finished or is finishing."""
    needed = state.finished_indices if state.ended else state.done
    wanted = (*roster.kept, *roster.spares)
    return [
        f"{worker.index}-{worker.replacement}"
        for worker in workers
        if worker.pod not in ENDED and worker not in wanted and worker.index not in needed
    ]
