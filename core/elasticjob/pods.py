"""The names that the operator gives in a worker's pod, and the words of kubelet and scheduler. Pure."""

import hashlib
import json
import re
from typing import Any

from elasticjob.spec import ElasticJobSpec

SIDECAR = "elasticjob-sidecar"
BATCH = "ELASTICJOB_BATCH"  # the sidecar's variable: what the ids of pods that were made at once begin with
JOB_UID = "ELASTICJOB_JOB_UID"  # the sidecar's variable: the job that it belongs to

# why the kubelet does not start a container; only a change by the user helps
IMAGE_WORDS = frozenset(
    {
        *("ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "ImageInspectError"),
        *("RegistryUnavailable", "SignatureValidationFailed"),
    }
)
CONFIG_WORDS = frozenset({"CreateContainerConfigError"})
START_WORDS = frozenset(
    {
        *("CreateContainerError", "RunContainerError", "VerifyNonRootError"),
        *("PreCreateHookError", "PreStartHookError", "PostStartHookError"),
    }
)
# what a CreateContainerConfigError says where nothing is missing, and the container itself cannot be as it is
UNFIT = re.compile(r"non-?root|subpath", re.IGNORECASE)
# how the kubelet evicts a pod that has more on its node's disk than it may, whatever room is left there
OVER_ITS_LIMIT = re.compile(
    r"[Uu]sage of EmptyDir volume|local storage usage exceeds the total limit|exceeded its local"
)
CRASHES = "CrashLoopBackOff"
# the scheduling gates of Kueue, and by which label it knows the queue of a pod and the priority there
KUEUE = "kueue.x-k8s.io/"
QUEUE_LABEL, QUEUE_PRIORITY_LABEL = f"{KUEUE}queue-name", f"{KUEUE}priority-class"
# the conditions of a pod that is ended for a reason that is not its own: Kubernetes' and Kueue's
DISRUPTIONS = ("DisruptionTarget", "TerminationTarget")
TEMPLATE_HASH = "elasticjob.io/template-hash"  # the pod's annotation: of what the operator has made it from
WORKLOAD = "elasticjob.io/workload"  # the pod's annotation: the Workload whose quota it takes
KEPT_OFF = "elasticjob.io/kept-off-nodes"  # the pod's annotation: onto which nodes it may not go
# torch's words where it has not found the plug-in, to which nothing but PYTHONPATH leads it, and what they mean
NOT_REGISTERED = "backend 'elasticjob' is not registered"
NO_PLUGIN = (
    f"{NOT_REGISTERED}: torchrun has not found ElasticJob's plug-in in PYTHONPATH: add to that variable and do not "
    "replace it (PYTHONPATH=/my/folder:$PYTHONPATH), and start Python without -I and -E; it takes torch 2.6 or newer"
)
# the container runtime's words where an image has no shell, and what they mean: most templates name none
SHELL_NOT_FOUND = re.compile(r'exec: "/bin/sh": .*no such file')
NO_SHELL = (
    "the image has no /bin/sh, which adds ElasticJob's plug-in to PYTHONPATH: take an image that has one, or set "
    'PYTHONPATH in the trainer container\'s env, if only to "", and the operator leaves the command alone'
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
    """The hash of what running pods keep, and what so may change only while there are none.

    As for the API server, a list of objects in another order is no change: it lets a running job have that.
    """
    made_from = [_in_one_order(spec.template), spec.nproc_per_node, spec.trainer_container]
    made_from += [spec.host_network.dump()] if spec.host_network else []
    return hashlib.sha256(json.dumps(made_from, sort_keys=True).encode()).hexdigest()[:16]


def _in_one_order(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _in_one_order(field) for name, field in value.items()}
    if isinstance(value, list) and any(isinstance(one, dict) for one in value):
        return sorted(map(_in_one_order, value), key=lambda one: json.dumps(one, sort_keys=True))
    return value
