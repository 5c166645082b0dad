# SPDX-License-Identifier: Apache-2.0
"""A child process that is told what to do by JSON lines on its standard input, and answers each in one line."""

import contextlib
import functools
import json
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any

from rounds.logs import forget_if_empty, new_log, with_log
from rounds.starter import Starter

Answer = dict[str, Any]

ANSWER_SECONDS = 300.0


@functools.cache
def starter() -> Starter:
    """Open until this process ends."""
    return Starter()


class Child:
    """`python -m MODULE`, which gives way to all that does not stand for another machine; its errors go to a log."""

    def __init__(self, module: str, *arguments: str, nice: int = 0, by: Starter | None = None) -> None:
        """`nice`: how much it gives way to the others of its kind; `by`: another starter than the container beside."""
        self._log = new_log(module)
        self.pid, self._connection = (by or starter()).start(nice, self._log, module, *arguments)
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def tell(self, do: str, **arguments: Any) -> None:
        with contextlib.suppress(BrokenPipeError):  # it has ended, as its answer says
            self._connection.sendall(json.dumps({"do": do, **arguments}).encode() + b"\n")

    def answer(self) -> Answer:
        """Wait for the answer to the oldest command that has none. Raises RuntimeError."""
        try:
            line = self._lines.get(timeout=ANSWER_SECONDS)
        except queue.Empty:
            raise self._failure(f"a process of the benchmark did not answer within {ANSWER_SECONDS:g} s") from None
        if not line:
            raise self._failure("a process of the benchmark has ended")
        answer: Answer = json.loads(line)
        if "error" in answer:
            raise self._failure(answer["error"])
        return answer

    def ask(self, do: str, **arguments: Any) -> Answer:
        self.tell(do, **arguments)
        return self.answer()

    def _read(self) -> None:
        with contextlib.suppress(ConnectionResetError), self._connection.makefile() as lines:
            for line in lines:
                self._lines.put(line)
        self._lines.put("")

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        self._reader.join()  # its end of the connection is closed
        self._connection.close()
        forget_if_empty(self._log)

    def _failure(self, what: str) -> RuntimeError:
        return RuntimeError(with_log(what, self._log))


def serve(commands: Mapping[str, Callable[..., Answer | None]]) -> None:
    """The child's side, until its input ends. `ready` is answered when all is imported."""
    for line in sys.stdin:
        order = json.loads(line)
        try:
            answer = {"ready": dict, **commands}[order.pop("do")](**order) or {}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)
