# SPDX-License-Identifier: Apache-2.0
"""Processes of this machine, as /proc shows them."""

from __future__ import annotations

import os
import time
from pathlib import Path

DYING_SECONDS = 20.0


def children(parent: int) -> dict[int, list[str]]:
    """The living children of a process, by pid: their command lines."""
    found = {}
    for pid in _pids():
        state, its_parent, *_ = _stat(pid) or ("X", "0")
        if its_parent == str(parent) and state not in "ZX":
            found[pid] = _read(pid, "cmdline").split("\0")[:-1]
    return found


def started_for(directory: Path) -> list[int]:
    """All living processes of a job whose CONTRACT is the directory, but for torchrun itself when it was forked."""
    wanted = f"CONTRACT={directory}"
    return [pid for pid in _pids() if wanted in _read(pid, "environ").split("\0") and lives(pid)]


def left_of(directory: Path) -> list[int]:
    """The same when the job is over, and those that are killed have had the time to die."""
    deadline = time.monotonic() + DYING_SECONDS
    while (left := started_for(directory)) and time.monotonic() < deadline:
        time.sleep(0.02)
    return left


def lives(pid: int) -> bool:
    fields = _stat(pid)
    return bool(fields) and fields[0] not in "ZX"


def processor_time(pid: int) -> int:
    """In clock ticks; 0 of a process that is gone."""
    fields = _stat(pid)
    return int(fields[11]) + int(fields[12]) if fields else 0


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _stat(pid: int) -> list[str]:
    return _read(pid, "stat").rpartition(")")[2].split()


def _read(pid: int, name: str) -> str:
    try:
        return Path(f"/proc/{pid}/{name}").read_text(errors="replace")
    except OSError:
        return ""
