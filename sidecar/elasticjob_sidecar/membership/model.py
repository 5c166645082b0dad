# SPDX-License-Identifier: Apache-2.0
"""The values of the membership state machine: a round that was handed out, a waiting join."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from elasticjob.api import FailureKind, Member, RequestCause
from elasticjob_sidecar.membership.refusal import Refused
from elasticjob_torch.wire import NO_FAILURE, Failure


@dataclass(frozen=True, slots=True, kw_only=True)
class Handed:
    """A round as it was handed to a trainer."""

    trainer: str
    round: int
    rank: int
    members: Sequence[Member]
    store: str
    reason: str = ""
    stage: int = 1

    @property
    def master_address(self) -> str:
        """The address of rank 0's pod."""
        return self.store.partition("/")[0].rpartition(":")[0].strip("[]")

    @property
    def world_size(self) -> int:
        return len(self.members)


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits in seconds that a trainer sets with its join, in place of the job's."""

    last_call: int | None = None
    worker_lost: int | None = None


NO_LIMITS = Limits()


class Torchrun(NamedTuple):
    """What a trainer's process reports about itself. `container`: the start of its container, empty if unknown.
    `script`: the script that it runs. `stage`: its stage, 0 until it is told."""

    pid: int = 0
    container: str = ""
    script: str = ""
    stage: int = 0


UNKNOWN_TORCHRUN = Torchrun()


@dataclass(frozen=True, slots=True)
class Waiter:
    """An unanswered join of a trainer. `ticket`: whatever the caller needs to answer it. `live`: its processes run, and
    live on into the next round."""

    ticket: Any
    after: int
    cause: RequestCause
    since: float
    limits: Limits = NO_LIMITS
    failure: Failure = NO_FAILURE
    live: bool = False


Answer: TypeAlias = Handed | Refused


def fields_of(failure: Failure) -> dict[str, Any]:
    """The fields of a request that tell of a failure."""
    kind = FailureKind(failure.kind) if failure.detail else None
    return {"detail": failure.detail or None, "exit_code": failure.exit_code, "failure_kind": kind}
