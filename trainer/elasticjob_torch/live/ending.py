# SPDX-License-Identifier: Apache-2.0
"""The flag by which all members of a group leave it after the same step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from elasticjob_torch.live.collectives import value_of

if TYPE_CHECKING:
    from torch.futures import Future

    from elasticjob_torch.live.collectives import Collectives


class Ending:
    """Whether all members leave the round before the next step: what one has heard, all read one step later."""

    def __init__(self) -> None:
        self._flag: torch.Tensor | None = None
        self._done: Future[Any] | None = None

    def reset(self) -> None:
        """Forget what the last group did."""
        self._flag = self._done = None

    def settle(self) -> None:
        """Wait until what is under way has ended."""
        if self._done is not None:
            value_of(self._done)
        self.reset()

    def agreed(self, collectives: Collectives, *, over: bool) -> bool:
        """Say whether all leave now. To be called by all members before each step; ``over``: this one has heard that
        the round is over."""
        if self._done is not None:
            value_of(self._done)
            assert self._flag is not None
            if self._flag.item():
                return True
        self._flag = collectives.lend(torch.tensor(float(over)))
        self._done = collectives.future(dist.all_reduce(self._flag, dist.ReduceOp.MAX, async_op=True), None)
        return False
