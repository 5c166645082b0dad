# SPDX-License-Identifier: Apache-2.0
"""Gang admission: which of Kueue's Workloads a job should have, and how many workers they allow. Pure.

A job has one Workload for all workers that it wants. Kueue admits it with no fewer workers than the group needs. An
admitted Workload cannot grow, so another one requests the remainder. All workers that the Workloads allow together
train, as if the job wanted no more. With fewer than the group needs, the job behaves as if it were suspended. A
standing round needs quota for its members, and no more if the minimum is raised. Quota is given back as the pods go,
never before.

While the Workloads are unknown, no number follows from them: no pod is made, no round grows, and present workers stay.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from elasticjob.agreed import limited, rendezvous_spec
from elasticjob.api import Admitted, ElasticJobSpec
from elasticjob.blocker_reasons import Reason
from elasticjob.reading.waits import Wait
from elasticjob.rendezvous import State, Worker
from elasticjob.rendezvous.roster import ENDED, is_current
from elasticjob.rendezvous.sizes import min_members
from elasticjob.terms import RendezvousPhase
from elasticjob_operator.job.share import Share
from elasticjob_operator.objects.workloads import Ask

TWICE = "Kueue wants quota for the pod of a gang too"
NO_DEFAULT = "name the LocalQueue otherwise if it is default, as that takes all pods of its namespace"


class Need(NamedTuple):
    """The quota that a job wants. `workers`: the number of workers, spares included. `least`: the smallest round; with
    0 the job asks for no more than it holds. `sizes`: the allowed sizes of a round, empty for any. `members`: the size
    of the standing round, which may be below `least` by now; 0 without a round."""

    workers: int = 0
    least: int = 0
    sizes: tuple[int, ...] = ()
    members: int = 0


class There(NamedTuple):
    """Pods that may run. `alive`: the number of pods that are to stay, as far as is known; `workers` are theirs.
    `leaving`: the number of pods that are being deleted."""

    alive: int = 0
    leaving: int = 0
    workers: tuple[Worker, ...] = ()


class Lack(NamedTuple):
    """What the job lacks of its quota, in a sentence; empty if nothing. `refused`: somebody has to repair the cause."""

    message: str = ""
    refused: bool = False


class Plan(NamedTuple):
    """What to do with the Workloads. `delete`: Workloads to delete. `shrink`: Workloads that give back quota, with the
    number of workers that each keeps. `create`: the number and the request of a new one. `change`: a waiting one with
    its new request."""

    delete: tuple[Share, ...] = ()
    shrink: tuple[tuple[Share, int], ...] = ()
    create: tuple[int, Ask] | None = None
    change: tuple[Share, Ask] | None = None


class Allowance(NamedTuple):
    """What the quota allows of a job's spec. `replicas` and `spares`: their numbers, None for all. `suspends`: the job
    is suspended. `message`: why that is not all, in a sentence. `refused`: somebody has to repair that. `unknown`: the
    numbers are those of the present workers, and no pod may be made."""

    replicas: int | None = None
    spares: int = 0
    suspends: bool = False
    message: str = ""
    unknown: bool = False
    refused: bool = False

    def admitted(self, spec: ElasticJobSpec) -> Admitted | None:
        """The admitted part as the status says it; None if all of `spec` may run."""
        if self.suspends:
            return Admitted(replicas=0)
        if self.replicas is None or (self.replicas, self.spares) == (spec.replicas, spec.spare_replicas):
            return None
        return Admitted(replicas=self.replicas, spares=self.spares)

    def of(self, spec: ElasticJobSpec) -> ElasticJobSpec:
        """The spec that the rendezvous is given."""
        return limited(spec, self.admitted(spec))


UNLIMITED = Allowance()


def there_of(workers: Iterable[Worker]) -> There:
    running = [worker for worker in workers if worker.pod not in ENDED]
    alive = tuple(worker for worker in running if not worker.deleting)
    return There(len(alive), len(running) - len(alive), alive)


def need_of(spec: ElasticJobSpec, state: State, there: There) -> Need:
    """The quota that the job needs. Finished workers need none, and finishing ones keep theirs. A closed rendezvous
    accepts no more workers."""
    if state.ended:
        return Need()
    if state.phase is RendezvousPhase.CLOSED:
        return Need(there.alive)
    if spec.suspend or len(state.finished) >= spec.replicas:
        return Need()
    bounds = rendezvous_spec(spec)
    workers = spec.replicas + spec.spare_replicas - len(state.finished)
    stands = state.phase is RendezvousPhase.FORMED
    members = len(frozenset(state.participants).difference(state.finished)) if stands else 0
    return Need(workers, min_members(bounds, state), () if state.done else bounds.sizes, members)


def allowed(shares: Iterable[Share]) -> int:
    return sum(share.held for share in shares if share.counts)


def assigned(shares: Iterable[Share], used: Iterable[int], pods: int) -> list[int]:
    """The numbers of the Workloads whose quota new `pods` take, one for each pod. `used`: the Workloads of the present
    pods. Each pod takes quota where most is left. A pod beyond all quota, as beside a draining worker, counts against
    the first Workload."""
    left = Counter({share.number: share.held for share in shares if share.counts})
    left.subtract(number for number in used if number in left)
    found: list[int] = []
    while left and len(found) < pods:
        number = min(left, key=lambda one: (-left[one], one))
        left[number] -= 1
        found.append(number)
    return found


def trains(shares: Iterable[Share], need: Need) -> bool:
    """Whether there is quota for a round, or for all members of the standing one."""
    total = allowed(shares)
    return total >= need.least or 0 < need.members <= total


def allowance(spec: ElasticJobSpec, state: State, there: There, shares: Sequence[Share] | None) -> Allowance:
    """What `shares` allow the job; None: the shares are unknown."""
    need = need_of(spec, state, there)
    if not need.workers:
        return UNLIMITED
    if shares is None:
        return _of_those_there(spec, state, need, there)
    if not trains(shares, need):
        found, lack = Allowance(suspends=True), _lack_of_all(shares, need)
    else:
        found, lack = _limited(spec, state, allowed(shares)), _lack_of_some(shares, need)
    return found._replace(message=lack.message, refused=lack.refused)


def _limited(spec: ElasticJobSpec, state: State, workers: int) -> Allowance:
    """The allowance for so many workers. A finished worker keeps its place and needs no quota."""
    if not workers:  # the rendezvous is closed and accepts no more workers
        return UNLIMITED
    places = workers + len(state.finished)
    replicas = min(spec.replicas, places)
    return Allowance(replicas, min(spec.spare_replicas, places - replicas))


def _of_those_there(spec: ElasticJobSpec, state: State, need: Need, there: There) -> Allowance:
    """The allowance of the job's present workers that need not go. Beside a standing round the others are spares,
    because the round may not grow."""
    leaving, finished = frozenset(state.leaving), state.finished_indices
    stay = [
        worker.member
        for worker in there.workers
        if is_current(state, worker) and not (worker.outdated or worker.index in finished or worker.member in leaving)
    ]
    if not stay:
        return Allowance(suspends=need.least > 0, unknown=True)
    members = frozenset(state.participants).intersection(filter(None, stay)) if need.members else ()
    replicas = min(spec.replicas, len(members or stay) + len(finished))
    most = min(spec.replicas + spec.spare_replicas, len(stay) + len(finished))
    return Allowance(replicas, most - replicas, unknown=True)


def _lack_of_all(shares: Sequence[Share], need: Need) -> Lack:
    if taken := [share for share in shares if share.held and not share.deleting]:
        evicted = next((share.message for share in taken if share.lost), f"{need.least} workers are needed")
        return Lack(f"its quota is gone: {evicted}; it queues again when none of its pods is left")
    return _waiting(shares, f"{need.workers} workers wait for quota (at least {need.least} must have it)")


def _lack_of_some(shares: Sequence[Share], need: Need) -> Lack:
    rest = need.workers - allowed(shares)
    if rest <= 0 or not need.least:
        return Lack()
    evicted = next((share.message for share in shares if share.held and share.lost), None)
    message = f"{rest} of {need.workers} workers wait for quota"
    return Lack(f"{message}: {evicted}") if evicted else _waiting(shares, message)


def _waiting(shares: Iterable[Share], message: str) -> Lack:
    asked = next((one for one in shares if one.waits or one.refused), None)
    if asked is None:
        return Lack(message)
    return Lack(f"{message}: in the queue {asked.ask.queue}: {asked.message}", asked.inadmissible)


def explained(waits: Mapping[int, Wait], spec: ElasticJobSpec) -> dict[int, Wait]:
    """What keeps workers away, by index. The pods of a gang have quota already, and Kueue should ignore them."""
    if not spec.admitted_as_gang:
        return dict(waits)
    return {
        index: wait._replace(reason=Reason.SCHEDULING_GATED, message=f"{TWICE} ({wait.message}): {NO_DEFAULT}")
        if wait.reason is Reason.QUOTA_PENDING
        else wait
        for index, wait in waits.items()
    }


def plan(shares: Sequence[Share], need: Need, there: There, wanted: Ask | None) -> Plan:
    """What to do now; the rest follows with the next look. `wanted`: queue, priority and template of new Workloads;
    None if none can be made."""
    gone, shrunk = _given_back(shares, need, there)
    ask = wanted and _asked(shares, need, wanted)
    waiting = [share for share in shares if share.waits]
    kept = next((share for share in waiting if ask and _may_ask(share, ask)), None)
    gone += [share for share in waiting if share is not kept]
    if ask and kept:
        return Plan(tuple(gone), tuple(shrunk), change=(kept, ask) if kept.ask != ask else None)
    number = max((share.number + 1 for share in shares), default=0)
    return Plan(tuple(gone), tuple(shrunk), (number, ask) if ask else None)


def _may_ask(share: Share, ask: Ask) -> bool:
    """Whether a waiting share can be changed to request `ask`. It keeps its place in the queue then."""
    in_its_queue = share.ask._replace(workers=ask.workers, least=ask.least) == ask
    return share.ask == ask or (in_its_queue and not share.reserved)


def _given_back(shares: Sequence[Share], need: Need, there: There) -> tuple[list[Share], list[tuple[Share, int]]]:
    """The shares to delete and those to shrink: quota that is lost or no longer wanted, the newest first, as far as no
    pod may still run on it."""
    total = allowed(shares)
    kept = min(total, need.workers) if trains(shares, need) else 0
    held = [one for one in shares if not one.deleting and not one.waits]
    unused = sum(one.held for one in held) - max(there.alive, kept) - there.leaving
    surplus, gone, shrunk = total - kept, list[Share](), list[tuple[Share, int]]()
    for share in sorted(held, key=lambda one: (not one.lost, -one.number)):
        back = max(0, min(share.held, unused, share.held if share.lost else surplus))
        if back == share.held:
            gone.append(share)
        elif back:
            shrunk.append((share, share.held - back))
        unused -= back
        surplus -= 0 if share.lost else back
    return gone, shrunk


def _asked(shares: Sequence[Share], need: Need, wanted: Ask) -> Ask | None:
    """What the waiting Workload should request. Nothing is requested until lost shares are given back."""
    total = allowed(shares)
    if not need.least or need.workers <= total or any(share.lost and not share.deleting for share in shares):
        return None
    if trains(shares, need):
        rest = need.workers - total
        larger = min((size for size in need.sizes if size > total), default=total + 1)
        return wanted._replace(workers=rest, least=min(rest, max(larger, need.least) - total))
    return None if total else wanted._replace(workers=need.workers, least=min(need.least, need.workers))
