# SPDX-License-Identifier: Apache-2.0
"""Has a training process write its Python stacks to its stderr when its agent asks, even from an endless loop in C.

``sitecustomize`` calls this at the start of each Python process: so it must be cheap, and imports no torch. The signal
is a real-time one, in the middle of the range that neither Python nor glibc, torch or a launcher uses. It would end a
process that does not catch it, so the agent checks before it sends.
"""

from __future__ import annotations

import faulthandler
import os
from typing import TYPE_CHECKING

from elasticjob_torch.agent.ancestry import is_training_process

if TYPE_CHECKING:
    from collections.abc import Mapping

NUMBER = 45  # SIGRTMIN+11, as a number, as `signal` is not imported for this


def write_stacks_when_asked(environ: Mapping[str, str] = os.environ) -> None:
    """From now on do so, if torch's agent started this process to train. Its own children are left alone."""
    if not is_training_process(environ):
        return
    try:
        faulthandler.register(NUMBER, all_threads=True)
    except (AttributeError, OSError, RuntimeError, ValueError):
        return  # without stderr, or on a system without such signals


def hears(process: int) -> bool:
    """Say whether the process catches the signal."""
    return has_signal(process, "SigCgt", NUMBER)


def ask_for_stacks(process: int) -> bool:
    """Ask a process, unless it does not catch the signal; return whether it was asked."""
    return hears(process) and send(process, NUMBER)


def send(process: int, number: int) -> bool:
    """Send a process the signal; return False if there is no such process."""
    try:
        os.kill(process, number)
    except OSError:
        return False
    return True


def is_asked(process: int) -> bool:
    """Say whether the process has not yet seen the signal."""
    return has_signal(process, "ShdPnd", NUMBER)


def has_signal(process: int, field: str, number: int) -> bool:
    """Say whether the kernel lists the signal in that field: ``SigCgt`` if it is caught, ``ShdPnd`` if it is
    pending."""
    try:
        with open(f"/proc/{process}/status", encoding="utf-8", errors="replace") as file:
            mask = next((line.split()[1] for line in file if line.startswith(f"{field}:")), "0")
    except OSError:
        return False
    return bool(int(mask, 16) >> (number - 1) & 1)
