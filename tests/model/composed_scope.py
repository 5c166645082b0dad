# SPDX-License-Identifier: Apache-2.0
"""The composed model: whole jobs, in which everything is delivered late and a few things go wrong.

A run has only so much to spend on costly moves; the free ones are explored in every order around them.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from elasticjob.rendezvous import Clocks, Spec
from model import composed_pod_moves as pod_moves
from model.composed_key import key_of
from model.composed_liveness import Rest
from model.composed_moves import IN_PODS, costly_moves, free_moves
from model.composed_pods import Pod
from model.composed_system import NOW, JobSystem, Old, Operators, heard, later, outdated, trimmed, with_pod
from model.operator_moves import restarted
from model.search import Move, digest

SPEC = Spec(
    replicas=2,
    min_replicas=1,
    max_restarts=1,
    last_call=10,
    join_timeout=40,
    start_timeout=50,
    rejoin=20,
    worker_lost=5,
    heartbeat_timeout=5,
    restart_reset=40,
)


class ComposedScope:
    name = "composed"

    def __init__(self, workers: int, budget: int, training: bool, spares: int = 0, torchruns: int = 1) -> None:
        """Of jobs with so many workers, and spares beside them: new ones, or ones whose first round is in use. With
        several torchruns in each container the first of one worker has just ended in success."""
        self._most, self._budget, self._training, self._torchruns = workers, budget, training, torchruns
        self._operators = Operators(replace(SPEC, replicas=workers, spares=spares))
        self._rest = Rest(self._calmly, lambda system: digest(self.key(system)), self.tell)

    def starts(self) -> Iterable[JobSystem]:
        system = self._operators.begin()
        if self._training:
            system = self._rest.after(system)
        if self._torchruns > 1:
            system = self.apply(system, ("finish", 0, 0))
        return [system]

    def forget(self) -> None:
        pass

    def key(self, system: JobSystem) -> tuple[Any, ...]:
        return key_of(system, self._operators.key_of)

    def check(self, system: JobSystem) -> None:
        self._rest.check(system)

    def moves(self, system: JobSystem, left: int) -> Iterator[Move]:
        yield from free_moves(system, self._torchruns)
        if system.spent < self._budget:
            yield from costly_moves(system, self._most, self._torchruns)

    def apply(self, system: JobSystem, move: Move) -> JobSystem:
        return trimmed(self._applied(system, move))

    def notes(self) -> str:
        return f"{self._operators.asked:,} different questions to decide"

    def tell(self, move: Move, after: JobSystem | None) -> Iterator[str]:
        yield "from here" if move[0] == "start" else in_words(move)
        if after is not None:
            yield from (f"    {line}" for line in _lines(after))

    def _calmly(self, system: JobSystem) -> tuple[Move, JobSystem] | None:
        """What comes next if nothing goes wrong, at last the operator's next moment."""
        owed = next(free_moves(system, self._torchruns), None)
        if owed is None and system.wake is None:
            return None
        move = owed or ("wait",)
        return move, self.apply(system, move)._replace(spent=0)

    def _applied(self, system: JobSystem, move: Move) -> JobSystem:
        operators = self._operators
        match move:
            case ("look",):
                return operators.operate(system)
            case ("old",):
                return operators.wake_old(system)
            case ("hear", at, what):
                return operators.operate(heard(system, at, what))
            case ("read", at, lag):
                number = system.history[-1 - lag]
                pod = pod_moves.with_status(system.pods[at], number, operators.register.statuses[number], lag)
                return with_pod(system, at, pod)
            case (name, at, cost) if name in IN_PODS:
                pod = IN_PODS[name][1](system.pods[at])
                return with_pod(system._replace(spent=system.spent + cost), at, pod)
        return self._costly(system._replace(spent=system.spent + 1), move)

    def _costly(self, system: JobSystem, move: Move) -> JobSystem:
        match move:
            case ("wait",):
                assert system.wake is not None
                return self._operators.operate(system._replace(state=later(system.state, system.wake)), waited=True)
            case ("scale", replicas):
                system = outdated(system._replace(spec=replace(system.spec, replicas=replicas)))
            case ("suspend",):
                system = outdated(system._replace(spec=replace(system.spec, suspend=not system.spec.suspend)))
            case ("anew",):
                system = outdated(system._replace(spec=restarted(system.spec, system.state)))
            case ("new operator",):
                system = system._replace(old=Old(system.spec, system.state))
                for at in reversed(range(len(system.pods))):
                    system = heard(system, at, "all")
                system = system._replace(state=replace(system.state, clocks=Clocks(opened=NOW, formed=NOW)))
            case _:
                raise ValueError(move)
        return self._operators.operate(system)


def in_words(move: Move) -> str:
    match move:
        case ("look",):
            return "the operator looks again"
        case ("old",):
            return "the old operator wakes, and acts on what it takes for agreed"
        case ("hear", at, what):
            return f"the operator sees {'all' if what == 'all' else 'the ' + what} of pod number {at}"
        case ("read", at, lag):
            return f"the sidecar in pod number {at} reads the job's status" + (f" of {lag} writes ago" if lag else "")
        case ("wait",):
            return "nothing happens until the operator looks by itself"
        case ("scale", replicas):
            return f"scaled to {replicas}"
        case ("suspend",):
            return "suspended, or resumed"
        case ("anew",):
            return "a restart is asked for"
        case ("new operator",):
            return "another operator takes over"
    return f"pod number {move[1]} {IN_PODS[move[0]][0]}"


def _lines(system: JobSystem) -> Iterator[str]:
    state = system.state
    members = " ".join(member.id for member in state.participants)
    leaving = " ".join(member.id for member in state.leaving)
    yield (
        f"agreed: round {state.round} {state.outcome or state.phase}, members {members or 'none'}, "
        f"leaving {leaving or 'none'}, finished {sorted(state.finished_indices)}, stage {state.stage}, "
        f"restarts {state.restarts}"
    )
    yield from (f"  number {at}, {_in_words(pod)}" for at, pod in enumerate(system.pods))
    yield from (f"  told: {message}" for message in system.told)


def _in_words(pod: Pod) -> str:
    output, trainer = pod.output, pod.trainer
    going = "gone" if pod.gone else pod.phase.value + " going" * pod.deleting
    words = f"pod {pod.index}-{pod.number} {going}"
    if output is not None:
        asks, now = output.request, output.standing
        request = (
            "nothing"
            if asks is None
            else f"{asks.type} {asks.cause or ''} after {asks.after}, of stage {asks.stage or 1}"
        )
        read = "no status" if now.job is None else f"{now.job.phase} {now.job.round}"
        words += f": sidecar {now.me.id} has read {read}, is {now.mode}, asks {request}"
    if trainer is not None:
        words += f"; trainer {trainer.name} is {trainer.state}, has used round {trainer.used}"
        words += "" if trainer.connected else ", not connected"
    return words
