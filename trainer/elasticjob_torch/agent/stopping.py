# SPDX-License-Identifier: Apache-2.0
"""torchrun's signals: a stop signal ends it before it has started its training processes, and SIGCHLD is not ignored.

torch installs its signal handlers only when it starts training processes, after the first rendezvous. Until then a
torchrun that is its container's first process ignores SIGTERM, as the kernel drops signals to pid 1 that have no
handler: deleting a pod that waits for peers would take its whole grace period. Signals that already have a handler are
left alone, and torch later replaces these handlers by its own.
"""

from __future__ import annotations

import os
import signal
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

_SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


def hear_signals(make_error: Callable[[signal.Signals], Exception] | None = None) -> None:
    """From now on, raise ``make_error(signal)`` in the main thread at a stop signal without a handler: by default the
    exception that torch's own handlers raise.

    If SIGCHLD is ignored, as after a shell's ``trap '' CHLD``, the default is restored: otherwise the kernel would
    discard how a child has ended, and each failure would pass for a success. It is restored for the training processes'
    own children too.
    """
    if threading.current_thread() is not threading.main_thread():
        return  # handlers can be set only there
    make = make_error or _torchs_own()

    def stop(number: int, frame: FrameType | None) -> None:
        raise make(signal.Signals(number))

    for number in _SIGNALS:
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, stop)
    if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def _torchs_own() -> Callable[[signal.Signals], Exception]:
    from torch.distributed.elastic.multiprocessing import SignalException  # here, as an agent may have no torch

    return lambda number: SignalException(f"Process {os.getpid()} got signal: {number}", sigval=number)
