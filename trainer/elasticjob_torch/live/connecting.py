# SPDX-License-Identifier: Apache-2.0
"""Connects this process with the other members of a round, and disconnects it from the members of the last round."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING

import torch.distributed as dist

from elasticjob_torch.live.torch_private import backends, forget_groups, set_timeout
from elasticjob_torch.sidecar.calls import CallThread, Interrupted

if TYPE_CHECKING:
    from elasticjob_torch.live.backend import Backend
    from elasticjob_torch.live.links import Links
    from elasticjob_torch.live.rounds import Place

_MEET_SECONDS = 20.0  # to connect to the store; and for all members to enter the round
# Then gloo has so long for each member's address, and five times as long for its connection. Nothing else ends its wait
# for a member that is gone between the two: there is no connection yet that could be cut.
_CONNECT_SECONDS = 5.0


def connect_alone(backend: Backend) -> None:
    """Make a group of this process alone."""
    dist.init_process_group(backend.name, store=dist.HashStore(), rank=0, world_size=1)


def connect(place: Place, links: Links, timeout: timedelta, backend: Backend) -> None:
    """Make the round's group, where there is none.

    ``links`` may be cut meanwhile, which ends this with an error, at once or when a member that is gone has had its
    time to connect. ``timeout`` is that of each collective.
    """
    _connect(place, links, timeout, backend)
    links.ends_with(backend.ending())


def _connect(place: Place, links: Links, timeout: timedelta, backend: Backend) -> None:
    if not place.host and place.size == 1:
        return connect_alone(backend)
    if not place.host:
        dist.init_process_group(backend.name, timeout=timeout)
        return None
    links.expect({place.host, "127.0.0.1", "::1"})
    store = dist.PrefixStore(f"elasticjob/live/{place.round}", _store(place, links))
    _shared_by_all(place, store, "here", "")
    dist.init_process_group(
        backend.name,
        store=store,
        rank=place.rank,
        world_size=place.size,
        timeout=min(timeout, timedelta(seconds=_CONNECT_SECONDS)) if set_timeout else timeout,
    )
    if set_timeout:
        set_timeout(timeout)
    # by the store, not by a collective: that would wait on connections that cannot be cut yet
    shared = _shared_by_all(place, store, "addresses", json.dumps(sorted(links.own_addresses())))
    links.expect({str(address) for one in shared for address in json.loads(one)})
    return None


def _store(place: Place, links: Links) -> dist.TCPStore:
    """Connect to the round's store. torch tries that again and again, and is not told when ``links`` are cut."""
    timeout = timedelta(seconds=_MEET_SECONDS)
    thread = CallThread(links.were_cut)
    try:
        return thread.call(
            lambda: dist.TCPStore(place.host, place.port, is_master=False, wait_for_workers=False, timeout=timeout),
            _MEET_SECONDS,
        )
    except Interrupted as error:
        raise dist.DistNetworkError(f"the store of round {place.round}: {error}") from None
    finally:
        thread.close()


def _shared_by_all(place: Place, store: dist.Store, what: str, mine: str) -> list[bytes]:
    """Tell the other members something; return what all have told, by rank, once they have."""
    keys = [f"{what}/{rank}" for rank in range(place.size)]
    store.set(keys[place.rank], mine)
    store.wait(keys)
    shared: list[bytes] = store.multi_get(keys)
    return shared


def disconnect() -> list[object]:
    """End the group, if there is one, or what is left of one that has not formed.

    Return its backends: their end waits for its collectives. They have to be dropped after all else that holds them.
    """
    held = backends() or [dist.group.WORLD]
    if dist.is_initialized():
        dist.destroy_process_group()
    forget_groups()
    return held
