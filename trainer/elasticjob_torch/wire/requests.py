# SPDX-License-Identifier: Apache-2.0
"""The requests of trainers and scripts to the sidecar: a message for each call, in a query if its method is GET."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from elasticjob_torch.wire.fields import JsonName, Listed, Message, Number, Numbers, OneOf, Text, Truth, Whole
from elasticjob_torch.wire.limits import (
    DETAIL_LENGTH,
    IMPORT_LENGTH,
    IMPORT_NAME,
    IMPORTS_LENGTH,
    LONGEST_SECONDS,
    MAX_EXIT_CODE,
    MAX_IMPORTS,
    MAX_METRICS,
    METRIC_NAME_LENGTH,
    NAME_LENGTH,
    RECORDED_SECONDS,
    SCRIPT_LENGTH,
    SHORTEST_WORKER_LOST_SECONDS,
    STORE_SECONDS,
)
from elasticjob_torch.wire.words import FailureKind, JoinCause, LeaveCause, ProcessState

_NAME, _COUNT, _ROUND, _INT32 = Text(NAME_LENGTH, least=1), Whole(), Whole(1), Whole(0, 2**31 - 1)
_WAIT = Number(0, LONGEST_SECONDS, open=True)

_Script = Annotated[str, _NAME, "The script's name: new for each process, the same in all of its calls."]
_Recorded = Annotated[float, _WAIT, "Seconds to wait for the API server to take it. It is sent all the same."]
_Detail = Annotated["str | None", Text(), f"What failed, for people; {DETAIL_LENGTH} characters of it are kept."]
_ExitCode = Annotated[
    "int | None",
    Whole(1, MAX_EXIT_CODE),
    JsonName("exitCode"),
    "Of the training process that failed first since the last round was handed out, whatever the cause; 128 and the "
    "number of the signal that ended it; left out if none failed.",
]
_FailureKind = Annotated[
    "FailureKind | None",
    OneOf(FailureKind),
    JsonName("failureKind"),
    "What `detail` tells of the cause: of the failures of a round the operator reports the most telling one.",
]


@dataclass(frozen=True, kw_only=True)
class _OfATrainer(Message):
    trainer: Annotated[str, _NAME, "The trainer's name: new for each process, the same in all of its calls."]


@dataclass(frozen=True, kw_only=True)
class Events(_OfATrainer):
    """The query of the trainer's stream."""

    round: Annotated[
        int, _COUNT, "The last round handed to this process, 0 for none: a sidecar that has restarted asks."
    ] = 0
    pid: Annotated[
        int, _INT32, "This process's id, which a second trainer of the pod is told; 0 where it is not known."
    ] = 0
    container: Annotated[
        str,
        Text(20, pattern="[0-9]*"),
        "Which start of the container this process is in: a number of up to 20 digits that no other start has, as the "
        "time at which its first process was started; empty where it is not known.",
    ] = ""
    script: Annotated[
        str, Text(), f"The name of the script that it starts; {SCRIPT_LENGTH} characters of it are kept."
    ] = ""
    stage: Annotated[int, _COUNT, "The stage that it was told with its last round, 0 before the first."] = 0


@dataclass(frozen=True, kw_only=True)
class Join(_OfATrainer):
    """Asks for the next round."""

    after: Annotated[int, _COUNT, "The last round that this process has used or given up, 0 for none."] = 0
    cause: Annotated[
        JoinCause,
        OneOf(JoinCause),
        "Why: the first join of a process, its training has failed, or `changed` was told.",
    ] = JoinCause.STARTED
    detail: _Detail = None
    exit_code: _ExitCode = None
    failure_kind: _FailureKind = None
    live: Annotated[
        bool,
        Truth(),
        "All training processes of this worker run, and live on into the next round: nothing is started for it.",
    ] = False
    timeout: Annotated[float | None, _WAIT, "Seconds to wait; by default the job's `joinTimeoutSeconds`."] = None
    last_call: Annotated[
        int | None,
        Whole(1, LONGEST_SECONDS),
        JsonName("lastCall"),
        "In place of the job's `lastCallSeconds`; the longest that a worker names applies.",
    ] = None
    worker_lost: Annotated[
        int | None,
        Whole(SHORTEST_WORKER_LOST_SECONDS, LONGEST_SECONDS),
        JsonName("workerLost"),
        "In place of the job's `workerLostSeconds`, for this worker.",
    ] = None


@dataclass(frozen=True, kw_only=True)
class PostedStore(_OfATrainer):
    """Rank 0: where it serves the round's store."""

    round: Annotated[int, _ROUND, "The round that was handed out."]
    port: Annotated[int, Whole(1, 65535), "The port, on loopback, of the store that other workers are connected with."]


@dataclass(frozen=True, kw_only=True)
class AskedStore(Message):
    """Asks for the round's store."""

    round: Annotated[int, _ROUND, "The round that was handed out."]
    timeout: Annotated[float, _WAIT, "Seconds to wait."] = STORE_SECONDS


@dataclass(frozen=True, kw_only=True)
class Leave(_OfATrainer):
    """Leaves the group."""

    cause: Annotated[
        LeaveCause,
        OneOf(LeaveCause),
        "Why: by itself, a failure of the training; or it was told to go. `WorkerFailed` and `MembershipChanged` are "
        "those of a join, of a trainer that starts new processes and joins again once they are ready.",
    ] = LeaveCause.TRAINER_LEFT
    detail: _Detail = None
    exit_code: _ExitCode = None
    failure_kind: _FailureKind = None
    timeout: _Recorded = RECORDED_SECONDS


@dataclass(frozen=True, kw_only=True)
class Finish(_OfATrainer):
    """Ends in success."""

    round: Annotated[int, _ROUND, "The round whose work is done."]
    timeout: _Recorded = RECORDED_SECONDS


@dataclass(frozen=True, kw_only=True)
class Close(_OfATrainer):
    """Closes the rendezvous for all."""

    timeout: _Recorded = RECORDED_SECONDS


@dataclass(frozen=True, kw_only=True)
class Live(_OfATrainer):
    """The training processes live through changes of the group."""

    round: Annotated[int, _ROUND, "The round that they train in."]


@dataclass(frozen=True, kw_only=True)
class Imports(Message):
    """What the script imports."""

    imports: Annotated[
        list[str],
        Listed(Text(IMPORT_LENGTH, least=1, pattern=IMPORT_NAME), MAX_IMPORTS, IMPORTS_LENGTH),
        f"Names of modules, in their order; {IMPORTS_LENGTH} characters of all, with a comma between two.",
    ]


@dataclass(frozen=True, kw_only=True)
class Processes(_OfATrainer):
    """The state of the training processes."""

    round: Annotated[int, _ROUND, "The round that they train in."]
    state: Annotated[
        ProcessState,
        OneOf(ProcessState),
        "Of the process that is most at fault: it was stopped by a signal; it waits in the kernel, deaf to signals; it "
        "runs; it sleeps, for others or for anything else; none of these.",
    ]
    local_rank: Annotated[int, _INT32, "Which one."]


@dataclass(frozen=True, kw_only=True)
class Watch(Message):
    """The query of a script's stream."""

    script: _Script
    saves: Annotated[bool, Truth(), "The script wants to save before a planned end; `true` or `false`."] = False


@dataclass(frozen=True, kw_only=True)
class Saved(Message):
    """The round for whose end a script has saved."""

    script: _Script
    round: Annotated[int, _COUNT, "The round for whose planned end it has saved, 0 for none yet: it only wants to."] = 0


@dataclass(frozen=True, kw_only=True)
class ProgressReport(Message):
    """How far the training is."""

    local_rank: Annotated[int, _COUNT, "Of several scripts of a worker the one with the lowest is shown."] = 0
    step: Annotated[int | None, _COUNT, "The last step."] = None
    total: Annotated[int | None, _COUNT, "The steps it means to take."] = None
    waits: Annotated[float | None, Number(0, 1), "The share of its time that it waits for others."] = None
    metrics: Annotated[
        dict[str, float],
        Numbers(Text(METRIC_NAME_LENGTH, least=1), MAX_METRICS),
        f"At most {MAX_METRICS} numbers; what is not finite is left out.",
    ] = field(default_factory=dict)
