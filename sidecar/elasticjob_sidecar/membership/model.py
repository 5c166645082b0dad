# SPDX-License-Identifier: Apache-2.0
"""What the membership state machine speaks of: a round as it was handed out, a join that waits."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from elasticjob.api import Cause, Member
from elasticjob_sidecar.membership.refusal import Refused


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
        """Of rank 0's pod."""
        return self.store.partition("/")[0].rpartition(":")[0].strip("[]")

    @property
    def world_size(self) -> int:
        return len(self.members)


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds that a trainer names with its join, in place of the job's."""

    last_call: int | None = None
    worker_lost: int | None = None


NO_LIMITS = Limits()


class Torchrun(NamedTuple):
    """What a trainer's process says of itself. `container`: which start of its container it is in, empty where that is
    not known; `script`: what it runs; `stage`: of which stage it is, 0 until it has been told."""

    pid: int = 0
    container: str = ""
    script: str = ""
    stage: int = 0


UNKNOWN_TORCHRUN = Torchrun()


@dataclass(frozen=True, slots=True)
class Waiter:
    """A trainer's join that is not answered yet; the ticket is whatever the caller needs to answer it."""

    ticket: Any
    after: int
    cause: Cause
    since: float
    limits: Limits = NO_LIMITS
    detail: str = ""
    exit_code: int | None = None


Answer: TypeAlias = Handed | Refused
