# SPDX-License-Identifier: Apache-2.0
"""The training processes of one round, as the scripts of these tests see them: all that they need is a sum.

Under torchrun it is torch's all-reduce. Under agent.py, where nothing has torch, rank 0's agent adds up.
"""

import json
import os
import socket

SUMS = "SUMS_BY_AGENT"  # set by agent.py


class TorchGroup:
    def __init__(self) -> None:
        import torch
        import torch.distributed as dist

        self._tensor, self._dist = torch.tensor, dist
        dist.init_process_group("gloo")
        self.rank: int = dist.get_rank()

    def sum(self, *values: int) -> list[int]:
        """Place by place, over all processes; it ends when all of them have come to the same call."""
        # kept: one that torch's thread drops last needs the GIL, with which torch 2.6 waits for that thread at the end
        self._sums = self._tensor([int(one) for one in values])
        self._dist.all_reduce(self._sums)
        return [int(one) for one in self._sums.tolist()]

    def leave(self) -> None:
        self._dist.destroy_process_group()


class PlainGroup:
    """The same over the round's store: a line of JSON to rank 0's agent, and one back."""

    def __init__(self) -> None:
        self.rank = int(os.environ["RANK"])
        self._store = socket.create_connection((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])))
        self._lines = self._store.makefile("rw")

    def sum(self, *values: int) -> list[int]:
        print(json.dumps(values), file=self._lines, flush=True)
        answer = self._lines.readline()
        if not answer:
            raise ConnectionError("the round's store has ended")
        return [int(one) for one in json.loads(answer)]

    def leave(self) -> None:
        self._store.shutdown(socket.SHUT_RDWR)


def join() -> TorchGroup | PlainGroup:
    """The group of this process."""
    return PlainGroup() if SUMS in os.environ else TorchGroup()
