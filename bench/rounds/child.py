"""A child process that is told what to do by JSON lines on its standard input, and answers each in one line."""

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any

Answer = dict[str, Any]


class Child:
    """`python -m MODULE`; its errors go to the parent's."""

    def __init__(self, module: str, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.pid = self._process.pid

    def tell(self, do: str, **arguments: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
        self._process.stdin.flush()

    def answer(self) -> Answer:
        """Wait for the answer to the oldest command that has none. Raises RuntimeError."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"a process of the benchmark ended with code {self._process.wait()}")
        answer: Answer = json.loads(line)
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer

    def ask(self, do: str, **arguments: Any) -> Answer:
        self.tell(do, **arguments)
        return self.answer()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


def serve(commands: Mapping[str, Callable[..., Answer | None]]) -> None:
    """The child's side, until its input ends."""
    for line in sys.stdin:
        order = json.loads(line)
        try:
            answer = commands[order.pop("do")](**order) or {}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)
