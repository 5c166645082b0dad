# SPDX-License-Identifier: Apache-2.0
"""The Kubernetes API `elasticjob.io/v1alpha1`. With `spec`, `status` and `fields` it is the source of the CRDs in
`crds/`; import all of the API from here.

`kubectl explain` prints the docstrings and `Field(description=...)` of these modules. They make no decisions: rules
live in `elasticjob.rendezvous`, and the API server checks the CEL rules.
"""

from typing import Annotated

from pydantic import ConfigDict, Field

from elasticjob.admission import TRANSITIONS
from elasticjob.blockers import Admitted, Blocker
from elasticjob.failure_policy import MAX_EXIT_CODE, PodFailurePolicy
from elasticjob.fields import (
    DETAIL_LENGTH,
    JOB_NAME_LENGTH,
    MAX_JSON_INTEGER,
    MAX_METRICS,
    MAX_REPLICAS,
    MAX_SUSPECTS,
    METRIC_NAME_LENGTH,
    SUSPECTS_LENGTH,
    Count,
    Imports,
    Index,
    KeepAlive,
    Metrics,
    ScriptName,
    Seconds,
    Share,
    SmallCount,
    Stage,
)
from elasticjob.history import NodeFailures, RoundRecord
from elasticjob.members import Member, Members
from elasticjob.schema import FORBIDDEN, MembersField, Model, rule, validations
from elasticjob.spec import AvoidNodesSpec, ElasticJobSpec, HostNetworkSpec
from elasticjob.status import (
    Active,
    Condition,
    ElasticJobStatus,
    LeaseIdentity,
    MatchedRule,
    Ping,
    Progress,
    RendezvousStatus,
)
from elasticjob.terms import FailureKind, Outcome, ProcessState, RendezvousPhase, RequestCause, RequestType
from elasticjob.timing import RendezvousSpec

GROUP = "elasticjob.io"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
JOBS, WORKERS = "elasticjobs", "elasticworkers"

JOB_LABEL, JOB_UID_LABEL = f"{GROUP}/job", f"{GROUP}/job-uid"
INDEX_LABEL = f"{GROUP}/index"
CAUSE_ANNOTATION = f"{GROUP}/cause"  # on an event: its cause in one word, from the words that metrics use
JOB_LEFT = "JobLeft"  # the reason of an event: another installation takes over the job

# Far from torch's defaults, 29400 and 29500. The store's port is the scripts' MASTER_PORT. On the ports after it
# libraries open stores of their own on rank 0, so none of them may be the sidecar's.
STORE_PORT, FORWARDED_PORTS = 27400, 128
TRAINER_API_PORT, TUNNEL_PORT, HEALTH_PORT = 27600, 27601, 27602
TROUBLE_PATH = "/trouble"  # at HEALTH_PORT: what keeps the worker from joining, according to its sidecar


class WorkerRequest(Model):
    """What a worker asks of the rendezvous."""

    type: RequestType = Field(description="What it asks for: Join, Leave, Finish or Close.")
    after: Count | None = Field(None, description="Join: the last formed round that the sidecar has seen.")
    round: Count | None = Field(None, description="Finish: the round that ended in success.")
    stage: Stage | None = Field(
        None,
        description="The position of the torchrun among those of its container, from 1. Those before it ended in "
        "success.",
    )
    container: str | None = Field(
        None,
        max_length=32,
        pattern="^[0-9]{1,20}$",
        description="The start of the container to which the torchrun belongs, identified by the start time of its "
        "first process. It is for the sidecar's next incarnation.",
    )
    script: ScriptName | None = Field(None, description="Join: the name of the script that torchrun starts.")
    cause: str | None = Field(None, max_length=256, description="Why, in one word.")
    detail: str | None = Field(
        None,
        max_length=DETAIL_LENGTH,
        description="Join, Leave: what failed in the worker's processes in the last round, for people.",
    )
    failure_kind: FailureKind | None = Field(
        None,
        description="Join, Leave: what detail tells of the failure's cause: Message, ExitCode, Signal, Unknown or "
        "BrokenConnection.",
    )
    live: bool | None = Field(
        None,
        description="Join: true if all of the worker's training processes run and live on into the next round. Absent "
        "if they are started anew for it.",
    )
    exit_code: Annotated[int, Field(ge=1, le=MAX_EXIT_CODE)] | None = Field(
        None,
        description="Join, Leave: the exit code of the worker's training process that failed first in the last round, "
        "whatever the cause. A signal's exit code is 128 plus its number. For spec.podFailurePolicy.",
    )
    last_call_seconds: Seconds | None = Field(
        None,
        description="Join: the trainer's last_call_timeout, in place of the job's rendezvous.lastCallSeconds. The "
        "longest among the joined workers applies.",
    )
    worker_lost_seconds: KeepAlive | None = Field(
        None,
        description="Join: the trainer's keep_alive_interval times keep_alive_max_attempt. It replaces the job's "
        "rendezvous.workerLostSeconds for this worker.",
    )


class ElasticWorkerSpec(Model):
    """One worker's part in the rendezvous and what it asks for."""

    model_config = ConfigDict(
        json_schema_extra=validations(
            rule(
                "self.id != oldSelf.id || self.certificate == oldSelf.certificate",
                "an incarnation has one certificate: it cannot be changed without spec.id",
                ".certificate",
                reason=FORBIDDEN,
            )
        )
    )

    job: str = Field(min_length=1, max_length=63, description="The name of the worker's ElasticJob.")
    index: Index = Field(description="The worker's index in its job.")
    id: str = Field(
        max_length=32,
        pattern="^[0-9a-f.]{1,32}$",
        description="The incarnation of the sidecar: a part that all pods made at once share, a dot, and the number of "
        "the sidecar's restarts in its pod.",
    )
    certificate: str = Field(
        max_length=4096,
        description="The sidecar's certificate in PEM form, made anew at each start. Other members identify the "
        "sidecar by it.",
    )
    address: str = Field(
        max_length=64,
        pattern=r"^([0-9]{1,3}([.][0-9]{1,3}){3}|\[[0-9a-fA-F:.]+\]):[0-9]{1,5}$",
        description="The listening address of the sidecar's store tunnel: the pod's IP address and a port.",
    )
    node: str = Field("", max_length=253, description="The pod's node.")
    request: WorkerRequest | None = Field(
        None, description="The worker's request. Absent until the trainer asks for something."
    )


class Stall(Model):
    """How far a worker is in a round in which a member has reported nothing for too long."""

    round: Count = Field(description="The round that this is about.")
    stalled: bool = Field(
        False,
        description="This worker's scripts have reported in that round before, and then nothing for "
        "spec.progressDeadlineSeconds.",
    )
    step: Count | None = Field(
        None,
        description="The lowest of the last steps that its scripts reported in that round; absent if there is none.",
    )
    process: ProcessState | None = Field(
        None,
        description="The state of its training processes, or of the one most at fault: Stopped, Blocked, Computes, "
        "Waits or Unknown. Absent until its trainer has looked.",
    )
    local_rank: SmallCount | None = Field(None, description="The local rank of that process.")


class ElasticWorkerStatus(Model):
    """The worker's state. The operator judges a heartbeat by its change, never by a worker's clock."""

    heartbeat: Count | None = Field(
        None,
        description="Grows by one while the sidecar lives: every few minutes while a round stands, every few seconds "
        "while one forms, and with each report.",
    )
    suspects: MembersField = Field(
        default_factory=Members,
        description="Members, as index/id, whose heartbeat link to this worker is silent. The operator pings them; a "
        "suspicion alone costs no worker its place.",
        json_schema_extra={"maxLength": SUSPECTS_LENGTH},
    )
    ack: Count | None = Field(None, description="The number of the last ping that this worker has acked.")
    round: Count | None = Field(None, description="The last round handed to the trainer.")
    rank: SmallCount | None = Field(None, description="The agent's rank in that round.")
    connected: Count | None = Field(
        None,
        description="Rank 0 only: the last round in which all training processes have connected to its store, as they "
        "do when they make their process group.",
    )
    stepped: Count | None = Field(None, description="The last round in which its training script has reported a step.")
    live: Count | None = Field(
        None,
        description="The last round in which all training processes of this worker have opted in to live through "
        "changes of the group.",
    )
    step: Count | None = Field(None, description="The last step that the training script reported.")
    total: Count | None = Field(None, description="The number of steps that it will take.")
    metrics: Metrics | None = Field(
        None, description="Numbers that the training script reported, unchanged. No decision depends on them."
    )
    waits: Share | None = Field(
        None, description="The share of its time for which the training script waits for others, as it reports."
    )
    stall: Stall | None = Field(
        None,
        description="Written when its scripts report nothing for spec.progressDeadlineSeconds, when they report again, "
        "and when the operator asks. Otherwise absent, or about an earlier round.",
    )
    imports: Imports | None = Field(
        None,
        description="With the job's warmRestart: the modules that the training script imports, in its order, separated "
        "by commas. The job's new pods import them early.",
    )


class ElasticWorker(Model):
    """One worker of an ElasticJob. The sidecar of the pod with the same name writes it."""

    spec: ElasticWorkerSpec
    status: ElasticWorkerStatus = Field(default_factory=ElasticWorkerStatus)


class ElasticJob(Model):
    """Elastic PyTorch training: torchrun agents in pods, whose rendezvous is kept in this object's status."""

    model_config = ConfigDict(
        json_schema_extra=validations(
            rule(
                # a job with a status may have been made while longer names were allowed
                f"has(self.status) || size(self.metadata.name) <= {JOB_NAME_LENGTH}",
                f"a job's name has at most {JOB_NAME_LENGTH} characters, with generateName {JOB_NAME_LENGTH - 5} and "
                "five that are added: its pods are named <job>-<index>-<number>, and no host name has more than 63",
                ".metadata.name",
            ),
            *TRANSITIONS,
        )
    )

    spec: ElasticJobSpec
    status: ElasticJobStatus = Field(default_factory=ElasticJobStatus)
