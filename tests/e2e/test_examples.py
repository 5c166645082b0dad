"""The examples, from their own manifests: each goes on from its last checkpoint, and completes."""

import pytest

from e2e.example_job import Example
from e2e.job import STARTED_SECONDS, Job
from e2e.kube import wait_until

pytestmark = [pytest.mark.torchrun, pytest.mark.patient, pytest.mark.real, pytest.mark.extended]

TRAPPED = "Received SIGTERM"  # Lightning's own handler, which makes each planned change many seconds longer


@pytest.mark.usefixtures("directory")
@pytest.mark.parametrize("name", ["fsdp", "accelerate", "transformers", "lightning"])
def test_an_example_resumes_after_each_change_and_completes(job: Job, name: str) -> None:
    example = Example(job, name)
    first = job.wait_for_round(2, seconds=STARTED_SECONDS)
    before = example.wait_for_training(2)
    assert before.began == 0

    job.delete_pod(job.member_pods()[0])
    second = job.wait_for_round(2, after=first)
    again = example.wait_for_training(2)
    assert again.began >= before.taken - 1, "the training went on from its last checkpoint"

    job.scale(1)
    third = job.wait_for_round(1, after=second)
    alone = example.wait_for_training(1)
    assert alone.began >= again.taken - 1

    job.wait_for_condition("Complete")
    assert job.rounds() == [first, second, third]
    assert job.status["restarts"] == 0
    assert not job.log(job.pods()[third.members[0]]).when(TRAPPED)

    def told() -> bool:
        progress = job.status["progress"]
        return bool(progress["step"] == progress["total"])

    wait_until("the last step in the status", told, 60, lambda: job.status["progress"])


def test_torchrun_by_its_module_name(job: Job) -> None:
    """As people who have several Pythons start it."""
    job.apply(replicas=1, trainer={"command": ["python3", "-m", "torch.distributed.run", "/test/train.py"]})
    job.wait_for_round(1)
    job.wait_for_training(1)
    job.finish_training()
    job.wait_for_condition("Complete")
