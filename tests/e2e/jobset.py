# SPDX-License-Identifier: Apache-2.0
"""A real JobSet controller on the control plane's node, and jobs of its example that run train.py of these tests."""

import fcntl
import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import yaml

from e2e.controllers import ON_THE_CONTROL_PLANE, SECONDS, forget, get_ready, installed, is_taken
from e2e.disruption import CHECKPOINTS, NODE
from e2e.job import NEWEST_TORCH, TRAINER
from e2e.kube import Namespace, Object, run, wait_until
from e2e.schedule import lock
from e2e.trainer_log import STEP, Step, TrainerLog
from support.others import CACHE, version

NAME = "jobset"
KINDS = ["jobsets.jobset.x-k8s.io"]
VALUES = {
    "image": {"repository": f"elasticjob/{NAME}", "tag": version(NAME), "pullPolicy": "Never"},
    "controller": {
        "leaderElection": {"enable": False},
        "resources": {"limits": None, "requests": {"cpu": "50m", "memory": "64Mi"}},
        **ON_THE_CONTROL_PLANE,
    },
}
EXAMPLE = Path(__file__).parents[2] / "examples/jobset"
INDEX = "batch.kubernetes.io/job-completion-index"
FIRST_CHECKPOINT = 5  # SAVE_EVERY of the script


class Taken(NamedTuple):
    """A step of a group, and when a pod logged it."""

    at: float  # seconds since the epoch
    group: str


@contextmanager
def jobset(home: Namespace) -> Iterator[None]:
    """It runs in the namespace `home`; the cluster has room for one."""
    with lock(CACHE / f"{NAME}.lock", fcntl.LOCK_EX), installed(home, NAME, VALUES):
        try:
            get_ready(home, f"{NAME}-controller", f"{NAME}-webhook-server-cert")
            probe = next(body for body in bodies() if body["kind"] == "JobSet")
            wait_until("JobSet's webhooks to be reached", lambda: is_taken(home, probe, dry_run=True), SECONDS)
            yield
        finally:
            forget(*KINDS)


def bodies() -> list[Object]:
    """The objects of the example, without the claim: nodes of the local cluster share a directory."""
    found = yaml.safe_load_all((EXAMPLE / "jobset.yaml").read_text())
    return [body for body in found if body["kind"] != "PersistentVolumeClaim"]


def with_test_script(pod: Object, env: Mapping[str, str]) -> None:
    """Have the pod's one container run train.py of these tests by the nodes' newest torch, with these variables."""
    (trainer,) = pod["containers"]
    variables = {variable["name"]: variable for variable in trainer["env"]}
    variables |= {name: {"name": name, "value": value} for name, value in env.items()}
    trainer["env"] = list(variables.values())
    if "command" in trainer:
        trainer["command"] = [word.replace("train.py", "/test/train.py") for word in trainer["command"]]
    trainer.pop("resources", None)  # three of the demo's size may not fit beside other tests
    mounts = {mount["name"]: mount for mount in trainer["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    mounts |= {
        "torch": {"name": "torch", "mountPath": "/opt/torch", "readOnly": True},
        "script": {"name": "script", "mountPath": "/test"},
        "checkpoints": {"name": "checkpoints", "mountPath": "/checkpoints"},
    }
    volumes |= {
        "torch": {"name": "torch", "hostPath": {"path": NEWEST_TORCH, "type": "Directory"}},
        "script": {"name": "script", "configMap": {"name": "train"}},
        "checkpoints": {"name": "checkpoints", "hostPath": {"path": CHECKPOINTS, "type": "Directory"}},
    }
    trainer["volumeMounts"], pod["volumes"] = list(mounts.values()), list(volumes.values())


def pod_spec(body: Object) -> Object:
    (replicated,) = body["spec"]["replicatedJobs"]
    spec: Object = replicated["template"]["spec"]["template"]["spec"]
    return spec


@dataclass(slots=True)
class FixedJob:
    """A job of as many pods as it began with, whose controller replaces those that are lost."""

    namespace: Namespace
    container: str = TRAINER
    done = "Completed"  # the condition of a job that has succeeded

    def apply(self, **env: str) -> None:
        """The example as a JobSet, its trainers with these variables over the manifest's."""
        objects = bodies()
        with_test_script(pod_spec(next(body for body in objects if body["kind"] == "JobSet")), env)
        self.namespace.apply(*objects)

    def pods(self) -> dict[int, Object]:
        """The pods that are not on their way out, by index."""
        found = (pod for pod in self.namespace.list("pods", labelSelector=INDEX))
        alive = [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]
        return {int(pod["metadata"]["labels"][INDEX]): pod for pod in alive}

    def delete_first(self) -> float:
        """`kubectl delete pod` of the pod with index 0; return the moment, in seconds since the epoch."""
        name = self.pods()[0]["metadata"]["name"]
        moment = time.time()
        self.namespace.delete("pod", name)
        return moment

    def last_steps(self) -> dict[int, Step]:
        """The last step of each pod that has taken one."""
        found = {index: self._log(pod, 20).steps() for index, pod in self.pods().items()}
        return {index: steps[-1] for index, steps in found.items() if steps}

    def group(self, size: int) -> str | None:
        """The group in which all pods, `size` in number, took their last steps."""
        steps = self.last_steps()
        groups = {(step.group, step.world_size) for step in steps.values()}
        if len(steps) != size or len(groups) != 1:
            return None
        ((group, world_size),) = groups
        return group if world_size == size else None

    def wait_for_group(self, size: int, seconds: float, *, other_than: str = "") -> str:
        """Wait for a group of all pods, `size` in number, that is a new one; return its name."""

        def together() -> str | None:
            found = self.group(size)
            return found if found != other_than else None

        return wait_until(f"a group of {size} that trains", together, seconds, self.describe)

    def wait_for_checkpoint(self, seconds: float) -> None:
        def saved() -> bool:
            return any(step.step > FIRST_CHECKPOINT for step in self.last_steps().values())

        wait_until("the first checkpoint", saved, seconds, self.last_steps)

    def resumed(self, after: float) -> float:
        """When any pod first took a step again, in a group of whatever size that began after a moment."""
        steps = self._steps()
        old = {step.group for step in steps if step.at <= after}
        return min(step.at for step in steps if step.group not in old)

    def _steps(self) -> list[Taken]:
        lines = [line for pod in self.pods().values() for line in self._log(pod).lines]
        return [Taken(line.at, found[1]) for line in lines if (found := STEP.search(line.text))]

    def began(self, group: str) -> float:
        """When the last pod took its first step in a group, in seconds since the epoch."""
        moments = [self._log(pod).when(f"group={group} ") for pod in self.pods().values()]
        return max(moment for moment in moments if moment is not None)

    def finish(self) -> None:
        """Have the training end in success."""
        pod = self.pods()[0]["metadata"]["name"]
        self.namespace.kubectl("exec", pod, "--container", self.container, "--", "touch", "/tmp/finish")

    def config_maps(self) -> set[str]:
        """The names of the ConfigMaps, without those that are there before any job."""
        names = {body["metadata"]["name"] for body in self.namespace.list("configmaps")}
        return names - {"train", "kube-root-ca.crt"}

    def state(self) -> Object:
        """The rendezvous, as the example's README has people look at it."""
        text = self.namespace.kubectl("get", "configmap", "digits", "--output=jsonpath={.data.state}")
        body: Object = json.loads(text or "{}")
        return body

    def describe(self) -> str:
        """Each pod's phase and restarts, and its last step, for a wait that was in vain."""
        steps, found = self.last_steps(), []
        for index, pod in self.pods().items():
            status = pod["status"]
            restarts = [one["restartCount"] for one in status.get("containerStatuses", ())]
            found.append(f"pod {index}: {status['phase']}, restarts {restarts}, {steps.get(index)}")
        return "; ".join(found)

    def forget_checkpoint(self, run_id: str) -> None:
        run("docker", "exec", NODE, "rm", "-f", f"{CHECKPOINTS}/{run_id}", f"{CHECKPOINTS}/{run_id}.new")

    def _log(self, pod: Object, last: int = -1) -> TrainerLog:
        return TrainerLog.read(self.namespace, pod["metadata"]["name"], self.container, last=last)
