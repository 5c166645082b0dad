# SPDX-License-Identifier: Apache-2.0
"""The words for what keeps a job from its full size, the worst first, and what to do about each.

A status has its remedies from here and nowhere else. What is wrong is said by what has found it: of a pod by
`reading.waits`, of a pod that the cluster refuses by the operator's `job.refusal_messages`, of the rest by the concern
of its name.
"""

from collections.abc import Mapping
from enum import StrEnum


class Reason(StrEnum):
    """A word for the column REASON; the worst comes first."""

    TEMPLATE_INVALID = "TemplateInvalid"
    OPERATOR_WITHOUT_RIGHTS = "OperatorWithoutRights"
    ACCESS_REFUSED = "AccessRefused"
    NAME_TAKEN = "NameTaken"
    QUOTA_EXCEEDED = "QuotaExceeded"
    ADMISSION_REFUSED = "AdmissionRefused"
    IMAGE_PULL = "ImagePull"
    CONFIG_MISSING = "ConfigMissing"
    CONTAINER_ERROR = "ContainerError"
    INIT_CRASHES = "InitContainerCrashes"
    SIDECAR_CRASHES = "SidecarCrashes"
    SIDECAR_NOT_READY = "SidecarNotReady"
    TRAINER_CRASHES = "TrainerCrashes"
    POD_BACK_OFF = "PodBackOff"
    CLAIM_NOT_READY = "ClaimNotReady"
    SCHEDULING_GATED = "SchedulingGated"
    UNSCHEDULABLE = "Unschedulable"
    INVALID_RECORD = "InvalidRecord"
    DEVICE_UNHEALTHY = "DeviceUnhealthy"
    NODE_DRAINING = "NodeDraining"
    QUOTA_PENDING = "QuotaPending"
    POD_MISSING = "PodMissing"
    POD_STARTING = "PodStarting"
    NOT_JOINED = "NotJoined"
    INSUFFICIENT_MEMBERS = "InsufficientMembers"
    FORMING = "Forming"


# of these no pod is the reason
NETWORK_FAULT, CONTAINER_FAILED = "NetworkFault", "ContainerFailed"
HUNG, FINISHING = "ProgressDeadlineExceeded", "Finishing"
DRAIN_GRACE_OVER, BUDGET_REFUSED = "DrainGraceOver", "BudgetRefused"

SEVERITY = (
    Reason.TEMPLATE_INVALID,
    Reason.OPERATOR_WITHOUT_RIGHTS,
    Reason.ACCESS_REFUSED,
    Reason.NAME_TAKEN,
    Reason.QUOTA_EXCEEDED,
    Reason.ADMISSION_REFUSED,
    NETWORK_FAULT,
    HUNG,
    CONTAINER_FAILED,
    *list(Reason)[list(Reason).index(Reason.ADMISSION_REFUSED) + 1 :],
    DRAIN_GRACE_OVER,
    BUDGET_REFUSED,
    FINISHING,
)
ORDER: Mapping[str, int] = {str(reason): place for place, reason in enumerate(SEVERITY)}

AGAIN = "it is tried again, at the latest after 160 s"
ADMITTED_LATER = (
    "it goes on by itself when its queue has room (kubectl describe workloads.kueue.x-k8s.io says what is missing)"
)
# what is not here has its remedy in its message
REMEDIES: Mapping[str, str] = {
    Reason.OPERATOR_WITHOUT_RIGHTS: "see the chart's value namespaces, the operator's ClusterRole and its bindings",
    Reason.QUOTA_EXCEEDED: f"make room in the quota, or scale the job down; {AGAIN}",
    Reason.ADMISSION_REFUSED: f"change the template, or what refuses it; {AGAIN}",
    Reason.IMAGE_PULL: "name an image that the nodes can pull, or the imagePullSecrets of its registry",
    Reason.CONFIG_MISSING: "make what the container refers to, or change the reference",
    Reason.CONTAINER_ERROR: "correct the container's command, mounts or security context",
    Reason.INIT_CRASHES: "mend the init container: each of its ends counts as the trainer's",
    Reason.SIDECAR_CRASHES: "its log says more (kubectl logs --previous); it does not count against maxRestarts",
    Reason.TRAINER_CRASHES: "its log says more (kubectl logs --previous)",
    Reason.POD_BACK_OFF: "each next pod is made later, at most 300 s after the last failed",
    Reason.CLAIM_NOT_READY: "make the PersistentVolumeClaim, or see why it is not bound: kubectl describe pvc",
    Reason.SCHEDULING_GATED: "it waits until its scheduling gates are removed; the others go on without it",
    Reason.UNSCHEDULABLE: "make room or add nodes, or ask for less in the template",
    Reason.INVALID_RECORD: "see who else writes ElasticWorkers; the worker is replaced after 15 s, or "
    "workerLostSeconds if that is more",
    Reason.DEVICE_UNHEALTHY: "another starts with other devices and takes its place; then it saves and leaves",
    Reason.NODE_DRAINING: "another starts elsewhere and takes its place; then it saves and leaves",
    Reason.QUOTA_PENDING: "the others go on meanwhile (kubectl describe workloads.kueue.x-k8s.io says what is missing)",
    Reason.POD_MISSING: "should it last, the operator's log says why",
    Reason.POD_STARTING: "should it last, kubectl describe pod says why",
    Reason.NOT_JOINED: "should it last, the log of its trainer says why",
    NETWORK_FAULT: "let the job's pods reach each other at that port: see NetworkPolicies, firewalls and security "
    "groups between the nodes",
    HUNG: "the trainers' logs have the Python stacks of all its processes; with hangPolicy: Restart such a round is "
    "started anew",
    CONTAINER_FAILED: "see what its command does after torchrun, and its log (kubectl logs --previous)",
    FINISHING: "the containers' logs say what their commands do after torchrun; raise finishSeconds where that takes "
    "longer",
}
