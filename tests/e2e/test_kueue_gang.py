# SPDX-License-Identifier: Apache-2.0
"""Gang admission by a real Kueue: nothing of a job runs before its minimum has quota, and all of it is taken back."""

import json
from typing import Any

import pytest

from e2e.disruption import touch
from e2e.job import TRAINER, TRAINING_SECONDS, Job
from e2e.kube import Object, wait_until
from e2e.kueue import API, PRIORITY, QUEUE, leaves_no_quota_in_use, made, queue
from support.waiting import settled

pytestmark = pytest.mark.real

TOLD_SECONDS = 30
WORKLOADS = f"workloads.{API.partition('/')[0]}"


def apply_gang(job: Job, name: str, priority: str = "low", **settings: Any) -> None:
    body = job.manifest(quotaAdmission="Gang", **settings)
    body["metadata"]["labels"] = {QUEUE: name, PRIORITY: priority}
    job.namespace.apply(body)


def test_a_job_starts_when_its_minimum_has_quota_and_grows_when_another_ends(
    queues: None, job: Job, other: Job
) -> None:
    with queue("gangs", 4, job.namespace, other.namespace):
        apply_gang(other, "gangs", replicas=3)
        three = other.wait_for_round(3)
        apply_gang(job, "gangs", replicas=4, minReplicas=2)
        told = job.until("Kueue's word", lambda: said(job, "insufficient unused quota"), TOLD_SECONDS)
        assert told.startswith("4 workers wait for quota (at least 2 must have it): in the queue gangs: ")
        status = settled(job.status, "the quota is in use")
        assert (status["reason"], status["phase"]) == ("QuotaPending", "Pending")
        assert job.wait_for_event("QuotaPending")["type"] == "Normal"
        assert settled(job.pods(), "the quota is in use") == {}, "one would fit, and two are needed"

        other.scale(1)
        other.wait_for_round(1, after=three)
        part = job.wait_for_round(3)
        before = job.wait_for_training(3)
        job.until("one to wait", lambda: said(job, "1 of 4 workers wait for quota"), TOLD_SECONDS)
        held = "all quota to be in use"
        wait_until(held, lambda: admitted(job) + admitted(other) == 4, TOLD_SECONDS, lambda: workloads(job))
        other.wait_for_training(1)
        (pod,) = other.member_pods()
        touch(pod, TRAINER, "/tmp/finish")
        other.wait_for_condition("Complete")
        job.wait_for_round(4, after=part)
        job.wait_for_training(4, other_than=before)
        job.until("nothing to wait for", lambda: job.status.get("reason", "") == "", TOLD_SECONDS)
        assert (job.restarts, settled(job.status["replicas"], "all of them train")) == (0, 4)
        wait_until("the ended job's quota to go back", lambda: not workloads(other), TOLD_SECONDS)


@pytest.mark.extended
def test_a_preempted_job_goes_as_a_whole_and_comes_back(queues: None, job: Job, other: Job) -> None:
    with queue("contended-gangs", 4, job.namespace, other.namespace):
        apply_gang(job, "contended-gangs", replicas=4, minReplicas=2, maxRestarts=0)
        full, before = job.wait_for_round(4), job.wait_for_training(4)
        job.until("a checkpoint", lambda: job.saved_step() >= before.step, TRAINING_SECONDS)
        apply_gang(other, "contended-gangs", priority="high", replicas=2, minReplicas=2)
        job.wait_for_event("QuotaLost", "Preempted to accommodate a workload")
        other.wait_for_round(2)
        part = job.wait_for_round(2, after=full)
        training = job.wait_for_training(2, other_than=before)
        assert training.step >= before.step, "it goes on from its checkpoint"
        assert part.reason == "resumed"

        other.namespace.kubectl("delete", "elasticjob", other.name)
        job.wait_for_round(4, after=part)
        job.wait_for_training(4, other_than=training)
        assert job.restarts == 0


@pytest.mark.extended
def test_suspended_it_gives_all_quota_back_and_its_pods_are_no_business_of_kueues(queues: None, job: Job) -> None:
    with queue("alone", 2, job.namespace):
        apply_gang(job, "alone", replicas=2, minReplicas=2)
        formed = job.wait_for_round(2)
        for pod in job.pods().values():
            assert "schedulingGates" not in pod["spec"]
            assert QUEUE not in pod["metadata"]["labels"]
        held = settled(workloads(job), "all of them train")
        assert [one["metadata"]["name"] for one in held] == [f"{job.name}-0"]
        job.patch(json.dumps({"spec": {"suspend": True}}))
        job.wait_for_no_pods()
        wait_until("its Workload to go", lambda: not workloads(job), TOLD_SECONDS)
        job.patch(json.dumps({"spec": {"suspend": False}}))
        job.wait_for_round(2, after=formed)
        assert job.restarts == 0


@pytest.mark.extended
def test_a_change_of_size_keeps_the_place_in_the_queue(queues: None, job: Job, other: Job) -> None:
    with queue("patient-gangs", 4, job.namespace, other.namespace):
        apply_gang(other, "patient-gangs", replicas=3)
        other.wait_for_round(3)
        apply_gang(job, "patient-gangs", replicas=4, minReplicas=4)
        job.until("Kueue's word", lambda: said(job, "insufficient unused quota"), TOLD_SECONDS)
        (asked,) = settled(workloads(job), "it waits")
        job.patch(json.dumps({"spec": {"replicas": 3, "minReplicas": 3}}))
        job.until("the Workload to ask for less", lambda: asks_for(job) == [3], TOLD_SECONDS)
        (changed,) = settled(workloads(job), "it waits")
        assert changed["metadata"]["uid"] == asked["metadata"]["uid"]
        other.scale(1)
        job.wait_for_round(3)


@pytest.mark.extended
def test_many_resizes_leave_no_quota_in_use(queues: None, job: Job) -> None:
    """A thousand of them: tests/unit/simulation/test_resizes.py."""
    with queue("resized-gangs", 3, job.namespace):
        apply_gang(job, "resized-gangs", replicas=2, maxReplicas=5, rendezvous={"lastCallSeconds": 5})
        job.wait_for_round(2)
        leaves_no_quota_in_use(job, "resized-gangs", 3)


@pytest.mark.extended
def test_where_kueue_gates_a_gangs_pods_too_it_is_told(queues: None, job: Job) -> None:
    with queue("default", 2, job.namespace):
        apply_gang(job, "default", replicas=2, minReplicas=2)
        told = job.until("the condition", lambda: said(job, "Kueue wants quota"), TOLD_SECONDS)
        assert "(in the queue default): name the LocalQueue otherwise" in told
        assert settled(job.status["reason"], "written with the condition") == "SchedulingGated"
        job.namespace.kubectl("delete", "elasticjob", job.name)
        job.wait_for_no_pods()  # Kueue has to let them go before it is gone


@pytest.mark.extended
def test_pods_get_the_node_labels_and_tolerations_of_the_flavor(queues: None, job: Job) -> None:
    labels, toleration = {"kubernetes.io/os": "linux"}, {"key": "example.com/spot", "operator": "Exists"}
    job.namespace.apply(made("ResourceFlavor", "linux", {"spec": {"nodeLabels": labels, "tolerations": [toleration]}}))
    with queue("flavored", 2, job.namespace, flavor="linux"):
        apply_gang(job, "flavored", replicas=2)
        job.wait_for_round(2)
        for pod in job.pods().values():
            assert pod["spec"]["nodeSelector"].items() >= labels.items()
            assert toleration in pod["spec"]["tolerations"]
            assert pod["metadata"]["annotations"]["elasticjob.io/workload"] == f"{job.name}-0"


def said(job: Job, text: str) -> str:
    """The condition's message, once it has that text."""
    message = str(job.condition("Rendezvoused")["message"])
    return message if text in message else ""


def workloads(job: Job) -> list[Object]:
    return job.namespace.list(WORKLOADS)


def asks_for(job: Job) -> list[int]:
    return [pods["count"] for one in workloads(job) for pods in one["spec"]["podSets"]]


def admitted(job: Job) -> int:
    """How many workers its Workloads hold quota for, but for what was given back."""
    held = 0
    for one in workloads(job):
        (asked,), status = one["spec"]["podSets"], one.get("status", {})
        sets = (status.get("admission") or {}).get("podSetAssignments", ())
        back = sum(part["count"] for part in status.get("reclaimablePods", ()))
        held += sum(min(part["count"], asked["count"] - back) for part in sets)
    return held
