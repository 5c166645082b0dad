# SPDX-License-Identifier: Apache-2.0
"""Training processes live through changes of the group: they keep their pids, and no step is done twice."""

import re

import pytest

from e2e.disruption import signal_worker_process, touch
from e2e.job import TRAINER, Job, Training, restarts
from e2e.kube import Object
from e2e.scene import bring
from elasticjob.indices import read_indices
from elasticjob.members import Members

pytestmark = [pytest.mark.real, pytest.mark.torchrun]

PID = re.compile(r"step=\d+ pid=(\d+)")
LIVE_SECONDS = 60.0  # from a record to the status


@pytest.fixture
def living(job: Job) -> Job:
    """The job `train` of two, whose processes are known to live through changes."""
    bring(job, "live_train.py")
    job.apply(replicas=2, minReplicas=1, maxReplicas=3, maxRestarts=1)
    job.wait_for_round(2)
    return job


def test_processes_live_through_scaling_and_the_loss_of_rank_0(living: Job) -> None:
    before = trains_live(living, 2)
    first = living.rounds()[-1]
    living.scale(3)
    second = living.wait_for_round(3, after=first)
    trains_live(living, 3, other_than=before)

    living.delete_pod(living.member_pods()[0])
    third = living.wait_for_round(2, after=second)
    assert third.number == second.number + 1, "nobody waits for the replacement"
    living.wait_for_round(3, after=third)
    before = trains_live(living, 3)

    living.scale(2)
    living.wait_for_round(2, after=third)
    living.wait_for_training(2, other_than=before)
    assert living.restarts == 0
    members = living.member_pods()
    finish(living)
    for pod in members:
        assert len(pids_of(living, pod)) == 1
        done = [step.step for step in living.log(pod).steps()]
        assert done == list(range(done[0], done[0] + len(done)))


@pytest.mark.extended
def test_processes_live_through_the_end_of_another(living: Job) -> None:
    """A new process takes the place of the killed one, in the same pod, and it is the failure that counts."""
    trains_live(living, 2)
    first, (survivor, victim) = living.rounds()[-1], living.member_pods()
    signal_worker_process(victim, TRAINER)
    alone = living.wait_for_round(1, after=first)
    living.wait_for_round(2, after=alone)
    trains_live(living, 2)
    assert restarts(living.pod(1)) == restarts(victim)
    assert living.restarts == 1
    assert (len(pids_of(living, survivor)), len(pids_of(living, victim))) == (1, 2)
    finish(living)


def trains_live(job: Job, size: int, other_than: Training | None = None) -> Training:
    """Wait until so many train together, and the status says that they live through changes."""
    training = job.wait_for_training(size, other_than=other_than)

    def known() -> bool:
        agreed = job.rendezvous
        members = [member.index for member in Members.read(agreed.get("participants", ""))]
        return len(members) == size and list(read_indices(agreed.get("live", ""))) == sorted(members)

    job.until(f"{size} members known to live through changes", known, LIVE_SECONDS)
    return training


def finish(job: Job) -> None:
    touch(job.member_pods()[0], TRAINER, "/tmp/finish")
    job.wait_for_condition("Complete")


def pids_of(job: Job, pod: Object) -> set[str]:
    """The processes that have taken steps in the pod."""
    lines = (PID.search(line.text) for line in job.log(pod).lines)
    return {line[1] for line in lines if line}
