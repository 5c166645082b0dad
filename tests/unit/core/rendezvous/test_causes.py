"""The words beside the rules' sentences, by which metrics count: each round and loss has one, and there are few."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import settings

from elasticjob.rendezvous import PodState
from elasticjob.terms import Cause, Loss, Outcome, RoundCause
from support.rendezvous_world import World, formed
from unit.core.rendezvous.test_rendezvous_random import JobLife

ROUNDS = {"RoundFormed", "RoundBroken", "RoundReopened", *Outcome}
WORDS = {*Loss, *Cause, *RoundCause, *Outcome} - {RoundCause.OTHER}


def words(world: World) -> list[tuple[str, str]]:
    """Each event of a round or a loss, and its word."""
    return [(one.reason, one.cause) for one in world.events if one.reason in ROUNDS or one.reason == "WorkerLost"]


class Told(JobLife):
    """Random lives: whatever the rules say of rounds and losses, there is a word for it."""

    def teardown(self) -> None:
        super().teardown()
        assert {word for _, word in words(self.world)} <= WORDS, self.world.events


TestTold = Told.TestCase
TestTold.settings = settings(max_examples=50, stateful_step_count=60, deadline=None, derandomize=True)


def test_a_loss_has_one_word_as_the_rounds_end_and_as_the_next_ones_cause() -> None:
    world = formed(2)
    world.delete(1)
    world.rejoin(0)
    world.up(1)
    assert words(world)[1:] == [
        ("WorkerLost", "PodDeleted"),
        ("RoundBroken", "PodDeleted"),
        ("RoundFormed", "PodDeleted"),
    ]


def test_plans_have_words_too() -> None:
    world = formed(2)
    world.suspend(True)
    assert words(world)[-1] == ("RoundBroken", "Suspended")
    world = formed(1)
    world.scale(2)
    world.up(1)
    assert words(world)[-1] == ("RoundReopened", "Scaled")


def test_what_a_worker_says_is_no_word() -> None:
    world = formed(2)
    world.leave(1, "MyOwnWord")
    assert words(world)[-1] == ("RoundBroken", "Other")
    world = formed(2)
    world.leave(1, Cause.TRAINER_LEFT)
    assert words(world)[-1] == ("RoundBroken", "TrainerLeft")


@pytest.mark.parametrize("detail", ["", "line\nworker 2 came back", "scaled from 1 to 2"])
def test_what_a_pod_says_is_no_word(detail: str) -> None:
    world = formed(2)
    world.change(1, pod=PodState.FAILED, detail=detail)
    assert words(world)[1:] == [("WorkerLost", "PodFailed"), ("RoundBroken", "PodFailed")]


def test_the_first_round_is_the_first_formation() -> None:
    assert words(formed(1)) == [("RoundFormed", "FirstFormation")]


def test_a_round_that_ended_under_an_operator_without_these_words_has_another() -> None:
    world = formed(2)
    world.delete(1)
    world.state = replace(world.state, cause="")
    world.rejoin(0)
    world.up(1)
    assert words(world)[-1] == ("RoundFormed", "Other")


def vanish(world: World) -> None:
    del world.workers[world.pod_key(1)]
    world.step()


def disrupt(world: World) -> None:
    world.leave(1, Cause.POD_STOPPING)
    world.change(1, pod=PodState.SUCCEEDED, disrupted=True)


def end_suspended(world: World) -> None:
    pod_key = world.pod_key(1)
    world.workers[pod_key] = replace(world.workers[pod_key], pod=PodState.SUCCEEDED)
    world.suspend(True)


def end_unfinished(world: World) -> None:
    world.leave(1, Cause.TRAINER_LEFT)
    world.exit(1)


def hang(world: World) -> None:
    world.delete(1)
    world.wait(120, living=(0,))


def spoil(world: World) -> None:
    world.spoil(1)
    world.wait(20, living=(0,))


def fall_silent(world: World) -> None:
    world.doubt(0, 1)
    world.wait(10, living=(0,))


LOST_BY: dict[str, Callable[[World], object]] = {
    "PodDeleted": lambda world: world.delete(1),
    "PodFailed": lambda world: world.change(1, pod=PodState.FAILED),
    "PodGone": vanish,
    "PodDisrupted": disrupt,
    "EndedSuspended": end_suspended,
    "EndedUnfinished": end_unfinished,
    "TrainerCrashed": lambda world: world.change(1, pod=PodState.CRASH_LOOP),
    "TrainerHung": hang,
    "StoreNotReady": lambda world: world.leave(0, Cause.STORE_NOT_READY),
    "InvalidRecord": spoil,
    "NoAnswer": fall_silent,
}


def test_there_is_a_story_of_each_loss() -> None:
    assert set(Loss) == set(LOST_BY)


@pytest.mark.parametrize("word", LOST_BY)
def test_each_loss_has_its_word(word: str) -> None:
    world = formed(2)
    LOST_BY[word](world)
    assert ("WorkerLost", word) in words(world), world.log
