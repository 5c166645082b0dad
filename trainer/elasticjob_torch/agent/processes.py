# SPDX-License-Identifier: Apache-2.0
"""Inspects this container's processes, and ends some. Without /proc there are none."""

from __future__ import annotations

import logging
import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import signal
    from collections.abc import Iterator

log = logging.getLogger(__name__)

_POLL_SECONDS = 0.02


@dataclass(frozen=True)
class Stat:
    """The kernel's record of a process: the letter of its state, its parent, its session, and its start time."""

    state: str
    parent: int
    session: int
    started: str


def read_stat(pid: int) -> Stat | None:
    """Return None if there is no such process."""
    fields = _fields(pid, "stat")
    return Stat(fields[0], parent=int(fields[1]), session=int(fields[3]), started=fields[19]) if fields else None


def main_thread_of(pid: int) -> tuple[str, int]:
    """Return the kernel's letter for the state of the main thread, and its processor time in ticks; an empty letter if
    it is gone."""
    fields = _fields(pid, f"task/{pid}/stat")
    return (fields[0], int(fields[11]) + int(fields[12])) if fields else ("", 0)


def all_processes() -> Iterator[tuple[int, Stat]]:
    try:
        names = os.listdir("/proc")
    except OSError:
        return
    for name in names:
        if name.isdigit() and (stat := read_stat(int(name))) is not None:
            yield int(name), stat


def descendants(pid: int) -> list[int]:
    """Return the descendants of a process, the nearest first."""
    children: dict[int, list[int]] = {}
    for child, stat in all_processes():
        children.setdefault(stat.parent, []).append(child)
    found = list(children.get(pid, ()))
    for one in found:  # the list grows meanwhile
        found.extend(children.get(one, ()))
    return found


def lives(pid: int, started: str) -> bool:
    """Say whether the process with this pid and start time still runs, as opposed to a later one with the same pid."""
    stat = read_stat(pid)
    return stat is not None and stat.started == started and stat.state not in "ZX"


def others_that_live() -> Iterator[tuple[int, str]]:
    """Yield pid and start time of each process of this pid namespace, except this one and its ancestors."""
    spared = _self_and_ancestors()
    for pid, stat in all_processes():
        if pid not in spared and stat.state not in "ZX" and shares_pids(pid):
            yield pid, stat.started


def shares_pids(pid: int) -> bool:
    """Say whether pids mean the same to that process; False also if it is another user's."""
    try:
        return os.readlink(f"/proc/{pid}/ns/pid") == os.readlink("/proc/self/ns/pid")
    except OSError:
        return False


def variable_of(pid: int, name: str) -> str:
    """Return a variable of the process's initial environment; empty if it has none."""
    prefix = f"{name}="
    variables = _read(pid, "environ").split("\0")
    return next((one[len(prefix) :] for one in variables if one.startswith(prefix)), "")


def command_of(pid: int) -> str:
    """Return the beginning of its command line, for people."""
    return _read(pid, "cmdline")[:200].replace("\0", " ").strip()


def name_of(pid: int) -> str:
    """Return the name of the program that a process runs."""
    return _read(pid, "comm").strip()


def send(processes: dict[int, str], number: signal.Signals) -> None:
    """Signal those of the processes, given as pid and start time, that still live."""
    for pid, started in processes.items():
        if lives(pid, started):
            try:
                os.kill(pid, number)
            except OSError as error:
                log.debug("signal %s to %d: %s", number.name, pid, error)


def await_ends(processes: dict[int, str], until: float) -> dict[int, str]:
    """Return the processes that still live at the time ``until`` of the monotonic clock; at once if none does."""
    while True:
        left = {pid: started for pid, started in processes.items() if lives(pid, started)}
        if not left or time.monotonic() > until:
            return left
        time.sleep(_POLL_SECONDS)


def _self_and_ancestors() -> set[int]:
    pids: set[int] = set()
    pid = os.getpid()
    while pid > 0 and pid not in pids:
        pids.add(pid)
        stat = read_stat(pid)
        pid = stat.parent if stat is not None else 0
    return pids


def _fields(pid: int, name: str) -> list[str]:
    """Return the fields of a ``stat`` file: state, ppid, pgrp, session, ...; none if the process is gone. The name in
    parentheses before them may hold any character, so they are counted from its end."""
    return _read(pid, name).rpartition(")")[2].split()


def _read(pid: int, name: str) -> str:
    """Return a file that the kernel has of a process; empty if the process is gone, or is another user's."""
    try:
        with open(f"/proc/{pid}/{name}", encoding="utf-8", errors="replace", newline="") as file:
            return file.read()
    except OSError:
        return ""
