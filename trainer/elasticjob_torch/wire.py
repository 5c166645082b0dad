"""The wire between a pod's trainer and its sidecar: calls, fields, words and limits, the one source for both sides.

The plug-in and its scripts speak it, the sidecar serves it (its image has this module too), and `docs/trainer-api.md`
is printed from it. So it needs nothing but the standard library of the oldest Python that a trainer may have. It sends
nothing and decides nothing.
"""

from __future__ import annotations

from enum import Enum
from typing import Annotated, NamedTuple, TypedDict

PORT = 27600  # on the pod's loopback

# --- limits

NAME_LENGTH = 64  # of a trainer's or script's name
SCRIPT_LENGTH = 64  # of the name of a script's file; the rest is cut off
DETAIL_LENGTH = 300  # characters of what failed; the rest is cut off
MAX_EXIT_CODE = 255
MAX_METRICS, METRIC_NAME_LENGTH = 16, 64
MAX_IMPORTS, IMPORT_LENGTH, IMPORTS_LENGTH = 256, 128, 8192  # the last: characters of all, with a comma between two
IMPORT_NAME = "^[A-Za-z_][A-Za-z0-9_]*([.][A-Za-z_][A-Za-z0-9_]*)*$"
MAX_JSON_INTEGER = 2**53 - 1  # the largest number that every reader of JSON takes as it is
LONGEST_SECONDS = 86400  # of any wait
SHORTEST_WORKER_LOST_SECONDS = 10

BODY_BYTES, BODY_SECONDS = 64 * 1024, 5.0  # of a request's body, and how long it may take to come
HEAD_BYTES, HEADERS = 2048, 32  # of the request's line and of a header; how many headers
MAX_CONNECTIONS = 512  # each script's stream, the trainer's, and short calls; the next one is closed unanswered
MAX_SCRIPTS = 256  # open streams of scripts; more processes than any node has devices
IDLE_SECONDS = 60.0  # without a request, or without all of one's headers; longer than clients keep a connection

# --- times

COMMENT_SECONDS = 10.0  # a stream on which nothing happens says at least that much
SILENCE_SECONDS = 30.0  # a stream that is silent for longer has lost its sidecar
ANSWER_SECONDS = 10.0  # for a call that has nothing to wait for
MARGIN_SECONDS = 5.0  # what a call that waits may take over the time it was given
PREDECESSOR_SECONDS = 5.0  # how long a trainer's stream waits for the end of another trainer of the pod
STORE_SECONDS = 30.0  # how long a question for the store waits that names no time
# As long as the API server is away, a trainer that ends in success is held here: its word must not be lost.
RECORDED_SECONDS = 300.0

# torchrun's exit code in a worker that has no part in the training any more and has not finished it: scaled away, or a
# spare at the end of the job. Not 0, or a shell would go on as after a success.
LEFT_EXIT_CODE = 75


class _Word(str, Enum):
    """As `enum.StrEnum`, which Python 3.10 lacks: it is what it says."""

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


class Phase(_Word):
    """Of the rendezvous."""

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
    NO_TRAINER = "NoTrainer"
    SUPERSEDED = "Superseded"
    TRAINER_LIVES = "TrainerLives"
    ROUND_BROKEN = "RoundBroken"
    CLOSED = "Closed"
    LEAVING = "Leaving"
    STAGE_FINISHED = "StageFinished"
    OTHER_SCRIPT = "OtherScript"
    TOO_MANY = "TooMany"
    API_AWAY = "ApiServerAway"
    JOIN_TIMEOUT = "JoinTimeout"
    STORE_TIMEOUT = "StoreTimeout"


class Refusal(NamedTuple):
    """The HTTP status of a refusal, what it means, and what the caller does then."""

    status: int
    means: str
    then: str


REFUSALS = {
    Code.BAD_REQUEST: Refusal(
        400,
        "A field, a value or the body is wrong, and the message names it; with status 404 or 405 the path or method.",
        "mend it; asking again is of no use",
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
    Code.TOO_MANY: Refusal(429, "As many scripts look on as may.", "try again later"),
    Code.API_AWAY: Refusal(
        504,
        "The API server has not taken the request in the time given; it is still to be sent.",
        "ask again to go on waiting",
    ),
    Code.JOIN_TIMEOUT: Refusal(504, "No round was formed in the time given.", "join again, or end"),
    Code.STORE_TIMEOUT: Refusal(504, "The round's store did not answer in the time given.", "ask again, or join again"),
}

# --- fields: of a query where the method is GET, else of a JSON body; those with a default may be left out

Trainer = Annotated[str, "The trainer's name: new for each process, the same in all of its calls."]
Script = Annotated[str, "The script's name: new for each process, the same in all of its calls."]
Recorded = Annotated[float, "Seconds to wait for the API server to take it. It is sent all the same."]


ExitCode = Annotated[
    int,
    "Of the training process that failed first since the last round was handed out, whatever the cause; 128 and the "
    "number of the signal that ended it; left out if none failed.",
]


class _OfATrainer(TypedDict):
    trainer: Trainer


class Events(_OfATrainer, total=False):
    """The query of the trainer's stream."""

    round: Annotated[int, "The last round handed to this process, 0 for none: a sidecar that has restarted asks."]
    pid: Annotated[int, "This process's id, which a second trainer of the pod is told; 0 where it is not known."]
    container: Annotated[
        str,
        "Which start of the container this process is in: a number of up to 20 digits that no other start has, as the "
        "time at which its first process was started; empty where it is not known.",
    ]
    script: Annotated[str, f"The name of the script that it starts; {SCRIPT_LENGTH} characters of it are kept."]
    stage: Annotated[int, "The stage that it was told with its last round, 0 before the first."]


class Join(_OfATrainer, total=False):
    """Asks for the next round."""

    after: Annotated[int, "The last round that this process has used or given up, 0 for none."]
    cause: Annotated[str, "Why: the first join of a process, its training has failed, or `changed` was told."]
    detail: Annotated[str, f"What failed, for people; {DETAIL_LENGTH} characters of it are kept."]
    exitCode: ExitCode
    timeout: Annotated[float, "Seconds to wait; by default the job's `joinTimeoutSeconds`."]
    lastCall: Annotated[int, "In place of the job's `lastCallSeconds`; the longest that a worker names applies."]
    workerLost: Annotated[int, "In place of the job's `workerLostSeconds`, for this worker."]


class PostedStore(_OfATrainer):
    """Of rank 0: where it serves the round's store."""

    round: Annotated[int, "The round that was handed out."]
    port: Annotated[int, "The port, on loopback, of the store that other workers are connected with."]


class _AskedStore(TypedDict):
    round: Annotated[int, "The round that was handed out."]


class AskedStore(_AskedStore, total=False):
    """Asks for the round's store."""

    timeout: Annotated[float, "Seconds to wait."]


class Leave(_OfATrainer, total=False):
    """Leaves the group."""

    cause: Annotated[str, "Why: by itself, a failure of the training; or it was told to go."]
    exitCode: ExitCode
    timeout: Recorded


class _Finish(_OfATrainer):
    round: Annotated[int, "The round whose work is done."]


class Finish(_Finish, total=False):
    """Ends in success."""

    timeout: Recorded


class Close(_OfATrainer, total=False):
    """Closes the rendezvous for all."""

    timeout: Recorded


class Imports(TypedDict):
    """What the script imports."""

    imports: Annotated[
        list[str], f"Names of modules, in their order; {IMPORTS_LENGTH} characters of all, with a comma between two."
    ]


class Processes(_OfATrainer):
    """What the training processes do."""

    round: Annotated[int, "The round that they train in."]
    state: Annotated[
        str,
        "Of the process that is most at fault: it was stopped by a signal; it waits in the kernel, deaf to signals; it "
        "runs; it sleeps, for others or for anything else; none of these.",
    ]
    local_rank: Annotated[int, "Which one."]


class _Watch(TypedDict):
    script: Script


class Watch(_Watch, total=False):
    """The query of a script's stream."""

    saves: Annotated[bool, "The script wants to save before a planned end; `true` or `false`."]


class Saved(_Watch, total=False):
    """What a script has saved for."""

    round: Annotated[int, "The round for whose planned end it has saved, 0 for none yet: it only wants to."]


class Report(TypedDict, total=False):
    """How far the training is."""

    local_rank: Annotated[int, "Of several scripts of a worker the one with the lowest is shown."]
    step: Annotated[int | None, "The last step."]
    total: Annotated[int | None, "The steps it means to take."]
    waits: Annotated[float | None, "The share of its time that it waits for others."]
    metrics: Annotated[dict[str, float], f"At most {MAX_METRICS} numbers; what is not finite is left out."]


# --- fields of answers


class StoreAddress(TypedDict):
    """Where the round's store is reached from inside this pod."""

    host: Annotated[str, "A loopback address."]
    port: Annotated[int, "Its port; the same in each pod and round."]


class Handed(TypedDict):
    """A round that was formed with this worker."""

    round: Annotated[int, "Its number."]
    rank: Annotated[int, "This worker's; rank 0 serves the store."]
    worldSize: Annotated[int, "How many workers the round has."]
    stage: Annotated[int, "Which of the torchruns of its container this is, from 1: those before it have succeeded."]
    runId: Annotated[str, "The job's UID."]
    store: Annotated[StoreAddress, "Where its store is reached from inside this pod."]
    masterAddress: Annotated[str, "Of rank 0's pod, in the pods' network."]


class View(TypedDict):
    """The rendezvous as a trainer is told of it."""

    round: Annotated[int, "The job's current round."]
    phase: Annotated[str, "Of that round."]
    waiting: Annotated[int, "Workers that have joined and are not in that round."]
    worldSize: Annotated[int, "Workers of that round, 0 while it forms."]
    handed: Annotated[int, "The round that this trainer holds, of which `changed` speaks; 0 for none."]
    changed: Annotated[bool, "That round is over: stop its processes and join again."]
    stalled: Annotated[
        bool, "Nobody takes steps in the round that this trainer holds: tell what its training processes do."
    ]
    succeeded: Annotated[bool, "All workers of the round that this trainer holds have ended in success."]
    leaving: Annotated[bool, "This worker has to go: stop its processes; the next join says `Leaving`."]
    closed: Annotated[bool, "The rendezvous is closed: a formed round trains on, nobody joins another."]
    outcome: Annotated[str, "Why it is closed, else empty."]
    reason: Annotated[str, "Why the round was opened, formed or closed, for people."]


class _Seen(TypedDict):
    rank: Annotated[int | None, "This worker's in the round that it holds, null without one."]
    job: Annotated[str, "The ElasticJob's name."]
    runId: Annotated[str, "Its UID."]


class Seen(View, _Seen):
    """All that the sidecar knows; the fields of the view are missing until it has seen the job."""


class ScriptView(TypedDict):
    """The rendezvous as scripts are told of it."""

    round: Annotated[int, "The round that this worker holds, 0 for none."]
    waiting: Annotated[int, "Workers that have joined and wait for the next round."]
    reason: Annotated[str, "Why the round was formed, for people."]
    ending: Annotated[bool, "It is going to be replaced by plan: save now, then say so."]


class _Error(TypedDict):
    code: Annotated[str, "One word of the table."]
    message: Annotated[str, "A sentence for people."]


class Error(_Error, total=False):
    """What is under `error` in the answer to a call that is refused."""

    outcome: Annotated[str, "With `Closed`: why the rendezvous is closed."]


# --- calls


class Call(NamedTuple):
    """`answers`: the JSON of the answer, for a stream of each event; None is 204, an answer without a body.

    Each call may be refused with `BadRequest` besides.
    """

    method: str
    path: str
    sends: type | None
    answers: type | None
    does: str
    refusals: tuple[Code, ...] = ()
    stream: bool = False


_OF_A_TRAINER = (Code.NO_TRAINER, Code.SUPERSEDED)

EVENTS = Call(
    "GET",
    "/v1/rendezvous/events",
    Events,
    View,
    "The trainer's life, and what it is told: an event at once and at each change. It is opened before all else.",
    (Code.SUPERSEDED, Code.TRAINER_LIVES),
    stream=True,
)
JOIN = Call(
    "POST",
    "/v1/rendezvous",
    Join,
    Handed,
    "Joins, and is answered when a round is formed with this worker.",
    (*_OF_A_TRAINER, Code.CLOSED, Code.LEAVING, Code.STAGE_FINISHED, Code.OTHER_SCRIPT, Code.JOIN_TIMEOUT),
)
VIEW = Call(
    "GET",
    "/v1/rendezvous",
    None,
    Seen,
    "What the sidecar knows now. Anybody in the pod may ask; until it has seen the job it knows the last three alone.",
)
POST_STORE = Call(
    "POST",
    "/v1/store",
    PostedStore,
    None,
    "Rank 0 serves the round's store from now on; within the job's `storeReadySeconds`, or it is out of the group.",
    (*_OF_A_TRAINER, Code.ROUND_BROKEN),
)
ASK_STORE = Call(
    "GET",
    "/v1/store",
    AskedStore,
    StoreAddress,
    "Waits until the round's store answers. Nobody has to ask: a connection that comes early is held for some seconds, "
    "then closed, and may be tried again.",
    (Code.ROUND_BROKEN, Code.STORE_TIMEOUT),
)
FINISH = Call(
    "POST",
    "/v1/finish",
    Finish,
    None,
    "The training has ended in success; answered when that is recorded. Exit code 0 alone is no success.",
    (*_OF_A_TRAINER, Code.API_AWAY),
)
LEAVE = Call(
    "POST",
    "/v1/leave",
    Leave,
    None,
    "Leaves the group, which goes on without it; answered when that is recorded.",
    (*_OF_A_TRAINER, Code.API_AWAY),
)
CLOSE = Call(
    "POST",
    "/v1/close",
    Close,
    None,
    "Closes the rendezvous for all: the formed round trains to its end, nobody joins another.",
    (*_OF_A_TRAINER, Code.API_AWAY),
)
IMPORTS = Call(
    "POST",
    "/v1/imports",
    Imports,
    None,
    "What the script imports, for the job's next pods, whose parked processes import it early. Needs no open stream.",
)
PROCESSES = Call(
    "POST",
    "/v1/processes",
    Processes,
    None,
    "What the training processes do, after `stalled` was told; the plug-in has them write their Python stacks as well.",
    (*_OF_A_TRAINER, Code.ROUND_BROKEN),
)
WATCH = Call(
    "GET",
    "/v1/rendezvous/watch",
    Watch,
    ScriptView,
    "A script looks on, and is no trainer: an event at once and at each change.",
    (Code.TOO_MANY,),
    stream=True,
)
SAVED = Call(
    "POST",
    "/v1/saved",
    Saved,
    None,
    "A script whose stream is open wants to save before planned ends, and has for this one.",
)
PROGRESS = Call("POST", "/v1/progress", Report, None, "How far the training is, shown in the job's status.")

CALLS = (EVENTS, JOIN, VIEW, POST_STORE, ASK_STORE, FINISH, LEAVE, CLOSE, IMPORTS, PROCESSES, WATCH, SAVED, PROGRESS)
