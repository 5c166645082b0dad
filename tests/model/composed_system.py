# SPDX-License-Identifier: Apache-2.0
"""A whole job: pods with real sidecars, the API server with what is agreed, and operators with the real `decide`.

Nothing is seen at once. The operator knows of each pod and record what it has last seen of it; a sidecar has read one
of the statuses that were written, the last or an older one, and reads on in their order, perhaps leaving some out.
"""

from dataclasses import replace
from typing import Any, NamedTuple

from elasticjob.rendezvous import (
    Clocks,
    Decision,
    Member,
    PodState,
    Spec,
    State,
    Worker,
    decide,
    pods_to_create,
    pods_to_delete,
)
from elasticjob.rendezvous.model import Pinged
from elasticjob.terms import RendezvousPhase
from model.checks import PodKeys, check_step, is_wanted
from model.composed_pods import Pod, Sight, address_of, half_seen, reads, sight_of
from model.operator_system import agreed
from model.search import Violation
from model.state_key import asks_anew, state_key
from model.statuses import StatusRegister

NOW = 0.0
Sights = tuple[Sight, ...]
Formed = tuple[int, tuple[Member, ...], str | None]


class Old(NamedTuple):
    """An operator that was replaced and does not know it: what it takes for agreed. `valid`: it still is, so that a
    write would be accepted."""

    spec: Spec
    state: State
    valid: bool = True


class JobSystem(NamedTuple):
    """`history` are the numbers of the statuses that some sidecar has still to read, oldest first. `formed` is the last
    formed round as it was written. `looks`: the operator's own write will wake it, and it has something to do; `wake`:
    when it looks by itself. `spent` counts the costly events so far."""

    spec: Spec
    state: State
    pods: tuple[Pod, ...] = ()
    history: tuple[int, ...] = ()
    formed: Formed = (0, (), None)
    looks: bool = False
    wake: float | None = None
    old: Old | None = None
    spent: int = 0
    told: tuple[str, ...] = ()


class Step(NamedTuple):
    """What an operator does: `new` pods are made and `gone` ones deleted. `idle`: nothing at all."""

    decision: Decision
    new: PodKeys
    gone: tuple[Worker, ...]
    idle: bool


class Operators:
    """Acts for operators and the API server. Remembers decisions, as many ways lead to the same question."""

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self.register = StatusRegister()
        self._steps: dict[Any, Step] = {}
        self._keys: dict[int, tuple[State, tuple[Any, ...]]] = {}

    @property
    def asked(self) -> int:
        """How many decisions were made, each once."""
        return len(self._steps)

    def begin(self) -> JobSystem:
        state = State(clocks=Clocks(opened=NOW, formed=NOW))
        return self.operate(JobSystem(self._spec, state, history=(self.register.number(state),)))

    def operate(self, system: JobSystem, waited: bool = False) -> JobSystem:
        """The operator looks, writes what it has decided, and acts; `waited`: in vain for what is not heard yet.
        Raises Violation."""
        sights = tuple(pod.seen for pod in system.pods if pod.seen is not None)
        step = self._step(system.spec, system.state, sights)
        if not waited:
            _must_have_finished(system, step.decision.state)
        system = _with_pods(self._written(system, step.decision), step.new, step.gone)
        return system if step.idle else system._replace(looks=self._has_to_do(system))

    def wake_old(self, system: JobSystem) -> JobSystem:
        """The old operator sees all there is, and goes on from what it takes for agreed. What it has to write is
        refused if anything was written since, else it acts. Raises Violation."""
        old = system.old
        assert old is not None
        system = system._replace(old=None, told=())
        workers = tuple(sight_of(pod).worker for pod in system.pods if not pod.gone)
        decision = decide(old.spec, old.state, workers, NOW)
        if agreed(decision.state) != agreed(old.state):
            if not old.valid:
                return system
            state = replace(decision.state, clocks=system.state.clocks)
            system = self._written(system, replace(decision, state=state))
        gone = pods_to_delete(old.spec, decision.state, workers, NOW)
        for worker in gone:
            if is_wanted(system.state, worker):
                raise Violation(f"an old operator deletes pod {worker.index}-{worker.replacement}, which is wanted")
        system = _with_pods(system, pods_to_create(old.spec, decision.state, workers, NOW), gone)
        return system._replace(looks=self._has_to_do(system))

    def key_of(self, state: State) -> tuple[Any, ...]:
        """As `state_key`, of one whose times are those of this job."""
        known = self._keys.get(id(state))
        if known is None:
            # kept with its state, so that the id stays this state's own
            known = self._keys[id(state)] = (state, state_key(self._spec, state))
        return known[1]

    def _has_to_do(self, system: JobSystem) -> bool:
        sights = tuple(pod.seen for pod in system.pods if pod.seen is not None)
        return not self._step(system.spec, system.state, sights).idle

    def _step(self, spec: Spec, state: State, sights: Sights) -> Step:
        key = (
            spec.replicas,
            spec.suspend,
            asks_anew(spec, state),
            self.key_of(state),
            tuple(sight.number for sight in sights),
        )
        if key not in self._steps:
            # whose sidecar lives answers at once: proof is the operator model's matter
            seen = (sight.worker for sight in sights)
            workers = tuple(replace(worker, ack=state.ping) if worker.id else worker for worker in seen)
            decision = decide(spec, state, workers, NOW)
            new = pods_to_create(spec, decision.state, workers, NOW)
            gone = pods_to_delete(spec, decision.state, workers, NOW)
            check_step(spec, state, workers, decision, NOW, new, gone)
            idle = agreed(decision.state) == agreed(state) and not new
            self._steps[key] = Step(decision, new, gone, idle)
        return self._steps[key]

    def _written(self, system: JobSystem, decision: Decision) -> JobSystem:
        state, before = decision.state, system.state
        told = tuple(event.message for event in decision.events)
        system = system._replace(state=state, looks=False, wake=decision.wake_at, told=told)
        if agreed(state) == agreed(before):
            return system
        number = self.register.number(state)
        if number != system.history[-1]:
            pods = tuple(pod._replace(lag=pod.lag + 1) if reads(pod) else pod for pod in system.pods)
            system = system._replace(pods=pods, history=(*system.history, number))
        return outdated(system._replace(formed=_formed(system.formed, state)))


def outdated(system: JobSystem) -> JobSystem:
    """Something was written: an old operator's write would be refused from now on."""
    return system if system.old is None else system._replace(old=system.old._replace(valid=False))


def heard(system: JobSystem, at: int, what: str) -> JobSystem:
    """The operator learns of a pod and its record, or of one of the two."""
    pod = system.pods[at]
    if pod.gone:
        return system._replace(pods=(*system.pods[:at], *system.pods[at + 1 :]))
    seen = sight_of(pod) if what == "all" else half_seen(pod, record=what == "record")
    return with_pod(system, at, pod._replace(seen=seen))


def with_pod(system: JobSystem, at: int, pod: Pod) -> JobSystem:
    return system._replace(pods=(*system.pods[:at], pod, *system.pods[at + 1 :]), told=())


def trimmed(system: JobSystem) -> JobSystem:
    """Without the statuses that every sidecar has read."""
    keep = 1 + max((pod.lag for pod in system.pods if reads(pod)), default=0)
    return system if len(system.history) == keep else system._replace(history=system.history[-keep:])


def later(state: State, seconds: float) -> State:
    """`seconds` have passed: all moments lie so much further back."""
    clocks = state.clocks

    def back(moment: float | None) -> float | None:
        return None if moment is None else moment - seconds

    earlier = Clocks(
        opened=clocks.opened - seconds,
        formed=clocks.formed - seconds,
        min_reached=back(clocks.min_reached),
        all_running=back(clocks.all_running),
        all_spoke=back(clocks.all_spoke),
        newcomer=back(clocks.newcomer),
        leaving={member: since - seconds for member, since in clocks.leaving.items()},
        invalid={pod_key: since - seconds for pod_key, since in clocks.invalid.items()},
        pings=None if clocks.pings is None else {one: _earlier(ping, seconds) for one, ping in clocks.pings.items()},
        finishing={one: known._replace(since=back(known.since)) for one, known in clocks.finishing.items()},
        failures={index: known._replace(since=known.since - seconds) for index, known in clocks.failures.items()},
    )
    return replace(state, clocks=earlier)


def _earlier(pinged: Pinged, seconds: float) -> Pinged:
    number, *moments, alone, unheard = pinged
    return Pinged(number, *(None if moment is None else moment - seconds for moment in moments), alone, unheard)


def _must_have_finished(system: JobSystem, state: State) -> None:
    """Nobody is taken to have finished whose trainer has not said so, or whose container goes on. Raises Violation."""
    for member in set(state.finished) - set(system.state.finished):
        pods = (pod for pod in system.pods if member.id.startswith(f"{pod.index}-{pod.number}-"))
        if not any(pod.finished and pod.phase is PodState.SUCCEEDED for pod in pods):
            raise Violation(f"worker {member.index} is taken to have finished, and has not")


def _formed(before: Formed, state: State) -> Formed:
    """Only one list of members and one store are ever written of a round. Raises Violation."""
    if state.phase is not RendezvousPhase.FORMED:
        return before
    formed = (state.round, state.participants, state.store)
    if before[0] > state.round or (before[0] == state.round and before != formed):
        raise Violation(f"round {state.round} is written as {formed}, after {before}")
    if state.store != address_of(state.participants[0].id):
        raise Violation(f"the store of round {state.round} is not rank 0's: {state.store}")
    return formed


def _with_pods(system: JobSystem, new: PodKeys, gone: tuple[Worker, ...]) -> JobSystem:
    if not new and not gone:
        return system
    names = {(worker.index, worker.replacement) for worker in gone}
    pods = [pod._replace(deleting=True) if (pod.index, pod.number) in names else pod for pod in system.pods]
    taken = {(pod.index, pod.number) for pod in pods}
    for index, number in new:
        if (index, number) not in taken:  # else the API server refuses the name
            pod = Pod(index, number, seen=None)
            pods.append(pod._replace(seen=sight_of(pod)))
    return system._replace(pods=tuple(sorted(pods, key=lambda pod: (pod.index, pod.number))))
