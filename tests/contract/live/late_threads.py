# SPDX-License-Identifier: Apache-2.0
"""Makes a process run its other threads only while the main one waits, so that what they have still to do after a
collective has ended is done as late as can be."""

import contextlib
import os


def on_one_processor() -> None:
    os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])


def let_others_be_late() -> None:
    """All threads that there are, but the main one."""
    for thread in map(int, os.listdir("/proc/self/task")):
        if thread != os.getpid():
            with contextlib.suppress(ProcessLookupError):  # it has ended
                os.sched_setscheduler(thread, os.SCHED_IDLE, os.sched_param(0))
