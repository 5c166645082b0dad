"""`decide`: one step of the rendezvous. Everything that changes the agreed state is in this module.

The rules are functions, applied in the order of `RULES`; the first line of each says what it does, and `make docs`
copies it into docs/protocol.md. The phase changes only by the moves of `transitions`.

The workers are read, never the clock: `now` is an argument, in seconds, and only ever compared with itself.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from elasticjob.rendezvous import barrier
from elasticjob.rendezvous.limits import last_call, worker_lost
from elasticjob.rendezvous.losses import SHARED_SILENCE, Lost, breaks, explained, lost_workers, stopped_untold
from elasticjob.rendezvous.model import Beat, Decision, Event, PodState, Spec, State, Worker
from elasticjob.rendezvous.roster import STUCK, current, roster_of
from elasticjob.rendezvous.transitions import ROUND_BROKEN, ROUND_FORMED, ROUND_REOPENED, moved
from elasticjob.terms import Outcome, RendezvousPhase, RequestType

FORMING, FORMED, CLOSED = RendezvousPhase
STRAY_SUCCESS = (
    "a worker ended in success without joining the rendezvous: its command must be torchrun, "
    "without --standalone and --rdzv-backend"
)


def decide(spec: Spec, state: State, workers: Iterable[Worker], now: float) -> Decision:
    """The next state of a job's rendezvous, from what is known of its workers at `now` (seconds)."""
    step = _Step(spec, state, tuple(workers), now)
    for rule in RULES:
        if step.state.ended:
            break
        rule(step)
    step.count_waiting()
    return Decision(step.state, step.wake_at(), tuple(step.events), step.formed_after)


class _Step:
    """The working copy of one call of `decide`."""

    def __init__(self, spec: Spec, state: State, workers: tuple[Worker, ...], now: float) -> None:
        self.spec, self.state, self.workers, self.now = spec, state, workers, now
        self.events: list[Event] = []
        self.formed_after: float | None = None
        self.lost: dict[int, Lost] = {}

    @property
    def suspended(self) -> bool:
        """After a `Close` the round trains to its end: there is none that a suspended job could go on with."""
        return self.spec.suspend and self.state.phase is not CLOSED

    def set(self, **changes: Any) -> None:
        self.state = replace(self.state, **changes)

    def clock(self, **changes: Any) -> None:
        self.set(clocks=replace(self.state.clocks, **changes))

    def tell(self, reason: str, message: str, *, warning: bool = False) -> None:
        self.events.append(Event(reason, message, warning))

    def give_up(self, index: int, replacement: int) -> None:
        """The place's next pod gets a new name; of this one nothing counts any more."""
        self.set(replacements={**self.state.replacements, index: replacement + 1})

    def move(self, event: str, reason: str, message: str, *, warning: bool = False) -> None:
        """The one way to another phase; a failure is judged before it."""
        self.state = replace(moved(self.state, event), reason=reason, failure="", given_up=(), planned=False)
        self.tell(event, message, warning=warning)

    def open_round(self, event: str, reason: str, *, warning: bool = False) -> None:
        ended = f"round {self.state.round} of {len(self.state.participants)} ended: {reason}"
        self.move(event, reason, ended, warning=warning)
        self.set(store=None)
        self.clock(opened=self.now, min_reached=None, all_running=None, newcomer=None)

    def close(self, outcome: Outcome, reason: str) -> None:
        self.move(outcome, reason, reason, warning=outcome in (Outcome.FAILED, Outcome.TIMEOUT))

    def count_waiting(self) -> None:
        # none of them is a member: one that joins again has broken the round by now
        self.set(waiting=len(roster_of(self.spec, self.state, self.workers).joined))

    def wake_at(self) -> float | None:
        """The next moment at which time alone can change something."""
        if self.state.ended:
            return None
        clocks, spec = self.state.clocks, self.spec
        moments = [clocks.opened + spec.rejoin, clocks.formed + spec.restart_reset]
        last = last_call(spec, roster_of(spec, self.state, self.workers).joined)
        moments += [since + last for since in (clocks.min_reached, clocks.newcomer) if since is not None]
        moments += [clocks.all_running + spec.join_timeout] if clocks.all_running is not None else []
        limits = {worker.member: worker_lost(spec, worker) for worker in current(self.state, self.workers).values()}
        moments += [beat.since + limits.get(member, spec.worker_lost) for member, beat in clocks.beats.items()]
        moments += [since + spec.worker_lost for since in clocks.invalid.values()]
        moments += [since + spec.rejoin for since in clocks.leaving.values()]
        return min((moment for moment in moments if moment > self.now), default=None)


def note_finished(step: _Step) -> None:
    """A worker that ended in success has finished: it is not lost, awaited or replaced any more (rule 9)."""
    done = step.state.done
    for worker in current(step.state, step.workers).values():
        member = worker.member
        if member is None or member.index in done or worker.deleting or step.suspended:
            continue
        # a pod that succeeded counts too, should its last word have been lost
        if worker.asks(RequestType.FINISH) or worker.pod is PodState.SUCCEEDED:
            step.set(finished=(*step.state.finished, member))
            step.tell("WorkerFinished", f"worker {worker.index} finished")


def note_heartbeats(step: _Step) -> None:
    """A heartbeat is judged by when this operator saw it change, not by another clock (rules 5 and 11).

    One that has not come yet counts from when the record was seen: a worker may fall silent before its first.
    The first one after a silence of all starts every clock anew, or it would make the others look lost.
    """
    known, now, done = step.state.clocks.beats, step.now, step.state.done
    beats = {}
    for worker in current(step.state, step.workers).values():
        member = worker.member
        if member is None or worker.deleting or member.index in done:
            continue
        last = known.get(member)
        beats[member] = last if last is not None and last.value == worker.heartbeat else Beat(worker.heartbeat, now)
    heard_before = max((beat.since for beat in known.values()), default=now)
    if now - heard_before >= SHARED_SILENCE and any(beat.since == now for beat in beats.values()):
        beats = {member: Beat(beat.value, now) for member, beat in beats.items()}
    step.clock(beats=beats)


def note_invalid(step: _Step) -> None:
    """Of a record that makes no sense nothing counts; it may be mended for `workerLostSeconds` (rule 5)."""
    known, done = step.state.clocks.invalid, step.state.done
    found = [worker for worker in current(step.state, step.workers).values() if worker.invalid]
    bad = [worker for worker in found if not worker.deleting and worker.index not in done]
    for worker in bad:
        if worker.place not in known:
            step.tell("InvalidRecord", f"worker {worker.index}'s ElasticWorker: {worker.invalid}", warning=True)
    step.clock(invalid={worker.place: known.get(worker.place, step.now) for worker in bad})


def give_up_lost(step: _Step) -> None:
    """A worker that is gone, going, failed, silent or long invalid is lost: its pod is given up, for good (rule 5)."""
    for lost in lost_workers(step.spec, step.state, step.workers, step.now):
        step.give_up(lost.index, lost.replacement)
        step.lost[lost.index] = lost
        step.tell("WorkerLost", f"worker {lost.index} lost: {lost.why}", warning=True)


def send_away_excess(step: _Step) -> None:
    """A worker that finds no room in `spec.replicas` is told to leave, for good (rules 8 and 12).

    A later scale-up makes a new pod.
    """
    for worker in roster_of(step.spec, step.state, step.workers).excess:
        step.give_up(worker.index, worker.replacement)
        if worker.member is not None:
            step.set(leaving=(*step.state.leaving, worker.member))
    present = {worker.member for worker in step.workers}
    leaving = tuple(member for member in step.state.leaving if member in present)
    since = step.state.clocks.leaving
    step.set(leaving=leaving)
    step.clock(leaving={member: since.get(member, step.now) for member in leaving})


def complete(step: _Step) -> None:
    """When all members have finished, or no other worker is wanted, the job is `Complete` (rule 9).

    So members told to leave are not waited for once nobody else is wanted.
    """
    state, done = step.state, step.state.done
    if not done or step.suspended:
        return
    if not state.participants:
        step.close(Outcome.FAILED, STRAY_SUCCESS)
    elif done.issuperset(member.index for member in state.participants) or _nobody_left(step):
        step.close(Outcome.COMPLETE, f"all workers of the last round finished ({len(done)} in all)")


def _nobody_left(step: _Step) -> bool:
    return step.state.phase is not CLOSED and roster_of(step.spec, step.state, step.workers).wanted == 0


def close_on_request(step: _Step) -> None:
    """A `Close` lets the formed round train on, and nobody join another (rule 9)."""
    state = step.state
    if state.phase is CLOSED:
        gone = state.done | {broken.member.index for broken in breaks(state, step.workers, step.lost)}
        if gone.issuperset(member.index for member in state.participants):
            step.close(Outcome.FAILED, "closed by set_closed(), and not every member of the last round finished")
        return
    closers = [worker for worker in current(state, step.workers).values() if worker.asks(RequestType.CLOSE)]
    if closers and state.phase is FORMED:
        step.close(Outcome.CLOSED, f"closed by worker {closers[0].index}; the round trains on to its end")
    elif closers:
        step.close(Outcome.FAILED, f"closed by worker {closers[0].index} while no round was formed")


def break_round(step: _Step) -> None:
    """A formed round is broken by the loss, the leave or the return of a member (rules 5 and 10).

    A failure of the training is only noted, one a round: what else happened is not known yet.
    """
    if step.state.phase is not FORMED:
        return
    broken = breaks(step.state, step.workers, step.lost)
    if not broken:
        return
    # what explains a failure is itself a break that does not count
    innocent = explained(step.state, step.workers, step.lost)
    first = next((one for one in broken if one.counted is not innocent), broken[0])
    world = len(step.state.participants)
    reason = first.why
    told = all(one.member in step.state.leaving for one in broken)
    if told:
        reason = "suspended" if step.spec.suspend else f"scaled from {world} to {world - len(broken)}"
    step.open_round(ROUND_BROKEN, reason, warning=first.counted)
    step.set(failure=first.why if first.counted else "", planned=told)


def explain_failure(step: _Step) -> None:
    """While a round forms, the loss of a member that is not the training's own fault explains a failure (rule 10)."""
    state = step.state
    if not state.failure:
        return
    if explained(state, step.workers, step.lost):
        step.set(failure="", given_up=())
        return
    present = {worker.member for worker in current(state, step.workers).values()}
    away = (member for member in state.participants if member not in present and member.index not in state.done)
    step.set(given_up=tuple(away))


def reopen_for_newcomers(step: _Step) -> None:
    """A formed round is reopened for newcomers, once for those on their way together (rule 3)."""
    state, now = step.state, step.now
    if state.phase is not FORMED:
        return
    roster = roster_of(step.spec, state, step.workers)
    newcomers = [worker for worker in roster.joined if worker.member not in state.participants]
    about_to_end = not state.done.isdisjoint(member.index for member in state.participants)
    if not newcomers or about_to_end:
        step.clock(newcomer=None)
        return
    since = now if state.clocks.newcomer is None else state.clocks.newcomer
    step.clock(newcomer=since)
    coming = [worker for worker in roster.missing if worker.member not in state.participants]
    arrived = not roster.owed and all(worker.pod in STUCK for worker in coming)
    if not arrived and now - since < last_call(step.spec, newcomers):
        return
    world = len(state.participants)
    grown = step.spec.replicas > world and world + len(newcomers) == step.spec.replicas
    names = ", ".join(str(worker.index) for worker in newcomers)
    reason = f"scaled from {world} to {step.spec.replicas}" if grown else f"worker {names} joined"
    step.open_round(ROUND_REOPENED, reason)
    step.set(planned=True)


def hurry_after_loss(step: _Step) -> None:
    """A planned end is planned no more when a member stops untold: the others would wait for it (rule 7)."""
    if step.state.planned and stopped_untold(step.state, step.workers):
        step.set(planned=False)


def form_round(step: _Step) -> None:
    """A forming round is formed, or has failed to form in time; a failure is counted first (rules 2 and 10)."""
    if step.state.phase is not FORMING:
        return
    if step.spec.suspend:  # it waits for nobody, so its clocks stand still
        step.clock(opened=step.now, min_reached=None, all_running=None)
        return
    verdict = barrier.judge(step.spec, step.state, step.workers, step.now)
    step.clock(min_reached=verdict.min_reached, all_running=verdict.all_running)
    if verdict.failure is not None:
        step.close(*verdict.failure)
    elif verdict.members and _within_budget(step):
        _form(step, verdict.members)


def _within_budget(step: _Step) -> bool:
    """Counts a failure that nothing has explained; False when it is one too many and has ended the job."""
    failure, restarts = step.state.failure, step.state.restarts + 1
    if not failure:
        return True
    step.set(restarts=restarts)
    if restarts <= step.spec.max_restarts:
        return True
    step.close(Outcome.FAILED, f"{failure}: failure {restarts}, and maxRestarts is {step.spec.max_restarts}")
    return False


def _form(step: _Step, members: tuple[Worker, ...]) -> None:
    """Ranks are places in this order: survivors keep theirs, newcomers follow by index."""
    state = step.state
    reason = {"": "first formation", "suspended": "resumed"}.get(state.reason, state.reason)
    step.formed_after = step.now - state.clocks.opened
    message = f"round {state.round} formed with {len(members)} workers in {step.formed_after:.1f} s: {reason}"
    step.move(ROUND_FORMED, reason, message)
    step.set(participants=tuple(worker.member for worker in members if worker.member), store=members[0].address)
    step.clock(formed=step.now, newcomer=None)


def reset_restarts(step: _Step) -> None:
    """A round that stands long enough sets the count of failures to zero (rule 10)."""
    held = step.now - step.state.clocks.formed
    if step.state.phase is FORMED and step.state.restarts and held >= step.spec.restart_reset:
        step.set(restarts=0)


RULES: tuple[Callable[[_Step], None], ...] = (
    note_finished,
    note_heartbeats,
    note_invalid,
    give_up_lost,
    send_away_excess,
    complete,
    close_on_request,
    break_round,
    explain_failure,
    reopen_for_newcomers,
    hurry_after_loss,
    form_round,
    reset_restarts,
)
