# SPDX-License-Identifier: Apache-2.0
"""The working copy of one step of `decide`: its inputs, its results so far, and the ways to change them."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, TypeVar

from elasticjob.members import Member
from elasticjob.rendezvous.backoff import LONGEST_SECONDS, after_one_more, delay_of, due, forgotten
from elasticjob.rendezvous.decision import Decision, Event, Failed
from elasticjob.rendezvous.failure_detector import able, moments
from elasticjob.rendezvous.limits import last_call
from elasticjob.rendezvous.live import goes_on, in_live_pods
from elasticjob.rendezvous.losses import Break, Lost
from elasticjob.rendezvous.model import Clocks, Failures, PodState, Spec, State, Worker
from elasticjob.rendezvous.roster import Roster, current, has_joined, roster_of
from elasticjob.rendezvous.transitions import moved
from elasticjob.rendezvous.words import round_of
from elasticjob.terms import FailureKind, Outcome, RendezvousPhase, RoundCause

FORMING, FORMED, CLOSED = RendezvousPhase

NO_FAILURE: dict[str, Any] = {"failure": "", "failure_of": None, "failure_kind": FailureKind.UNKNOWN}
NO_PLAN: dict[str, Any] = {"planned": False, "intact": False}

Known = TypeVar("Known", State, Clocks)


class Step:
    """Rules change `state` only by these methods.

    The roster is computed once per state; a change of the clocks alone does not affect it.
    """

    def __init__(self, spec: Spec, state: State, workers: tuple[Worker, ...], now: float) -> None:
        self.spec, self.state, self.workers, self.now = spec, state, workers, now
        self.events: list[Event] = []
        self.formed_after: float | None = None
        self.lost: dict[int, Lost] = {}
        self.failed: list[Failed] = []
        self._pod_keys = {worker.pod_key for worker in workers}
        self._roster: Roster | None = None
        self._current: dict[int, Worker] | None = None
        self._able: dict[Member, Worker] | None = None

    @property
    def roster(self) -> Roster:
        if self._roster is None:
            self._roster = roster_of(self.spec, self.state, self.workers)
        return self._roster

    @property
    def current(self) -> dict[int, Worker]:
        """The workers that count in the present state, by index."""
        if self._current is None:
            self._current = current(self.state, self.workers)
        return self._current

    @property
    def able(self) -> dict[Member, Worker]:
        """The members that can ack a ping now."""
        if self._able is None:
            self._able = able(self.state, self.workers)
        return self._able

    @property
    def suspended(self) -> bool:
        """False after a `Close`: the round trains to its end, and no round follows that a suspended job could resume
        with."""
        return self.spec.suspend and self.state.phase is not CLOSED

    def set(self, **changes: Any) -> None:
        self._become(_changed(self.state, changes))

    def clock(self, **changes: Any) -> None:
        clocks = _changed(self.state.clocks, changes)
        if clocks is not self.state.clocks:
            self.state = replace(self.state, clocks=clocks)

    def _become(self, state: State) -> None:
        if state is not self.state:
            self.state = state
            self._roster = self._current = self._able = None

    def announce(
        self, reason: str, message: str, *, warning: bool = False, cause: str = "", worker: int | None = None
    ) -> None:
        self.events.append(Event(reason, message, warning, cause, worker))

    def replace_pod(self, index: int, replacement: int) -> None:
        """Replace the index's pod: the next one gets a number that no pod has, and this one is ignored from now on."""
        number = replacement + 1
        while (index, number) in self._pod_keys:
            number += 1
        self.set(replacements={**self.state.replacements, index: number})

    def replace_lost(self, lost: Lost) -> None:
        """Replace the pod of a lost worker. If it failed by itself, count that: its index waits longer for the next pod
        each time."""
        self.replace_pod(lost.index, lost.replacement)
        self.lost[lost.index] = lost
        if lost.speaks_of_node:
            self.failed.append(Failed((lost.index, lost.replacement), judged=True))
        message = f"worker {lost.index} lost: {lost.why}"
        if lost.failed_by_itself:
            failures = self.put_off(lost.index, lost.why, was_member=lost.was_member, ignored=lost.ignored)
            if delay := delay_of(failures):
                message += f"; it is failure {failures.in_a_row} in a row, and the next pod is made in {delay:g} s"
        self.announce("WorkerLost", message, warning=True, cause=lost.cause, worker=lost.index)

    def put_off(self, index: int, why: str, *, was_member: bool, ignored: bool) -> Failures:
        """Delay the index's next pod, longer each time."""
        known = self.state.clocks.failures
        failures = after_one_more(known.get(index), why, was_member=was_member, now=self.now, ignored=ignored)
        self.clock(failures={**known, index: failures})
        return failures

    def plan(self, planned: bool) -> None:
        """Record whether the end of the round was planned: then scripts save, unless the training lives through it."""
        self.set(intact=planned, planned=planned and not goes_on(self.state))

    def note_end(self, first: Break) -> None:
        """Record that `first` ended the round. If it is a failure, it is judged later. A lost pod is already recorded,
        and for a hanging training no pod is known to be at fault."""
        index = first.member.index
        if first.counted:
            self.set(failure=first.why, failure_of=index, failure_kind=first.kind)
        else:
            self.set(**NO_FAILURE)
        if first.counted and index not in self.lost and first.cause != RoundCause.TRAINING_HUNG:
            self.failed.append(Failed((index, self.state.replacements.get(index, 0)), judged=False))

    def move(self, event: str, cause: str, reason: str, message: str, *, warning: bool = False) -> None:
        """The only way to another phase. A failure is judged before it."""
        agreed = moved(self.state, event)
        self._become(
            replace(agreed, reason=reason, cause=str(cause), matched=None, replaced=(), **NO_PLAN, **NO_FAILURE)
        )
        self.announce(event, message, warning=warning, cause=str(cause))

    def open_round(self, event: str, cause: str, reason: str, *, warning: bool = False) -> None:
        ended = f"{round_of(self.state.round, len(self.state.participants))} ended: {reason}"
        self.move(event, cause, reason, ended, warning=warning)
        self.set(store=None)
        self.clock(opened=self.now, min_reached=None, all_running=None, all_spoke=None, newcomer=None)

    def close(self, outcome: Outcome, reason: str, cause: str = "") -> None:
        """`cause`: one word, if it differs from the outcome."""
        self.move(outcome, cause or outcome, reason, reason, warning=outcome in (Outcome.FAILED, Outcome.TIMEOUT))

    def count_waiting(self) -> None:
        # none of them is a member: a member that joins again has broken the round by now
        spares = sum(has_joined(self.state, worker) for worker in self.roster.spares)
        self.set(waiting=len(self.roster.joined), spares=spares)

    def decision(self) -> Decision:
        events, failed = tuple(self.events), tuple(self.failed)
        return Decision(self.state, self.wake_at(), events, self.formed_after, failed, self._awaited())

    def _awaited(self) -> int:
        """The number of running workers whose joins the forming round waits for."""
        if self.state.phase is not FORMING:
            return 0
        return sum(worker.pod is PodState.RUNNING for worker in self.roster.awaited)

    def wake_at(self) -> float | None:
        """The next time at which time alone can change something."""
        if self.state.ended:
            return None
        return min((moment for moment in self._moments() if moment > self.now), default=None)

    def _moments(self) -> Iterator[float]:
        clocks, spec, state = self.state.clocks, self.spec, self.state
        if spec.deadline is not None and not self.suspended:
            yield spec.deadline
        if state.phase is FORMED:
            yield clocks.formed + spec.restart_reset
            yield clocks.formed + LONGEST_SECONDS
        elif state.failure:
            yield clocks.opened + spec.worker_lost
        last = last_call(spec, self.roster.joined)
        yield from (since + last for since in (clocks.min_reached, clocks.newcomer) if since is not None)
        if in_live_pods(state, self.roster.awaited):
            yield clocks.opened + spec.rejoin
        if clocks.all_running is not None:
            yield clocks.all_running + spec.start_timeout
        if clocks.all_spoke is not None:
            yield clocks.all_spoke + spec.join_timeout
        yield from moments(spec, state, self.able)
        yield from (since + spec.patience for since in clocks.invalid.values())
        yield from (since + spec.rejoin for since in clocks.leaving.values())
        yield from (one.since + spec.finish for one in clocks.finishing.values() if one.since is not None)
        yield from (due(clocks, index) for index in clocks.failures)
        if spec.spares:
            yield from (forgotten(failures) for failures in clocks.failures.values())


def _changed(known: Known, changes: dict[str, Any]) -> Known:
    """`known` with `changes`; the same object if nothing changes, as in most steps."""
    for name, value in changes.items():
        if getattr(known, name) != value:
            return replace(known, **changes)
    return known
