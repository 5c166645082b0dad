# SPDX-License-Identifier: Apache-2.0
"""What must hold of pings: who is pinged, and when the time for an ack begins."""

from collections.abc import Iterator

from elasticjob.members import Member
from elasticjob.rendezvous.model import State, Worker
from elasticjob.terms import RequestType
from oracle.evidence import ENDED, Step


def only_suspects_are_pinged(step: Step) -> Iterator[str]:
    """A worker that another worker suspects, or that the cluster calls unready, is pinged in the same step, together
    with witnesses that are not suspected, if there are any. Only workers that can ack are pinged."""
    before, after, able, suspected = step.before, step.after, _able(step, step.after), _suspected(step)
    if before.ended or after.ended:
        return
    pinged = after.clocks.pings or {}
    for member in sorted(suspected - pinged.keys()):
        yield f"worker {member.index} is suspected, and was not pinged"
    if after.ping == before.ping:
        return
    for member in after.pinged:
        if member not in able:
            yield f"worker {member.index} is pinged, and cannot ack"
    if able.keys() - suspected and len(able) > 1 and len(after.pinged) == 1:
        yield f"worker {after.pinged[0].index} is pinged alone, and others could be"


def _suspected(step: Step) -> set[Member]:
    """The members that are unheard at the end of the step, as a record or the cluster says."""
    able = _able(step, step.after)
    found = {member for member, worker in able.items() if worker.unready}
    for member, worker in able.items():
        found.update(one for one in worker.suspects if one != member and one in able)
    return found


def ack_limit_begins_with_an_ack(step: Step) -> Iterator[str]:
    """The clock of a pinged worker starts only when another worker has acked, unless no other was pinged."""
    known, able = step.before.clocks.pings or {}, _able(step, step.before)
    for member, pinged in (step.after.clocks.pings or {}).items():
        was = known.get(member)
        if pinged.counting is None or (was is not None and was.counting is not None and was.number == pinged.number):
            continue
        acked = any(other.ack >= pinged.number for other in able.values() if other.member != member)
        if not acked and step.before.pinged != (member,):
            yield f"the clock of worker {member.index} runs, and nobody has acked"


def _able(step: Step, state: State) -> dict[Member, Worker]:
    """The workers that could ack: of the pods that count, those whose sidecar may live, and with them members told to
    leave, while others live through that. A worker that was finishing may no longer be, as its container was started
    again."""
    done = state.done & step.after.done
    there = [*step.current(state).values(), *(one for one in step.workers if is_awaited_leaver(state, one))]
    there = [one for one in there if one.index not in done and not one.deleting]
    return {one.member: one for one in there if one.member is not None and one.pod not in ENDED}


def is_awaited_leaver(state: State, worker: Worker) -> bool:
    """Whether it was told to leave, runs on, and processes that live through that may wait for it."""
    told = worker.member in state.leaving and worker.member in state.participants
    return told and state.intact and bool(state.live) and not worker.asks(RequestType.LEAVE)
