# SPDX-License-Identifier: Apache-2.0
"""Which workers have a place, and which are spares, awaited, missing or surplus.

Everything here is derived from spec, state and workers; nothing is decided.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from itertools import count, islice

from elasticjob.members import Member
from elasticjob.rendezvous.backoff import due
from elasticjob.rendezvous.live import in_live_pods
from elasticjob.rendezvous.model import PodKey, PodState, Request, Spec, State, Worker
from elasticjob.rendezvous.sizes import largest_size, min_members
from elasticjob.terms import RendezvousPhase, RequestType

STUCK = frozenset({PodState.UNSCHEDULABLE, PodState.BLOCKED, PodState.CRASH_LOOP})
ENDED = frozenset({PodState.SUCCEEDED, PodState.FAILED, PodState.OOM_KILLED})
ENDED_WITH_0 = frozenset({PodState.SUCCEEDED, PodState.OOM_KILLED})
OUT = STUCK | ENDED


@dataclass(frozen=True, slots=True)
class Roster:
    """The assignment of the next round's places.

    The wanted workers are `kept`, which have a pod (members of the last round first, in rank order), and `missing`, the
    indices that need one. Of the kept, some have `joined` the next round; the others are `awaited`. While a round
    stands, the wanted exceed the places by one for each member on a draining node. `spares` have a pod and no place;
    `missing_spares` need a pod. `surplus` workers have neither a place nor use as a spare, or are outdated.
    """

    kept: tuple[Worker, ...] = ()
    missing: tuple[int, ...] = ()
    spares: tuple[Worker, ...] = ()
    missing_spares: tuple[int, ...] = ()
    surplus: tuple[Worker, ...] = ()
    joined: tuple[Worker, ...] = ()
    awaited: tuple[Worker, ...] = ()

    @property
    def wanted(self) -> int:
        return len(self.kept) + len(self.missing)

    @property
    def wanted_with_spares(self) -> int:
        return self.wanted + len(self.spares) + len(self.missing_spares)

    @property
    def all_arrived(self) -> bool:
        """Whether no worker is on the way: all wanted pods exist, and every awaited worker is stuck."""
        return not self.missing and all(
            worker.pod in STUCK and not is_between_stages(worker) for worker in self.awaited
        )


def is_current(state: State, worker: Worker) -> bool:
    """Whether `worker` is the pod of its index that counts. The operator writes the number before it makes the pod."""
    return worker.replacement == state.replacements.get(worker.index, 0)


def is_unknown(state: State, worker: Worker) -> bool:
    """Whether the operator did not make this pod, as far as this state tells: its number is later than the agreed
    one."""
    return worker.replacement > state.replacements.get(worker.index, 0)


def current(state: State, workers: Iterable[Worker]) -> dict[int, Worker]:
    """The workers that count, by index."""
    return {worker.index: worker for worker in workers if is_current(state, worker)}


def has_succeeded(state: State, worker: Worker) -> bool:
    """Whether the worker's torchrun of this stage ended in success, though its container may still run: its request
    says so, or belongs to the next stage."""
    request = worker.request
    if request is None:
        return False
    ends = request.type is RequestType.FINISH and request.stage == state.stage
    return ends or (request.type is RequestType.JOIN and request.stage > state.stage)


def began_anew(state: State, request: Request, round: int) -> bool:
    """Whether the container was restarted after it held `round`: its first torchrun then finds its stage finished. A
    Finish from before that round says nothing."""
    return request.type is RequestType.FINISH and request.stage < state.stage and request.round >= round


def is_between_stages(worker: Worker) -> bool:
    """Whether the worker's last torchrun ended in success and no other has begun, while its container runs or the
    kubelet is about to restart it."""
    return worker.asks(RequestType.FINISH) and worker.pod not in ENDED and not worker.deleting


def lacks_last_word(state: State, worker: Worker) -> bool:
    """Whether the trainer ended with exit code 0 while its record still says that it trains in the last formed round.

    Pods and records are seen separately: the record that tells success from failure is still to come.
    """
    request = worker.request
    if worker.pod is not PodState.SUCCEEDED or worker.disrupted or request is None:
        return False
    trains = request.type is RequestType.JOIN and request.after < state.last_formed
    return (trains or request.type is RequestType.CLOSE) and worker.member in state.participants


def has_joined(state: State, worker: Worker) -> bool:
    """Whether the worker's join is for the round after the last formed one: no round was formed since. A join of
    processes that live on is for no round that needs new ones: another follows it."""
    request = worker.request
    return (
        request is not None
        and request.type is RequestType.JOIN
        and request.after >= state.last_formed
        and request.stage == state.stage
        and worker.pod not in OUT
        and not (request.live and request.after < state.restart_round)
    )


def is_stopping(state: State, worker: Worker) -> bool:
    """Whether a member of the last round still runs while the next one forms, and has neither joined nor left."""
    runs = worker.pod is PodState.RUNNING or is_between_stages(worker)
    return runs and not worker.asks(RequestType.LEAVE) and not has_joined(state, worker)


def keeps_its_place(state: State, worker: Worker) -> bool:
    """Whether a member of the last round precedes all others in the next: it has joined, or still may, even while its
    pod's status lags behind. A member that has left comes back as a newcomer."""
    may_join = (worker.pod not in OUT or is_between_stages(worker)) and not worker.asks(RequestType.LEAVE)
    return may_join or lacks_last_word(state, worker)


def roster_of(spec: Spec, state: State, workers: Iterable[Worker], *, others_come: bool = True) -> Roster:
    """Assign the places, then the spares: to members of the last round first, then to workers that have joined, then to
    those whose training processes may live on, then to others on the way, then by index. A member without a place does
    not become a spare: it has to leave its round.

    For each member on a draining node one more worker is wanted. When the round ends, each of these that has joined
    takes over such a member's place. So does a worker that the size of the next round would exclude, unless workers on
    the way may still make that size larger; with `others_come` False they are not awaited.
    """
    if state.phase is RendezvousPhase.CLOSED:
        return Roster()
    stands = state.phase is RendezvousPhase.FORMED
    room = 0 if spec.suspend else max(0, spec.replicas - len(state.done))
    there = _present(state, workers)
    arrived = {worker.pod_key for worker in there if has_joined(state, worker)}
    members, others = _in_turn(state, there, arrived)
    staying, free = members[:room], room - min(room, len(members))
    draining = sum(worker.draining for worker in staying)
    successors = [one for one in others[free:] if not one.draining and (stands or one.pod_key in arrived)][:draining]
    if not stands and draining:  # members on draining nodes come last
        come = [one for one in others[:free] if one.pod_key in arrived]
        others_come &= free > len(others) or any(
            one.pod_key not in arrived and one.pod not in STUCK for one in others[:free]
        )
        by_size = 0 if others_come else _replaced_by_size(spec, state, len(staying), draining - len(successors), come)
        replaced = len(successors) + by_size
        staying, draining = staying[: len(staying) - replaced], draining - replaced
    kept = (*staying, *others[:free], *successors)
    beside = room + draining + spec.spares - len(kept) if room else 0
    left = _without(successors, others[free:])
    spares = tuple([worker for worker in left if not worker.draining][:beside])
    taken = state.done | {worker.index for worker in (*kept, *spares)}
    unused = (index for index in count() if index not in taken)
    places = room + draining if stands else room
    missing = tuple(islice(unused, min(places - len(kept), beside - len(spares))))
    return Roster(
        kept=kept,
        missing=missing,
        spares=spares,
        missing_spares=tuple(islice(unused, beside - len(spares) - len(missing))),
        surplus=(
            *members[len(staying) :],
            *_without(spares, left),
            *(worker for worker in there if worker.outdated),
        ),
        joined=tuple(worker for worker in kept if worker.pod_key in arrived),
        awaited=tuple(worker for worker in kept if worker.pod_key not in arrived),
    )


def _without(some: Iterable[Worker], workers: Iterable[Worker]) -> list[Worker]:
    keys = {worker.pod_key for worker in some}
    return [worker for worker in workers if worker.pod_key not in keys]


def _replaced_by_size(spec: Spec, state: State, members: int, draining: int, come: list[Worker]) -> int:
    """The number of draining members that workers take over from which the size of the next round would exclude."""
    there = members + len(come)
    size = largest_size(spec, state, there)
    enough = size >= min_members(spec, state)
    return min(there - size, draining, sum(not one.draining for one in come)) if enough else 0


def _present(state: State, workers: Iterable[Worker]) -> list[Worker]:
    """The workers that count and whose pods have not ended, as far as is known."""
    return [
        worker
        for worker in current(state, workers).values()
        if worker.index not in state.done
        and not worker.deleting
        and (worker.pod not in ENDED or lacks_last_word(state, worker))
    ]


def _in_turn(state: State, workers: Iterable[Worker], arrived: Collection[PodKey]) -> tuple[list[Worker], list[Worker]]:
    """The members of the last round that keep their places, and all other workers, both by priority. Outdated ones are
    left out."""
    ranks: dict[Member | None, int] = {member: rank for rank, member in enumerate(state.participants)}
    members: list[Worker] = []
    others: list[Worker] = []
    for worker in (one for one in workers if not one.outdated):
        keeps = worker.member in ranks and keeps_its_place(state, worker)
        (members if keeps else others).append(worker)
    members.sort(key=lambda worker: (worker.draining, ranks[worker.member]))
    live_on = {worker.pod_key for worker in in_live_pods(state, others) if is_stopping(state, worker)}

    def turn(worker: Worker) -> tuple[bool, bool, bool, bool, int]:
        key = worker.pod_key
        return key not in arrived, key not in live_on, worker.pod in STUCK, worker.draining, worker.index

    others.sort(key=turn)
    return members, others


def pods_to_create(spec: Spec, state: State, workers: Iterable[Worker], now: float) -> tuple[tuple[int, int], ...]:
    """Index and replacement number of each pod that should exist by `now` and does not."""
    roster = roster_of(spec, state, workers)
    missing = (index for index in (*roster.missing, *roster.missing_spares) if due(state.clocks, index) <= now)
    return tuple((index, state.replacements.get(index, 0)) for index in missing)


def pods_to_delete(spec: Spec, state: State, workers: Iterable[Worker], now: float) -> tuple[Worker, ...]:
    """Pods that are no longer needed: replaced, told to leave and gone or overdue, or left after the job's end, victims
    too.

    Also pods that the operator did not make, once the status has had time to name them. A pod that was told to leave is
    deleted once its record says that it leaves: otherwise the kubelet would restart its container.
    """
    finished = state.finished_indices

    def served(worker: Worker) -> bool:
        if worker.member in state.leaving and not state.ended:
            overdue = now - state.clocks.leaving.get(worker.member, now) >= spec.rejoin
            return overdue or worker.pod in OUT or worker.asks(RequestType.LEAVE)
        if is_unknown(state, worker) and not state.ended:
            return now - state.clocks.invalid.get(worker.pod_key, now) >= spec.patience
        old = not is_current(state, worker)
        return old or (state.ended and worker.pod not in ENDED and worker.index not in finished)

    return tuple(worker for worker in workers if not worker.deleting and served(worker))
