"""The job's policy for failures, story by story; which rule matches a worker is read elsewhere and given here."""

from dataclasses import replace

import pytest

from elasticjob.rendezvous import Matched, PodState, Request
from elasticjob.terms import Cause, Outcome, PolicyAction, RequestType, RoundCause
from support.rendezvous_world import World, formed

FAIL_JOB, IGNORE, COUNT = PolicyAction.FAIL_JOB, PolicyAction.IGNORE, PolicyAction.COUNT


def matched(action: PolicyAction, rule: int = 0) -> Matched:
    return Matched(rule, action, f"rule {rule} says {action}")


def fail(world: World, index: int, by: Matched | None = None, cause: str = Cause.WORKER_FAILED) -> None:
    """Its processes fail, and it joins again."""
    join = Request(type=RequestType.JOIN, after=world.state.last_formed, cause=cause, detail="exit code 42")
    world.change(index, request=join, matched=by)


class TestFailJob:
    def test_the_job_fails_without_another_try(self) -> None:
        world = formed(2)
        fail(world, 1, matched(FAIL_JOB))
        assert (world.phase, world.state.matched) == ("2 Forming", matched(FAIL_JOB))
        world.rejoin(0)
        assert (world.phase, world.state.outcome, world.state.restarts) == ("2 Closed", Outcome.FAILED, 0)
        assert (world.state.cause, world.state.reason) == (RoundCause.POD_FAILURE_POLICY, "rule 0 says FailJob")
        assert world.told[-1] == "Failed"

    def test_with_one_worker_at_once(self) -> None:
        world = formed(1)
        fail(world, 0, matched(FAIL_JOB))
        assert (world.phase, world.state.outcome) == ("2 Closed", Outcome.FAILED)

    def test_no_new_pod_is_waited_for(self) -> None:
        world = formed(2)
        world.leave(1, Cause.TRAINER_LEFT)
        world.rejoin(0)
        assert world.phase == "2 Forming"
        world.change(1, pod=PodState.CRASH_LOOP, matched=matched(FAIL_JOB))
        assert (world.phase, world.state.outcome) == ("2 Closed", Outcome.FAILED)

    def test_a_failure_that_follows_from_a_lost_node_does_not_end_the_job(self) -> None:
        world = formed(3)
        fail(world, 1, matched(FAIL_JOB))
        world.rejoin(0)
        assert world.phase == "2 Forming"  # nobody knows of worker 2
        world.delete(2)
        assert (world.phase, world.state.failure, world.state.matched) == ("2 Forming", "", None)
        world.up(2)
        assert (world.phase, world.state.restarts) == ("2 Formed", 0)

    def test_what_is_known_survives_a_new_operator_and_the_pod(self) -> None:
        world = formed(2)
        world.leave(1, Cause.TRAINER_LEFT)
        world.change(1, pod=PodState.FAILED, matched=matched(FAIL_JOB))
        world.take_over()
        world.rejoin(0)
        assert (world.phase, world.state.outcome) == ("2 Closed", Outcome.FAILED)

    def test_a_suspended_job_is_judged_when_it_goes_on(self) -> None:
        world = formed(2)
        fail(world, 1, matched(FAIL_JOB))
        world.suspend(True)
        world.exit(0)
        world.exit(1)
        assert world.phase == "2 Forming"
        world.suspend(False)
        assert (world.phase, world.state.outcome) == ("2 Closed", Outcome.FAILED)

    def test_a_worker_that_fails_before_it_joins_ends_a_job_that_forms(self) -> None:
        world = World(replicas=2)
        world.start(0, 1)
        world.change(1, pod=PodState.CRASH_LOOP, crashes=1, matched=matched(FAIL_JOB))
        assert (world.phase, world.state.outcome) == ("1 Closed", Outcome.FAILED)

    def test_and_none_that_trains(self) -> None:
        world = formed(2)
        world.scale(3)
        world.start(2)
        world.change(2, pod=PodState.FAILED, matched=matched(FAIL_JOB))
        assert world.phase == "1 Formed"

    def test_nor_one_that_failed_while_others_trained_and_is_lost_with_its_node(self) -> None:
        world = formed(2, spares=1)
        world.up(2)
        world.change(2, matched=matched(FAIL_JOB))  # as its container ended before it joined
        world.doubt(0, 1, 2)
        world.wait(12, living=(0,))
        assert (world.phase, world.told.count("WorkerLost"), world.state.outcome) == ("2 Forming", 2, None)
        world.up(1)
        world.rejoin(0)
        assert (world.phase, world.state.restarts) == ("2 Formed", 0)

    def test_a_spare_ends_a_job_that_forms_where_a_rule_names_its_condition(self) -> None:
        world = formed(2, spares=1)
        world.up(2)
        fail(world, 1)
        world.change(2, deleting=True, disrupted=True, matched=matched(FAIL_JOB))
        assert (world.phase, world.state.outcome) == ("2 Closed", Outcome.FAILED)

    def test_a_lost_pod_ends_the_job_where_a_rule_names_its_condition(self) -> None:
        world = formed(2)
        world.change(1, pod=PodState.FAILED, disrupted=True, matched=matched(FAIL_JOB))
        world.rejoin(0)
        assert (world.phase, world.state.outcome) == ("2 Closed", Outcome.FAILED)


class TestIgnore:
    def test_a_failure_does_not_count_however_often_it_comes(self) -> None:
        world = formed(2, max_restarts=0)
        for _ in range(3):
            fail(world, 1, matched(IGNORE))
            world.rejoin(0)
            assert (world.state.restarts, world.state.failure, world.state.matched) == (0, "", None)
        assert (world.phase, world.told.count("FailureIgnored")) == ("4 Formed", 3)

    @pytest.mark.parametrize("first", [0, 1])
    def test_nor_do_those_of_its_peers_whichever_comes_first(self, first: int) -> None:
        world = formed(2, max_restarts=0)
        for index in (first, 1 - first):
            fail(world, index, matched(IGNORE) if index == 1 else matched(FAIL_JOB, rule=1))
        assert (world.phase, world.state.restarts) == ("2 Formed", 0)

    def test_a_pod_that_fails_does_not_count_and_is_replaced(self) -> None:
        world = formed(2, max_restarts=0)
        world.leave(1, Cause.TRAINER_LEFT)
        world.change(1, pod=PodState.FAILED, matched=matched(IGNORE))
        world.rejoin(0)
        world.up(1)
        assert (world.phase, world.state.restarts, world.state.replacements) == ("2 Formed", 0, {1: 1})

    def test_crashes_before_a_join_do_not_count(self) -> None:
        world = World(replicas=2, max_restarts=1)
        world.start(0, 1)
        world.change(1, pod=PodState.CRASH_LOOP, crashes=5, matched=matched(IGNORE))
        assert world.phase == "1 Forming"
        world.change(1, matched=None)
        assert (world.phase, world.state.outcome) == ("1 Forming", None)  # the other may train alone
        world.spec = replace(world.spec, min_replicas=2)
        world.step()
        assert (world.phase, world.state.outcome) == ("1 Closed", Outcome.FAILED)

    def test_nor_do_pods_that_fail_before_any_round_though_the_next_one_waits(self) -> None:
        world = World(replicas=1, max_restarts=0)
        for _ in range(3):
            world.start(0)
            world.change(0, pod=PodState.FAILED, matched=matched(IGNORE))
            world.wait(300)
        failures = world.state.clocks.failures[0]
        assert (world.phase, failures.in_a_row, failures.before_any_round) == ("1 Forming", 3, 0)


class TestCount:
    def test_a_lost_pod_counts(self) -> None:
        world = formed(2, max_restarts=1)
        world.change(1, matched=matched(COUNT))  # its condition alone is no loss yet
        assert world.phase == "1 Formed"
        world.delete(1)
        world.rejoin(0)
        world.up(1)
        assert (world.phase, world.state.restarts) == ("2 Formed", 1)

    def test_one_too_many_ends_the_job_as_ever(self) -> None:
        world = formed(2, max_restarts=0)
        fail(world, 1, matched(COUNT))
        world.rejoin(0)
        assert (world.state.outcome, world.state.cause, world.state.restarts) == (Outcome.FAILED, Outcome.FAILED, 1)

    def test_before_a_rule_that_ignores_it_is_the_one_that_decides(self) -> None:
        world = formed(2)
        fail(world, 0, matched(IGNORE, rule=1))
        fail(world, 1, matched(COUNT, rule=0))
        assert (world.phase, world.state.restarts) == ("2 Formed", 1)


class TestOfWhichRound:
    def test_what_a_member_has_done_before_it_stops_is_of_an_earlier_one(self) -> None:
        world = formed(2)
        world.change(0, matched=matched(FAIL_JOB))  # as its container's last end says, of before the round
        fail(world, 1)
        assert (world.phase, world.state.matched) == ("2 Forming", None)
        world.change(0, matched=None)
        world.rejoin(0)
        assert (world.phase, world.state.restarts) == ("2 Formed", 1)

    def test_a_planned_end_is_no_failure_whatever_processes_end_with(self) -> None:
        world = formed(2)
        world.scale(3)
        world.up(2)
        assert world.phase == "2 Forming"
        fail(world, 1, matched(FAIL_JOB), cause=Cause.MEMBERSHIP_CHANGED)
        world.rejoin(0)
        assert (world.phase, world.state.restarts) == ("2 Formed", 0)

    def test_who_heard_of_the_end_first_still_tells_of_its_failure(self) -> None:
        world = formed(2)
        fail(world, 0)
        fail(world, 1, matched(FAIL_JOB), cause=Cause.MEMBERSHIP_CHANGED)
        assert (world.phase, world.state.outcome) == ("2 Closed", Outcome.FAILED)

    def test_who_was_told_to_leave_is_not_asked(self) -> None:
        world = formed(3)
        world.scale(2)
        world.change(2, pod=PodState.FAILED, matched=matched(FAIL_JOB))
        fail(world, 1)
        world.rejoin(0)
        assert world.state.outcome is None
