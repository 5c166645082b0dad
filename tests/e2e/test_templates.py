# SPDX-License-Identifier: Apache-2.0
"""Pods that another job of the name has left behind."""

from e2e.job import ROUND_SECONDS, Job
from support.waiting import settled


def test_pods_that_an_earlier_job_left_behind_do_not_keep_another_from_training(job: Job) -> None:
    """Nor from being replaced: it takes other numbers. What was left stays, as was asked for."""
    job.apply(replicas=2)
    job.wait_for_round(2)
    former = job.uid
    left = {pod["metadata"]["uid"] for pod in settled(job.pods(), "both train").values()}
    job.namespace.kubectl("delete", "elasticjob", job.name, "--cascade=orphan")
    job.apply(replicas=2)

    def trains() -> bool:
        return job.uid != former and job.rendezvous.get("phase") == "Formed"

    job.until("the new job's round", trains, ROUND_SECONDS)
    pods = settled(job.namespace.list("pods"), "all train, or were left behind")
    names = {pod["metadata"]["name"] for pod in pods}
    assert names == {f"{job.name}-{index}-{number}" for index in (0, 1) for number in (0, 1)}
    assert left < {pod["metadata"]["uid"] for pod in pods}
    assert job.restarts == 0
    job.namespace.kubectl("delete", "pod", f"{job.name}-1-1", "--now")

    def replaced() -> bool:
        return f"{job.name}-1-2" in {pod["metadata"]["name"] for pod in job.namespace.list("pods")}

    job.until("the replacement", replaced, ROUND_SECONDS)
