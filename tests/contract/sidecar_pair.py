# SPDX-License-Identifier: Apache-2.0
"""Two real sidecars and the tunnel between them, in a process without torch; a test tells it what to do.

Run as a program it forms a round for each line `{"round": 1, "port": 5000, "late": 0}` that it reads, whose rank 0
serves the store at that port, so many seconds late, and answers with the loopback ports at which the two workers reach
it. `SidecarPair` is the test's end of it.
"""

import asyncio
import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from typing import Any

from support.waiting import DEADLINE, Deadline


class SidecarPair:
    """The program as a child process."""

    def __init__(self) -> None:
        python = os.environ.get("ELASTICJOB_DEV_PYTHON", sys.executable)
        pipe = subprocess.PIPE
        self._process = subprocess.Popen([python, __file__], stdin=pipe, stdout=pipe, text=True)
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._round = 0
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def form(self, port: int, late: int = 0) -> list[int]:
        """A new round in the place of the last one, whose rank 0 serves the store at `port`, `late` seconds from now.

        Returns where each worker's trainer reaches the store.
        """
        self._round += 1
        ports: list[int] = self._ask(round=self._round, port=port, late=late)["ports"]
        return ports

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(DEADLINE)
        finally:
            self._process.kill()
        self._reader.join(DEADLINE)
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _ask(self, **command: int) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        try:
            line = self._lines.get(timeout=DEADLINE)
        except queue.Empty:
            raise Deadline(f"the sidecars' answer to {command}", DEADLINE) from None
        if not line:
            raise RuntimeError(f"the sidecars ended at {command}; what they said is on stderr")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put("")


async def commands() -> AsyncIterator[dict[str, int]]:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        yield json.loads(line)


async def main() -> None:
    from support import two_sidecars  # needs more than the standard library

    async with two_sidecars.two_workers() as pair:
        async for command in commands():
            await pair.form(command["round"])
            late, ports = command.pop("late"), {"ports": [worker.ports.store for worker in pair.workers]}
            if late:
                print(json.dumps(ports), flush=True)
                await asyncio.sleep(late)
            rank0 = pair.workers[0]
            status, why = await rank0.call("POST", "store", trainer=rank0.trainer, **command)
            assert status == 204, why
            if not late:
                print(json.dumps(ports), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
