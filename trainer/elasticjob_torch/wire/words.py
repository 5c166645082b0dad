# SPDX-License-Identifier: Apache-2.0
"""The words of the trainer API, and the meaning of each refusal.

The enumerations repeat words of core's `terms`, and a test holds them equal: this package runs in users' images, where
core is not installed, and operator and command line tool have no part of the plug-in that core could import from.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from elasticjob_torch.wire.limits import BODY_SECONDS, LEFT_EXIT_CODE, PREDECESSOR_SECONDS


class _Word(str, Enum):
    """Like `enum.StrEnum`, which Python 3.10 lacks: `str()` returns the value."""

    __str__ = str.__str__


class JoinCause(_Word):
    """Why a trainer asks for a round."""

    STARTED = "Started"
    WORKER_FAILED = "WorkerFailed"
    MEMBERSHIP_CHANGED = "MembershipChanged"


class LeaveCause(_Word):
    """Why a trainer leaves."""

    TRAINER_LEFT = "TrainerLeft"
    POD_STOPPING = "PodStopping"
    TOLD_TO_LEAVE = "ToldToLeave"
    WORKER_FAILED = "WorkerFailed"
    MEMBERSHIP_CHANGED = "MembershipChanged"


class FailureKind(_Word):
    """What a report of a failure tells of its cause, the most telling first: the message of a process that failed, its
    exit code, a signal that ended it, nothing, or only that its connection to another one broke."""

    MESSAGE = "Message"
    EXIT_CODE = "ExitCode"
    SIGNAL = "Signal"
    UNKNOWN = "Unknown"
    BROKEN_CONNECTION = "BrokenConnection"


class Failure(NamedTuple):
    """What failed in a trainer's processes, for people; the exit code of the process that failed first; and what
    `detail` tells of the cause. Empty if nothing failed."""

    detail: str = ""
    exit_code: int | None = None
    kind: FailureKind = FailureKind.UNKNOWN


NO_FAILURE = Failure()


class Phase(_Word):
    """The phase of the rendezvous."""

    FORMING = "Forming"
    FORMED = "Formed"
    CLOSED = "Closed"


class Outcome(_Word):
    """Why the rendezvous is closed."""

    COMPLETE = "Complete"
    FAILED = "Failed"
    TIMEOUT = "RendezvousTimeout"
    CLOSED = "Closed"


class ProcessState(_Word):
    """What a training process does while no step is taken."""

    STOPPED = "Stopped"
    BLOCKED = "Blocked"
    COMPUTES = "Computes"
    WAITS = "Waits"
    UNKNOWN = "Unknown"


class Code(_Word):
    """Why a call is refused."""

    BAD_REQUEST = "BadRequest"
    BODY_LATE = "BodyLate"
    NO_TRAINER = "NoTrainer"
    SUPERSEDED = "Superseded"
    TRAINER_LIVES = "TrainerLives"
    ROUND_BROKEN = "RoundBroken"
    CLOSED = "Closed"
    LEAVING = "Leaving"
    STAGE_FINISHED = "StageFinished"
    OTHER_SCRIPT = "OtherScript"
    NEW_PROCESSES = "NewProcesses"
    TOO_MANY = "TooMany"
    API_AWAY = "ApiServerAway"
    JOIN_TIMEOUT = "JoinTimeout"
    STORE_TIMEOUT = "StoreTimeout"


class Refusal(NamedTuple):
    """The HTTP status of a refusal, its meaning, and the caller's reaction."""

    status: int
    means: str
    then: str


REFUSALS = {
    Code.BAD_REQUEST: Refusal(
        400,
        "A field, a value or the body is wrong, and the message names it; with status 404 or 405 the path or method.",
        "mend it; asking again is of no use",
    ),
    Code.BODY_LATE: Refusal(
        408,
        f"The request's body did not come within {BODY_SECONDS:g} seconds, as from a process that is frozen.",
        "ask again",
    ),
    Code.NO_TRAINER: Refusal(
        409,
        "This trainer's events stream is not open, or was lost meanwhile; or the pod is being stopped.",
        "open the stream, then ask again; give up when that has not helped for a while",
    ),
    Code.SUPERSEDED: Refusal(
        409, "A newer trainer of this pod has opened its stream, for good.", "end: the pod is the newer one's"
    ),
    Code.TRAINER_LIVES: Refusal(
        409,
        f"Another trainer of this pod has its stream open, and has not ended within {PREDECESSOR_SECONDS:g} seconds; "
        "the message has its process id.",
        "end: the pod is the other one's",
    ),
    Code.ROUND_BROKEN: Refusal(
        409, "The round that the call names is not the one that this trainer holds, or is over.", "join again"
    ),
    Code.CLOSED: Refusal(
        410,
        "The rendezvous is closed; `outcome` says how.",
        f"end: with exit code {LEFT_EXIT_CODE} if `outcome` is `Complete`, else as after a failure",
    ),
    Code.LEAVING: Refusal(
        410, "The job was scaled down, and this worker has to go.", f"end with exit code {LEFT_EXIT_CODE}"
    ),
    Code.STAGE_FINISHED: Refusal(
        410,
        "The stage of this trainer is finished: the torchrun that has the same place in the other containers has ended "
        "in success, or an earlier one of this pod.",
        "end with success",
    ),
    Code.OTHER_SCRIPT: Refusal(
        409,
        "The torchrun that has the same place in the other containers runs another script; the message names both.",
        "end with failure",
    ),
    Code.NEW_PROCESSES: Refusal(
        409,
        "The join says `live`, and the change since this trainer's round needs new processes: the training hung, or a "
        "restart was asked for.",
        "stop the training processes, then join again without `live`",
    ),
    Code.TOO_MANY: Refusal(429, "As many scripts look on as may.", "try again later"),
    Code.API_AWAY: Refusal(
        504,
        "The API server has not taken the request in the time given; it is still to be sent.",
        "ask again to go on waiting",
    ),
    Code.JOIN_TIMEOUT: Refusal(504, "No round was formed in the time given.", "join again, or end"),
    Code.STORE_TIMEOUT: Refusal(504, "The round's store did not answer in the time given.", "ask again, or join again"),
}
