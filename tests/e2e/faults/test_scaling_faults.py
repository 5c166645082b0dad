# SPDX-License-Identifier: Apache-2.0
"""The target changes faster than the group can follow."""

import json

import pytest

from e2e.faults.fault import Fault
from e2e.job import TRAINER, Job, restarts, status_of
from e2e.kube import Object, wait_until
from elasticjob_torch.wire import LEFT_EXIT_CODE
from support.waiting import settled

FULL = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "full"}, "spec": {"hard": {"pods": "1"}}}


def scale(fault: Fault, *targets: int) -> None:
    """`kubectl scale`, one after the other, as fast as they go."""
    fault.strike()
    for target in targets:
        fault.job.scale(target)


@pytest.mark.fault("scale-up", warm=True)
def test_scale_up(fault: Fault) -> None:
    """Pods that start seconds apart cost one round; the group trains on until they are there."""
    fault.start(2)
    scale(fault, 4)
    new = fault.formed(4)
    assert new.number == fault.next_number
    assert new.members == (0, 1, 2, 3), "members of the last round keep their ranks"
    assert new.reason == "scaled from 2 to 4"
    assert [restarts(pod) for pod in fault.job.member_pods()] == [0, 0, 0, 0], "no trainer was started again"
    assert fault.job.restarts == 0


@pytest.mark.real
@pytest.mark.extended
@pytest.mark.torchrun
@pytest.mark.fault("scale-down", told=2.0, warm=True)
def test_scale_down(fault: Fault) -> None:
    """It is planned: the highest rank is told, ends well and goes."""
    fault.start(3)
    scale(fault, 2)
    new = fault.formed(2)
    assert new.number == fault.next_number
    assert new.members == (0, 1)
    assert new.reason == "scaled from 3 to 2"
    assert [restarts(pod) for pod in fault.job.member_pods()] == [0, 0]
    assert fault.job.restarts == 0
    assert exit_code(fault.job, "train-2-0") == LEFT_EXIT_CODE
    wait_until("the victim's pod to be gone", lambda: "train-2-0" not in fault.job.pod_states.present(), 30)


def exit_code(job: Job, pod: str) -> int:
    """With which code the trainer in `pod` ended, as the watch saw it; the pod may be gone by now."""

    def ended() -> Object | None:
        for sighting in job.pod_states.of(pod):
            for status in sighting.body["status"].get("containerStatuses", ()):
                if status["name"] == TRAINER and "terminated" in status["state"]:
                    terminated: Object = status["state"]["terminated"]
                    return terminated
        return None

    return int(wait_until(f"the trainer in {pod} to end", ended, 30)["exitCode"])


@pytest.mark.extended
@pytest.mark.fault("scale-burst", warm=True)
def test_scale_burst(fault: Fault) -> None:
    fault.start(1)
    scale(fault, 2, 3, 4)
    new = fault.formed(4)
    assert new.number == fault.next_number, "three steps cost one round"
    assert new.reason == "scaled from 1 to 4"
    assert fault.job.restarts == 0


@pytest.mark.extended
@pytest.mark.fault("scale-up-down")
def test_scale_up_down(fault: Fault) -> None:
    """Back before the newcomer joined: nothing happens to the group."""
    fault.start(2)
    scale(fault, 3, 2)
    wait_until(
        "the newcomer to be gone", lambda: sorted(fault.job.pod_states.present()) == ["train-0-0", "train-1-0"], 60
    )
    fault.unbroken()
    assert fault.job.restarts == 0


@pytest.mark.extended
@pytest.mark.fault("scale-down-up", told=2.0, warm=True)
def test_scale_down_up(fault: Fault) -> None:
    """Who was told to leave leaves; the workers that come back are new."""
    fault.start(3)
    scale(fault, 1)
    # an operator that looks only after both has nothing to do
    fault.job.until("two workers to be told", lambda: told_to_leave(fault.job), 30)
    fault.job.scale(3)
    new = fault.formed(3)
    assert new.members == (0, 1, 2)
    pods = fault.job.member_pods()
    assert pods[0]["metadata"]["name"] == "train-0-0"
    assert restarts(pods[0]) == 0
    assert fault.job.restarts == 0
    assert len(fault.job.rounds()) <= fault.row.rounds_before + 2
    names = {pod["metadata"]["name"] for pod in pods}
    assert names <= {"train-0-0", "train-1-0", "train-1-1", "train-2-1"}, names


def told_to_leave(job: Job) -> bool:
    """Some were, and may have left by now."""
    return any(status_of(one).get("rendezvous", {}).get("leaving") for one in job.jobs.of(job.name))


@pytest.mark.extended
@pytest.mark.fault("suspend-forming", warm=True)
def test_suspend_forming(fault: Fault) -> None:
    """A job that is suspended while its second round forms: its pods go, the state stays, and it resumes."""
    job = fault.job
    pods = fault.start(2)
    job.namespace.apply(FULL)  # or the round would be formed when its replacement runs, however soon that is
    job.wait_for_quotas()
    job.delete_pod(pods[1])
    job.until("the next round to be opened", lambda: job.rendezvous["round"] == fault.next_number, 30)
    job.patch(json.dumps({"spec": {"suspend": True}}))
    job.wait_for_condition("Suspended")
    job.wait_for_no_pods()
    assert settled(job.rendezvous["phase"], "the quota lets no pod in") == "Forming"
    assert job.rounds()[-1] == fault.first
    job.namespace.delete("resourcequota", "full")

    fault.strike()
    job.patch(json.dumps({"spec": {"suspend": False}}))
    new = fault.formed(2)
    assert new.number == fault.next_number
    assert job.restarts == 0
