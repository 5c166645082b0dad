# SPDX-License-Identifier: Apache-2.0
"""Reaps orphans of the container if the agent is its first process: the kernel makes them its children.

torchrun waits only for the processes that it has started, so each loader worker of a killed training process would stay
a zombie. `waitpid(-1)` would take exit codes away from other waiting code. So only such zombies are reaped that no
process object of this interpreter knows and that are in another session than this process: that is true of all
descendants of a training process, and false for a child forked by hand.
"""

from __future__ import annotations

import contextlib
import gc
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

from elasticjob_torch.agent.processes import all_processes

if TYPE_CHECKING:
    from collections.abc import Iterable

_FIRST = 1
_PAUSE_SECONDS = 1.0


class Reaper:
    """Call `look` often. `adopts`: whether orphans become this process's children."""

    def __init__(self, *, adopts: bool | None = None) -> None:
        self._adopts = os.getpid() == _FIRST if adopts is None else adopts
        self._seen: set[tuple[int, str]] = set()  # zombies of the last look: pid and start time
        self._next = 0.0

    def look(self, known: Iterable[int] = ()) -> None:
        """Reap what has been an unknown zombie for a second. `known`: pids that other code waits for in any case."""
        if not self._adopts or not _has_zombie() or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _PAUSE_SECONDS
        zombies = _zombies()
        due = {pid for pid, _ in zombies & self._seen} - set(known)
        self._seen = zombies
        for pid in due - _waited_for() if due else ():
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)


def _has_zombie() -> bool:
    """Say whether any child has ended and was not reaped; one system call, which reaps nothing."""
    try:
        return os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return False


def _zombies() -> set[tuple[int, str]]:
    me, session = os.getpid(), os.getsid(0)
    return {
        (pid, stat.started)
        for pid, stat in all_processes()
        if stat.state == "Z" and stat.parent == me and stat.session != session
    }


def _waited_for() -> set[int]:
    """Return the pids of all process objects of this interpreter."""
    kinds: tuple[type, ...] = (subprocess.Popen,)
    if (forked := sys.modules.get("multiprocessing.popen_fork")) is not None:
        kinds += (forked.Popen,)
    found: Iterable[Any] = (each for each in gc.get_objects() if issubclass(type(each), kinds))
    return {pid for each in found if isinstance(pid := getattr(each, "pid", None), int)}
