# SPDX-License-Identifier: Apache-2.0
"""What torchrun hears of signals: a stop ends it before it has started its training processes, and how those end.

torch installs its signal handlers only when it starts those, after the first rendezvous. Until then a
torchrun that is its container's first process ignores SIGTERM, as the kernel drops signals to pid 1 that have no
handler: deleting a pod that waits for peers would take its whole grace period. Signals that already have a
handler are left alone, and torch later puts its own handlers in the place of these.
"""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

_SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


def hear_signals(make_error: Callable[[signal.Signals], Exception]) -> None:
    """From now on, raise ``make_error(signal)`` in the main thread at a stop signal that nobody handles.

    That SIGCHLD is ignored, as a shell's ``trap '' CHLD`` has it be, is taken back: the kernel would tell nobody how a
    child has ended, and each failure would pass for a success. So it is for the training processes' own children.
    """
    if threading.current_thread() is not threading.main_thread():
        return  # only there can handlers be set

    def stop(number: int, frame: FrameType | None) -> None:
        raise make_error(signal.Signals(number))

    for number in _SIGNALS:
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, stop)
    if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
