"""When a forming round is complete. The operator knows which workers are meant to come, so nothing is guessed:

- all wanted workers have joined; or
- at least the minimum has, and nobody else is on the way; or
- the last call, from the moment the minimum was there, has run out. Live members of the last round are
  waited for longer (`rejoin`): they may still be stopping their processes.

The join timeout runs only while every missing worker has a running pod: without pods the job waits.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from elasticjob.rendezvous.limits import last_call
from elasticjob.rendezvous.model import PodState, Spec, State, Worker
from elasticjob.rendezvous.roster import Roster, min_members, roster_of
from elasticjob.terms import Outcome, RequestType


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """`members` of the new round in rank order, or none yet; `failure` ends the job; the rest are clocks."""

    members: tuple[Worker, ...] = ()
    failure: tuple[Outcome, str] | None = None
    min_reached: float | None = None
    all_running: float | None = None


def judge(spec: Spec, state: State, workers: Iterable[Worker], now: float) -> Verdict:
    """What a forming round has come to at `now`."""
    roster = roster_of(spec, state, workers)
    least = min_members(spec, state)
    if len(roster.joined) < least:
        return _too_few(spec, state, roster, least, now)
    since = now if state.clocks.min_reached is None else state.clocks.min_reached
    if roster.all_arrived or (now - since >= last_call(spec, roster.joined) and not _awaited(spec, state, roster, now)):
        return Verdict(members=in_rank_order(state, roster.joined))
    return Verdict(min_reached=since)


def in_rank_order(state: State, joined: Iterable[Worker]) -> tuple[Worker, ...]:
    """Survivors keep their order, newcomers follow by index (a number: worker 10 comes after worker 2)."""
    ranks = {member: rank for rank, member in enumerate(state.participants)}
    last = len(ranks)
    return tuple(sorted(joined, key=lambda w: (ranks.get(w.member, last) if w.member else last, w.index)))


def _awaited(spec: Spec, state: State, roster: Roster, now: float) -> bool:
    """Whether a live member of the last round may still be stopping its processes."""
    members = set(state.participants)
    stopping = [
        worker
        for worker in roster.missing
        if worker.member in members and worker.pod is PodState.RUNNING and not worker.asks(RequestType.LEAVE)
    ]
    return bool(stopping) and now - state.clocks.opened < spec.rejoin


def _too_few(spec: Spec, state: State, roster: Roster, least: int, now: float) -> Verdict:
    looping = [w for w in roster.missing if w.pod is PodState.CRASH_LOOP and w.crashes > spec.max_restarts]
    if looping:
        worker = looping[0]
        detail = f": {worker.detail}" if worker.detail else ""
        why = f"worker {worker.index} ended {worker.crashes} times before it joined"
        return Verdict(failure=(Outcome.FAILED, f"{why}, and maxRestarts is {spec.max_restarts}{detail}"))
    if roster.owed or any(worker.pod is not PodState.RUNNING for worker in roster.missing):
        return Verdict()
    since = now if state.clocks.all_running is None else state.clocks.all_running
    if now - since >= spec.join_timeout:
        missing = ", ".join(str(worker.index) for worker in roster.missing)
        why = f"{len(roster.joined)} of at least {least} workers joined within {spec.join_timeout:g} s"
        return Verdict(failure=(Outcome.TIMEOUT, f"{why}; missing: {missing}"))
    return Verdict(all_running=since)
