# SPDX-License-Identifier: Apache-2.0
"""How a job ends well, and how it rests."""

import json

import pytest

from e2e.job import TRAINER, Job, container_status, restarts, warm_restart
from e2e.kube import wait_until
from support.waiting import settled


@pytest.mark.real
@pytest.mark.extended
@pytest.mark.torchrun
@pytest.mark.parametrize("warm", [False, True], ids=["fresh", "warm"])
def test_a_job_completes_when_its_last_worker_has(job: Job, warm: bool) -> None:
    """Rank 0 saves for three seconds after the last step; it is waited for."""
    job.apply(replicas=2, env={"FINISH_SECONDS": "3,0"}, warmRestart=warm_restart(warm))
    first = job.wait_for_round(2)
    job.wait_for_training(2)
    job.finish_training()
    job.wait_for_condition("Complete")

    assert settled(job.status["phase"], "written with the condition") == "Complete"
    agreed = settled(job.rendezvous, "written with the condition")
    assert (agreed["phase"], agreed["outcome"]) == ("Closed", "Complete")
    assert job.rounds() == [first], "the end of one worker is no loss to the others"
    job.logged(job.pod(0), "saved")
    job.namespace.kubectl("wait", "elasticjob/train", "--for=condition=Complete", "--timeout=240s")

    def phases() -> list[str]:
        return [pod["status"]["phase"] for _, pod in sorted(job.pods().items())]

    wait_until("the pods to succeed", lambda: phases() == ["Succeeded", "Succeeded"], 60, phases)
    for pod in job.pods().values():
        assert container_status(pod, TRAINER)["state"]["terminated"]["exitCode"] == 0
        assert restarts(pod) == 0


def test_ttl_deletes_a_job_that_has_ended(job: Job) -> None:
    job.apply(replicas=1, ttlSecondsAfterFinished=1, env={"STEPS": "1"})
    wait_until("the job to be gone", lambda: job.jobs.of("train") and not job.jobs.present(), 120, job.summary)
    job.wait_for_no_pods()


def test_a_job_that_takes_longer_than_it_may_has_failed(job: Job) -> None:
    job.apply(replicas=2)
    job.wait_for_round(2)
    job.patch('{"spec": {"activeDeadlineSeconds": 1}}')
    failed = job.wait_for_condition("Failed")
    assert failed["reason"] == "DeadlineExceeded"
    status = settled(job.status, "written with the condition")
    assert (status["phase"], status["reason"], status["restarts"]) == ("Failed", "DeadlineExceeded", 0)
    wait_until("the pods to end", lambda: all(pod["status"]["phase"] == "Failed" for pod in job.pods().values()), 60)


def test_a_restart_starts_all_processes_anew_in_their_pods(job: Job) -> None:
    job.apply(replicas=2, maxRestarts=0)
    first = job.wait_for_round(2)
    before = job.wait_for_training(2)
    pods = {index: pod["metadata"]["uid"] for index, pod in settled(job.pods(), "both train").items()}
    job.patch('{"spec": {"restartedAt": "2026-01-02T03:04:05Z"}}')
    second = job.wait_for_round(2, after=first)
    job.wait_for_training(2, other_than=before)
    assert (second.members, second.reason) == (first.members, "a restart was asked for at 2026-01-02T03:04:05Z")
    assert job.restarts == 0
    now = settled(job.pods(), "a restart makes no pods")
    assert {index: pod["metadata"]["uid"] for index, pod in now.items()} == pods


def test_suspend_and_resume(job: Job) -> None:
    job.apply(replicas=2)
    first = job.wait_for_round(2)
    before = job.wait_for_training(2)

    job.patch('{"spec": {"suspend": true}}')
    job.wait_for_condition("Suspended")
    job.wait_for_no_pods()
    assert settled(job.status["phase"], "written with the condition") == "Suspended"
    job.until("the status to count no pods", lambda: job.status["replicas"] == 0, 30)
    job.wait_for_condition("Rendezvoused", "False", reason="Suspended")
    finished = settled(job.condition("Complete")["reason"], "it is suspended")
    assert not finished, "workers that were told to go have not finished"

    changed = job.manifest(env={"CHANGED": "while suspended"})["spec"]["template"]
    job.patch(json.dumps({"spec": {"suspend": False, "template": changed}}))
    second = job.wait_for_round(2, after=first)
    job.wait_for_training(2, other_than=before)
    assert second.number == first.number + 1
    assert second.reason == "resumed"
    job.wait_for_condition("Suspended", "False")
    assert job.restarts == 0
    trainer = job.pod(0)["spec"]["containers"][0]
    assert {"name": "CHANGED", "value": "while suspended"} in trainer["env"]
