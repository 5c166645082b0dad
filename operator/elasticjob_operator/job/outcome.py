# SPDX-License-Identifier: Apache-2.0
"""The outcome of one step of the work on a job, as values. What may follow depends on the outcome. Pure.

Nothing that follows from a status may be done before the status is written: functions that do it take an `Agreed`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Written:
    """The API server has accepted the new status."""


@dataclass(frozen=True, slots=True)
class Unchanged:
    """The status already says it."""


@dataclass(frozen=True, slots=True)
class Deferred:
    """The status differs only in fields from which nothing follows. It is to be written in `seconds`."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Retry:
    """It was not done, and what follows from it must not be done. It is to be retried in `seconds`."""

    seconds: float


@dataclass(frozen=True, slots=True)
class LookAgain:
    """It is done for now. There is more to do in `seconds`."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Done:
    """It is done, and nothing is left to do."""


Agreed: TypeAlias = Written | Unchanged | Deferred
Outcome: TypeAlias = Agreed | Retry | LookAgain | Done


def look_again(outcomes: Iterable[Outcome]) -> float | None:
    """Seconds until the next look; None if no time is set."""
    return min((one.seconds for one in outcomes if isinstance(one, Deferred | Retry | LookAgain)), default=None)
