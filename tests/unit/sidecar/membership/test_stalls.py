# SPDX-License-Identifier: Apache-2.0
"""When a worker's script stalls, and what its record says then."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from elasticjob.api import Member, ProcessState, RendezvousPhase, RendezvousStatus, RequestCause, Stall
from elasticjob_sidecar.membership.machine import Membership
from elasticjob_sidecar.membership.output import Standing
from elasticjob_sidecar.membership.refusal import Refused
from elasticjob_sidecar.membership.stalls import Stalls
from elasticjob_sidecar.membership.view import view_of
from elasticjob_torch.wire import Code

FORMING, FORMED, CLOSED = RendezvousPhase
ME, OTHER = Member(index=0, id="me"), Member(index=1, id="other")


@dataclass
class Pod:
    """A sidecar's two machines, its trainer in round 3, and the clock."""

    worker: Membership = field(default_factory=lambda: Membership(ME))
    stalls: Stalls = field(default_factory=lambda: Stalls(deadline=60.0))
    now: float = 100.0

    def __post_init__(self) -> None:
        self.worker.attached("trainer", 0)
        self.join(0, RequestCause.STARTED)
        self.job(FORMING, 3)
        self.job(FORMED, 3)

    @property
    def standing(self) -> Standing:
        return self.worker.take().standing

    def job(self, phase: RendezvousPhase = FORMED, round: int = 3, **more: Any) -> None:
        known = {"participants": (ME, OTHER), **more}
        self.worker.job_seen(RendezvousStatus(phase=phase, round=round, **known), self.now)
        self.look()

    def join(self, after: int, cause: RequestCause) -> None:
        self.worker.join("trainer", after, cause, 60, "ticket", self.now)
        self.look()

    def look(self, after: float = 0.0) -> None:
        self.now += after
        self.stalls.look(self.standing, self.now)

    def report(self, step: int | None, local_rank: int = 0) -> None:
        self.stalls.reported(self.standing, local_rank, step, self.now)
        self.look()

    def processes(self, state: ProcessState, local_rank: int = 0) -> None:
        self.stalls.looked(self.standing, state, local_rank)
        self.look()

    @property
    def word(self) -> tuple[bool, int | None] | None:
        word = self.stalls.word
        return None if word is None else (word.stalled, word.step)


@pytest.fixture
def pod() -> Pod:
    return Pod()


def test_nothing_is_said_while_the_script_reports(pod: Pod) -> None:
    for step in range(20):
        pod.report(step)
        pod.look(after=59)
    assert pod.word is None


def test_without_a_report_for_the_deadline_it_stalls_and_says_so_once(pod: Pod) -> None:
    pod.report(7)
    assert pod.stalls.wake_at == pod.now + 60
    pod.look(after=59.9)
    assert pod.word is None
    pod.look(after=0.1)
    assert pod.stalls.word == Stall(round=3, stalled=True, step=7)
    assert pod.stalls.wake_at is None
    before = pod.stalls.word
    pod.look(after=600)
    assert pod.stalls.word is before


def test_a_script_that_never_reports_a_step_does_not_stall(pod: Pod) -> None:
    """Nor does one that is yet to take its first: imports, a checkpoint, a compilation come before that."""
    pod.look(after=3600)
    pod.report(None)
    pod.look(after=3600)
    assert pod.word is None
    pod.report(1)
    pod.look(after=60)
    assert pod.word == (True, 1)


def test_a_report_without_a_new_step_is_a_sign_too(pod: Pod) -> None:
    """While it evaluates, or saves."""
    pod.report(7)
    pod.look(after=50)
    pod.report(None)
    pod.look(after=50)
    pod.report(7)
    pod.look(after=50)
    assert pod.word is None
    pod.look(after=10)
    assert pod.word == (True, 7)


def test_when_it_goes_on_that_is_said_once(pod: Pod) -> None:
    pod.report(7)
    pod.look(after=60)
    pod.report(8)
    assert pod.word == (False, 8)
    before = pod.stalls.word
    pod.report(9)
    pod.look(after=59)
    assert pod.stalls.word is before
    pod.look(after=1)
    assert pod.word == (True, 9)


def test_without_a_deadline_nothing_stalls(pod: Pod) -> None:
    pod.stalls.deadline = None
    pod.report(7)
    pod.look(after=86400)
    assert (pod.word, pod.stalls.wake_at) == (None, None)
    pod.stalls.deadline = 10
    pod.look()
    assert pod.word == (True, 7)


@pytest.mark.parametrize("step", [None, 7])
def test_who_is_asked_says_how_far_it_is(pod: Pod, step: int | None) -> None:
    pod.report(step)
    pod.job(stalled=3)
    assert pod.word == (False, step)


def test_a_question_of_an_earlier_round_asks_nobody(pod: Pod) -> None:
    pod.report(7)
    pod.job(stalled=2)
    assert pod.word is None
    assert told_to_look(pod) is False


def told_to_look(pod: Pod) -> bool:
    view = view_of(pod.standing)
    assert view is not None
    return view.stalled


def test_the_trainer_is_told_to_look_and_what_it_finds_is_said(pod: Pod) -> None:
    pod.report(7)
    pod.look(after=60)
    assert not told_to_look(pod)
    pod.job(stalled=3)
    assert told_to_look(pod)
    pod.processes(ProcessState.STOPPED, 2)
    assert pod.stalls.word == Stall(round=3, stalled=True, step=7, process=ProcessState.STOPPED, local_rank=2)


def test_what_the_trainer_found_holds_until_the_script_goes_on(pod: Pod) -> None:
    pod.job(stalled=3)
    pod.processes(ProcessState.COMPUTES)
    pod.report(1)
    pod.look(after=60)
    assert pod.stalls.word == Stall(round=3, stalled=True, step=1, process=ProcessState.COMPUTES, local_rank=0)
    pod.report(2)
    assert pod.stalls.word == Stall(round=3, stalled=False, step=2)


def test_what_was_found_without_a_question_is_not_kept(pod: Pod) -> None:
    pod.processes(ProcessState.COMPUTES)
    pod.job(stalled=3)
    assert pod.stalls.word == Stall(round=3)


def test_of_several_processes_the_last_one_counts(pod: Pod) -> None:
    for local_rank, step in ((0, 7), (1, 5), (2, 9), (1, 6)):
        pod.report(step, local_rank)
    pod.look(after=59)
    pod.report(8, 0)
    pod.look(after=59)
    assert pod.word is None
    pod.look(after=1)
    assert pod.word == (True, 6)


@pytest.mark.parametrize("end", ["broken", "finished", "lost"])
def test_a_round_that_is_over_stalls_no_more(pod: Pod, end: str) -> None:
    pod.report(7)
    pod.look(after=60)
    if end == "broken":
        pod.job(FORMING, 4)
    elif end == "finished":
        pod.worker.finish("trainer", 3)
    else:
        pod.worker.detached(1, pod.now)
    pod.look()
    assert pod.stalls.word is None
    pod.report(8)
    pod.look(after=3600)
    assert pod.stalls.word is None


def test_the_next_round_begins_anew(pod: Pod) -> None:
    pod.report(7)
    pod.job(FORMING, 4)
    pod.join(3, RequestCause.MEMBERSHIP_CHANGED)
    pod.job(FORMED, 4)
    pod.look(after=3600)
    assert pod.word is None
    pod.report(3)
    pod.look(after=60)
    assert pod.stalls.word == Stall(round=4, stalled=True, step=3)


def test_what_is_told_of_another_round_is_refused(pod: Pod) -> None:
    pod.worker.looked("trainer", 3)
    with pytest.raises(Refused) as refused:
        pod.worker.looked("trainer", 2)
    assert refused.value.code is Code.ROUND_BROKEN
