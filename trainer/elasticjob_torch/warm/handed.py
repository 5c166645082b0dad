# SPDX-License-Identifier: Apache-2.0
"""The prestarted processes that were ordered to train and have not yet reported how they begin: warm, in the ordinary
way, or not at all.

A slow one is told from a hanging one by the work of it and its children: an import from a slow disk takes long, and on
a busy machine longer, but it always makes some progress.
"""

from __future__ import annotations

import logging
import os
import time
from typing import TYPE_CHECKING

from elasticjob_torch.warm.files import read_text
from elasticjob_torch.warm.orders import Read

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from elasticjob_torch.warm.learned import Learned
    from elasticjob_torch.warm.process import PrestartedProcess


log = logging.getLogger(__name__)

_STILL_SECONDS = 120.0  # a process without any progress for so long, not even reading from a slow disk, hangs
_ANSWER_SECONDS = 1800.0  # even with progress
_NAMED = 5  # imports named in one log line
_STAT = (9, 11, 12)  # major page faults, time in user mode, time in the kernel; counted from the state
_SESSION = 3
_BETWEEN_SECONDS = 5.0  # two looks; a longer gap shows that this process itself did not run


def work_of(session: int) -> tuple[int, int]:
    """Return a measure of what the processes of a session have computed and read so far."""
    computed = read = 0
    for name in os.listdir("/proc"):
        fields = read_text(f"/proc/{name}/stat").rpartition(")")[2].split() if name.isdigit() else []
        if len(fields) > max(_STAT) and fields[_SESSION] == str(session):
            computed += sum(int(fields[number]) for number in _STAT)
            read += sum(
                int(line.split()[1]) for line in read_text(f"/proc/{name}/io").splitlines() if line.startswith("r")
            )
    return computed, read


class SessionProgress:
    """The progress of a process that leads a session."""

    def __init__(self, work: Callable[[], tuple[int, int]], clock: Callable[[], float] = time.monotonic) -> None:
        self._work, self._clock = work, clock
        self._done: object = None
        self._still = 0.0
        self._looked = self._began = clock()

    def still_for(self) -> float:
        """Return the seconds for which it has done nothing; call it repeatedly."""
        now, done = self._clock(), self._work()
        passed, self._looked = min(now - self._looked, _BETWEEN_SECONDS), now
        self._still = self._still + passed if done == self._done else 0.0
        self._done = done
        return self._still

    def took(self) -> float:
        """Return the seconds since this object was made."""
        return self._clock() - self._began


class HandedProcesses:
    """The processes by local rank. Its owner ensures that only one thread at a time calls it.

    Args:
        blame: receives the import that is to blame, and why.
    """

    def __init__(self, learned: Learned, blame: Callable[[Read], None]) -> None:
        self.processes: dict[int, PrestartedProcess] = {}
        self.progress: dict[int, SessionProgress] = {}
        self._learned = learned
        self._blame = blame
        self._killed = False

    def add(self, local_rank: int, process: PrestartedProcess) -> None:
        """Watch a process that has its orders, in place of an earlier one."""
        self._drop(local_rank)
        self.processes[local_rank] = process
        self.progress[local_rank] = SessionProgress(lambda: work_of(process.popen.pid))

    def hear(self) -> None:
        """Process the reports, and kill processes that hang."""
        for local_rank, process in list(self.processes.items()):
            self._hear(local_rank, process)

    def has_killed(self) -> bool:
        """Say whether one was killed since the last call."""
        killed, self._killed = self._killed, False
        return killed

    def let_go(self) -> None:
        for local_rank in list(self.processes):
            self._drop(local_rank)

    def _drop(self, local_rank: int) -> None:
        self.progress.pop(local_rank, None)
        if (process := self.processes.pop(local_rank, None)) is not None:
            process.let_go()

    def _hear(self, local_rank: int, process: PrestartedProcess) -> None:
        messages = process.receive()
        for message in messages or ():
            if "doing" in message:
                process.doing = message["doing"]
            elif "warm" in message:
                self._tell_of_warm(local_rank, process, message["warm"], message["done"])
            elif "unfit" in message:
                self._take_in_unfit(local_rank, process, [Read(*each) for each in message["unfit"]])
        if messages is None or any(message.keys() & {"warm", "unfit"} for message in messages):
            self._drop(local_rank)
        elif (progress := self.progress.get(local_rank)) is not None and (
            progress.still_for() > _STILL_SECONDS or progress.took() > _ANSWER_SECONDS
        ):
            self._kill(local_rank, process, progress.took())

    def _tell_of_warm(self, local_rank: int, process: PrestartedProcess, modules: int, done: int) -> None:
        words = "training process %d starts warm: prestarted for %.0f s, %d modules%s"
        left = _listed(self._learned.left(local_rank, process.imports[:done]))
        log.info(words, local_rank, time.monotonic() - process.began, modules, left)

    def _take_in_unfit(self, local_rank: int, process: PrestartedProcess, found: Sequence[Read]) -> None:
        log.info("training process %d starts in the ordinary way: %s", local_rank, found[0].why)
        self._learned.begins_with(local_rank, ())  # it does all imports itself now
        for each in found:
            if each.early_import and not process.is_guessed:  # the next process is given this round's values
                self._blame(each)

    def _kill(self, local_rank: int, process: PrestartedProcess, took: float) -> None:
        """Kill a process whose script has not begun, so its end is not the script's."""
        del self.progress[local_rank]
        self._killed = True
        words = "training process %d is killed: for %.0f s it has not left the early import of %s"
        log.error(words, local_rank, took, process.doing)
        self._blame(Read(process.doing, "", f"it hangs when it is early, for {took:.0f} s and more"))
        process.popen.kill()


def _listed(imports: Sequence[str]) -> str:
    """Name the first imports that the script still has to do, and count the rest."""
    if not imports:
        return ""
    more = f", and {len(imports) - _NAMED} more" if len(imports) > _NAMED else ""
    return f"; the script still imports {', '.join(imports[:_NAMED])}{more}"
