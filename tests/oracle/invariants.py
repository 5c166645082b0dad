# SPDX-License-Identifier: Apache-2.0
"""What must hold after every step of `decide`, as one pure function; tests call it after each.

The checks here see the workers that a step was decided from; those of `history` need none. Each check's docstring is
copied into docs/protocol.md by `make docs`.
"""

from collections.abc import Iterable, Iterator

from elasticjob.members import Member
from elasticjob.rendezvous.decision import Decision
from elasticjob.rendezvous.model import Matched, PodState, Spec, State, Worker
from elasticjob.rendezvous.transitions import MOVES, ROUND_REOPENED, TABLE
from elasticjob.terms import Outcome, PolicyAction, RendezvousPhase, RequestType, RoundCause
from oracle.evidence import Step
from oracle.history import history_violations, newly_formed
from oracle.live import (
    live_members_are_known,
    new_processes_where_they_are_needed,
    newcomers_of_live_jobs_are_let_in,
    no_training_is_left_behind,
    nobody_waits_where_all_live,
)
from oracle.pings import ack_limit_begins_with_an_ack, is_awaited_leaver, only_suspects_are_pinged
from oracle.ranks import neighbours_are_near
from oracle.stages import between_stages, finished_in_success, stages_follow_each_other

FORMING, FORMED, CLOSED = RendezvousPhase
EVENTS = {move.event for move in MOVES}


def violations(spec: Spec, before: State, workers: Iterable[Worker], decision: Decision) -> list[str]:
    """Every rule that one step from `before` breaks, in words; empty when all is well."""
    step = Step(spec, before, tuple(workers), decision)
    return [found for check in STEP for found in check(step)] + history_violations(
        before, decision.state, ranks_move=bool(spec.rank_order)
    )


def moves_are_in_the_table(step: Step) -> Iterator[str]:
    """The phase changes only by the moves above, each with its event."""
    phase, number, outcome = step.before.phase, step.before.round, step.before.outcome
    for event in step.decision.events:
        if event.reason not in EVENTS:
            continue
        move = TABLE.get((phase, event.reason))
        if move is None:
            yield f"{event.reason} is no move out of {phase}"
            return
        phase, number = move.target, number + move.opens
        outcome = Outcome(event.reason) if phase is CLOSED else None
    after = step.after
    if (number, phase, outcome) != (after.round, after.phase, after.outcome):
        led, stands = outcome or phase, after.outcome or after.phase
        yield f"the events lead to round {number}, {led}, and not to round {after.round}, {stands}"


def formed_of_who_joined(step: Step) -> Iterator[str]:
    """A round is formed of exactly the workers that have joined since the last round, each with its present id, as far
    as there are places and the size is allowed. Members of the last round come first, then others by index; workers on
    draining nodes come last."""
    if not newly_formed(step.before, step.after):
        return
    number, members = step.after.round, step.after.participants
    joined = {worker.member: worker for worker in step.joined(number - 1)}
    for member in sorted(set(members) - joined.keys()):
        yield f"worker {member.index} is in round {number} without a join for it"
    placed = step.have_places(step.before)
    for worker in placed[: step.largest(len(placed))]:
        if worker.member not in members:
            yield f"worker {worker.index} has joined, and is not in round {number}"
    if members and members[0] in joined and step.after.store != joined[members[0]].address:
        yield f"the store of round {number} is not rank 0's"


def formed_without_the_lost(step: Step) -> Iterator[str]:
    """No round is formed without a member of the last round that runs and has not left. The round waits until that
    member has joined, even if the size has no place for it, or until its loss is known."""
    before, after = step.before, step.after
    if not newly_formed(before, after):
        return
    present = step.current(after)
    for member in before.participants:
        worker = present.get(member.index)
        if worker is None or worker.member != member or member in after.participants or member.index in after.done:
            continue
        joins = step.sizes and worker in step.joined(before.last_formed)
        if worker.pod is PodState.RUNNING and not worker.asks(RequestType.LEAVE) and not joins:
            yield f"round {after.round} was formed without worker {member.index}, which nobody knows to be lost"


def formed_of_what_was_saved(step: Step) -> Iterator[str]:
    """After a planned end no round of the same stage is formed while rank 0 of the last round, told to leave, still
    runs: it may be saving. One that leaves a ping unacked is not waited for."""
    before, after = step.before, step.after
    if not newly_formed(before, after) or not before.planned or after.stage > before.stage:
        return
    for worker in step.workers:
        runs = worker.pod is PodState.RUNNING and not worker.deleting and not worker.asks(RequestType.LEAVE)
        told = worker.member == before.participants[0] and worker.member in before.leaving
        if runs and told and not step.deserted() and not step.unanswered(worker):
            yield f"round {after.round} was formed while worker {worker.index} may still save"


def formed_between_the_bounds(step: Step) -> Iterator[str]:
    """A round has an allowed size, and `minReplicas` to `replicas` members, both minus the finished workers. No round
    is formed while the job is suspended."""
    size = len(step.after.participants)
    if newly_formed(step.before, step.after) and step.sizes and size not in step.sizes:
        yield f"a round of {size} was formed, which is not allowed"
    if newly_formed(step.before, step.after) and not step.least <= size <= step.room:
        yield f"a round of {size} was formed, and {step.least} to {step.room} may"


def waiting_is_counted(step: Step) -> Iterator[str]:
    """`waiting` counts exactly the workers that have joined, are not members and have a place; `spares` counts those
    without a place."""
    after = step.after
    members = after.participants if after.phase is FORMED else ()
    closed = after.phase is CLOSED
    joined = 0 if closed else sum(worker.member not in members for worker in step.joined(after.last_formed))
    waiting = 0 if closed else sum(worker.member not in members for worker in step.have_places(after))
    spares = joined - waiting
    if (after.waiting, after.spares) != (waiting, spares):
        yield f"waiting and spares are {after.waiting} and {after.spares}, and {waiting} and {spares} wait"


def rounds_end_for_a_cause(step: Step) -> Iterator[str]:
    """A formed round ends at once when a member is lost, leaves, has another id, joins again or hangs. Otherwise it
    ends when the next stage begins, at once when a restart is requested, or when newcomers have joined that have a
    place in a larger round or take the place of a member on a draining node. Once a member has finished,
    neither a restart nor newcomers end it."""
    before, after = step.before, step.after
    if before.phase is not FORMED or (after.phase is CLOSED and after.round == before.round):
        return
    broken, ended = step.breaks, after.round > before.round
    finished = any(member.index in after.done for member in before.participants)
    restarts = not finished and step.spec.restarted_at not in ("", before.restarted_at)
    if broken and not ended:
        yield f"round {before.round} stands, and a member no longer trains in it"
    if restarts and not ended:
        yield f"round {before.round} stands, and a restart is asked for"
    if broken or restarts or not ended or after.stage > before.stage:
        return
    newcomers = [worker for worker in step.have_places(before) if worker.member not in before.participants]
    size = len(before.participants) + len(newcomers)
    grows = size > step.spec.replicas or step.largest(size) > len(before.participants)
    if all(event.reason != ROUND_REOPENED for event in step.decision.events) or not (newcomers and grows):
        yield f"round {before.round} was ended without a cause"
    if finished:
        yield f"round {before.round} was reopened, and a member had finished"


def plans_hold_while_all_live(step: Step) -> Iterator[str]:
    """A round is intact after its end exactly if newcomers, workers told to leave and restarts are the only causes of
    the end, and only until a member stops without having been told to, or falls silent. Its end is also planned, unless
    the training lives through it in a member that stays."""
    before, after = step.before, step.after
    if after.phase is not FORMING:
        return
    by_plan, saves = before.intact, before.planned
    if before.phase is FORMED:
        stay = {member for member in before.participants if member.index not in after.done} - set(after.leaving)
        goes_on = stay and len(after.live) == len(before.participants) and after.restart_round < after.round
        by_plan, saves = step.breaks.keys() <= set(after.leaving), not goes_on
    by_plan = by_plan and after.stage == before.stage
    lost = step.deserted()
    if after.intact and not by_plan:
        yield f"the end of round {after.round - 1} is called planned, and was not"
    elif after.intact and lost:
        yield f"the end of round {after.round - 1} is called planned, and a member has stopped untold"
    elif by_plan and not (after.intact or lost or _leaver_is_silent(step)):
        yield f"the end of round {after.round - 1} was planned, and nobody is lost, and it is called so no more"
    elif after.planned != (after.intact and saves):
        yield f"scripts {'may' if after.planned else 'may not'} save at the end of round {after.round - 1}"


def _leaver_is_silent(step: Step) -> bool:
    """Whether a member that was told to leave leaves a ping unanswered, which others that live through the change
    wait for."""
    return any(is_awaited_leaver(step.before, one) and step.unanswered(one) for one in step.workers)


def failures_are_the_trainings(step: Step) -> Iterator[str]:
    """A failure waits, and is counted when the next round is to be formed, exactly if the training itself broke the
    last round, no member was lost for another cause, and the job's policy does not ignore it. A failure beyond
    `maxRestarts` stops waiting once all members have joined again."""
    before, after = step.before, step.after
    judged = newly_formed(before, after) or step.failures > 0
    if after.phase is FORMING and after.failure and not step.pending:
        yield f"a failure waits, and round {after.round - 1} had none, or it is explained"
    if after.phase is FORMING and not after.failure and step.pending:
        yield f"a failure of round {after.round - 1} was dropped, and nothing explains it"
    counts = step.pending and not _says(step.ruling, PolicyAction.IGNORE)
    if judged and step.failures != counts:
        yield f"counted {step.failures} failures, and {int(counts)} waited"
    waits = after.phase is FORMING and bool(after.failure) and counts and not step.suspended
    waits = waits and before.restarts >= step.spec.max_restarts
    joined = {worker.member for worker in step.joined(after.round - 1)}
    if waits and all(member in joined or member.index in after.done for member in before.participants):
        yield f"the failure is one too many, and the job waits, though all of round {after.round - 1} are there"
    if step.failures > 0 and after.restarts > step.spec.max_restarts and after.outcome is not Outcome.FAILED:
        yield f"failure {after.restarts} was survived, and maxRestarts is {step.spec.max_restarts}"


def the_first_rule_decides(step: Step) -> Iterator[str]:
    """The rule that is noted for a failure is the lowest rule of the job's policy that matches a member that has
    stopped. With `FailJob` no further round is formed, and the job does not wait any longer once all members have
    joined again, left or are lost."""
    before, after, ruling = step.before, step.after, step.ruling if step.pending else None
    if after.phase is FORMING and (after.matched and after.matched.rule) != (ruling and ruling.rule):
        yield f"rule {after.matched and after.matched.rule} is noted, and {ruling and ruling.rule} matches"
    ends = _says(ruling, PolicyAction.FAIL_JOB)
    if ends and newly_formed(before, after):
        yield f"round {after.round} was formed after a failure that ends the job"
    if ends and after.phase is FORMING and not (step.suspended or step.awaited()):
        yield "a failure that ends the job waits, and nothing can explain it any more"


def _says(matched: Matched | None, action: PolicyAction) -> bool:
    return matched is not None and matched.action is action


def replaced_for_a_cause(step: Step) -> Iterator[str]:
    """A pod is replaced when it is gone or being deleted, has ended without having finished, crashed as a member, did
    not serve its store, has no room, is outdated, has kept an invalid record, did not join again as a member though its
    sidecar lived, or has left a ping unacked that another worker acked or that went to no other worker. It is never
    replaced for a silence of all workers."""
    before, after, present = step.before, step.after, step.current(step.before)
    for index, number in after.replacements.items():
        if number <= before.replacements.get(index, 0):
            continue
        worker = present.get(index)
        if worker is None:
            seen = before.phase is FORMED and any(member.index == index for member in before.participants)
        else:
            told = worker.id is None or worker.member in after.leaving
            lost = step.at_fault(worker) or step.unanswered(worker) or step.invalid(worker) or step.hangs(worker)
            seen = lost or (told and (worker.outdated or _has_no_room(step, worker)))
        if not seen:
            yield f"worker {index} was replaced without a cause"
    # before anybody was looked at; who had succeeded in the stage before is so in the next step
    ended = before.ended or any(map(step.stray, present.values())) or after.stage > before.stage
    for worker in step.current(after).values():
        if step.at_fault(worker) and worker.index not in after.done and not ended:
            yield f"worker {worker.index} is lost, and was not given up"


def _has_no_room(step: Step, worker: Worker) -> bool:
    """One whose node is draining is no spare; as a member it has no room either once the round has ended and others
    have all places, or those of a round that is as large without it as somebody has come."""
    kept, members = step.kept, _members(step)
    if not step.keeps_its_place(step.before, worker):
        return len(kept) >= (step.room if worker.draining else step.room_with_spares)
    come = [one for one in step.next_members() if not one.draining] if worker.draining else []
    others = len({one.pod_key for one in (*members, *come)})
    newcomers = any(one.member not in step.before.participants for one in come)
    return others >= step.room or (newcomers and step.largest(others + 1) <= others)


def _members(step: Step) -> list[Worker]:
    """The kept ones that have the first right to a place."""
    return [worker for worker in step.kept if step.keeps_its_place(step.before, worker)]


def room_is_kept(step: Step) -> Iterator[str]:
    """A worker is told to leave, for good, if it has no place and is not a spare, or if it is outdated. Members of the
    last round have the first right to places. They leave from the highest rank down, those on nodes that are about to
    go before the others. No member becomes a spare, and no spare leaves before a member."""
    before, after, kept = step.before, step.after, step.kept
    if after.phase is CLOSED:
        return
    if len(kept) > step.room_with_spares:
        yield f"{len(kept)} workers are kept, and there is room for {step.room_with_spares}"
    for worker in kept:
        if worker.outdated:
            yield f"worker {worker.index} is outdated, and was kept"
    ranks: dict[Member | None, int] = {member: rank for rank, member in enumerate(before.participants)}
    stay = [(worker.draining, ranks[worker.member]) for worker in _members(step)]
    if len(stay) > step.room:
        yield f"{len(stay)} members of the last round are kept, and there is room for {step.room}"
    new = set(after.leaving) - set(before.leaving)
    told = [worker for worker in step.workers if worker.member in new and not worker.outdated]
    members = [(one.draining, ranks[one.member]) for one in told if step.keeps_its_place(before, one)]
    if members and stay and max(stay) > min(members):
        yield "a worker was told to leave, and a higher rank was kept"
    present = {worker.member for worker in step.workers}
    for member in before.leaving:
        if member in present and member not in after.leaving:
            yield f"worker {member.index} was told to leave, and no longer is"


def ends_for_a_cause(step: Step) -> Iterator[str]:
    """`Complete` means that all members, or as many workers as are wanted, have finished. The other outcomes are caused
    by what the workers did. `members_ended` becomes true only when each member has finished, is finishing or trains no
    more."""
    outcome, done = step.after.outcome, step.after.done
    if step.after.members_ended > step.before.members_ended:
        trains = [one for one in step.after.participants if one.index not in done and one not in step.breaks]
        if trains:
            yield f"all members have ended, and worker {trains[0].index} trains"
    if outcome is not None and outcome is not step.before.outcome and not any(CAUSES[outcome](step)):
        yield f"{outcome} without a cause"


def _complete(step: Step) -> Iterator[bool]:
    after = step.after
    if after.participants and not step.suspended and not after.finishing:
        yield all(member.index in after.finished_indices for member in after.participants)
        yield step.room == 0 and step.before.phase is not CLOSED


def _closed(step: Step) -> Iterator[bool]:
    yield any(worker.asks(RequestType.CLOSE) for worker in step.current(step.after).values())


def _too_late(step: Step) -> Iterator[bool]:
    """Somebody's pod runs in vain, and no place is held by a pod that may still come to run."""
    kept, joined = step.kept, step.joined(step.after.round - 1)
    away = [worker for worker in kept if worker not in joined]
    runs = [worker for worker in away if worker.pod is PodState.RUNNING]
    nowhere = [worker for worker in away if worker.pod is PodState.UNSCHEDULABLE]
    unmade = max(0, step.room_with_spares - len(kept))
    filled = len(joined) + len(runs) + len(nowhere) + unmade >= step.room
    yield bool(runs) and filled and len(step.have_places(step.before)) < step.least


def _failed(step: Step) -> Iterator[bool]:
    before, after, spec = step.before, step.after, step.spec
    yield after.cause == RoundCause.DEADLINE_EXCEEDED and spec.deadline is not None and not step.suspended
    yield step.failures > 0 and after.restarts > spec.max_restarts
    yield not after.participants and (bool(after.done) or any(map(step.stray, step.current(after).values())))
    if before.phase is CLOSED:
        training = [member for member in after.participants if member.index not in after.done]
        yield 0 < len(training) == len(step.breaks)
    elif before.phase is FORMING:
        yield from _closed(step)
    yield step.pending and _says(step.ruling, PolicyAction.FAIL_JOB) and not step.awaited()
    yield any(_says(matched, PolicyAction.FAIL_JOB) for matched in step.failed_alone())
    joined = len(step.joined(after.round - 1))
    failing = {
        one.index
        for one in step.kept
        if one.pod is PodState.CRASH_LOOP
        and one.crashes > spec.max_crashes
        and not _says(one.matched, PolicyAction.IGNORE)
    }
    failing |= {index for index, known in after.clocks.failures.items() if known.before_any_round > spec.max_restarts}
    yield joined < step.least and bool(failing) and step.room_with_spares - len(failing) < step.least
    for member, worker in between_stages(step).items():
        crashes, since = after.clocks.finishing[member]
        known = before.clocks.finishing.get(member)
        yield worker.crashes - crashes > spec.max_restarts
        yield known is not None and since is not None and known.since == since
    scripts = {one.request.script for one in step.have_places(before) if one.request and one.request.script}
    yield before.phase is FORMING and len({*scripts, *filter(None, after.scripts[-1:])}) > 1


CAUSES = {
    Outcome.COMPLETE: _complete,
    Outcome.FAILED: _failed,
    Outcome.TIMEOUT: _too_late,
    Outcome.CLOSED: _closed,
}
STEP = (
    moves_are_in_the_table,
    formed_of_who_joined,
    formed_without_the_lost,
    formed_of_what_was_saved,
    formed_between_the_bounds,
    neighbours_are_near,
    waiting_is_counted,
    rounds_end_for_a_cause,
    plans_hold_while_all_live,
    failures_are_the_trainings,
    the_first_rule_decides,
    finished_in_success,
    stages_follow_each_other,
    replaced_for_a_cause,
    only_suspects_are_pinged,
    ack_limit_begins_with_an_ack,
    room_is_kept,
    ends_for_a_cause,
    live_members_are_known,
    nobody_waits_where_all_live,
    no_training_is_left_behind,
    newcomers_of_live_jobs_are_let_in,
    new_processes_where_they_are_needed,
)
