# SPDX-License-Identifier: Apache-2.0
"""A worker's pod is lost, or its trainer never gets to train."""

import pytest

from e2e.disruption import container_status, freeze_container
from e2e.faults.fault import Fault
from e2e.job import TRAINER, Job, Round, has_started, restarts, wall, warm_restart
from support.waiting import settled


@pytest.mark.fault("pod-deleted", told=2.0, warm=True)
def test_pod_deleted(fault: Fault) -> None:
    assert delete(fault, rank=2).members == (0, 1, 2)


@pytest.mark.real
@pytest.mark.fault("pod-deleted-rank0", told=2.0, warm=True)
def test_pod_deleted_rank0(fault: Fault) -> None:
    """Behind rank 0's sidecar the round's store serves: its loss is the same as any other."""
    assert delete(fault, rank=0).members == (0, 1, 2), "survivors keep their ranks, the newcomer has the free one"


@pytest.mark.extended
@pytest.mark.fault("pod-deleted-spare", told=2.0, warm=True)
def test_pod_deleted_spare(fault: Fault) -> None:
    """The round forms from the spare, and the next pod of the deleted worker is the spare."""
    (_, _, victim), index = fault.start_with_spare(3)
    assert fault.first is not None
    *others, lost = fault.first.members
    fault.strike()
    fault.job.delete_pod(victim)
    new = fault.formed(3)

    assert (new.number, new.members) == (fault.next_number, (*others, index))
    assert new.reason == f"worker {lost} lost: its pod was deleted; spare {index} takes rank 2"
    assert fault.job.restarts == 0
    fault.job.wait_for_spare()
    fault.job.wait_for_pod(f"train-{lost}-1")
    assert fault.job.rounds()[-1] == new, "a spare that joins ends no round"


def delete(fault: Fault, rank: int) -> Round:
    """Delete a member's pod; return the round that follows."""
    victim = fault.start(3)[rank]
    fault.strike()
    fault.job.delete_pod(victim)
    new = fault.formed(3)

    assert new.number == fault.next_number
    assert new.reason == f"worker {rank} lost: its pod was deleted"
    assert fault.job.member_pods()[rank]["metadata"]["name"] == f"train-{rank}-1"
    assert len(fault.survivors()) == 2
    assert fault.job.restarts == 0, "the loss of a pod never counts against the budget"
    return new


@pytest.mark.extended
@pytest.mark.torchrun
@pytest.mark.fault("crash-loop")
def test_crash_loop(fault: Fault) -> None:
    job = fault.job
    fault.strike()
    job.apply(replicas=2, maxRestarts=2, env={"FAIL_AT_STEP": "3"})
    failed = job.wait_for_condition("Failed", seconds=180)

    assert failed["reason"] == "Failed"
    assert "failure 3, and maxRestarts is 2" in failed["message"]
    assert settled(job.status["phase"], "written with the condition") == "Failed"
    assert [one.number for one in job.rounds()] == [1, 2, 3], "one new round for each restart that is allowed"
    assert job.wait_for_event("Failed")["type"] == "Warning"
    job.namespace.kubectl("wait", "elasticjob/train", "--for=condition=Failed", "--timeout=240s")
    job.wait_for_the_end_of_all_pods()
    fault.row.detail = failed["message"]


@pytest.mark.real
@pytest.mark.fault("image-missing")
def test_image_missing(fault: Fault) -> None:
    """The job waits, says for what, and starts once the image is there to be had."""
    job = fault.job
    fault.strike()
    job.apply(replicas=2, trainer={"image": "elasticjob/no-such-image:dev", "imagePullPolicy": "Never"})

    told = job.wait_for_condition("Rendezvoused", "False", message="no-such-image")
    assert job.restarts == 0
    assert not job.rounds()
    fault.row.detail = told["message"]


@pytest.mark.real
@pytest.mark.extended
@pytest.mark.torchrun
@pytest.mark.fault("rank0-hangs-before-store", warm=True)
def test_rank0_hangs_before_store(fault: Fault) -> None:
    """Rank 0 is handed the round and stands still: it never serves the store that the other's training process wants.

    `storeReadySeconds` is long enough for that process to start, and to ask for the store.
    """
    job = fault.job
    # worker 1 starts when it may, so that rank 0 can be stopped while it waits for the round
    held = "case $HOSTNAME in *-1-0) until [ -e /tmp/go ]; do sleep 0.1; done;; esac; exec torchrun /test/train.py"
    settings = {"trainer": {"command": ["sh", "-c", held]}, "rendezvous": {"storeReadySeconds": 15}}
    job.apply(replicas=2, minReplicas=2, warmRestart=warm_restart(fault.warm), **settings)
    job.until("worker 0 to join", lambda: has_joined(job, "train-0-0"), 60)
    job.until("both trainers to run", lambda: runs(job, 0) and runs(job, 1), 60)
    freeze_container(job.pod(0), TRAINER)
    job.namespace.kubectl("exec", "train-1-0", "--container", TRAINER, "--", "touch", "/tmp/go")
    broken = job.wait_for_round(2)
    fault.struck = wall(broken.at)
    fault.row.rounds_before = len(job.rounds())

    new = job.wait_for_round(2, after=broken)
    fault.note_first_step(job.wait_for_training(2))
    fault.row.new_round_seconds = wall(new.at) - fault.struck
    assert new.number == broken.number + 1
    assert new.reason == "worker 0 lost: it did not serve the round's store in time"
    assert new.members == (0, 1)
    assert restarts(job.pod(1)) == 0, "its trainer went on to the next round"
    assert job.restarts == 0


def has_joined(job: Job, name: str) -> bool:
    workers = {one["metadata"]["name"]: one for one in job.namespace.list("elasticworkers")}
    return bool(workers.get(name, {}).get("spec", {}).get("request", {}).get("type") == "Join")


def runs(job: Job, index: int) -> bool:
    pod = job.pods().get(index)
    return pod is not None and has_started(pod) and "running" in container_status(pod, TRAINER)["state"]
