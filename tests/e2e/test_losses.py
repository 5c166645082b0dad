# SPDX-License-Identifier: Apache-2.0
"""Trainers that never join, and some that only seem to have finished."""

import shlex

import pytest

from e2e.disruption import freeze_container, signal_worker_process, touch, wake_container
from e2e.job import AGENT, IMAGE, SIDECAR, TOLD_SECONDS, TRAINER, Job, place


def test_a_trainer_that_fails_without_joining_is_told(job: Job) -> None:
    job.apply(replicas=1, maxRestarts=0, trainer={"command": ["sh", "-c", "echo no such model >&2; exit 3"]})
    sentence = "worker 0 ended 1 times before it joined, and maxRestarts is 0: exit code 3: no such model"
    assert sentence in job.wait_for_condition("Failed")["message"]
    job.wait_for_the_end_of_all_pods()


def test_pods_that_fail_by_themselves_have_an_end(job: Job) -> None:
    container = {"name": TRAINER, "image": IMAGE, "command": ["sleep", "600"]}
    pod = {"activeDeadlineSeconds": 2, "containers": [container], **place(job.node)}
    job.apply(replicas=1, maxRestarts=1, template={"spec": pod})
    sentence = (
        "worker 0's pods failed 2 times in a row before they were in any round, and maxRestarts is 1: its pod failed"
    )
    message = job.wait_for_condition("Failed")["message"]
    assert message.startswith(f"{sentence} (DeadlineExceeded")


def test_a_shell_that_swallows_the_exit_code_of_a_killed_agent_has_not_finished(job: Job) -> None:
    # not at once: else the kubelet may tell of the container's end before the sidecar has of the agent's
    waits = "until [ -e ${TMPDIR:-/tmp}/end ]; do sleep 0.1; done"
    job.apply(replicas=2, trainer={"command": ["sh", "-c", f"{shlex.join(AGENT)}; {waits}; exit 0"]})
    first, _ = job.wait_for_round(2), job.wait_for_training(2)
    lost = job.member_pods()[1]
    signal_worker_process(lost, TRAINER)
    job.until("the agent to be missed", lambda: job.told(first), TOLD_SECONDS)
    touch(lost, TRAINER, "/tmp/end")
    new = job.wait_for_round(2, after=first)
    assert (new.number, new.members, new.reason) == (2, (0, 1), "worker 1 left: AgentLost")
    job.wait_for_pod("train-1-1")
    assert job.restarts == 1


@pytest.mark.parametrize("rank", [0, pytest.param(2, marks=pytest.mark.extended)])
def test_a_sidecar_that_stands_still_for_a_moment_is_asked_and_costs_nobody_a_place(job: Job, rank: int) -> None:
    """Rank 0 suspects a member, and members suspect rank 0. Woken when pinged, it has twenty seconds for its ack."""
    job.apply(replicas=3, rendezvous={"workerLostSeconds": 40})
    first = job.wait_for_round(3)
    job.wait_for_training(3)
    stopped = job.member_pods()[rank]
    asked = ping(job)

    def answered() -> bool:
        name = stopped["metadata"]["name"]
        return int(job.namespace.get("elasticworker", name).get("status", {}).get("ack", 0)) > asked

    freeze_container(stopped, SIDECAR)
    try:
        job.until("a ping", lambda: ping(job) > asked, 60)
    finally:
        wake_container(stopped, SIDECAR)
    job.until("its answer", answered, 60)
    assert job.rounds() == [first]


def ping(job: Job) -> int:
    return int(job.rendezvous.get("ping", {}).get("number", 0))
