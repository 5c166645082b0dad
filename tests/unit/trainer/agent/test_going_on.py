# SPDX-License-Identifier: Apache-2.0
"""When processes go on into the next round, and when new ones get ready before their agent joins."""

import subprocess
import sys

import pytest

from elasticjob_torch import wire
from elasticjob_torch.agent import going_on
from elasticjob_torch.agent.busy import BUSY_SECONDS, Patience
from elasticjob_torch.agent.going_on import READY_SECONDS, TELL_SECONDS, UPDATE_SECONDS, GoingOn
from support.waiting import wait_until

PLACES = {0: {"RANK": "0"}}


class FakeLiving:
    """The processes, which wait and opt in as the test says."""

    def __init__(self, news):
        self.variables, self.opted_in, self.waits, self.said = {"ELASTICJOB_LIVE": "/x"}, False, False, []
        self.saves = False

    def started(self, start, count):
        self.said.append(("started", start, count))

    def have_opted_in(self):
        return self.opted_in

    def wait(self):
        return self.opted_in and self.waits

    def some_wait(self):
        return self.waits

    def busy(self):
        return [] if self.waits else [self.saves]

    def enter(self, number, places):
        self.waits = False
        self.said.append(("enter", number))

    def over(self, number, *, cut=False):
        self.said.append(("cut" if cut else "over", number))

    def stop(self, reason):
        self.said.append(("stop", reason))

    def close(self):
        self.said.append("closed")


class Agent:
    def __init__(self):
        self.now, self.told, self.takes = 0.0, [], True
        self.going_on = GoingOn(lambda: None, self.tell, Patience(2 * BUSY_SECONDS), lambda: self.now)

    def tell(self, number):
        self.told.append(number)
        return self.takes

    @property
    def living(self):
        return self.going_on._living

    def start(self, number=1, *, opted_in=True):
        said = self.going_on.started("a", PLACES, number)
        self.living.opted_in = opted_in
        return said

    def look(self, seen=..., *, over=False, pids=()):
        self.going_on.look(view() if seen is ... else seen, over, pids)

    def was_stopped(self):
        return any(said[0] == "stop" for said in self.living.said)


@pytest.fixture
def agent(monkeypatch):
    monkeypatch.setattr(going_on, "Living", FakeLiving)
    return Agent()


def view(phase="Formed", **more):
    return wire.View(round=1, phase=wire.Phase(phase), **more)


LIVE = view(live=True)


def test_processes_that_have_opted_in_go_on_once_they_wait_and_their_round_is_over(agent):
    assert agent.start() == {"ELASTICJOB_LIVE": "/x"}
    assert not agent.going_on.go_on(True, view())
    agent.living.waits = True
    assert not agent.going_on.go_on(False, view())
    assert agent.going_on.go_on(True, view())


def test_processes_that_have_not_opted_in_are_stopped_at_once(agent):
    agent.start(opted_in=False)
    agent.living.waits = True
    agent.look(over=True)
    assert agent.going_on.count(1, view()) == 1
    assert not agent.going_on.go_on(True, view())


def test_a_change_that_needs_new_processes_is_not_lived_through(agent):
    agent.start()
    agent.living.waits = True
    agent.look(over=True)
    assert agent.going_on.count(1, view(restart=True)) == 1
    assert not agent.going_on.go_on(True, view(restart=True))


def test_processes_are_told_once_that_their_round_is_over_and_have_time_to_end_their_step(agent):
    agent.start()
    agent.look(over=True)
    agent.look(over=True)
    assert agent.living.said.count(("over", 1)) == 1
    assert agent.going_on.count(2, view()) == 0
    agent.now += BUSY_SECONDS + 1
    agent.look(over=True)
    assert agent.going_on.count(2, view()) == 2
    assert agent.going_on.count(0, view()) == 0


def test_processes_that_have_not_ended_their_step_in_time_write_their_stacks_once(agent, monkeypatch):
    asked = []
    monkeypatch.setattr(going_on, "ask_for_stacks", asked.append)
    agent.start()
    agent.look(over=True, pids=(7, 8))
    agent.now += BUSY_SECONDS / 2
    agent.look(over=True, pids=(7, 8))
    assert not asked
    for _ in range(2):
        agent.now += BUSY_SECONDS
        agent.look(over=True, pids=(7, 8))
    assert asked == [7, 8]


def test_collectives_are_left_to_end_while_all_members_are_there(agent):
    agent.start()
    for _ in range(3):
        agent.look(view("Forming", changed=True, handed=1), over=True)
        agent.now += BUSY_SECONDS / 6
    assert ("cut", 1) not in agent.living.said
    agent.now += 1
    for _ in range(2):
        agent.look(view("Forming", changed=True, handed=1), over=True)
    assert agent.living.said[-2:] == [("over", 1), ("cut", 1)], "nobody waits longer for one that is busy"


@pytest.mark.parametrize("told", [0, 1], ids=["with the end", "later"])
def test_collectives_are_ended_once_a_member_may_be_gone(agent, told):
    agent.start()
    for _ in range(told):
        agent.look(view("Forming", changed=True, handed=1), over=True)
    for _ in range(2):
        agent.look(view("Forming", changed=True, handed=1, broken=True), over=True)
    assert agent.living.said[-2:] == [("over", 1), ("cut", 1)]
    agent.going_on.entered(2, PLACES)
    agent.look(view("Forming", changed=True, handed=2, broken=True), over=True)
    assert agent.living.said[-1] == ("cut", 2)


def test_collectives_are_left_to_end_while_a_process_saves(agent):
    agent.start()
    agent.living.saves = True
    for _ in range(2):
        agent.look(view("Forming", changed=True, handed=1), over=True)
        agent.now += BUSY_SECONDS
    assert ("cut", 1) not in agent.living.said
    agent.look(None, over=True)
    assert ("cut", 1) not in agent.living.said


def test_a_process_that_saves_has_longer_and_the_log_says_which_limit_ended_it(agent, caplog):
    caplog.set_level("INFO")
    agent.start()
    agent.living.saves = True
    agent.look(over=True)
    for _ in range(2):
        agent.now += BUSY_SECONDS
        agent.look(over=True)
        assert agent.going_on.count(2, view()) == 0
    for _ in range(2):
        agent.now += 1
        agent.look(over=True)
        assert agent.going_on.count(2, view()) == 2
    (said,) = caplog.messages
    assert said.startswith("the training processes of round 1 are started anew: they have not ended their save within")
    agent.going_on.entered(2, PLACES)
    assert agent.going_on.count(2, view()) == 0


def test_the_sidecar_is_told_once_that_all_processes_of_a_round_live(agent):
    agent.start(opted_in=False)
    agent.look()
    assert agent.told == []
    agent.living.opted_in = True
    look_and_tell(agent)
    look_and_tell(agent)
    assert agent.told == [1]
    agent.going_on.entered(2, PLACES)
    look_and_tell(agent)
    assert agent.told == [1, 2]


def look_and_tell(agent):
    """Look, until a second later nothing is being told."""
    agent.look()
    if telling := agent.going_on._telling:
        telling.join()
    agent.now += TELL_SECONDS


def test_a_sidecar_that_does_not_take_it_is_told_again(agent):
    agent.start()
    agent.takes = False
    look_and_tell(agent)
    agent.look()
    agent.look()  # within a second
    look_and_tell(agent)
    agent.takes = True
    look_and_tell(agent)
    look_and_tell(agent)
    assert agent.told == [1, 1, 1]


def test_a_sidecar_that_was_away_is_told_again(agent):
    """It may be another one, to which nobody has told it."""
    agent.start()
    look_and_tell(agent)
    agent.look(None)
    look_and_tell(agent)
    look_and_tell(agent)
    assert agent.told == [1, 1]


def test_an_error_of_the_group_without_a_change_ends_the_processes(agent):
    agent.start()
    agent.living.waits = True
    agent.look()
    agent.now += UPDATE_SECONDS + 1
    agent.look()
    ((_, reason),) = [said for said in agent.living.said if said[0] == "stop"]
    assert "a connection was closed in round 1" in reason


@pytest.mark.parametrize(
    "seen",
    [None, view("Forming"), wire.View(round=0, phase=wire.Phase.FORMED)],
    ids=["nobody is heard", "a change is on its way", "older than the round"],
)
def test_time_in_which_there_can_be_no_news_does_not_count(agent, seen):
    agent.start()
    agent.living.waits = True
    for _ in range(3):
        agent.look()
        agent.now += UPDATE_SECONDS - 1
        agent.look()
        agent.look(seen)
        agent.now += UPDATE_SECONDS + 1
        agent.look(seen)
    assert not agent.was_stopped()
    agent.look()
    agent.now += UPDATE_SECONDS + 1
    agent.look()
    assert agent.was_stopped()


def test_an_error_of_the_last_group_of_a_closed_job_ends_the_processes(agent):
    agent.start()
    agent.living.waits = True
    agent.look(view("Closed"))
    agent.now += UPDATE_SECONDS + 1
    agent.look(view("Closed"))
    assert agent.living.said[-1][0] == "stop"


def test_a_step_that_ends_meanwhile_does_not_count_as_an_error(agent):
    agent.start()
    agent.living.waits = True
    agent.look()
    agent.living.waits = False
    agent.now += UPDATE_SECONDS + 1
    agent.look()
    agent.living.waits = True
    agent.look()
    assert not agent.was_stopped()


@pytest.mark.parametrize(
    ("seen", "alone"),
    [
        (LIVE, True),
        (None, False),
        (view(), False),
        (view(live=True, leaving=True), False),
        (view(live=True, closed=True), False),
    ],
)
def test_processes_of_a_live_job_get_ready_before_their_agent_joins(agent, seen, alone):
    assert agent.going_on.begins_alone(seen) is alone
    assert agent.going_on.is_alone is alone


@pytest.mark.parametrize(
    ("seen", "better"),
    [
        (LIVE, True),
        (view(), False),
        (None, False),
        (view(live=True, phase=wire.Phase.FORMING), False),
        (view(live=True, leaving=True), False),
        (view(live=True, closed=True), False),
    ],
)
def test_a_worker_that_waits_gets_its_processes_ready_once_the_others_are_known_to_live(agent, seen, better):
    assert agent.going_on.would_begin_alone(seen) is better


def test_processes_get_ready_beside_a_join_that_waits_once(agent):
    assert agent.going_on.begins_alone(LIVE)
    assert not agent.going_on.begins_alone(LIVE)  # they failed
    assert not agent.going_on.would_begin_alone(LIVE)


def test_processes_that_are_ready_join_whatever_the_round_does(agent):
    agent.going_on.begins_alone(LIVE)
    agent.start()
    assert ("enter", 1) not in agent.living.said
    assert not agent.going_on.go_on(False, LIVE)
    assert agent.going_on.count(1, LIVE) == 0
    agent.living.waits = True
    assert agent.going_on.go_on(False, LIVE)
    agent.going_on.entered(5, PLACES)
    assert agent.living.said[-1] == ("enter", 5)
    assert not agent.going_on.is_alone


@pytest.mark.parametrize("seen", [view(live=True, leaving=True), view(closed=True), view(restart=True)])
def test_nobody_gets_ready_for_a_round_that_does_not_come(agent, seen):
    agent.going_on.begins_alone(LIVE)
    agent.start(opted_in=False)
    assert agent.going_on.count(0, seen) == 1


def test_processes_that_never_opt_in_are_started_anew_in_a_round(agent):
    agent.going_on.begins_alone(LIVE)
    agent.start(opted_in=False)
    agent.now += READY_SECONDS + 1
    assert agent.going_on.count(0, LIVE) == 1
    assert not agent.going_on.begins_alone(LIVE)
    assert agent.going_on.begins_alone(LIVE)


def test_the_end_of_a_process_is_seen_and_not_reaped(agent):
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    agent.start()
    agent.look(pids=[child.pid])
    assert not agent.going_on.have_ended()
    child.kill()
    wait_until("its end", agent.going_on.have_ended)
    assert child.wait() == -9
    child.stdin.close()


def test_a_container_without_a_place_for_a_socket_restarts_its_processes(agent, monkeypatch):
    def refuse(news):
        raise FileNotFoundError("No usable temporary directory found")

    monkeypatch.setattr(going_on, "Living", refuse)
    assert agent.going_on.started("a", PLACES, 1) == {}
    agent.look(over=True)
    assert agent.going_on.count(1, view()) == 1
    assert not agent.going_on.go_on(True, view())
    agent.going_on.close()


def test_an_agent_that_has_started_nothing_has_nothing_to_close(agent):
    agent.going_on.close()
    assert agent.living is None
    agent.start()
    agent.going_on.close()
    assert agent.living.said[-1] == "closed"
