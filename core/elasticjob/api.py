"""The Kubernetes API `elasticjob.io/v1alpha1`: the one source of the CRDs in `crds/`.

A docstring or `Field(description=...)` here is what `kubectl explain` prints. Nothing here decides
anything: rules live in `elasticjob.rendezvous`, CEL rules are checked by the API server.
"""

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, FiniteFloat

from elasticjob.admission import POD_TEMPLATE, TRANSITIONS
from elasticjob.heartbeats import SHORTEST_SECONDS
from elasticjob.members import Member, Members
from elasticjob.schema import MembersField, Model, Replacements, rule, validations
from elasticjob.terms import Cause, Outcome, RendezvousPhase, RequestType

__all__ = [
    "Cause",
    "ElasticJob",
    "ElasticJobSpec",
    "ElasticJobStatus",
    "ElasticWorker",
    "ElasticWorkerSpec",
    "ElasticWorkerStatus",
    "Member",
    "Members",
    "Outcome",
    "Progress",
    "RendezvousPhase",
    "RendezvousStatus",
    "RequestType",
    "WorkerRequest",
]

GROUP = "elasticjob.io"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
JOBS, WORKERS = "elasticjobs", "elasticworkers"

JOB_LABEL = f"{GROUP}/job"
INDEX_LABEL = f"{GROUP}/index"

MAX_REPLICAS = 4096
MAX_CONDITIONS = 16  # CEL counts what its rules may cost
MAX_METRICS, METRIC_NAME_LENGTH = 16, 64
DETAIL_LENGTH = 300
MAX_JSON_INTEGER = 2**53 - 1  # the largest number that every reader of JSON takes as it is
STORE_PORT, TRAINER_API_PORT, TUNNEL_PORT, HEALTH_PORT = 29400, 29401, 29402, 29403

Seconds = Annotated[int, Field(ge=1, le=86400)]
KeepAlive = Annotated[int, Field(ge=2 * int(SHORTEST_SECONDS), le=86400)]
Count = Annotated[int, Field(ge=0, le=MAX_JSON_INTEGER)]
Index = Annotated[int, Field(ge=0, le=MAX_REPLICAS - 1)]
Metrics = Annotated[dict[str, FiniteFloat], Field(max_length=MAX_METRICS)]
Replicas = Annotated[int, Field(ge=1, le=MAX_REPLICAS)]


class RendezvousSpec(Model):
    """Timing of the rendezvous, in seconds."""

    model_config = ConfigDict(
        json_schema_extra=validations(
            rule(
                "self.saveSeconds + self.stopSeconds < self.rejoinSeconds",
                "'saveSeconds %d and stopSeconds %d together must be less than rejoinSeconds %d: members save and stop "
                "before they rejoin'.format([self.saveSeconds, self.stopSeconds, self.rejoinSeconds])",
                ".saveSeconds",
            ),
            rule(
                "!has(self.workerLostSeconds) || self.workerLostSeconds < self.rejoinSeconds",
                "'workerLostSeconds %d must be less than rejoinSeconds %d: a lost worker is known to be lost before a "
                "round forms without it'.format([self.workerLostSeconds, self.rejoinSeconds])",
                ".workerLostSeconds",
            ),
        )
    )

    last_call_seconds: Seconds = Field(
        30,
        description="Once minReplicas have joined, how long to wait for workers that are still on their way.",
    )
    join_timeout_seconds: Seconds = Field(
        600,
        description="How long a round may form while all missing workers have running pods; then the job fails.",
    )
    rejoin_seconds: Seconds = Field(
        75,
        description="How long members of the last round may take to stop their processes and join again; one that does "
        "not, and whose sidecar lives, is replaced.",
    )
    save_seconds: Annotated[int, Field(ge=0, le=86400)] = Field(
        15,
        description="How long a planned end of a round waits for scripts that call wants_restart() to save. "
        "With stopSeconds less than rejoinSeconds.",
    )
    stop_seconds: Seconds = Field(
        10,
        description="How long training processes may take to end at SIGTERM when their round is over, before SIGKILL.",
    )
    worker_lost_seconds: Seconds | None = Field(
        None,
        description="A worker that gives no sign of life for this long is lost and replaced. Without it 15 seconds, or "
        "a sixteenth of the number of workers if that is more. Less than rejoinSeconds.",
    )
    store_ready_seconds: Seconds = Field(
        20,
        description="How long rank 0 may take to serve the round's store before it is taken out of the group.",
    )
    restart_reset_seconds: Seconds = Field(
        3600, description="A round that lasts this long unbroken sets the count of restarts back to zero."
    )


class ElasticJobSpec(Model):
    """What the user wants to run: a pod template and the bounds of its size."""

    model_config = ConfigDict(
        json_schema_extra=validations(
            rule(
                "self.minReplicas <= self.replicas",
                "'replicas %d is below minReplicas %d'.format([self.replicas, self.minReplicas])",
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
        )
    )

    replicas: Replicas = Field(
        description="How many workers to run now; `kubectl scale` changes it. Each is one pod with one torchrun agent."
    )
    min_replicas: Replicas = Field(
        1, description="The smallest group that may train; with fewer workers the job waits."
    )
    max_replicas: Replicas | None = Field(
        None,
        description=f"The largest group; a scale beyond it is refused. Without it the bound is {MAX_REPLICAS}.",
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
    max_restarts: Count = Field(
        3,
        description="How many failures of the trainer may be cured before the job fails. Lost pods do not count.",
    )
    suspend: bool = Field(False, description="Stops the workers and keeps the state; set it back to false to go on.")
    ttl_seconds_after_finished: Count | None = Field(
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
    rendezvous: RendezvousSpec = Field(default_factory=RendezvousSpec)
    template: dict[str, Any] = Field(
        description="A worker's pod template, as in a Deployment; its trainer runs plain `torchrun train.py`.",
        json_schema_extra=POD_TEMPLATE,
    )


class RendezvousStatus(Model):
    """The agreed state of the rendezvous. Every sidecar of the job watches it."""

    round: Count = Field(0, description="The current round; grows by one each time a round is opened.")
    phase: RendezvousPhase = Field(RendezvousPhase.FORMING, description="Forming, Formed or Closed.")
    world_size: Count = Field(0, description="Workers in the formed round; 0 while forming.")
    waiting: Count = Field(0, description="Workers that have joined and are not in the current round.")
    participants: MembersField = Field(
        default_factory=Members,
        description="The members of the last formed round in rank order, as index/id, or first-last/id where several "
        "have one id; while Forming they are not yet the next round's.",
    )
    replicas: Count = Field(
        0,
        description="spec.replicas when the last round was formed, so that a later round knows if the job was scaled.",
    )
    leaving: MembersField = Field(
        default_factory=Members, description="Workers told to leave: they exit and their pods go."
    )
    finished: MembersField = Field(default_factory=Members, description="Workers whose training ended in success.")
    failure: str = Field(
        "",
        description="What failed in the last formed round, while it is not known whether it counts against "
        "spec.maxRestarts: that is judged when the group forms again.",
    )
    given_up: MembersField = Field(
        default_factory=Members,
        description="Members of the last formed round whose pods were given up meanwhile for a cause that does not "
        "explain the failure.",
    )
    planned: bool = Field(
        False,
        description="The last round was ended for newcomers or for workers told to leave, and all its members live: "
        "scripts may save before they are stopped.",
    )
    store: str | None = Field(
        None,
        description="Address of rank 0's sidecar, behind which the round's TCPStore serves, and after a slash its "
        "certificate's fingerprint: the first 128 bits of the SHA-256, in hex.",
    )
    reason: str = Field("", description="Why the round was formed, opened or closed.")
    outcome: Outcome | None = Field(
        None, description="Why the rendezvous is Closed: Complete, Failed, Closed or RendezvousTimeout."
    )


class Condition(Model):
    """A condition in the usual Kubernetes form."""

    type: str = Field(description="What the condition is about.")
    status: Literal["True", "False", "Unknown"] = Field(description="True, False or Unknown.")
    reason: str = Field(description="Why, in one word.")
    message: str = Field("", description="Why, in a sentence.")
    observed_generation: int | None = Field(None, description="The generation of the spec that it was found for.")
    last_transition_time: str = Field(description="When the status last changed.")


class RoundRecord(Model):
    """One round that was formed."""

    round: Count = Field(description="The round's number.")
    size: Count = Field(description="How many workers it had.")
    cause: str = Field(description="Why it was formed.")
    seconds: float = Field(description="Seconds from its opening to its forming.")
    time: str = Field(description="When it was formed.")


class Progress(Model):
    """How far the training is, as the script in rank 0's worker reported it."""

    step: Count | None = Field(None, description="The last step.")
    total: Count | None = Field(None, description="The steps it means to take.")
    metrics: Metrics | None = Field(None, description="Its numbers.")
    summary: str = Field("", description="Step and total in one word.")


class ElasticJobStatus(Model):
    """What the operator has seen and decided. Only the operator writes it."""

    observed_generation: int | None = Field(None, description="The generation of the spec that this status answers to.")
    phase: str = Field("Pending", description="One word for people, derived from the conditions.")
    reason: str = Field(
        "",
        description="Why the job waits, or has ended, in one word; empty while all wanted workers train.",
    )
    conditions: tuple[Condition, ...] = Field(
        (),
        description="Rendezvoused, Complete, Failed, Suspended, TemplateValid and, after an invalid ElasticWorker, "
        "WorkersValid; `kubectl wait` works on them.",
        max_length=MAX_CONDITIONS,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
    )
    replicas: Count = Field(0, description="Worker pods that exist and are not on their way out.")
    ready_replicas: Count = Field(0, description="Worker pods that are ready.")
    selector: str = Field("", description="The worker pods' label selector, for the scale subresource.")
    restarts: Count = Field(0, description="Failures counted against spec.maxRestarts.")
    term: Count = Field(
        0, description="The operator's leadership term that wrote this: fences a leader that was replaced."
    )
    rendezvous: RendezvousStatus = Field(default_factory=RendezvousStatus)
    progress: Progress | None = Field(
        None, description="How far the training is, by what its script reports; some seconds old, more in large jobs."
    )
    replacements: Replacements = Field(
        default_factory=dict,
        description="How often a worker's pod was replaced, as index/number or first-last/number; the number is the "
        "last part of the pod's name.",
    )
    history: tuple[RoundRecord, ...] = Field(
        (), description="The last five formed rounds.", json_schema_extra={"x-kubernetes-list-type": "atomic"}
    )


class WorkerRequest(Model):
    """What a worker asks of the rendezvous."""

    type: RequestType = Field(description="Join, Leave, Finish or Close.")
    after: Count | None = Field(None, description="Join: the last formed round that the sidecar had seen.")
    round: Count | None = Field(None, description="Finish: the round that ended in success.")
    cause: str | None = Field(None, max_length=256, description="Why, in one word.")
    detail: str | None = Field(
        None,
        max_length=DETAIL_LENGTH,
        description="Join: what failed, where the cause is WorkerFailed, for people.",
    )
    last_call_seconds: Seconds | None = Field(
        None,
        description="Join: the trainer's last_call_timeout, in place of the job's rendezvous.lastCallSeconds. The "
        "longest that one of the joined workers names applies.",
    )
    worker_lost_seconds: KeepAlive | None = Field(
        None,
        description="Join: the trainer's keep_alive_interval times keep_alive_max_attempt, for this worker in place of "
        "the job's rendezvous.workerLostSeconds.",
    )


class ElasticWorkerSpec(Model):
    """One worker's part in the rendezvous and what it asks for."""

    model_config = ConfigDict(
        json_schema_extra=validations(
            rule(
                "self.id != oldSelf.id || self.certificate == oldSelf.certificate",
                "an incarnation has one certificate: it cannot be changed without spec.id",
                ".certificate",
            )
        )
    )

    job: str = Field(min_length=1, max_length=63, description="The ElasticJob.")
    index: Index = Field(description="The worker's index in its job.")
    id: str = Field(
        pattern="^[0-9a-f.]{1,32}$",
        description="This incarnation of the sidecar: what all pods made at once share, and after a dot how often the "
        "sidecar was started again in its pod.",
    )
    certificate: str = Field(
        max_length=4096,
        description="The sidecar's certificate in PEM form, new at each of its starts. Other members know it by this.",
    )
    address: str = Field(
        max_length=64,
        pattern=r"^([0-9]{1,3}([.][0-9]{1,3}){3}|\[[0-9a-fA-F:.]+\]):[0-9]{1,5}$",
        description="Where the sidecar's store tunnel listens: the pod's IP address and port.",
    )
    node: str = Field("", max_length=253, description="The node that the pod runs on.")
    request: WorkerRequest | None = Field(None, description="Absent until the trainer asks for something.")


class ElasticWorkerStatus(Model):
    """How the worker is. The operator judges a heartbeat by its change, never by a clock of the worker."""

    heartbeat: Count | None = Field(
        None, description="Grows by one every five seconds, in a large group more seldom, while the sidecar lives."
    )
    round: Count | None = Field(None, description="The last round handed to the trainer.")
    rank: Count | None = Field(None, description="The agent's rank in that round.")
    step: Count | None = Field(None, description="The last step that the training script reported.")
    total: Count | None = Field(None, description="The steps it means to take.")
    metrics: Metrics | None = Field(None, description="Numbers that the training script reported.")


class ElasticWorker(Model):
    """One worker of an ElasticJob, written by the sidecar of the pod of the same name."""

    spec: ElasticWorkerSpec
    status: ElasticWorkerStatus = Field(default_factory=ElasticWorkerStatus)


class ElasticJob(Model):
    """Elastic PyTorch training: torchrun agents in pods, whose rendezvous lives in this object's status."""

    model_config = ConfigDict(
        json_schema_extra=validations(
            rule("size(self.metadata.name) <= 63", "metadata.name is a label of the pods: at most 63 characters"),
            *TRANSITIONS,
        )
    )

    spec: ElasticJobSpec
    status: ElasticJobStatus = Field(default_factory=ElasticJobStatus)
