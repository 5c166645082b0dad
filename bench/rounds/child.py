# SPDX-License-Identifier: Apache-2.0
"""A child process that is told what to do by JSON lines on its standard input, and answers each in one line."""

import contextlib
import json
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any

from rounds.logs import forget_if_empty, new_log, with_log

Answer = dict[str, Any]

ANSWER_SECONDS = 300.0
NICE = "19"  # they stand for other machines, whose work takes nothing from the operator and the API server


class Child:
    """`python -m MODULE`; its errors go to a log."""

    def __init__(self, module: str, *arguments: str) -> None:
        self._log = new_log(module)
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                ["nice", "-n", NICE, sys.executable, "-m", module, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self.pid = self._process.pid
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def tell(self, do: str, **arguments: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
        self._process.stdin.flush()

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
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put("")

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
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
