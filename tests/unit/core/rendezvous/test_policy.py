# SPDX-License-Identifier: Apache-2.0
"""The job's policy for failures, story by story; which rule matches a worker is read elsewhere and given here."""

from dataclasses import replace

import pytest

from elasticjob.rendezvous import Matched, PodState, Request
from elasticjob.terms import Outcome, PolicyAction, RequestCause, RequestType, RoundCause
from support.job_on_paper import JobOnPaper, formed

FAIL_JOB, IGNORE, COUNT = PolicyAction.FAIL_JOB, PolicyAction.IGNORE, PolicyAction.COUNT


def matched(action: PolicyAction, rule: int = 0) -> Matched:
    return Matched(rule, action, f"rule {rule} says {action}")


def fail(job: JobOnPaper, index: int, by: Matched | None = None, cause: str = RequestCause.WORKER_FAILED) -> None:
    """Its processes fail, and it joins again."""
    join = Request(type=RequestType.JOIN, after=job.state.last_formed, cause=cause, detail="exit code 42")
    job.change(index, request=join, matched=by)


class TestFailJob:
    def test_the_job_fails_without_another_try(self) -> None:
        job = formed(2)
        fail(job, 1, matched(FAIL_JOB))
        assert (job.phase, job.state.matched) == ("2 Forming", matched(FAIL_JOB))
        job.rejoin(0)
        assert (job.phase, job.state.outcome, job.state.restarts) == ("2 Closed", Outcome.FAILED, 0)
        assert (job.state.cause, job.state.reason) == (RoundCause.POD_FAILURE_POLICY, "rule 0 says FailJob")
        assert job.told[-1] == "Failed"

    def test_with_one_worker_at_once(self) -> None:
        job = formed(1)
        fail(job, 0, matched(FAIL_JOB))
        assert (job.phase, job.state.outcome) == ("2 Closed", Outcome.FAILED)

    def test_no_new_pod_is_waited_for(self) -> None:
        job = formed(2)
        job.leave(1, RequestCause.TRAINER_LEFT)
        job.rejoin(0)
        assert job.phase == "2 Forming"
        job.change(1, pod=PodState.CRASH_LOOP, matched=matched(FAIL_JOB))
        assert (job.phase, job.state.outcome) == ("2 Closed", Outcome.FAILED)

    def test_a_failure_that_follows_from_a_lost_node_does_not_end_the_job(self) -> None:
        job = formed(3)
        fail(job, 1, matched(FAIL_JOB))
        job.rejoin(0)
        assert job.phase == "2 Forming"  # nobody knows of worker 2
        job.delete(2)
        assert (job.phase, job.state.failure, job.state.matched) == ("2 Forming", "", None)
        job.up(2)
        assert (job.phase, job.state.restarts) == ("2 Formed", 0)

    def test_what_is_known_survives_a_new_operator_and_the_pod(self) -> None:
        job = formed(2)
        job.leave(1, RequestCause.TRAINER_LEFT)
        job.change(1, pod=PodState.FAILED, matched=matched(FAIL_JOB))
        job.take_over()
        job.rejoin(0)
        assert (job.phase, job.state.outcome) == ("2 Closed", Outcome.FAILED)

    def test_a_suspended_job_is_judged_when_it_goes_on(self) -> None:
        job = formed(2)
        fail(job, 1, matched(FAIL_JOB))
        job.suspend(True)
        job.exit(0)
        job.exit(1)
        assert job.phase == "2 Forming"
        job.suspend(False)
        assert (job.phase, job.state.outcome) == ("2 Closed", Outcome.FAILED)

    def test_a_worker_that_fails_before_it_joins_ends_a_job_that_forms(self) -> None:
        job = JobOnPaper(replicas=2)
        job.start(0, 1)
        job.change(1, pod=PodState.CRASH_LOOP, crashes=1, matched=matched(FAIL_JOB))
        assert (job.phase, job.state.outcome) == ("1 Closed", Outcome.FAILED)

    def test_and_none_that_trains(self) -> None:
        job = formed(2)
        job.scale(3)
        job.start(2)
        job.change(2, pod=PodState.FAILED, matched=matched(FAIL_JOB))
        assert job.phase == "1 Formed"

    def test_nor_one_that_failed_while_others_trained_and_is_lost_with_its_node(self) -> None:
        job = formed(2, spares=1)
        job.up(2)
        job.change(2, matched=matched(FAIL_JOB))  # as its container ended before it joined
        job.suspect(0, 1, 2)
        job.wait(12, living=(0,))
        assert (job.phase, job.told.count("WorkerLost"), job.state.outcome) == ("2 Forming", 2, None)
        job.up(1)
        job.rejoin(0)
        assert (job.phase, job.state.restarts) == ("2 Formed", 0)

    def test_a_spare_ends_a_job_that_forms_where_a_rule_names_its_condition(self) -> None:
        job = formed(2, spares=1)
        job.up(2)
        fail(job, 1)
        job.change(2, deleting=True, disrupted=True, matched=matched(FAIL_JOB))
        assert (job.phase, job.state.outcome) == ("2 Closed", Outcome.FAILED)

    def test_a_lost_pod_ends_the_job_where_a_rule_names_its_condition(self) -> None:
        job = formed(2)
        job.change(1, pod=PodState.FAILED, disrupted=True, matched=matched(FAIL_JOB))
        job.rejoin(0)
        assert (job.phase, job.state.outcome) == ("2 Closed", Outcome.FAILED)


class TestIgnore:
    def test_a_failure_does_not_count_however_often_it_comes(self) -> None:
        job = formed(2, max_restarts=0)
        for _ in range(3):
            fail(job, 1, matched(IGNORE))
            job.rejoin(0)
            assert (job.state.restarts, job.state.failure, job.state.matched) == (0, "", None)
        assert (job.phase, job.told.count("FailureIgnored")) == ("4 Formed", 3)

    @pytest.mark.parametrize("first", [0, 1])
    def test_nor_do_those_of_its_peers_whichever_comes_first(self, first: int) -> None:
        job = formed(2, max_restarts=0)
        for index in (first, 1 - first):
            fail(job, index, matched(IGNORE) if index == 1 else matched(FAIL_JOB, rule=1))
        assert (job.phase, job.state.restarts) == ("2 Formed", 0)

    def test_a_pod_that_fails_does_not_count_and_is_replaced(self) -> None:
        job = formed(2, max_restarts=0)
        job.leave(1, RequestCause.TRAINER_LEFT)
        job.change(1, pod=PodState.FAILED, matched=matched(IGNORE))
        job.rejoin(0)
        job.up(1)
        assert (job.phase, job.state.restarts, job.state.replacements) == ("2 Formed", 0, {1: 1})

    def test_crashes_before_a_join_do_not_count(self) -> None:
        job = JobOnPaper(replicas=2, max_restarts=1)
        job.start(0, 1)
        job.change(1, pod=PodState.CRASH_LOOP, crashes=5, matched=matched(IGNORE))
        assert job.phase == "1 Forming"
        job.change(1, matched=None)
        assert (job.phase, job.state.outcome) == ("1 Forming", None)  # the other may train alone
        job.spec = replace(job.spec, min_replicas=2)
        job.step()
        assert (job.phase, job.state.outcome) == ("1 Closed", Outcome.FAILED)

    def test_nor_do_pods_that_fail_before_any_round_though_the_next_one_waits(self) -> None:
        job = JobOnPaper(replicas=1, max_restarts=0)
        for _ in range(3):
            job.start(0)
            job.change(0, pod=PodState.FAILED, matched=matched(IGNORE))
            job.wait(300)
        failures = job.state.clocks.failures[0]
        assert (job.phase, failures.in_a_row, failures.before_any_round) == ("1 Forming", 3, 0)


class TestCount:
    def test_a_lost_pod_counts(self) -> None:
        job = formed(2, max_restarts=1)
        job.change(1, matched=matched(COUNT))  # its condition alone is no loss yet
        assert job.phase == "1 Formed"
        job.delete(1)
        job.rejoin(0)
        job.up(1)
        assert (job.phase, job.state.restarts) == ("2 Formed", 1)

    def test_one_too_many_ends_the_job_as_ever(self) -> None:
        job = formed(2, max_restarts=0)
        fail(job, 1, matched(COUNT))
        job.rejoin(0)
        assert (job.state.outcome, job.state.cause, job.state.restarts) == (Outcome.FAILED, Outcome.FAILED, 1)

    def test_before_a_rule_that_ignores_it_is_the_one_that_decides(self) -> None:
        job = formed(2)
        fail(job, 0, matched(IGNORE, rule=1))
        fail(job, 1, matched(COUNT, rule=0))
        assert (job.phase, job.state.restarts) == ("2 Formed", 1)


class TestOfWhichRound:
    def test_what_a_member_has_done_before_it_stops_is_of_an_earlier_one(self) -> None:
        job = formed(2)
        job.change(0, matched=matched(FAIL_JOB))  # as its container's last end says, of before the round
        fail(job, 1)
        assert (job.phase, job.state.matched) == ("2 Forming", None)
        job.change(0, matched=None)
        job.rejoin(0)
        assert (job.phase, job.state.restarts) == ("2 Formed", 1)

    def test_a_planned_end_is_no_failure_whatever_processes_end_with(self) -> None:
        job = formed(2)
        job.scale(3)
        job.up(2)
        assert job.phase == "2 Forming"
        fail(job, 1, matched(FAIL_JOB), cause=RequestCause.MEMBERSHIP_CHANGED)
        job.rejoin(0)
        assert (job.phase, job.state.restarts) == ("2 Formed", 0)

    def test_who_heard_of_the_end_first_still_tells_of_its_failure(self) -> None:
        job = formed(2)
        fail(job, 0)
        fail(job, 1, matched(FAIL_JOB), cause=RequestCause.MEMBERSHIP_CHANGED)
        assert (job.phase, job.state.outcome) == ("2 Closed", Outcome.FAILED)

    def test_who_was_told_to_leave_is_not_asked(self) -> None:
        job = formed(3)
        job.scale(2)
        job.change(2, pod=PodState.FAILED, matched=matched(FAIL_JOB))
        fail(job, 1)
        job.rejoin(0)
        assert job.state.outcome is None


class TestTrainingThatLivesOn:
    @pytest.mark.parametrize(
        ("action", "phase", "restarts"),
        [(FAIL_JOB, "2 Closed", 0), (IGNORE, "2 Formed", 0), (COUNT, "2 Formed", 1)],
        ids=["fails the job", "is ignored", "is counted"],
    )
    def test_a_process_that_failed_is_judged_when_the_others_go_on(
        self, action: PolicyAction, phase: str, restarts: int
    ) -> None:
        job = formed(3)
        job.live(0, 1, 2)
        leave = Request(type=RequestType.LEAVE, cause=RequestCause.WORKER_FAILED, detail="exit code 42")
        job.change(1, request=leave, matched=matched(action))
        job.rejoin(0, live=True)
        assert job.phase == "2 Forming"
        job.rejoin(2, live=True)
        assert (job.phase, job.state.restarts) == (phase, restarts)

    def test_and_not_again_when_it_comes_back(self) -> None:
        job = formed(3)
        job.live(0, 1, 2)
        job.change(1, request=Request(type=RequestType.LEAVE, cause=RequestCause.WORKER_FAILED), matched=matched(COUNT))
        job.rejoin(0, 2, live=True)
        job.rejoin(1, live=True)
        job.rejoin(0, 2, live=True)
        assert (job.phase, job.ranks, job.state.restarts) == ("3 Formed", [0, 2, 1], 1)
