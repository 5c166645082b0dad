# SPDX-License-Identifier: Apache-2.0
"""The names that the operator sets in a worker's pod, and the wording of kubelet and scheduler. Pure."""

import re

SIDECAR = "elasticjob-sidecar"
BATCH = "ELASTICJOB_BATCH"  # the sidecar's variable: the prefix of the ids of pods that were made at once
JOB_UID = "ELASTICJOB_JOB_UID"  # the sidecar's variable: the UID of its job

# the kubelet's reasons not to start a container that only a change by the user removes
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
# in a CreateContainerConfigError: nothing is missing, and the container's own settings are wrong
UNFIT = re.compile(r"non-?root|subpath", re.IGNORECASE)
# the kubelet's message when it evicts a pod that exceeds its own disk limit, however full the node is
OVER_ITS_LIMIT = re.compile(
    r"[Uu]sage of EmptyDir volume|local storage usage exceeds the total limit|exceeded its local"
)
# what registries and container runtimes say of credentials
NO_ENTRY = re.compile(
    r"\b401\b|\b403\b|unauthorized|forbidden|access denied|denied:|authentication required|authorization failed|"
    r"no basic auth credentials",
    re.IGNORECASE,
)
CRASHES = "CrashLoopBackOff"
# Kueue's scheduling gates, and its labels for a pod's queue and priority
KUEUE = "kueue.x-k8s.io/"
QUEUE_LABEL, QUEUE_PRIORITY_LABEL = f"{KUEUE}queue-name", f"{KUEUE}priority-class"
# conditions of a pod that is ended for a reason outside it: Kubernetes' and Kueue's
DISRUPTIONS = ("DisruptionTarget", "TerminationTarget")
TEMPLATE_HASH = "elasticjob.io/template-hash"  # the pod's annotation: a hash of the settings it was made from
WORKLOAD = "elasticjob.io/workload"  # the pod's annotation: the Workload whose quota it takes
AVOIDED_NODES = "elasticjob.io/avoided-nodes"  # the pod's annotation: the nodes it must not run on
# torch's message if it does not find the plug-in, which only PYTHONPATH makes visible; and what that means
NOT_REGISTERED = "backend 'elasticjob' is not registered"
NO_PLUGIN = (
    f"{NOT_REGISTERED}: torchrun has not found ElasticJob's plug-in in PYTHONPATH: add to that variable and do not "
    "replace it (PYTHONPATH=/my/folder:$PYTHONPATH), and start Python without -I and -E; it takes torch 2.6 or newer"
)
# the container runtime's message for an image without a shell, and what that means: most templates name none
SHELL_NOT_FOUND = re.compile(r'exec: "/bin/sh": .*no such file')
NO_SHELL = (
    "the image has no /bin/sh, which adds ElasticJob's plug-in to PYTHONPATH: take an image that has one, or set "
    'PYTHONPATH in the trainer container\'s env, if only to "", and the operator leaves the command alone'
)
# logged by a torchrun that ends in success because its stage is finished; it does not explain the container's later end
NOTHING_LEFT = "elasticjob: nothing left to do: "
# the reasons of a container whose command the runtime could not start
NEVER_RAN = frozenset({"StartError", "ContainerCannotRun"})


def pod_name(job: str, index: int, replacement: int) -> str:
    return f"{job}-{index}-{replacement}"


def pod_key_of(job: str, pod: str) -> tuple[int, int] | None:
    """The index and number for which `pod_name` returns `pod`; None for any other name, whatever the pod's labels
    say."""
    found = re.fullmatch(r"(.+)-([0-9]{1,9})-([0-9]{1,15})", pod)  # JSON keeps numbers of 15 digits exact
    pod_key = (int(found[2]), int(found[3])) if found else None
    return pod_key if pod_key and pod_name(job, *pod_key) == pod else None
