# SPDX-License-Identifier: Apache-2.0
"""A job with `spec.warmRestart`, and torchrun: after each change it goes on with processes that waited for it."""

import pytest

from e2e.disruption import from_its_node, signal_worker_process
from e2e.job import TOLD_SECONDS, TRAINER, Job, restarts
from e2e.kube import Object, wait_until

pytestmark = pytest.mark.real

PRESTARTED_SECONDS = 120  # they import gently, beside the training


@pytest.mark.torchrun
def test_each_change_finds_processes_that_wait_for_it(job: Job) -> None:
    """A process that dies, a worker more, a worker less: and at the end nothing keeps a pod from its own."""
    job.apply(replicas=2, maxReplicas=3, maxRestarts=10, warmRestart="Enabled")
    formed, training = job.wait_for_round(2), job.wait_for_training(2)

    pods = wait_for_prestarted(job)
    before = warm_starts(job, pods)
    signal_worker_process(pods[1], TRAINER)
    formed, training = job.wait_for_round(2, after=formed), job.wait_for_training(2, other_than=training)
    wait_for_one_warm_start_more(job, pods, before)

    for replicas in (3, 2):
        pods = wait_for_prestarted(job)[:2]
        before = warm_starts(job, pods)
        job.scale(replicas)
        formed = job.wait_for_round(replicas, after=formed)
        training = job.wait_for_training(replicas, other_than=training)
        wait_for_one_warm_start_more(job, pods, before)

    assert list(map(restarts, job.member_pods())) == [0, 0]
    wait_for_prestarted(job)
    job.finish_training()
    job.wait_for_condition("Complete")
    wait_until("the pods to succeed", lambda: phases(job) == {"Succeeded"}, 60, lambda: phases(job))


def wait_for_prestarted(job: Job) -> list[Object]:
    """The members' pods, once in each a process waits for the next round."""
    pods = job.member_pods()
    wait_until(
        "the prestarted processes", lambda: [children(job, pod) for pod in pods] == [2] * len(pods), PRESTARTED_SECONDS
    )
    return pods


def children(job: Job, pod: Object) -> int:
    """How many processes torchrun, the trainer's first process, has started and has: one trains."""
    return len(from_its_node(pod, TRAINER, "cat /proc/$first/task/*/children 2> /dev/null; true").split())


def warm_starts(job: Job, pods: list[Object]) -> list[int]:
    """How often each pod's trainer says that a process started warm."""
    return [sum("starts warm" in line.text for line in job.log(pod).lines) for pod in pods]


def wait_for_one_warm_start_more(job: Job, pods: list[Object], before: list[int]) -> None:
    """Each trainer says so once more than before, and no more often; its log may be late."""

    def more() -> list[int] | None:
        now = warm_starts(job, pods)
        return now if all(starts > was for starts, was in zip(now, before, strict=True)) else None

    seen = wait_until("a warm start in each pod", more, TOLD_SECONDS, lambda: (before, warm_starts(job, pods)))
    assert seen == [starts + 1 for starts in before]


def phases(job: Job) -> set[str]:
    return {pod["status"]["phase"] for pod in job.pods().values()}
