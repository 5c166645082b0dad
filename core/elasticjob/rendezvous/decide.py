# SPDX-License-Identifier: Apache-2.0
"""`decide`: one step of the rendezvous. Everything that changes the agreed state is in this module, but for how workers
end the job, in `endings`, and what the job's policy for failures says, in `policy`.

The rules are functions, applied in the order of `RULES`; the first line of each says what it does, and `make docs`
copies it into docs/protocol.md. The phase changes only by the moves of `transitions`.

The workers are read, never the clock: `now` is an argument, in seconds, and only ever compared with itself.
"""

from collections.abc import Callable, Iterable

from elasticjob.rendezvous import barrier, challenges, endings, policy, stages
from elasticjob.rendezvous.accounts import better_account, is_of, kind_of
from elasticjob.rendezvous.backoff import LONGEST_SECONDS, forgotten
from elasticjob.rendezvous.limits import last_call
from elasticjob.rendezvous.losses import breaks, explained, lost_workers, may_be_explained, stopped_untold
from elasticjob.rendezvous.model import Beat, Decision, Failed, Spec, State, Worker
from elasticjob.rendezvous.reasons import of_ranks, why_reopened, why_restarted, why_told
from elasticjob.rendezvous.roster import (
    STUCK,
    Roster,
    has_joined,
    is_current,
    is_unknown,
    lacks_last_word,
    roster_of,
)
from elasticjob.rendezvous.sizes import largest_size
from elasticjob.rendezvous.step import Step
from elasticjob.rendezvous.transitions import ROUND_BROKEN, ROUND_FORMED, ROUND_REOPENED, moved
from elasticjob.rendezvous.words import workers as counted
from elasticjob.terms import Outcome, RendezvousPhase, RoundCause

FORMING, FORMED, _ = RendezvousPhase


def decide(spec: Spec, state: State, workers: Iterable[Worker], now: float) -> Decision:
    """The next state of a job's rendezvous, from what is known of its workers at `now` (seconds)."""
    step = Step(spec, state, tuple(workers), now)
    for rule in RULES:
        if step.state.ended:
            break
        rule(step)
    step.count_waiting()
    return step.decision()


def note_heartbeats(step: Step) -> None:
    """A heartbeat is noted when this operator sees it change: long silence is a reason to doubt (rules 5 and 11).

    One that has not come yet counts from when the record was seen: a worker may fall silent before its first.
    """
    known, beats = step.state.clocks.beats, {}
    for member, worker in step.able.items():
        last = known.get(member)
        beats[member] = last if last and last.value == worker.heartbeat else Beat(worker.heartbeat, step.now)
    step.clock(beats=beats)


def note_answers(step: Step) -> None:
    """The first answer to a challenge starts the clock of all others that it asks (rules 5 and 11)."""
    step.clock(asked=challenges.noted(step.state, step.able, step.now))


def note_invalid(step: Step) -> None:
    """What makes no sense counts for nothing, and may be mended for 15 s or `workerLostSeconds`, which is more: an
    invalid record, a pod that nobody has made, exit code 0 of a worker that has not finished (rules 5, 9 and 13)."""
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
            step.announce("UnknownPod", message, warning=True)
        elif worker.invalid:
            step.announce("InvalidRecord", f"worker {worker.index}'s ElasticWorker: {worker.invalid}", warning=True)
    step.clock(invalid=found)


def _makes_no_sense(state: State, worker: Worker) -> bool:
    if not is_current(state, worker):
        return is_unknown(state, worker)
    return worker.invalid != "" or lacks_last_word(state, worker)


def give_up_lost(step: Step) -> None:
    """A worker that is gone, going, failed, hung or long invalid, or that does not answer while another does, is lost:
    its pod is given up, for good (rule 5)."""
    for lost in lost_workers(step.spec, step.state, step.workers, step.now):
        step.give_up_lost(lost)


def send_away_excess(step: Step) -> None:
    """A worker that finds no place and is no spare, or is outdated, is told to leave, for good (rules 8 and 12).

    What is wanted later gets a new pod, but not over and over where each comes to a node that is about to go (rule 16).
    """
    _send_away(step, step.roster)


def _send_away(step: Step, roster: Roster) -> None:
    for worker in roster.excess:
        step.give_up(worker.index, worker.replacement)
        is_put_off = worker.draining and not worker.outdated and worker.member not in step.state.participants
        if is_put_off and worker.index in (*roster.owed, *roster.owed_spares):
            step.put_off(worker.index, "it came to a node that is about to go", was_member=False, ignored=True)
        if worker.member is not None:
            step.set(leaving=(*step.state.leaving, worker.member))
    present = {worker.member for worker in step.workers}
    leaving = tuple(member for member in step.state.leaving if member in present)
    since = step.state.clocks.leaving
    step.set(leaving=leaving)
    step.clock(leaving={member: since.get(member, step.now) for member in leaving})


def break_round(step: Step) -> None:
    """A formed round is broken by the loss, the leave or the return of a member, or as its training hangs (rules 5, 10
    and 15).

    A failure of the training is only noted, one a round: what else happened is not known yet. Members in whose places
    others have joined are told to leave before (rule 16).
    """
    if step.state.phase is not FORMED or not breaks(step.state, step.workers, step.lost):
        return
    _send_away(step, roster_of(step.spec, moved(step.state, ROUND_BROKEN), step.workers))
    broken = breaks(step.state, step.workers, step.lost)
    broken.sort(key=lambda one: one.member in step.state.leaving)
    # what explains a failure is itself a break that does not count
    innocent = explained(step.state, step.workers, step.lost)
    wanted = [one for one in broken if one.counted is not innocent] or broken
    first = wanted[0] if innocent else min(wanted, key=lambda one: (one.member in step.state.leaving, kind_of(one.why)))
    told = all(one.member in step.state.leaving for one in broken)
    cause, reason = why_told(step.spec, step.state, step.workers, first) if told else (first.cause, first.why)
    step.open_round(ROUND_BROKEN, cause, reason, warning=first.counted)
    step.note_end(first, planned=told)


def explain_failure(step: Step) -> None:
    """While a round forms, the loss of a member that is not the training's own fault explains a failure, and so does
    a network that keeps one from rank 0 (rule 10)."""
    state = step.state
    if not state.failure:
        return
    if explained(state, step.workers, step.lost):
        step.set(failure="", given_up=())
        return
    present = {worker.member for worker in step.current.values()}
    away = (member for member in state.participants if member not in present and member.index not in state.done)
    step.set(given_up=tuple(away))


def name_cause(step: Step) -> None:
    """While a failure waits, it is named after the member that says most of why it failed; who only saw a connection
    break comes last (rule 10)."""
    state = step.state
    if not state.failure or state.cause == RoundCause.TRAINING_HUNG:
        return
    if (account := better_account(state, step.workers, step.lost)) is None:
        return
    if state.reason == state.failure:
        step.set(reason=account.why, cause=account.cause)
    step.set(failure=account.why)
    if not is_of(account.worker, state.failure):
        step.failed.append(Failed((account.worker, state.replacements.get(account.worker, 0)), judged=False))


def reopen_round(step: Step) -> None:
    """A formed round is reopened for newcomers, once for those on their way together, and at once where a restart is
    asked for (rule 3)."""
    state, now = step.state, step.now
    if state.phase is not FORMED:
        return
    roster = step.roster
    newcomers = [worker for worker in roster.joined if worker.member not in state.participants]
    relieved = _would_relieve(step) if newcomers and any(one.draining for one in step.workers) else ()
    grows = relieved or _would_grow(step, newcomers)
    restarts = step.spec.restarted_at not in ("", state.restarted_at)
    about_to_end = not state.done.isdisjoint(member.index for member in state.participants)
    if about_to_end or not (grows or restarts):
        step.clock(newcomer=None)
        return
    since = now if state.clocks.newcomer is None else state.clocks.newcomer
    step.clock(newcomer=since)
    coming = [worker for worker in roster.missing if worker.member not in state.participants]
    arrived = not roster.owed and all(worker.pod in STUCK for worker in coming)
    if not (restarts or arrived) and now - since < last_call(step.spec, newcomers):
        return
    why = why_restarted(step.spec) if restarts else why_reopened(step.spec, state, newcomers, relieved)
    step.open_round(ROUND_REOPENED, *why)
    step.set(planned=True)
    _send_away(step, _reopened(step, step.state))  # who makes room learns at once that it is to leave


def _would_relieve(step: Step) -> tuple[Worker, ...]:
    """The members in whose places others would come in the next round."""
    after = _reopened(step, moved(step.state, ROUND_REOPENED))
    return tuple(worker for worker in after.excess if worker.member in step.state.participants)


def _reopened(step: Step, state: State) -> Roster:
    """That of the next round, whose newcomers have been waited for."""
    return roster_of(step.spec, state, step.workers, others_come=False)


def _would_grow(step: Step, newcomers: list[Worker]) -> bool:
    members = len(step.state.participants)
    return largest_size(step.spec, step.state, members + len(newcomers)) > members


def hurry_after_loss(step: Step) -> None:
    """A planned end is planned no more when a member stops untold: the others would wait for it (rule 7)."""
    if step.state.planned and stopped_untold(step.state, step.workers):
        step.set(planned=False)


def end_beyond_budget(step: Step) -> None:
    """A failure that is one too many ends the job as soon as no loss can explain it any more, be there a round to form
    or not (rule 10)."""
    state, spec = step.state, step.spec
    if state.phase is not FORMING or spec.suspend or not state.failure or state.restarts < spec.max_restarts:
        return
    if not policy.ignores(state) and not may_be_explained(spec, state, step.workers, step.now):
        _within_budget(step)


def form_round(step: Step) -> None:
    """A forming round is formed, or has failed to form in time; a failure is counted first (rules 2 and 10)."""
    if step.state.phase is not FORMING:
        return
    if step.spec.suspend:  # it waits for nobody, so its clocks stand still
        step.clock(opened=step.now, min_reached=None, all_running=None, all_spoke=None)
        return
    verdict = barrier.judge(step.spec, step.state, step.roster, step.workers, step.now)
    step.clock(min_reached=verdict.min_reached, all_running=verdict.all_running, all_spoke=verdict.all_spoke)
    if verdict.failure is not None:
        step.close(*verdict.failure)
    elif verdict.members and (differ := stages.differ(step.state, verdict.members)):
        step.close(Outcome.FAILED, differ)
    elif verdict.members and _within_budget(step):
        _form(step, verdict.members)


def _within_budget(step: Step) -> bool:
    """Counts a failure that nothing has explained; False when it is one too many and has ended the job."""
    failure, restarts = step.state.failure, step.state.restarts + 1
    if not failure or policy.is_ignored(step):
        return True
    step.set(restarts=restarts)
    if restarts <= step.spec.max_restarts:
        return True
    step.close(Outcome.FAILED, f"{failure}: failure {restarts}, and maxRestarts is {step.spec.max_restarts}")
    return False


def _form(step: Step, members: tuple[Worker, ...]) -> None:
    """Ranks are positions in this order."""
    state = step.state
    participants = tuple(worker.member for worker in members if worker.member)
    begins = {"": (RoundCause.FIRST_FORMATION, "first formation"), "suspended": (RoundCause.RESUMED, "resumed")}
    cause, reason = begins.get(state.reason, (state.cause or RoundCause.OTHER, state.reason))
    reason += of_ranks(step.spec, state, members)
    step.formed_after = step.now - state.clocks.opened
    message = f"round {state.round} formed with {counted(len(members))} in {step.formed_after:.1f} s: {reason}"
    step.move(ROUND_FORMED, cause, reason, message)
    step.set(participants=participants, replicas=step.spec.replicas, store=members[0].address)
    step.set(restarted_at=step.spec.restarted_at or state.restarted_at)
    step.set(scripts=stages.with_script(state, members))
    step.clock(formed=step.now, newcomer=None)


def reset_restarts(step: Step) -> None:
    """A round that stands long enough sets the count of failures to zero (rule 10)."""
    held = step.now - step.state.clocks.formed
    if step.state.phase is FORMED and step.state.restarts and held >= step.spec.restart_reset:
        step.set(restarts=0)


def forgive_failures(step: Step) -> None:
    """A pod that stands in a round for as long as the longest delay, or waits that long as a spare, clears its index of
    failures (rule 5)."""
    state, clocks = step.state, step.state.clocks
    if not clocks.failures:
        return
    stands = state.phase is FORMED and step.now - clocks.formed >= LONGEST_SECONDS
    members = {member.index for member in state.participants} if stands else set()
    spares = {worker.index for worker in step.roster.spares if has_joined(state, worker)}
    step.clock(
        failures={
            index: known
            for index, known in clocks.failures.items()
            if index not in members and not (index in spares and step.now >= forgotten(known))
        }
    )


def challenge_doubted(step: Step) -> None:
    """Who is doubted is asked to show that it lives, and with it others that are not doubted (rule 5)."""
    state, now = step.state, step.now
    present = step.able
    suspects = challenges.doubted(step.spec, state, present, now)
    questions = challenges.kept(state, present, suspects)
    challenge = challenges.to_ask(state, present, suspects, questions, now)
    if challenge is not None:
        questions = challenges.asked_by(state, present, challenge, questions, now)
        step.set(challenge=state.challenge + 1, challenged=challenge.members)
    step.clock(asked=questions)


RULES: tuple[Callable[[Step], None], ...] = (
    endings.note_finished,
    endings.refuse_strays,
    note_heartbeats,
    note_answers,
    note_invalid,
    give_up_lost,
    endings.fail_unfinished,
    endings.end_stage,
    endings.fail_overdue,
    send_away_excess,
    endings.close_on_request,
    break_round,
    explain_failure,
    name_cause,
    policy.note_matched,
    policy.fail_by_policy,
    reopen_round,
    hurry_after_loss,
    end_beyond_budget,
    form_round,
    challenge_doubted,
    reset_restarts,
    forgive_failures,
)
