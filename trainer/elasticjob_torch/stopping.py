"""Makes a stop signal end the wait for the first rendezvous.

torch installs its signal handlers only when it starts the workers, after the first rendezvous. Until then a
torchrun that is its container's first process ignores SIGTERM, as the kernel drops signals to pid 1 that have
no handler: deleting a pod that waits for peers would take its whole grace period. Signals that already have a
handler are left alone.
"""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

_SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


@contextmanager
def signals_heard(make_error: Callable[[signal.Signals], Exception]) -> Iterator[None]:
    """While inside, raise ``make_error(signal)`` at a stop signal that nobody handles."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        raise make_error(signal.Signals(number))

    taken = [number for number in _SIGNALS if signal.getsignal(number) is signal.SIG_DFL]
    try:
        for number in taken:
            signal.signal(number, stop)
        yield
    finally:
        for number in taken:
            if signal.getsignal(number) is stop:
                signal.signal(number, signal.SIG_DFL)
