"""What the trainer API takes: each query and body as a model, which refuses what must not get any further.

What the API server would refuse must not get into the ElasticWorker: nothing could be written any more.
"""

import math
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, field_validator

from elasticjob.api import KeepAlive, Seconds
from elasticjob_torch import wire

Count = Annotated[int, Field(ge=0, le=wire.MAX_JSON_INTEGER)]
Round = Annotated[int, Field(ge=1, le=wire.MAX_JSON_INTEGER)]
Name = Annotated[str, Field(min_length=1, max_length=wire.NAME_LENGTH)]
MetricName = Annotated[str, Field(min_length=1, max_length=wire.METRIC_NAME_LENGTH)]
ImportName = Annotated[str, Field(max_length=wire.IMPORT_LENGTH, pattern=wire.IMPORT_NAME)]
ExitCode = Annotated[int | None, Field(ge=1, le=wire.MAX_EXIT_CODE, alias="exitCode")]
Wait = Annotated[float, Field(gt=0, le=wire.LONGEST_SECONDS)]


class OfATrainer(BaseModel):
    """Every request of a trainer names it: the id that the process made up at its start."""

    model_config = ConfigDict(extra="ignore")

    trainer: Name


class Events(OfATrainer):
    round: Count = 0
    pid: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0
    container: Annotated[str, Field(max_length=20, pattern="^[0-9]*$")] = ""
    script: str = ""
    stage: Count = 0


class Join(OfATrainer):
    after: Count = 0
    cause: wire.JoinCause = wire.JoinCause.STARTED
    detail: str = ""
    exit_code: ExitCode = None
    timeout: Wait | None = None
    last_call: Annotated[Seconds | None, Field(alias="lastCall")] = None
    worker_lost: Annotated[KeepAlive | None, Field(alias="workerLost")] = None


class PostedStore(OfATrainer):
    round: Round
    port: Annotated[int, Field(ge=1, le=65535)]


class AskedStore(BaseModel):
    round: Round
    timeout: Wait = wire.STORE_SECONDS


class Recorded(OfATrainer):
    """Answered when the API server has it, or after `timeout`; it is sent all the same."""

    timeout: Wait = wire.RECORDED_SECONDS


class Leave(Recorded):
    cause: wire.LeaveCause = wire.LeaveCause.TRAINER_LEFT
    exit_code: ExitCode = None


class Finish(Recorded):
    round: Round


class Close(Recorded):
    pass


class Imports(BaseModel):
    imports: Annotated[list[ImportName], Field(max_length=wire.MAX_IMPORTS)]

    @field_validator("imports")
    @classmethod
    def _bounded(cls, imports: list[str]) -> list[str]:
        if len(",".join(imports)) > wire.IMPORTS_LENGTH:
            raise ValueError(f"more than {wire.IMPORTS_LENGTH} characters")
        return imports


class Processes(OfATrainer):
    round: Round
    state: wire.ProcessState
    local_rank: Annotated[int, Field(ge=0, le=2**31 - 1)]


class Watch(BaseModel):
    """A training script names itself. `saves`: it wants to do so before a planned end of the round."""

    script: Name
    saves: bool = False


class Saved(BaseModel):
    """The script wants to save, and has done so for the end of `round`, 0 for none."""

    script: Name
    round: Count = 0


class Report(BaseModel):
    """What a training script reports; `local_rank` says which one, should several of a pod report."""

    local_rank: Count = 0
    step: Count | None = None
    total: Count | None = None
    waits: Annotated[float | None, Field(ge=0, le=1)] = None
    metrics: Annotated[dict[MetricName, float], Field(max_length=wire.MAX_METRICS)] = {}

    @field_validator("metrics")
    @classmethod
    def _finite(cls, metrics: dict[str, float]) -> dict[str, float]:
        """A loss that became NaN is no reason to stop a training, and JSON has no word for it."""
        return {name: value for name, value in metrics.items() if math.isfinite(value)}
