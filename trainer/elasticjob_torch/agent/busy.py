# SPDX-License-Identifier: Apache-2.0
"""How long an agent waits for training processes that are busy when their round is over. Pure: the time is an argument.

A process that says that it saves has the job's time for saves. Any other, which may evaluate or compile, has
`BUSY_SECONDS`. No process has less than that, and time in which a process saves counts once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

BUSY_SECONDS = 60.0


class Patience:
    """How long processes have been busy since their round was over.

    Args:
        save_seconds: the job's ``spec.rendezvous.saveSeconds``.
    """

    def __init__(self, save_seconds: float) -> None:
        self._longest = max(BUSY_SECONDS, save_seconds)
        self._since = self._looked = 0.0
        self._busy = 0.0  # seconds in which one did not save
        self._was_busy = False

    def begin(self, now: float) -> None:
        """The round is over from now on."""
        self._since = self._looked = now
        self._busy, self._was_busy = 0.0, True

    def look(self, now: float, saving: Iterable[bool]) -> str:
        """Note what busy processes do: whether each of them saves. Return which limit is exceeded, in words; empty if
        none is."""
        if self._was_busy:
            self._busy += now - self._looked
        self._looked, self._was_busy = now, not all(saving)
        if self._busy > BUSY_SECONDS:
            return f"they have not ended their step within {BUSY_SECONDS:g} s, and do not save"
        if now - self._since > self._longest:
            return (
                f"they have not ended their save within {self._longest:g} s; if it takes longer, set "
                "spec.rendezvous.saveSeconds, and rejoinSeconds above it"
            )
        return ""
