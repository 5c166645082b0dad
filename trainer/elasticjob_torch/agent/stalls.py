# SPDX-License-Identifier: Apache-2.0
"""Inspects an agent's training processes when no member of the round takes steps: what each does, and its stacks.

The state of a process's main thread is read from the kernel, several times within a second: a process that was stopped,
or that holds Python's lock in an endless loop, cannot report by itself. Waiting for a GPU may look like work, so a
process that uses one is never reported to compute.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING

from elasticjob_torch import wire
from elasticjob_torch.agent.processes import descendants, main_thread_of
from elasticjob_torch.agent.stacks import ask_for_stacks, hears, is_asked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence


log = logging.getLogger(__name__)

_LOOKS, _PAUSE_SECONDS = 20, 0.05
_MOST = 0.8  # the share of looks that makes a state
_WRITE_SECONDS = 1.0  # until a process has seen the request for its stacks
_WRITTEN_SECONDS = 0.1  # from then until they are written, so that those of two processes do not mix
_DEVICES = ("/dev/nvidia", "/dev/kfd", "/dev/dri", "/dev/accel")

State = wire.ProcessState
_STATES = {"T": State.STOPPED, "t": State.STOPPED, "D": State.BLOCKED, "R": State.COMPUTES, "S": State.WAITS}
_SEVERITY = (State.STOPPED, State.BLOCKED, State.COMPUTES, State.UNKNOWN, State.WAITS)
_WORDS = {
    State.STOPPED: "is stopped, and writes no stacks",
    State.BLOCKED: "waits in the kernel, for a disk or a device",
    State.COMPUTES: "computes",
    State.WAITS: "waits",
    State.UNKNOWN: "works and waits",
}


class StallInspector:
    """Inspects the processes once for each time that the sidecar reports a stall.

    Args:
        tell: receives the round, the state of the process that is most at fault, and its local rank.
    """

    def __init__(self, tell: Callable[[int, wire.ProcessState, int], object]) -> None:
        self._tell = tell
        self._looked = 0  # the round that was inspected since the sidecar reported the stall

    def look(self, view: wire.View | None, processes: Sequence[int]) -> None:
        """Note the sidecar's view; returns at once. ``processes`` are pids, in the order of local ranks."""
        round_number = view.handed if view is not None and view.stalled else 0
        if round_number and round_number != self._looked and processes:
            look = threading.Thread(
                target=self._look, args=(round_number, tuple(processes)), name="elasticjob-stalls", daemon=True
            )
            look.start()
        self._looked = round_number if processes else 0

    def _look(self, round_number: int, started: Sequence[int]) -> None:
        processes = [training_process(process) for process in started]
        states = states_of(processes)
        log.warning("nobody takes steps in round %d; the stacks of its training processes follow", round_number)
        for local_rank, process in enumerate(processes):
            state = states.get(process)
            if state is not None:
                log.warning("local rank %d (pid %d) %s", local_rank, process, _WORDS[state])
                if state is not State.STOPPED and not write_stacks(process):
                    log.warning("local rank %d (pid %d) does not write its stacks", local_rank, process)
        if states:
            worst = min(states, key=lambda process: (_SEVERITY.index(states[process]), processes.index(process)))
            self._tell(round_number, states[worst], processes.index(worst))


def training_process(started: int) -> int:
    """Return the process that writes its stacks: the one that the agent started, or the nearest below a wrapper."""
    return next((process for process in (started, *descendants(started)) if hears(process)), started)


def states_of(processes: Iterable[int]) -> dict[int, State]:
    """Return the state of each process, by pid, without those that have ended. Takes a second."""
    seen: dict[int, Counter[State]] = {process: Counter() for process in processes}
    for look in range(_LOOKS):
        time.sleep(_PAUSE_SECONDS if look else 0)
        for process, states in list(seen.items()):
            letter, _ = main_thread_of(process)
            if letter in ("", "Z", "X"):
                del seen[process]
            else:
                states[_STATES.get(letter, State.UNKNOWN)] += 1
    return {process: _judged(process, states) for process, states in seen.items()}


def write_stacks(process: int) -> bool:
    """Have a process write its stacks; return whether it has, as far as can be seen. Takes a second at most."""
    if not ask_for_stacks(process):
        return False
    deadline = time.monotonic() + _WRITE_SECONDS
    while is_asked(process):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    time.sleep(_WRITTEN_SECONDS)
    return True


def _judged(process: int, states: Counter[State]) -> State:
    state, times = states.most_common(1)[0]
    if times < _MOST * _LOOKS or (state is State.COMPUTES and _uses_device(process)):
        return State.UNKNOWN
    return state


def _uses_device(process: int) -> bool:
    folder = f"/proc/{process}/fd"
    with contextlib.suppress(OSError):
        for number in os.listdir(folder):
            with contextlib.suppress(OSError):
                if os.readlink(f"{folder}/{number}").startswith(_DEVICES):
                    return True
    return False
