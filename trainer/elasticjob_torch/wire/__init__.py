# SPDX-License-Identifier: Apache-2.0
"""The wire between a pod's trainer and its sidecar: the one source of its calls, fields, words and limits.

The plug-in and its scripts use it, the sidecar serves it (its image has this package too), and `docs/trainer-api.md` is
printed from it. So it needs only the standard library of the oldest Python that a trainer may have. It sends nothing
and decides nothing.
"""

from __future__ import annotations

from elasticjob_torch.wire.answers import Error, Ours, Round, ScriptView, StoreAddress, View
from elasticjob_torch.wire.calls import (
    ASK_STORE,
    CALLS,
    CLOSE,
    EVENTS,
    FINISH,
    IMPORTS,
    JOIN,
    LEAVE,
    LIVE,
    POST_STORE,
    PROCESSES,
    PROGRESS,
    SAVED,
    VIEW,
    WATCH,
    Call,
)
from elasticjob_torch.wire.fields import InvalidMessage, Message
from elasticjob_torch.wire.limits import (
    ANSWER_SECONDS,
    BODY_BYTES,
    BODY_SECONDS,
    COMMENT_SECONDS,
    DETAIL_LENGTH,
    HEAD_BYTES,
    HEADERS,
    IDLE_SECONDS,
    IMPORT_LENGTH,
    IMPORT_NAME,
    IMPORTS_LENGTH,
    LEFT_EXIT_CODE,
    LONGEST_SECONDS,
    MARGIN_SECONDS,
    MAX_CONNECTIONS,
    MAX_EXIT_CODE,
    MAX_IMPORTS,
    MAX_JSON_INTEGER,
    MAX_METRICS,
    MAX_SCRIPTS,
    METRIC_NAME_LENGTH,
    NAME_LENGTH,
    PORT,
    PREDECESSOR_SECONDS,
    RECORDED_SECONDS,
    SCRIPT_LENGTH,
    SHORTEST_WORKER_LOST_SECONDS,
    SILENCE_SECONDS,
)
from elasticjob_torch.wire.requests import (
    AskedStore,
    Close,
    Events,
    Finish,
    Imports,
    Join,
    Leave,
    Live,
    PostedStore,
    Processes,
    ProgressReport,
    Saved,
    Watch,
)
from elasticjob_torch.wire.words import (
    NO_FAILURE,
    REFUSALS,
    Code,
    Failure,
    FailureKind,
    JoinCause,
    LeaveCause,
    Outcome,
    Phase,
    ProcessState,
)
