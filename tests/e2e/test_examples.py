"""The examples on frameworks, from their own manifests: each goes on from its last checkpoint, and completes.

Their packages are at /opt/torch/examples (hack/cluster/torch.sh), and a configmap has the script.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from e2e.job import CHECKPOINTS, IMAGE, NEWEST_TORCH, NODE, STARTED_SECONDS, Job
from e2e.kube import Object, run, wait_until

pytestmark = [pytest.mark.torchrun, pytest.mark.patient]

EXAMPLES = Path(__file__).parents[2] / "examples"
PACKAGES = f"{NEWEST_TORCH}/examples"
# frameworks of many modules, started in several processes at once on two busy cores
TRAINED_SECONDS = 2 * STARTED_SECONDS
TRAPPED = "Received SIGTERM"  # Lightning's own handler, which makes each planned change many seconds longer

STARTED = re.compile(r"started: world_size=(\d+) resuming from \w+ (\d+)")
PROGRESS = re.compile(r"(?:epoch|step) (\d+)/(\d+) world_size=(\d+)")


class Group(NamedTuple):
    """What rank 0 printed of one group of processes: the step or epoch where it began, and the last that it took."""

    world_size: int
    began: int
    taken: int


class Example:
    """A job of examples/, on the local cluster's torch, fast enough for a test and slow enough to be changed."""

    def __init__(self, job: Job, name: str) -> None:
        self.job = job
        self.directory = job.namespace.name
        bodies = yaml.safe_load_all((EXAMPLES / name / "elasticjob.yaml").read_text())
        self.body: Object = next(body for body in bodies if body["kind"] == "ElasticJob")
        self.body["metadata"]["name"] = job.name
        self.processes = self.body["spec"].get("nprocPerNode", 1)
        self._adapt(self.body["spec"]["template"]["spec"])
        script = {"train.py": (EXAMPLES / name / "train.py").read_text()}
        config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "train"}, "data": script}
        job.namespace.apply(config, self.body)

    def _adapt(self, pod: Object) -> None:
        (trainer,) = pod["containers"]
        env = {variable["name"]: variable["value"] for variable in trainer["env"]} | {
            "CHECKPOINT_DIR": f"/checkpoints/{self.directory}",
            "PATH": f"{PACKAGES}/bin:{NEWEST_TORCH}/bin:/usr/local/bin:/usr/bin:/bin",
            "PYTHONPATH": PACKAGES,
            "OMP_NUM_THREADS": "1",
            "EPOCHS": "15",
            "EPOCH_SECONDS": "1",
            "STEPS": "75",
            "STEP_SECONDS": "0.2",
            "SAVE_STEPS": "5",
        }
        trainer["env"] = [{"name": name, "value": value} for name, value in env.items()]
        trainer["image"] = IMAGE
        del trainer["resources"]
        trainer["volumeMounts"] += [
            {"name": "torch", "mountPath": NEWEST_TORCH, "readOnly": True},
            {"name": "script", "mountPath": "/app"},
        ]
        pod["volumes"] = [
            {"name": "torch", "hostPath": {"path": NEWEST_TORCH, "type": "Directory"}},
            {"name": "script", "configMap": {"name": "train"}},
            {"name": "checkpoints", "hostPath": {"path": CHECKPOINTS, "type": "Directory"}},
        ]

    def groups(self) -> list[Group]:
        """All groups that the present rank 0 has led, the oldest first."""
        found: list[Group] = []
        for line in self.job.log(self.job.member_pods()[0]).lines:
            if started := STARTED.search(line.text):
                found.append(Group(int(started[1]), int(started[2]), int(started[2])))
            elif found and (progress := PROGRESS.search(line.text)):
                found[-1] = found[-1]._replace(taken=int(progress[1]))
        return found

    def wait_for_training(self, workers: int) -> Group:
        """Wait until a group of as many workers has gone beyond where it began."""

        def trained() -> Group | None:
            for last in self.groups()[-1:]:
                if last.world_size == workers * self.processes and last.taken > last.began:
                    return last
            return None

        return wait_until(f"{workers} workers that train", trained, TRAINED_SECONDS, self.job.summary)


@pytest.fixture
def directory(job: Job) -> Iterator[None]:
    yield
    run("docker", "exec", NODE, "rm", "-rf", f"{CHECKPOINTS}/{job.namespace.name}")


@pytest.mark.usefixtures("directory")
@pytest.mark.parametrize("name", ["accelerate", "transformers", "lightning"])
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
