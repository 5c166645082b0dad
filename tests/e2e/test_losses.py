"""Workers that are lost or fail: the others are told, and the group forms anew at its full size."""

import time

import pytest

from e2e.job import SIDECAR, Job, kill_container, manifest, restarts
from e2e.kube import wait_until
from e2e.timings import Timings

TOLD_SECONDS = 10  # two seconds are wanted; the table at the end tells how long it took


def test_a_deleted_pod_is_replaced(job: Job, timings: Timings) -> None:
    """Rank 0's, behind which the round's store serves: its loss is the same as any other."""
    job.apply(replicas=3)
    first = job.wait_for_round(3)
    before = job.wait_for_training(3)
    lost, *survivors = job.member_pods()

    deleted = job.delete_pod(lost)
    second = job.wait_for_round(3, after=first)
    told = job.told(first)
    job.wait_for_training(3, other_than=before)

    assert told is not None
    timings.note("kubectl delete pod to survivors told", told - deleted)
    timings.note("kubectl delete pod to the new round", second.at - deleted)
    assert told - deleted < TOLD_SECONDS
    assert second.number == first.number + 1
    assert second.reason == "worker 0 lost: its pod was deleted"
    assert second.members == (1, 2, 0), "survivors keep their order, the newcomer follows"
    again = job.pods()
    assert again[0]["metadata"]["name"] == "train-0-1"
    assert [again[index]["metadata"]["uid"] for index in (1, 2)] == [pod["metadata"]["uid"] for pod in survivors]
    assert [restarts(again[index]) for index in (1, 2)] == [0, 0]
    assert job.status["restarts"] == 0, "the loss of a pod never counts against the budget"


def test_a_killed_trainer_restarts_in_place(job: Job, timings: Timings) -> None:
    job.apply(replicas=2)
    first = job.wait_for_round(2)
    before = job.wait_for_training(2)
    victim = job.pods()[1]

    killed = job.kill_trainer(victim)
    second = job.wait_for_round(2, after=first)
    told = job.told(first)
    job.wait_for_training(2, other_than=before)

    assert told is not None
    timings.note("kill -9 of a trainer to survivors told", told - killed)
    timings.note("kill -9 of a trainer to the new round", second.at - killed)
    assert told - killed < TOLD_SECONDS
    assert second.number == first.number + 1
    assert second.members == (0, 1)
    assert job.pods()[1]["metadata"]["uid"] == victim["metadata"]["uid"], "the same pod"
    wait_until("the restart in the pod's status", lambda: restarts(job.pods()[1]) == 1, 10)
    assert restarts(job.pods()[1], SIDECAR) == 0, "the membership stayed"
    assert restarts(job.pods()[0]) == 0
    assert job.status["restarts"] == 1


def test_a_killed_sidecar_restarts_in_place(job: Job, timings: Timings) -> None:
    """Rank 0's, through which all reach the store."""
    job.apply(replicas=2)
    first = job.wait_for_round(2)
    before = job.wait_for_training(2)
    victim = job.pods()[0]

    killed = time.monotonic()
    kill_container(victim, SIDECAR)
    second = job.wait_for_round(2, after=first)
    timings.note("kill -9 of rank 0's sidecar to the new round", second.at - killed)
    job.wait_for_training(2, other_than=before)

    assert second.number == first.number + 1
    assert second.reason == "worker 0's sidecar was restarted"
    assert job.pods()[0]["metadata"]["uid"] == victim["metadata"]["uid"], "the same pod"
    assert restarts(job.pods()[0]) == 0, "the trainer's container ran on"
    assert job.status["restarts"] == 0


def test_a_job_that_fails_again_and_again_ends(job: Job) -> None:
    job.apply(replicas=2, maxRestarts=1, env={"FAIL_AT_STEP": "3"})
    failed = job.wait_for_condition("Failed", seconds=180)

    assert failed["reason"] == "Failed"
    assert "maxRestarts is 1" in failed["message"]
    assert job.status["phase"] == "Failed"
    assert job.status["restarts"] == 2
    assert [one.number for one in job.rounds()] == [1, 2], "one new round for the one restart that is allowed"
    assert any(event["reason"] == "Failed" and event["type"] == "Warning" for event in job.events())
    job.namespace.kubectl("wait", "elasticjob/train", "--for=condition=Failed", "--timeout=5s")

    wait_for_the_end_of_all_pods(job)


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        (
            "echo no such model >&2; exit 3",
            "worker 0 ended 1 times before it joined, and maxRestarts is 0: exit code 3: no such model",
        ),
        ("true", "its command must be torchrun, without --standalone and --rdzv-backend"),
    ],
    ids=["fails", "succeeds"],
)
def test_a_trainer_that_ends_without_joining_is_told(job: Job, command: str, sentence: str) -> None:
    template = manifest("train")["spec"]["template"]
    template["spec"]["containers"][0]["command"] = ["sh", "-c", command]
    job.apply(replicas=1, maxRestarts=0, template=template)
    assert sentence in job.wait_for_condition("Failed")["message"]
    wait_for_the_end_of_all_pods(job)


def wait_for_the_end_of_all_pods(job: Job) -> None:
    def running() -> list[str]:
        return [
            name for name, pod in job.pod_states.present().items() if pod["status"]["phase"] in ("Pending", "Running")
        ]

    wait_until("all workers to end", lambda: not running(), 60, running)
