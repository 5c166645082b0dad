"""Doubt, challenge and answer: who is asked, whose clock runs, and who is lost. Each test is a story of one job."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from elasticjob.rendezvous import PodState
from elasticjob.terms import Cause
from support.rendezvous_world import World, formed


def asked(world: World) -> list[int]:
    return [member.index for member in world.state.challenged]


def lose(world: World, index: int, by: int) -> None:
    """It is silent, and another hears nothing of it, who lives."""
    world.doubt(by, index)
    world.now += 0.1
    world.beat(by)
    world.now += 2
    world.step()


class TestDoubt:
    """It is enough to be asked, and costs nobody a place."""

    def test_who_is_doubted_is_asked_with_who_doubts(self) -> None:
        world = formed(4)
        world.doubt(3, 1)
        assert (world.state.challenge, asked(world), world.phase) == (1, [1, 3], "1 Formed")

    def test_of_many_that_doubt_two_are_asked(self) -> None:
        world = formed(17)
        for member in range(1, 17):
            world.workers[member, 0] = replace(world.workers[member, 0], doubts=(world.member(0),))
        world.step()
        assert (world.state.challenge, asked(world)) == (1, [0, 1, 2])

    def test_with_rank_0_a_small_group_is_asked_whole_the_first_time(self) -> None:
        """Who may have been lost with it was heard by nobody else."""
        world = formed(16)
        world.doubt(1, 0)
        assert (world.state.challenge, asked(world)) == (1, list(range(16)))
        world.beat(*range(16))
        world.wait(10, living=(*range(16),))
        assert (world.state.challenge, asked(world)) == (2, [0, 1]), "a line that stays broken"
        world.doubt(0, 5)
        assert (world.state.challenge, asked(world)) == (3, [0, 1, 5]), "of another than rank 0"

    def test_whose_pod_is_called_unready_is_asked_with_others(self) -> None:
        world = formed(4)
        world.change(1, unready=True)
        assert asked(world) == [0, 1, 2]

    def test_whose_heartbeat_does_not_come_for_long_is_asked(self) -> None:
        world = formed(2, silence=450)
        world.wait(445, living=(0,))
        assert world.state.challenge == 0
        world.wait(5, living=(0,))
        assert asked(world) == [0, 1]

    def test_who_writes_nothing_from_the_beginning_is_asked_too(self) -> None:
        world = World(replicas=2, min_replicas=2, silence=450)
        world.up(0)
        world.start(1)
        world.change(1, heartbeat=None)
        world.wait(450, living=(0,))
        assert asked(world) == [0, 1]

    def test_who_does_not_join_again_is_asked(self) -> None:
        world = formed(3, min_replicas=3, worker_lost=15)
        world.delete(2)
        world.rejoin(0)
        world.wait(10, living=(0, 1))
        assert world.state.challenge == 0
        world.wait(5, living=(0, 1))
        assert asked(world) == [0, 1]

    def test_where_most_of_a_large_group_have_not_joined_yet_nobody_is_asked_so_soon(self) -> None:
        world = formed(40, min_replicas=30, worker_lost=15, rejoin=75)
        world.delete(39)
        world.wait(70)
        assert world.state.challenge == 0
        world.wait(5)
        assert asked(world) == list(range(39))

    def test_where_rank_0_was_lost_in_silence_all_are_asked_at_once(self) -> None:
        """Nobody has heard of the others of its rack."""
        world = formed(64, min_replicas=2)
        lose(world, 0, by=33)
        assert world.state.reason == "worker 0 lost: no answer for 2 s"
        assert asked(world) == list(range(1, 64))
        survivors = range(32, 64)
        world.rejoin(*survivors)
        world.wait(10, living=(*survivors,))
        assert [world.state.replacements.get(index) for index in (0, 31, 32)] == [1, 1, None]

    def test_who_is_late_after_a_silent_loss_is_asked_soon_however_many_there_are(self) -> None:
        """Rank 0 cannot name more than some hundreds of whom it hears nothing."""
        world = formed(64, min_replicas=2)
        lose(world, 32, by=0)
        opened = world.now
        world.rejoin(*range(32))
        world.now = opened + 4
        world.step()
        assert asked(world)[:32] == [0, 1, *range(33, 63)]

    @pytest.mark.parametrize("gone", [False, True])
    def test_nobody_asks_who_cannot_answer(self, gone: bool) -> None:
        world = formed(3)
        doubted = world.member(2)
        if gone:
            world.start(2)  # another incarnation
        else:
            world.change(2, pod=PodState.SUCCEEDED)
        world.change(0, doubts=(doubted,))
        assert world.state.challenge == 0

    def test_where_all_are_doubted_nobody_is_asked_alone(self) -> None:
        world = formed(2)
        world.doubt(0, 1)
        world.beat(0, 1)
        world.now += 5
        world.doubt(1, 0)
        assert (world.state.challenge, asked(world)) == (2, [0, 1])

    def test_nobody_can_doubt_itself(self) -> None:
        world = formed(2)
        world.doubt(1, 1)
        assert world.state.challenge == 0

    def test_a_line_that_stays_broken_costs_two_answers_in_ten_seconds(self) -> None:
        world = formed(2, worker_lost=15)
        world.doubt(0, 1)
        world.beat(0, 1)
        assert world.step().wake_at == world.now + 10
        world.wait(600, living=(0, 1))
        assert (world.phase, world.state.challenge) == ("1 Formed", 61)

    def test_doubts_that_stand_share_their_challenges(self) -> None:
        """Their answers come one after the other, and each challenge is a status that everybody reads."""
        world = formed(21)
        world.doubt(0, *range(1, 21))
        world.beat(0)
        for answers in range(400):
            world.now += 0.05 if answers < 20 else 0.15
            world.beat(answers % 20 + 1)
            world.beat(0)
        assert world.phase == "1 Formed"
        assert world.state.challenge <= 7

    def test_who_was_doubted_before_is_asked_at_once(self) -> None:
        world = formed(2)
        world.doubt(0, 1)
        world.beat(0, 1)
        world.doubt(0)
        world.doubt(0, 1)
        assert world.state.challenge == 2


class TestProof:
    """Lost is who does not answer while another does."""

    def test_who_does_not_answer_is_lost_and_a_late_answer_changes_nothing(self) -> None:
        world = formed(3, min_replicas=2, worker_lost=15)
        zombie = world.workers[2, 0]
        world.doubt(0, 2)
        world.beat(0)
        assert world.step().wake_at == world.now + 7.5
        world.wait(7, living=(0, 1))
        assert world.phase == "1 Formed"
        world.wait(1, living=(0, 1))
        assert (world.phase, world.state.reason) == ("2 Forming", "worker 2 lost: no answer for 7.5 s")
        world.workers[2, 0] = replace(zombie, answer=1)
        world.beat(0, 1)
        assert (2, 0) not in world.workers

    def test_who_answers_in_time_stays(self) -> None:
        world = formed(3, min_replicas=2, worker_lost=15)
        world.doubt(0, 2)
        world.beat(0)
        world.wait(7, living=(0, 1))
        world.doubt(0)
        world.beat(2)
        world.wait(100, living=(0, 1, 2))
        assert (world.phase, world.state.challenge) == ("1 Formed", 1)

    def test_who_lives_and_is_doubted_for_long_may_stand_still_for_three_seconds(self) -> None:
        """No silence has gone before: the line is broken, or a NetworkPolicy is in its way."""
        world = formed(3, min_replicas=2)
        world.doubt(0, 2)
        world.beat(0, 2)
        world.now += 10
        world.step()
        world.beat(0)
        world.now += 3.5
        world.step()
        assert (world.phase, world.state.challenge) == ("1 Formed", 2)
        world.now += 0.5
        world.step()
        assert world.state.reason == "worker 2 lost: no answer for 4 s"

    def test_who_is_asked_beside_may_stand_still_for_three_seconds(self) -> None:
        world = formed(3, min_replicas=2)
        world.change(0, unready=True)
        assert asked(world) == [0, 1, 2]
        world.beat(0, 1)
        world.now += 3.5
        world.step()
        assert world.phase == "1 Formed"

    def test_whose_line_falls_silent_only_then_may_too(self) -> None:
        """It stands still since it was asked."""
        world = formed(3, min_replicas=2)
        world.change(2, unready=True)
        world.beat(0, 2)
        world.now += 1.6
        world.doubt(0, 1)
        world.now += 1.4
        world.step()
        assert world.phase == "1 Formed"

    def test_who_is_slow_to_join_again_may_stand_still_for_three_seconds(self) -> None:
        world = formed(3, min_replicas=3)
        world.delete(2)
        world.rejoin(0)
        world.now += 4
        world.step()
        assert asked(world) == [0, 1]
        world.beat(0)
        world.now += 3.5
        world.step()
        assert (1, 0) in world.workers

    def test_a_silence_that_broke_the_round_with_others_is_short_too(self) -> None:
        """Two workers of one node, whose lines fall silent one after the other."""
        world = formed(4, min_replicas=2)
        world.doubt(0, 2)
        world.beat(0)
        world.now += 1
        world.doubt(0, 2, 3)
        world.beat(0)
        world.now += 1
        world.step()
        assert world.phase == "2 Forming"
        world.now += 1
        world.step()
        assert "worker 3 lost: no answer for 2 s" in world.log

    def test_rank_0_is_lost_as_any_other(self) -> None:
        world = formed(3, min_replicas=2)
        for member in (1, 2):
            world.doubt(member, 0)
        world.wait(10, living=(1, 2))
        assert world.state.reason == "worker 0 lost: no answer for 2 s"

    def test_who_is_lost_with_rank_0_is_asked_with_it(self) -> None:
        world = formed(4, min_replicas=2)
        world.doubt(2, 0)
        world.beat(2, 3)
        world.now += 4
        world.step()
        told = [line for line in world.log if "no answer" in line and not line.startswith("round")]
        assert told == ["worker 0 lost: no answer for 2 s", "worker 1 lost: no answer for 4 s"]

    def test_of_two_that_doubt_each_other_the_one_that_answers_stays(self) -> None:
        world = formed(2)
        world.doubt(0, 1)
        world.doubt(1, 0)
        world.wait(10, living=(1,))
        assert world.log[-1] == "round 1 of 2 ended: worker 0 lost: no answer for 4 s"
        assert (1, 0) in world.workers

    def test_a_rack_that_is_lost_is_told_at_once(self) -> None:
        world = formed(6, min_replicas=2, worker_lost=15)
        world.doubt(0, 3)
        world.now += 1
        world.doubt(0, 3, 4, 5)  # their lines fall silent one after the other
        assert (world.state.challenge, asked(world)) == (2, [0, 3, 4, 5])
        world.beat(0)
        world.now += 7.5
        world.step()
        assert [line for line in world.log if "no answer" in line][:-1] == [
            f"worker {index} lost: no answer for 7.5 s" for index in (3, 4, 5)
        ]

    def test_a_later_doubt_does_not_put_off_an_earlier_loss(self) -> None:
        world = formed(4, worker_lost=15)
        world.doubt(0, 3)
        world.beat(0)
        world.now += 7
        world.doubt(0, 2, 3)
        world.now += 0.5
        world.step()
        assert world.state.reason == "worker 3 lost: no answer for 7.5 s"

    def test_while_nobody_answers_nobody_is_lost(self) -> None:
        world = formed(3)
        world.doubt(0, 2)
        assert world.step().wake_at == world.now + 10
        world.wait(10)
        assert (world.state.challenge, asked(world)) == (2, [0, 1, 2]), "after a while everybody is asked"
        world.wait(600)
        assert (world.phase, world.state.challenge) == ("1 Formed", 2)

    def test_after_a_silence_of_all_the_first_answer_starts_the_clock_of_the_others(self) -> None:
        world = formed(3, min_replicas=1, worker_lost=15)
        world.doubt(0, 2)
        world.wait(40)
        world.beat(0)
        world.now += 7
        world.beat(1)
        assert world.phase == "1 Formed"
        world.now += 0.5
        world.step()
        assert world.state.reason == "worker 2 lost: no answer for 7.5 s"

    def test_a_worker_may_name_its_own_time(self) -> None:
        world = World(replicas=3, min_replicas=2)
        world.up(0, 1)
        world.start(2)
        world.join(2, worker_lost=40)
        world.doubt(0, 2)
        world.beat(0)
        world.wait(19, living=(0, 1))
        assert world.phase == "1 Formed"
        world.wait(5, living=(0, 1))
        assert world.state.reason == "worker 2 lost: no answer for 20 s"

    def test_who_waits_for_its_last_word_answers_no_more_and_is_not_lost(self) -> None:
        world = formed(2, worker_lost=4)
        world.doubt(0, 1)
        world.beat(0)
        world.exit(1)
        world.wait(14, living=(0,))
        assert world.phase == "1 Formed"
        world.wait(5, living=(0,))
        assert [member.index for member in world.state.finished] == [1]


class TestAlone:
    """Nobody is beside it to show that the way is sound, so it has more time."""

    def test_one_that_is_alone_is_lost_after_half_a_minute(self) -> None:
        world = formed(1)
        world.change(0, unready=True)
        world.wait(25)
        assert world.phase == "1 Formed"
        world.wait(5)
        assert world.state.reason == "worker 0 lost: no answer for 30 s"

    def test_who_becomes_alone_in_a_silence_of_all_has_its_time_from_then(self) -> None:
        """Else what befell the others for another cause would become two faults."""
        world = formed(2)
        world.doubt(0, 1)
        world.wait(100)
        world.delete(0)
        world.change(0, pod=PodState.UNSCHEDULABLE)
        world.wait(25)
        assert (1, 0) in world.workers
        world.wait(20)
        assert "worker 1 lost: no answer for 30 s" in world.log

    def test_who_was_asked_alone_is_asked_anew_with_others(self) -> None:
        world = World(replicas=2, min_replicas=1)
        world.up(0)
        world.change(1, pod=PodState.UNSCHEDULABLE)
        world.change(0, unready=True)
        world.wait(25)
        world.up(1)
        world.change(1, unready=True)
        assert asked(world) == [0, 1]
        world.wait(100)
        assert not [line for line in world.log if "no answer" in line]


class TestTakeOver:
    def test_a_new_operator_takes_what_is_open_as_asked_now(self) -> None:
        world = formed(3, min_replicas=2, worker_lost=15)
        world.doubt(0, 2)
        world.beat(0)
        world.wait(5, living=(0, 1))
        world.take_over()
        assert (world.state.challenge, world.step().wake_at) == (1, world.now + 7.5)
        world.wait(5, living=(0, 1))
        assert world.phase == "1 Formed"
        world.wait(5, living=(0, 1))
        assert world.state.reason == "worker 2 lost: no answer for 7.5 s"

    def test_no_clock_runs_before_all_hear_the_api_server_again(self) -> None:
        world = formed(3, min_replicas=2, worker_lost=15)
        world.doubt(0, 2)
        world.beat(0)
        settled = replace(world.state.clocks, settled=world.now + 5)
        world.state = replace(world.state, clocks=settled)
        assert world.step().wake_at == world.now + 12.5
        world.wait(10, living=(0, 1))
        assert world.phase == "1 Formed"
        world.wait(5, living=(0, 1))
        assert world.state.reason == "worker 2 lost: no answer for 7.5 s"

    def test_what_was_answered_before_is_not_open(self) -> None:
        world = formed(2)
        world.doubt(0, 1)
        world.beat(0, 1)
        world.doubt(0)
        world.take_over()
        assert (world.state.challenge, world.state.clocks.asked) == (1, {})


class TestOldSidecars:
    """One that knows no challenges shows by its heartbeat that it lives; that proves something against its like."""

    def test_its_heartbeat_is_an_answer(self) -> None:
        world = formed(2)
        world.change(1, answer=None)
        world.doubt(0, 1)
        world.wait(300, living=(0, 1))
        assert world.phase == "1 Formed"

    def test_it_has_the_time_of_three_heartbeats(self) -> None:
        world = formed(2)
        world.change(1, answer=None)
        world.doubt(0, 1)
        world.beat(0)
        world.wait(14, living=(0,))
        assert world.phase == "1 Formed"
        world.wait(5, living=(0,))
        assert world.state.reason == "worker 1 lost: no answer for 15 s"

    def test_among_them_who_is_silent_is_lost(self) -> None:
        world = formed(3, silence=60)
        for index in range(3):
            world.change(index, answer=None)
        world.wait(60, living=(0, 1))
        assert (asked(world), world.phase) == ([0, 1, 2], "1 Formed")
        world.wait(30, living=(0, 1))
        assert world.state.reason == "worker 2 lost: no answer for 15 s"

    def test_while_all_of_them_are_silent_nobody_is_lost(self) -> None:
        world = formed(3, silence=60)
        for index in range(3):
            world.change(index, answer=None)
        world.wait(600)
        assert (world.state.challenge > 0, world.phase) == (True, "1 Formed")

    def test_its_heartbeat_does_not_start_the_clock_of_who_knows_challenges(self) -> None:
        world = formed(3)
        world.change(1, answer=None)
        world.change(0, unready=True)
        world.wait(300, living=(1,))
        assert world.phase == "1 Formed"

    def test_who_alone_knows_challenges_is_lost_by_their_heartbeats_after_half_a_minute(self) -> None:
        """As after an upgrade, when one pod of a running job has been replaced."""
        world = formed(3, min_replicas=2)
        for index in (0, 1):
            world.change(index, answer=None)
        world.change(2, unready=True)
        world.wait(300)
        assert world.phase == "1 Formed"
        world.wait(30, living=(0, 1))
        assert world.phase == "1 Formed"
        world.wait(5, living=(0, 1))
        assert "worker 2 lost: no answer for 30 s" in world.log


class TestHungAgents:
    def test_a_member_that_neither_joins_nor_leaves_is_replaced(self) -> None:
        world = formed(3, min_replicas=3, max_restarts=0)
        world.delete(2)
        world.rejoin(0)
        world.up(2)
        world.wait(75, living=(0, 1, 2))
        assert (1, 1) not in world.workers
        world.wait(5, living=(0, 1, 2))
        assert "worker 1 lost: its trainer has neither joined again nor left within 75 s" in world.log
        assert (1, 1) in world.workers
        world.up(1)
        assert (world.phase, world.ranks, world.state.restarts) == ("2 Formed", [0, 1, 2], 0)

    def test_a_group_that_can_do_without_goes_on_and_grows_again(self) -> None:
        world = formed(2)
        world.join(0, cause=Cause.WORKER_FAILED)
        world.wait(80, living=(0, 1))
        assert (world.phase, world.ranks) == ("2 Formed", [0])
        world.up(1)
        world.rejoin(0)
        assert (world.phase, world.ranks) == ("3 Formed", [0, 1])

    def test_a_hang_does_not_explain_a_failure(self) -> None:
        """The processes of one crash, and those of another cannot be stopped any more."""
        world = formed(2, min_replicas=2)
        world.join(0, cause=Cause.WORKER_FAILED)
        world.wait(80, living=(0, 1))
        assert (world.state.failure, (1, 1) in world.workers) == ("worker 0's processes failed", True)
        world.up(1)
        assert (world.phase, world.state.restarts) == ("2 Formed", 1)

    @pytest.mark.parametrize(
        "waits",
        [
            lambda job: job.leave(1),
            lambda job: job.change(1, pod=PodState.CRASH_LOOP, crashes=1),
            lambda job: job.rejoin(1),
        ],
        ids=["left, and starts again", "its trainer is held back", "joined"],
    )
    def test_who_has_a_reason_not_to_join_does_not_hang(self, waits: Callable[[World], object]) -> None:
        world = formed(3, min_replicas=3, join_timeout=10_000)
        world.delete(2)
        world.rejoin(0)
        waits(world)
        world.wait(300, living=(0, 1))
        assert not [line for line in world.log if "has neither joined" in line]

    def test_a_new_operator_gives_them_their_time_anew(self) -> None:
        world = formed(2, min_replicas=2)
        world.join(0, cause=Cause.WORKER_FAILED)
        world.wait(70, living=(0, 1))
        world.take_over()
        world.wait(75, living=(0, 1))
        assert (1, 0) in world.workers
        world.wait(5, living=(0, 1))
        assert (1, 0) not in world.workers

    def test_who_comes_back_from_a_silence_of_all_may_answer_before_it_joins(self) -> None:
        world = formed(2, min_replicas=2, worker_lost=15)
        world.join(0, cause=Cause.WORKER_FAILED)
        world.wait(300)  # nobody is heard
        world.wait(10, living=(0, 1))
        assert (1, 0) in world.workers
        world.rejoin(1)
        assert (world.phase, world.ranks, world.state.restarts) == ("2 Formed", [0, 1], 1)

    def test_whose_node_is_lost_meanwhile_does_not_hang(self) -> None:
        world = formed(2, min_replicas=2, worker_lost=60)
        world.join(0, cause=Cause.WORKER_FAILED)
        world.wait(60, living=(0, 1))
        world.wait(75, living=(0,))
        assert "worker 1 lost: no answer for 60 s" in world.log


class TestLargeGroups:
    """Where a loss takes long to be noticed, a round waits for that: else a lost node would count as a failure."""

    @pytest.mark.parametrize("named", [None, 256.0])
    def test_no_round_forms_before_a_doubted_workers_loss_is_known(self, named: float | None) -> None:
        world = World(replicas=3, min_replicas=2, max_restarts=0, worker_lost=15 if named else 256, rejoin=75)
        world.up(0, 1)
        world.start(2)
        world.join(2, **({"worker_lost": named} if named else {}))
        assert world.phase == "1 Formed"
        world.join(0, 1, cause=Cause.WORKER_FAILED)  # as worker 2's node is lost
        world.doubt(0, 2)
        world.wait(125, living=(0, 1))
        assert (world.phase, world.state.failure) == ("2 Forming", "worker 0's processes failed")
        world.wait(10, living=(0, 1))
        assert "worker 2 lost: no answer for 128 s" in world.log
        assert (world.phase, world.ranks, world.state.restarts) == ("2 Formed", [0, 1], 0)
