# SPDX-License-Identifier: Apache-2.0
"""Elastic training by plain torchrun and its c10d rendezvous on Kubernetes, set up as well as we know how.

The trainer's image, script and checkpoints are those of our own tests. Each choice is the best known for c10d:

- An Indexed Job with a headless service. Its pods keep their host names, and a pod on a lost node is replaced as soon
  as it is marked for deletion; a StatefulSet would wait for the node. `backoffLimit` never ends the job.
- Pods leave a node as soon as the cluster finds that it does not answer, not after the usual 5 minutes.
- The endpoint is the full name of pod 0, which torchrun finds in /etc/hosts: no DNS lag decides who hosts the store.
- torchrun is process 1, so that the agent of a restarted container, or of a replaced pod, takes its predecessor's
  place in the rendezvous: nobody waits 15 s for the old one to expire.
- `last_call_timeout`, 30 s by default, is added to every round of less than 4 workers; a `Setup` has the shortest
  that works for it. `join_timeout` and the keep-alive are torch's defaults.
- `--max-restarts` is never used up.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from pod_logs import PodLogs

from e2e.disruption import CHECKPOINTS, NODE
from e2e.job import NEWEST_TORCH, manifest
from e2e.kube import Object, Watch, run
from e2e.scene import new_namespace

NAME, PORT = "c10d", 29400
MAX_NODES = 4
TOLERATIONS = [
    {"key": f"node.kubernetes.io/{why}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 0}
    for why in ("not-ready", "unreachable")
]


@dataclass(frozen=True, slots=True)
class Setup:
    env: Mapping[str, str]
    last_call: int  # seconds


SETUPS = {
    # In most events its agents die. One that dies twice is started again by the kubelet 10 s after the others, and a
    # last call that ends before makes a round without it, in whose change all die once more.
    "default": Setup({}, 20),
    # The workaround of pytorch/pytorch issue 135712, of which torch's manual does not tell. All pods start within 5 s.
    "unshared": Setup({"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}, 5),
}


def service() -> Object:
    spec = {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": {"app": NAME},
        "ports": [{"name": "rendezvous", "port": PORT}],
    }
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": NAME}, "spec": spec}


def torchrun(namespace: str, setup: Setup, script: str) -> list[str]:
    """The command of a worker. The endpoint is pod 0, the namespace's name the run id."""
    endpoint = f"{NAME}-0.{NAME}.{namespace}.svc.cluster.local:{PORT}"
    command = ["torchrun", f"--nnodes=1:{MAX_NODES}", "--nproc-per-node=1", "--max-restarts=1000"]
    command += ["--rdzv-backend=c10d", f"--rdzv-endpoint={endpoint}", f"--rdzv-id={namespace}"]
    return [*command, f"--rdzv-conf=last_call_timeout={setup.last_call}", script]


def indexed_job(namespace: str, replicas: int, setup: Setup) -> Object:
    """The namespace's name is the run id as well, which names the checkpoint."""
    command = torchrun(namespace, setup, "/test/train.py")
    # the request makes the scheduler use both nodes
    trainer = {"command": command, "resources": {"requests": {"cpu": "300m"}}}
    env = {"LOGLEVEL": "INFO", **setup.env}
    template = manifest(NAME, env=env, trainer=trainer, torch=NEWEST_TORCH)["spec"]["template"]
    template["metadata"] = {"labels": {"app": NAME}}
    template["spec"] |= {"restartPolicy": "OnFailure", "subdomain": NAME, "tolerations": TOLERATIONS}
    spec = {"completionMode": "Indexed", "backoffLimit": 1000, "template": template, **size(replicas)}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": NAME}, "spec": spec}


def size(replicas: int) -> Object:
    return {"completions": replicas, "parallelism": replicas}


@dataclass(slots=True)
class C10dJob(PodLogs):
    """The job, and all that its pods printed in all of their lives."""

    def apply(self, replicas: int, setup: Setup) -> None:
        self.namespace.apply(service(), indexed_job(self.namespace.name, replicas, setup))

    def scale(self, replicas: int) -> None:
        self.namespace.kubectl("patch", "job", NAME, "--patch", json.dumps({"spec": size(replicas)}))

    def group(self, members: int) -> str | None:
        """The group in which all pods, `members` in number, took their newest steps."""
        self.read()
        pods = self.pods()
        newest = [steps[-1] for pod in pods if (steps := self.log(pod).steps())]
        groups = {(step.group, step.world_size) for step in newest}
        together = len(pods) == len(newest) == members and groups == {(newest[0].group, members)}
        return newest[0].group if together else None


@contextmanager
def new_job(title: str) -> Iterator[C10dJob]:
    """A job that is watched, but not yet applied, in a namespace of its own."""
    with new_namespace(title) as namespace:
        watch = Watch(namespace, "pods")
        try:
            yield C10dJob(namespace, watch)
        finally:
            watch.close()
            run("docker", "exec", NODE, "rm", "-f", f"{CHECKPOINTS}/{namespace.name}")
