# SPDX-License-Identifier: Apache-2.0
"""What is left of a job's pods when it has ended: nothing that runs, and the logs."""

from typing import Any

import pytest

from e2e.job import SIDECAR, TRAINER, Job, container_status
from e2e.kube import Object, wait_until
from support.waiting import settled

SHIPPER: Object = {
    "name": "shipper",
    "image": "elasticjob/digits:dev",
    "command": ["sh", "-c", "trap 'echo bye; exit 0' TERM; while :; do sleep 1; done"],
}


SAVES = ["sh", "-c", "trap 'sleep 3; echo saved; exit 0' TERM; echo trains; while :; do sleep 0.1; done"]


def running(job: Job) -> list[str]:
    """The containers that run, in whichever pod."""
    return [
        f"{pod['metadata']['name']} {status['name']}"
        for pod in job.pod_states.present().values()
        for kind in ("initContainerStatuses", "containerStatuses")
        for status in pod["status"].get(kind, ())
        if "terminated" not in status["state"]
    ]


def wait_for_the_end_of_all_containers(job: Job) -> None:
    job.pod_states.catch_up()
    wait_until("every container to end", lambda: not running(job), 90, lambda: running(job))


def wait_for_log(job: Job, pod: str, container: str, text: str) -> None:
    """Until the container has printed it; the log may be behind what the API server tells."""

    def log() -> str:
        return job.namespace.try_kubectl("logs", pod, "--container", container).output

    wait_until(f"{container} of {pod} to log {text!r}", lambda: text in log(), 90, log)


def test_after_a_failure_the_logs_stay_and_nothing_runs(job: Job) -> None:
    job.apply(replicas=2, maxRestarts=1, env={"FAIL_AT_STEP": "3"})
    said = job.wait_for_condition("Failed", seconds=180)["message"]
    assert "RuntimeError: FAIL_AT_STEP is 3): failure 2, and maxRestarts is 1" in said
    node = {pod["spec"]["nodeName"] for pod in settled(job.pods(), "they are kept").values()}
    assert any(f"(on {name}: rank " in said for name in node), said

    wait_for_the_end_of_all_containers(job)
    job.wait_for_the_end_of_all_pods()  # a kubelet may tell of its phase later
    pods = settled(job.pod_states.present(), "all have ended, and are kept")
    assert sorted(pods) == ["train-0-0", "train-1-0"]
    for name, pod in pods.items():
        logs = (
            "logs",
            name,
            "--container",
            TRAINER,
        )
        lives = [job.namespace.try_kubectl(*logs, *previous).output for previous in ((), ("--previous",))]
        assert any("FAIL_AT_STEP is 3" in life for life in lives), lives
        assert (pod["status"]["phase"], pod["status"]["reason"]) == ("Failed", "DeadlineExceeded")
        (sidecar,) = (one for one in pod["status"]["initContainerStatuses"] if one["name"] == SIDECAR)
        assert "terminated" in sidecar["state"]


@pytest.mark.real
def test_a_container_beside_the_trainer_ends_with_it(job: Job) -> None:
    template: Any = job.manifest()["spec"]["template"]
    template["spec"]["containers"].append(SHIPPER)
    job.apply(replicas=2, template=template)
    job.wait_for_round(2)
    job.wait_for_training(2)
    job.finish_training()
    job.wait_for_condition("Complete")

    wait_for_the_end_of_all_containers(job)
    for name, pod in job.pod_states.present().items():
        assert container_status(pod, TRAINER)["state"]["terminated"]["exitCode"] == 0
        wait_for_log(job, name, SHIPPER["name"], "bye")
    assert len(settled(job.pod_states.present(), "all have ended, and are kept")) == 2


def test_a_pod_that_is_deleted_gives_its_trainer_the_time_to_save(job: Job) -> None:
    job.apply(replicas=1, trainer={"command": SAVES})
    wait_for_log(job, "train-0-0", TRAINER, "trains")
    with job.namespace.following("train-0-0", TRAINER) as followed:
        job.delete_pod(job.pod(0))
        assert "saved" in followed.whole()


@pytest.mark.parametrize("policy", ["All", "None"])
def test_a_job_may_keep_or_delete_all_of_its_pods(job: Job, policy: str) -> None:
    job.apply(replicas=1, cleanPodPolicy=policy, env={"STEPS": "1"})
    job.wait_for_condition("Complete")
    if policy == "All":
        job.wait_for_no_pods()
    else:
        job.wait_for_the_end_of_all_pods()
        pods = settled(job.pod_states.present(), "all have ended, and are kept")
        assert [pod["status"]["phase"] for pod in pods.values()] == ["Succeeded"]


def test_an_init_container_that_fails_too_often_keeps_its_log(job: Job) -> None:
    template: Any = job.manifest()["spec"]["template"]
    fetch = {"name": "fetch", "image": SHIPPER["image"], "command": ["sh", "-c", "echo no route >&2; exit 3"]}
    template["spec"]["initContainers"] = [fetch]
    job.apply(replicas=1, maxRestarts=0, template=template)
    said = job.wait_for_condition("Failed")["message"]
    assert "maxRestarts is 0: the init container fetch fails: exit code 3: no route" in said

    def ended() -> bool:
        return [pod["status"]["phase"] for pod in job.pod_states.present().values()] == ["Failed"]

    wait_until("the pod to end, and to stay", ended, 60, lambda: running(job))
    wait_for_log(job, "train-0-0", "fetch", "no route")
