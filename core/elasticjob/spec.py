# SPDX-License-Identifier: Apache-2.0
"""The spec of an ElasticJob, with its defaults and its CEL rules."""

import hashlib
import json
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field

from elasticjob.admission import HAS_TRAINER
from elasticjob.failure_policy import PodFailurePolicy
from elasticjob.fields import (
    MAX_INT32,
    MAX_REPLICAS,
    Port,
    ProgressDeadline,
    Replicas,
    Seconds,
    SmallCount,
    Spares,
    TaintKey,
    Time,
    TopologyKey,
    UpToAWeek,
    UserId,
)
from elasticjob.objects import in_one_order, without_nulls
from elasticjob.schema import Model, rule, validations
from elasticjob.sizes import SizesSpec, is_a_size
from elasticjob.timing import RendezvousSpec

DRAIN_TAINTS = (
    "node.kubernetes.io/unschedulable",
    "ToBeDeletedByClusterAutoscaler",
    "karpenter.sh/disrupted",
    "karpenter.sh/disruption",
    "aws-node-termination-handler/spot-itn",
    "aws-node-termination-handler/scheduled-maintenance",
    "aws-node-termination-handler/asg-lifecycle-termination",
    "aws-node-termination-handler/rebalance-recommendation",
    "cloud.google.com/impending-node-termination",
    "remediator.kubernetes.azure.com/unschedulable",
)


CONTROLLER = "elasticjob.io/elasticjob-controller"
MANAGER = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_./]*[A-Za-z0-9])?$"  # a domain and a path


class DrainSpec(Model):
    """Draining nodes and unhealthy devices: others take over from their workers before those are lost."""

    taints: tuple[TaintKey, ...] = Field(
        DRAIN_TAINTS,
        max_length=64,
        description="Keys of taints that announce a node's removal, if the effect is NoSchedule or NoExecute and the "
        "template does not tolerate them. The default keys are those of kubectl cordon and drain, and so NVSentinel's, "
        "the cluster autoscaler, Karpenter and cloud providers' notices. An empty list drains no node.",
        json_schema_extra={"x-kubernetes-list-type": "set"},
    )
    grace_seconds: Annotated[int, Field(ge=0, le=86400)] = Field(
        300,
        description="How long others may take to come and take over from workers on a draining node. Until then the "
        "job's PodDisruptionBudget blocks the eviction of those workers, also of those that tolerate the taint, and "
        "kubectl drain waits. It blocks all evictions at other times too; with 0 the job has none.",
    )
    unhealthy_devices: bool = Field(
        True,
        description="Whether another worker also takes over from one with a device, such as a GPU, that its kubelet "
        "reports as Unhealthy in the pod's status.containerStatuses[].allocatedResourcesStatus. Kubernetes reports "
        "this by default from 1.36 on. A worker whose device becomes healthy again before that stays.",
    )


class AvoidNodesSpec(Model):
    """Nodes on which workers of the job fail again and again: later pods avoid them."""

    failures: Annotated[int, Field(ge=1, le=1000)] = Field(
        2,
        description="A node is avoided after this many failures of the job's workers on it, each within forSeconds of "
        "the one before. Failures on a node in one round, and while the next one forms, are one failure, unless the "
        "pod's replacement fails there as well. A failure is one that counts against maxRestarts, or the loss of a "
        "worker that failed by itself or gave no sign of life. Pods ended by others do not count, nor does what "
        "podFailurePolicy ignores.",
    )
    for_seconds: Seconds = Field(
        3600, description="How long a node is avoided after the last failure on it. Then its failures are forgotten."
    )
    required: bool = Field(
        False,
        description="False: the scheduler prefers other nodes, and uses this one if no other has room. True: it never "
        "uses this one; a pod that fits nowhere else waits until the node is no longer avoided.",
    )


class RankOrderSpec(Model):
    """How ranks are laid out over the cluster when a round is formed."""

    topology_keys: tuple[TopologyKey, ...] = Field(
        min_length=1,
        max_length=8,
        description="Keys of node labels, the largest part of the network first, such as topology.kubernetes.io/zone "
        "and then the label of a rack. Workers on nodes with the same value get consecutive ranks, and within them "
        "those with the same value of the next key, down to the node itself. Workers on nodes without a label come "
        "last.",
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )


_SHARED = (
    "with hostNetwork 127.0.0.1 is the node's, and its other processes reach the round's store: read docs/security.md, "
    "and set acknowledged to true"
)


class HostNetworkSpec(Model):
    """Allows hostNetwork: true in the template. The ports are then the node's, and the scheduler knows them."""

    model_config = ConfigDict(
        json_schema_extra=validations(
            rule(
                "self.storePort != self.tunnelPort && self.storePort != self.healthPort && "
                "self.tunnelPort != self.healthPort",
                "storePort, tunnelPort and healthPort must be three different ports",
                ".storePort",
            )
        )
    )

    acknowledged: bool = Field(
        description="Must be true: it accepts that other processes on the node can reach the round's store.",
        json_schema_extra=validations(rule("self", _SHARED)),
    )
    store_port: Port = Field(27400, description="The round's store, on the node's loopback; the scripts' MASTER_PORT.")
    tunnel_port: Port = Field(27601, description="The port at which other workers' sidecars reach this one.")
    health_port: Port = Field(27602, description="The sidecar's health and metrics.")


class SidecarSecurity(Model):
    """User and group of the sidecar's container, for clusters that allow only certain ones."""

    run_as_user: UserId | None = Field(
        None, description="The user id. Default: the chart's value sidecar.securityContext."
    )
    run_as_group: UserId | None = Field(
        None, description="The group id. Default: the chart's value sidecar.securityContext."
    )


class SidecarSpec(Model):
    """The sidecar that the operator adds to the job's pods. A change applies to later pods."""

    security_context: SidecarSecurity = Field(default_factory=SidecarSecurity)


# in CEL: users who left replicas out have to learn where the number comes from
_BY_DEFAULT = "self.replicas == 1 ? ': set spec.replicas, whose default is 1' : ''"


class ElasticJobSpec(Model):
    """What to run: a pod template and the bounds of the group's size."""

    model_config = ConfigDict(
        json_schema_extra=validations(
            rule(
                "self.minReplicas <= self.replicas",
                f"'replicas %d is below minReplicas %d%s'.format([self.replicas, self.minReplicas, {_BY_DEFAULT}])",
                ".replicas",
            ),
            rule(
                "!has(self.maxReplicas) || self.replicas <= self.maxReplicas",
                "'replicas %d is above maxReplicas %d'.format([self.replicas, self.maxReplicas])",
                ".replicas",
            ),
            rule(
                "!has(self.maxReplicas) || self.minReplicas <= self.maxReplicas",
                "'minReplicas %d is above maxReplicas %d'.format([self.minReplicas, self.maxReplicas])",
                ".minReplicas",
            ),
            rule(
                f"(has(self.maxReplicas) ? self.maxReplicas : self.replicas) + self.spareReplicas <= {MAX_REPLICAS}",
                f"'spareReplicas %d and up to %d replicas are more than the {MAX_REPLICAS} workers that a job may have'"
                ".format([self.spareReplicas, has(self.maxReplicas) ? self.maxReplicas : self.replicas])",
                ".spareReplicas",
            ),
            rule(
                f"!has(self.sizes) || ({is_a_size('self.replicas')})",
                f"'replicas %d is none of the sizes that spec.sizes allows%s'.format([self.replicas, {_BY_DEFAULT}])",
                ".replicas",
            ),
            rule(
                f"!has(self.sizes) || self.minReplicas == 1 || ({is_a_size('self.minReplicas')})",
                "'minReplicas %d is none of the sizes that spec.sizes allows'.format([self.minReplicas])",
                ".minReplicas",
            ),
            rule(
                f"!has(self.sizes) || !has(self.maxReplicas) || ({is_a_size('self.maxReplicas')})",
                "'maxReplicas %d is none of the sizes that spec.sizes allows'.format([self.maxReplicas])",
                ".maxReplicas",
            ),
            rule(
                "self.hangPolicy == 'Report' || has(self.progressDeadlineSeconds)",
                "hangPolicy Restart needs progressDeadlineSeconds: without it no training is taken to hang",
                ".hangPolicy",
            ),
            HAS_TRAINER,
        )
    )

    replicas: Replicas = Field(
        1,
        description="The number of workers to run; `kubectl scale` changes it. Each worker is one pod with one "
        "torchrun agent. Leave it out of a manifest that is applied repeatedly if an autoscaler or `kubectl scale` "
        "sets it.",
    )
    min_replicas: Replicas = Field(
        1, description="The smallest group that may train. With fewer workers the job waits."
    )
    max_replicas: Replicas | None = Field(
        None,
        description=f"The largest group; a scale beyond it is refused. Without it the bound is {MAX_REPLICAS}.",
    )
    spare_replicas: Spares = Field(
        0,
        description="Number of standby workers that run beside the replicas, join, and wait. A spare takes the place "
        "and the rank of a lost worker at once, and a scale-up takes spares first. replicas, minReplicas and the world "
        "size do not count them.",
    )
    sizes: SizesSpec | None = Field(
        None,
        description="The allowed sizes of a round. The round has the largest size that the present workers can fill; "
        "the others wait until a larger one is possible.",
    )
    rank_order: RankOrderSpec | None = Field(
        None,
        description="Lays ranks out by the workers' nodes, so that neighbours in rank are neighbours in the network. "
        "It applies whenever a round is formed, and ends no round. The remaining worker with the lowest rank gets rank "
        "0; the ranks of the others may change in each round. Without it, remaining workers keep their ranks.",
    )
    nproc_per_node: int | str = Field(
        1,
        description="Training processes in each worker, as torchrun's --nproc-per-node: a number, auto, cpu or gpu.",
        json_schema_extra=validations(
            rule(
                "type(self) == int ? self >= 1 : self in ['auto', 'cpu', 'gpu']",
                "nprocPerNode is a number of at least 1, or one of auto, cpu, gpu",
            )
        ),
    )
    max_restarts: SmallCount = Field(
        3,
        description="How many failures of the trainer are restarted before the job fails. Lost pods do not count.",
    )
    pod_failure_policy: PodFailurePolicy | None = Field(
        None,
        description="Which failures end the job at once, by exit code or condition of the pod, and which do not count "
        "against maxRestarts; in the shape of a Job's podFailurePolicy.",
    )
    progress_deadline_seconds: ProgressDeadline | None = Field(
        None,
        description="If no member reports for this long after its first step of the round, the training is considered "
        "hung: the condition Progressing says so and names the workers that lag, and the training processes write "
        "their Python stacks to the trainers' logs. Choose it longer than the longest time between two calls of "
        "report(), including evaluations and checkpoints. Without it no training is considered hung, nor is one whose "
        "script never calls report().",
    )
    hang_policy: Literal["Restart", "Report"] = Field(
        "Report",
        description="What happens to a hung training. Report: it is only reported. Restart: its round ends, as by a "
        "failure that counts against maxRestarts, and all its processes are restarted.",
    )
    quota_admission: Literal["Pods", "Gang"] = Field(
        "Pods",
        description="How Kueue admits a job whose label kueue.x-k8s.io/queue-name names a queue. Pods: each pod by "
        "itself; the pods that have quota train. Gang: minReplicas or more at once; before that no pod is made.",
    )
    managed_by: Annotated[str, Field(min_length=1, max_length=63, pattern=MANAGER)] | None = Field(
        None,
        description="The controller that manages the job. Without it, or with elasticjob.io/elasticjob-controller, it "
        "is the operator. With any other value, such as kueue.x-k8s.io/multikueue, the operator leaves the job alone: "
        "it makes no pods, and writes no status and no events. It can never be changed.",
    )
    suspend: bool = Field(False, description="Stops the workers and keeps the state. Set it back to false to resume.")
    restarted_at: Time | None = Field(
        None,
        description="A new time ends the round, as a change of the group does, and restarts the training processes of "
        "all workers; `kubectl elasticjob restart` sets it. It does not count as a failure. Leave it out of a manifest "
        "that is applied repeatedly.",
    )
    active_deadline_seconds: Annotated[int, Field(ge=1, le=MAX_INT32)] | None = Field(
        None,
        description="How long the job may take from its start, without the time for which it is suspended, by "
        "spec.suspend or because Kueue has no quota for its gang. After that it fails with the reason "
        "DeadlineExceeded.",
    )
    finish_seconds: UpToAWeek = Field(
        3600,
        description="How long the trainer containers may run on after the last torchrun ended in success, for example "
        "for an upload. The job is Complete when they have ended with exit code 0, and fails at the end of this time.",
    )
    ttl_seconds_after_finished: SmallCount | None = Field(
        None, description="Deletes the job, and with it its pods, this many seconds after it has ended."
    )
    clean_pod_policy: Literal["None", "Running", "All"] = Field(
        "Running",
        description="What happens to the pods after the job's end. Running: pods that still run are stopped, and pods "
        "keep their logs until the job is deleted. All: every pod is deleted. None: no pod is touched.",
    )
    trainer_container: str = Field(
        "trainer",
        min_length=1,
        max_length=63,
        description="The container of the template that runs torchrun.",
    )
    warm_restart: Literal["Auto", "Enabled", "Disabled"] = Field(
        "Auto",
        description="Starts the processes of the next round while one trains: they import torch, and what else the "
        "script has imported before, and wait. After a change of the group the training goes on in about a second, "
        "and without it in about ten. It takes 300 to 400 MB of memory for each training process. Auto: where the "
        "trainer container's memory limit, or the node without one, has a quarter free beside that. Enabled: where an "
        "eighth is free beside it, and spares wait for the first round's imports. Less than an eighth free ends these "
        "processes; the trainer's log says so. Disabled: never. A change counts for pods made later.",
    )
    drain: DrainSpec = Field(default_factory=DrainSpec)
    avoid_nodes: AvoidNodesSpec | None = Field(
        None,
        description="Keeps replacements and other later pods off nodes on which workers of this job failed again and "
        "again; {} takes the defaults. Without it no node is avoided. Running pods stay: a process that fails is "
        "restarted where it is.",
    )
    rendezvous: RendezvousSpec = Field(default_factory=RendezvousSpec)
    sidecar: SidecarSpec | None = None
    host_network: HostNetworkSpec | None = None
    template: Annotated[dict[str, Any], BeforeValidator(without_nulls)] = Field(
        description="A worker's pod template, as in a Deployment; its trainer runs plain `torchrun train.py`.",
    )

    @property
    def admitted_as_gang(self) -> bool:
        """Whether Workloads of the operator request its quota, in place of each pod."""
        return self.quota_admission == "Gang"

    @cached_property
    def template_hash(self) -> str:
        """The hash of the settings that running pods depend on, which may change only while there are no pods. A copy
        keeps it, so no copy may have another template."""
        made_from = [in_one_order(self.template), self.nproc_per_node, self.trainer_container]
        made_from += [self.host_network.dump()] if self.host_network else []
        return hashlib.sha256(json.dumps(made_from, sort_keys=True).encode()).hexdigest()[:16]
