# SPDX-License-Identifier: Apache-2.0
"""What can happen around an operator. Nobody is trusted to behave: a worker may ask for anything at any time.

A move on a worker is a name, the sentence that tells it, and a function that gives the worker afterwards: None where
the move makes no sense, `GONE` where the pod is gone.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

from elasticjob.agreed import state_of
from elasticjob.rendezvous import Clocks, Matched, PodState, Request, Spec, State, Worker
from elasticjob.rendezvous.losses import AT_FAULT
from elasticjob.rendezvous.roster import ENDED, STUCK, is_current, is_unknown
from elasticjob.terms import PolicyAction, RendezvousPhase, RequestCause, RequestType
from model.operator_key import SETTLE_SECONDS, address_of
from model.operator_system import OperatorSystem, after_seconds, looked
from model.search import Move
from model.state_key import asks_anew
from model.statuses import stored

GONE = Worker(index=-1)
Change = Callable[[OperatorSystem, Worker], Worker | None]


def asks(type: RequestType, cause: str = "", behind: int = 0, ahead: int = 0, *, live: bool = False) -> Change:
    """`behind` so many rounds, and `ahead` so many stages; `live`: with processes that live on."""

    def change(system: OperatorSystem, worker: Worker) -> Worker | None:
        after = system.state.last_formed - behind
        stage = system.state.stage + ahead
        if worker.id is None or after < 0 or stage < 1:
            return None
        finishes = type is RequestType.FINISH
        request = Request(
            type=type,
            cause=cause,
            after=after if type is RequestType.JOIN else 0,
            round=after if finishes else 0,
            stage=stage,
            live=live,
        )
        return None if request == worker.request else replace(worker, request=request, hung="")

    return change


def becomes(pod: PodState, *before: PodState) -> Change:
    def change(system: OperatorSystem, worker: Worker) -> Worker | None:
        crashed = pod is PodState.CRASH_LOOP
        return replace(worker, pod=pod, crashes=worker.crashes + crashed) if worker.pod in before else None

    return change


def with_record(system: OperatorSystem, worker: Worker) -> Worker:
    """The pod runs, and a sidecar that has just started has written its record."""
    id = f"{worker.replacement}.{system.ids + 1}"
    return replace(
        worker,
        pod=PodState.RUNNING,
        id=id,
        address=address_of(id),
        request=None,
        heartbeat=0,
        suspects=(),
        ack=0,
        hung="",
        cut_off=False,
        live_in=0,
        topology=_place(system, worker),
    )


def _place(system: OperatorSystem, worker: Worker) -> tuple[str, ...]:
    """Its zone and its node, where ranks are laid out by them: neighbouring indices are apart, and so is each pod from
    the one that it replaces."""
    if not system.spec.rank_order:
        return ()
    zone = ("near", "far", "near", "")[(worker.index + worker.replacement) % 4]
    return (zone, f"{zone} node")


def comes_up(system: OperatorSystem, worker: Worker) -> Worker | None:
    if worker.id is not None:
        return None
    state = system.state
    join = Request(type=RequestType.JOIN, after=state.last_formed, stage=state.stage, cause=RequestCause.STARTED)
    return replace(with_record(system, worker), request=join)


def starts_again(system: OperatorSystem, worker: Worker) -> Worker | None:
    return with_record(system, worker) if worker.id is not None or worker.pod is not PodState.RUNNING else None


def is_evicted(system: OperatorSystem, worker: Worker) -> Worker | None:
    return replace(worker, pod=PodState.FAILED, disrupted=True) if worker.pod not in ENDED else None


def is_rejected(system: OperatorSystem, worker: Worker) -> Worker | None:
    """By its node: one that was never started there, or, after the node's restart, one that has run."""
    return replace(worker, pod=PodState.FAILED, rejected=True) if worker.pod not in ENDED else None


def matches(action: PolicyAction, rule: int) -> Change:
    """What the job's policy says of who has failed."""
    found = Matched(rule, action, f"rule {rule} says {action}")

    def change(system: OperatorSystem, worker: Worker) -> Worker | None:
        stopped = worker.deleting or worker.pod in AT_FAULT or worker.asks(RequestType.LEAVE)
        fails = stopped or (worker.request is not None and worker.request.cause == RequestCause.WORKER_FAILED)
        return replace(worker, matched=found) if fails and worker.matched != found else None

    return change


def is_outdated(system: OperatorSystem, worker: Worker) -> Worker | None:
    return None if worker.outdated else replace(worker, outdated=True)


def is_draining(system: OperatorSystem, worker: Worker) -> Worker | None:
    return replace(worker, draining=not worker.draining)


def hangs(system: OperatorSystem, worker: Worker) -> Worker | None:
    """Until its trainer asks for something, as the operator judges each round by itself."""
    return replace(worker, hung="no step") if worker.id is not None and not worker.hung else None


def opts_in(system: OperatorSystem, worker: Worker) -> Worker | None:
    """All its training processes do, in the round that stands."""
    state = system.state
    trains = state.phase is RendezvousPhase.FORMED and worker.member in state.participants
    return replace(worker, live_in=state.round) if trains and worker.live_in < state.round else None


def is_cut_off(system: OperatorSystem, worker: Worker) -> Worker | None:
    return replace(worker, cut_off=not worker.cut_off) if worker.member in system.state.participants else None


def doubts_the_next(system: OperatorSystem, worker: Worker) -> Worker | None:
    """Or hears of all again."""
    there = (other.member for other in system.workers if is_current(system.state, other))
    others = sorted(other for other in there if other and other != worker.member)
    if worker.id is None or not (worker.suspects or others):
        return None
    after = [other for other in others if other.index > worker.index]
    return replace(worker, suspects=() if worker.suspects else tuple((after or others)[:1]))


def is_unheard_of(system: OperatorSystem, worker: Worker) -> Worker | None:
    return replace(worker, unready=not worker.unready) if worker.id is not None else None


def answers(system: OperatorSystem, worker: Worker) -> Worker | None:
    """Whether it was asked or not."""
    if worker.id is None or worker.ack == system.state.ping:
        return None
    return replace(worker, ack=system.state.ping)


def is_deleted(system: OperatorSystem, worker: Worker) -> Worker | None:
    return replace(worker, deleting=True)


def is_gone(system: OperatorSystem, worker: Worker) -> Worker | None:
    return GONE


LIVES_ON = asks(RequestType.JOIN, RequestCause.MEMBERSHIP_CHANGED, live=True)
MENDS = asks(RequestType.LEAVE, RequestCause.WORKER_FAILED)
ALIVE: dict[str, tuple[str, Change]] = {
    "up": ("its pod runs, and its trainer joins", comes_up),
    "record": ("its sidecar has started, and has a new id", starts_again),
    "join": ("its trainer joins, newly started", asks(RequestType.JOIN, RequestCause.STARTED)),
    "failed": ("its trainer joins again, as its processes failed", asks(RequestType.JOIN, RequestCause.WORKER_FAILED)),
    "rejoin": ("its trainer joins again, told of a change", asks(RequestType.JOIN, RequestCause.MEMBERSHIP_CHANGED)),
    "late": ("a join comes that was made a round ago", asks(RequestType.JOIN, RequestCause.STARTED, 1)),
    "killed": ("its trainer was killed", asks(RequestType.LEAVE, RequestCause.AGENT_LOST)),
    "no store": ("its store did not come", asks(RequestType.LEAVE, RequestCause.STORE_NOT_READY)),
    "leave": ("its trainer leaves, as the pod stops", asks(RequestType.LEAVE, RequestCause.POD_STOPPING)),
    "departs": ("its trainer leaves, as it was told to", asks(RequestType.LEAVE, RequestCause.TOLD_TO_LEAVE)),
    "finish": ("its torchrun ends in success", asks(RequestType.FINISH)),
    "next": ("its next torchrun joins", asks(RequestType.JOIN, RequestCause.STARTED, ahead=1)),
    "finish before": ("its torchrun finds the last stage finished", asks(RequestType.FINISH, ahead=-1)),
    "close": ("its trainer closes the rendezvous", asks(RequestType.CLOSE)),
    "pod failed": ("its pod fails", becomes(PodState.FAILED, PodState.PENDING, PodState.RUNNING)),
    "evicted": ("its pod is evicted", is_evicted),
    "rejected": ("its node rejects its pod", is_rejected),
    "fails the job": ("the policy says that its failure ends the job", matches(PolicyAction.FAIL_JOB, 1)),
    "ignored": ("the policy says that its failure does not count", matches(PolicyAction.IGNORE, 0)),
    "counted": ("the policy says that its failure counts", matches(PolicyAction.COUNT, 2)),
    "outdated": ("it is of another template than the job's", is_outdated),
    "draining": ("its node is draining, or stays after all", is_draining),
    "hangs": ("its training hangs, and is to be restarted", hangs),
    "cut off": ("it and rank 0 do not reach each other, or do again", is_cut_off),
    "pod succeeded": ("its pod succeeds", becomes(PodState.SUCCEEDED, PodState.RUNNING)),
    "out of memory": ("its trainer runs out of memory", becomes(PodState.OOM_KILLED, PodState.RUNNING)),
    "suspects": ("it hears nothing of the next worker, or hears it again", doubts_the_next),
    "unready": ("its node is not heard of, or heard of again", is_unheard_of),
    "answers": ("it answers the last ping", answers),
    "stuck": ("its pod cannot be scheduled", becomes(PodState.UNSCHEDULABLE, PodState.PENDING)),
    "crash": ("the kubelet holds back its trainer", becomes(PodState.CRASH_LOOP, PodState.RUNNING)),
    "runs": ("its trainer runs again", becomes(PodState.RUNNING, *STUCK)),
    "deleted": ("its pod is deleted", is_deleted),
    "gone": ("its pod is gone", is_gone),
}
# where training processes may live through changes
LIVE: dict[str, tuple[str, Change]] = {
    "opts in": ("its processes have opted in to live through changes", opts_in),
    "lives on": ("its trainer joins again, told of a change, and its processes live on", LIVES_ON),
    "mends": ("its trainer leaves until it has a process in place of one that failed", MENDS),
}
CHANGES = ALIVE | LIVE
# what matters of pods that are on their way out, and of all after the end
LEFT = ("join", "finish", "fails the job", "counted", "gone")
# seconds that pass, and who beats and answers meanwhile: all or nobody; SILENT, all but one
TIMES = ((10.0, "all"), (10.0, "none"), (20.0, "all"), (60.0, "all"))
SILENT, HEARTBEAT = 20.0, 5.0


def moves_of(system: OperatorSystem, left: int) -> Iterator[Move]:
    """Each as the operator sees it at once and, if at least two more follow, together with the next."""
    spec, state = system.spec, system.state
    yield ("look",)
    yield ("restart",)
    yield from (("time", seconds, whose) for seconds, whose in TIMES)
    yield from (("time", SILENT, w.index) for w in system.workers if w.heartbeat is not None and is_current(state, w))
    for seen in (True, False) if left > 1 and not system.unseen else (True,):
        yield from (
            ("scale", size, seen) for size in spec.sizes or range(spec.min_replicas, 4) if size != spec.replicas
        )
        yield ("suspend", seen)
        if not asks_anew(spec, state):
            yield ("anew", seen)
        yield from (("unknown", index, seen) for index in _without_unknown(system))
        for worker in system.workers:
            out = worker.deleting or worker.pod in ENDED or state.ended or not is_current(state, worker)
            for name in LEFT if out else (*ALIVE, *(LIVE if system.lives else ())):
                if CHANGES[name][1](system, worker) is not None:
                    yield (name, worker.index, worker.replacement, seen)


def _without_unknown(system: OperatorSystem) -> set[int]:
    """The first worker with a pod whose next pod nobody has made under the operator's hands."""
    there = {worker.index for worker in system.workers if is_current(system.state, worker)}
    return {min(there)} if there and not any(is_unknown(system.state, worker) for worker in system.workers) else set()


def restarted(spec: Spec, state: State) -> Spec:
    """People ask for new processes, at another time than that of the last round's."""
    return replace(spec, restarted_at="noon" if state.restarted_at != "noon" else "midnight")


def changed(system: OperatorSystem, move: Move) -> OperatorSystem:
    """After `move`, before the operator looks."""
    system = system._replace(unseen=move[-1] is False, idle=False)
    match move:
        case ("look",):
            return system
        case ("restart",):
            fresh = Clocks(opened=system.now, formed=system.now, settled=system.now + SETTLE_SECONDS)
            return system._replace(state=state_of(stored(system.state), fresh))
        case ("time", seconds, "none"):
            return after_seconds(system, seconds, "none")
        case ("time", seconds, whose):
            for _ in range(int(seconds / HEARTBEAT) - 1):
                system = looked(after_seconds(system, HEARTBEAT, whose))
            return after_seconds(system, HEARTBEAT, whose)
        case ("scale", replicas, _):
            return system._replace(spec=replace(system.spec, replicas=replicas))
        case ("unknown", index, _):
            number = system.state.replacements.get(index, 0) + 1
            made = comes_up(system, Worker(index=index, replacement=number))
            assert made is not None
            workers = sorted((*system.workers, made), key=lambda worker: worker.pod_key)
            return system._replace(workers=tuple(workers), ids=system.ids + 1)
        case ("suspend", _):
            return system._replace(spec=replace(system.spec, suspend=not system.spec.suspend))
        case ("anew", _):
            return system._replace(spec=restarted(system.spec, system.state))
    name, index, number, _ = move
    at = next(at for at, worker in enumerate(system.workers) if (worker.index, worker.replacement) == (index, number))
    worker = CHANGES[name][1](system, system.workers[at])
    assert worker is not None
    became = () if worker is GONE else (worker,)
    return system._replace(workers=(*system.workers[:at], *became, *system.workers[at + 1 :]), ids=system.ids + 1)
