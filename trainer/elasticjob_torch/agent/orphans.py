"""Ends the training processes that a killed agent left behind in this container.

An agent that is killed cannot stop its training processes. When it was the container's first one they die with it;
otherwise (a shell that starts torchrun again) they live on, hold the accelerators and write checkpoints beside those of
the next agent. The kernel's parent-death signal is no help: torch starts them with no hook in the child. So each agent
leaves its mark in its environment, which every descendant inherits, and a new agent ends each process whose mark names
an agent of the same run that no longer lives.

A mark holds the agent's pid and its start time, so a reused pid does not count as alive; processes of another
pid namespace are left alone, because their pids mean nothing here.
"""

from __future__ import annotations

import logging
import os
import signal
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from elasticjob_torch.environment import MARK

if TYPE_CHECKING:
    from collections.abc import Mapping

log = logging.getLogger(__name__)

_TERM_SECONDS = 5.0
_KILL_SECONDS = 5.0


@dataclass(frozen=True)
class _Stat:
    state: str
    parent: int
    started: str


def leave_mark(run_id: str) -> None:
    """Mark this process, and so all that it starts from now on, as the agent of a run."""
    stat = _read_stat(os.getpid())
    if stat is not None:
        os.environ[MARK] = f"{os.getpid()}:{stat.started}:{run_id}"


def agent_above(environment: Mapping[str, str]) -> int:
    """Return the pid of the living agent that has started this process, directly or not; 0 if none has."""
    pid, _, rest = environment.get(MARK, "").partition(":")
    if not pid.isdigit() or int(pid) == os.getpid():
        return 0
    return int(pid) if _lives(int(pid), rest.partition(":")[0]) and _shares_pids(int(pid)) else 0


def end_orphans(run_id: str) -> int:
    """End the training processes of dead agents of this run; return how many there were.

    Takes at most 10 seconds (SIGTERM, 5 s, SIGKILL, 5 s) and raises nothing. Without /proc it does nothing.
    """
    orphans = _find(run_id)
    if not orphans:
        return 0
    log.warning("ending %d processes that a killed torchrun left behind: %s", len(orphans), sorted(orphans))
    left = _signal_and_wait(orphans, signal.SIGTERM, _TERM_SECONDS)
    left = _signal_and_wait(left, signal.SIGKILL, _KILL_SECONDS)
    if left:
        log.warning("processes of a killed torchrun do not end: %s", sorted(left))
    return len(orphans)


def _find(run_id: str) -> dict[int, str]:
    """Return pid and start time of each process marked by a dead agent of the run."""
    spared = _self_and_ancestors()
    found = {}
    try:
        names = os.listdir("/proc")
    except OSError:
        return {}
    for name in names:
        if not name.isdigit() or int(name) in spared:
            continue
        pid = int(name)
        stat = _read_stat(pid)
        if stat is None or stat.state in "ZX" or not _shares_pids(pid):
            continue
        agent, _, rest = _read_mark(pid).partition(":")
        started, _, run = rest.partition(":")
        if run == run_id and agent.isdigit() and not _lives(int(agent), started):
            found[pid] = stat.started
    return found


def _signal_and_wait(processes: dict[int, str], number: signal.Signals, seconds: float) -> dict[int, str]:
    """Signal the processes and return those that are still there after the time."""
    for pid, started in processes.items():
        if _lives(pid, started):
            try:
                os.kill(pid, number)
            except OSError as error:
                log.debug("signal %s to %d: %s", number.name, pid, error)
    give_up = time.monotonic() + seconds
    while True:
        left = {pid: started for pid, started in processes.items() if _lives(pid, started)}
        if not left or time.monotonic() > give_up:
            return left
        time.sleep(0.02)


def _self_and_ancestors() -> set[int]:
    pids: set[int] = set()
    pid = os.getpid()
    while pid > 0 and pid not in pids:
        pids.add(pid)
        stat = _read_stat(pid)
        pid = stat.parent if stat is not None else 0
    return pids


def _lives(pid: int, started: str) -> bool:
    stat = _read_stat(pid)
    return stat is not None and stat.started == started and stat.state not in "ZX"


def _shares_pids(pid: int) -> bool:
    try:
        return os.readlink(f"/proc/{pid}/ns/pid") == os.readlink("/proc/self/ns/pid")
    except OSError:
        return False  # gone, or another user's


def _read_mark(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            variables = file.read().split(b"\0")
    except OSError:
        return ""
    prefix = f"{MARK}=".encode()
    return next((one[len(prefix) :].decode("utf-8", "replace") for one in variables if one.startswith(prefix)), "")


def _read_stat(pid: int) -> _Stat | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return None
    # The name in parentheses may hold anything, so count from its end: state, ppid, ..., starttime (22nd).
    fields = text.rpartition(")")[2].split()
    return _Stat(state=fields[0], parent=int(fields[1]), started=fields[19])
