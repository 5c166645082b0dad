"""Who counts: the workers that a job wants, those it is still waiting for, and those it has given up.

Everything here is derived from spec, state and workers at the moment of asking; nothing is decided.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import count, islice

from elasticjob.rendezvous.model import PodState, Spec, State, Worker
from elasticjob.terms import RendezvousPhase, RequestType

STUCK = frozenset({PodState.UNSCHEDULABLE, PodState.BLOCKED, PodState.CRASH_LOOP})
ENDED = frozenset({PodState.SUCCEEDED, PodState.FAILED, PodState.OOM_KILLED})
OUT = STUCK | ENDED


@dataclass(frozen=True, slots=True)
class Roster:
    """`kept` and `owed` are the wanted workers: those with a pod (members of the last round first, in rank
    order), and the indices that still need one. `excess` has no room in `spec.replicas`. Of the kept, some have
    `joined` for the next round and the others are `missing`."""

    kept: tuple[Worker, ...]
    owed: tuple[int, ...]
    excess: tuple[Worker, ...]
    joined: tuple[Worker, ...]
    missing: tuple[Worker, ...]

    @property
    def wanted(self) -> int:
        return len(self.kept) + len(self.owed)

    @property
    def all_arrived(self) -> bool:
        """Nobody is on the way: no pod to come, and whoever has not joined is stuck."""
        return not self.owed and all(worker.pod in STUCK for worker in self.missing)


def is_current(state: State, worker: Worker) -> bool:
    """Whether `worker` is the newest pod of its index; of an older one nothing counts."""
    return worker.replacement >= state.replacements.get(worker.index, 0)


def current(state: State, workers: Iterable[Worker]) -> dict[int, Worker]:
    """By index, the newest pod's worker."""
    newest_last = sorted(workers, key=lambda worker: worker.replacement)
    return {worker.index: worker for worker in newest_last if is_current(state, worker)}


def has_joined(state: State, worker: Worker) -> bool:
    """Whether the join counts for the round after the last formed one: none was formed since it was made."""
    request = worker.request
    return (
        request is not None
        and request.type is RequestType.JOIN
        and request.after >= state.last_formed
        and worker.pod not in OUT
    )


def min_members(spec: Spec, state: State) -> int:
    """The least that may form a round: each finished worker lowers it by one."""
    return max(1, spec.min_replicas - len(state.done))


def roster_of(spec: Spec, state: State, workers: Iterable[Worker]) -> Roster:
    """Assign the places: members of the last round first, then who has joined, then by index."""
    if state.phase is RendezvousPhase.CLOSED:
        return Roster((), (), (), (), ())
    done = state.done
    places = 0 if spec.suspend else max(0, spec.replicas - len(done))
    alive = [
        worker
        for worker in current(state, workers).values()
        if worker.index not in done and not worker.deleting and worker.pod not in ENDED
    ]
    ranks = {member: rank for rank, member in enumerate(state.participants)}
    last = len(ranks)
    arrived = {worker.place for worker in alive if has_joined(state, worker)}
    alive.sort(
        key=lambda worker: (
            ranks.get(worker.member, last) if worker.member else last,
            worker.place not in arrived,
            worker.index,
        )
    )
    kept = tuple(alive[:places])
    taken = done | {worker.index for worker in kept}
    owed = tuple(islice((index for index in count() if index not in taken), places - len(kept)))
    joined = tuple(worker for worker in kept if worker.place in arrived)
    missing = tuple(worker for worker in kept if worker.place not in arrived)
    return Roster(kept, owed, tuple(alive[places:]), joined, missing)


def pods_to_create(spec: Spec, state: State, workers: Iterable[Worker]) -> tuple[tuple[int, int], ...]:
    """Index and replacement number of each pod that should exist and does not."""
    owed = roster_of(spec, state, workers).owed
    return tuple((index, state.replacements.get(index, 0)) for index in owed)


def pods_to_delete(spec: Spec, state: State, workers: Iterable[Worker], now: float) -> tuple[Worker, ...]:
    """Pods that have served: given up, told to leave and gone or overdue, or left over after the end, victims too."""
    done = state.done

    def served(worker: Worker) -> bool:
        if worker.member in state.leaving and not state.ended:
            overdue = now - state.clocks.leaving.get(worker.member, now) >= spec.rejoin
            return overdue or worker.pod in OUT
        old = not is_current(state, worker)
        return old or (state.ended and worker.pod not in ENDED and worker.index not in done)

    return tuple(worker for worker in workers if not worker.deleting and served(worker))
