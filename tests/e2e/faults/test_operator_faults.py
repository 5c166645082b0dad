# SPDX-License-Identifier: Apache-2.0
"""The leading operator is lost, stopped or frozen. Another one goes on with the job, and its training does not notice.

One training goes through all of it.
"""

import pytest

from e2e.disruption import freeze_container, kill_container, wake_container
from e2e.faults.fault import Fault
from e2e.job import Job, status_of
from e2e.kube import Namespace, Object, wait_until
from e2e.operator import CONTAINER, LEASE, holder, leader, restarted, stood_down, take_over

pytestmark = pytest.mark.disruptive("operator")


@pytest.mark.extended
@pytest.mark.fault("operator-stopped")
def test_operator_stopped(shared_fault: Fault, operator: Namespace) -> None:
    """Its Lease is released, so another leads at once, to whom a full namespace is no fault of the template."""
    fault, job = shared_fault, shared_fault.job
    fault.join()
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "full"}, "spec": {"hard": {"pods": "2"}}}
    job.namespace.apply(quota)
    job.wait_for_quotas()

    stopped = take_over(job, operator, lambda pod: operator.delete("pod", name(pod)))
    fault.unbroken()
    job.wait_for_condition("TemplateValid")
    assert [one for one in conditions(job, "TemplateValid") if one["status"] == "False"] == []
    job.namespace.delete("resourcequota", "full")
    fault.next_leader(stopped, within=2)


@pytest.mark.real
@pytest.mark.fault("operator-killed")
def test_operator_killed(shared_fault: Fault, operator: Namespace) -> None:
    fault = shared_fault
    fault.join()
    killed = take_over(fault.job, operator, lambda pod: kill_container(pod, CONTAINER))
    fault.unbroken()
    fault.next_leader(killed, within=20)


@pytest.mark.extended
@pytest.mark.fault("leader-frozen")
def test_leader_frozen(shared_fault: Fault, operator: Namespace) -> None:
    """Until the kubelet, whose probes it does not answer, has started the container anew."""
    fault = shared_fault
    fault.join()
    old = leader(operator)
    frozen = take_over(fault.job, operator, lambda pod: freeze_container(pod, CONTAINER))
    try:
        wait_until("the frozen operator's container to be started anew", lambda: restarted(operator, old), 180)
    finally:
        wake_container(old, CONTAINER)
    fault.unbroken()
    fault.next_leader(frozen, within=20)


@pytest.mark.extended
@pytest.mark.fault("two-operators")
def test_two_operators(shared_fault: Fault, operator: Namespace) -> None:
    """The leader stands still beyond its Lease with a decision before it, then wakes beside its successor.

    That none of its writes got through is seen in the recorded history: the terms never go back.
    """
    fault, job = shared_fault, shared_fault.job
    fault.join()
    old = leader(operator)
    frozen = take_over(job, operator, lambda pod: freeze_in_the_middle(fault, pod))
    try:
        new = job.wait_for_round(3, after=fault.first)
    finally:
        wake_container(old, CONTAINER)
    job.wait_for_training(3, other_than=fault.training)
    wait_until("the old leader to stand down", lambda: stood_down(operator, old), 60)
    assert new.number == fault.next_number
    assert job.rounds()[-1] == new
    assert new.reason == "scaled from 2 to 3"
    assert sorted({one.name for one in job.pod_states.sightings}) == ["train-0-0", "train-1-0", "train-2-0"]
    fault.next_leader(frozen, within=20)


def freeze_in_the_middle(fault: Fault, pod: Object) -> None:
    fault.job.scale(3)
    freeze_container(pod, CONTAINER)


@pytest.mark.fault("lease-deleted")
def test_lease_deleted(shared_fault: Fault, operator: Namespace) -> None:
    """Its count of terms begins anew, and the terms in the statuses must not: they fence an old leader."""
    fault = shared_fault
    fault.join()
    old = leader(operator)
    deleted = take_over(fault.job, operator, lambda _: operator.delete("lease", LEASE))
    if holder(operator) != name(old):
        wait_until("the old leader to stand down", lambda: stood_down(operator, old), 60)
    fault.unbroken()
    fault.next_leader(deleted, within=20)


def conditions(job: Job, kind: str) -> list[Object]:
    """All states of a condition that were seen."""
    seen = (one for sighting in job.jobs.of(job.name) for one in status_of(sighting).get("conditions", ()))
    return [one for one in seen if one["type"] == kind]


def name(pod: Object) -> str:
    return str(pod["metadata"]["name"])
