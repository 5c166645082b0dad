# SPDX-License-Identifier: Apache-2.0
"""The programs of a control plane as child processes: where they are, their logs, and their end.

It knows nothing of their flags. A program dies with the process that started it, also when that is killed.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

from support.waiting import Deadline

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_STOP_SECONDS = 60.0
_LOG_LINES = 20
_PR_SET_PDEATHSIG = 1
# What begins the command of a program that is to be killed when the thread that starts it ends. Not by `preexec_fn`:
# Python code between fork and exec may wait for ever for a lock that another thread had.
DIES_WITH_PARENT = ("setpriv", "--pdeathsig=KILL", "--") if shutil.which("setpriv") else ()

# Holds the read end of a pipe. A line means that the program was stopped, the pipe's end that its parent is gone.
_GUARD = 'read -r _ || kill -9 "$0"'


class ControlPlaneError(Exception):
    """A control plane cannot be started, or did something unexpected; the message says what to do."""


def find_program(name: str, directory: str | os.PathLike[str] | None = None) -> str:
    """Return the path of a program: in the directory given, else in ``KUBEBUILDER_ASSETS``, else on ``PATH``.

    Raises:
        ControlPlaneError: it is not there.
    """
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    folder = directory or assets
    found = shutil.which(name, path=os.fspath(folder) if folder else None)
    if found is not None:
        return found
    where = f"in {directory}" if directory else f"in KUBEBUILDER_ASSETS={assets}" if assets else "on PATH"
    raise ControlPlaneError(
        f"there is no {name} {where}; download it with "
        "'go run sigs.k8s.io/controller-runtime/tools/setup-envtest@latest use --print path' "
        "and set KUBEBUILDER_ASSETS to the directory that this prints"
    )


def die_with_parent() -> None:
    """To be called in a child: the kernel kills it when the thread that started it ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class NotInTime(Deadline, ControlPlaneError):
    """A program is not ready, or has not answered, in time."""


class Program:
    """A child process whose output goes to a file."""

    def __init__(self, command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None) -> None:
        """`environment`: variables beside those of this process."""
        self._name = Path(command[0]).name
        self._log = log
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(environment or {})},
                start_new_session=True,  # Ctrl-C is for the parent, which then stops it
            )
        self._guard = subprocess.Popen(
            ["/bin/sh", "-c", _GUARD, str(self._process.pid)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        """The process id of the program."""
        return self._process.pid

    def await_ready(self, is_ready: Callable[[], bool], deadline: float) -> None:
        """Wait, until ``time.monotonic()`` is ``deadline`` at most.

        Raises:
            ControlPlaneError: it has ended, or (`NotInTime`) is not ready; the message has the end of its log.
        """
        began = time.monotonic()
        while not is_ready():
            if self._process.poll() is not None:
                raise ControlPlaneError(f"{self._name} ended with code {self._process.returncode}: {self.log_tail()}")
            if time.monotonic() > deadline:
                raise NotInTime(f"{self._name} to be ready", round(time.monotonic() - began, 1), self.log_tail())
            time.sleep(0.05)

    def log_tail(self) -> str:
        """Return the end of what it has printed."""
        lines = self._log.read_text(errors="replace").splitlines()
        return "\n  ".join(["the end of its log is", *lines[-_LOG_LINES:]])

    def stop(self) -> None:
        """End it; returns when it has ended. More calls do nothing."""
        if self._guard.stdin is None or self._guard.stdin.closed:
            return
        self._process.kill()  # nothing it has written is needed afterwards
        self._process.wait(_STOP_SECONDS)
        self._guard.communicate(b"\n", _STOP_SECONDS)
