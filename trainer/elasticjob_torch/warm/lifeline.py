"""Ends a prestarted process whose agent is gone even in the middle of an import, where it does not look at its socket.

It is a pipe of which the agent has the other end. When that is closed, by the agent or by its death, the kernel sends
SIGIO to whoever has asked for it, which nobody survives who does not handle it. (PR_SET_PDEATHSIG would ask for ctypes,
and sends its signal when the thread ends that has started the process.) A script finds nothing of it.
"""

from __future__ import annotations

import contextlib
import os
import sys


class Lifeline:
    """The end of it that is in the prestarted process; it counts until `cut`."""

    def __init__(self, descriptor: int) -> None:
        is_known = "fcntl" in sys.modules
        import fcntl

        if not is_known:
            del sys.modules["fcntl"]  # an early import of it is to be as any
        self._descriptor = descriptor
        os.set_inheritable(descriptor, False)
        with contextlib.suppress(OSError):  # a sandbox may not have it
            fcntl.fcntl(descriptor, fcntl.F_SETOWN, os.getpid())
            fcntl.fcntl(descriptor, fcntl.F_SETFL, fcntl.fcntl(descriptor, fcntl.F_GETFL) | os.O_ASYNC)

    def cut(self) -> None:
        """Live on without the agent; before it is told anything that lets it close its end."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)
