# SPDX-License-Identifier: Apache-2.0
"""The calls of the trainer API: their messages, their answers, and their refusals."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from elasticjob_torch.wire import answers, requests
from elasticjob_torch.wire.words import Code

if TYPE_CHECKING:
    from elasticjob_torch.wire.fields import Message


class Call(NamedTuple):
    """`answers`: the JSON of the answer, or of each event of a stream; None is 204, an answer without a body.

    Each call may also be refused with `BadRequest`, and one with a body with `BodyLate`.
    """

    method: str
    path: str
    sends: type[Message] | None
    answers: type[Message] | None
    does: str
    refusals: tuple[Code, ...] = ()
    stream: bool = False

    @property
    def common_refusals(self) -> tuple[Code, ...]:
        """Return those that do not depend on what the call does."""
        return (Code.BAD_REQUEST, Code.BODY_LATE) if self.method == "POST" else (Code.BAD_REQUEST,)


_OF_A_TRAINER = (Code.NO_TRAINER, Code.SUPERSEDED)

EVENTS = Call(
    "GET",
    "/v1/rendezvous/events",
    requests.Events,
    answers.View,
    "The trainer's life, and what it is told: an event at once and at each change. It is opened before all else.",
    (Code.SUPERSEDED, Code.TRAINER_LIVES),
    stream=True,
)
JOIN = Call(
    "POST",
    "/v1/rendezvous",
    requests.Join,
    answers.Round,
    "Joins, and is answered when a round is formed with this worker.",
    (
        *_OF_A_TRAINER,
        Code.CLOSED,
        Code.LEAVING,
        Code.STAGE_FINISHED,
        Code.OTHER_SCRIPT,
        Code.NEW_PROCESSES,
        Code.JOIN_TIMEOUT,
    ),
)
VIEW = Call(
    "GET",
    "/v1/rendezvous",
    None,
    answers.Seen,
    "What the sidecar knows now. Anybody in the pod may ask; until it has seen the job it knows the last three alone.",
)
POST_STORE = Call(
    "POST",
    "/v1/store",
    requests.PostedStore,
    None,
    "Rank 0 serves the round's store from now on; within the job's `storeReadySeconds`, or it is out of the group.",
    (*_OF_A_TRAINER, Code.ROUND_BROKEN),
)
ASK_STORE = Call(
    "GET",
    "/v1/store",
    requests.AskedStore,
    answers.StoreAddress,
    "Waits until the round's store answers. This call is optional: a connection that comes early is held for some "
    "seconds, then closed, and may be tried again.",
    (Code.ROUND_BROKEN, Code.STORE_TIMEOUT),
)
FINISH = Call(
    "POST",
    "/v1/finish",
    requests.Finish,
    None,
    "The training has ended in success; answered when that is recorded. Exit code 0 alone is no success.",
    (*_OF_A_TRAINER, Code.API_AWAY),
)
LEAVE = Call(
    "POST",
    "/v1/leave",
    requests.Leave,
    None,
    "Leaves the group, which goes on without it; answered when that is recorded.",
    (*_OF_A_TRAINER, Code.API_AWAY),
)
CLOSE = Call(
    "POST",
    "/v1/close",
    requests.Close,
    None,
    "Closes the rendezvous for all: the formed round trains to its end, and no worker joins another.",
    (*_OF_A_TRAINER, Code.API_AWAY),
)
LIVE = Call(
    "POST",
    "/v1/live",
    requests.Live,
    None,
    "All training processes of this worker have opted in to live through changes of the group. Known to the operator "
    "within seconds; a join that says `live` needs no such call.",
    (*_OF_A_TRAINER, Code.ROUND_BROKEN),
)
IMPORTS = Call(
    "POST",
    "/v1/imports",
    requests.Imports,
    None,
    "What the script imports, for the job's next pods, whose prestarted processes import it early. Needs no "
    "open stream.",
)
PROCESSES = Call(
    "POST",
    "/v1/processes",
    requests.Processes,
    None,
    "What the training processes do, after `stalled` was told; the plug-in has them write their Python stacks as well.",
    (*_OF_A_TRAINER, Code.ROUND_BROKEN),
)
WATCH = Call(
    "GET",
    "/v1/rendezvous/watch",
    requests.Watch,
    answers.ScriptView,
    "A script looks on, and is no trainer: an event at once and at each change.",
    (Code.TOO_MANY,),
    stream=True,
)
SAVED = Call(
    "POST",
    "/v1/saved",
    requests.Saved,
    None,
    "A script whose stream is open wants to save before planned ends, and has for this one.",
)
PROGRESS = Call(
    "POST", "/v1/progress", requests.ProgressReport, None, "How far the training is, shown in the job's status."
)

CALLS = (
    EVENTS,
    JOIN,
    VIEW,
    POST_STORE,
    ASK_STORE,
    FINISH,
    LEAVE,
    CLOSE,
    LIVE,
    IMPORTS,
    PROCESSES,
    WATCH,
    SAVED,
    PROGRESS,
)
