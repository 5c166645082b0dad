# SPDX-License-Identifier: Apache-2.0
"""The examples, from their own manifests, and scripts as they are elsewhere: each goes on from its last checkpoint, and
completes."""

import re

import pytest

from e2e.example_job import PACKAGES, TRAINED_SECONDS, Elsewhere, Example
from e2e.job import NEWEST_TORCH, STARTED_SECONDS, Job, manifest
from e2e.kube import Namespace, wait_until
from e2e.scene import scripts

pytestmark = [pytest.mark.torchrun, pytest.mark.patient, pytest.mark.real, pytest.mark.extended]

TRAPPED = "Received SIGTERM"  # Lightning's own handler, which makes each planned change many seconds longer


SCRIPTS = {
    **dict.fromkeys(["fsdp", "accelerate", "transformers", "lightning"], Example),
    **dict.fromkeys(["multinode", "mingpt", "async_fsdp"], Elsewhere),
}


@pytest.mark.usefixtures("directory")
@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_resumes_after_each_change_and_completes(job: Job, name: str) -> None:
    script = SCRIPTS[name](job, name)
    formed = job.wait_for_round(2, seconds=STARTED_SECONDS)
    before = script.wait_for_training(2)
    assert before.began == 0

    rounds = [formed]
    for workers in (3, 3, 2):
        if workers == len(formed.members):
            job.delete_pod(job.member_pods()[0])
        else:
            job.scale(workers)
        formed = job.wait_for_round(workers, after=formed, seconds=STARTED_SECONDS)
        after = script.wait_for_training(workers)
        assert after.began >= before.taken - 1, "the training went on from its last checkpoint"
        before = after
        rounds.append(formed)

    job.wait_for_condition("Complete")
    assert job.rounds() == rounds
    assert job.restarts == 0
    assert not job.log(job.pod(formed.members[0])).when(TRAPPED)
    if isinstance(script, Example):
        wait_until("the last step in the status", lambda: is_told(job), 60, lambda: job.status)


def is_told(job: Job) -> bool:
    progress = job.status.get("progress")
    return progress is not None and "total" in progress and bool(progress["step"] == progress["total"])


@pytest.mark.parametrize(("name", "again"), [("accelerate", 0), ("transformers", 0), ("lightning", 24)])
def test_the_rest_of_an_epoch_goes_by_the_steps_of_a_group_of_another_size(
    namespace: Namespace, name: str, again: int
) -> None:
    """Two processes have seen 24 of 96 samples in six steps; three leave out as many steps, which are 36 samples."""
    job = manifest(
        name, script="epochs", torch=NEWEST_TORCH, env={"PYTHONPATH": PACKAGES, "ACCELERATE_USE_CPU": "true"}
    )
    pod = job["spec"]["template"]["spec"]
    runs = [f"torchrun --standalone --nproc-per-node={size} /test/train.py {name}" for size in (2, 3)]
    pod["containers"][0] |= {"command": ["sh", "-c", " && ".join(runs)], "workingDir": "/tmp"}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": pod | {"restartPolicy": "Never"}}
    namespace.apply(scripts(train="elsewhere/epochs.py"), body)

    def ended() -> bool:
        return namespace.get("pod", name)["status"]["phase"] in ("Succeeded", "Failed")

    wait_until("both runs", ended, TRAINED_SECONDS, lambda: namespace.try_kubectl("logs", name).output[-2000:])
    lines = re.findall(r"^world_size=(\d) saw (.*)$", namespace.kubectl("logs", name), re.M)
    first, rest = ([sample for size, seen in lines if size == wanted for sample in seen.split()] for wanted in "23")
    assert (len(set(first)), len(set(rest)), len(set(first) & set(rest))) == (24, 96 - 36, again)


def test_torchrun_by_its_module_name(job: Job) -> None:
    """As people who have several Pythons start it."""
    job.apply(replicas=1, trainer={"command": ["python3", "-m", "torch.distributed.run", "/test/train.py"]})
    job.wait_for_round(1)
    job.wait_for_training(1)
    job.finish_training()
    job.wait_for_condition("Complete")
