# SPDX-License-Identifier: Apache-2.0
"""The processes of a stand-in kubelet's pods."""

import signal
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from plane.sandbox import LogFile, Sidecar


def test_a_sidecar_that_has_just_ended_can_be_signalled(tmp_path: Path) -> None:
    """The server that forked it has reaped it, and has not said so yet."""
    ended = subprocess.Popen(["true"])
    ended.wait()
    process = cast(Any, SimpleNamespace(pid=ended.pid, exitcode=None))
    Sidecar(process, LogFile(tmp_path / "log")).signal(signal.SIGKILL)
