# SPDX-License-Identifier: Apache-2.0
"""A real Kueue on the control plane's node, for the namespaces that have its label; and queues with a quota of pods."""

import fcntl
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from random import Random

import yaml

from e2e import controllers
from e2e.controllers import ON_THE_CONTROL_PLANE, SECONDS, get_ready, is_taken, let_go
from e2e.job import ROUND_SECONDS, Job
from e2e.kube import Namespace, Object, kubectl, run, wait_until
from e2e.schedule import lock
from support.others import CACHE, version

NAME = "kueue"
API = "kueue.x-k8s.io/v1beta2"
QUEUE, PRIORITY = "kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/priority-class"
OURS = "elasticjob-tests"  # the label of namespaces whose pods Kueue admits
FLAVOR = "anywhere"
PRIORITIES = {"low": 10, "high": 100}
# its own objects, which only Kueue itself can let go
QUEUES = [f"{kind}.kueue.x-k8s.io" for kind in ("workloads", "localqueues", "clusterqueues", "resourceflavors")]
# of a job's sizes: more are in the simulation. Some come before the operator or Kueue has answered the one before
RESIZES, PAUSES = 40, (0.0, 0.1, 0.5, 1.5)

CONFIGURATION = {
    "apiVersion": "config.kueue.x-k8s.io/v1beta2",
    "kind": "Configuration",
    "health": {"healthProbeBindAddress": ":8081"},
    "metrics": {"bindAddress": ":8443"},
    "webhook": {"port": 9443},
    "leaderElection": {"leaderElect": True, "resourceName": "kueue"},
    "managedJobsNamespaceSelector": {"matchLabels": {OURS: "queued"}},
    "integrations": {"frameworks": ["pod"]},
}
VALUES = {
    "controllerManager": {
        "manager": {
            "image": {"repository": f"elasticjob/{NAME}", "tag": version(NAME), "pullPolicy": "Never"},
            "resources": {"limits": None, "requests": {"cpu": "50m", "memory": "64Mi"}},
        },
        "readinessProbe": {"periodSeconds": 1},
        **ON_THE_CONTROL_PLANE,
    },
    "managerConfig": {"controllerManagerConfigYaml": yaml.safe_dump(CONFIGURATION)},
}


@contextmanager
def kueue(home: Namespace) -> Iterator[None]:
    """It runs in the namespace `home`; the cluster has room for one."""
    with lock(CACHE / "kueue.lock", fcntl.LOCK_EX), installed(home):
        yield


@contextmanager
def installed(home: Namespace) -> Iterator[None]:
    with controllers.installed(home, NAME, VALUES):
        try:
            get_ready(home, f"{NAME}-controller-manager", f"{NAME}-webhook-server-cert")
            classes = [made("WorkloadPriorityClass", name, {"value": value}) for name, value in PRIORITIES.items()]
            flavor = made("ResourceFlavor", FLAVOR, {"spec": {}})
            wait_until("Kueue's webhooks to be reached", lambda: is_taken(home, flavor, *classes), SECONDS)
            yield
        finally:
            let_go(*QUEUES)


def made(kind: str, name: str, fields: Mapping[str, object]) -> Object:
    return {"apiVersion": API, "kind": kind, "metadata": {"name": name}, **fields}


def usage(queue: str) -> Object:
    """How many pods use quota of the ClusterQueue, and for how many it is reserved."""
    body = json.loads(kubectl("get", f"clusterqueues.{API.partition('/')[0]}", queue, "--output=json"))
    return {field: _pods(body.get("status", {}).get(field, ())) for field in ("flavorsUsage", "flavorsReservation")}


def _pods(flavors: Sequence[Object]) -> int:
    return sum(int(one["total"]) for flavor in flavors for one in flavor["resources"] if one["name"] == "pods")


def leaves_no_quota_in_use(job: Job, queue: str, pods: int) -> None:
    """Scale a job that trains, at random and faster than it can follow; then suspend it, and then delete it. With its
    quota of so many `pods` it trains when asked to, and uses none of it after either end."""
    dice = Random(35)
    for _ in range(RESIZES):
        job.scale(dice.randint(1, pods + 2))
        time.sleep(dice.choice(PAUSES))
    job.scale(pods + 1)
    everything = {"flavorsUsage": pods, "flavorsReservation": pods}
    nothing = dict.fromkeys(everything, 0)

    def trains() -> bool:
        return (job.rendezvous.get("phase"), job.rendezvous.get("worldSize")) == ("Formed", pods)

    job.until(f"a round of {pods}", trains, ROUND_SECONDS)
    wait_until("all quota in use", lambda: usage(queue) == everything, SECONDS, lambda: usage(queue))
    job.patch('{"spec": {"suspend": true}}')
    wait_until("a suspended job to use no quota", lambda: usage(queue) == nothing, SECONDS, lambda: usage(queue))
    job.patch('{"spec": {"suspend": false}}')
    job.until(f"a round of {pods} again", trains, ROUND_SECONDS)
    job.namespace.kubectl("delete", "elasticjob", job.name)
    wait_until("a deleted job to use no quota", lambda: usage(queue) == nothing, SECONDS, lambda: usage(queue))
    kind = f"workloads.{API.partition('/')[0]}"
    wait_until("its Workloads to go", lambda: not job.namespace.list(kind), SECONDS, lambda: job.namespace.list(kind))


@contextmanager
def queue(name: str, pods: int, *namespaces: Namespace, flavor: str = FLAVOR) -> Iterator[None]:
    """A ClusterQueue with quota for so many pods, in which the higher priority preempts; and its LocalQueue of the same
    name in each of the namespaces."""
    quotas = {"cpu": "100", "memory": "100Gi", "pods": pods}
    resources = [{"name": resource, "nominalQuota": quota} for resource, quota in quotas.items()]
    group = {"coveredResources": list(quotas), "flavors": [{"name": flavor, "resources": resources}]}
    spec = {
        "namespaceSelector": {},
        "preemption": {"withinClusterQueue": "LowerPriority"},
        "resourceGroups": [group],
    }
    namespaces[0].apply(made("ClusterQueue", name, {"spec": spec}))
    for namespace in namespaces:
        kubectl("label", "namespace", namespace.name, f"{OURS}=queued")
        namespace.apply(made("LocalQueue", name, {"spec": {"clusterQueue": name}}))
    try:
        yield
    finally:
        run("kubectl", "delete", f"clusterqueues.{API.partition('/')[0]}", name, "--wait=false")
