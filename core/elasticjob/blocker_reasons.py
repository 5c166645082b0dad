# SPDX-License-Identifier: Apache-2.0
"""The reasons that keep a job from its full size, the worst first, and what to do about each.

The status and `kubectl elasticjob why` take their remedies from here. What is wrong is said by what has found it: of a
pod by `reading.waits`, of a pod that the cluster refuses by the operator's `job.refusal_messages`, of the rest by the
concern of its name.
"""

from collections.abc import Mapping
from enum import StrEnum


class Reason(StrEnum):
    """A word for the column REASON and for `status.blockers`; the worst comes first."""

    TEMPLATE_INVALID = "TemplateInvalid"
    OPERATOR_WITHOUT_RIGHTS = "OperatorWithoutRights"
    ACCESS_REFUSED = "AccessRefused"
    NAME_TAKEN = "NameTaken"
    QUOTA_EXCEEDED = "QuotaExceeded"
    ADMISSION_REFUSED = "AdmissionRefused"
    NETWORK_FAULT = "NetworkFault"
    HUNG = "ProgressDeadlineExceeded"
    CONTAINER_FAILED = "ContainerFailed"
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
    DRAIN_GRACE_OVER = "DrainGraceOver"
    BUDGET_REFUSED = "BudgetRefused"
    FINISHING = "Finishing"


ORDER: Mapping[str, int] = {reason: place for place, reason in enumerate(Reason)}

AGAIN = "the operator tries again after 160 s at the latest"
GANG_REFUSED = f"fix what is named; {AGAIN}"
GANG_PENDING = (
    "it continues by itself when its queue has room: `kubectl describe workloads.kueue.x-k8s.io` says what is missing"
)
# a reason that is not here has its remedy in its message
REMEDIES: Mapping[str, str] = {
    Reason.OPERATOR_WITHOUT_RIGHTS: "see the chart's value namespaces, the operator's ClusterRole and its bindings",
    Reason.QUOTA_EXCEEDED: f"make room in the quota, or scale the job down; {AGAIN}",
    Reason.ADMISSION_REFUSED: f"change the template, or what refuses it; {AGAIN}",
    Reason.NETWORK_FAULT: "let the job's pods reach each other at that port: see NetworkPolicies, and firewalls or "
    "security groups between the nodes; the log of the named pod's sidecar says how it fails. While it lasts, no "
    "worker is replaced for it and failures do not count",
    Reason.HUNG: "the trainers' logs have the Python stacks of all its processes; with `hangPolicy: Restart` such a "
    "round is restarted",
    Reason.CONTAINER_FAILED: "see what its command does after torchrun, and its log (`kubectl logs --previous`)",
    Reason.IMAGE_PULL: "name an image that the nodes can pull, or the imagePullSecrets of its registry",
    Reason.CONFIG_MISSING: "create the object that the container refers to, or change the reference in the template",
    Reason.CONTAINER_ERROR: "correct the container's command, mounts or security context",
    Reason.INIT_CRASHES: "fix the init container: the job fails once it has failed more than maxRestarts times",
    Reason.SIDECAR_CRASHES: "see its log (`kubectl logs --previous`); its restarts do not count against maxRestarts",
    Reason.TRAINER_CRASHES: "see its log (`kubectl logs --previous`); the job fails once it has failed more than "
    "maxRestarts times",
    Reason.POD_BACK_OFF: "the pause before each new pod grows, to 300 s at most",
    Reason.CLAIM_NOT_READY: "make the PersistentVolumeClaim, or see why it is not bound: `kubectl describe pvc`",
    Reason.SCHEDULING_GATED: "the controller that set the gates removes them, as a queue does when it has quota",
    Reason.UNSCHEDULABLE: "make room or add nodes, or request less in the template",
    Reason.INVALID_RECORD: "see who else writes ElasticWorkers; the worker is replaced after 15 s, or "
    "workerLostSeconds if that is more",
    Reason.DEVICE_UNHEALTHY: "another worker starts with other devices and takes over in one planned round; the log "
    "of the device plugin or DRA driver on that node says more",
    Reason.NODE_DRAINING: "another worker starts elsewhere and takes over in one planned round; evictions wait for "
    "it, for drain.graceSeconds at most",
    Reason.QUOTA_PENDING: "its queue has no room: `kubectl describe workloads.kueue.x-k8s.io` says what is missing; "
    "the others go on meanwhile",
    Reason.POD_MISSING: "if it lasts, the operator's log says why",
    Reason.POD_STARTING: "if it lasts, `kubectl describe pod` says why",
    Reason.NOT_JOINED: "if it lasts, the log of its trainer says why",
    Reason.DRAIN_GRACE_OVER: "if replacements take longer, raise drain.graceSeconds",
    Reason.FINISHING: "the containers' logs say what their commands do after torchrun, such as an upload; if that "
    "takes longer, raise finishSeconds",
}
