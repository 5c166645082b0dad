# SPDX-License-Identifier: Apache-2.0
"""The flag by which all members of a group leave it after the same step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

if TYPE_CHECKING:
    from elasticjob_torch.live.collectives import Collectives


class Ending:
    """Whether all members leave the round before the next step: what one has heard, all read one step later."""

    def __init__(self) -> None:
        self._flag: torch.Tensor | None = None
        self._work: Any = None

    def reset(self) -> None:
        """Forget what the last group did."""
        self._flag = self._work = None

    def settle(self, collectives: Collectives) -> None:
        """Wait until what is under way has ended."""
        if self._work is not None:
            collectives.wait(self._work)
        self.reset()

    def agreed(self, collectives: Collectives, *, over: bool) -> bool:
        """Say whether all leave now. To be called by all members before each step; ``over``: this one has heard that
        the round is over."""
        if self._work is not None:
            collectives.wait(self._work)
            assert self._flag is not None
            if self._flag.item():
                return True
        self._flag = collectives.lend(torch.tensor(float(over)))
        self._work = dist.all_reduce(self._flag, dist.ReduceOp.MAX, async_op=True)
        return False
