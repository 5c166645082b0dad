# SPDX-License-Identifier: Apache-2.0
"""`decide`: one step of the rendezvous. Every change of the agreed state is made here or in `endings` (the end of the
job), `detector_rules` (the failure detector), `budget` (what failures cost) and `policy` (the job's failure policy).

The rules are functions, applied in the order of `RULES`. The first paragraph of a rule's docstring says what it does,
and `make docs` copies it into docs/protocol.md. The phase changes only by the moves of `transitions`.

Rules never read a clock: `now` is an argument, in seconds, and is compared only with earlier values of itself.
"""

from collections.abc import Callable, Iterable

from elasticjob.rendezvous import barrier, budget, detector_rules, endings, policy, stages
from elasticjob.rendezvous.accounts import better_account
from elasticjob.rendezvous.decision import Decision, Failed
from elasticjob.rendezvous.failure_detector import unacked_for
from elasticjob.rendezvous.limits import last_call
from elasticjob.rendezvous.live import lives_on, opted_in
from elasticjob.rendezvous.losses import breaks, explained, lost_workers, stopped_unnotified
from elasticjob.rendezvous.model import Spec, State, Worker
from elasticjob.rendezvous.reasons import of_ranks, why_reopened, why_restarted, why_told
from elasticjob.rendezvous.roster import (
    STUCK,
    Roster,
    is_current,
    is_unknown,
    lacks_last_word,
    roster_of,
)
from elasticjob.rendezvous.sizes import largest_size
from elasticjob.rendezvous.step import NO_FAILURE, NO_PLAN, Step
from elasticjob.rendezvous.transitions import ROUND_BROKEN, ROUND_FORMED, ROUND_REOPENED, moved
from elasticjob.rendezvous.words import workers as counted
from elasticjob.terms import Outcome, RendezvousPhase, RoundCause

FORMING, FORMED, _ = RendezvousPhase


def decide(spec: Spec, state: State, workers: Iterable[Worker], now: float) -> Decision:
    """The next state of a job's rendezvous, from its workers as they are known at `now` (seconds)."""
    step = Step(spec, state, tuple(workers), now)
    for rule in RULES:
        if step.state.ended:
            break
        rule(step)
    step.count_waiting()
    return step.decision()


def note_invalid(step: Step) -> None:
    """A contradiction is ignored, and may be corrected for 15 s or for `workerLostSeconds` if that is longer: an
    invalid record, a pod that the operator did not make, exit code 0 of an unfinished worker (rules 5, 9 and 13)."""
    state, known, found = step.state, step.state.clocks.invalid, {}
    for worker in step.workers:
        if worker.deleting or worker.index in state.done or not _makes_no_sense(state, worker):
            continue
        found[worker.pod_key] = known.get(worker.pod_key, step.now)
        if worker.pod_key in known:
            continue
        if is_unknown(state, worker):
            message = (
                f"pod {worker.replacement} of worker {worker.index} was not made by the operator: it will be deleted"
            )
            step.announce("UnknownPod", message, warning=True, worker=worker.index)
        elif worker.invalid:
            message = f"worker {worker.index}'s ElasticWorker: {worker.invalid}"
            step.announce("InvalidRecord", message, warning=True, worker=worker.index)
    step.clock(invalid=found)


def _makes_no_sense(state: State, worker: Worker) -> bool:
    if not is_current(state, worker):
        return is_unknown(state, worker)
    return worker.invalid != "" or lacks_last_word(state, worker)


def replace_lost(step: Step) -> None:
    """A worker is lost when it is gone, being deleted, failed, hung, invalid for too long, or leaves a ping unacked
    that another acks. Its pod is replaced for good (rule 5)."""
    for lost in lost_workers(step.spec, step.state, step.workers, step.now):
        step.replace_lost(lost)


def send_away_surplus(step: Step) -> None:
    """A worker without a place that is no spare is told to leave, for good; so is an outdated one (rules 8 and 12).

    A worker wanted later gets a new pod, with a growing delay while its pods come to draining nodes (rule 16).
    """
    _send_away(step, step.roster)


def _send_away(step: Step, roster: Roster) -> None:
    for worker in roster.surplus:
        step.replace_pod(worker.index, worker.replacement)
        is_put_off = worker.draining and not worker.outdated and worker.member not in step.state.participants
        if is_put_off and worker.index in (*roster.missing, *roster.missing_spares):
            step.put_off(worker.index, "it came to a draining node", was_member=False, ignored=True)
        if worker.member is not None:
            step.set(leaving=(*step.state.leaving, worker.member))
    present = {worker.member for worker in step.workers}
    leaving = tuple(member for member in step.state.leaving if member in present)
    since = step.state.clocks.leaving
    step.set(leaving=leaving)
    step.clock(leaving={member: since.get(member, step.now) for member in leaving})


def note_live(step: Step) -> None:
    """A member lives through changes once all its training processes have opted in, in the round that stands or in the
    join by which it came into it (rule 24)."""
    if step.state.phase is FORMED:
        step.set(live=opted_in(step.state, step.current))


def break_round(step: Step) -> None:
    """A formed round is broken when a member is lost, leaves or joins again, or when its training hangs (rules 5, 10
    and 15).

    A failure of the training is only noted, one per round: its cause may not be known yet. Members whose replacements
    have joined are told to leave first (rule 16).
    """
    if step.state.phase is not FORMED or not breaks(step.state, step.workers, step.lost):
        return
    _send_away(step, roster_of(step.spec, moved(step.state, ROUND_BROKEN), step.workers))
    broken = breaks(step.state, step.workers, step.lost)
    broken.sort(key=lambda one: one.member in step.state.leaving)
    # what explains a failure is itself a break, and does not count
    innocent = explained(step.state, step.workers, step.lost)
    wanted = [one for one in broken if one.counted is not innocent] or broken
    first = wanted[0] if innocent else min(wanted, key=lambda one: (one.member in step.state.leaving, one.kind.place))
    told = all(one.member in step.state.leaving for one in broken)
    cause, reason = why_told(step.spec, step.state, step.workers, first) if told else (first.cause, first.why)
    step.open_round(ROUND_BROKEN, cause, reason, warning=first.counted)
    if any(one.cause == RoundCause.TRAINING_HUNG for one in broken):
        step.set(restart_round=step.state.round)
    step.note_end(first)
    step.plan(told)


def explain_failure(step: Step) -> None:
    """While a round forms, a failure is explained by the loss of a member for a cause outside the training, or by a
    network that cuts a member off from rank 0 (rule 10)."""
    state = step.state
    if not state.failure:
        return
    if explained(state, step.workers, step.lost):
        step.set(**NO_FAILURE, replaced=())
        return
    present = {worker.member for worker in step.current.values()}
    away = (member for member in state.participants if member not in present and member.index not in state.done)
    step.set(replaced=tuple(away))


def name_cause(step: Step) -> None:
    """While a failure waits for judgement, it is named after the member with the most telling account of it; a member
    that only lost a connection comes last (rule 10)."""
    state = step.state
    if not state.failure or state.cause == RoundCause.TRAINING_HUNG:
        return
    if (account := better_account(state, step.workers, step.lost)) is None:
        return
    if state.reason == state.failure:
        step.set(reason=account.why, cause=account.cause)
    step.set(failure=account.why, failure_of=account.worker, failure_kind=account.kind)
    if account.worker != state.failure_of:
        step.failed.append(Failed((account.worker, state.replacements.get(account.worker, 0)), judged=False))


def reopen_round(step: Step) -> None:
    """A formed round is reopened for newcomers, once for all that are on their way together, and at once where all
    members and newcomers live through changes, or for a restart that a user asks for (rule 3)."""
    state, now = step.state, step.now
    if state.phase is not FORMED:
        return
    roster = step.roster
    newcomers = [worker for worker in roster.joined if worker.member not in state.participants]
    replaced = _would_take_over(step) if newcomers and any(one.draining for one in step.workers) else ()
    grows = replaced or _would_grow(step, newcomers)
    restarts = step.spec.restarted_at not in ("", state.restarted_at)
    about_to_end = not state.done.isdisjoint(member.index for member in state.participants)
    if about_to_end or not (grows or restarts):
        step.clock(newcomer=None)
        return
    since = now if state.clocks.newcomer is None else state.clocks.newcomer
    step.clock(newcomer=since)
    coming = [worker for worker in roster.awaited if worker.member not in state.participants]
    arrived = not roster.missing and all(worker.pod in STUCK for worker in coming)
    at_once = restarts or arrived or (state.all_live and all(map(lives_on, newcomers)))
    if not at_once and now - since < last_call(step.spec, newcomers):
        return
    why = why_restarted(step.spec) if restarts else why_reopened(step.spec, state, newcomers, replaced)
    step.open_round(ROUND_REOPENED, *why)
    if restarts:
        step.set(restart_round=step.state.round)
    _send_away(step, _reopened(step, step.state))  # members that make room learn at once that they are to leave
    step.plan(True)


def _would_take_over(step: Step) -> tuple[Worker, ...]:
    """The members that others would take over from in the next round."""
    after = _reopened(step, moved(step.state, ROUND_REOPENED))
    return tuple(worker for worker in after.surplus if worker.member in step.state.participants)


def _reopened(step: Step, state: State) -> Roster:
    """The roster of the next round, without waiting for more newcomers."""
    return roster_of(step.spec, state, step.workers, others_come=False)


def _would_grow(step: Step, newcomers: list[Worker]) -> bool:
    members = len(step.state.participants)
    return largest_size(step.spec, step.state, members + len(newcomers)) > members


def hurry_after_loss(step: Step) -> None:
    """A planned end is planned no longer, and its round no longer intact, when a member stops without notice or a ping
    is left unacked: the others would wait for that member (rules 7 and 24)."""
    if step.state.intact and (
        stopped_unnotified(step.state, step.workers)
        or any(unacked_for(step.spec, step.state, one, step.now) is not None for one in step.able.values())
    ):
        step.set(**NO_PLAN)


def form_round(step: Step) -> None:
    """A forming round is formed, or fails when its time is over; a waiting failure is counted first (rules 2 and
    10)."""
    if step.state.phase is not FORMING:
        return
    if step.spec.suspend:  # a suspended job waits for nobody, so its clocks stand still
        step.clock(opened=step.now, min_reached=None, all_running=None, all_spoke=None)
        return
    verdict = barrier.judge(step.spec, step.state, step.roster, step.workers, step.now)
    step.clock(min_reached=verdict.min_reached, all_running=verdict.all_running, all_spoke=verdict.all_spoke)
    if verdict.failure is not None:
        step.close(*verdict.failure)
    elif verdict.members and (differ := stages.differ(step.state, verdict.members)):
        step.close(Outcome.FAILED, differ)
    elif verdict.members and budget.is_within_budget(step):
        _form(step, verdict.members)


def _form(step: Step, members: tuple[Worker, ...]) -> None:
    """Form the round; ranks are positions in `members`."""
    state = step.state
    participants = tuple(worker.member for worker in members if worker.member)
    begins = {"": (RoundCause.FIRST_FORMATION, "first formation"), "suspended": (RoundCause.RESUMED, "resumed")}
    cause, reason = begins.get(state.reason, (state.cause or RoundCause.OTHER, state.reason))
    reason += of_ranks(step.spec, state, members)
    step.formed_after = step.now - state.clocks.opened
    message = f"round {state.round} formed with {counted(len(members))} in {step.formed_after:.1f} s: {reason}"
    step.move(ROUND_FORMED, cause, reason, message)
    live = tuple(sorted(worker.index for worker in members if lives_on(worker)))
    step.set(participants=participants, replicas=step.spec.replicas, store=members[0].address, live=live)
    if all(member not in participants or member.index not in live for member in state.participants):
        step.set(restarted_at=step.spec.restarted_at or state.restarted_at)  # else another round follows for it
    step.set(scripts=stages.with_script(state, members))
    step.clock(formed=step.now, newcomer=None)


RULES: tuple[Callable[[Step], None], ...] = (
    endings.note_finished,
    endings.refuse_strays,
    detector_rules.note_heartbeats,
    detector_rules.note_acks,
    note_invalid,
    replace_lost,
    endings.fail_unfinished,
    endings.end_stage,
    endings.fail_overdue,
    send_away_surplus,
    endings.close_on_request,
    note_live,
    break_round,
    explain_failure,
    name_cause,
    policy.note_matched,
    policy.fail_by_policy,
    reopen_round,
    hurry_after_loss,
    budget.end_beyond_budget,
    form_round,
    detector_rules.ping_suspected,
    budget.reset_restarts,
    budget.forgive_failures,
)
