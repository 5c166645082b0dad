# SPDX-License-Identifier: Apache-2.0
"""When two states of the operator's model are the same: renamed ids, rounds and pod numbers make no difference.

- Rounds count from the last formed one: a join is for the round after it, or too old. Stages count from the agreed one.
- A pod's number counts from the oldest that is there or may still be made of its index.
- Sidecars are named in the order in which they are met, index by index; no two have the same id.
- Why a worker joins or leaves matters while it is in a formed round, and otherwise only that its store did not come, or
  that it left as it was told to or as its pod stops.
- Times are ages, and no older than what the rules can tell apart. A heartbeat is one that was seen, or a new one.
- Of the numbers of pings only their order matters.
"""

from typing import Any

from elasticjob.rendezvous import Clocks, Member, Request, Spec, Worker
from elasticjob.rendezvous.failure_detector import awaited_leavers
from elasticjob.rendezvous.limits import ALONE_SECONDS
from elasticjob.rendezvous.live import in_live_pods
from elasticjob.rendezvous.roster import is_current
from elasticjob.terms import RendezvousPhase, RequestCause, RequestType
from model.operator_system import OperatorSystem
from model.state_key import asks_anew, failures_key, finishing_key, matched_key, must_know, ping_key, stood_key

# the models' joins name no script and no limits of their own; `detail` is for people, and no rule reads it; nor do
# they tell a `kind`
must_know(Request, "type after round stage script cause detail kind live last_call worker_lost")

FORMING, FORMED, CLOSED = RendezvousPhase
SETTLE_SECONDS = 5.0  # of a new operator


def key_of(system: OperatorSystem) -> tuple[Any, ...]:
    spec, state, clocks, now = system.spec, system.state, system.state.clocks, system.now
    last_formed, oldest = state.last_formed, dict(state.replacements)
    beats = {member.id: beat for member, beat in clocks.beats.items()}
    names: dict[str | None, int] = {None: 0}
    present = {worker.member for worker in system.workers if is_current(state, worker)}
    present.update(worker.member for worker in awaited_leavers(state, system.workers))
    numbers = _in_order(system)
    members = {member.id for member in state.participants} if state.phase is FORMED else ()
    training = {worker.pod_key for worker in in_live_pods(state, system.workers)} if system.lives else ()
    workers = []
    for worker in system.workers:
        index = worker.index
        first = oldest[index] = min(worker.replacement, oldest.get(index, 0))
        if worker.id not in names:
            names[worker.id] = len(names)
        beat = beats.get(worker.id or "")
        workers.append(
            (
                (index, worker.replacement - first, worker.pod._value_, worker.deleting),
                (worker.disrupted, worker.rejected, worker.outdated, worker.draining, worker.unready),
                (worker.hung != "", worker.cut_off, worker.live_in == last_formed > 0, worker.pod_key in training),
                matched_key(worker.matched),
                worker.topology,
                min(worker.crashes, spec.max_restarts + 1),
                names[worker.id],
                _request(worker.request, last_formed, state.stage, worker.id in members),
                _finishing(spec, clocks, worker, now),
                (beat.value == worker.heartbeat, min(now - beat.since, spec.heartbeat_timeout)) if beat else (),
                sorted(member.index for member in worker.suspects if member in present),
                numbers.get(worker.ack, -1),
                _ping_key(spec, clocks, worker.member, numbers, now),
            )
        )
    return (
        (spec.replicas, spec.spares, spec.min_replicas, spec.sizes, spec.rank_order, spec.suspend, system.unseen),
        asks_anew(spec, state),
        None if spec.deadline is None else max(0.0, spec.deadline - now),
        (state.phase._value_, state.outcome and state.outcome._value_, state.members_ended, state.restarts),
        (bool(state.reason), bool(state.failure), matched_key(state.matched), state.planned),
        (system.lives, state.live, system.lives and state.restart_round > last_formed, state.intact),
        _named(state.participants, names),
        _named(state.leaving, names),
        _named(state.finished, names),
        _named(state.finishing, names),
        _named(state.replaced, names),
        sorted((index, number - oldest[index]) for index, number in state.replacements.items()),
        state.store and names.get(state.store.partition(":")[0], -1),
        workers,
        _age(clocks.opened, now, spec.rejoin) if state.phase is FORMING else 0.0,
        _age(clocks.min_reached, now, spec.last_call),
        _age(clocks.all_running, now, spec.start_timeout),
        _age(clocks.all_spoke, now, spec.join_timeout),
        _age(clocks.newcomer, now, spec.last_call),
        stood_key(spec, state, now),
        [_age(since, now, spec.rejoin) for since in clocks.leaving.values()],
        sorted(
            (index, number - oldest.get(index, 0), _age(since, now, spec.patience))
            for (index, number), since in clocks.invalid.items()
        ),
        failures_key(spec, clocks, now),
        clocks.pings is None,
        sorted(member.index for member in state.pinged if member in present),
        present.issuperset(state.pinged),
        max(now - clocks.settled, -SETTLE_SECONDS) if clocks.settled > now - ALONE_SECONDS else ALONE_SECONDS,
    )


def address_of(id: str) -> str:
    return f"{id}:27601"


def _in_order(system: OperatorSystem) -> dict[int | None, int]:
    """Of the numbers of pings only the order matters."""
    pinged = (one.number for one in (system.state.clocks.pings or {}).values())
    acks = (worker.ack for worker in system.workers)
    return {number: place for place, number in enumerate(sorted({system.state.ping, *pinged, *acks}))}


def _ping_key(
    spec: Spec, clocks: Clocks, member: Member | None, numbers: dict[int | None, int], now: float
) -> tuple[float, ...]:
    pinged = (clocks.pings or {}).get(member) if member else None
    return (numbers[pinged.number], *ping_key(spec, clocks, pinged, now)) if pinged else ()


def _named(members: tuple[Member, ...], names: dict[str | None, int]) -> list[tuple[int, int]]:
    return [(member.index, names.setdefault(member.id, len(names))) for member in members]


def _request(request: Request | None, last_formed: int, stage: int, in_round: bool) -> tuple[Any, ...]:
    if request is None:
        return ()
    joins = request.type is RequestType.JOIN
    counts = joins and request.after >= last_formed
    always = (RequestCause.STORE_NOT_READY, RequestCause.TOLD_TO_LEAVE, RequestCause.POD_STOPPING)
    why = request.cause if request.cause in always or (in_round and (counts or not joins)) else ""
    return (request.type._value_, counts, request.stage - stage, why + "", joins and request.live)


def _finishing(spec: Spec, clocks: Clocks, worker: Worker, now: float) -> tuple[float, ...]:
    known = clocks.finishing.get(worker.member) if worker.member else None
    if known is None:
        return ()
    failed = min(worker.crashes - known.crashes, spec.max_restarts + 1)
    return finishing_key(spec, known, failed, now)


def _age(since: float | None, now: float, most: float) -> float:
    return -1.0 if since is None else min(now - since, most)
