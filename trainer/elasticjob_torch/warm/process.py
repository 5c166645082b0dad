# SPDX-License-Identifier: Apache-2.0
"""A prestarted process as its agent sees it: started, given work, watched, and handed over or ended."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import resource
import signal
import socket
import stat
import subprocess
import time
import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from elasticjob_torch.environment import START
from elasticjob_torch.warm.orders import PRESTARTED, decode, encode, unforeseen

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


log = logging.getLogger(__name__)

_DESCRIPTOR = 40  # of the socket in the process: above those that a script will see
_KEPT = 2  # descriptors after it, where a prestarted process keeps its outputs
_SEND_SECONDS = 2.0
_END_SECONDS = 2.0
_STATUS = {
    "Umask": "umask",
    "Uid": "user",
    "Gid": "group",
    "Groups": "groups",
    "SigBlk": "blocked signals",
    "SigIgn": "ignored signals",
    "CapPrm": "capabilities",
    "CapBnd": "capabilities",
    "NoNewPrivs": "privileges",
    "Seccomp": "system calls",
    "Cpus_allowed": "CPUs",
    "Mems_allowed": "memory nodes",
}


def inherited() -> dict[str, Any]:
    """Return what a process would inherit, besides arguments, environment and descriptors, if this thread started it.

    Raises:
        OSError: the working directory is gone, or there is no /proc.
    """
    found: dict[str, Any] = {
        "working directory": os.getcwd(),
        "niceness": os.getpriority(os.PRIO_PROCESS, 0),
        "scheduling": os.sched_getscheduler(0),
    }
    for name in sorted(each for each in dir(resource) if each.startswith("RLIMIT_")):
        found[name] = resource.getrlimit(getattr(resource, name))
    for path, names in (
        ("/proc/thread-self/status", _STATUS),
        ("/proc/self/cgroup", {}),
        ("/proc/self/oom_score_adj", {}),
    ):
        with open(path, encoding="ascii", errors="replace") as file:
            text = file.read()
        if not names:
            found[path] = text
        for line in text.splitlines() if names else ():
            name, _, value = line.partition(":")
            if name in names:
                found[names[name]] = (*found.get(names[name], ()), value.split())
    return found


def kind(descriptor: int) -> tuple[int, bool, int]:
    """Return the properties that Python's output on a descriptor depends on: the kind of file, whether it is a
    terminal, and its block size."""
    status = os.fstat(descriptor)
    return stat.S_IFMT(status.st_mode), os.isatty(descriptor), status.st_blksize


@dataclass(frozen=True)
class Start:
    """How a training process is started: all that must be equal in a prestarted one."""

    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    outputs: tuple[int, int]  # descriptors
    inherited: Mapping[str, Any]
    is_guessed: bool = False  # the round's variables have guessed values

    @classmethod
    def now(cls, arguments: Sequence[str], environment: Mapping[str, str], outputs: tuple[int, int]) -> Start:
        """A process that this thread would start now. Raises OSError if that is unknown."""
        return cls(tuple(arguments), dict(environment), outputs, inherited())

    def kept(self) -> Start:
        """Return a copy with descriptors that stay open until `close`."""
        return replace(self, outputs=(os.dup(self.outputs[0]), os.dup(self.outputs[1])))

    def close(self) -> None:
        for output in self.outputs:
            os.close(output)


class PrestartedProcess:
    """Starts a prestarted process, which is a child of this one like any training process."""

    def __init__(
        self, start: Start, imports: Sequence[str], states: Mapping[str, str], late: Sequence[str], rest: float
    ) -> None:
        self.popen: subprocess.Popen[bytes]
        self.id = uuid.uuid4().hex[:12]  # kept for life, whichever round it will train in
        self.began = time.monotonic()
        self.modules = 0  # 0 until it is ready
        self.doing = ""
        self.is_guessed = start.is_guessed
        self._arguments = start.arguments
        self._environment = start.environment
        self._inherited = inherited()  # from this thread, now
        self._kinds = tuple(map(kind, start.outputs))
        self._received = b""
        ours, theirs = socket.socketpair()
        their_line, our_line = os.pipe()
        high = fcntl.fcntl(theirs, fcntl.F_DUPFD_CLOEXEC, _DESCRIPTOR)
        line = fcntl.fcntl(their_line, fcntl.F_DUPFD_CLOEXEC, high + 1 + _KEPT)
        theirs.close()
        os.close(their_line)
        self.link, self._lifeline = ours, our_line
        try:
            self.popen = subprocess.Popen(
                args=start.arguments,
                env={**start.environment, START: self.id, PRESTARTED: f"{high} {line}"},
                stdout=start.outputs[0],
                stderr=start.outputs[1],
                start_new_session=True,
                pass_fds=(high, line),
            )
        except BaseException:
            self.let_go()
            raise
        finally:
            os.close(high)
            os.close(line)
        self.ask(imports, states, late, rest)

    def ask(self, imports: Sequence[str], states: Mapping[str, str], late: Sequence[str], rest: float) -> None:
        """Have it do these imports, which begin with its present ones, but import no `late` module; it rests ``rest``
        times as long as it works."""
        self.imports = list(imports)
        self.states = {name: states[name] for name in imports if states.get(name)}
        asked = {"imports": self.imports, "states": self.states, "late": list(late), "rest": rest}
        self.link.settimeout(_SEND_SECONDS)
        with contextlib.suppress(OSError):
            self.link.sendall(encode(asked))

    def differs(self, start: Start) -> str | None:
        """Return what would differ from an ordinary start; None if nothing would."""
        if start.arguments != self._arguments:
            return "it has another command"
        if (name := unforeseen(self._environment, start.environment)) is not None:
            return f"its environment variable {name} is another"
        if tuple(map(kind, start.outputs)) != self._kinds:
            return "its output goes to another kind of file"
        for name in self._inherited.keys() | start.inherited.keys():
            if self._inherited.get(name) != start.inherited.get(name):
                return f"it has another {name}"
        if self.popen.poll() is not None:
            return "the prestarted process has ended"
        return None

    def hand_over(self, start: Start, learn: str) -> bool:
        """Order it to run the script; return whether the order has reached it (it may have ended since, as scripts
        do)."""
        orders = encode({"environment": dict(start.environment), "given": dict(self._environment), "learn": learn})
        self.link.settimeout(_SEND_SECONDS)
        try:
            sent = socket.send_fds(self.link, [orders[:1]], list(start.outputs))
            self.link.sendall(orders[sent:])
        except OSError:
            return False
        return True

    def receive(self) -> list[dict[str, Any]] | None:
        """Return its messages, None if there will be no more. Does not wait."""
        self.link.settimeout(0)
        try:
            received = self.link.recv(65536)
        except BlockingIOError:
            return []
        except OSError:
            received = b""
        if not received:
            return None
        messages, self._received = decode(self._received + received)
        return messages

    def end(self, *, kill: bool = True) -> None:
        """End it, as it holds nothing of value; or wait for an end that has begun."""
        for force in (kill, True):
            if force and self.popen.poll() is None:
                with contextlib.suppress(OSError):
                    os.killpg(self.popen.pid, signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.popen.wait(_END_SECONDS)
        self.let_go()

    def let_go(self) -> None:
        """Drop it; this ends it if it is still waiting for orders."""
        self.link.close()
        line, self._lifeline = self._lifeline, -1
        if line >= 0:
            os.close(line)


def outputs(stdout: Any, stderr: Any) -> tuple[int, int]:
    """Return the descriptors that `subprocess.Popen` would give a process."""
    given = [1 if stdout is None else stdout, 2 if stderr is None else stderr]
    first, second = (each if isinstance(each, int) else each.fileno() for each in given)
    return first, second
