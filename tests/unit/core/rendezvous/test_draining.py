"""Nodes that are about to go, story by story: members there train on until others have joined, and leave as told."""

from dataclasses import replace

from elasticjob.rendezvous import PodState, Request
from elasticjob.terms import Cause, RequestType, RoundCause
from support.rendezvous_world import World, formed


def drain(world: World, *indices: int) -> None:
    """Their node is about to go; they are on one, so it is seen at once."""
    for index in indices:
        pod_key = world.pod_key(index)
        world.workers[pod_key] = replace(world.workers[pod_key], draining=True)
    world.step()


class TestReplacement:
    def test_a_member_trains_on_while_its_replacement_starts(self) -> None:
        world = formed(3)
        drain(world, 1)
        assert (world.phase, world.ranks, world.state.leaving) == ("1 Formed", [0, 1, 2], ())
        assert (3, 0) in world.workers

    def test_once_that_has_joined_the_round_ends_as_planned_and_it_takes_the_rank(self) -> None:
        world = formed(3)
        drain(world, 1)
        going = world.member(1)
        world.up(3)
        assert (world.phase, world.state.planned, world.state.leaving) == ("2 Forming", True, (going,))
        assert world.state.cause == RoundCause.NODE_DRAINING
        assert world.log[-1] == "round 1 of 3 ended: worker 3 joined for worker 1, whose node is about to go"
        world.rejoin(0, 2)
        assert (world.phase, world.ranks, world.state.restarts) == ("2 Formed", [0, 3, 2], 0)

    def test_who_is_relieved_saves_leaves_and_is_replaced_by_nobody_else(self) -> None:
        world = formed(2)
        drain(world, 1)
        world.up(2)
        world.rejoin(0)
        world.exit(1)
        world.step()
        assert sorted(world.workers) == [(0, 0), (2, 0)]
        world.wait(3000, living=(0, 2))
        assert (world.phase, world.ranks) == ("2 Formed", [0, 2])
        assert "WorkerLost" not in world.told

    def test_all_of_a_node_are_relieved_in_one_round(self) -> None:
        world = formed(4)
        drain(world, 2, 3)
        world.up(4)
        assert world.phase == "1 Formed"
        world.up(5)
        assert (world.phase, [member.index for member in world.state.leaving]) == ("2 Forming", [2, 3])
        assert world.log[-1] == "round 1 of 4 ended: workers 4, 5 joined for workers 2, 3, whose nodes are about to go"
        world.rejoin(0, 1)
        assert (world.phase, world.ranks) == ("2 Formed", [0, 1, 4, 5])

    def test_a_replacement_that_is_stuck_is_not_waited_for(self) -> None:
        world = formed(4)
        drain(world, 2, 3)
        world.change(5, pod=PodState.UNSCHEDULABLE)
        world.up(4)
        assert (world.phase, [member.index for member in world.state.leaving]) == ("2 Forming", [3])
        world.rejoin(0, 1, 2)
        assert (world.phase, world.ranks) == ("2 Formed", [0, 1, 2, 4])

    def test_nobody_leaves_for_a_replacement_that_comes_late(self) -> None:
        world = formed(4)
        drain(world, 2, 3)
        world.up(4)
        world.wait(30, living=(0, 1, 2, 3, 4))
        assert (world.phase, [member.index for member in world.state.leaving]) == ("2 Forming", [3])

    def test_without_room_for_a_replacement_they_train_on(self) -> None:
        world = formed(2)
        drain(world, 0, 1)
        for index in (2, 3):
            world.change(index, pod=PodState.UNSCHEDULABLE)
        world.wait(3000, living=(0, 1))
        assert (world.phase, world.ranks, world.state.leaving) == ("1 Formed", [0, 1], ())

    def test_a_node_that_is_used_again_after_all_keeps_its_workers(self) -> None:
        world = formed(2)
        drain(world, 1)
        world.change(1, draining=False)
        assert (world.phase, sorted(world.workers)) == ("1 Formed", [(0, 0), (1, 0)])

    def test_who_is_evicted_meanwhile_is_lost_and_its_replacement_takes_the_rank(self) -> None:
        world = formed(3)
        drain(world, 1)
        world.delete(1)
        world.up(3)
        world.rejoin(0, 2)
        assert (world.phase, world.ranks, world.state.restarts) == ("2 Formed", [0, 3, 2], 0)
        assert sorted(world.workers) == [(0, 0), (2, 0), (3, 0)]

    def test_rank_0_saves_before_others_go_on_from_what_it_saved(self) -> None:
        world = formed(2)
        drain(world, 0)
        world.up(2)
        world.rejoin(1)
        assert world.phase == "2 Forming"
        world.exit(0)
        assert (world.phase, world.ranks) == ("2 Formed", [2, 1])

    def test_so_it_does_when_the_template_was_changed(self) -> None:
        world = formed(2)
        world.change(0, outdated=True)
        world.change(1, outdated=True)
        world.up(0, 1)
        assert world.phase == "2 Forming"
        old = world.workers[0, 0]
        world.workers[0, 0] = replace(old, pod=PodState.SUCCEEDED)
        world.step()
        assert world.phase == "2 Formed"

    def test_rank_0_is_not_waited_for_once_it_has_left(self) -> None:
        world = formed(2)
        drain(world, 0)
        world.up(2)
        world.rejoin(1)
        world.change(0, request=Request(type=RequestType.LEAVE, cause=Cause.POD_STOPPING))
        assert world.phase == "2 Formed"

    def test_rank_0_that_does_not_leave_is_waited_for_as_long_as_one_that_does_not_join(self) -> None:
        world = formed(2)
        drain(world, 0)
        world.up(2)
        world.rejoin(1)
        world.wait(world.spec.rejoin - 1, living=(0, 1, 2))
        assert world.phase == "2 Forming"
        world.wait(10, living=(1, 2))
        assert (world.phase, world.ranks) == ("2 Formed", [2, 1])


class TestAtOnce:
    """What comes in one step with the relief."""

    def at_once(self, failing: int) -> World:
        world = formed(3)
        drain(world, 1)
        world.start(3)
        for index, cause in ((3, Cause.STARTED), (failing, Cause.WORKER_FAILED)):
            pod_key = world.pod_key(index)
            join = Request(type=RequestType.JOIN, after=1, cause=cause)
            world.workers[pod_key] = replace(world.workers[pod_key], request=join)
        world.step()
        return world

    def test_a_failure_of_another_counts(self) -> None:
        world = self.at_once(failing=0)
        assert [member.index for member in world.state.leaving] == [1]
        assert (world.state.failure, world.state.planned) == ("worker 0's processes failed", False)
        world.rejoin(2)
        assert (world.phase, world.ranks, world.state.restarts) == ("2 Formed", [0, 3, 2], 1)

    def test_a_failure_of_who_leaves_does_not(self) -> None:
        world = self.at_once(failing=1)
        world.rejoin(0, 2)
        assert (world.phase, world.ranks, world.state.restarts) == ("2 Formed", [0, 3, 2], 0)


class TestBeside:
    def test_a_spare_relieves_it_at_once_and_a_new_pod_becomes_the_spare(self) -> None:
        world = World(replicas=2, spares=1)
        world.up(0, 1, 2)
        drain(world, 1)
        assert (world.phase, [member.index for member in world.state.leaving]) == ("2 Forming", [1])
        world.rejoin(0)
        assert (world.phase, world.ranks) == ("2 Formed", [0, 2])
        assert sorted(world.workers) == [(0, 0), (1, 0), (1, 1), (2, 0)]

    def test_a_spare_of_the_same_node_relieves_nobody_and_is_replaced_too(self) -> None:
        world = World(replicas=2, spares=1)
        world.up(0, 1, 2)
        drain(world, 2, 1)
        assert (world.phase, [member.index for member in world.state.leaving]) == ("1 Formed", [2])
        assert sorted(world.workers) == [(0, 0), (1, 0), (2, 0), (2, 1), (3, 0)]
        world.up(3)
        assert (world.phase, [member.index for member in world.state.leaving]) == ("2 Forming", [2, 1])

    def test_a_replacement_whose_node_goes_too_is_replaced_and_ends_no_round(self) -> None:
        world = formed(2)
        drain(world, 1)
        world.start(2)
        drain(world, 2)
        assert (world.phase, [member.index for member in world.state.leaving]) == ("1 Formed", [2])
        assert (2, 1) in world.workers
        world.up(2)
        assert (world.phase, [member.index for member in world.state.leaving]) == ("2 Forming", [2, 1])

    def test_a_newcomer_of_such_a_node_has_a_place_that_is_free(self) -> None:
        world = formed(2)
        world.scale(3)
        drain(world, 2)
        world.up(2)
        world.rejoin(0, 1)
        assert (world.phase, world.ranks) == ("2 Formed", [0, 1, 2])
        assert (3, 0) in world.workers

    def test_fewer_workers_are_wanted_and_those_go_first(self) -> None:
        world = formed(3)
        drain(world, 0)
        world.scale(2)
        assert [member.index for member in world.state.leaving] == [0]
        assert world.state.cause == RoundCause.SCALED

    def test_a_round_that_forms_for_another_cause_does_not_wait_for_replacements(self) -> None:
        world = formed(3)
        drain(world, 1)
        world.delete(2)
        world.rejoin(0, 1)
        world.up(2)
        assert (world.phase, world.ranks, world.state.leaving) == ("2 Formed", [0, 1, 2], ())
        assert (3, 0) in world.workers

    def test_and_takes_those_that_have_joined(self) -> None:
        world = formed(3)
        drain(world, 1)
        world.join(2, cause=Cause.WORKER_FAILED)
        world.up(3)
        assert [member.index for member in world.state.leaving] == [1]
        world.rejoin(0)
        assert (world.phase, world.ranks) == ("2 Formed", [0, 3, 2])
        assert world.state.restarts == 1

    def test_a_suspended_job_has_no_replacements(self) -> None:
        world = formed(2)
        drain(world, 1)
        world.suspend(True)
        assert {member.index for member in world.state.leaving} == {0, 1}
        assert (2, 0) not in world.workers

    def test_the_training_ends_without_the_replacement(self) -> None:
        world = formed(2)
        drain(world, 1)
        world.finish(0)
        world.up(2)
        assert world.phase == "1 Formed"
        world.finish(1)
        assert world.state.outcome is not None

    def test_a_job_of_which_somebody_has_finished_says_so_too(self) -> None:
        world = formed(3)
        world.finish(2)
        world.join(0, cause=Cause.WORKER_FAILED)
        world.rejoin(1)
        drain(world, 1)
        world.up(3)
        assert world.state.cause == RoundCause.NODE_DRAINING
        assert world.log[-1] == "round 2 of 2 ended: worker 3 joined for worker 1, whose node is about to go"

    def test_and_a_scale_up_there_is_told_as_one(self) -> None:
        world = formed(3)
        world.finish(2)
        world.join(0, cause=Cause.WORKER_FAILED)
        world.rejoin(1)
        world.scale(4)
        world.up(3)
        assert (world.state.cause, world.state.reason) == (RoundCause.SCALED, "scaled from 3 to 4")


class TestAgainAndAgain:
    """Where each new pod comes to such a node too."""

    def pods_in(self, world: World, steps: int) -> int:
        made, known = 0, set(world.workers)
        for _ in range(steps):
            new = world.workers.keys() - known
            made += len(new)
            known |= new
            for pod_key in new:
                world.workers[pod_key] = replace(world.workers[pod_key], draining=True)
            world.step()
        return made

    def test_they_are_made_later_each_time(self) -> None:
        world = formed(2, max_restarts=0)
        before = set(world.workers)
        drain(world, 1)
        for pod_key in world.workers.keys() - before:
            world.workers[pod_key] = replace(world.workers[pod_key], draining=True)
        assert self.pods_in(world, 20) == 1
        world.wait(10, living=(0, 1))
        assert (2, 2) in world.workers
        world.up(2)
        world.rejoin(0)
        assert (world.phase, world.ranks, world.state.restarts) == ("2 Formed", [0, 2], 0)

    def test_and_they_fail_no_job_that_waits_for_its_minimum(self) -> None:
        world = formed(2, max_restarts=0, min_replicas=2)
        drain(world, 1)
        world.start(2)
        drain(world, 2)
        world.delete(1)
        assert world.phase == "2 Forming"

    def test_what_a_job_may_end_by_is_told_still(self) -> None:
        """The first pod of a spare has failed by itself, the next one comes to such a node."""
        world = World(replicas=2, spares=1)
        world.up(0, 1)
        world.start(2)
        world.change(2, pod=PodState.FAILED, detail="trainer: exit code 3")
        world.start(2)
        drain(world, 2)
        failures = world.state.clocks.failures[2]
        assert (failures.in_a_row, failures.before_any_round) == (2, 1)
        assert "exit code 3" in failures.why

    def test_so_are_those_of_spares(self) -> None:
        world = World(replicas=2, spares=1)
        world.up(0, 1, 2)
        drain(world, 2)
        world.workers[2, 1] = replace(world.workers[2, 1], draining=True)
        world.step()
        assert self.pods_in(world, 20) == 0
        assert world.phase == "1 Formed"


class TestSizes:
    """Of sizes 2 and 4: who is left over by the size is there already."""

    def with_one_left_over(self) -> World:
        world = World(replicas=4, sizes=(2, 4))
        world.up(0, 1, 2)
        world.change(3, pod=PodState.UNSCHEDULABLE)
        world.rejoin(2)
        return world

    def test_who_waits_for_a_larger_round_takes_the_place_of_a_member(self) -> None:
        world = self.with_one_left_over()
        drain(world, 0)
        world.change(4, pod=PodState.UNSCHEDULABLE)
        assert (world.phase, world.state.planned, world.state.leaving) == ("2 Forming", True, (world.member(0),))
        assert world.log[-1] == "round 1 of 2 ended: worker 2 joined for worker 0, whose node is about to go"
        world.rejoin(1)
        world.exit(0)
        assert (world.phase, world.ranks, world.state.restarts) == ("2 Formed", [2, 1], 0)
        assert (0, 1) not in world.workers, "workers 3 and 4 have the other places"

    def test_nobody_is_relieved_by_one_whose_own_node_goes(self) -> None:
        world = self.with_one_left_over()
        drain(world, 0, 2)
        world.change(4, pod=PodState.UNSCHEDULABLE)
        world.wait(300, living=(0, 1, 2))
        assert (world.phase, world.ranks) == ("1 Formed", [0, 1])

    def test_the_round_grows_for_a_replacement_that_makes_it_as_large_as_is_wanted(self) -> None:
        world = self.with_one_left_over()
        drain(world, 0)
        world.up(4)
        assert world.state.leaving == ()
        world.rejoin(0, 1)
        assert (world.phase, sorted(world.ranks)) == ("2 Formed", [0, 1, 2, 4])

    def test_while_too_few_for_any_round_are_there_nobody_leaves(self) -> None:
        world = formed(4, sizes=(2, 4), min_replicas=3)
        drain(world, 0)
        for index in (2, 3):
            world.delete(index)
            world.change(index, pod=PodState.UNSCHEDULABLE)
        world.up(4)
        assert (world.phase, world.state.leaving) == ("2 Forming", ())

    def test_a_round_that_loses_several_leaves_out_those_whose_nodes_go(self) -> None:
        world = formed(6, sizes=(3, 6))
        drain(world, 0, 1)
        world.change(6, pod=PodState.UNSCHEDULABLE)
        world.change(7, pod=PodState.UNSCHEDULABLE)
        world.delete(4)
        world.delete(5)
        world.up(6)
        assert world.state.leaving == ()
        for pod_key, worker in world.workers.items():
            if worker.pod is PodState.PENDING:
                world.workers[pod_key] = replace(worker, pod=PodState.UNSCHEDULABLE)
        world.step()
        assert [member.index for member in world.state.leaving] == [1]
        world.rejoin(0, 2, 3)
        assert (world.phase, sorted(world.ranks)) == ("2 Formed", [2, 3, 6])

    def test_a_member_is_not_left_over_while_others_come_for_the_larger_size(self) -> None:
        """They join one after the other, and its node may have to wait: no other has room."""
        world = formed(4, sizes=(2, 4), min_replicas=2)
        drain(world, 3)
        world.change(4, pod=PodState.UNSCHEDULABLE)
        world.delete(1)
        world.delete(2)
        world.rejoin(0, 3)
        world.up(1)
        assert (world.phase, world.state.leaving) == ("2 Forming", ())
        world.up(2)
        assert (world.phase, sorted(world.ranks)) == ("2 Formed", [0, 1, 2, 3])

    def test_of_members_that_come_at_the_last_moment_those_whose_nodes_go_are_left_over(self) -> None:
        world = formed(6, sizes=(2, 6), min_replicas=2)
        world.delete(4)
        world.delete(5)
        world.up(4)
        world.change(5, pod=PodState.UNSCHEDULABLE)
        world.rejoin(0)
        again = Request(type=RequestType.JOIN, after=world.state.last_formed, cause=Cause.MEMBERSHIP_CHANGED)
        for index in (1, 2, 3):
            world.workers[index, 0] = replace(world.workers[index, 0], request=again, draining=True)
        world.now += world.spec.last_call
        world.step()
        assert (world.phase, sorted(world.ranks)) == ("2 Formed", [0, 4])
