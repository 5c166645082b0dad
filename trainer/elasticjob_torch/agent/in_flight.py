# SPDX-License-Identifier: Apache-2.0
"""Has training processes that are about to be stopped write the exception in flight.

A failed process may be in a ``finally`` for long, while its peers see the connection break and fail first. SIGTERM
would end it without a message. A handler for SIGTERM would not help: Python runs it only between two of its own
instructions, so a process that waits in C would no longer end. Therefore the agent asks before, by a signal of its own:
a process that does not answer because it waits in C has no exception in flight.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from elasticjob_torch.agent.processes import descendants, main_thread_of
from elasticjob_torch.agent.record import ASKED
from elasticjob_torch.agent.stacks import has_signal

if TYPE_CHECKING:
    from collections.abc import Iterable

_LOOK_SECONDS = 0.002
_ASLEEP_LOOKS = 5  # in a row: it woke up for the signal, and waits in C again
_TICKS = 5  # of processor time, 10 ms each: it computes in C
_MOST_SECONDS = 2.0  # on a machine so busy that it did not run


def ask_for_exceptions(started: Iterable[int]) -> None:
    """Return once each of the processes (or the one below it, if a wrapper was started) has answered or cannot."""
    asked = [_Asked(process) for process in map(_hearing, started) if process and _send(process)]
    deadline = time.monotonic() + _MOST_SECONDS
    while asked and time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS)
        asked = [one for one in asked if one.may_answer()]


class _Asked:
    """A process that has been asked."""

    def __init__(self, process: int) -> None:
        self._process = process
        self._used = main_thread_of(process)[1]
        self._asleep = 0

    def may_answer(self) -> bool:
        """Look at it once more. False if it cannot answer, and also if it has answered."""
        if not has_signal(self._process, "SigCgt", ASKED):  # the answer's last step, or its end
            return False
        state, used = main_thread_of(self._process)
        waits = state == "S" and not has_signal(self._process, "ShdPnd", ASKED)
        self._asleep = self._asleep + 1 if waits else 0
        return self._asleep < _ASLEEP_LOOKS and used - self._used < _TICKS


def _hearing(started: int) -> int:
    """Return the process that catches the signal, 0 if there is none."""
    return next((one for one in (started, *descendants(started)) if has_signal(one, "SigCgt", ASKED)), 0)


def _send(process: int) -> bool:
    try:
        os.kill(process, ASKED)
    except OSError:
        return False
    return True
