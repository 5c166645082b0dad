# SPDX-License-Identifier: Apache-2.0
"""Kueue's quotas: a job trains with the workers that are admitted, grows when there is quota, and gives it back."""

from typing import Any

import pytest

from e2e.job import Job
from e2e.kueue import PRIORITY, QUEUE, leaves_no_quota_in_use, queue

pytestmark = pytest.mark.real

TOLD_SECONDS = 30


def apply_queued(job: Job, name: str, priority: str = "low", **settings: Any) -> None:
    body = job.manifest(**settings)
    body["metadata"]["labels"] = {QUEUE: name, PRIORITY: priority}
    job.namespace.apply(body)


@pytest.mark.extended
def test_a_job_trains_with_what_is_admitted_and_grows_when_another_ends(queues: None, job: Job, other: Job) -> None:
    with queue("shared", 4, job.namespace, other.namespace):
        apply_queued(other, "shared", replicas=2)
        other.wait_for_round(2)
        apply_queued(job, "shared", replicas=4, minReplicas=2)
        first = job.wait_for_round(2)
        before = job.wait_for_training(2)
        job.until("the condition", lambda: waits_for_quota(job, "2 of 4", "shared"), TOLD_SECONDS)
        assert job.wait_for_event("QuotaPending")["type"] == "Normal"

        other.wait_for_training(2)
        other.finish_training()
        other.wait_for_condition("Complete")
        whole = job.wait_for_round(4, after=first)
        job.wait_for_training(4, other_than=before)
        job.until("nothing to wait for", lambda: job.status.get("reason", "") == "", TOLD_SECONDS)
        assert job.restarts == 0
        assert whole.reason.endswith(" joined")


@pytest.mark.extended
def test_a_preempted_worker_is_no_failure_and_comes_back(queues: None, job: Job, other: Job) -> None:
    with queue("contended", 4, job.namespace, other.namespace):
        apply_queued(job, "contended", replicas=4, minReplicas=1, maxRestarts=0)
        full, before = job.wait_for_round(4), job.wait_for_training(4)
        apply_queued(other, "contended", priority="high", replicas=2)
        other.wait_for_round(2)
        smaller = job.wait_for_round(2, after=full)
        training = job.wait_for_training(2, other_than=before)
        assert "Preempted to accommodate a workload" in smaller.reason
        assert job.restarts == 0

        other.namespace.kubectl("delete", "elasticjob", other.name)
        job.wait_for_round(4, after=smaller)
        job.wait_for_training(4, other_than=training)
        assert job.restarts == 0


@pytest.mark.extended
def test_many_resizes_leave_no_quota_in_use(queues: None, job: Job) -> None:
    with queue("resized", 3, job.namespace):
        apply_queued(job, "resized", replicas=2, maxReplicas=5, rendezvous={"lastCallSeconds": 5})
        job.wait_for_round(2)
        leaves_no_quota_in_use(job, "resized", 3)


def waits_for_quota(job: Job, workers: str, queue: str) -> bool:
    """Whether the status says that so many workers wait in that queue."""
    said = f"; {workers} workers wait for quota: in the queue {queue}; "
    return job.status.get("reason", "") == "QuotaPending" and said in job.condition("Rendezvoused")["message"]
