# SPDX-License-Identifier: Apache-2.0
"""The program executed anew in its process, when a term has ended.

What a leader held is as large as all jobs together, and Python returns little of it to the kernel. The process stays,
as the kubelet would delay the restarts of one that ends. Signals between the two executions are kept: process 1 of a
container loses a signal that it has no handler for.
"""

import asyncio
import os
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import NoReturn

STOPPING = signal.SIGTERM, signal.SIGINT


def hold_signals() -> None:
    """Keeps the signals that stop the process from this thread until `hear_signals`, across an execution, too."""
    signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)


def hear_signals(loop: asyncio.AbstractEventLoop) -> None:
    """To be called once they have handlers. The threads of the event loop, which is not to have any yet, go on holding
    them: a signal that the kernel gives to one of these would be lost once the loop is closed."""
    loop.set_default_executor(ThreadPoolExecutor(initializer=hold_signals))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)


def execute_anew() -> NoReturn:
    """With the arguments of now."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os.execv(sys.executable, sys.orig_argv)  # noqa: S606 - there is no shell to be misled
