"""The composed model: whole jobs, in which everything is delivered late and a few things go wrong.

A run has only so much to spend on costly moves; the free ones are explored in every order around them.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from elasticjob.rendezvous import Clocks, Spec
from model import pod_events
from model.composed_key import key_of
from model.composed_liveness import Rest
from model.composed_moves import IN_PODS, costly_moves, free_moves
from model.composed_world import NOW, Cluster, Old, World, heard, later, outdated, trimmed, with_pod
from model.pods import Pod
from model.search import Move, digest

SPEC = Spec(
    replicas=2, min_replicas=1, max_restarts=1, last_call=10, join_timeout=40, rejoin=20, worker_lost=5, silence=5
)


class ComposedScope:
    name = "composed"

    def __init__(self, workers: int, budget: int, training: bool, spares: int = 0) -> None:
        """Of jobs with so many workers, and spares beside them: new ones, or ones whose first round is in use."""
        self._most, self._budget, self._training = workers, budget, training
        self._cluster = Cluster(replace(SPEC, replicas=workers, spares=spares))
        self._rest = Rest(self._calmly, lambda world: digest(self.key(world)), self.tell)

    def starts(self) -> Iterable[World]:
        world = self._cluster.begin()
        if self._training:
            world = self._rest.after(world)
        return [world]

    def forget(self) -> None:
        pass

    def key(self, world: World) -> tuple[Any, ...]:
        return key_of(world, self._cluster.key_of)

    def check(self, world: World) -> None:
        self._rest.check(world)

    def moves(self, world: World, left: int) -> Iterator[Move]:
        yield from free_moves(world)
        if world.spent < self._budget:
            yield from costly_moves(world, self._most)

    def apply(self, world: World, move: Move) -> World:
        return trimmed(self._applied(world, move))

    def notes(self) -> str:
        return f"{self._cluster.asked:,} different questions to decide"

    def tell(self, move: Move, after: World | None) -> Iterator[str]:
        yield "from here" if move[0] == "start" else in_words(move)
        if after is not None:
            yield from (f"    {line}" for line in _lines(after))

    def _calmly(self, world: World) -> tuple[Move, World] | None:
        """What comes next if nothing goes wrong, at last the operator's next moment."""
        owed = next(free_moves(world), None)
        if owed is None and world.wake is None:
            return None
        move = owed or ("wait",)
        return move, self.apply(world, move)._replace(spent=0)

    def _applied(self, world: World, move: Move) -> World:
        cluster = self._cluster
        match move:
            case ("look",):
                return cluster.operate(world)
            case ("old",):
                return cluster.wake_old(world)
            case ("hear", at, what):
                return cluster.operate(heard(world, at, what))
            case ("read", at, lag):
                number = world.history[-1 - lag]
                pod = pod_events.with_status(world.pods[at], number, cluster.api.statuses[number], lag)
                return with_pod(world, at, pod)
            case (name, at, cost) if name in IN_PODS:
                pod = IN_PODS[name][1](world.pods[at])
                return with_pod(world._replace(spent=world.spent + cost), at, pod)
        return self._costly(world._replace(spent=world.spent + 1), move)

    def _costly(self, world: World, move: Move) -> World:
        match move:
            case ("wait",):
                assert world.wake is not None
                return self._cluster.operate(world._replace(state=later(world.state, world.wake)), waited=True)
            case ("scale", replicas):
                world = outdated(world._replace(spec=replace(world.spec, replicas=replicas)))
            case ("suspend",):
                world = outdated(world._replace(spec=replace(world.spec, suspend=not world.spec.suspend)))
            case ("new operator",):
                world = world._replace(old=Old(world.spec, world.state))
                for at in reversed(range(len(world.pods))):
                    world = heard(world, at, "all")
                world = world._replace(state=replace(world.state, clocks=Clocks(opened=NOW, formed=NOW)))
            case _:
                raise ValueError(move)
        return self._cluster.operate(world)


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
        case ("new operator",):
            return "another operator takes over"
    return f"pod number {move[1]} {IN_PODS[move[0]][0]}"


def _lines(world: World) -> Iterator[str]:
    state = world.state
    members = " ".join(member.id for member in state.participants)
    leaving = " ".join(member.id for member in state.leaving)
    yield (
        f"agreed: round {state.round} {state.outcome or state.phase}, members {members or 'none'}, "
        f"leaving {leaving or 'none'}, finished {sorted(state.done)}, restarts {state.restarts}"
    )
    yield from (f"  number {at}, {_in_words(pod)}" for at, pod in enumerate(world.pods))
    yield from (f"  told: {message}" for message in world.told)


def _in_words(pod: Pod) -> str:
    output, trainer = pod.output, pod.trainer
    going = "gone" if pod.gone else pod.phase.value + " going" * pod.deleting
    words = f"pod {pod.index}-{pod.number} {going}"
    if output is not None:
        asks, now = output.request, output.standing
        request = "nothing" if asks is None else f"{asks.type} {asks.cause or ''} after {asks.after}"
        read = "no status" if now.job is None else f"{now.job.phase} {now.job.round}"
        words += f": sidecar {now.me.id} has read {read}, is {now.mode}, asks {request}"
    if trainer is not None:
        words += f"; trainer {trainer.name} is {trainer.state}, has used round {trainer.used}"
        words += "" if trainer.connected else ", not connected"
    return words
