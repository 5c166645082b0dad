"""Trainers that never join."""

import pytest

from e2e.job import Job


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        (
            "echo no such model >&2; exit 3",
            "worker 0 ended 1 times before it joined, and maxRestarts is 0: exit code 3: no such model",
        ),
        ("true", "its command must be torchrun, without --standalone and --rdzv-backend"),
    ],
    ids=["fails", "succeeds"],
)
def test_a_trainer_that_ends_without_joining_is_told(job: Job, command: str, sentence: str) -> None:
    job.apply(replicas=1, maxRestarts=0, trainer={"command": ["sh", "-c", command]})
    assert sentence in job.wait_for_condition("Failed")["message"]
    job.wait_for_the_end_of_all_pods()
