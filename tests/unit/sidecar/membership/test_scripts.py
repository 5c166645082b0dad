# SPDX-License-Identifier: Apache-2.0
"""Who may save before the trainer is told that its round is over, and for how long it is kept from it."""

from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from elasticjob.api import Member, RendezvousPhase, RendezvousStatus, RequestCause
from elasticjob_sidecar.membership.machine import Membership
from elasticjob_sidecar.membership.output import Standing
from elasticjob_sidecar.membership.refusal import Refused
from elasticjob_sidecar.membership.scripts import Scripts, script_view_of
from elasticjob_sidecar.membership.view import view_of
from elasticjob_torch import wire
from elasticjob_torch.wire import Code

FORMING, FORMED, CLOSED = RendezvousPhase
ME, OTHER = Member(index=0, id="me"), Member(index=1, id="other")


@dataclass
class Pod:
    """A sidecar's two machines, its trainer in round 3, and the clock."""

    worker: Membership = field(default_factory=lambda: Membership(ME))
    scripts: Scripts = field(default_factory=lambda: Scripts(save_seconds=15))
    now: float = 100.0

    def __post_init__(self) -> None:
        self.worker.attached("trainer", 0)
        self.join(0, RequestCause.STARTED)
        self.job(FORMING, 3)
        self.job(FORMED, 3)
        self.worker.store_posted("trainer", 3, 5000)
        assert self.standing.tunnel_round == 3

    @property
    def standing(self) -> Standing:
        return self.worker.take().standing

    def job(self, phase: RendezvousPhase, round: int, **more: Any) -> None:
        known = {"participants": (ME, OTHER), "reason": "scaled from 1 to 2", **more}
        self.worker.job_seen(RendezvousStatus(phase=phase, round=round, **known), self.now)
        self.look()

    def join(self, after: int, cause: RequestCause, *, live: bool = False) -> None:
        self.worker.join("trainer", after, cause, 60, "ticket", self.now, live=live)
        self.look()

    def plan(self, **more: Any) -> None:
        self.job(FORMING, 4, planned=True, **more)

    def look(self, after: float = 0.0) -> None:
        self.now += after
        self.scripts.look(self.standing, self.now)

    def saves(self, name: str, saved: int) -> None:
        self.scripts.saves(name, saved)
        self.look()

    def closed(self, stream: int) -> None:
        self.scripts.closed(stream)
        self.look()


@pytest.fixture
def pod() -> Pod:
    return Pod()


@pytest.mark.parametrize("seconds", [1, 15, 86400])
def test_a_script_may_save_for_as_long_as_the_job_says(seconds: int) -> None:
    pod = Pod(scripts=Scripts(save_seconds=seconds))
    pod.scripts.opened("saves", saves=True)
    pod.plan()
    pod.look(seconds - 0.5)
    assert pod.scripts.hold
    pod.look(0.5)
    assert not pod.scripts.hold


def test_without_scripts_that_save_nothing_is_held(pod: Pod) -> None:
    pod.scripts.opened("looks on", saves=False)
    pod.plan()
    assert not pod.scripts.hold
    assert pod.scripts.wake_at is None


def test_the_trainer_is_told_when_all_have_saved(pod: Pod) -> None:
    pod.scripts.opened("a", saves=True)
    pod.scripts.opened("b", saves=False)
    pod.saves("b", 0)
    pod.plan()
    assert pod.scripts.hold
    pod.saves("a", 3)
    assert pod.scripts.hold
    pod.saves("b", 3)
    assert not pod.scripts.hold


def test_the_time_to_save_is_bounded_and_runs_once(pod: Pod) -> None:
    pod.scripts.opened("a", saves=True)
    pod.plan()
    assert pod.scripts.wake_at == pod.now + 15
    pod.look(after=10)
    pod.plan(waiting=1)  # more is seen of the same change
    pod.look(after=4.9)
    assert pod.scripts.hold
    pod.look(after=0.2)
    assert not pod.scripts.hold
    pod.scripts.opened("late", saves=True)
    pod.plan(waiting=2)
    assert not pod.scripts.hold


def test_a_script_that_ends_is_not_waited_for(pod: Pod) -> None:
    stream = pod.scripts.opened("a", saves=True)
    pod.plan()
    pod.closed(stream)
    assert not pod.scripts.hold


def test_what_was_saved_for_an_earlier_round_does_not_count(pod: Pod) -> None:
    pod.scripts.opened("a", saves=True)
    pod.saves("a", 2)
    pod.plan()
    assert pod.scripts.hold


def test_a_loss_meanwhile_is_told_at_once(pod: Pod) -> None:
    pod.scripts.opened("a", saves=True)
    pod.plan()
    pod.job(FORMING, 4, planned=False)
    assert not pod.scripts.hold


@pytest.mark.parametrize(("phase", "round"), [(FORMING, 4), (FORMED, 4), (CLOSED, 4), (FORMING, 5)])
def test_no_other_end_is_held(pod: Pod, phase: RendezvousPhase, round: int) -> None:
    pod.scripts.opened("a", saves=True)
    pod.job(phase, round, planned=round == 5)  # in round 5: an end of another round than the trainer's
    assert not pod.scripts.hold


def test_a_trainer_that_comes_back_by_itself_is_not_held(pod: Pod) -> None:
    pod.scripts.opened("a", saves=True)
    pod.plan()
    pod.join(3, RequestCause.WORKER_FAILED)
    assert not pod.scripts.hold


def test_no_time_to_save_is_none(pod: Pod) -> None:
    pod.scripts.save_seconds = 0
    pod.scripts.opened("a", saves=True)
    pod.plan()
    assert not pod.scripts.hold


def test_scripts_are_told_of_their_round_and_of_its_planned_end(pod: Pod) -> None:
    expected = wire.ScriptView(round=3, waiting=0, reason="scaled from 1 to 2", ending=False)
    assert script_view_of(pod.standing) == expected
    pod.plan(waiting=1, reason="scaled from 2 to 3")
    assert script_view_of(pod.standing) == replace(expected, waiting=1, ending=True)
    pod.job(FORMING, 4, waiting=1)
    assert script_view_of(pod.standing) == replace(expected, waiting=1)


def is_ending(pod: Pod) -> bool:
    view = script_view_of(pod.standing)
    assert view is not None
    return view.ending


def test_an_end_that_processes_live_through_is_none_for_them(pod: Pod) -> None:
    pod.worker.lives("trainer", 3)
    pod.scripts.opened("a", saves=True)
    pod.plan()
    assert not pod.scripts.hold
    assert not is_ending(pod)
    for needs_saving in ({"leaving": (ME,)}, {"restart_round": 4}):
        pod.plan(**needs_saving)
        assert pod.scripts.hold
        assert is_ending(pod)


def test_who_lived_through_an_earlier_end_may_not_live_through_this_one(pod: Pod) -> None:
    pod.worker.lives("trainer", 3)
    pod.plan()
    pod.join(3, RequestCause.MEMBERSHIP_CHANGED)
    pod.job(FORMED, 4)
    pod.job(FORMING, 5, planned=True)
    assert is_ending(pod)
    pod.join(4, RequestCause.MEMBERSHIP_CHANGED, live=True)
    pod.job(FORMED, 5)
    pod.job(FORMING, 6, planned=True)
    assert not is_ending(pod)


@pytest.mark.parametrize(
    ("live", "restart_round", "expected"),
    [
        ((0, 1), 0, (True, False)),
        ((0,), 0, (False, False)),
        ((), 0, (False, False)),
        ((0, 1), 3, (True, False)),
        ((0, 1), 4, (False, True)),
    ],
)
def test_a_trainer_learns_who_lives_through_the_change(
    pod: Pod, live: tuple[int, ...], restart_round: int, expected: tuple[bool, bool]
) -> None:
    pod.job(FORMING, 4, live=live, restart_round=restart_round)
    view = view_of(pod.standing)
    assert view is not None
    assert (view.live, view.restart) == expected


def is_broken(pod: Pod) -> bool:
    view = view_of(pod.standing)
    assert view is not None
    return view.broken


def test_a_trainer_learns_whether_a_member_of_its_round_may_be_gone(pod: Pod) -> None:
    pod.job(FORMED, 3)
    assert not is_broken(pod)
    pod.job(FORMING, 4, intact=True)
    assert not is_broken(pod)
    pod.job(FORMING, 4)  # one is lost meanwhile
    assert is_broken(pod)


def test_a_round_whose_processes_have_to_be_new_is_broken(pod: Pod) -> None:
    pod.job(FORMING, 4, intact=True, restart_round=4)
    assert is_broken(pod)


def test_a_round_that_others_have_gone_on_from_is_broken(pod: Pod) -> None:
    for phase, number in ((FORMED, 4), (FORMING, 5)):
        pod.job(phase, number, participants=(OTHER,), intact=phase is FORMING)
        assert is_broken(pod)


def test_a_trainer_learns_whether_the_api_server_is_heard(pod: Pod) -> None:
    pod.job(FORMED, 3)
    assert [view and view.api_away for view in (view_of(pod.standing), view_of(pod.standing, True))] == [False, True]


def test_a_round_for_new_processes_is_not_over_for_who_missed_it(pod: Pod) -> None:
    pod.job(FORMED, 4, participants=(OTHER,), live=(1,), restart_round=4)
    assert (view := view_of(pod.standing))
    assert view.restart


def test_there_is_a_most_of_scripts(pod: Pod, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "MAX_SCRIPTS", 1)
    stream = pod.scripts.opened("a", saves=False)
    with pytest.raises(Refused) as refused:
        pod.scripts.opened("b", saves=False)
    assert refused.value.code is Code.TOO_MANY
    pod.scripts.closed(stream)
    pod.scripts.opened("b", saves=False)


def test_one_process_speaks_for_the_worker(pod: Pod) -> None:
    ranks = [2, 3, 1, 2, 1]
    assert [pod.scripts.may_report(pod.standing, rank) for rank in ranks] == [True, False, True, False, True]
    pod.plan()
    pod.join(3, RequestCause.MEMBERSHIP_CHANGED)
    pod.job(FORMED, 4)
    assert pod.scripts.may_report(pod.standing, 2)  # another round, other processes
