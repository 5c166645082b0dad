# SPDX-License-Identifier: Apache-2.0
"""The types and bounds of the API's fields.

A number out of bounds is refused. Text for people is cut and made printable instead: it quotes what others wrote, and a
status refused for a long sentence would stop its job.
"""

from collections.abc import Callable
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, FiniteFloat, WithJsonSchema

from elasticjob.heartbeats import LOST_SECONDS, SHORTEST_LOST_SECONDS
from elasticjob.schema import rule, validations
from elasticjob.text import cut, printable

MAX_REPLICAS = 4096
MAX_INDEX = 2 * MAX_REPLICAS - 1  # while all nodes drain, each worker has a replacement with an index of its own
MAX_CONDITIONS = 16  # bounds the cost that CEL estimates for its rules
MAX_HISTORY = 16
MAX_NODE_FAILURES = 64
MAX_SCRIPTS = 16
MAX_METRICS, METRIC_NAME_LENGTH = 16, 64
DETAIL_LENGTH = 300
IMPORTS_LENGTH = 8192
JOB_NAME_LENGTH = 52  # the pod's name adds index and number, and is its host name: at most 63 characters
WORD_LENGTH, SENTENCE_LENGTH, MESSAGE_LENGTH = 64, 1024, 32768  # the last is the bound of Kubernetes' conditions
MAX_INT32 = 2**31 - 1
MAX_SUSPECTS, SUSPECTS_LENGTH = (
    256,
    16384,
)  # suspects of one worker; the length of their names in characters
MAX_JSON_INTEGER = 2**53 - 1  # the largest integer that every JSON reader keeps exact

METRIC_NAMES = validations(
    rule(
        f"self.all(name, size(name) <= {METRIC_NAME_LENGTH})",
        f"the name of a metric has at most {METRIC_NAME_LENGTH} characters",
    )
)

Seconds = Annotated[int, Field(ge=1, le=86400)]
UpToAWeek = Annotated[int, Field(ge=1, le=604800)]
# a stored job with a smaller value, from before this bound, stays readable
WorkerLost = Annotated[int, Field(ge=1, le=86400, json_schema_extra={"minimum": int(LOST_SECONDS)})]
# reports come at most once a second, and a busy machine may delay one
ProgressDeadline = Annotated[int, Field(ge=10, le=86400)]
KeepAlive = Annotated[int, Field(ge=SHORTEST_LOST_SECONDS, le=86400)]
Port = Annotated[int, Field(ge=1024, le=65535)]
UserId = Annotated[int, Field(ge=1, le=MAX_INT32)]  # the sidecar is never root
Count = Annotated[int, Field(ge=0, le=MAX_JSON_INTEGER)]
Stage = Annotated[int, Field(ge=1, le=MAX_JSON_INTEGER)]
# written as an int32 and read as a Count: stored objects may exceed the int32 bound
SmallCount = Annotated[int, Field(ge=0, le=MAX_JSON_INTEGER, json_schema_extra={"maximum": MAX_INT32})]
# names of Python modules, separated by commas
Imports = Annotated[
    str, Field(max_length=IMPORTS_LENGTH, pattern=r"^([A-Za-z_][A-Za-z0-9_]*([.,][A-Za-z_][A-Za-z0-9_]*)*)?$")
]
Share = Annotated[float, Field(ge=0, le=1)]
Index = Annotated[int, Field(ge=0, le=MAX_INDEX)]
Metrics = Annotated[dict[str, FiniteFloat], Field(max_length=MAX_METRICS, json_schema_extra=METRIC_NAMES)]
Replicas = Annotated[int, Field(ge=1, le=MAX_REPLICAS)]
# a label key: a name of at most 63 characters, optionally after a domain and a slash
_Key = Annotated[
    str,
    Field(
        min_length=1,
        max_length=317,
        pattern=r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$",
    ),
]
TaintKey = Annotated[_Key, Field(description="The key of a taint.")]
TopologyKey = Annotated[_Key, Field(description="The key of a label that nodes have.")]
Spares = Annotated[int, Field(ge=0, le=MAX_REPLICAS - 1)]


def _cut(length: int) -> Callable[[Any], Any]:
    return lambda text: cut(printable(text), length) if isinstance(text, str) else text


# sentences for people, cut to this length
Sentence = Annotated[str, BeforeValidator(_cut(SENTENCE_LENGTH)), Field(max_length=SENTENCE_LENGTH)]
ScriptName = Annotated[
    str,
    BeforeValidator(_cut(WORD_LENGTH)),
    Field(max_length=WORD_LENGTH, description="The name of a script that torchrun starts."),
]
Message = Annotated[str, BeforeValidator(_cut(MESSAGE_LENGTH)), Field(max_length=MESSAGE_LENGTH)]

# assigned by the API server; not validated here
NodeName = Annotated[str, WithJsonSchema({"type": "string", "maxLength": 253})]
PodName = Annotated[str, WithJsonSchema({"type": "string", "maxLength": 253})]
ObjectName = Annotated[str, WithJsonSchema({"type": "string", "maxLength": 253})]

# written only by the operator, so read without validation
Time = Annotated[str, WithJsonSchema({"type": "string", "format": "date-time"})]
# the bounds of Kubernetes' own conditions
ConditionType = Annotated[
    str,
    WithJsonSchema(
        {
            "type": "string",
            "maxLength": 316,
            "pattern": r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?"
            r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$",
        }
    ),
]
ConditionReason = Annotated[
    str,
    WithJsonSchema(
        {"type": "string", "minLength": 1, "maxLength": 1024, "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"}
    ),
]
Word = Annotated[
    str,
    WithJsonSchema({"type": "string", "maxLength": WORD_LENGTH, "pattern": "^([A-Za-z][A-Za-z0-9]*)?$"}),
]
