# SPDX-License-Identifier: Apache-2.0
"""`python -m rounds.starter`: starts the processes that stand for other machines, in a container of their own.

That container gives way to all others, those of the API server among them, by the least share of the processors: `nice`
counts only among the processes of one container. Each connection to the socket asks for one process in a line of JSON,
is answered with its id, and is from then on its standard input and output. The first connection asks for none; at its
end all end.
"""

import argparse
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rounds.logs import with_log

CONNECT_SECONDS = 30.0
SOCKET = Path("/tmp/bench-starter.sock")
EQUAL_SHARES = "--equal-shares"
LOG_MODE = 0o644
ENDED_SECONDS = 30.0


class Starter:
    """The other side, in the process that measures."""

    def __init__(self, path: Path = SOCKET) -> None:
        """Raises TimeoutError."""
        self._path = path
        deadline = time.monotonic() + CONNECT_SECONDS
        while True:
            try:
                # not a socket, which Python would close at its end, before there is an exit code
                self._lifeline: int | None = self._connected().detach()
                return
            except (FileNotFoundError, ConnectionRefusedError):
                if time.monotonic() > deadline:
                    why = f"no process listens at {path} after {CONNECT_SECONDS:g} s: start `python -m rounds.starter`"
                    raise TimeoutError(why) from None
                time.sleep(0.05)

    def start(self, nice: int, log: Path, module: str, *arguments: str) -> tuple[int, socket.socket]:
        """The id of `python -m MODULE`, and the other end of its standard input and output. Its errors go to `log`."""
        connection = self._connected()
        connection.sendall(json.dumps({"nice": nice, "log": str(log), "run": [module, *arguments]}).encode() + b"\n")
        if not (answer := _line(connection)):
            raise RuntimeError(with_log(f"{module} was not started", log))
        return int(answer), connection

    def close(self) -> None:
        """End all that were started."""
        if self._lifeline is not None:
            os.close(self._lifeline)
            self._lifeline = None

    def _connected(self) -> socket.socket:
        made = socket.socket(socket.AF_UNIX)
        try:
            made.connect(str(self._path))
        except OSError:
            made.close()
            raise
        return made


@contextlib.contextmanager
def local_starter(*options: str) -> Iterator[Starter]:
    """One in no container: its processes share the processors with this one as any others. `options`: of `main`."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        path = Path(folder) / SOCKET.name
        with _process(str(path), *options) as process:
            made = Starter(path)
            try:
                yield made
            finally:
                made.close()
                process.wait(ENDED_SECONDS)


@contextlib.contextmanager
def equal_shares() -> Iterator[None]:
    """A starter at `SOCKET`, in this container: none of its processes gives way to another."""
    with _process(str(SOCKET), EQUAL_SHARES) as process:
        try:
            yield
        finally:
            process.kill()


def _process(*arguments: str) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen([sys.executable, "-m", "rounds.starter", *arguments], env=environment)


def _line(connection: socket.socket) -> bytes:
    """Not a byte more: the rest is for the process."""
    with connection.makefile("rb", buffering=0) as unread:
        return unread.readline().strip()


def _start(connection: socket.socket, nice: int, log: str, run: list[str]) -> None:
    command = [sys.executable, "-m", *run]
    actions: list[Any] = [
        (os.POSIX_SPAWN_DUP2, connection.fileno(), 0),
        (os.POSIX_SPAWN_DUP2, connection.fileno(), 1),
        (os.POSIX_SPAWN_OPEN, 2, log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, LOG_MODE),
    ]
    pid = os.posix_spawn(sys.executable, command, os.environ, file_actions=actions, setsigdef=[signal.SIGCHLD])
    os.setpriority(os.PRIO_PROCESS, pid, nice)
    connection.sendall(f"{pid}\n".encode())


def _first(listening: socket.socket, seconds: float) -> socket.socket:
    """The first connection. Raises TimeoutError: the process that measures may never have started."""
    listening.settimeout(seconds)
    try:
        connection, _ = listening.accept()
    except TimeoutError:
        raise TimeoutError(f"no process has connected to {listening.getsockname()} in {seconds:g} s") from None
    listening.settimeout(None)
    return connection


def _end_with(lifeline: socket.socket) -> None:
    lifeline.recv(1)
    os.killpg(0, signal.SIGKILL)


def main() -> None:
    parser = argparse.ArgumentParser(prog="rounds.starter")
    parser.add_argument("path", type=Path, nargs="?", default=SOCKET)
    parser.add_argument(EQUAL_SHARES, action="store_true", help="no process gives way to another")
    given = parser.parse_args()
    os.setpgid(0, 0)  # of all that it starts
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody asks how they have ended
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(given.path))
        listening.listen(64)
        lifeline = _first(listening, CONNECT_SECONDS)
        threading.Thread(target=_end_with, args=(lifeline,), daemon=True).start()
        while True:
            connection, _ = listening.accept()
            with connection:
                if line := _line(connection):
                    asked = json.loads(line)
                    _start(connection, **asked | ({"nice": 0} if given.equal_shares else {}))


if __name__ == "__main__":
    main()
