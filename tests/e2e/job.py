# SPDX-License-Identifier: Apache-2.0
"""An ElasticJob and what a person does to it: apply, scale, kill, look."""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

from e2e import disruption
from e2e.api import ask
from e2e.disruption import CHECKPOINTS, container_status, kill_container
from e2e.kube import ENVIRONMENT, Namespace, Object, Sighting, Watch, wait_until
from e2e.trainer_log import TrainerLog
from elasticjob.members import Members
from elasticjob_cli.cluster.access import KubectlFlags
from elasticjob_cli.cluster.connection import Cluster
from elasticjob_cli.cluster.gather import gather
from elasticjob_cli.reading.scene import Scene
from support.waiting import Deadline, settled

T = TypeVar("T")

TRAINER, SIDECAR = "trainer", "elasticjob-sidecar"
IMAGE = "elasticjob/digits:dev"

STARTED_SECONDS = 120  # pods made, torch imported several times over, on a machine of two busy cores
ROUND_SECONDS = 90
TRAINING_SECONDS = 150  # the training processes import torch, on the same two cores
PRESTARTED_SECONDS = 120  # they are imported gently, beside the training
CRD_SEEN_SECONDS = 15  # for the controller of quotas to know a new CRD
TOLD_SECONDS = 30  # for what is told after it has happened: events, logs, a container's state

# of jobs of tests that are not about time: on a busy machine a sidecar may stand still for the default's seconds, and a
# pod may come later than the default's after the first
WORKER_LOST_SECONDS = 30
TIMES = {"workerLostSeconds": WORKER_LOST_SECONDS, "lastCallSeconds": STARTED_SECONDS}

NEWEST_TORCH, OLDEST_TORCH = "/opt/torch", "/opt/torch-oldest"  # of the worker nodes; pods see either at /opt/torch
SCRIPT, STEP_SECONDS = "/test/train.py", 0.2
AGENT, TORCHRUN = ["/test/agent", SCRIPT], ["torchrun", SCRIPT]


@lru_cache(maxsize=2)
def cluster_of(namespace: str) -> Cluster:
    """For the command line tool's functions; its connections stay open, as those that ask are many."""
    return Cluster.connect(KubectlFlags(ENVIRONMENT["KUBECONFIG"], None, namespace))


class Round(NamedTuple):
    """A round that was formed, and when (monotonic seconds)."""

    number: int
    members: tuple[int, ...]
    reason: str
    at: float


class Training(NamedTuple):
    """The newest step that all members have taken together."""

    group: str
    world_size: int
    step: int


def manifest(
    name: str,
    *,
    env: Mapping[str, str] | None = None,
    trainer: Object | None = None,
    torch: str | None = None,
    node: str | None = None,
    script: str = "train",
    **spec: Any,
) -> Object:
    """An ElasticJob whose trainer is train.py of the ConfigMap `script`; `trainer` is merged over its container, `spec`
    over its spec.

    torchrun starts the script, with the torch at that path of the nodes; without one agent.py does. The pods are on
    `node`, if one is given.
    """
    mounts = [{"name": "script", "mountPath": "/test"}, {"name": "checkpoints", "mountPath": "/checkpoints"}]
    volumes: list[Object] = [
        {"name": "script", "configMap": {"name": script, "defaultMode": 0o755}},
        {"name": "checkpoints", "hostPath": {"path": CHECKPOINTS, "type": "Directory"}},
    ]
    if torch:
        mounts.append({"name": "torch", "mountPath": "/opt/torch", "readOnly": True})
        volumes.append({"name": "torch", "hostPath": {"path": torch, "type": "Directory"}})
    container = {
        "name": TRAINER,
        "image": IMAGE,
        "command": TORCHRUN if torch else AGENT,
        "env": [{"name": key, "value": value} for key, value in {"CHECKPOINTS": "/checkpoints", **(env or {})}.items()],
        "volumeMounts": mounts,
        **(trainer or {}),
    }
    pod = {"terminationGracePeriodSeconds": 10, "containers": [container], "volumes": volumes, **place(node)}
    return {
        "apiVersion": "elasticjob.io/v1alpha1",
        "kind": "ElasticJob",
        "metadata": {"name": name},
        # prestarted processes are as much work again for two cores: tests of them ask for them
        "spec": {"replicas": 2, "warmRestart": "Disabled", "template": {"spec": pod}, **spec},
    }


def place(node: str | None) -> Object:
    """What puts a pod on `node`, be it the control plane's; wherever there is room without one."""
    tolerations = [{"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"}]
    return {"nodeSelector": {"kubernetes.io/hostname": node}, "tolerations": tolerations} if node else {}


def warm_restart(warm: bool) -> str:
    """The field's value for a job whose processes start warm, or never do."""
    return "Enabled" if warm else "Disabled"


@dataclass(slots=True)
class Job:
    """One ElasticJob in the cluster, of that torch and on that node. Moments are in monotonic seconds of the test.

    `times` are of its `spec.rendezvous`, unless it names others; `script` is the ConfigMap with its train.py.
    """

    namespace: Namespace
    name: str
    jobs: Watch
    pod_states: Watch
    torch: str | None = None
    node: str | None = None
    times: Mapping[str, int] = field(default_factory=lambda: TIMES)
    script: str = "train"

    # what a person does

    def manifest(self, **settings: Any) -> Object:
        """`manifest`, with this job's torch, node, script and times unless others are given."""
        settings["rendezvous"] = {**self.times, **settings.get("rendezvous", {})}
        return manifest(self.name, **{"torch": self.torch, "node": self.node, "script": self.script, **settings})

    def apply(self, **settings: Any) -> float:
        """Apply the job of these settings of `manifest`; return the moment before."""
        now = time.monotonic()
        self.namespace.apply(self.manifest(**settings))
        return now

    def scale(self, replicas: int) -> float:
        """As `kubectl scale` does; return the moment before."""
        now = time.monotonic()
        self.namespace.patch("elasticjob", self.name, {"spec": {"replicas": replicas}}, "scale")
        return now

    def edit(self) -> None:
        """A change of the spec by which nothing is done but that the next step writes the status. A leader that finds a
        round as it should be writes nothing."""
        was = self.jobs.of(self.name)[-1].body["spec"].get("ttlSecondsAfterFinished", 0)
        self.patch(json.dumps({"spec": {"ttlSecondsAfterFinished": 86400 if was != 86400 else 86401}}))

    def patch(self, patch: str) -> float:
        """A merge patch in JSON; return the moment before."""
        now = time.monotonic()
        self.namespace.patch("elasticjob", self.name, json.loads(patch))
        return now

    def delete_pod(self, pod: Object) -> float:
        """As `kubectl delete pod` does, without waiting for its end; return the moment before."""
        now = time.monotonic()
        self.namespace.delete("pod", pod["metadata"]["name"])
        return now

    def kill_trainer(self, pod: Object) -> float:
        """kill -9 of the trainer container's first process, the agent; return the moment before."""
        now = time.monotonic()
        kill_container(pod, TRAINER)
        return now

    def finish_training(self) -> None:
        """Let the training end in success, in all workers after the same step."""
        disruption.touch(self.member_pods()[0], TRAINER, "/tmp/finish")

    # what is to be seen

    @property
    def uid(self) -> str:
        return str(self.jobs.of(self.name)[-1].body["metadata"]["uid"])

    @property
    def status(self) -> Object:
        return status_of(self.jobs.of(self.name)[-1]) if self.jobs.of(self.name) else {}

    @property
    def restarts(self) -> int:
        """The failures that were counted so far: they never become fewer, and each is in the status of the round that
        it has ended."""
        return int(self.status["restarts"])

    @property
    def rendezvous(self) -> Object:
        status: Object = self.status.get("rendezvous", {})
        return status

    def pods(self) -> dict[int, Object]:
        """The workers' pods that are not on their way out, by index: what the API server has now.

        A watch may be behind the other: without this the pod of a worker may be the one that was lost before the round
        which the job's status shows.
        """
        self.pod_states.catch_up()
        return self._seen_pods()

    def _seen_pods(self) -> dict[int, Object]:
        alive = [pod for pod in self.pod_states.present().values() if "deletionTimestamp" not in pod["metadata"]]
        return {int(pod["metadata"]["labels"]["elasticjob.io/index"]): pod for pod in alive}

    def pod(self, index: int) -> Object:
        """The pod of one worker, member or not, once the kubelet, which may be behind, has told of its trainer."""
        self.pod_states.catch_up()

        def started() -> Object | None:
            pod = self._seen_pods().get(index)
            return pod if pod is not None and has_started(pod) else None

        what = f"the pod of worker {index} to be seen"
        return wait_until(what, started, TOLD_SECONDS, lambda: (self.summary(), self._seen_pods()))

    def wait_for_pod(self, name: str, seconds: float = STARTED_SECONDS) -> Object:
        """The pod of this name, once the kubelet has told of its trainer."""

        def started() -> Object | None:
            pod = self.pod_states.present().get(name)
            return pod if pod is not None and has_started(pod) else None

        return wait_until(f"pod {name} to be seen", started, seconds, lambda: (self.summary(), self._seen_pods()))

    def member_pods(self) -> list[Object]:
        """The pods of the current round's members, in rank order, as `pod` gives them."""
        self.pod_states.catch_up()

        def started() -> list[Object] | None:
            pods, members = self._seen_pods(), Members.read(self.rendezvous.get("participants", ""))
            found = [pods[member.index] for member in members if member.index in pods]
            return found if len(found) == len(members) and all(map(has_started, found)) else None

        what = "the members' pods to be seen"
        return wait_until(what, started, TOLD_SECONDS, lambda: (self.summary(), self._seen_pods()))

    def condition(self, kind: str) -> Object:
        found = [condition for condition in self.status.get("conditions", ()) if condition["type"] == kind]
        return found[0] if found else {"status": "Unknown", "reason": "", "message": ""}

    def scene(self) -> Scene:
        """What the command line tool sees of it."""
        return gather(cluster_of(self.namespace.name), self.name)

    def saved_step(self) -> int:
        """The step of the newest checkpoint."""
        return int(disruption.machines.checkpoint(self.uid) or 0)

    def forget_checkpoint(self) -> None:
        if self.jobs.of(self.name):
            disruption.machines.forget_checkpoint(self.uid)

    def log(self, pod: Object) -> TrainerLog:
        """What the trainer in `pod` printed in its newest life."""
        return TrainerLog.read(self.namespace, pod["metadata"]["name"], TRAINER)

    def logged(self, pod: Object, text: str) -> float:
        """When the trainer in `pod` printed it; the kubelet's log may be behind what the API server tells."""
        what = f"{pod['metadata']['name']} to log {text!r}"
        return wait_until(what, lambda: self.log(pod).when(text), TOLD_SECONDS)

    def events(self) -> list[Object]:
        selector = f"involvedObject.kind=ElasticJob,involvedObject.name={self.name}"
        answer = ask(f"/api/v1/namespaces/{self.namespace.name}/events", fieldSelector=selector)
        items: list[Object] = json.loads(answer or '{"items": []}')["items"]
        return items

    def rounds(self) -> list[Round]:
        """All rounds that were seen formed."""
        formed: dict[int, Round] = {}
        for sighting in self.jobs.of(self.name):
            agreed = status_of(sighting).get("rendezvous", {})
            if agreed.get("phase") == "Formed" and agreed["round"] not in formed:
                members = tuple(member.index for member in Members.read(agreed.get("participants", "")))
                formed[agreed["round"]] = Round(agreed["round"], members, agreed["reason"], sighting.at)
        return list(formed.values())

    def told(self, round_: Round) -> float | None:
        """When the status, which every sidecar watches, said that `round_` is over."""
        for sighting in self.jobs.of(self.name):
            if status_of(sighting).get("rendezvous", {}).get("round", 0) > round_.number:
                return sighting.at
        return None

    # waits

    def until(
        self, what: str, found: Callable[[], T | None], seconds: float, seen: Callable[[], object] | None = None
    ) -> T:
        """As `wait_until`. What a job lacks that has ended is not late but missing: no Deadline, so no second run."""
        try:
            return wait_until(what, found, seconds, seen or self.summary)
        except Deadline as late:
            if any(self.condition(end)["status"] == "True" for end in ("Complete", "Failed")):
                raise AssertionError(f"the job has ended: {late}") from late
            raise

    def wait_for_round(self, size: int, after: Round | None = None, seconds: float = ROUND_SECONDS) -> Round:
        """The first round of `size` members formed after `after`."""
        last = after.number if after else 0

        def formed() -> Round | None:
            return next((one for one in self.rounds() if one.number > last and len(one.members) == size), None)

        return self.until(f"a round of {size} after round {last}", formed, seconds)

    def wait_for_condition(
        self, kind: str, status: str = "True", message: str = "", seconds: float = ROUND_SECONDS, reason: str = ""
    ) -> Object:
        """The condition, once it has this status, `message` is part of its message, and `reason`, if given, its reason.

        The operator debounces messages: what pods and the command line tool already show may come to a condition later.
        """

        def met() -> Object | None:
            condition = self.condition(kind)
            is_met = condition["status"] == status and message in condition["message"]
            return condition if is_met and reason in ("", condition["reason"]) else None

        what = f"condition {kind}={status} {reason} ({message}) of job {self.name}"
        return self.until(what, met, seconds)

    def budget(self) -> Object:
        """The PodDisruptionBudget."""
        [found] = self.namespace.list("poddisruptionbudgets")
        return found

    def wait_for_protection(self, pods: int) -> None:
        """Until so many pods are not evicted: the kubelet may call them ready only after their first round."""

        def known() -> bool:
            return bool(self.budget().get("status", {}).get("currentHealthy") == pods)

        wait_until(f"the budget to know of {pods} ready pods", known, TOLD_SECONDS, self.budget)

    def wait_for_quotas(self) -> None:
        """Until the namespace's are in force: admission goes by what their controller has counted. It knows a new CRD
        after half a minute, and counts a quota that is older than that only after five more: such a quota is made
        anew."""

        def quotas() -> list[Object]:
            return self.namespace.list("resourcequotas")

        def in_force() -> bool:
            return all(quota.get("status", {}).get("used") for quota in quotas())

        try:
            wait_until("the quotas to be in force", in_force, CRD_SEEN_SECONDS, quotas)
        except Deadline:
            for quota in quotas():
                name, spec = quota["metadata"]["name"], quota["spec"]
                self.namespace.kubectl("delete", "resourcequota", name)
                anew = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": name}, "spec": spec}
                self.namespace.apply(anew)
            wait_until("the quotas, made anew, to be in force", in_force, TOLD_SECONDS, quotas)

    def wait_for_spare(self) -> None:
        self.until("the spare to wait", lambda: self.status.get("spares") == 1, STARTED_SECONDS)

    def wait_for_event(self, reason: str, text: str = "") -> Object:
        """The event of this reason whose message has `text`; events are written after the status."""

        def told() -> Object | None:
            found = (event for event in self.events() if event["reason"] == reason and text in event["message"])
            return next(found, None)

        return wait_until(f"the event {reason} ({text})", told, TOLD_SECONDS, self.events)

    def wait_for_the_only_event(self, reason: str, text: str = "") -> Object:
        """As `wait_for_event`; no other event has this reason so far, and none that was written goes."""
        found = self.wait_for_event(reason, text)
        events = settled(self.events(), "what is written stays")
        written = [event["message"] for event in events if event["reason"] == reason]
        assert len(written) == 1, written
        return found

    def wait_for_training(
        self, world_size: int, other_than: Training | None = None, seconds: float = TRAINING_SECONDS
    ) -> Training:
        """Wait until all members take steps together, in another group than before if one is given."""

        def together() -> Training | None:
            steps = self._newest_steps()
            groups = {(step.group, step.world_size) for step in steps}
            if len(steps) != world_size or len(groups) != 1 or steps[0].world_size != world_size:
                return None
            if other_than is not None and steps[0].group == other_than.group:
                return None
            return Training(steps[0].group, world_size, min(step.step for step in steps))

        what = f"{world_size} workers that train together"
        return self.until(what, together, seconds, lambda: f"{self._newest_steps()}; {self.summary()}")

    def wait_for_steps(self, training: Training, steps: int) -> None:
        """Wait until the same group has taken `steps` more steps."""
        wanted = training.step + steps

        def done() -> bool:
            taken = [step.step for step in self._newest_steps() if step.group == training.group]
            return len(taken) == training.world_size and min(taken) >= wanted

        self.until(f"step {wanted} of group {training.group}", done, TRAINING_SECONDS, self._newest_steps)

    def wait_for_the_end_of_all_pods(self) -> None:
        self.pod_states.catch_up()

        def running() -> list[str]:
            pods = self.pod_states.present().items()
            return [name for name, pod in pods if pod["status"]["phase"] in ("Pending", "Running")]

        wait_until("all workers to end", lambda: not running(), 60, running)

    def wait_for_no_pods(self, seconds: float = 60) -> None:
        self.pod_states.catch_up()

        def gone() -> bool:
            return not self.pod_states.present()

        wait_until("all pods to be gone", gone, seconds, lambda: list(self.pod_states.present()))

    def summary(self) -> str:
        conditions = [f"{one['type']}={one['status']} ({one['message']})" for one in self.status.get("conditions", ())]
        return f"{self.status.get('phase')}, {self.rendezvous}, {'; '.join(conditions)}"

    def _newest_steps(self) -> list[Training]:
        """The newest step that each worker has printed; of each pod by itself, since some may not answer."""
        logs = [
            TrainerLog.read(self.namespace, pod["metadata"]["name"], TRAINER, last=5)
            for pod in self._seen_pods().values()
        ]
        newest = [steps[-1] for log in logs if (steps := log.steps())]
        return [Training(step.group, step.world_size, step.step) for step in newest]


def wall(moment: float) -> float:
    """A moment of the monotonic clock in seconds since the epoch, as logs have them."""
    return moment + time.time() - time.monotonic()


def status_of(sighting: Sighting) -> Object:
    status: Object = sighting.body.get("status", {})
    return status


def has_started(pod: Object, container: str = TRAINER) -> bool:
    """Whether the kubelet has told of the container."""
    statuses = pod["status"].get("initContainerStatuses", []) + pod["status"].get("containerStatuses", [])
    return any(one["name"] == container and one.get("containerID") for one in statuses)


def restarts(pod: Object, container: str = TRAINER) -> int:
    return int(container_status(pod, container)["restartCount"])
