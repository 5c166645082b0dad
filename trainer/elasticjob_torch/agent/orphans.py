# SPDX-License-Identifier: Apache-2.0
"""Ends the training processes that a killed agent left behind in this container.

A killed agent cannot stop its training processes. If it was the container's first process, they die with it. Otherwise
(a shell that starts torchrun again) they live on, hold the accelerators and write checkpoints beside those of the next
agent. The kernel's parent-death signal is no help: torch starts them without a hook in the child. So each agent leaves
its mark in its environment, which every descendant inherits, and a new agent ends each process whose mark names a dead
agent of the same run.

A mark holds the agent's pid and its start time, so a reused pid does not count as alive. Processes of another pid
namespace are left alone, because their pids mean nothing here.
"""

from __future__ import annotations

import logging
import os
import signal
import time
from typing import TYPE_CHECKING

from elasticjob_torch.agent.processes import (
    await_ends,
    lives,
    others_that_live,
    read_stat,
    send,
    shares_pids,
    variable_of,
)
from elasticjob_torch.environment import MARK

if TYPE_CHECKING:
    from collections.abc import Mapping

log = logging.getLogger(__name__)

_TERM_SECONDS = 5.0
_KILL_SECONDS = 5.0


def leave_mark(run_id: str) -> None:
    """Mark this process, and thus all that it starts from now on, as the agent of a run."""
    stat = read_stat(os.getpid())
    if stat is not None:
        os.environ[MARK] = f"{os.getpid()}:{stat.started}:{run_id}"


def agent_above(environment: Mapping[str, str]) -> int:
    """Return the pid of the living agent that started this process, directly or not; 0 if there is none."""
    pid, _, rest = environment.get(MARK, "").partition(":")
    if not pid.isdigit() or int(pid) == os.getpid():
        return 0
    return int(pid) if lives(int(pid), rest.partition(":")[0]) and shares_pids(int(pid)) else 0


def end_orphans(run_id: str) -> int:
    """End the training processes of dead agents of this run; return how many there were.

    Takes at most 10 seconds (SIGTERM, 5 s, SIGKILL, 5 s) and raises nothing. Without /proc it does nothing.
    """
    orphans = {pid: started for pid, started in others_that_live() if _is_orphan(pid, run_id)}
    if not orphans:
        return 0
    log.warning("ending %d processes that a killed torchrun left behind: %s", len(orphans), sorted(orphans))
    send(orphans, signal.SIGTERM)
    left = await_ends(orphans, time.monotonic() + _TERM_SECONDS)
    send(left, signal.SIGKILL)
    if left := await_ends(left, time.monotonic() + _KILL_SECONDS):
        log.warning("processes of a killed torchrun do not end: %s", sorted(left))
    return len(orphans)


def _is_orphan(pid: int, run_id: str) -> bool:
    agent, _, rest = variable_of(pid, MARK).partition(":")
    started, _, run = rest.partition(":")
    return run == run_id and agent.isdigit() and not lives(int(agent), started)
