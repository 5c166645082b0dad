# SPDX-License-Identifier: Apache-2.0
"""What must hold after each step of the operator, besides the rendezvous' own `violations`: who is in a round that
stands, and which pods are made and deleted for it."""

from collections.abc import Iterable, Iterator

from elasticjob.rendezvous import Decision, PodState, Spec, State, Worker
from elasticjob.rendezvous.roster import ENDED, STUCK, current, is_current
from elasticjob.terms import Loss, RendezvousPhase, RequestType, RoundCause
from model.search import Violation
from oracle import violations

PodKeys = tuple[tuple[int, int], ...]


def check_step(
    spec: Spec,
    before: State,
    workers: tuple[Worker, ...],
    decision: Decision,
    now: float,
    new: PodKeys,
    old: tuple[Worker, ...],
) -> None:
    """`new` are the pods to be made after the step at `now`, `old` those to be deleted. Raises Violation."""
    after = decision.state
    wrong = [
        *violations(spec, before, workers, decision),
        *_members(after, workers),
        *_victims(after, workers),
        *_failures(before, after),
        *_made(spec, after, workers, new),
        *_not_too_soon(after, now, new),
        *_new_names(before, new),
        *_deleted(after, old),
        *_pinged_without_suspicion(spec, before, after, workers, now),
        *_lost_too_soon(spec, before, decision, now),
        *_overdue(spec, before, after, now),
    ]
    if wrong:
        raise Violation("; ".join(wrong))


def _members(state: State, workers: Iterable[Worker]) -> Iterator[str]:
    """A formed round stands only while each member trains in it or has finished."""
    if state.phase is not RendezvousPhase.FORMED:
        return
    present = current(state, workers)
    for member in state.participants:
        if member.index in state.done:
            continue
        worker = present.get(member.index)
        if worker is not None and worker.pod is PodState.SUCCEEDED and worker.pod_key in state.clocks.invalid:
            continue  # what it has to say is awaited
        if worker is None or worker.member != member or worker.deleting or worker.pod in STUCK | ENDED:
            yield f"round {state.round} stands although worker {member.index} is gone"
        elif worker.asks(RequestType.FINISH) and worker.request and worker.request.round < state.round:
            continue  # from before it joined for this round: the operator has not read the record since
        elif worker.request is None or worker.request.type is not RequestType.JOIN:
            yield f"round {state.round} stands although worker {member.index} does not ask to be in it"
        elif worker.request.after >= state.round:
            yield f"round {state.round} stands although worker {member.index} asks for a later one"


def _victims(state: State, workers: Iterable[Worker]) -> Iterator[str]:
    present = {worker.member for worker in workers}
    if not state.ended:
        yield from (
            f"{member} has gone, and is still told to leave" for member in state.leaving if member not in present
        )


def _failures(before: State, after: State) -> Iterator[str]:
    """How long a round stood is seen by clocks, which `violations` may not read; but it has to stand."""
    stands = before.phase is after.phase is RendezvousPhase.FORMED and before.round == after.round
    if after.restarts < before.restarts and not stands:
        yield f"the count of failures fell to {after.restarts}, and no round stood"


def _new_names(before: State, new: PodKeys) -> Iterator[str]:
    """The pod of a member is never made again: that one may still live, out of sight."""
    if before.phase is RendezvousPhase.FORMED:
        members = {member.index for member in before.participants}
        for index, number in new:
            if index in members and number <= before.replacements.get(index, 0):
                yield f"pod {index}-{number} is made again, which was in the round"


def _made(spec: Spec, state: State, workers: tuple[Worker, ...], new: PodKeys) -> Iterator[str]:
    names = {(worker.index, worker.replacement) for worker in workers}
    yield from (f"pod {index}-{number} is made, and is there already" for index, number in names.intersection(new))
    alive = [w for w in workers if is_current(state, w) and not w.deleting and w.pod not in ENDED and not w.outdated]
    drain = sum(w.draining for w in alive if w.member in state.participants)
    most = 0 if spec.suspend or state.phase is RendezvousPhase.CLOSED else spec.replicas + spec.spares + drain
    if new and len(alive) + len(new) > most:
        wanted = f"{spec.replicas} workers, {spec.spares} spares and {drain} whose nodes are draining"
        yield f"{len(new)} pods are made beside {len(alive)} for {wanted}"


def _not_too_soon(state: State, now: float, new: PodKeys) -> Iterator[str]:
    """Who has failed by itself twice is made anew after 10 s, then after 20, 40, and at most 300."""
    delays = (0.0, 0.0, 10.0, 20.0, 40.0, 80.0, 160.0)
    for index, number in new:
        known = state.clocks.failures.get(index)
        if known is None:
            continue
        delay = delays[known.in_a_row] if known.in_a_row < len(delays) else 300.0
        if now - known.since < delay:
            yield f"pod {index}-{number} is made {now - known.since:g} s after failure {known.in_a_row} in a row"


def _pinged_without_suspicion(
    spec: Spec, before: State, after: State, workers: Iterable[Worker], now: float
) -> Iterator[str]:
    """By time alone only late or long silent workers are suspected; a ping is repeated long after it."""
    if after.ping == before.ping:
        return
    present = current(after, workers).values()
    silent = any(now - beat.since >= spec.heartbeat_timeout for beat in after.clocks.beats.values())
    opened = now - after.clocks.opened
    late = after.phase is RendezvousPhase.FORMING and opened >= min(spec.worker_lost, spec.rejoin)
    late = late or (after.phase is RendezvousPhase.FORMING and after.cause == Loss.UNRESPONSIVE)
    told = any(worker.suspects or worker.unready for worker in present)
    unacked = any(now - one.since >= 10 for one in (before.clocks.pings or {}).values())
    if not (silent or late or told or unacked):
        yield f"ping {after.ping} is made, and nobody is suspected"


def _lost_too_soon(spec: Spec, before: State, decision: Decision, now: float) -> Iterator[str]:
    """Half of the time is that of proof where another hears nothing of a worker that has not answered since, else all
    of it; a worker pinged alone has half a minute."""
    known = before.clocks.pings or {}
    losses = (event for event in decision.events if (event.reason, event.cause) == ("WorkerLost", Loss.UNRESPONSIVE))
    lost = {event.message.split()[1] for event in losses}
    for member, pinged in known.items():
        if str(member.index) not in lost or pinged.counting is None:
            continue
        waited = now - max(pinged.counting, before.clocks.settled)
        share = 0.5 if pinged.unheard and pinged.lived is None else 1.0
        if waited < (30 if pinged.alone or before.pinged == (member,) else share * spec.worker_lost):
            yield f"worker {member.index} is lost {waited:g} s after the first answer"


def _overdue(spec: Spec, before: State, after: State, now: float) -> Iterator[str]:
    """A job that is not suspended fails at its deadline, and not before."""
    closed = before.phase is RendezvousPhase.CLOSED
    is_over = spec.deadline is not None and now >= spec.deadline and (closed or not spec.suspend)
    if is_over and not after.ended:
        yield "the deadline has come, and the job goes on"
    if not is_over and after.cause == RoundCause.DEADLINE_EXCEEDED and not before.ended:
        yield "the job has failed by its deadline, which has not come"


def _deleted(state: State, old: tuple[Worker, ...]) -> Iterator[str]:
    for worker in old:
        if is_wanted(state, worker):
            yield f"the pod of worker {worker.index} is deleted, which was neither lost nor told to leave"


def is_wanted(state: State, worker: Worker) -> bool:
    """Whether its pod must stay: it trains or may do so, or has finished."""
    number = state.replacements.get(worker.index, 0)
    if worker.replacement != number or worker.member in state.leaving:
        return False
    return worker.index in state.finished_indices or not state.ended
