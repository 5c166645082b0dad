# SPDX-License-Identifier: Apache-2.0
"""Ends a wait of the agent as soon as something has happened, instead of polling.

torch's agent sleeps for its monitor interval between two looks at its processes and at the rendezvous, and Python's own
wait for a process polls up to twenty times a second. Here the kernel reports a process's end, where it can, and a
thread with news rings. Both only end the wait: torch's own look finds out what has happened.
"""

from __future__ import annotations

import contextlib
import os
import select
import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterable


class Alarm:
    """The means by which one agent waits. `ring` may be called from any thread, `wait` from one."""

    def __init__(self) -> None:
        self._read_end, self._write_end = os.pipe()
        for end in (self._read_end, self._write_end):
            os.set_blocking(end, False)
            weakref.finalize(self, os.close, end).atexit = False  # a thread may ring until then
        self._ended: set[int] = set()  # processes whose end has ended a wait; they would end every later one too

    def ring(self) -> None:
        """End the present wait, or the next one."""
        with contextlib.suppress(BlockingIOError):  # the pipe is full of earlier rings
            os.write(self._write_end, b"!")

    def wait(self, seconds: float, processes: Iterable[int] = ()) -> None:
        """Return after a ring, after the end of one of ``processes`` (pids of children), or after ``seconds``."""
        watched = set(processes)
        self._ended &= watched
        self._ended |= _ends(watched - self._ended, seconds, self._read_end)
        self._silence()

    def await_readable(self, connection: socket.socket, seconds: float) -> bool:
        """Return once there is something to read from ``connection``, after a ring, or after ``seconds``; say whether
        there is."""
        poll = select.poll()  # select() fails for high descriptors
        for descriptor in (connection.fileno(), self._read_end):
            poll.register(descriptor, select.POLLIN)
        ready = {descriptor for descriptor, _ in poll.poll(1000 * seconds)}
        self._silence()
        return connection.fileno() in ready

    def _silence(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._read_end, 4096)


def await_end(process: int, seconds: float | None) -> None:
    """Return at the child's end or after ``seconds``; at once if the kernel does not report ends."""
    _ends([process], seconds)


def _ends(processes: Iterable[int], seconds: float | None, *wake_ups: int) -> set[int]:
    """Wait for the end of a process, or for a byte on one of ``wake_ups``. Return the processes that have ended."""
    watched = {opened: process for process in processes if (opened := _descriptor(process)) is not None}
    try:
        poll = select.poll()  # select() fails for high descriptors
        for descriptor in (*watched, *wake_ups):
            poll.register(descriptor, select.POLLIN)
        if not watched and not wake_ups:
            return set()
        ready = poll.poll(None if seconds is None else seconds * 1000)
        return {watched[descriptor] for descriptor, _ in ready if descriptor in watched}
    finally:
        for descriptor in watched:
            os.close(descriptor)


def _descriptor(process: int) -> int | None:
    """Return a descriptor that becomes readable at the process's end; None if the kernel has none."""
    try:
        return os.pidfd_open(process)
    except (AttributeError, OSError):  # not Linux, an old kernel, a sandbox; or it was reaped already
        return None
