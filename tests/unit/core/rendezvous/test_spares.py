"""Spares, story by story: who waits without a place, when it gets one, and what they must never do to a group."""

from dataclasses import replace

from elasticjob.rendezvous import PodState
from elasticjob.signs import proof_seconds
from elasticjob.terms import Cause, Outcome
from support.rendezvous_world import World

SPARE_INDEX = 2


def two_and_a_spare(**spec: object) -> World:
    """Workers 0 and 1 train, and worker 2 waits."""
    world = World(replicas=2, spares=1, **spec)
    world.up(0, 1, SPARE_INDEX)
    assert (world.phase, world.ranks, world.state.spares, world.state.waiting) == ("1 Formed", [0, 1], 1, 0)
    return world


class TestWaiting:
    def test_pods_are_made_for_spares_too_and_nobody_waits_for_them(self) -> None:
        world = World(replicas=2, spares=2)
        assert sorted(world.workers) == [(0, 0), (1, 0), (2, 0), (3, 0)]
        world.up(0, 1)
        assert (world.phase, world.ranks) == ("1 Formed", [0, 1])

    def test_who_joins_first_has_the_places(self) -> None:
        world = World(replicas=2, spares=1)
        world.up(2, 1)
        assert (world.phase, world.ranks) == ("1 Formed", [1, 2])
        world.up(0)
        assert (world.phase, world.state.spares, world.state.waiting) == ("1 Formed", 1, 0)

    def test_a_spare_that_joins_ends_no_round_however_long_it_waits(self) -> None:
        world = two_and_a_spare()
        world.wait(3000, living=(0, 1, 2))
        assert (world.phase, world.state.spares) == ("1 Formed", 1)

    def test_members_whose_containers_the_kubelet_has_not_told_of_yet_keep_their_places(self) -> None:
        """A sidecar may join before that, and on a busy node its pod's status lags."""
        world = two_and_a_spare()
        for index in (0, 1, SPARE_INDEX):
            world.change(index, pod=PodState.PENDING)
        world.wait(30, living=(0, 1, 2))
        assert (world.phase, world.ranks, world.state.spares) == ("1 Formed", [0, 1], 1)

    def test_the_minimum_is_of_members_alone(self) -> None:
        world = World(replicas=2, spares=1, min_replicas=2)
        world.up(0)
        world.change(1, pod=PodState.UNSCHEDULABLE)
        world.change(SPARE_INDEX, pod=PodState.UNSCHEDULABLE)
        world.wait(100, living=(0,))
        assert world.phase == "1 Forming"

    def test_a_spare_takes_no_place_of_a_member_that_is_late(self) -> None:
        """The minimum is missed by that one, however many wait beside it."""
        world = World(replicas=2, spares=2, min_replicas=2)
        world.up(0, 1, 2, 3)
        world.leave(0)
        world.now += world.spec.join_timeout + 100  # without a look at who is late
        world.step()
        assert world.state.outcome is Outcome.TIMEOUT

    def test_a_spare_on_its_way_is_waited_for_in_place_of_a_stuck_worker(self) -> None:
        world = World(replicas=2, spares=1)
        world.up(0)
        world.change(1, pod=PodState.UNSCHEDULABLE)
        assert world.phase == "1 Forming"
        world.up(SPARE_INDEX)
        assert (world.phase, world.ranks, world.state.spares) == ("1 Formed", [0, 2], 0)

    def test_a_job_that_has_no_places_has_no_spares(self) -> None:
        world = two_and_a_spare()
        world.suspend(True)
        assert {member.index for member in world.state.leaving} == {0, 1, 2}
        for index in range(3):
            world.exit(index)
        world.step()
        assert world.workers == {}
        world.suspend(False)
        assert len(world.workers) == 3

    def test_fewer_spares_are_wanted(self) -> None:
        world = World(replicas=1, spares=2)
        world.up(0, 2, 1)
        world.spec = replace(world.spec, spares=1)
        world.step()
        assert (world.phase, [member.index for member in world.state.leaving]) == ("1 Formed", [2])

    def test_the_end_of_the_training_is_the_end_of_the_spares(self) -> None:
        world = two_and_a_spare()
        world.finish(0, 1)
        assert world.state.outcome is Outcome.COMPLETE
        assert (SPARE_INDEX, 0) not in world.workers


class TestLoss:
    def test_the_spare_takes_the_rank_of_a_deleted_member_and_the_new_pod_is_the_new_spare(self) -> None:
        world = two_and_a_spare()
        world.delete(0)
        world.rejoin(1)
        assert (world.phase, world.ranks, world.state.spares) == ("2 Formed", [2, 1], 0)
        assert world.log[-1].endswith(": worker 0 lost: its pod was deleted; spare 2 takes rank 0")
        assert world.state.reason == "worker 0 lost: its pod was deleted; spare 2 takes rank 0"
        world.up(0)
        assert (world.phase, world.ranks, world.state.spares) == ("2 Formed", [2, 1], 1)

    def test_the_round_forms_in_the_step_in_which_the_loss_is_judged(self) -> None:
        world = two_and_a_spare(worker_lost=15)
        world.doubt(1, 0)
        world.beat(1, SPARE_INDEX)
        world.join(1, cause=Cause.WORKER_FAILED)  # its collective broke with the lost node
        limit = proof_seconds(world.spec.worker_lost)
        world.wait(limit - 0.1, living=(1, SPARE_INDEX))
        assert (world.phase, world.state.spares) == ("2 Forming", 1)
        world.wait(0.2, living=(1, SPARE_INDEX))
        assert (world.phase, world.ranks, world.state.restarts) == ("2 Formed", [2, 1], 0)

    def test_a_member_that_may_join_again_goes_before_a_spare(self) -> None:
        world = two_and_a_spare()
        world.join(0, cause=Cause.WORKER_FAILED)
        world.wait(60, living=(0, 1, 2))
        assert world.phase == "2 Forming"
        world.rejoin(1)
        assert (world.phase, world.ranks, world.state.spares) == ("2 Formed", [0, 1], 0)
        world.join(SPARE_INDEX, cause=Cause.RENEWED)
        assert (world.phase, world.state.spares) == ("2 Formed", 1)

    def test_the_spare_does_not_wait_for_a_torchrun_that_was_killed(self) -> None:
        world = two_and_a_spare()
        world.leave(0, cause=Cause.AGENT_LOST)
        world.rejoin(1)
        assert (world.phase, world.ranks, world.state.restarts) == ("2 Formed", [2, 1], 1)
        world.join(0)
        assert (world.phase, world.ranks, world.state.spares) == ("2 Formed", [2, 1], 1)

    def test_no_spare_is_named_that_took_no_rank_of_another(self) -> None:
        world = two_and_a_spare()
        world.change(SPARE_INDEX, pod=PodState.FAILED)
        world.delete(0)
        world.rejoin(1)
        world.up(0)
        assert (world.phase, world.ranks) == ("2 Formed", [0, 1])
        assert world.state.reason == "worker 0 lost: its pod was deleted"

    def test_two_spares_take_two_ranks(self) -> None:
        world = World(replicas=4, spares=2)
        world.up(*range(6))
        world.delete(1)
        world.delete(3)
        world.rejoin(0, 2)
        assert (world.phase, world.ranks) == ("2 Formed", [0, 4, 2, 5])
        assert world.state.reason.endswith("; spares 4, 5 take ranks 1, 3")

    def test_with_fewer_spares_than_losses_the_group_waits_for_the_last_call_only(self) -> None:
        world = two_and_a_spare(last_call=30)
        world.delete(0)
        world.delete(1)
        assert world.phase == "2 Forming"
        world.wait(30, living=(2,))
        assert (world.phase, world.ranks) == ("2 Formed", [2])


class TestScaling:
    def test_up_takes_the_spare_at_once(self) -> None:
        world = two_and_a_spare()
        world.scale(3)
        assert (world.phase, world.state.planned, (3, 0) in world.workers) == ("2 Forming", True, True)
        world.rejoin(0, 1)
        assert (world.phase, world.ranks, world.state.spares) == ("2 Formed", [0, 1, 2], 0)
        assert world.state.reason == "scaled from 2 to 3"

    def test_down_takes_members_and_leaves_the_spare(self) -> None:
        world = two_and_a_spare()
        world.scale(1)
        assert [member.index for member in world.state.leaving] == [1]
        assert world.state.spares == 1
        world.rejoin(0)
        assert (world.phase, world.ranks, (SPARE_INDEX, 0) in world.workers) == ("2 Formed", [0], True)

    def test_a_member_without_a_place_becomes_no_spare(self) -> None:
        world = two_and_a_spare()
        world.change(SPARE_INDEX, pod=PodState.FAILED)
        world.scale(1)
        assert [member.index for member in world.state.leaving] == [1]
        world.rejoin(0)
        assert world.phase == "2 Formed"

    def test_up_and_down_again_breaks_nothing_before_the_newcomer_joined(self) -> None:
        world = World(replicas=2, spares=1)
        world.up(0, 1)
        world.scale(3)
        world.scale(2)
        world.up(2)
        assert (world.phase, world.state.spares) == ("1 Formed", 1)


class TestFailures:
    def test_a_spare_that_fails_is_replaced_and_breaks_nothing(self) -> None:
        world = two_and_a_spare(max_restarts=0)
        for _ in range(3):
            world.change(SPARE_INDEX, pod=PodState.FAILED)
            world.wait(60, living=(0, 1))
        assert (world.phase, world.state.outcome, world.state.restarts) == ("1 Formed", None, 0)
        assert (SPARE_INDEX, 3) in world.workers

    def test_a_silent_spare_is_lost_like_any_other(self) -> None:
        world = two_and_a_spare(silence=60)
        world.wait(60, living=(0, 1))
        assert (world.phase, world.state.spares) == ("1 Formed", 1)
        world.wait(10, living=(0, 1))
        assert (world.phase, world.state.spares) == ("1 Formed", 0)
        assert (SPARE_INDEX, 1) in world.workers

    def test_a_job_does_not_fail_for_a_worker_whose_place_a_spare_may_take(self) -> None:
        world = World(replicas=2, spares=1, min_replicas=2, max_restarts=0)
        world.start(0)
        world.change(0, pod=PodState.CRASH_LOOP, crashes=3)
        world.up(1)
        assert (world.phase, world.state.outcome) == ("1 Forming", None)
        world.up(SPARE_INDEX)
        assert (world.phase, world.ranks) == ("1 Formed", [1, 2])

    def test_a_job_fails_when_the_spares_fail_too(self) -> None:
        world = World(replicas=2, spares=1, min_replicas=2, max_restarts=0)
        world.up(1)
        for index in (0, SPARE_INDEX):
            world.start(index)
            world.change(index, pod=PodState.CRASH_LOOP, crashes=3)
        assert world.state.outcome is Outcome.FAILED

    def test_a_spare_that_waits_long_enough_clears_its_failures(self) -> None:
        world = two_and_a_spare()
        for _ in range(2):
            world.change(SPARE_INDEX, pod=PodState.FAILED)
            world.wait(20, living=(0, 1))
        world.up(SPARE_INDEX)
        world.wait(500, living=(0, 1, 2))
        assert world.state.clocks.failures[SPARE_INDEX].in_a_row == 2
        world.wait(100, living=(0, 1, 2))
        assert world.state.clocks.failures == {}

    def test_the_operator_looks_when_a_spare_clears_its_failures(self) -> None:
        world = two_and_a_spare(silence=10_000)
        world.change(SPARE_INDEX, pod=PodState.FAILED)
        failed = world.now
        world.up(SPARE_INDEX)
        world.now += 301
        assert world.step().wake_at == failed + 600
