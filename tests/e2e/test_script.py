# SPDX-License-Identifier: Apache-2.0
"""A script's own view: it reports, it is asked to save before a planned change, and no step is lost by one."""

import re
import time

import pytest

from e2e.job import Job, Training, warm_restart
from e2e.kube import Namespace, wait_until
from e2e.scene import bring
from e2e.test_formation import row
from e2e.trainer_log import Step

WRITTEN_SECONDS = 45  # an agent whose sidecar is silent for 30 takes it for gone
REPORTED_SECONDS = 30  # to the sidecar, with its heartbeat to the API, from there into the job's status


@pytest.fixture
def saving(job: Job) -> Job:
    """The job `train`, whose script is saving_train.py."""
    bring(job, "saving_train.py")
    return job


@pytest.mark.real
@pytest.mark.extended
@pytest.mark.torchrun
@pytest.mark.parametrize("warm", [False, True], ids=["fresh", "warm"])
def test_no_step_is_lost_when_the_job_is_scaled(saving: Job, warm: bool) -> None:
    saving.apply(replicas=2, maxReplicas=4, warmRestart=warm_restart(warm))
    first = saving.wait_for_round(2)
    before = saving.wait_for_training(2)
    saving.wait_for_steps(before, 10)
    saving.scale(3)
    second = saving.wait_for_round(3, after=first)
    grown = saving.wait_for_training(3, other_than=before)
    assert_no_step_was_lost(saving, before, grown, ranks=2)
    assert_knows(saving, round=2, world_size=3, reason="scaled from 2 to 3")
    saving.scale(2)
    saving.wait_for_round(2, after=second)
    shrunk = saving.wait_for_training(2, other_than=grown)
    assert_no_step_was_lost(saving, grown, shrunk, ranks=2)
    assert saving.restarts == 0


def assert_no_step_was_lost(job: Job, before: Training, after: Training, ranks: int) -> None:
    """As the first pods' logs tell it: all were asked at the same step, and the next group began after that."""
    for rank, pod in enumerate(job.member_pods()[:ranks]):
        log = job.log(pod)
        last, first = log.steps(before.group)[-1], log.steps(after.group)[0]
        assert log.when(f"rank {rank} was asked to save step {last.step}"), f"rank {rank} was not asked"
        assert first == Step(after.group, after.world_size, rank, last.step + 1)


def assert_knows(job: Job, **facts: object) -> None:
    """What `current()` of the last group's rank 0 was."""
    said = [line.text for line in job.log(job.member_pods()[0]).lines if line.text.startswith("Current(")]
    for name, value in facts.items():
        assert f"{name}={value!r}" in said[-1]


def test_what_a_script_reports_is_shown(saving: Job) -> None:
    saving.apply(replicas=2)
    saving.wait_for_round(2)
    saving.wait_for_training(2)
    progress = saving.until("the progress", lambda: saving.status.get("progress"), REPORTED_SECONDS)
    assert progress["metrics"]["rank"] == 0

    def step() -> str:
        return row(saving.namespace, "ej", "train").get("STEP", "")

    wait_until("the column STEP", lambda: re.fullmatch(r"[1-9]\d*/1000000", step()), REPORTED_SECONDS, step)
    saving.finish_training()
    saving.wait_for_condition("Complete")

    def last() -> int:
        return max(step.step for pod in saving.pods().values() for step in saving.log(pod).steps())

    def told() -> bool:
        return bool(saving.status["progress"]["step"] == last())

    wait_until("the last step", told, REPORTED_SECONDS, lambda: (last(), saving.status["progress"]))
    # a heartbeat shows it within minutes, and the end of the training at once
    wait_until("each worker's own", lambda: ranks_reported(saving.namespace) == [0, 1], REPORTED_SECONDS)


@pytest.mark.extended
def test_a_job_that_reports_and_is_written_to_stays_in_one_round(saving: Job) -> None:
    """Each write of the job wakes all sidecars, and most change nothing that an agent waits for: it has to hear from
    its sidecar all the same, or it takes it for gone after 30 seconds."""
    saving.apply(replicas=2)
    saving.wait_for_round(2)
    before = saving.wait_for_training(2)
    end, number = time.monotonic() + WRITTEN_SECONDS, 0
    while time.monotonic() < end:
        number += 1
        for verb in ("annotate", "label"):
            saving.namespace.kubectl(verb, "elasticjob", saving.name, f"written={number}", "--overwrite")
        time.sleep(1)  # the pace of the writes
    assert number > WRITTEN_SECONDS / 10
    saving.wait_for_steps(before, int(WRITTEN_SECONDS / 2))  # the same group: no process was started again
    assert [one.number for one in saving.rounds()] == [1]
    assert saving.restarts == 0


def ranks_reported(namespace: Namespace) -> list[int]:
    records = namespace.list("elasticworkers")
    return sorted(int(record.get("status", {}).get("metrics", {}).get("rank", -1)) for record in records)
