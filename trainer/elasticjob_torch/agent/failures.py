# SPDX-License-Identifier: Apache-2.0
"""What torch's agent learns of its processes that fail: it logs that, and its rendezvous hears nothing.

The agent makes a ``ProcessFailure`` of each process that ended in failure, with what that process left in its error
file. Of a process that it stops meanwhile it learns no more than the signal; what that one was failing of is asked for
before it is stopped.
"""

from __future__ import annotations

import json
import os
import re
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from torch.distributed.elastic.multiprocessing.errors import ProcessFailure

from elasticjob_torch import wire
from elasticjob_torch.agent.in_flight import ask_for_exceptions
from elasticjob_torch.agent.record import LAST_WORDS

if TYPE_CHECKING:
    from collections.abc import Mapping

_NO_FILE = "<N/A>"
_SIGNALLED = 128  # and the signal's number: the exit code of a process that a signal has ended, as shells say it
_LENGTH = 1000
# What torch, gloo, NCCL and Python say when it is another process that is gone. The operator looks for the words
# "a connection broke".
_BROKEN = re.compile(
    r"connection (was )?(closed|reset|refused|aborted)|broken ?pipe|socket (was )?closed|caused pair closure"
    r"|ConnectionError|Connection\w+Error|DistNetworkError|DistStoreError|ncclRemoteError|remote process exited"
    r"|communicator was aborted|collective operation timeout|timed out (waiting|after .* waiting)|connect timeout",
    re.IGNORECASE,
)


class Failure(NamedTuple):
    """What failed, in words, and its exit code; empty when nothing did."""

    said: str = ""
    exit_code: int | None = None


class _Seen(NamedTuple):
    """One process's failure. What sorts first is the cause: not a broken connection, and the earliest."""

    of_a_peer: bool
    when: float
    failure: Failure


class Failures:
    """Remembers what has failed since it was last asked.

    Attributes:
        last: what was said last; empty before.
    """

    def __init__(self) -> None:
        self.last = ""
        self._seen: list[_Seen] = []
        self._ranks: dict[int, str] = {}  # by local rank
        self._stopped: set[int] = set()

    def hear(self) -> None:
        """From now on hear of each failure in this process; the agent must not be disturbed, whatever they are."""
        made = ProcessFailure.__post_init__

        def make(failure: ProcessFailure) -> None:
            made(failure)
            if failure.local_rank not in self._stopped:  # else it is the end that this agent has brought about
                self._note(failure)

        ProcessFailure.__post_init__ = make

    def started(self, environments: Mapping[int, Mapping[str, str]]) -> None:
        """Processes were started with these, by local rank."""
        self._stopped.clear()
        self._ranks = {local_rank: environment.get("RANK", "") for local_rank, environment in environments.items()}

    def stopping(self, processes: Mapping[int, int], error_files: Mapping[int, str]) -> None:
        """Those that run, pids by local rank, are about to be stopped: first have them say what they are failing of."""
        ask_for_exceptions(processes.values())
        self._stopped |= processes.keys()
        for local_rank in processes:
            file = error_files.get(local_rank, "")
            if (message := _left_in(file)) and not message.startswith(LAST_WORDS):
                self._add(f"{self._name(local_rank)}, failing when it was stopped", message, file, None)

    def take(self) -> Failure:
        """Say what failed first; empty when nothing did. Forgets it. Its beginning is enough, and no more is sent."""
        seen, self._seen = self._seen, []
        if not seen:
            return Failure()
        first = min(seen, key=lambda one: (one.of_a_peer, one.when)).failure
        self.last = first.said
        return first

    def _note(self, failure: ProcessFailure) -> None:
        rank, message = self._name(failure.local_rank), ""
        if failure.error_file != _NO_FILE:
            rank, message = _rank_in(failure.message) or rank, _message_in(failure.message)
        how = f"exit code {failure.exitcode}" if failure.exitcode >= 0 else failure.signal_name()
        self._add(f"{rank}, {how}", message, failure.error_file, exit_code_of(failure.exitcode))

    def _add(self, how: str, message: str, file: str, exit_code: int | None) -> None:
        of_a_peer = _BROKEN.search(message) is not None
        said = how + (", a connection broke" if of_a_peer else "") + (f": {message}" if message else "")
        said = " ".join(said.split())[:_LENGTH].encode(errors="replace").decode()
        self._seen.append(_Seen(of_a_peer, _written(file), Failure(said, exit_code)))

    def _name(self, local_rank: int) -> str:
        rank = self._ranks.get(local_rank)
        return f"rank {rank}" if rank else f"local rank {local_rank}"


def exit_code_of(code: int) -> int | None:
    """As a container's: torch has a signal's number, below zero, in place of the code. ``None``: it is no failure's."""
    code = _SIGNALLED - code if code < 0 else code
    return code if 0 < code <= wire.MAX_EXIT_CODE else None


def _written(file: str) -> float:
    """When it was, which is when the exception ended its process; torch knows the second. Now if there is none."""
    try:
        return os.stat(file).st_mtime
    except OSError:
        return time.time()


def _left_in(file: str) -> str:
    """What a process that still runs has written there; empty if it has not."""
    try:
        with open(file, encoding="utf-8") as opened:
            return _message_in(json.load(opened).get("message"))
    except (OSError, ValueError, AttributeError, RecursionError):
        return ""


def _message_in(said: Any) -> str:
    return str(said.get("message", "") if isinstance(said, dict) else said or "")


def _rank_in(said: Any) -> str:
    """As far as our own excepthook has written the file: torch's ``@record`` does not name the rank."""
    extra = said.get("extraInfo") if isinstance(said, dict) else None
    return f"rank {extra['rank']}" if isinstance(extra, dict) and extra.get("rank") else ""
