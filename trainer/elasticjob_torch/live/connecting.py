# SPDX-License-Identifier: Apache-2.0
"""Connects this process with the other members of a round, and disconnects it from those of the last."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import torch.distributed as dist

from elasticjob_torch.live.links import Links

if TYPE_CHECKING:
    from elasticjob_torch.live.backend import Backend
    from elasticjob_torch.live.rounds import Place

_STORE_SECONDS = 20.0


def connect_alone(backend: Backend) -> None:
    """Make a group of this process alone."""
    dist.init_process_group(backend.name, store=dist.HashStore(), rank=0, world_size=1)


def connect(place: Place, links: Links, timeout: timedelta, backend: Backend) -> None:
    """Make the round's group. ``links`` may be cut meanwhile, which ends this with an error.

    ``timeout`` is that of each collective.
    """
    disconnect()
    _connect(place, links, timeout, backend)
    links.ends_with(backend.ending())


def _connect(place: Place, links: Links, timeout: timedelta, backend: Backend) -> None:
    if not place.host and place.size == 1:
        return connect_alone(backend)
    if not place.host:
        dist.init_process_group(backend.name, timeout=timeout)
        return None
    links.expect({place.host, "127.0.0.1", "::1"})
    store = dist.TCPStore(
        place.host, place.port, is_master=False, wait_for_workers=False, timeout=timedelta(seconds=_STORE_SECONDS)
    )
    dist.init_process_group(
        backend.name,
        store=dist.PrefixStore(f"elasticjob/live/{place.round}", store),
        rank=place.rank,
        world_size=place.size,
        timeout=timeout,
    )
    return None


def disconnect() -> None:
    """End the group, if there is one."""
    if dist.is_initialized():
        dist.destroy_process_group()
