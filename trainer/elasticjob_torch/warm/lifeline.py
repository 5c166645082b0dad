# SPDX-License-Identifier: Apache-2.0
"""Ends a prestarted process whose agent is gone, even in the middle of an import, where it does not read its socket.

It is a pipe; the agent has the other end. When that is closed, by the agent or by its death, the kernel sends SIGIO to
the process that asked for it, and the default action ends it. (PR_SET_PDEATHSIG would need ctypes, and is sent when the
thread ends that started the process.) A script finds no trace of it.
"""

from __future__ import annotations

import contextlib
import os
import sys


class Lifeline:
    """The prestarted process's end of the pipe. It has effect until `cut`."""

    def __init__(self, descriptor: int) -> None:
        is_known = "fcntl" in sys.modules
        import fcntl

        if not is_known:
            del sys.modules["fcntl"]  # a later import of it must be an ordinary one
        self._descriptor = descriptor
        os.set_inheritable(descriptor, False)
        with contextlib.suppress(OSError):  # a sandbox may not support it
            fcntl.fcntl(descriptor, fcntl.F_SETOWN, os.getpid())
            fcntl.fcntl(descriptor, fcntl.F_SETFL, fcntl.fcntl(descriptor, fcntl.F_GETFL) | os.O_ASYNC)

    def cut(self) -> None:
        """Live on without the agent; called before any message that lets the agent close its end."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)
