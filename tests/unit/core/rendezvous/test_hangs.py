# SPDX-License-Identifier: Apache-2.0
"""A training that hangs: its round is ended as by a failure of the training."""

from dataclasses import replace

from elasticjob.rendezvous import PodState
from elasticjob.terms import Outcome, RequestCause, RoundCause
from support.job_on_paper import formed

WHY = "no member has reported for 60 s: worker 1's training process is stopped"


def test_the_round_is_ended_and_one_failure_is_counted() -> None:
    job = formed(3)
    job.change(1, hung=WHY)
    assert (job.phase, job.state.cause, job.state.reason) == ("2 Forming", RoundCause.TRAINING_HUNG, WHY)
    assert (job.state.planned, job.state.restarts) == (False, 0)
    job.rejoin(0, 2)
    job.change(1, hung="")
    job.rejoin(1)
    assert (job.phase, job.ranks, job.state.restarts) == ("2 Formed", [0, 1, 2], 1)


def test_one_hang_too_many_ends_the_job() -> None:
    job = formed(2, max_restarts=0)
    job.change(0, hung=WHY)
    job.change(0, hung="")
    job.rejoin(0, 1)
    assert job.state.outcome is Outcome.FAILED
    assert job.state.reason == f"{WHY}: failure 1, and maxRestarts is 0"


def test_the_loss_of_a_member_explains_it() -> None:
    """Its node was cut off: the training did not hang by itself."""
    job = formed(2)
    job.change(0, hung=WHY)
    job.delete(1)
    job.change(0, hung="")
    job.rejoin(0)
    job.up(1)
    assert (job.phase, job.state.restarts) == ("2 Formed", 0)


def test_a_loss_in_the_same_step_is_the_cause() -> None:
    job = formed(2)
    pod_key = job.pod_key(0)
    job.workers[pod_key] = replace(job.workers[pod_key], hung=WHY)
    job.delete(1)
    assert (job.state.cause, job.state.failure) == ("PodDeleted", "")


def test_who_does_not_come_back_is_replaced() -> None:
    job = formed(2)
    job.change(1, hung=WHY)
    job.rejoin(0)
    job.wait(120, living=(0, 1))
    assert any("worker 1 lost: its trainer has neither joined again nor left within 75 s" in one for one in job.log)


def test_after_a_close_the_round_goes_on_to_its_end() -> None:
    job = formed(2)
    job.close(0)
    for index in (0, 1):
        job.change(index, hung=WHY)
    assert (job.phase, job.state.outcome) == ("1 Closed", Outcome.CLOSED)


def test_a_worker_that_has_finished_hangs_no_more() -> None:
    job = formed(2)
    job.finish(1)
    job.change(1, hung=WHY)
    assert job.phase == "1 Formed"


def test_while_a_round_forms_nobody_hangs() -> None:
    job = formed(2)
    job.leave(1, RequestCause.TRAINER_LEFT)
    job.change(0, hung=WHY)
    assert (job.phase, job.state.cause) == ("2 Forming", "TrainerLeft")


def test_a_pod_that_failed_is_lost_and_does_not_hang() -> None:
    job = formed(2)
    job.change(1, hung=WHY, pod=PodState.FAILED)
    assert job.state.cause == "PodFailed"
