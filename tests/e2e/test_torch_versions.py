# SPDX-License-Identifier: Apache-2.0
"""The oldest torch that the plug-in works with, in pods; all other tests use the newest."""

from pathlib import Path

import pytest

from e2e.job import OLDEST_TORCH, TRAINER, Job

pytestmark = [pytest.mark.torchrun, pytest.mark.patient, pytest.mark.real, pytest.mark.extended]

LOCK = Path(__file__).parents[2] / "locks/torch-2.6.txt"


def test_a_job_of_the_oldest_torch_grows_loses_rank_0_and_completes(job: Job) -> None:
    job.apply(replicas=2, maxReplicas=3, torch=OLDEST_TORCH)
    first = job.wait_for_round(2)
    training = job.wait_for_training(2)
    assert f"torch=={version_in(job)} " in LOCK.read_text()

    job.scale(3)
    second = job.wait_for_round(3, after=first)
    training = job.wait_for_training(3, other_than=training)

    job.delete_pod(job.member_pods()[0])
    third = job.wait_for_round(3, after=second)
    job.wait_for_training(3, other_than=training)

    job.finish_training()
    job.wait_for_condition("Complete")
    assert job.rounds() == [first, second, third]


def version_in(job: Job) -> str:
    """Of torch in a trainer's container, without the platform's suffix."""
    script = "import importlib.metadata; print(importlib.metadata.version('torch'))"
    pod = job.pod(0)["metadata"]["name"]
    said = job.namespace.kubectl("exec", pod, "--container", TRAINER, "--", "python3", "-c", script)
    return said.strip().partition("+")[0]
