# SPDX-License-Identifier: Apache-2.0
"""What came of a step of the work on a job, as values: what may follow depends on which it is. Pure.

Nothing that follows from a status may be done before it is written: what does that takes an `Agreed`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Written:
    """The API server has taken the new status."""


@dataclass(frozen=True, slots=True)
class Unchanged:
    """The status says it already."""


@dataclass(frozen=True, slots=True)
class Deferred:
    """The status differs in what nothing follows from; it is to be written in `seconds`."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Retry:
    """It was not done, nor may be what follows from it; it is to be tried again in `seconds`."""

    seconds: float


@dataclass(frozen=True, slots=True)
class LookAgain:
    """It is done for now; there is more to do in `seconds`."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Done:
    """It is done, and nothing is left."""


Agreed: TypeAlias = Written | Unchanged | Deferred
Outcome: TypeAlias = Agreed | Retry | LookAgain | Done


def look_again(outcomes: Iterable[Outcome]) -> float | None:
    """In how many seconds; None for not by time alone."""
    return min((one.seconds for one in outcomes if isinstance(one, Deferred | Retry | LookAgain)), default=None)
