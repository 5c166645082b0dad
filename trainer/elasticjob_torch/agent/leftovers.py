# SPDX-License-Identifier: Apache-2.0
"""Ends what earlier starts of this agent's processes left behind, before the next ones start.

torch ends the process group of each training process. A child in a session of its own lives on, such as a server that a
script started: it keeps its port, and its memory on a GPU. So each start has an id in its environment, which every
descendant inherits. The id does not depend on the round: a prestarted process starts in one round and trains in a later
one. Processes without an id are the agent's own helpers, and are left alone.
"""

from __future__ import annotations

import logging
import os
import signal
import time
import uuid
from typing import TYPE_CHECKING

from elasticjob_torch.agent.processes import await_ends, command_of, others_that_live, send, variable_of
from elasticjob_torch.environment import MARK, START

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

log = logging.getLogger(__name__)

_DYING_SECONDS = 0.1  # the rest of a process group that torch has ended may be about to end
_TERM_SECONDS = 5.0
_KILL_SECONDS = 5.0


class Leftovers:
    """The leftovers of the agent in this process.

    Args:
        living: returns the ids of starts whose processes are to live on, which are the prestarted ones.
        within: how many seconds the others have to end after SIGTERM.
    """

    _has_started = False  # any process, by an agent in this one: if not, there is nothing to look for

    def __init__(self, living: Callable[[], Collection[str]] = tuple, within: float | None = None) -> None:
        self._living = living
        self._within = within or _TERM_SECONDS
        self._ending: dict[int, str] = {}  # pid and start time
        self._until = 0.0

    @staticmethod
    def new_start() -> str:
        """Return an id for processes that are started now."""
        Leftovers._has_started = True
        return uuid.uuid4().hex[:12]

    def begin(self) -> None:
        """Ask all leftovers to end, at a time when none of this agent's processes trains. Does not wait for their
        end."""
        self._ending = await_ends(self._find(), time.monotonic() + _DYING_SECONDS)
        self._until = time.monotonic() + self._within
        if self._ending:
            listed = ", ".join(f"{pid} ({command_of(pid)})" for pid in sorted(self._ending))
            log.warning("ending processes that an earlier round left behind: %s", listed)
        send(self._ending, signal.SIGTERM)

    def end(self) -> None:
        """Wait until they have ended, and kill those that take too long."""
        if not self._ending:
            return
        await_ends(self._ending, self._until)
        left = self._find()  # those, and what they have started meanwhile
        send(left, signal.SIGKILL)
        if left := await_ends(left, time.monotonic() + _KILL_SECONDS):
            log.warning("processes that an earlier round left behind do not end: %s", sorted(left))
        self._ending = {}

    def _find(self) -> dict[int, str]:
        mark, found = os.environ.get(MARK, "") if self._has_started else "", {}
        for pid, started in others_that_live() if mark else ():
            if variable_of(pid, MARK) == mark and (start := variable_of(pid, START)):
                found[pid] = started, start
        living = self._living()  # after the look, so that a process prestarted meanwhile is included
        return {pid: started for pid, (started, start) in found.items() if start not in living}
