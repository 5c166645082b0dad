# SPDX-License-Identifier: Apache-2.0
"""The failure detector: which workers are suspected, which are pinged, and which have not acked. Pure questions:
`decide` draws the consequences.

A suspicion may come from anywhere and proves nothing. A worker is lost when it leaves a ping unacked that another
worker, pinged at the same time, has acked: then the way to the API server works and the worker does not. While no
worker acks, no clock runs.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from elasticjob.members import Member
from elasticjob.rendezvous.limits import AGAIN_SECONDS, ack_limit
from elasticjob.rendezvous.model import Pinged, Spec, State, Worker
from elasticjob.rendezvous.roster import ENDED, current, has_joined, is_between_stages, is_stopping
from elasticjob.terms import Loss, RendezvousPhase, RequestType

WITNESSES = 2  # unsuspected workers that are pinged with the suspected ones: one witness may be lost too
FEW = 16  # members that may all be pinged at once: in a large group most are only slow, or have no part in it

Present = Mapping[Member, Worker]
Pings = Mapping[Member, Pinged]


@dataclass(frozen=True, slots=True)
class PingTargets:
    """The members to ping; `anew`: the clocks of earlier pings start again."""

    members: tuple[Member, ...]
    anew: bool = False


def able(state: State, workers: Iterable[Worker]) -> dict[Member, Worker]:
    """The workers that can ack, and whose silence means something: in the order of their indices."""
    workers = tuple(workers)
    there = (*current(state, workers).values(), *awaited_leavers(state, workers))
    return {
        worker.member: worker
        for worker in sorted(there, key=lambda one: one.index)
        if worker.member and not (worker.deleting or worker.pod in ENDED or worker.index in state.done)
    }


def awaited_leavers(state: State, workers: Iterable[Worker]) -> Iterator[Worker]:
    """Members told to leave that still run, and with which processes that live through the change end their step."""
    if not (state.intact and state.live):
        return
    told = frozenset(state.leaving).intersection(state.participants)
    yield from (one for one in workers if one.member in told and not one.asks(RequestType.LEAVE))


def suspected(spec: Spec, state: State, present: Present, now: float) -> set[Member]:
    """The members that may be dead: another member suspects them, the cluster calls their pod unready, they have not
    joined again, or their heartbeat is overdue."""
    found = _suspected_by_others(present)
    found |= {member for member, worker in present.items() if worker.unready}
    found |= {member for member, beat in state.clocks.beats.items() if now - beat.since >= spec.heartbeat_timeout}
    late = _late(state, present)
    if late and now - state.clocks.opened >= _patience(spec, state, present, late):
        found.update(late)
    return found & present.keys()


def _suspected_by_others(present: Present) -> set[Member]:
    return {one for member, worker in present.items() for one in worker.suspects if one != member and one in present}


def _late(state: State, present: Present) -> list[Member]:
    """While a round forms: members of the last one that run, and have neither joined nor left, nor ended in success."""
    if state.phase is not RendezvousPhase.FORMING:
        return []
    stopping = (one for one in state.participants if one in present and is_stopping(state, present[one]))
    return [one for one in stopping if not is_between_stages(present[one])]


def _patience(spec: Spec, state: State, present: Present, late: list[Member]) -> float:
    """Seconds before late members are suspected. Others may have been lost together with a member that did not ack; if
    rank 0 was among them, nobody has listened to the others."""
    unacked = state.cause == Loss.UNRESPONSIVE
    if unacked and state.participants[0] not in present:
        return 0.0
    few = len(late) <= max(FEW, sum(has_joined(state, worker) for worker in present.values()) // 4)
    return spec.worker_lost if few or unacked else spec.rejoin


def with_acks(state: State, present: Present, now: float) -> dict[Member, Pinged]:
    """The pings that are open or acked now. A new operator takes those that it finds open as sent at this moment."""
    known = state.clocks.pings
    if known is None:
        unheard = _suspected_by_others(present)
        known = {one: Pinged(state.ping, now, unheard=one in unheard) for one in state.pinged}
    if not known:
        return {}
    latest = sorted((worker.ack, member) for member, worker in present.items())[-2:]
    pings = {}
    for member, pinged in known.items():
        if member not in present:
            continue
        if pinged.acked is None and present[member].ack >= pinged.number:
            pinged = pinged._replace(acked=now, lived=_lived(state, pinged, now))
        another = any(number >= pinged.number for number, other in latest if other != member)
        if pinged.counting is None and another:
            pinged = pinged._replace(counting=now)
        elif pinged.counting is None and state.pinged == (member,):
            pinged = pinged._replace(counting=pinged.since, alone=True)
        pings[member] = pinged
    return pings


def _lived(state: State, pinged: Pinged, now: float) -> float:
    return now if pinged.lived is None or pinged.lived < state.clocks.opened else pinged.lived


def unacked_for(spec: Spec, state: State, worker: Worker, now: float) -> float | None:
    """Seconds for which a worker has left a ping unacked that another has acked; None while that is not too long."""
    pinged = (state.clocks.pings or {}).get(worker.member) if worker.member else None
    if pinged is None or pinged.acked is not None or pinged.counting is None:
        return None
    limit = ack_limit(spec, worker, pinged)
    return limit if now >= _runs_from(state, pinged) + limit else None


def _runs_from(state: State, pinged: Pinged) -> float:
    assert pinged.counting is not None
    return max(pinged.counting, state.clocks.settled)


def lived_on(state: State, worker: Worker) -> float | None:
    """The time since which the sidecar is known to have outlived the end of the last round. None if that is unknown, or
    while a ping to it is open."""
    pinged = (state.clocks.pings or {}).get(worker.member) if worker.member else None
    if pinged is None or pinged.acked is None or pinged.lived is None or pinged.lived < state.clocks.opened:
        return None
    return pinged.lived


def unsettled(state: State, present: Present, suspects: set[Member]) -> dict[Member, Pinged]:
    """The pings without those that are settled: acked, by a member that is no longer suspected. If it is suspected
    again, it is pinged at once."""
    return {
        member: pinged
        for member, pinged in (state.clocks.pings or {}).items()
        if member in present and (pinged.acked is None or member in suspects)
    }


def to_ping(state: State, present: Present, suspects: set[Member], pings: Pings, now: float) -> PingTargets | None:
    """The next ping, if one is due: to members newly suspected, or still suspected after a while, and to witnesses.

    If nobody has acked for a while, everybody is pinged, to find out whether the way to the API server works.
    """
    open_pings = {member: pinged for member, pinged in pings.items() if pinged.acked is None}
    waiting = [pinged for pinged in open_pings.values() if pinged.counting is None]
    if waiting and now - min(pinged.since for pinged in waiting) >= AGAIN_SECONDS:
        everybody = tuple(present)
        return PingTargets(everybody, anew=True) if set(everybody) != set(state.pinged) else None
    if not any(_is_due(pings.get(one), now, AGAIN_SECONDS) for one in suspects):
        return None
    # each ping is a status that everybody reads, so those that are due soon go with it
    fresh = {one for one in suspects if _is_due(pings.get(one), now, AGAIN_SECONDS / 2)}
    chosen = fresh | open_pings.keys() | _witnesses(present, suspects, fresh)
    # only rank 0 listens to the others: nobody suspects a member that was lost together with rank 0
    if len(present) <= FEW and not (fresh - pings.keys()).isdisjoint(state.participants[:1]):
        chosen = set(present)
    return PingTargets(tuple(member for member in present if member in chosen))


def _is_due(pinged: Pinged | None, now: float, again: float) -> bool:
    return pinged is None or (pinged.acked is not None and now - pinged.acked >= again)


def _witnesses(present: Present, suspects: set[Member], fresh: set[Member]) -> set[Member]:
    """Members that suspect others come first: they have just shown that they can write. If all are suspected, others of
    them are taken."""
    sound = [member for member in present if member not in suspects]
    accusers = [member for member in sound if not suspects.isdisjoint(present[member].suspects)]
    others = [member for member in present if member not in fresh]
    return set((accusers or sound or others)[:WITNESSES])


def pinged_by(state: State, present: Present, ping: PingTargets, pings: Pings, now: float) -> dict[Member, Pinged]:
    """The pings after `ping`. An open one keeps the time of its first sending, unless it was sent to one member alone,
    or is sent anew."""
    after, unheard = dict(pings), _suspected_by_others(present)
    for member in ping.members:
        before = after.get(member)
        is_open = before is not None and before.acked is None
        if ping.anew or not is_open or state.pinged == (member,):
            lived = before.lived if before else None
            after[member] = Pinged(state.ping + 1, now, lived=lived, unheard=member in unheard)
    return after


def moments(spec: Spec, state: State, present: Present) -> Iterator[float]:
    """The times at which a suspicion, a ping or a loss may follow without any event."""
    yield from (beat.since + spec.heartbeat_timeout for beat in state.clocks.beats.values())
    if _late(state, present):
        yield from (state.clocks.opened + seconds for seconds in (spec.worker_lost, spec.rejoin))
    for member, pinged in (state.clocks.pings or {}).items():
        if pinged.lived is not None:
            yield pinged.lived + spec.rejoin
        if pinged.acked is not None:
            yield pinged.acked + AGAIN_SECONDS
        elif pinged.counting is None:
            yield pinged.since + AGAIN_SECONDS
        elif member in present:
            yield _runs_from(state, pinged) + ack_limit(spec, present[member], pinged)
