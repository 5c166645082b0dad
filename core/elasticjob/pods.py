"""A worker's pod as others read it: the names that the operator gives, and the words of kubelet and scheduler. Pure.

Operator and command line tool read them alike here; what follows from them is theirs to say.
"""

import hashlib
import json
import re
from collections.abc import Iterator

from elasticjob.objects import Object
from elasticjob.spec import ElasticJobSpec
from elasticjob.text import printable

SIDECAR = "elasticjob-sidecar"
BATCH = "ELASTICJOB_BATCH"  # the sidecar's variable: what the ids of pods that were made at once begin with
JOB_UID = "ELASTICJOB_JOB_UID"  # the sidecar's variable: the job that it belongs to

# why the kubelet does not start a container; only a change by the user helps
IMAGE_WORDS = frozenset(
    {"ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "ImageInspectError"}
)
CONFIG_WORDS = frozenset({"CreateContainerConfigError"})
START_WORDS = frozenset({"CreateContainerError", "RunContainerError"})
CRASHES = "CrashLoopBackOff"
# the scheduling gates of Kueue, and by which label it knows the queue of a pod and the priority there
KUEUE = "kueue.x-k8s.io/"
QUEUE_LABEL, QUEUE_PRIORITY_LABEL = f"{KUEUE}queue-name", f"{KUEUE}priority-class"
# the conditions of a pod that is ended for a reason that is not its own: Kubernetes' and Kueue's
DISRUPTIONS = ("DisruptionTarget", "TerminationTarget")
TEMPLATE_HASH = "elasticjob.io/template-hash"  # the pod's annotation: from what it was made
KEPT_OFF = "elasticjob.io/kept-off-nodes"  # the pod's annotation: onto which nodes it may not go
# torch's words where it has not found the plug-in, to which nothing but PYTHONPATH leads it, and what they mean
NOT_REGISTERED = "backend 'elasticjob' is not registered"
NO_PLUGIN = (
    f"{NOT_REGISTERED}: torchrun has not found ElasticJob's plug-in in PYTHONPATH: add to that variable and do not "
    "replace it (PYTHONPATH=/my/folder:$PYTHONPATH), and start Python without -I and -E; it takes torch 2.6 or newer"
)
# what a torchrun logs that ends in success since its stage is finished: no reason for how its container ends later
NOTHING_LEFT = "elasticjob: nothing left to do: "
# how a container has ended whose command the runtime could not start
NEVER_RAN = frozenset({"StartError", "ContainerCannotRun"})


def pod_name(job: str, index: int, replacement: int) -> str:
    return f"{job}-{index}-{replacement}"


def pod_key_of(job: str, pod: str) -> tuple[int, int] | None:
    """The index and number of which `pod_name` makes `pod`; None for any other pod, whatever its labels say."""
    found = re.fullmatch(r"(.+)-([0-9]{1,9})-([0-9]{1,15})", pod)  # JSON carries numbers of 15 digits exactly
    pod_key = (int(found[2]), int(found[3])) if found else None
    return pod_key if pod_key and pod_name(job, *pod_key) == pod else None


def template_hash(spec: ElasticJobSpec) -> str:
    """The hash of what running pods keep, and what so may change only while there are none."""
    made_from = [spec.template, spec.nproc_per_node, spec.trainer_container]
    return hashlib.sha256(json.dumps(made_from, sort_keys=True).encode()).hexdigest()[:16]


def hash_of(pod: Object) -> str | None:
    """The `template_hash` that the pod was made from; None for a pod of an operator that did not note it yet."""
    annotations: dict[str, str] = pod["metadata"].get("annotations") or {}
    return annotations.get(TEMPLATE_HASH)


def batch_of(pod: Object) -> str | None:
    """With what the operator has begun the ids of the pod's sidecar; None for a pod that it did not make."""
    return set_in_sidecar(pod, BATCH)


def set_in_sidecar(pod: Object, variable: str) -> str | None:
    """What the operator has set in the environment of the sidecar, which nobody can change in a pod that is there."""
    containers = pod.get("spec", {}).get("initContainers") or ()
    variables = next((one.get("env") or () for one in containers if one["name"] == SIDECAR), ())
    return next((one.get("value") for one in variables if one["name"] == variable), None)


def kept_off(pod: Object) -> frozenset[str]:
    """The nodes that the pod may not go to, whatever room there is."""
    annotations: dict[str, str] = pod["metadata"].get("annotations") or {}
    return frozenset(filter(None, annotations.get(KEPT_OFF, "").split(",")))


def condition(pod: Object, type: str) -> Object:
    """Empty where there is none."""
    return next((one for one in pod.get("status", {}).get("conditions") or () if one["type"] == type), {})


def awaited_queue(pod: Object) -> str | None:
    """The queue in which Kueue keeps the pod until there is quota; None where it does not."""
    gates = pod.get("spec", {}).get("schedulingGates") or ()
    if not any(gate["name"].startswith(KUEUE) for gate in gates):
        return None
    labels: dict[str, str] = pod["metadata"].get("labels") or {}
    return labels.get(QUEUE_LABEL)


def disruption(pod: Object) -> Object:
    """The condition by which the cluster ends the pod for a reason of its own: a drain, an eviction, a lost node, a
    preemption. Empty where it does not."""
    found = (condition(pod, type) for type in DISRUPTIONS)
    return next((one for one in found if one.get("status") == "True"), {})


def init_containers(pod: Object) -> list[Object]:
    """The statuses of the containers of init."""
    return pod.get("status", {}).get("initContainerStatuses") or []


def containers(pod: Object) -> Iterator[Object]:
    """The statuses of all containers, those of init first."""
    yield from init_containers(pod)
    yield from pod.get("status", {}).get("containerStatuses") or ()


def container(pod: Object, name: str) -> Object:
    """The status of that container; empty before there is one."""
    return next((one for one in containers(pod) if one["name"] == name), {})


def has_started(status: Object) -> bool:
    return not {"running", "terminated"}.isdisjoint(status.get("state", {}))


def running_since(status: Object) -> str | None:
    found: str | None = (status.get("state", {}).get("running") or {}).get("startedAt")
    return found


def unready_since(pod: Object) -> str | None:
    """Since when the sidecar runs, while it is not ready: it has no access to the API server, or has just started."""
    sidecar = container(pod, SIDECAR)
    return running_since(sidecar) if sidecar.get("ready") is False else None


def was_rejected(pod: Object) -> bool:
    """Whether its node has ended it before any of its containers was started, as a kubelet does that cannot admit it.
    After the node's restart that may be a pod that has run there: the kubelet keeps nothing of that then."""
    if pod.get("status", {}).get("phase") != "Failed":
        return False
    return not any(has_started(one) or end_before(one) for one in containers(pod))


def waiting(status: Object) -> Object:
    """Why that container waits; empty where it does not."""
    found: Object = status.get("state", {}).get("waiting") or {}
    return found


def waits_for(status: Object) -> str:
    """The kubelet's word for it."""
    return str(waiting(status).get("reason", ""))


def ended(status: Object) -> Object | None:
    found: Object | None = status.get("state", {}).get("terminated")
    return found


def end_before(status: Object) -> Object | None:
    """How it ended before it was started again."""
    found: Object | None = status.get("lastState", {}).get("terminated")
    return found


def crash_before(status: Object) -> Object | None:
    """As `end_before`, but for a start that the node did not manage and has made up for: its command did not crash."""
    end = end_before(status)
    made_up_for = "running" in status.get("state", {}) and end is not None and end.get("reason") in NEVER_RAN
    return None if made_up_for else end


def how_it_ended(end: Object) -> str:
    """`exit code 1: the last line of its message`, with the reason where it says more than `Error`."""
    reason, message = printable(end.get("reason", "Error")), end.get("message", "")
    lines = [shown for line in message.splitlines() if (shown := printable(line).strip())]
    if lines and lines[-1].startswith(NOTHING_LEFT):
        lines = []
    code = f"exit code {end['exitCode']}" + ("" if reason in ("Error", "Completed") else f", {reason}")
    return ": ".join([code, NO_PLUGIN] if end["exitCode"] and NOT_REGISTERED in message else [code, *lines[-1:]])
