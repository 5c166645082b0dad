# SPDX-License-Identifier: Apache-2.0
"""What users ask for: the spec of an ElasticJob, with its defaults and its CEL rules."""

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
from elasticjob.objects import without_nulls
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
    """Nodes that are about to go: others take the places of their workers before they are killed."""

    taints: tuple[TaintKey, ...] = Field(
        DRAIN_TAINTS,
        max_length=64,
        description="Keys of taints that say that a node is about to go, if the effect is NoSchedule or NoExecute and "
        "the template does not tolerate them. By default what kubectl cordon and drain, the cluster autoscaler, "
        "Karpenter and the notices of cloud providers set. With an empty list no node is about to go. For graceSeconds "
        "a node counts whatever the template tolerates.",
        json_schema_extra={"x-kubernetes-list-type": "set"},
    )
    grace_seconds: Annotated[int, Field(ge=0, le=86400)] = Field(
        300,
        description="How long others may take to come in the places of workers whose node is about to go: so long the "
        "job's PodDisruptionBudget refuses to have them evicted, and kubectl drain waits. It refuses all evictions at "
        "other times too; with 0 the job has none.",
    )


class AvoidNodesSpec(Model):
    """Nodes on which workers of the job fail again and again: pods that are made later keep off them."""

    failures: Annotated[int, Field(ge=1, le=1000)] = Field(
        2,
        description="After so many failures of the job's workers on one node, each within forSeconds of the one "
        "before, it is avoided. In one round, and while the next one forms, all that fails on a node is one failure, "
        "unless the pod's replacement fails there as well. What counts against maxRestarts is one, and the loss of a "
        "worker that failed by itself or gave no sign of life; what others have ended is none, nor what "
        "podFailurePolicy ignores.",
    )
    for_seconds: Seconds = Field(
        3600, description="How long a node is avoided after the last failure on it; then its failures are forgotten."
    )
    required: bool = Field(
        False,
        description="False: the scheduler prefers other nodes, and takes this one where no other has room. True: it "
        "never takes it; a pod for which there is no other waits until the node is not avoided any more.",
    )


class RankOrderSpec(Model):
    """How ranks are laid out over the cluster, whenever a round is formed."""

    topology_keys: tuple[TopologyKey, ...] = Field(
        min_length=1,
        max_length=8,
        description="Keys of nodes' labels, the largest part of the network first, as topology.kubernetes.io/zone and "
        "then the label of a rack. Workers whose nodes have the same value get ranks in a row, and in it those with "
        "the same value of the next key, down to the node itself. Workers whose nodes lack a label come last.",
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )


_SHARED = (
    "with hostNetwork 127.0.0.1 is the node's, and its other processes reach the round's store: read docs/security.md, "
    "and set acknowledged to true"
)


class HostNetworkSpec(Model):
    """Lets the template have hostNetwork: true; its ports are the node's then, and the scheduler knows them."""

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
        description="Has to be true: that the node's other processes reach the store of the round.",
        json_schema_extra=validations(rule("self", _SHARED)),
    )
    store_port: Port = Field(27400, description="The round's store, on the node's loopback; the scripts' MASTER_PORT.")
    tunnel_port: Port = Field(27601, description="Where the sidecars of other workers reach this one.")
    health_port: Port = Field(27602, description="The sidecar's health and metrics.")


class SidecarSecurity(Model):
    """User and group of the sidecar's container, where the cluster allows only some."""

    run_as_user: UserId | None = Field(
        None, description="The user id; without it what the chart's value sidecar.securityContext says."
    )
    run_as_group: UserId | None = Field(
        None, description="The group id; without it what the chart's value sidecar.securityContext says."
    )


class SidecarSpec(Model):
    """The sidecar that the operator puts into the job's pods. A change counts for pods made later."""

    security_context: SidecarSecurity = Field(default_factory=SidecarSecurity)


# in CEL: who left replicas out has to know where the number is from
_BY_DEFAULT = "self.replicas == 1 ? ': set spec.replicas, whose default is 1' : ''"


class ElasticJobSpec(Model):
    """What the user wants to run: a pod template and the bounds of its size."""

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
        description="How many workers to run now; `kubectl scale` changes it. Each is one pod with one torchrun agent. "
        "Leave it out of a manifest that is applied again and again where an autoscaler or `kubectl scale` sets it.",
    )
    min_replicas: Replicas = Field(
        1, description="The smallest group that may train; with fewer workers the job waits."
    )
    max_replicas: Replicas | None = Field(
        None,
        description=f"The largest group; a scale beyond it is refused. Without it the bound is {MAX_REPLICAS}.",
    )
    spare_replicas: Spares = Field(
        0,
        description="So many workers run beside the replicas, join, and wait. When a worker is lost one of them takes "
        "its place and its rank at once, and a scale-up takes them first. Neither replicas nor minReplicas nor the "
        "world size counts them.",
    )
    sizes: SizesSpec | None = Field(
        None,
        description="Which sizes a round may have. The largest is formed that those who are there can fill; the others "
        "wait until a larger one can be.",
    )
    rank_order: RankOrderSpec | None = Field(
        None,
        description="Lays ranks out by where the workers are, so that neighbours in rank are neighbours in the "
        "network, whenever a round is formed; no round ends for it. The survivor of the lowest rank gets rank 0; the "
        "ranks of others may change with each round. Without it who stays keeps its rank.",
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
        description="How many failures of the trainer may be cured before the job fails. Lost pods do not count.",
    )
    pod_failure_policy: PodFailurePolicy | None = Field(
        None,
        description="Which failures end the job at once, by exit code or condition of the pod, and which do not count "
        "against maxRestarts; in the shape of a Job's podFailurePolicy.",
    )
    progress_deadline_seconds: ProgressDeadline | None = Field(
        None,
        description="When no member has reported for so long, after its first step of the round, the training is taken "
        "to hang: the condition Progressing says so, and names who lags; the training processes write their Python "
        "stacks to the trainers' logs. Longer than the longest time between two calls of report(), with evaluations "
        "and checkpoints. Without it no training is taken to hang; nor is one whose script never calls report().",
    )
    hang_policy: Literal["Restart", "Report"] = Field(
        "Report",
        description="What becomes of a training that hangs. Report: it is said, no more; Restart: its round is ended, "
        "as by a failure that counts against maxRestarts, and all its processes are started again.",
    )
    quota_admission: Literal["Pods", "Gang"] = Field(
        "Pods",
        description="How Kueue admits a job whose label kueue.x-k8s.io/queue-name names a queue. Pods: each pod by "
        "itself, and those that have quota train; Gang: minReplicas or more at once, and before that no pod is made.",
    )
    managed_by: Annotated[str, Field(min_length=1, max_length=63, pattern=MANAGER)] | None = Field(
        None,
        description="Which controller looks after the job. Without it, and with elasticjob.io/elasticjob-controller, "
        "the operator does; with any other value, such as kueue.x-k8s.io/multikueue, it leaves the job alone: it makes "
        "no pods, writes no status and no events. It can never be changed.",
    )
    suspend: bool = Field(False, description="Stops the workers and keeps the state; set it back to false to go on.")
    restarted_at: Time | None = Field(
        None,
        description="Another time than before ends the round, as a change of the group does, and starts the training "
        "processes of all workers anew; `kubectl elasticjob restart` sets it. It counts as no failure. Leave it out of "
        "a manifest that is applied again and again.",
    )
    active_deadline_seconds: Annotated[int, Field(ge=1, le=MAX_INT32)] | None = Field(
        None,
        description="How long the job may take from its start on, without the time for which it is suspended, by "
        "spec.suspend or as Kueue has no quota for its gang; then it has failed, with the reason DeadlineExceeded.",
    )
    finish_seconds: UpToAWeek = Field(
        3600,
        description="How long the trainer containers may go on after the last torchrun has ended in success, with an "
        "upload for one. The job is Complete when they have ended with exit code 0; at the end of this time it has "
        "failed.",
    )
    ttl_seconds_after_finished: SmallCount | None = Field(
        None, description="Deletes the job, and with it its pods, this many seconds after it has ended."
    )
    clean_pod_policy: Literal["None", "Running", "All"] = Field(
        "Running",
        description="What becomes of the pods when the job has ended. Running: what still runs is stopped, and pods "
        "stay with their logs until the job is deleted; All: every pod is deleted; None: nothing is touched.",
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
        description="Keeps replacements, and other pods that are made later, off nodes on which workers of this job "
        "failed again and again; {} takes the defaults. Without it no node is avoided. It moves no pod that runs: a "
        "process that fails is started again where it is.",
    )
    rendezvous: RendezvousSpec = Field(default_factory=RendezvousSpec)
    sidecar: SidecarSpec | None = None
    host_network: HostNetworkSpec | None = None
    template: Annotated[dict[str, Any], BeforeValidator(without_nulls)] = Field(
        description="A worker's pod template, as in a Deployment; its trainer runs plain `torchrun train.py`.",
    )

    @property
    def admitted_as_gang(self) -> bool:
        """Its quota is asked for by Workloads of the operator's, not by each pod."""
        return self.quota_admission == "Gang"
