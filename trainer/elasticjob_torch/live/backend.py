# SPDX-License-Identifier: Apache-2.0
"""What differs between the backends of a group that breaks: how its blocked collectives end, and when the optimizer may
rely on the gradients.

gloo's collectives end with the group's connections, which `links` cuts; `collectives` waits for them. Unless the group
was cut, a collective has ended when a wait for it returns.

NCCL's collectives run on the GPU after their calls, no socket ends them, and an aborted collective leaves undefined
numbers. `elastic` uses gloo only: `Nccl` has yet to run on GPUs. Its group has gloo beside NCCL, for everything that is
not a tensor on a GPU.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import torch
from torch.distributed import DistBackendError

from elasticjob_torch.live.torch_private import aborts_present_group

if TYPE_CHECKING:
    from collections.abc import Callable

    from elasticjob_torch.live.links import Links


class Backend(Protocol):
    """``name``: as `torch.distributed.init_process_group` takes it."""

    name: str

    def ending(self) -> Callable[[], object]:
        """Return what ends the present group's collectives, as far as they do not end with its connections. It may be
        called from any thread, also when another group has taken the present one's place."""

    def settle(self, links: Links) -> None:
        """Wait until the step's collectives have ended: their results are in use from now on.

        Raises:
            DistBackendError: the group broke, and they are undefined.
        """


class Gloo:
    name = "gloo"

    def ending(self) -> Callable[[], object]:
        return lambda: None

    def settle(self, links: Links) -> None:
        """Nothing is left to wait for: a wait for a collective that failed has raised."""


class Nccl:
    name = "cpu:gloo,cuda:nccl"

    def ending(self) -> Callable[[], object]:
        return aborts_present_group()

    def settle(self, links: Links) -> None:
        torch.cuda.current_stream().synchronize()  # NCCL's streams are joined to it by the reducer
        if links.are_broken():
            raise DistBackendError("a collective of this step was aborted, and the gradients are undefined")
