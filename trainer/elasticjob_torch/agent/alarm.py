# SPDX-License-Identifier: Apache-2.0
"""Ends a wait of the agent's when there is something to see, in place of a look now and then.

torch's agent sleeps for its monitor interval between two looks at its processes and at the rendezvous, and Python's own
wait for a process looks up to twenty times a second. Here the kernel tells of a process's end, where it can, and
whoever has news rings. Both are only heard: what has happened is still found out by torch's own look.
"""

from __future__ import annotations

import contextlib
import os
import select
import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class Alarm:
    """What one agent waits with. `ring` may be called from any thread, `wait` from one."""

    def __init__(self) -> None:
        self._bell, self._rope = os.pipe()
        for end in (self._bell, self._rope):
            os.set_blocking(end, False)
            weakref.finalize(self, os.close, end).atexit = False  # a thread may ring until then
        self._ended: set[int] = set()  # processes whose end has ended a wait: it would end each later one as well

    def ring(self) -> None:
        """End the wait, or the next one."""
        with contextlib.suppress(BlockingIOError):  # it was rung often
            os.write(self._rope, b"!")

    def wait(self, seconds: float, processes: Iterable[int] = ()) -> None:
        """Return when it was rung, when one of the ``processes`` (pids of children) ends, or after the time."""
        watched = set(processes)
        self._ended &= watched
        self._ended |= _ends(watched - self._ended, seconds, self._bell)
        with contextlib.suppress(BlockingIOError):
            os.read(self._bell, 4096)


def await_end(process: int, seconds: float | None) -> None:
    """Return when the child ends or after the time; at once where the kernel does not tell of it."""
    _ends([process], seconds)


def _ends(processes: Iterable[int], seconds: float | None, *bells: int) -> set[int]:
    """Wait for one of the processes to end, or for a bell; return which have ended."""
    watched = {opened: process for process in processes if (opened := _descriptor(process)) is not None}
    try:
        poll = select.poll()  # select() refuses high descriptors
        for descriptor in (*watched, *bells):
            poll.register(descriptor, select.POLLIN)
        if not watched and not bells:
            return set()
        ready = poll.poll(None if seconds is None else seconds * 1000)
        return {watched[descriptor] for descriptor, _ in ready if descriptor in watched}
    finally:
        for descriptor in watched:
            os.close(descriptor)


def _descriptor(process: int) -> int | None:
    """One that can be read once the process has ended; None where the kernel gives none."""
    try:
        return os.pidfd_open(process)
    except (AttributeError, OSError):  # not Linux, an old kernel, a sandbox; or it was waited for already
        return None
