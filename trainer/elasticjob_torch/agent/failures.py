# SPDX-License-Identifier: Apache-2.0
"""The failures of training processes that torch's agent notices: it only logs them, and tells its rendezvous nothing.

The agent makes a ``ProcessFailure`` for each process that ended in failure, from the error file that the process left.
For a process that it stops it learns only the signal, though such a process may be in a ``finally`` for long, while its
peers see the connection break and fail first. So before it is stopped, it is asked for the exception in flight, by a
signal of our own. A handler for SIGTERM would not help: Python runs it only between two of its own instructions, so a
process that waits in C would no longer end. One that does not answer because it waits in C has no exception in flight.
"""

from __future__ import annotations

import json
import os
import re
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from torch.distributed.elastic.multiprocessing.errors import ProcessFailure

from elasticjob_torch import wire
from elasticjob_torch.agent.processes import descendants, main_thread_of
from elasticjob_torch.agent.record import ASKED, LAST_WORDS
from elasticjob_torch.agent.stacks import has_signal, send

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


_NO_FILE = "<N/A>"
_SIGNALLED = 128  # plus the signal's number: the exit code of a process that a signal ended, as shells report it
_LENGTH = 1000
# Messages of torch, gloo, NCCL and Python when another process is gone.
_BROKEN = re.compile(
    r"connection (was )?(closed|reset|refused|aborted)|broken ?pipe|socket (was )?closed|caused pair closure"
    r"|ConnectionError|Connection\w+Error|DistNetworkError|DistStoreError|ncclRemoteError|remote process exited"
    r"|communicator was aborted|collective operation timeout|timed out (waiting|after .* waiting)|connect timeout",
    re.IGNORECASE,
)
_LOOK_SECONDS = 0.002
_ASLEEP_LOOKS = 5  # in a row: it woke up for the signal, and waits in C again
_TICKS = 5  # of processor time, 10 ms each: it computes in C
_MOST_SECONDS = 2.0  # on a machine so busy that it did not run


def ask_for_exceptions(started: Iterable[int]) -> None:
    """Return once each of the processes (or the one below it, if a wrapper was started) has answered or cannot."""
    asked = [_Asked(process) for process in map(_hearing, started) if process and send(process, ASKED)]
    deadline = time.monotonic() + _MOST_SECONDS
    while asked and time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS)
        asked = [one for one in asked if one.may_answer()]


class _Asked:
    """A process that has been asked."""

    def __init__(self, process: int) -> None:
        self._process = process
        self._used = main_thread_of(process)[1]
        self._asleep = 0

    def may_answer(self) -> bool:
        """Look at it once more. False if it cannot answer, and also if it has answered."""
        if not has_signal(self._process, "SigCgt", ASKED):  # the answer's last step, or its end
            return False
        state, used = main_thread_of(self._process)
        waits = state == "S" and not has_signal(self._process, "ShdPnd", ASKED)
        self._asleep = self._asleep + 1 if waits else 0
        return self._asleep < _ASLEEP_LOOKS and used - self._used < _TICKS


def _hearing(started: int) -> int:
    """Return the process that catches the signal, 0 if there is none."""
    return next((one for one in (started, *descendants(started)) if has_signal(one, "SigCgt", ASKED)), 0)


class _Seen(NamedTuple):
    """The failure of one process. The first in sort order is the cause: not a broken connection, and the earliest."""

    of_a_peer: bool
    when: float
    failure: wire.Failure


class FailureLog:
    """Remembers the failures since it was last asked.

    Attributes:
        last: the last answer; empty before the first.
    """

    def __init__(self) -> None:
        self.last = ""
        self._seen: list[_Seen] = []
        self._ranks: dict[int, str] = {}  # by local rank
        self._stopped: set[int] = set()

    def hear(self) -> None:
        """From now on note each failure in this process. No failure may disturb the agent."""
        made = ProcessFailure.__post_init__

        def make(failure: ProcessFailure) -> None:
            made(failure)
            if failure.local_rank not in self._stopped:  # otherwise this agent itself has ended it
                self._note(failure)

        ProcessFailure.__post_init__ = make

    def started(self, environments: Mapping[int, Mapping[str, str]]) -> None:
        """Processes were started with these environments, by local rank."""
        self._stopped.clear()
        self._ranks = {local_rank: environment.get("RANK", "") for local_rank, environment in environments.items()}

    def stopping(self, processes: Mapping[int, int], error_files: Mapping[int, str]) -> None:
        """The running processes (pids by local rank) are about to be stopped: first have them write their exceptions in
        flight."""
        ask_for_exceptions(processes.values())
        self._stopped |= processes.keys()
        for local_rank in processes:
            file = error_files.get(local_rank, "")
            if (message := _left_in(file)) and not message.startswith(LAST_WORDS):
                self._add(f"{self._name(local_rank)}, failing when it was stopped", message, file, None)

    def take(self) -> wire.Failure:
        """Return what failed first, and forget it; empty if nothing failed. The text is cut to the length that is
        sent."""
        seen, self._seen = self._seen, []
        if not seen:
            return wire.NO_FAILURE
        first = min(seen, key=lambda one: (one.of_a_peer, one.when)).failure
        self.last = first.detail
        return first

    def _note(self, failure: ProcessFailure) -> None:
        rank, message = self._name(failure.local_rank), ""
        if failure.error_file != _NO_FILE:
            rank, message = _rank_in(failure.message) or rank, _message_in(failure.message)
        how = f"exit code {failure.exitcode}" if failure.exitcode >= 0 else failure.signal_name()
        self._add(f"{rank}, {how}", message, failure.error_file, exit_code_of(failure.exitcode))

    def _add(self, how: str, message: str, file: str, exit_code: int | None) -> None:
        of_a_peer = _BROKEN.search(message) is not None
        detail = how + (", a connection broke" if of_a_peer else "") + (f": {message}" if message else "")
        detail = " ".join(detail.split())[:_LENGTH].encode(errors="replace").decode()
        kind = wire.FailureKind.BROKEN_CONNECTION if of_a_peer else _kind_of(exit_code, message)
        self._seen.append(_Seen(of_a_peer, _written(file), wire.Failure(detail, exit_code, kind)))

    def _name(self, local_rank: int) -> str:
        rank = self._ranks.get(local_rank)
        return f"rank {rank}" if rank else f"local rank {local_rank}"


def exit_code_of(code: int) -> int | None:
    """Return a container's exit code: for a signal torch has its negative number. None if it is no failure's."""
    code = _SIGNALLED - code if code < 0 else code
    return code if 0 < code <= wire.MAX_EXIT_CODE else None


def _kind_of(exit_code: int | None, message: str) -> wire.FailureKind:
    """Return what it tells. A process that was failing when it was stopped has no exit code of its own."""
    if exit_code is not None and exit_code > _SIGNALLED:
        return wire.FailureKind.SIGNAL
    return wire.FailureKind.MESSAGE if message else wire.FailureKind.EXIT_CODE


def _written(file: str) -> float:
    """Return when the error file was written, which is when the exception ended its process: torch keeps whole seconds.
    Without a file, the present time."""
    try:
        return os.stat(file).st_mtime
    except OSError:
        return time.time()


def _left_in(file: str) -> str:
    """Return what a process that still runs has written there; empty if nothing."""
    try:
        with open(file, encoding="utf-8") as opened:
            return _message_in(json.load(opened).get("message"))
    except (OSError, ValueError, AttributeError, RecursionError):
        return ""


def _message_in(message: Any) -> str:
    return str(message.get("message", "") if isinstance(message, dict) else message or "")


def _rank_in(message: Any) -> str:
    """Return the rank if our own excepthook wrote the file: torch's ``@record`` does not name it."""
    extra = message.get("extraInfo") if isinstance(message, dict) else None
    return f"rank {extra['rank']}" if isinstance(extra, dict) and extra.get("rank") else ""
