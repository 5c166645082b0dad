"""A training that hangs: its round is ended as by a failure of the training."""

from dataclasses import replace

from elasticjob.rendezvous import PodState
from elasticjob.terms import Cause, Outcome, RoundCause
from support.rendezvous_world import formed

WHY = "no member has reported for 60 s: worker 1's training process is stopped"


def test_the_round_is_ended_and_one_failure_is_counted() -> None:
    world = formed(3)
    world.change(1, hung=WHY)
    assert (world.phase, world.state.cause, world.state.reason) == ("2 Forming", RoundCause.TRAINING_HUNG, WHY)
    assert (world.state.planned, world.state.restarts) == (False, 0)
    world.rejoin(0, 2)
    world.change(1, hung="")
    world.rejoin(1)
    assert (world.phase, world.ranks, world.state.restarts) == ("2 Formed", [0, 1, 2], 1)


def test_one_hang_too_many_ends_the_job() -> None:
    world = formed(2, max_restarts=0)
    world.change(0, hung=WHY)
    world.change(0, hung="")
    world.rejoin(0, 1)
    assert world.state.outcome is Outcome.FAILED
    assert world.state.reason == f"{WHY}: failure 1, and maxRestarts is 0"


def test_the_loss_of_a_member_explains_it() -> None:
    """Its node was cut off: the training did not hang by itself."""
    world = formed(2)
    world.change(0, hung=WHY)
    world.delete(1)
    world.change(0, hung="")
    world.rejoin(0)
    world.up(1)
    assert (world.phase, world.state.restarts) == ("2 Formed", 0)


def test_a_loss_in_the_same_step_is_the_cause() -> None:
    world = formed(2)
    pod_key = world.pod_key(0)
    world.workers[pod_key] = replace(world.workers[pod_key], hung=WHY)
    world.delete(1)
    assert (world.state.cause, world.state.failure) == ("PodDeleted", "")


def test_who_does_not_come_back_is_replaced() -> None:
    world = formed(2)
    world.change(1, hung=WHY)
    world.rejoin(0)
    world.wait(120, living=(0, 1))
    assert any("worker 1 lost: its trainer has neither joined again nor left within 75 s" in one for one in world.log)


def test_after_a_close_the_round_goes_on_to_its_end() -> None:
    world = formed(2)
    world.close(0)
    for index in (0, 1):
        world.change(index, hung=WHY)
    assert (world.phase, world.state.outcome) == ("1 Closed", Outcome.CLOSED)


def test_a_worker_that_has_finished_hangs_no_more() -> None:
    world = formed(2)
    world.finish(1)
    world.change(1, hung=WHY)
    assert world.phase == "1 Formed"


def test_while_a_round_forms_nobody_hangs() -> None:
    world = formed(2)
    world.leave(1, Cause.TRAINER_LEFT)
    world.change(0, hung=WHY)
    assert (world.phase, world.state.cause) == ("2 Forming", "TrainerLeft")


def test_a_pod_that_failed_is_lost_and_does_not_hang() -> None:
    world = formed(2)
    world.change(1, hung=WHY, pod=PodState.FAILED)
    assert world.state.cause == "PodFailed"
