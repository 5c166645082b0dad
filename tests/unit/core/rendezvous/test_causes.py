# SPDX-License-Identifier: Apache-2.0
"""The words beside the rules' sentences, by which metrics count: each round and loss has one, and there are few.

`test_rendezvous_random.py` shows of random lives that whatever the rules say of rounds and losses has one of them."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from elasticjob.rendezvous import PodState
from elasticjob.terms import Loss, RequestCause
from support.job_on_paper import JobOnPaper, formed


def test_a_loss_has_one_word_as_the_rounds_end_and_as_the_next_ones_cause() -> None:
    job = formed(2)
    job.delete(1)
    job.rejoin(0)
    job.up(1)
    assert job.words[1:] == [
        ("WorkerLost", "PodDeleted"),
        ("RoundBroken", "PodDeleted"),
        ("RoundFormed", "PodDeleted"),
    ]


def test_plans_have_words_too() -> None:
    job = formed(2)
    job.suspend(True)
    assert job.words[-1] == ("RoundBroken", "Suspended")
    job = formed(1)
    job.scale(2)
    job.up(1)
    assert job.words[-1] == ("RoundReopened", "Scaled")


def test_what_a_worker_says_is_no_word() -> None:
    job = formed(2)
    job.leave(1, "MyOwnWord")
    assert job.words[-1] == ("RoundBroken", "Other")
    job = formed(2)
    job.leave(1, RequestCause.TRAINER_LEFT)
    assert job.words[-1] == ("RoundBroken", "TrainerLeft")


@pytest.mark.parametrize("detail", ["", "line\nworker 2 came back", "scaled from 1 to 2"])
def test_what_a_pod_says_is_no_word(detail: str) -> None:
    job = formed(2)
    job.change(1, pod=PodState.FAILED, detail=detail)
    assert job.words[1:] == [("WorkerLost", "PodFailed"), ("RoundBroken", "PodFailed")]


def test_the_first_round_is_the_first_formation() -> None:
    assert formed(1).words == [("RoundFormed", "FirstFormation")]


def test_a_round_that_ended_under_an_operator_without_these_words_has_another() -> None:
    job = formed(2)
    job.delete(1)
    job.state = replace(job.state, cause="")
    job.rejoin(0)
    job.up(1)
    assert job.words[-1] == ("RoundFormed", "Other")


def vanish(job: JobOnPaper) -> None:
    del job.workers[job.pod_key(1)]
    job.step()


def disrupt(job: JobOnPaper) -> None:
    job.leave(1, RequestCause.POD_STOPPING)
    job.change(1, pod=PodState.SUCCEEDED, disrupted=True)


def end_suspended(job: JobOnPaper) -> None:
    pod_key = job.pod_key(1)
    job.workers[pod_key] = replace(job.workers[pod_key], pod=PodState.SUCCEEDED)
    job.suspend(True)


def end_unfinished(job: JobOnPaper) -> None:
    job.leave(1, RequestCause.TRAINER_LEFT)
    job.exit(1)


def hang(job: JobOnPaper) -> None:
    job.delete(1)
    job.wait(120, living=(0,))


def spoil(job: JobOnPaper) -> None:
    job.spoil(1)
    job.wait(20, living=(0,))


def fall_silent(job: JobOnPaper) -> None:
    job.suspect(0, 1)
    job.wait(10, living=(0,))


LOST_BY: dict[str, Callable[[JobOnPaper], object]] = {
    "PodDeleted": lambda job: job.delete(1),
    "PodFailed": lambda job: job.change(1, pod=PodState.FAILED),
    "PodRejected": lambda job: job.change(1, pod=PodState.FAILED, rejected=True),
    "PodGone": vanish,
    "PodDisrupted": disrupt,
    "EndedSuspended": end_suspended,
    "EndedUnfinished": end_unfinished,
    "TrainerCrashed": lambda job: job.change(1, pod=PodState.CRASH_LOOP),
    "TrainerHung": hang,
    "StoreNotReady": lambda job: job.leave(0, RequestCause.STORE_NOT_READY),
    "InvalidRecord": spoil,
    "Unresponsive": fall_silent,
}


def test_there_is_a_story_of_each_loss() -> None:
    assert set(Loss) == set(LOST_BY)


@pytest.mark.parametrize("word", LOST_BY)
def test_each_loss_has_its_word(word: str) -> None:
    job = formed(2)
    LOST_BY[word](job)
    assert ("WorkerLost", word) in job.words, job.log


def test_the_workers_whose_containers_go_on_are_named_in_order() -> None:
    """Pods are seen in any order."""
    job = formed(3, finish=100)
    job.workers = dict(reversed(job.workers.items()))
    job.succeed(0, 1, 2)
    job.wait(150, (0, 1, 2))
    assert "the containers of workers 0, 1, 2 go on" in job.state.reason
