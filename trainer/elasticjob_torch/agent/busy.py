# SPDX-License-Identifier: Apache-2.0
"""How long an agent waits for training processes that are busy when their round is over. Pure: the time is an argument.

A process that says that it saves has the job's time for saves. Any other, which may evaluate or compile, has
`BUSY_SECONDS`, or as much as the job's time to rejoin leaves. No process has less than that, and time in which a
process saves counts once.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

BUSY_SECONDS = 60.0
# Of the time to rejoin, for what else it contains: the round's end is told, new processes join. With the job's default
# times the processes have `BUSY_SECONDS`.
_MARGIN_SECONDS = 5.0
_LEAST_SECONDS = 1.0


class Patience:
    """How long processes have been busy since their round was over.

    Args:
        save_seconds: the job's ``spec.rendezvous.saveSeconds``.
        rejoin_seconds: the job's ``spec.rendezvous.rejoinSeconds``, after which the pod is replaced.
        stop_seconds: how long it takes at most to end a process.
    """

    def __init__(self, save_seconds: float = 0.0, rejoin_seconds: float = math.inf, stop_seconds: float = 0.0) -> None:
        self._limit = min(BUSY_SECONDS, max(_LEAST_SECONDS, rejoin_seconds - stop_seconds - _MARGIN_SECONDS))
        self._longest = max(self._limit, save_seconds)
        self._since = self._looked = 0.0
        self._busy = 0.0  # seconds in which one did not save
        self._was_busy = False

    def begin(self, now: float) -> None:
        """The round is over from now on."""
        self._since = self._looked = now
        self._busy, self._was_busy = 0.0, True

    def is_half_used(self) -> bool:
        """Say whether half of the limit of processes that do not save has passed, as of the last look."""
        return self._busy > self._limit / 2

    def look(self, now: float, saving: Iterable[bool]) -> str:
        """Note what busy processes do: whether each of them saves. Return which limit is exceeded, in words; empty if
        none is."""
        if self._was_busy:
            self._busy += now - self._looked
        self._looked, self._was_busy = now, not all(saving)
        if self._busy > self._limit:
            more = "; spec.rendezvous.rejoinSeconds leaves them no more" if self._limit < BUSY_SECONDS else ""
            return f"they have not ended their step within {self._limit:g} s, and do not save{more}"
        if now - self._since > self._longest:
            return (
                f"they have not ended their save within {self._longest:g} s; if it takes longer, set "
                "spec.rendezvous.saveSeconds, and rejoinSeconds above its sum with stopSeconds"
            )
        return ""
