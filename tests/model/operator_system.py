# SPDX-License-Identifier: Apache-2.0
"""A job as its operator sees it: what is agreed, the pods and their records, and the operator's clock.

`looked` is one step of the operator: the real `decide`, all checks, and what the step does to pods.
"""

from collections.abc import Iterator
from dataclasses import fields, replace
from operator import attrgetter
from typing import Any, NamedTuple

from elasticjob.rendezvous import Event, PodState, Spec, State, Worker, decide, pods_to_create, pods_to_delete
from elasticjob.rendezvous.roster import ENDED
from model.checks import check_step


class OperatorSystem(NamedTuple):
    """`workers` are in the order of their names. `wake` is when the operator looks by itself; `unseen`: it has not
    looked at what happened last; `idle`: its last look changed nothing. `ids` is more than any sidecar's number.
    `lives`: training processes may live through changes."""

    spec: Spec
    state: State
    workers: tuple[Worker, ...] = ()
    now: float = 0.0
    wake: float | None = None
    unseen: bool = False
    idle: bool = False
    ids: int = 0
    events: tuple[Event, ...] = ()
    lives: bool = False


TEXTS, COUNTS = ("reason", "cause", "failure"), ("waiting", "spares")  # counts are of what is seen anyway
AGREED = attrgetter(*(one.name for one in fields(State) if one.init and one.name not in ("clocks", *TEXTS, *COUNTS)))


def agreed(state: State) -> tuple[Any, ...]:
    """What is agreed, without clocks and texts."""
    return (bool(state.failure), *AGREED(state))


def looked(system: OperatorSystem) -> OperatorSystem:
    """The operator looks and acts: what it makes is there at once, what it deletes is going. Raises Violation."""
    spec, workers, now = system.spec, system.workers, system.now
    decision = decide(spec, system.state, workers, now)
    state = decision.state
    new = pods_to_create(spec, state, workers, now)
    old = pods_to_delete(spec, state, workers, now)
    check_step(spec, system.state, workers, decision, now, new, old)
    if old or new:
        workers = tuple(replace(worker, deleting=True) if worker in old else worker for worker in workers)
        made = (Worker(index=index, replacement=number, pod=PodState.PENDING) for index, number in new)
        workers = tuple(sorted((*workers, *made), key=lambda worker: (worker.index, worker.replacement)))
    idle = not (old or new) and agreed(state) == agreed(system.state)
    kept = _without_old_ones(state, workers)
    system = OperatorSystem(spec, state, kept, now, decision.wake_at, ids=system.ids, lives=system.lives)
    return system._replace(idle=idle, events=decision.events)


def after_seconds(system: OperatorSystem, seconds: float, whose: str | int) -> OperatorSystem:
    """Time passes; living sidecars beat, and answer what they are asked, but for one of them or all."""
    workers = tuple(
        worker
        if worker.heartbeat is None or worker.pod in ENDED or whose in ("none", worker.index)
        else replace(worker, heartbeat=worker.heartbeat + 1, ack=ack_of(system.state, worker))
        for worker in system.workers
    )
    return system._replace(workers=workers, now=system.now + seconds)


def ack_of(state: State, worker: Worker) -> int | None:
    """The last number that a living sidecar has answered."""
    return state.ping if worker.member in state.pinged else worker.ack


def _without_old_ones(state: State, workers: tuple[Worker, ...]) -> tuple[Worker, ...]:
    """Only the newest of an index's pods that were given up is kept, or there would be ever more of them."""
    newest_old = {worker.index: worker for worker in workers if is_old(state, worker)}
    return tuple(w for w in workers if not is_old(state, w) or newest_old[w.index] is w)


def is_old(state: State, worker: Worker) -> bool:
    return worker.replacement < state.replacements.get(worker.index, 0)


def lines_of(system: OperatorSystem) -> Iterator[str]:
    """The state for people."""
    state, spec = system.state, system.spec
    members = " ".join(f"{member.index}/{member.id}" for member in state.participants)
    leaving = " ".join(f"{member.index}/{member.id}" for member in state.leaving)
    yield (
        f"    {system.now:g} s: round {state.round} {state.outcome or state.phase}, members {members or 'none'}, "
        f"leaving {leaving or 'none'}, finished {sorted(state.done)}, restarts {state.restarts} {state.failure}, "
        f"{'suspended' if spec.suspend else f'{spec.replicas} wanted'}"
    )
    for worker in system.workers:
        request = worker.request
        asks = "nothing" if request is None else f"{request.type} {request.cause} after {request.after}"
        going = " going" if worker.deleting else ""
        yield f"      pod {worker.index}-{worker.replacement} {worker.pod.value}{going}, id {worker.id}, asks {asks}"
    yield from (f"      {event.reason}: {event.message}" for event in system.events)
