# SPDX-License-Identifier: Apache-2.0
"""The flag by which all members of a group leave it after the same step."""

from __future__ import annotations

import logging
import threading
import weakref
from typing import Any

import torch
import torch.distributed as dist

log = logging.getLogger(__name__)

_LET_GO_SECONDS = 10.0  # for a thread that has only to be given a processor


class Ending:
    """Whether all members leave the round before the next step: what one has heard, all read one step later."""

    def __init__(self) -> None:
        self._flag: torch.Tensor | None = None
        self._work: Any = None

    def reset(self) -> None:
        """Forget what the last group did."""
        self._flag = self._work = None

    def settle(self) -> None:
        """Wait until what is under way has ended, and the group's threads have let go of it.

        A thread lets go of a tensor after its collective has ended, perhaps much later, and needs Python for that: in a
        process that ends it finds none, and aborts the process.
        """
        if self._work is None or self._flag is None:
            return
        self._work.wait()
        gone = threading.Event()
        weakref.finalize(self._flag, gone.set).atexit = False
        self.reset()
        if not gone.wait(_LET_GO_SECONDS):
            log.warning("the group's threads have not let go of a tensor in %g s; SIGABRT may follow", _LET_GO_SECONDS)

    def agreed(self, *, over: bool) -> bool:
        """Say whether all leave now. To be called by all members before each step; ``over``: this one has heard that
        the round is over."""
        if self._work is not None:
            self._work.wait()
            assert self._flag is not None
            if self._flag.item():
                return True
        self._flag = torch.tensor(float(over))
        self._work = dist.all_reduce(self._flag, dist.ReduceOp.MAX, async_op=True)
        return False
