"""What torch's agent learns of its processes that fail: it logs that, and its rendezvous hears nothing.

The agent makes a ``ProcessFailure`` of each process that ended in failure, with what that process left in its error
file. Hearing of those is all that is done to torch here.
"""

from __future__ import annotations

from typing import NamedTuple

from torch.distributed.elastic.multiprocessing.errors import ProcessFailure

from elasticjob_torch import wire

_NO_FILE = "<N/A>"
_SIGNALLED = 128  # and the signal's number: the exit code of a process that a signal has ended, as shells say it
_LENGTH = 1000


class Failure(NamedTuple):
    """What failed, in words, and its exit code; empty when nothing did."""

    said: str = ""
    exit_code: int | None = None


class Failures:
    """Remembers what failed first since it was last asked."""

    def __init__(self) -> None:
        self._first: ProcessFailure | None = None

    def hear(self) -> None:
        """From now on hear of each failure in this process; the agent must not be disturbed, whatever they are."""
        made = ProcessFailure.__post_init__

        def make(failure: ProcessFailure) -> None:
            made(failure)
            if self._first is None or failure.timestamp < self._first.timestamp:
                self._first = failure

        ProcessFailure.__post_init__ = make

    def take(self) -> Failure:
        """Say what failed first; empty when nothing did. Forgets it. Its beginning is enough, and no more is sent."""
        first, self._first = self._first, None
        if first is None:
            return Failure()
        return Failure(describe(first)[:_LENGTH].encode(errors="replace").decode(), exit_code_of(first.exitcode))


def exit_code_of(code: int) -> int | None:
    """As a container's: torch has a signal's number, below zero, in place of the code. ``None``: it is no failure's."""
    code = _SIGNALLED - code if code < 0 else code
    return code if 0 < code <= wire.MAX_EXIT_CODE else None


def describe(failure: ProcessFailure) -> str:
    """``rank 3, exit code 1: RuntimeError: no such file``, as far as it is known."""
    rank, message = f"local rank {failure.local_rank}", ""
    if failure.error_file != _NO_FILE:
        said = failure.message
        if isinstance(said, dict):
            extra = said.get("extraInfo")
            if isinstance(extra, dict) and "rank" in extra:
                rank = f"rank {extra['rank']}"
            said = said.get("message", "")
        message = str(said)
    how = f"exit code {failure.exitcode}" if failure.exitcode >= 0 else failure.signal_name()
    return f"{rank}, {how}" + (f": {message}" if message else "")
