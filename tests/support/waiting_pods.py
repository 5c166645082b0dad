# SPDX-License-Identifier: Apache-2.0
"""Pods that do not do their part, as Kubernetes shows them: each with the cause that is read from it."""

from typing import Any

from elasticjob.blocker_reasons import Reason
from support.operator_objects import Object, trainer

SCHEDULED = {"type": "PodScheduled", "status": "True"}


def unscheduled(reason: str, message: str) -> Object:
    return {"conditions": [{"type": "PodScheduled", "status": "False", "reason": reason, "message": message}]}


def waiting(reason: str, message: str = "") -> Object:
    return {"containerStatuses": [trainer(waiting={"reason": reason, "message": message})]}


def init(name: str, restarts: int = 0, last: Object | None = None, **state: Any) -> Object:
    status = {"name": name, "restartCount": restarts, "state": state}
    return status | ({"lastState": {"terminated": last}} if last else {})


BACK_OFF = {"reason": "CrashLoopBackOff"}
NON_ROOT, SUBPATH = "container has runAsNonRoot", 'subPath for volumeMount "data" of container "trainer"'
ENDED = {"exitCode": 3, "reason": "Error", "message": "no route to the data\n"}
STAGE_FINISHED = ENDED | {"message": "elasticjob: nothing left to do: stage 1 of the job is finished\n"}
NO_PLUGIN = {
    "exitCode": 1,
    "reason": "Error",
    "message": "ValueError: The rendezvous backend 'elasticjob' is not registered. Did you forget to call `register`?\n"
    "E1126 02:00:00.000000 7 torch/distributed/elastic/multiprocessing/errors: ended\n",
}
NO_SHELL = {
    "exitCode": 128,
    "reason": "StartError",
    "message": "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create "
    'failed: unable to start container process: error during container init: exec: "/bin/sh": stat /bin/sh: no such '
    "file or directory",
}

CAUSES = [
    (unscheduled("Unschedulable", "0/3 nodes: Insufficient cpu"), Reason.UNSCHEDULABLE, "Insufficient cpu"),
    (unscheduled("Unschedulable", 'persistentvolumeclaim "data" not found'), Reason.CLAIM_NOT_READY, '"data"'),
    (unscheduled("Unschedulable", "unbound immediate PersistentVolumeClaims"), Reason.CLAIM_NOT_READY, "unbound"),
    (unscheduled("SchedulingGated", "blocked due to gates"), Reason.SCHEDULING_GATED, "gates"),
    (waiting("ImagePullBackOff", "nowhere/x"), Reason.IMAGE_PULL, "nowhere/x"),
    (waiting("InvalidImageName", "a b"), Reason.IMAGE_PULL, "a b"),
    (waiting("CreateContainerConfigError", 'secret "s" not found'), Reason.CONFIG_MISSING, 'secret "s" not found'),
    (waiting("RunContainerError", "no such file"), Reason.CONTAINER_ERROR, "no such file"),
    (waiting("PostStartHookError", "exited with 3"), Reason.CONTAINER_ERROR, "exited with 3"),
    (waiting("SignatureValidationFailed", "no signature"), Reason.IMAGE_PULL, "no signature"),
    # nothing is missing here, though the kubelet calls both by the same word
    (waiting("CreateContainerConfigError", f"{NON_ROOT} and image will run as root"), Reason.CONTAINER_ERROR, NON_ROOT),
    (waiting("CreateContainerConfigError", f"failed to prepare {SUBPATH}"), Reason.CONTAINER_ERROR, SUBPATH),
    (
        {"initContainerStatuses": [init("fetch", 4, ENDED, waiting=BACK_OFF)], **waiting("PodInitializing")},
        Reason.INIT_CRASHES,
        "the init container fetch fails: exit code 3: no route to the data",
    ),
    (
        {"initContainerStatuses": [init("elasticjob-sidecar", 4, ENDED, waiting=BACK_OFF)]},
        Reason.SIDECAR_CRASHES,
        "the sidecar elasticjob-sidecar crashes: exit code 3",
    ),
    (
        {"containerStatuses": [trainer(2, waiting=BACK_OFF, last=ENDED)]},
        Reason.TRAINER_CRASHES,
        "exit code 3: no route to the data",
    ),
    (
        {"containerStatuses": [trainer(2, waiting=BACK_OFF, last=NO_PLUGIN)]},
        Reason.TRAINER_CRASHES,
        "PYTHONPATH=/my/folder:$PYTHONPATH), and start Python without -I and -E; it takes torch 2.6 or newer",
    ),
    (
        {"containerStatuses": [trainer(2, waiting=BACK_OFF, last=NO_SHELL)]},
        Reason.TRAINER_CRASHES,
        "exit code 128, StartError: the image has no /bin/sh, which adds ElasticJob's plug-in to PYTHONPATH: take an",
    ),
    (waiting("RunContainerError", NO_SHELL["message"]), Reason.CONTAINER_ERROR, "or set PYTHONPATH in the trainer"),
    ({}, Reason.POD_STARTING, "no scheduler has placed its pod yet"),
    ({"conditions": [SCHEDULED], **waiting("ContainerCreating")}, Reason.POD_STARTING, "set up: ContainerCreating"),
    (
        {"conditions": [SCHEDULED], "initContainerStatuses": [init("fetch", running={})]},
        Reason.POD_STARTING,
        "its init container fetch runs",
    ),
]
