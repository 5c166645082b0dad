# SPDX-License-Identifier: Apache-2.0
"""A training that hangs, as three workers: who lags is named, all write stacks, and the round is started again."""

import json
import subprocess
import sys

import pytest

from e2e.disruption import signal_worker_process, touch
from e2e.job import TOLD_SECONDS, TRAINER, Job
from e2e.kube import ENVIRONMENT, wait_until
from support.waiting import settled

WORKERS, DEADLINE = 3, 20  # steps take 0.2 s, and a busy machine a few seconds now and then
HANG_SECONDS = DEADLINE + 60  # to the sidecar, to the operator, to all others, and back


@pytest.mark.real
@pytest.mark.torchrun
def test_a_stopped_process_is_named_and_the_round_is_started_again(job: Job) -> None:
    job.apply(replicas=WORKERS, progressDeadlineSeconds=DEADLINE, hangPolicy="Restart")
    first = job.wait_for_round(WORKERS)
    before = job.wait_for_training(WORKERS)
    pods = job.member_pods()
    signal_worker_process(pods[2], TRAINER, "STOP")
    second = job.wait_for_round(WORKERS, after=first, seconds=HANG_SECONDS)
    named = f"worker {first.members[2]}'s training process is stopped"
    assert second.reason.startswith(f"no member has reported for {DEADLINE} s: {named}")
    assert_told_once(job, named)
    job.wait_for_training(WORKERS, other_than=before)
    assert (second.members, job.restarts) == (first.members, 1)
    job.wait_for_condition("Progressing")
    job.logged(pods[2], "is stopped, and writes no stacks")
    for pod in pods[:2]:
        job.logged(pod, "in sum")  # the all-reduce of group.py


@pytest.mark.extended
def test_an_endless_loop_is_named_and_may_end(job: Job) -> None:
    job.apply(replicas=WORKERS, progressDeadlineSeconds=DEADLINE)
    first = job.wait_for_round(WORKERS)
    before = job.wait_for_training(WORKERS)
    pods = job.member_pods()
    touch(pods[1], TRAINER, "/tmp/spin")
    named = f"worker {first.members[1]}'s training process computes while others wait"
    told = f"no member has reported for {DEADLINE} s: {named}"
    assert job.wait_for_condition("Progressing", "False", told, HANG_SECONDS)["message"].startswith(told)
    assert settled(job.status["reason"], "written with the condition") == "ProgressDeadlineExceeded"
    assert_told_once(job, named)
    job.logged(pods[1], "in spin")
    job.logged(pods[0], "in sum")
    wait_for_states(job, ["waits", "computes", "waits"])
    touch(pods[1], TRAINER, "/tmp/calm")
    job.wait_for_condition("Progressing", "True")
    job.wait_for_steps(before, 5)  # the same group: nothing was started again
    assert (job.rounds(), job.restarts) == ([first], 0)


def assert_told_once(job: Job, named: str) -> None:
    assert named in job.wait_for_the_only_event("ProgressDeadlineExceeded")["message"]


def wait_for_states(job: Job, wanted: list[str]) -> None:
    """Until `kubectl elasticjob status` shows that the members' processes do this, in rank order."""

    def states() -> list[str]:
        place = ("--kubeconfig", ENVIRONMENT["KUBECONFIG"], "--namespace", job.namespace.name)
        command = [sys.executable, "-m", "elasticjob_cli", "status", job.name, *place, "--output", "json"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        members = [one for one in json.loads(done.stdout)["members"] if one["rank"] is not None]
        return [one["state"].rpartition(" ")[2] for one in members if one["state"].startswith("takes no steps: ")]

    wait_until("what each process does", lambda: states() == wanted, TOLD_SECONDS, states)
