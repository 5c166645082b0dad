# SPDX-License-Identifier: Apache-2.0
"""A job of examples/ or of elsewhere/ on the cluster, and what its log tells of the groups that have trained.

The nodes have no images of the examples: their packages are at /opt/torch/examples (hack/cluster/torch.sh), and a
configmap has the script. All else is as in the example's own manifest.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import yaml

from e2e.disruption import CHECKPOINTS
from e2e.job import IMAGE, NEWEST_TORCH, STARTED_SECONDS, TORCHRUN, Job
from e2e.kube import Object

EXAMPLES = Path(__file__).parents[2] / "examples"
ELSEWHERE = Path(__file__).with_name("elsewhere")
PACKAGES = f"{NEWEST_TORCH}/examples"
# frameworks of many modules, started in several processes at once on two busy cores
TRAINED_SECONDS = 2 * STARTED_SECONDS
CONFIG_MAP = "example"  # a name of its own: a pod may get a ConfigMap as it was before its last change
EPOCHS = "60"  # of a second each: a group trains on while a newcomer imports its framework

STARTED = re.compile(r"started: world_size=(\d+) resuming from \w+ (\d+)")
PROGRESS = re.compile(r"(?:epoch|step) (\d+)/(\d+) world_size=(\d+)")


class Group(NamedTuple):
    """What rank 0 printed of one group of processes: the step or epoch where it began, and the last that it took."""

    world_size: int
    began: int
    taken: int


def objects_of(name: str, namespace: str, settings: Mapping[str, str]) -> tuple[Object, Object]:
    """The script of an example as a ConfigMap, and its job, as the local cluster runs them in that namespace."""
    bodies = yaml.safe_load_all((EXAMPLES / name / "elasticjob.yaml").read_text())
    job: Object = next(body for body in bodies if body["kind"] == "ElasticJob")
    _adapt(job["spec"]["template"]["spec"], {"CHECKPOINT_DIR": f"/checkpoints/{namespace}", **settings})
    return _config_map(EXAMPLES / name / "train.py"), job


def _config_map(script: Path) -> Object:
    data = {"train.py": script.read_text()}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": CONFIG_MAP}, "data": data}


def _adapt(pod: Object, settings: Mapping[str, str]) -> None:
    (trainer,) = pod["containers"]
    env = {variable["name"]: variable["value"] for variable in trainer["env"]} | {
        "PATH": f"{PACKAGES}/bin:{NEWEST_TORCH}/bin:/usr/local/bin:/usr/bin:/bin",
        "PYTHONPATH": PACKAGES,
        "OMP_NUM_THREADS": "1",
        "EPOCHS": EPOCHS,
        "EPOCH_SECONDS": "1",
        "STEPS": "300",
        "STEP_SECONDS": "0.2",
        "SAVE_STEPS": "5",
        **settings,
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
        {"name": "script", "configMap": {"name": CONFIG_MAP}},
        {"name": "checkpoints", "hostPath": {"path": CHECKPOINTS, "type": "Directory"}},
    ]


class Script:
    """A job whose rank 0 prints the lines STARTED and PROGRESS, with so many processes in each worker."""

    def __init__(self, job: Job, script: Object, body: Object) -> None:
        self.job, self.body, self.processes = job, body, body["spec"].get("nprocPerNode", 1)
        job.namespace.apply(script, body)

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

        what = f"{workers} workers that train"
        return self.job.until(what, trained, TRAINED_SECONDS, lambda: f"{self.groups()}; {self.job.summary()}")


class Example(Script):
    """A job of examples/, fast enough for a test and slow enough to be changed; `settings` are its variables."""

    def __init__(self, job: Job, name: str, **settings: str) -> None:
        script, body = objects_of(name, job.namespace.name, settings)
        body["metadata"]["name"] = job.name
        body["spec"]["rendezvous"] = {**body["spec"].get("rendezvous", {}), **job.times}
        super().__init__(job, script, body)


class Elsewhere(Script):
    """A job of a script of elsewhere/, whose working directory is one that all workers share."""

    def __init__(self, job: Job, name: str) -> None:
        folder = f"/checkpoints/{job.namespace.name}"
        env = {"EPOCHS": EPOCHS, "EPOCH_SECONDS": "1", "OMP_NUM_THREADS": "1"}
        body = job.manifest(
            replicas=2, maxReplicas=3, warmRestart="Auto", script=CONFIG_MAP, env=env, trainer={"workingDir": folder}
        )
        pod = body["spec"]["template"]["spec"]
        (trainer,) = pod["containers"]
        if name == "multinode":
            trainer["command"] = [*TORCHRUN, EPOCHS, "1", "--epoch-seconds=1"]
        make = {"command": ["mkdir", "--parents", folder], "volumeMounts": trainer["volumeMounts"]}
        pod["initContainers"] = [{"name": "folder", "image": IMAGE, **make}]
        super().__init__(job, _config_map(ELSEWHERE / f"{name}.py"), body)
