# SPDX-License-Identifier: Apache-2.0
"""Tells a slow process from a hanging one by the work of it and its children.

An import from a slow disk takes long, and on a busy machine longer, but it always makes some progress.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from elasticjob_torch.warm.files import read_text

if TYPE_CHECKING:
    from collections.abc import Callable

_STAT = (9, 11, 12)  # major page faults, time in user mode, time in the kernel; counted from the state
_SESSION = 3
_BETWEEN_SECONDS = 5.0  # two looks; a longer gap shows that this process itself did not run


def work_of(session: int) -> tuple[int, int]:
    """Return a measure of what the processes of a session have computed and read so far."""
    computed = read = 0
    for name in os.listdir("/proc"):
        fields = read_text(f"/proc/{name}/stat").rpartition(")")[2].split() if name.isdigit() else []
        if len(fields) > max(_STAT) and fields[_SESSION] == str(session):
            computed += sum(int(fields[number]) for number in _STAT)
            read += sum(
                int(line.split()[1]) for line in read_text(f"/proc/{name}/io").splitlines() if line.startswith("r")
            )
    return computed, read


class SessionProgress:
    """The progress of a process that leads a session."""

    def __init__(self, work: Callable[[], tuple[int, int]], clock: Callable[[], float] = time.monotonic) -> None:
        self._work, self._clock = work, clock
        self._done: object = None
        self._still = 0.0
        self._looked = self._began = clock()

    def still_for(self) -> float:
        """Return the seconds for which it has done nothing; call it repeatedly."""
        now, done = self._clock(), self._work()
        passed, self._looked = min(now - self._looked, _BETWEEN_SECONDS), now
        self._still = self._still + passed if done == self._done else 0.0
        self._done = done
        return self._still

    def took(self) -> float:
        """Return the seconds since this object was made."""
        return self._clock() - self._began
