"""When two worlds of the operator's model are the same: renamed ids, rounds and pod numbers make no difference.

- Rounds count from the last formed one: a join is for the round after it, or too old.
- A pod's number counts from the oldest that is there or may still be made of its index.
- Sidecars are named in the order in which they are met, index by index; no two have the same id.
- Why a worker joins or leaves matters while it is in a formed round, and otherwise only that its store did not come.
- Times are ages, and no older than what the rules can tell apart. A heartbeat is one that was seen, or a new one.
"""

from typing import Any

from elasticjob.rendezvous import Member, Request
from elasticjob.terms import Cause, RendezvousPhase, RequestType
from model.operator_world import World
from model.state_key import failures_key, must_know, stood_key

# the models' joins name no limits of their own; `detail` is for people, and no rule reads it
must_know(Request, "type after round cause detail last_call worker_lost")

FORMING, FORMED, CLOSED = RendezvousPhase


def key_of(world: World) -> tuple[Any, ...]:
    spec, state, clocks, now = world.spec, world.state, world.state.clocks, world.now
    last_formed, oldest = state.last_formed, dict(state.replacements)
    beats = {member.id: beat for member, beat in clocks.beats.items()}
    names: dict[str | None, int] = {None: 0}
    members = {member.id for member in state.participants} if state.phase is FORMED else ()
    workers = []
    for worker in world.workers:
        index = worker.index
        first = oldest[index] = min(worker.replacement, oldest.get(index, 0))
        if worker.id not in names:
            names[worker.id] = len(names)
        beat = beats.get(worker.id or "")
        workers.append(
            (
                (index, worker.replacement - first, worker.pod._value_, worker.deleting),
                (worker.disrupted, worker.outdated),
                min(worker.crashes, spec.max_restarts + 1),
                names[worker.id],
                _request(worker.request, last_formed, worker.id in members),
                # two rules judge the age of a beat against that of another
                (beat.value == worker.heartbeat, min(now - beat.since, 2 * spec.worker_lost)) if beat else (),
            )
        )
    return (
        (spec.replicas, spec.min_replicas, spec.suspend, world.unseen),
        (state.phase._value_, state.outcome and state.outcome._value_, state.restarts),
        (bool(state.reason), bool(state.failure), state.planned),
        _named(state.participants, names),
        _named(state.leaving, names),
        _named(state.finished, names),
        _named(state.given_up, names),
        sorted((index, number - oldest[index]) for index, number in state.replacements.items()),
        state.store and names.get(state.store.partition(":")[0], -1),
        workers,
        _age(clocks.opened, now, spec.rejoin) if state.phase is FORMING else 0.0,
        _age(clocks.min_reached, now, spec.last_call),
        _age(clocks.all_running, now, spec.join_timeout),
        _age(clocks.newcomer, now, spec.last_call),
        stood_key(spec, state, now),
        [_age(since, now, spec.rejoin) for since in clocks.leaving.values()],
        sorted(
            (index, number - oldest.get(index, 0), _age(since, now, spec.worker_lost))
            for (index, number), since in clocks.invalid.items()
        ),
        failures_key(spec, clocks, now),
    )


def address_of(id: str) -> str:
    return f"{id}:29402"


def _named(members: tuple[Member, ...], names: dict[str | None, int]) -> list[tuple[int, int]]:
    return [(member.index, names.setdefault(member.id, len(names))) for member in members]


def _request(request: Request | None, last_formed: int, in_round: bool) -> tuple[Any, ...]:
    if request is None:
        return ()
    joins = request.type is RequestType.JOIN
    counts = joins and request.after >= last_formed
    why = request.cause if request.cause == Cause.STORE_NOT_READY or (in_round and (counts or not joins)) else ""
    return (request.type._value_, counts, why + "")


def _age(since: float | None, now: float, most: float) -> float:
    return -1.0 if since is None else min(now - since, most)
