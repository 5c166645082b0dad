# SPDX-License-Identifier: Apache-2.0
"""The words that the API objects and the state machine share."""

from enum import StrEnum


class RendezvousPhase(StrEnum):
    FORMING = "Forming"
    FORMED = "Formed"
    CLOSED = "Closed"


class Outcome(StrEnum):
    """Why a rendezvous is Closed. `CLOSED`: by `set_closed()`; the formed round still trains to its end."""

    COMPLETE = "Complete"
    FAILED = "Failed"
    TIMEOUT = "RendezvousTimeout"
    CLOSED = "Closed"


class RequestType(StrEnum):
    """What a worker asks of the rendezvous."""

    JOIN = "Join"
    LEAVE = "Leave"
    FINISH = "Finish"
    CLOSE = "Close"


class PolicyAction(StrEnum):
    """The action of a rule of `spec.podFailurePolicy`."""

    FAIL_JOB = "FailJob"
    IGNORE = "Ignore"
    COUNT = "Count"


class RequestCause(StrEnum):
    """Why a worker asks to join or leave."""

    STARTED = "Started"
    WORKER_FAILED = "WorkerFailed"
    MEMBERSHIP_CHANGED = "MembershipChanged"
    RENEWED = "Renewed"
    AGENT_LOST = "AgentLost"
    TRAINER_LEFT = "TrainerLeft"
    STORE_NOT_READY = "StoreNotReady"
    POD_STOPPING = "PodStopping"
    TOLD_TO_LEAVE = "ToldToLeave"
    JOIN_TIMEOUT = "JoinTimeout"


class FailureKind(StrEnum):
    """What a report of a failure tells of its cause, the most telling first: the message of a process that failed, its
    exit code, a signal that ended it, nothing, or only that its connection to another one broke."""

    MESSAGE = "Message"
    EXIT_CODE = "ExitCode"
    SIGNAL = "Signal"
    UNKNOWN = "Unknown"
    BROKEN_CONNECTION = "BrokenConnection"

    @property
    def place(self) -> int:
        """Its position in that order, from 0."""
        return list(FailureKind).index(self)


class Loss(StrEnum):
    """Why a worker was lost."""

    POD_DELETED = "PodDeleted"
    POD_FAILED = "PodFailed"
    POD_REJECTED = "PodRejected"
    POD_GONE = "PodGone"
    POD_DISRUPTED = "PodDisrupted"
    ENDED_SUSPENDED = "EndedSuspended"
    ENDED_UNFINISHED = "EndedUnfinished"
    TRAINER_CRASHED = "TrainerCrashed"
    TRAINER_HUNG = "TrainerHung"
    STORE_NOT_READY = "StoreNotReady"
    INVALID_RECORD = "InvalidRecord"
    UNRESPONSIVE = "Unresponsive"


class ProcessState(StrEnum):
    """What a training process does while no step is taken, as its worker's trainer observes it. `WAITS`: it sleeps, for
    peers or for anything else. `BLOCKED`: it waits in the kernel and does not react to signals."""

    STOPPED = "Stopped"
    BLOCKED = "Blocked"
    COMPUTES = "Computes"
    WAITS = "Waits"
    UNKNOWN = "Unknown"


class RoundCause(StrEnum):
    """Why a round was formed or ended, if that is no `Loss`, no `RequestCause` of a worker that left, and no `Outcome`.

    Metrics count by these words: so there are few, and none of them quotes a worker or a pod.
    """

    FIRST_FORMATION = "FirstFormation"
    RESUMED = "Resumed"
    SUSPENDED = "Suspended"
    SCALED = "Scaled"
    TEMPLATE_CHANGED = "TemplateChanged"
    RESTARTED = "Restarted"
    NEXT_STAGE = "NextStage"
    NODE_DRAINING = "NodeDraining"
    DEVICE_UNHEALTHY = "DeviceUnhealthy"
    WORKERS_JOINED = "WorkersJoined"
    TOLD_TO_LEAVE = "ToldToLeave"
    CAME_BACK = "CameBack"
    WORKER_FAILED = "WorkerFailed"
    TRAINING_HUNG = "TrainingHung"
    TRAINER_STARTED_AGAIN = "TrainerStartedAgain"
    SIDECAR_RESTARTED = "SidecarRestarted"
    INVALID_RECORD = "InvalidRecord"
    RECORD_REPLACED = "RecordReplaced"
    POD_FAILURE_POLICY = "PodFailurePolicy"
    DEADLINE_EXCEEDED = "DeadlineExceeded"
    OTHER = "Other"
