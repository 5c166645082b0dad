# SPDX-License-Identifier: Apache-2.0
"""When a forming round is complete. The operator knows which workers are wanted, so nothing is guessed:

- all wanted workers have joined; or
- at least the minimum has joined, and no other worker is on the way; or
- the last call has expired. It begins when the minimum has joined. Running members of the last round that have not left
  are awaited longer, until they join or are lost: they may still be stopping their processes. So are the only processes
  that have the state of the training, if their sidecar was restarted, for `rejoin` seconds at most.

If all workers that have joined are live, there is no last call: newcomers get another round as soon as they are ready.
The round waits only for a failure that a loss may still explain, because the failure counts when the round forms.

Where only some sizes are allowed, the round has the largest of them that the joined workers can fill. The others wait;
of the members, those on draining nodes wait first.

At a planned end the round also waits while the last round's rank 0, told to leave, may still be saving: most scripts
save there, and the next round is to resume from it.

The join timeout runs only while every awaited worker has a running pod and its torchrun has called its sidecar. The
start timeout covers the time before, because a command may do much before it starts torchrun. Pods without a node,
without quota or not yet made stop neither clock; if no awaited worker has any other pod, the job waits without limit.
Both clocks stop for members of the last round that may still save and stop their processes: these have the longer
`rejoin`.

The job fails when so many workers fail again and again before they join that the minimum cannot be reached without
them. Spares are not awaited: places go to workers in the order of their joins.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from elasticjob.rendezvous.limits import last_call
from elasticjob.rendezvous.live import in_live_pods, lives_on, trains_on
from elasticjob.rendezvous.losses import may_be_explained, never_joined
from elasticjob.rendezvous.model import PodState, Spec, State, Worker
from elasticjob.rendezvous.rank_order import in_rank_order
from elasticjob.rendezvous.roster import Roster, has_joined, is_stopping, lacks_last_word
from elasticjob.rendezvous.sizes import largest_size, min_members
from elasticjob.rendezvous.words import first_few, have_joined
from elasticjob.terms import Outcome, PolicyAction, RequestType

NAMED = 8  # workers named in a sentence
FAULTS_SHOWN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """`members` of the new round in rank order, empty while it forms. `failure` ends the job. The other fields are
    clocks."""

    members: tuple[Worker, ...] = ()
    failure: tuple[Outcome, str] | None = None
    min_reached: float | None = None
    all_running: float | None = None
    all_spoke: float | None = None


def judge(spec: Spec, state: State, roster: Roster, workers: Iterable[Worker], now: float) -> Verdict:
    """The state of a forming round at `now`."""
    least = min_members(spec, state)
    if len(roster.joined) < least:
        return _too_few(spec, state, roster, least, now)
    since = now if state.clocks.min_reached is None else state.clocks.min_reached
    late = _goes_on(spec, state, roster, workers, now) or now - since >= last_call(spec, roster.joined)
    waits = not late or awaits_members(state, roster) or _awaits_training(spec, state, roster, now)
    if (roster.all_arrived or not waits) and not _saves(state, workers):
        size = largest_size(spec, state, len(roster.joined))
        stayers_first = sorted(roster.joined, key=lambda worker: worker.draining)
        return Verdict(members=in_rank_order(spec, state, stayers_first[:size]))
    return Verdict(min_reached=since)


def _goes_on(spec: Spec, state: State, roster: Roster, workers: Iterable[Worker], now: float) -> bool:
    """Whether nobody is waited for, as the training lives through the change. A failure that may still be explained is
    waited for: it counts when the round forms."""
    judged = not state.failure or not may_be_explained(spec, state, workers, now)
    return judged and trains_on(state, roster.joined)


def awaits_members(state: State, roster: Roster) -> bool:
    """Whether a member of the last round has still to join, to leave, to write its last request, or to be known as
    lost."""
    members = set(state.participants)
    return any(
        worker.member in members and (is_stopping(state, worker) or lacks_last_word(state, worker))
        for worker in roster.awaited
    )


def _awaits_training(spec: Spec, state: State, roster: Roster, now: float) -> bool:
    """Whether a round that forms now would lose the state of the training: no joined worker has it, and processes that
    have it may still join, by a sidecar that was restarted."""
    if now - state.clocks.opened >= spec.rejoin or state.restart_round > state.last_formed:
        return False
    members, lives = frozenset(state.participants), [worker for worker in roster.joined if lives_on(worker)]
    if in_live_pods(state, lives) or any(worker.member in members for worker in lives):
        return False
    return any(is_stopping(state, worker) for worker in in_live_pods(state, roster.awaited))


def _saves(state: State, workers: Iterable[Worker]) -> bool:
    """Whether rank 0 of the last round was told to leave at a planned end and may still be saving."""
    first = state.participants[0] if state.planned else None
    return first in state.leaving and any(
        worker.member == first and worker.pod is PodState.RUNNING
        for worker in workers
        if not worker.deleting and not worker.asks(RequestType.LEAVE)
    )


def _too_few(spec: Spec, state: State, roster: Roster, least: int, now: float) -> Verdict:
    failing = _failing(spec, state, roster)
    if failing and roster.wanted_with_spares - len(failing) < least:
        return Verdict(failure=(Outcome.FAILED, failing[min(failing)]))
    awaited = [worker for worker in roster.awaited if worker.pod is not PodState.UNSCHEDULABLE]
    if not awaited or any(worker.pod is not PodState.RUNNING for worker in awaited):
        return Verdict()
    if awaits_members(state, roster):
        return Verdict()
    if silent := silent_starts(awaited):
        return _not_started(spec, state, roster, silent, least, now)
    since = now if state.clocks.all_spoke is None else state.clocks.all_spoke
    if now - since < spec.join_timeout:
        return Verdict(all_spoke=since)
    missing = ", ".join(str(worker.index) for worker in roster.awaited)
    limit = f"within {spec.join_timeout:g} s (spec.rendezvous.joinTimeoutSeconds)"
    why = f"{have_joined(len(roster.joined))} {limit}, and at least {least} must; missing: {missing}"
    why += _faults(roster.awaited)
    return Verdict(failure=(Outcome.TIMEOUT, why))


def silent_starts(missing: Iterable[Worker]) -> list[Worker]:
    """The awaited workers whose pods run and whose trainers have not called their sidecars yet."""
    return [worker for worker in missing if worker.pod is PodState.RUNNING and never_joined(worker)]


def unspoken(indices: Iterable[int]) -> str:
    """A clause that says that the torchruns of these workers have not called their sidecars; it names the first few."""
    return f"no torchrun of worker {first_few(sorted(indices), NAMED)} has spoken to its sidecar"


def _not_started(
    spec: Spec, state: State, roster: Roster, silent: Collection[Worker], least: int, now: float
) -> Verdict:
    since = now if state.clocks.all_running is None else state.clocks.all_running
    if now - since < spec.start_timeout:
        return Verdict(all_running=since)
    limit = f"within {spec.start_timeout:g} s (spec.rendezvous.startTimeoutSeconds)"
    subject = unspoken(worker.index for worker in silent)
    why = f"{subject} {limit}; {have_joined(len(roster.joined))}, and at least {least} must{_faults(silent)}"
    return Verdict(failure=(Outcome.TIMEOUT, why))


def _faults(missing: Iterable[Worker]) -> str:
    """The known faults of the awaited workers: each fault once, with the first worker that has it."""
    first = {worker.detail: worker.index for worker in sorted(missing, key=lambda one: one.index, reverse=True)}
    shown = sorted((index, fault) for fault, index in first.items() if fault)
    return "".join(f"; worker {index}: {fault}" for index, fault in shown[:FAULTS_SHOWN])


def _failing(spec: Spec, state: State, roster: Roster) -> dict[int, str]:
    """By index, how workers failed too often before they joined. Spares are included, as they could take a place."""
    failing, bound = {}, f"and maxRestarts is {spec.max_restarts}"
    missing = (*roster.awaited, *(worker for worker in roster.spares if not has_joined(state, worker)))
    for worker in missing:
        ignored = worker.matched is not None and worker.matched.action is PolicyAction.IGNORE
        if worker.pod is PodState.CRASH_LOOP and worker.crashes > spec.max_crashes and not ignored:
            ended = f"worker {worker.index} ended before it joined"
            if spec.starts_torchrun:
                ended = f"worker {worker.index} ended {worker.crashes} times before it joined, {bound}"
            failing[worker.index] = ended + (f": {worker.detail}" if worker.detail else "")
    for index in (*roster.missing, *roster.missing_spares, *(worker.index for worker in missing)):
        failures = state.clocks.failures.get(index)
        if failures is not None and failures.before_any_round > spec.max_restarts:
            times = (
                f"worker {index}'s pods failed {failures.before_any_round} times in a row before they were in any round"
            )
            failing[index] = f"{times}, {bound}: {failures.why}"
    return failing
