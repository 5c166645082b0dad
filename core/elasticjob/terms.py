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


class Cause(StrEnum):
    """Why a worker joins or leaves."""

    STARTED = "Started"
    WORKER_FAILED = "WorkerFailed"
    MEMBERSHIP_CHANGED = "MembershipChanged"
    RENEWED = "Renewed"
    AGENT_LOST = "AgentLost"
    TRAINER_LEFT = "TrainerLeft"
    STORE_NOT_READY = "StoreNotReady"
    POD_STOPPING = "PodStopping"
    JOIN_TIMEOUT = "JoinTimeout"
