# SPDX-License-Identifier: Apache-2.0
"""Averages gradients over the group, as DDP does by itself, but so that a wait for them ends when the group is cut."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch.distributed as dist

from elasticjob_torch.live.collectives import value_of

if TYPE_CHECKING:
    import torch
    from torch.futures import Future
    from torch.nn.parallel import DistributedDataParallel

    from elasticjob_torch.live.collectives import Collectives


def average_gradients(ddp: DistributedDataParallel, collectives: Collectives) -> None:
    """From now on let a DDP, which has a new reducer, average by the present group's ``collectives``."""
    # torch reads a hook's annotations, and takes none that are strings
    ddp.register_comm_hook(collectives, lambda state, bucket: _average(state, bucket))


def _average(collectives: Collectives, bucket: dist.GradBucket) -> Future[torch.Tensor]:
    gradients = bucket.buffer().mul_(1.0 / dist.get_world_size())
    # of sparse ones another tensor would get the sum: theirs does not share what it is kept in
    reduced = gradients if gradients.is_sparse else collectives.lend(gradients.detach())
    work = dist.all_reduce(reduced, async_op=True)
    # DDP reads only an error that a callback raised
    return collectives.future(work, gradients).then(value_of)
