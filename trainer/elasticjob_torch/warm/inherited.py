# SPDX-License-Identifier: Apache-2.0
"""What a process inherits from the thread that starts it, besides arguments, environment and descriptors."""

from __future__ import annotations

import os
import resource
import stat
from typing import Any

_STATUS = {
    "Umask": "umask",
    "Uid": "user",
    "Gid": "group",
    "Groups": "groups",
    "SigBlk": "blocked signals",
    "SigIgn": "ignored signals",
    "CapPrm": "capabilities",
    "CapBnd": "capabilities",
    "NoNewPrivs": "privileges",
    "Seccomp": "system calls",
    "Cpus_allowed": "CPUs",
    "Mems_allowed": "memory nodes",
}


def inherited() -> dict[str, Any]:
    """Return what a process would inherit if the calling thread started it now.

    Raises:
        OSError: the working directory is gone, or there is no /proc.
    """
    found: dict[str, Any] = {
        "working directory": os.getcwd(),
        "niceness": os.getpriority(os.PRIO_PROCESS, 0),
        "scheduling": os.sched_getscheduler(0),
    }
    for name in sorted(each for each in dir(resource) if each.startswith("RLIMIT_")):
        found[name] = resource.getrlimit(getattr(resource, name))
    for path, names in (
        ("/proc/thread-self/status", _STATUS),
        ("/proc/self/cgroup", {}),
        ("/proc/self/oom_score_adj", {}),
    ):
        with open(path, encoding="ascii", errors="replace") as file:
            text = file.read()
        if not names:
            found[path] = text
        for line in text.splitlines() if names else ():
            name, _, value = line.partition(":")
            if name in names:
                found[names[name]] = (*found.get(names[name], ()), value.split())
    return found


def kind(descriptor: int) -> tuple[int, bool, int]:
    """Return the properties that Python's output on a descriptor depends on: the kind of file, whether it is a
    terminal, and its block size."""
    status = os.fstat(descriptor)
    return stat.S_IFMT(status.st_mode), os.isatty(descriptor), status.st_blksize
