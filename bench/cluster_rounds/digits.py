# SPDX-License-Identifier: Apache-2.0
"""The digits job of `make demo`, as an ElasticJob and as a StatefulSet whose torchrun uses its own c10d rendezvous.

Both have the pod template of examples/digits, with the demo's changes for the local cluster: same image, script,
requests and user. This module adds nothing but what each kind needs, and tells where a group of workers trains.

The StatefulSet is set up as well as we know how:

- Its pods are made and deleted in parallel, behind a headless service that knows them before they are ready.
- The endpoint is the name of pod 0, whose agent finds it in /etc/hosts and so hosts the store. The others ask the
  cluster's DNS, which forgets a deleted pod at once.
- torchrun is process 1 and its host name stays, so the agent of a pod that was made again takes the place of the one
  before: nobody waits 15 s for that to expire.
- `TORCH_DISABLE_SHARE_RDZV_TCP_STORE` is set in the setup `unshared`, and not in `default`, as torch comes: there the
  training processes use a store of rank 0's agent, whose address is announced in the first round only. An agent that is
  new in a later round waits 60 s for it in vain; then all agents die, and the kubelet starts them again. The same
  members keep the store, and in it the addresses of the processes before: new ones fail to connect to those, and the
  round is formed again, perhaps for minutes.
- `last_call_timeout` (5 s `unshared`, 20 s `default`; 30 s in torch) is added to every round of fewer than 4 workers.
  It has to be longer than the time between the first agent's arrival and the last one's, else the round has to be
  formed once more: 5 s is enough for pods to start, but not for the kubelet to start again, after 10 s, an agent that
  died twice.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple

import yaml
from c10d_job import MAX_NODES, NAME, SETUPS, Setup, service, torchrun
from pod_logs import READ_SECONDS, PodLogs

from e2e.disruption import CHECKPOINTS, NODE
from e2e.job import PRESTARTED_SECONDS, STARTED_SECONDS
from e2e.kube import Namespace, Object, Watch, run, succeed, wait_until
from e2e.scene import new_namespace
from e2e.trainer_log import COMPLETE, JOINS, Group, TrainerLog
from support.waiting import Deadline

DEMO = Path(__file__).parents[2] / "hack/demo"
# No run reaches the last epoch, and one is no longer than a step of our other tests.
ENV = {"EPOCHS": "1000000", "EPOCH_SECONDS": "0.2", "LOGLEVEL": "INFO"}
GONE_SECONDS = 90  # for a namespace's end


class Side(NamedTuple):
    """One of those that are compared: what `kubectl scale` names, and the objects of a namespace and a size."""

    target: str
    objects: Callable[[str, int, Mapping[str, str]], list[Object]]
    warm: bool = False  # its processes are started before they are needed
    spares: int = 0  # workers that wait beside the members
    processes: int = 1  # that train in each worker
    live: bool = False  # they live through changes
    recorded: bool = False  # they record their steps


def elastic_job(
    namespace: str, replicas: int, env: Mapping[str, str], warm: bool = False, spares: int = 0
) -> list[Object]:
    job = digits(namespace, replicas, env)
    job["spec"] |= {"warmRestart": "Enabled" if warm else "Disabled", "spareReplicas": spares}
    return [job]


def stateful_set(namespace: str, replicas: int, env: Mapping[str, str], setup: Setup) -> list[Object]:
    template = digits(namespace, replicas, {**env, **setup.env})["spec"]["template"]
    template["metadata"] = {"labels": {"app": NAME}}
    template["spec"]["containers"][0]["command"] = torchrun(namespace, setup, "train.py")
    spec = {
        "replicas": replicas,
        "serviceName": NAME,
        "podManagementPolicy": "Parallel",
        "selector": {"matchLabels": {"app": NAME}},
        "template": template,
    }
    return [service(), {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": NAME}, "spec": spec}]


def digits(namespace: str, replicas: int, env: Mapping[str, str]) -> Object:
    """The demo's ElasticJob, with checkpoints of its own, and `env` added."""
    job: Object = yaml.safe_load(succeed("kubectl", "kustomize", str(DEMO)))
    job["spec"] |= {"replicas": replicas, "maxReplicas": MAX_NODES, "maxRestarts": 1000}  # one for each kill
    container = job["spec"]["template"]["spec"]["containers"][0]
    values = {one["name"]: one["value"] for one in container["env"]}
    values |= {**env, "CHECKPOINT_DIR": f"/checkpoints/{namespace}"}
    container["env"] = [{"name": name, "value": value} for name, value in values.items()]
    return job


def ours(warm: bool, spares: int) -> Side:
    return Side("elasticjob/digits", partial(elastic_job, warm=warm, spares=spares), warm, spares)


SIDES = {
    "ours": ours(warm=False, spares=0),
    "warm": ours(warm=True, spares=0),
    "spare": ours(warm=False, spares=1),
    "warm_spare": ours(warm=True, spares=1),
    **{f"c10d_{name}": Side(f"statefulset/{NAME}", partial(stateful_set, setup=SETUPS[name])) for name in SETUPS},
}


class NotTraining(Exception):
    """The job did not come to train, so nothing could happen to it."""


@dataclass(slots=True, kw_only=True)
class Training(PodLogs):
    """A job of one of the sides."""

    side: Side
    env: Mapping[str, str] = field(default_factory=lambda: ENV)

    def start(self, replicas: int) -> None:
        """Apply the job; return when all of it trains. Raises NotTraining."""
        self.namespace.apply(*self.side.objects(self.namespace.name, replicas, self.env))
        self.wait_for(replicas)

    def wait_for(self, replicas: int) -> None:
        """Return when all of it trains, with as many workers, and is ready to restart. Raises NotTraining."""

        def together() -> bool:
            newest = self._newest()
            return (
                newest is not None
                and newest.trained
                and newest.world_size == replicas * self.side.processes
                and self.has_pods(replicas)
            )

        def ready(log: TrainerLog) -> bool:
            return log.is_prestarted() if self.side.warm else log.when(JOINS) is not None

        def all_ready() -> bool:
            self.read()
            return all(ready(self.log(pod)) for pod in self.pods())

        try:
            wait_until(f"{replicas} workers that train together", together, STARTED_SECONDS, self._newest)
            if self.side.warm or self.side.spares:
                wait_until(
                    "spares to wait, all processes for the next round to be prestarted", all_ready, PRESTARTED_SECONDS
                )
        except Deadline as late:
            raise NotTraining(str(late)) from None

    def has_pods(self, replicas: int) -> bool:
        """Whether there are as many as belong to so many members."""
        return len(self.pods()) == replicas + self.side.spares

    def new_group(self, size: int, since: float, seconds: float) -> Group | None:
        """The first group of `size` that began after `since` and had an epoch; none within `seconds`."""

        def trains() -> Group | None:
            groups = (one for one in self._groups() if one.trained and one.started > since)
            return min((one for one in groups if one.world_size == size * self.side.processes), default=None)

        try:
            group = wait_until(f"a new group of {size} to train", trains, seconds + 2 * READ_SECONDS)
        except Deadline:
            return None
        return group if group.first_epoch <= since + seconds else None

    def agreed(self, group: Group) -> float:
        """When the last of the group's agents came out of its rendezvous."""
        lines = [line for log in self.logs().values() for line in log.lines]
        return max(line.at for line in lines if COMPLETE in line.text and line.at < group.started)

    def scale(self, replicas: int) -> list[str]:
        return ["scale", self.side.target, f"--replicas={replicas}"]

    def delete_rank_0(self) -> list[str]:
        return ["delete", "pod", self._leader(), "--wait=false"]

    def delete_another(self) -> list[str]:
        return ["delete", "pod", self.another()["metadata"]["name"], "--wait=false"]

    def another(self) -> Object:
        """A member's pod that is not rank 0's."""
        leader = self._leader()
        others = (pod for pod in self.pods() if pod["metadata"]["name"] != leader)
        return next(pod for pod in others if not self.side.spares or self.log(pod).first_steps())

    def _leader(self) -> str:
        """The name of rank 0's pod, the one that printed the newest group."""
        newest = self._newest()
        return next(name for name, log in self.logs().items() if newest in log.groups())

    def _newest(self) -> Group | None:
        return max(self._groups(), default=None)

    def _groups(self) -> list[Group]:
        self.read()
        return [group for log in self.logs().values() for group in log.groups()]


@contextmanager
def new_training(side: str | Side, title: str, logs: Path, env: Mapping[str, str] = ENV) -> Iterator[Training]:
    """A job that is not yet applied, in a namespace that is gone afterwards; its logs are kept in `logs`."""
    with new_namespace(f"digits-{title}") as namespace:
        watch = Watch(namespace, "pods")
        known = SIDES[side] if isinstance(side, str) else side
        training = Training(namespace=namespace, pod_states=watch, side=known, env=env)
        try:
            yield training
        finally:
            training.keep(logs)
            watch.close()
            end(namespace)


def end(namespace: Namespace) -> None:
    """Delete the namespace and wait until it is gone, so that the next run has the nodes alone."""
    run("kubectl", "delete", "namespace", namespace.name, "--wait=false")
    # a torchrun that waits in C++ hears of no signal
    namespace.try_kubectl("delete", "pods", "--all", "--grace-period=1", "--wait=false")
    gone = ["kubectl", "wait", "--for=delete", f"namespace/{namespace.name}", f"--timeout={GONE_SECONDS}s"]
    run(*gone, seconds=GONE_SECONDS + 30)
    run("docker", "exec", NODE, "rm", "-rf", f"{CHECKPOINTS}/{namespace.name}")
