"""The bounds of what the API's fields hold, and the types of fields that have them."""

from typing import Annotated

from pydantic import Field, FiniteFloat

from elasticjob.heartbeats import SHORTEST_SECONDS

MAX_REPLICAS = 4096
MAX_CONDITIONS = 16  # CEL counts what its rules may cost
MAX_METRICS, METRIC_NAME_LENGTH = 16, 64
DETAIL_LENGTH = 300
MAX_JSON_INTEGER = 2**53 - 1  # the largest number that every reader of JSON takes as it is

Seconds = Annotated[int, Field(ge=1, le=86400)]
KeepAlive = Annotated[int, Field(ge=2 * int(SHORTEST_SECONDS), le=86400)]
Count = Annotated[int, Field(ge=0, le=MAX_JSON_INTEGER)]
Index = Annotated[int, Field(ge=0, le=MAX_REPLICAS - 1)]
Metrics = Annotated[dict[str, FiniteFloat], Field(max_length=MAX_METRICS)]
Replicas = Annotated[int, Field(ge=1, le=MAX_REPLICAS)]
